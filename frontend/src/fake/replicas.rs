//! The fake's replicas: all nodes share one copy of the rows, so followers never lag.

use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, ReplicaId};
use partita_proto::route::PartitionMap;

use super::{Fake, none, put_table};

impl Fake {
    /// Gives every partition of a table a replica on each node. Leaders stay.
    ///
    /// # Errors
    /// Fails if there is no such table.
    pub fn replicate(&self, database: &str, table: &str) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        let table = catalog.table(database, table).ok_or_else(|| none("table", table))?;
        let mut routes = table.partitions.routes().to_vec();
        for route in &mut routes {
            for node in (1..=self.nodes).map(NodeId) {
                if route.replicas.values().all(|holder| *holder != node) {
                    route.replicas.insert(ReplicaId(self.next_id()), node);
                }
            }
        }
        let replicated =
            Table { partitions: Arc::new(PartitionMap::new(routes)?), ..table.as_ref().clone() };
        put_table(&mut catalog, replicated);
        self.publish(catalog);
        Ok(())
    }
}
