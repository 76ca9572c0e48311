//! The scripts of `testscripts/placement`: nodes and partitions in, changes of replicas and leaders out.
//!
//! ```text
//!   nodes 1 2 zone=a              live nodes without replicas; also: draining=true, silent=true
//!   partition 1 on 1 2 3          a partition with replicas on these nodes, which the nodes report; the first leads;
//!                                 also: leader=2, wanted=3, gib=8, splitting=true, settling=true
//!   target 1 on 1 2 4             its replicas are being changed to these
//!   lose 3                        a node is given up; also: silence, drain, await (a replica is to appear there)
//!   missing 1 on 2                a live node has not reported the replica as working for a while
//!   vanished 1 on 4               the same for a replica that was created to become a member
//!   empty 2                       a node reports no replica at all
//!   holds 4 partition=9           a node reports a replica that the catalog does not know; also: born=true (of a split)
//!   plan                          the next changes
//!   settle                        carries out plans until nothing is left to do, and shows the partitions
//!   show                          the partitions: nodes of their replicas, the leader's with a star
//! ```

use std::error::Error;

use goldenscript::{ArgumentConsumer, Command, Context, Runner};

use super::*;

#[path = "../../../../tests/scripts/run.rs"]
mod run;

fn script() -> View {
    View::default()
}

fn number(arguments: &mut ArgumentConsumer<'_>) -> Result<u64, Box<dyn Error>> {
    Ok(arguments.next_pos().ok_or("a number is missing")?.parse()?)
}

/// The nodes after the word `on`.
fn on(arguments: &mut ArgumentConsumer<'_>) -> Result<Vec<NodeId>, Box<dyn Error>> {
    if arguments.next_pos() != Some("on") {
        return Err("`on` is missing".into());
    }
    let mut nodes = Vec::new();
    while let Some(node) = arguments.next_pos() {
        nodes.push(NodeId(node.parse()?));
    }
    Ok(nodes)
}

/// The number of a partition's replica on a node.
fn replica(partition: u64, node: NodeId) -> ReplicaId {
    ReplicaId(partition * 100 + node.0)
}

fn find(view: &mut View, id: u64) -> Result<&mut PartitionView, Box<dyn Error>> {
    let partition = view.partitions.iter_mut().find(|partition| partition.id.0 == id);
    partition.ok_or_else(|| format!("no partition {id}").into())
}

fn node(view: &mut View, id: u64) -> Result<&mut NodeView, Box<dyn Error>> {
    view.nodes.get_mut(&NodeId(id)).ok_or_else(|| format!("no node {id}").into())
}

fn add_partition(
    view: &mut View,
    arguments: &mut ArgumentConsumer<'_>,
) -> Result<(), Box<dyn Error>> {
    let id = number(arguments)?;
    let nodes = on(arguments)?;
    let first = nodes.first().map_or(0, |node| node.0);
    let leader = run::take(arguments, "leader", first)?;
    let replicas: BTreeMap<_, _> = nodes.iter().map(|node| (replica(id, *node), *node)).collect();
    view.partitions.push(PartitionView {
        id: PartitionId(id),
        wanted: run::take(arguments, "wanted", replicas.len())?,
        leader: (leader > 0).then_some(NodeId(leader)),
        settling: run::take(arguments, "settling", false)?,
        replicas,
        target: None,
        missing: BTreeSet::new(),
        vanished: BTreeSet::new(),
        bytes: run::take(arguments, "gib", 0)? * GIB,
        in_use: true,
        reshaping: run::take(arguments, "splitting", false)?,
    });
    report(view);
    Ok(())
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Lost => "a replica is lost",
        Why::Draining => "the node is draining",
        Why::TooFew => "too few replicas",
        Why::TooMany => "too many replicas",
        Why::Zone => "two replicas share a zone",
        Why::Balance => "the node holds more than others",
    }
}

/// The replicas on some nodes.
fn replicas(nodes: &[NodeId]) -> String {
    let plural = if nodes.len() == 1 { "" } else { "s" };
    let numbers: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    format!("replica{plural} on node{plural} {}", numbers.join(" and "))
}

