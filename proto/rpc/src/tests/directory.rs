//! Finding nodes.

use std::sync::Arc;

use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::member::{Member, Members};
use partita_proto::service::{DataNodes, DataService};
use partita_tls::Links;
use tokio::sync::watch;
use tonic::service::Routes;

use super::{FakeNode, NODE, Served, served};
use crate::{DataServer, Directory};

const OTHER: NodeId = NodeId(8);
const PARTITION: PartitionId = PartitionId(1);

fn members(nodes: &[(NodeId, &str, bool)]) -> Arc<Members> {
    let member = |(node, address, live): &(NodeId, &str, bool)| {
        (*node, Member { address: (*address).to_owned(), live: *live, ..Member::default() })
    };
    Arc::new(nodes.iter().map(member).collect())
}

async fn serve(id: NodeId, node: &Arc<FakeNode>) -> Served {
    let service = Arc::clone(node) as Arc<dyn DataService>;
    served(Routes::new(DataServer::server(id, service))).await
}

async fn flush(directory: &Directory, node: NodeId) -> Result<(), Error> {
    directory.node(node)?.flush_partition(PARTITION).await
}

#[tokio::test]
async fn a_node_is_found_where_meta_says_it_is() {
    let (one, two) = (Arc::new(FakeNode::default()), Arc::new(FakeNode::default()));
    let (at_one, at_two) = (serve(NODE, &one).await, serve(NODE, &two).await);
    let (sender, receiver) = watch::channel(members(&[(NODE, &at_one.address, true)]));
    let directory = Directory::new(Links::plain(), receiver);
    flush(&directory, NODE).await.unwrap();
    let client = directory.node(NODE).unwrap();
    sender.send_replace(members(&[(NODE, &at_one.address, false), (OTHER, "", true)]));
    assert!(Arc::ptr_eq(&client, &directory.node(NODE).unwrap()), "the same address, one client");
    assert_eq!(directory.all(), [OTHER]);
    sender.send_replace(members(&[(NODE, &at_two.address, true)]));
    flush(&directory, NODE).await.unwrap();
    assert_eq!((one.asked.lock().len(), two.asked.lock().len()), (1, 1));
    // A request that began with the old address keeps it.
    client.flush_partition(PARTITION).await.unwrap();
    assert_eq!(one.asked.lock().len(), 2);
}

#[tokio::test]
async fn a_node_that_is_not_known_is_unavailable() {
    let (sender, receiver) = watch::channel(members(&[(NODE, "127.0.0.1:1", true)]));
    let directory = Directory::new(Links::plain(), receiver);
    let error = directory.node(OTHER).err().unwrap();
    assert_eq!(error, Error::Unavailable("nothing is known of node 8".to_owned()));
    let error = flush(&directory, NODE).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("127.0.0.1:1")), "{error}");
    let client = Arc::downgrade(&directory.node(NODE).unwrap());
    sender.send_replace(members(&[(OTHER, "", true)]));
    let error = directory.node(OTHER).err().unwrap();
    assert_eq!(error, Error::Unavailable("no address is known of node 8".to_owned()));
    assert!(directory.node(NODE).is_err());
    assert_eq!(client.strong_count(), 0, "the client of a node that is gone is dropped");
}

#[tokio::test]
async fn nodes_that_swapped_addresses_refuse_what_is_for_the_other() {
    let (one, two) = (Arc::new(FakeNode::default()), Arc::new(FakeNode::default()));
    let (at_one, at_two) = (serve(NODE, &one).await, serve(OTHER, &two).await);
    let right = [(NODE, at_one.address.as_str(), true), (OTHER, at_two.address.as_str(), true)];
    let swapped = [(NODE, at_two.address.as_str(), true), (OTHER, at_one.address.as_str(), true)];
    let (sender, receiver) = watch::channel(members(&swapped));
    let directory = Directory::new(Links::plain(), receiver);
    for node in [NODE, OTHER] {
        let error = flush(&directory, node).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        let client = directory.node(node).unwrap();
        assert!(client.scan(super::scan_request()).await.is_err());
        assert!(client.write(super::write_request(super::rows(0..1, 1))).await.is_err());
        assert!(client.status().await.is_err());
    }
    assert!(one.asked.lock().is_empty() && two.asked.lock().is_empty());
    sender.send_replace(members(&right));
    flush(&directory, NODE).await.unwrap();
    flush(&directory, OTHER).await.unwrap();
    assert_eq!((one.asked.lock().len(), two.asked.lock().len()), (1, 1));
}

#[tokio::test]
async fn the_node_of_this_process_is_called_directly() {
    let node = Arc::new(FakeNode::default());
    let (_sender, receiver) = watch::channel(members(&[(OTHER, "", true)]));
    let local = Arc::clone(&node) as Arc<dyn DataService>;
    let directory = Directory::new(Links::plain(), receiver).with_local(NODE, local);
    flush(&directory, NODE).await.unwrap();
    assert_eq!(node.asked.lock().len(), 1);
    assert_eq!(directory.all(), [OTHER, NODE]);
}
