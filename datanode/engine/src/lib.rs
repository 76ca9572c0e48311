//! Storage of one partition.
