//! The ranges of a table tile its key space; epochs and versions of the catalog only grow; all metas have the same
//! catalog in the same version.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::catalog::Catalog;
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::route::PartitionMap;
use partita_proto::service::MetaService;

use crate::cluster::Cluster;

/// Catalogs seen so far.
#[derive(Default)]
pub(crate) struct Ranges {
    /// The last version that each meta published, with the life in which it did.
    last: BTreeMap<NodeId, (Option<u64>, u64)>,
    known: BTreeMap<u64, Arc<Catalog>>,
    epochs: BTreeMap<PartitionId, (u64, Epoch)>,
}

impl Ranges {
    /// Checks the published catalog of every meta.
    pub(crate) fn look(&mut self, cluster: &Cluster) {
        for (node, meta) in cluster.metas_up() {
            let catalog = Arc::clone(&meta.catalog().borrow());
            let life = cluster.net.life(node);
            let before = self.last.insert(node, (life, catalog.version));
            if let Some((_, version)) = before.filter(|(before, _)| *before == life)
                && version > catalog.version
            {
                cluster.history.violation(format!(
                    "the catalog of meta {node} went from version {version} to {}",
                    catalog.version
                ));
            }
            for what in self.note(&catalog) {
                cluster.history.violation(what);
            }
        }
    }

    fn note(&mut self, catalog: &Arc<Catalog>) -> Vec<String> {
        // A version seen before must have the same content, and its ranges are checked already.
        let version = catalog.version;
        if let Some(other) = self.known.get(&version) {
            let same = Arc::ptr_eq(other, catalog)
                || (other.databases == catalog.databases && other.tables == catalog.tables);
            return if same {
                Vec::new()
            } else {
                vec![format!("two metas have different catalogs of version {version}")]
            };
        }
        self.known.insert(version, Arc::clone(catalog));
        let mut found = Vec::new();
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            if let Err(error) = PartitionMap::new(table.partitions.routes().to_vec()) {
                found.push(format!("table {} in version {version}: {error}", table.name));
            }
            // An epoch must not be higher in an older version of the catalog, nor lower in a newer one.
            for route in table.partitions.routes() {
                let known = self.epochs.get(&route.partition).copied();
                let (at, epoch) = known.unwrap_or((version, route.epoch));
                if (at < version && route.epoch < epoch) || (at > version && route.epoch > epoch) {
                    found.push(format!(
                        "partition {} is at epoch {} in version {version}, and at {epoch} in version {at}",
                        route.partition, route.epoch
                    ));
                }
                if at <= version {
                    self.epochs.insert(route.partition, (version, route.epoch));
                }
            }
        }
        found
    }
}
