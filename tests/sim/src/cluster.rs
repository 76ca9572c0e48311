//! The parts of a run: the network, the nodes, the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_datanode::Datanode;
use partita_meta::Meta;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::id::{META_GROUP, NodeId, PartitionId};
use partita_proto::service::MetaService;
use partita_raft::Host;

use crate::history::History;
use crate::ledger::Ledger;
use crate::net::Net;
use crate::nodes::{DataNode, METAS, MetaNode, Sizes};
use crate::workload::Workload;

/// The simulated cluster.
pub(crate) struct Cluster {
    pub(crate) net: Arc<Net>,
    pub(crate) history: History,
    pub(crate) workload: Workload,
    pub(crate) ledger: Ledger,
    pub(crate) sizes: Sizes,
    pub(crate) data: Mutex<BTreeMap<NodeId, DataNode>>,
    pub(crate) metas: Mutex<BTreeMap<NodeId, MetaNode>>,
    /// History of the catalog from which the latest order to a datanode came.
    pub(crate) ordering: Mutex<Option<CatalogHistory>>,
}

impl Cluster {
    /// The datanode, if it is up.
    pub(crate) fn datanode(&self, id: NodeId) -> Option<Arc<Datanode>> {
        let nodes = self.data.lock();
        nodes.get(&id)?.up.as_ref().map(|life| Arc::clone(&life.node))
    }

    /// The meta, if it is up.
    pub(crate) fn meta(&self, id: NodeId) -> Option<Arc<Meta>> {
        let metas = self.metas.lock();
        metas.get(&id)?.up.as_ref().map(|life| Arc::clone(&life.meta))
    }

    /// The datanodes that are up.
    pub(crate) fn data_up(&self) -> Vec<(NodeId, Arc<Datanode>)> {
        let nodes = self.data.lock();
        let up = nodes
            .values()
            .filter_map(|node| node.up.as_ref().map(|life| (node.id, Arc::clone(&life.node))));
        up.collect()
    }

    /// The metas that are up.
    pub(crate) fn metas_up(&self) -> Vec<(NodeId, Arc<Meta>)> {
        let metas = self.metas.lock();
        let up = metas
            .values()
            .filter_map(|node| node.up.as_ref().map(|life| (node.id, Arc::clone(&life.meta))));
        up.collect()
    }

    /// The hosts of Raft groups of all nodes that are up.
    pub(crate) fn hosts(&self) -> Vec<(NodeId, Arc<Host>)> {
        let data = self.data.lock();
        let metas = self.metas.lock();
        let data =
            data.values().filter_map(|node| Some((node.id, Arc::clone(&node.up.as_ref()?.host))));
        let metas =
            metas.values().filter_map(|node| Some((node.id, Arc::clone(&node.up.as_ref()?.host))));
        data.chain(metas).collect()
    }

    /// The meta that leads, found without asking over the network.
    pub(crate) fn leading_meta(&self) -> Option<(NodeId, Arc<Meta>)> {
        use partita_proto::service::ClusterService;
        self.metas_up().into_iter().find(|(_, meta)| *meta.leads().borrow())
    }

    /// The newest catalog of all metas that are up.
    pub(crate) fn newest_catalog(&self) -> Arc<Catalog> {
        let catalogs =
            self.metas_up().into_iter().map(|(_, meta)| Arc::clone(&meta.catalog().borrow()));
        catalogs.max_by_key(|catalog| catalog.version).unwrap_or_default()
    }

    /// All tables of the newest catalog.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        let catalog = self.newest_catalog();
        catalog.tables.values().flat_map(|tables| tables.values().cloned()).collect()
    }

    /// All partitions of the newest catalog.
    pub(crate) fn partitions(&self) -> Vec<PartitionId> {
        let tables = self.tables();
        tables
            .iter()
            .flat_map(|table| table.partitions.routes().iter().map(|route| route.partition))
            .collect()
    }

    /// The node whose replica of a partition claims to lead.
    pub(crate) fn leader_of(&self, partition: PartitionId) -> Option<NodeId> {
        let hosts = self.hosts();
        let leads = hosts.into_iter().find(|(_, host)| {
            host.group(partition.into()).is_some_and(|group| group.status().is_leader)
        });
        leads.map(|(node, _)| node)
    }

    /// True if meta's group has all its members as voters and its leader knows all their data directories.
    pub(crate) fn metas_are_whole(&self) -> bool {
        let Some((leader, meta)) = self.leading_meta() else { return false };
        let host = self.hosts().into_iter().find(|(node, _)| *node == leader);
        let group = host.and_then(|(_, host)| host.group(META_GROUP));
        let voters = group
            .filter(|group| !group.is_changing())
            .map_or(0, |group| group.members().iter().filter(|member| member.voter).count());
        voters == METAS.count() && meta.knows_members() == METAS.count()
    }

    /// True if all other datanodes are up, and every partition, including those not in the catalog yet, has all its
    /// replicas outside this node working.
    pub(crate) fn can_spare(&self, node: NodeId) -> bool {
        let nodes = self.data.lock();
        let hosts: BTreeMap<NodeId, Arc<Host>> = nodes
            .values()
            .filter_map(|node| Some((node.id, Arc::clone(&node.up.as_ref()?.host))))
            .collect();
        let all_up = nodes.keys().all(|id| *id == node || hosts.contains_key(id));
        drop(nodes);
        let tables = self.tables();
        let routes: BTreeMap<PartitionId, _> = tables
            .iter()
            .flat_map(|table| table.partitions.routes())
            .map(|route| (route.partition, &route.replicas))
            .collect();
        let works = |partition: PartitionId, holder: &NodeId| {
            let group = hosts.get(holder).and_then(|host| host.group(partition.into()));
            group.is_some_and(|group| group.status().stopped.is_none())
        };
        let born = |host: &Host| {
            let mut groups = host.known_groups().into_iter().map(|(group, _)| group);
            groups.all(|group| routes.contains_key(&PartitionId(group.0)))
        };
        all_up
            && hosts.values().all(|host| born(host))
            && routes.iter().all(|(partition, replicas)| {
                replicas.values().all(|holder| *holder == node || works(*partition, holder))
            })
    }
}
