//! The datanode: replicas of partitions and the service that reads and writes them.
