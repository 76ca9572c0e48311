//! A table of several partitions, as its clients see it: they have a map, send each row to its partition, and repeat
//! refused requests with the same identity.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use partita_proto::range::Bound;
use partita_proto::reshape::{Absorb, Freeze, Reshape, Reshaped, Split};
use partita_proto::value::Value;

use super::cluster::{Cluster, PATIENCE};
use super::*;

/// One partition: it owns ids from `start` on, up to where the next one starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    pub(super) start: i64,
    pub(super) nodes: Vec<u64>,
}

impl Route {
    pub(super) fn target(&self) -> (PartitionId, Epoch) {
        (self.partition, self.epoch)
    }
}

pub(super) struct Table {
    routes: Mutex<Vec<Route>>,
}

pub(super) fn bound(id: i64) -> Bound {
    Bound { placement: None, key: vec![Value::Int(id)] }
}

/// The replica of a partition that was cut off on a node: a number that tells both.
pub(super) fn replica(partition: PartitionId, node: u64) -> ReplicaId {
    ReplicaId(partition.0 * 100 + node)
}

fn part(rows: &[(i64, i64)], routes: &[Route], at: usize) -> Vec<(i64, i64)> {
    let end = routes.get(at + 1).map_or(i64::MAX, |next| next.start);
    let own = |id: i64| id >= routes[at].start && id < end;
    rows.iter().copied().filter(|(id, _)| own(*id)).collect()
}

impl Table {
    pub(super) fn new(nodes: &[u64]) -> Self {
        let route =
            Route { partition: PARTITION, epoch: Epoch(1), start: i64::MIN, nodes: nodes.to_vec() };
        Self { routes: Mutex::new(vec![route]) }
    }

    pub(super) fn routes(&self) -> Vec<Route> {
        self.routes.lock().clone()
    }

    pub(super) fn route(&self, partition: PartitionId) -> Route {
        self.routes().into_iter().find(|route| route.partition == partition).unwrap()
    }

    pub(super) fn set_nodes(&self, partition: PartitionId, nodes: &[u64]) {
        let mut routes = self.routes.lock();
        let route = routes.iter_mut().find(|route| route.partition == partition).unwrap();
        route.nodes = nodes.to_vec();
    }

    /// The order to cut a partition at an id; the new partition's number is the child's.
    pub(super) fn order(&self, partition: PartitionId, at: i64, child: u64) -> Split {
        let route = self.route(partition);
        let child = PartitionId(child);
        let replicas = route.nodes.iter().map(|node| (NodeId(*node), replica(child, *node)));
        let replicas = replicas.collect();
        Split { partition, epoch: route.epoch, at: bound(at), child, replicas, leader: None }
    }

    /// Splits a partition on its leader, and updates the clients' map.
    pub(super) async fn split(
        &self,
        cluster: &Cluster,
        partition: PartitionId,
        at: i64,
        child: u64,
    ) -> Reshaped {
        self.split_by(cluster, &self.order(partition, at, child), at).await
    }

    /// As [`Table::split`], by an order that cuts at an id.
    pub(super) async fn split_by(&self, cluster: &Cluster, order: &Split, at: i64) -> Reshaped {
        let ask = async |_, node: Arc<Datanode>| node.reshape(Reshape::Split(order.clone())).await;
        let reshaped = cluster.anywhere("a split", ask).await;
        let mut routes = self.routes.lock();
        let parent = routes.iter().position(|route| route.partition == order.partition).unwrap();
        routes[parent].epoch = Epoch(order.epoch.0 + 1);
        let child = Route { partition: order.child, start: at, ..routes[parent].clone() };
        routes.insert(parent + 1, child);
        reshaped
    }

    /// Sends an order to the leader, until it succeeds.
    pub(super) async fn order_anywhere(cluster: &Cluster, order: &Reshape) -> Reshaped {
        let ask = async |_, node: Arc<Datanode>| node.reshape(order.clone()).await;
        cluster.anywhere("an order", ask).await
    }

    /// The orders that merge a partition with its right neighbour: the neighbour is frozen, then taken over. The
    /// index of the former has still to be put into the latter.
    pub(super) fn merge_orders(&self, left: PartitionId) -> (Freeze, Absorb) {
        let routes = self.routes();
        let at = routes.iter().position(|route| route.partition == left).unwrap();
        let (left, right) = (&routes[at], &routes[at + 1]);
        let freeze = Freeze { partition: right.partition, epoch: right.epoch, on: true };
        let end = routes.get(at + 2).map_or_else(Bound::default, |next| bound(next.start));
        let (partition, epoch) = left.target();
        (freeze, Absorb { partition, epoch, right: right.partition, frozen: 0, end })
    }

    /// Freezes a partition's right neighbour on all its replicas; returns the order to absorb it.
    pub(super) async fn freeze(&self, cluster: &Cluster, left: PartitionId) -> Absorb {
        let (freeze, absorb) = self.merge_orders(left);
        let frozen = Self::order_anywhere(cluster, &Reshape::Freeze(freeze.clone())).await.index;
        let nodes = self.route(freeze.partition).nodes;
        let in_files = async || {
            let mut all = true;
            for node in &nodes {
                let status = cluster.status_of(*node, freeze.partition).await;
                all &= status.is_some_and(|s| s.epoch > freeze.epoch && s.flushed >= frozen);
            }
            all
        };
        cluster.until("the freeze is not everywhere", in_files).await;
        Absorb { frozen, ..absorb }
    }

