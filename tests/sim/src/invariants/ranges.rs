//! The ranges of a table tile its key space, and those of a wide one cut no row in two; epochs and versions of the
//! catalog only grow; all metas have the same catalog in the same version.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::catalog::Catalog;
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::route::{PartitionMap, Route};
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
            let previous = self.last.insert(node, (life, catalog.version));
            if let Some((_, version)) = previous.filter(|(previous_life, _)| *previous_life == life)
                && version > catalog.version
            {
                cluster.history.violation(format!(
                    "the catalog of meta {node} went from version {version} to {}",
                    catalog.version
                ));
            }
            for violation in self.note(&catalog) {
                cluster.history.violation(violation);
            }
        }
    }

    fn note(&mut self, catalog: &Arc<Catalog>) -> Vec<String> {
        // A version seen before must have the same content, and its ranges are checked already.
        let version = catalog.version;
        if let Some(published) = self.known.get(&version) {
            let same = Arc::ptr_eq(published, catalog)
                || (published.databases == catalog.databases && published.tables == catalog.tables);
            return if same {
                Vec::new()
            } else {
                vec![format!("two metas have different catalogs of version {version}")]
            };
        }
        self.known.insert(version, Arc::clone(catalog));
        let mut violations = Vec::new();
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            if let Err(error) = PartitionMap::new(table.partitions.routes().to_vec()) {
                violations.push(format!("table {} in version {version}: {error}", table.name));
            }
            let is_apart = |route: &Route| route.range.start.key.len() > 1;
            if table.schema.options.wide.is_some()
                && let Some(route) = table.partitions.routes().iter().find(|route| is_apart(route))
            {
                violations.push(format!("partition {} begins inside a row", route.partition));
            }
            // An epoch must not be higher in an older version of the catalog, nor lower in a newer one.
            for route in table.partitions.routes() {
                let recorded = self.epochs.get(&route.partition).copied();
                let (last_version, epoch) = recorded.unwrap_or((version, route.epoch));
                if (last_version < version && route.epoch < epoch)
                    || (last_version > version && route.epoch > epoch)
                {
                    violations.push(format!(
                        "partition {} is at epoch {} in version {version}, and at {epoch} in version {last_version}",
                        route.partition, route.epoch
                    ));
                }
                if last_version <= version {
                    self.epochs.insert(route.partition, (version, route.epoch));
                }
            }
        }
        violations
    }
}
