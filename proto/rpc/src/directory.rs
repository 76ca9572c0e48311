//! Finds nodes by meta's list of members.
//!
//! One client for each node at its address. When the address changes, the client is replaced; when the node is removed,
//! the client is dropped. In-flight requests keep their client.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::id::NodeId;
use partita_proto::member::Members;
use partita_proto::service::{DataNodes, DataService, FragmentService};
use partita_tls::Links;
use tokio::sync::watch;

use crate::data_client::DataClient;

/// The nodes of a cluster.
pub struct Directory {
    links: Links,
    members: watch::Receiver<Arc<Members>>,
    /// The node of this process, which is called directly.
    local: Option<(NodeId, Arc<dyn DataService>)>,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    /// The members from which the clients were made.
    members: Arc<Members>,
    clients: BTreeMap<NodeId, Arc<DataClient>>,
}

impl Directory {
    /// A directory of these members, as they change, called over these links.
    #[must_use]
    pub fn new(links: Links, members: watch::Receiver<Arc<Members>>) -> Self {
        Self { links, members, local: None, clients: Mutex::default() }
    }

    /// Adds a node in this process, which is not called over the network.
    #[must_use]
    pub fn with_local(mut self, node: NodeId, service: Arc<dyn DataService>) -> Self {
        self.local = Some((node, service));
        self
    }
}

impl DataNodes for Directory {
    /// Must be called in a tokio runtime.
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        if let Some((local, service)) = &self.local
            && *local == node
        {
            return Ok(Arc::clone(service));
        }
        let mut clients = self.clients.lock();
        clients.keep(&self.members.borrow());
        clients.client(&self.links, node).map(|client| client as Arc<dyn DataService>)
    }

    fn ordering(
        &self,
        node: NodeId,
        catalog: &CatalogHistory,
    ) -> Result<Arc<dyn DataService>, Error> {
        if self.local.as_ref().is_some_and(|(local, _)| *local == node) {
            return self.node(node);
        }
        let mut clients = self.clients.lock();
        clients.keep(&self.members.borrow());
        let client = clients.client(&self.links, node)?;
        Ok(Arc::new(client.ordering(catalog)))
    }

    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        let mut clients = self.clients.lock();
        clients.keep(&self.members.borrow());
        clients.client(&self.links, node).map(|client| client as Arc<dyn FragmentService>)
    }

    fn remote(&self) -> bool {
        true
    }

    /// The nodes with recent heartbeats.
    fn all(&self) -> Vec<NodeId> {
        let members = self.members.borrow();
        let mut nodes: Vec<NodeId> =
            members.iter().filter(|(_, member)| member.live).map(|(node, _)| *node).collect();
        if let Some((local, _)) = &self.local
            && !nodes.contains(local)
        {
            nodes.push(*local);
        }
        nodes
    }
}

impl Clients {
    /// Drops the clients of nodes that are removed or have moved.
    fn keep(&mut self, members: &Arc<Members>) {
        if !Arc::ptr_eq(&self.members, members) {
            self.members = Arc::clone(members);
            self.clients.retain(|node, client| {
                members.get(node).is_some_and(|member| member.address == client.address())
            });
        }
    }

    /// The client of a node. A node that is not live is tried too: it may be unreachable for meta only.
    fn client(&mut self, links: &Links, node: NodeId) -> Result<Arc<DataClient>, Error> {
        let unavailable = |fact: &str| Error::Unavailable(format!("{fact} of node {node}"));
        if let Some(client) = self.clients.get(&node) {
            return Ok(Arc::clone(client));
        }
        let member = self.members.get(&node).ok_or_else(|| unavailable("nothing is known"))?;
        if member.address.is_empty() {
            return Err(unavailable("no address is known"));
        }
        let client = Arc::new(DataClient::new(links, node, &member.address));
        self.clients.insert(node, Arc::clone(&client));
        Ok(client)
    }
}