    /// Updates the clients' map after a partition has absorbed its neighbour.
    pub(super) fn merged(&self, order: &Absorb) {
        let mut routes = self.routes.lock();
        routes.retain(|route| route.partition != order.right);
        let left = routes.iter_mut().find(|route| route.partition == order.partition).unwrap();
        left.epoch = Epoch(order.epoch.0 + 1);
    }

    /// Merges a partition with its right neighbour, and drops the neighbour's replicas.
    pub(super) async fn merge(&self, cluster: &Cluster, left: PartitionId) {
        let order = self.freeze(cluster, left).await;
        let right = self.route(order.right);
        Self::order_anywhere(cluster, &Reshape::Absorb(order.clone())).await;
        self.merged(&order);
        let applied = async || {
            let mut all = true;
            for node in &self.route(left).nodes {
                let status = cluster.status_of(*node, left).await;
                all &= status.is_some_and(|status| status.epoch > order.epoch);
            }
            all
        };
        cluster.until("the merge is not everywhere", applied).await;
        for node in right.nodes {
            let status = cluster.status_of(node, right.partition).await.unwrap();
            cluster.node(node).drop_partition(right.partition, status.replica).await.unwrap();
        }
    }

    pub(super) fn set_epoch(&self, partition: PartitionId, epoch: Epoch) {
        let mut routes = self.routes.lock();
        let route = routes.iter_mut().find(|route| route.partition == partition).unwrap();
        route.epoch = epoch;
    }

    /// Writes rows, each to the partition that owns it, until all have taken effect. The rows have one identity as long
    /// as they go together; parts of them have their own, and those that they had together before.
    pub(super) async fn write(&self, cluster: &Cluster, sequence: u64, rows: &[(i64, i64)]) {
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut parts = 0;
        let mut waiting = vec![(RequestId { client: 1, sequence }, Vec::new(), rows.to_vec())];
        while let Some((id, earlier, rows)) = waiting.pop() {
            let routes = self.routes();
            let cut = (0..routes.len()).map(|at| (at, part(&rows, &routes, at)));
            let mut cut: Vec<_> = cut.filter(|(_, part)| !part.is_empty()).collect();
            if cut.len() > 1 {
                let together: Vec<RequestId> = earlier.into_iter().chain([id]).collect();
                waiting.extend(cut.into_iter().map(|(_, part)| {
                    parts += 1;
                    (RequestId { client: 1000 + sequence, sequence: parts }, together.clone(), part)
                }));
                continue;
            }
            let Some((at, part)) = cut.pop() else { continue };
            let ids = (id, earlier.clone());
            if let Err(error) = Self::write_part(cluster, &routes[at], ids, &part).await {
                assert!(std::time::Instant::now() < deadline, "never written: {error}");
                waiting.push((id, earlier, part));
            }
        }
    }

    async fn write_part(
        cluster: &Cluster,
        route: &Route,
        ids: (RequestId, Vec<RequestId>),
        rows: &[(i64, i64)],
    ) -> Result<(), Error> {
        let mut last = Error::Unavailable("nobody runs".to_owned());
        for node in &route.nodes {
            let Some((_, node)) = cluster.running(*node) else { continue };
            match write_part(node, route.target(), ids.clone(), rows).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let passing = error.is_retryable() || matches!(error, Error::NotFound { .. });
                    assert!(passing, "{error}");
                    last = error;
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        Err(last)
    }

    /// All rows of all partitions; rows written meanwhile may be missing.
    pub(super) async fn rows(&self, cluster: &Cluster) -> Vec<(i64, i64)> {
        'again: loop {
            let (mut all, routes) = (Vec::new(), self.routes());
            for route in &routes {
                let deadline = std::time::Instant::now() + PATIENCE;
                loop {
                    match Self::rows_of_route(cluster, route).await {
                        Ok(rows) => {
                            all.extend(rows);
                            break;
                        }
                        // What was read of other partitions is as good as before, unless the map is another.
                        Err(_) if self.routes() != routes => continue 'again,
                        Err(error) => {
                            assert!(std::time::Instant::now() < deadline, "never read: {error}");
                        }
                    }
                }
            }
            return all;
        }
    }

    async fn rows_of_route(cluster: &Cluster, route: &Route) -> Result<Vec<(i64, i64)>, Error> {
        let mut last = Error::Unavailable("nobody runs".to_owned());
        for node in &route.nodes {
            let Some((_, node)) = cluster.running(*node) else { continue };
            match rows_of(node, route.target()).await {
                Ok(rows) => return Ok(rows),
                Err(error) => {
                    let passing = error.is_retryable() || matches!(error, Error::NotFound { .. });
                    assert!(passing, "{error}");
                    last = error;
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        Err(last)
    }

    /// Rows by the node that has them, of every replica of a partition.
    pub(super) async fn contents(
        &self,
        cluster: &Cluster,
        partition: PartitionId,
    ) -> BTreeMap<u64, usize> {
        let mut found = BTreeMap::new();
        for node in self.route(partition).nodes {
            let content = cluster.node(node).content(partition).await.unwrap();
            found.insert(node, content.rows.iter().map(RecordBatch::num_rows).sum());
        }
        found
    }
}