fn describe(view: &View, step: &Step) -> String {
    match step {
        Step::Move { partition, add, remove, why } => {
            let before = view.partitions.iter().find(|seen| seen.id == *partition).unwrap();
            let from: Vec<NodeId> = remove.iter().map(|id| before.replicas[id]).collect();
            let change = match (add.as_slice(), from.as_slice()) {
                ([], []) => "take back the change under way".to_owned(),
                (add, []) => format!("add {}", replicas(add)),
                ([], from) => format!("remove {}", replicas(from)),
                (add, from) if add == from => format!("create {} anew", replicas(add)),
                (add, from) => {
                    let to: Vec<_> = add.iter().map(ToString::to_string).collect();
                    format!("move {} to node {}", replicas(from), to.join(" and "))
                }
            };
            format!("partition {partition}: {change} ({})", reason(*why))
        }
        Step::Renumber { partition, replicas } => {
            let numbers: Vec<_> = replicas.iter().map(ToString::to_string).collect();
            format!("partition {partition}: give a new number to replica {}", numbers.join(" and "))
        }
        Step::Transfer { partition, from, to } => {
            format!("partition {partition}: transfer the leadership from node {from} to node {to}")
        }
        Step::GiveUp { partition } => {
            format!("partition {partition}: give up the split or merge")
        }
        Step::Remove { partition, replica, node } => {
            format!(
                "node {node}: remove replica {replica} of partition {partition}, which is unknown"
            )
        }
    }
}

fn show(view: &View) -> String {
    let star = |partition: &PartitionView, node: &NodeId| {
        if partition.leader == Some(*node) { format!("{node}*") } else { node.to_string() }
    };
    let line = |partition: &PartitionView| {
        let mut nodes: Vec<NodeId> = partition.replicas.values().copied().collect();
        nodes.sort_unstable();
        let nodes: Vec<_> = nodes.iter().map(|node| star(partition, node)).collect();
        format!("partition {} on {}\n", partition.id, nodes.join(" "))
    };
    view.partitions.iter().map(line).collect()
}

impl Runner for View {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let output = match command.name.as_str() {
            "nodes" | "node" => {
                let zone = arguments.take_key("zone").map(str::to_owned);
                let template = NodeView {
                    live: !run::take(&mut arguments, "silent", false)?,
                    reported: true,
                    draining: run::take(&mut arguments, "draining", false)?,
                    zone,
                    ..NodeView::default()
                };
                while let Some(id) = arguments.next_pos() {
                    self.nodes.insert(NodeId(id.parse()?), template.clone());
                }
                String::new()
            }
            "partition" => {
                add_partition(self, &mut arguments)?;
                String::new()
            }
            "target" => {
                let id = number(&mut arguments)?;
                let nodes = on(&mut arguments)?;
                let target = nodes.iter().map(|node| (replica(id, *node), *node)).collect();
                find(self, id)?.target = Some(target);
                String::new()
            }
            "wanted" => {
                let id = number(&mut arguments)?;
                find(self, id)?.wanted = usize::try_from(number(&mut arguments)?)?;
                String::new()
            }
            "lose" => {
                let id = number(&mut arguments)?;
                let zone = node(self, id)?.zone.clone();
                lose(self, id);
                node(self, id)?.zone = zone;
                String::new()
            }
            "silence" => {
                node(self, number(&mut arguments)?)?.live = false;
                String::new()
            }
            "drain" => {
                node(self, number(&mut arguments)?)?.draining = true;
                String::new()
            }
            "await" => {
                self.awaited.insert(NodeId(number(&mut arguments)?));
                String::new()
            }
            "empty" => {
                node(self, number(&mut arguments)?)?.has.clear();
                String::new()
            }
            "missing" => {
                let id = number(&mut arguments)?;
                for node in on(&mut arguments)? {
                    find(self, id)?.missing.insert(replica(id, node));
                }
                String::new()
            }
            "vanished" => {
                let id = number(&mut arguments)?;
                for node in on(&mut arguments)? {
                    find(self, id)?.vanished.insert(replica(id, node));
                }
                String::new()
            }
            "holds" => {
                let at = number(&mut arguments)?;
                let partition = run::take(&mut arguments, "partition", 0)?;
                let id = replica(partition, NodeId(at));
                if run::take(&mut arguments, "born", false)? {
                    self.child_replicas.insert((PartitionId(partition), id, NodeId(at)));
                }
                node(self, at)?.has.insert(PartitionId(partition), id);
                String::new()
            }
            "plan" => match plan(self) {
                steps if steps.is_empty() => "nothing to do".to_owned(),
                steps => steps.iter().map(|step| describe(self, step) + "\n").collect(),
            },
            "settle" => {
                settle(self);
                show(self)
            }
            "show" => show(self),
            other => return Err(format!("unknown command {other}").into()),
        };
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("placement", script);
}
