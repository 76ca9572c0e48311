//! The meta service: catalog, partition maps, nodes and plans.
