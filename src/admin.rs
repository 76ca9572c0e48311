//! `partita admin`: administration of a cluster through any of its frontends. Each command is a statement, which
//! --sql shows.

use anyhow::bail;

use crate::client;
use crate::sql;

/// Options of `partita admin`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// PostgreSQL address of a frontend.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003", global = true)]
    connect: String,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long, global = true)]
    plain: bool,
    /// Print the statement instead of running it.
    #[arg(long, global = true)]
    sql: bool,
    #[command(flatten)]
    client: client::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the nodes: address, liveness, replicas.
    Nodes,
    /// List meta's own members: address, liveness, which of them leads.
    Metas,
    /// List all replicas: node, role in the group, progress.
    Replicas,
    /// List all partitions: range, leader, size.
    Partitions,
    /// Move all replicas and leaders off a node, and place none on it.
    Drain {
        /// Number of the node.
        node: u64,
    },
    /// End the draining of a node.
    Undrain {
        /// Number of the node.
        node: u64,
    },
    /// Remove a drained or dead node without replicas from the cluster, for good: its number is not used again, and
    /// its data directory cannot join again.
    RemoveNode {
        /// Number of the node.
        node: u64,
    },
    /// Move the replica of a partition from one node to another.
    Move {
        /// Number of the partition.
        partition: u64,
        /// Node that has the replica.
        from: u64,
        /// Node that gets the replica.
        to: u64,
    },
    /// Transfer the leadership of a partition to its replica on a node.
    Transfer {
        /// Number of the partition.
        partition: u64,
        /// Node that is to lead.
        to: u64,
    },
}

impl Command {
    fn statement(&self) -> String {
        match self {
            Self::Nodes => "SELECT * FROM sys.nodes ORDER BY node".to_owned(),
            Self::Metas => "SELECT * FROM sys.metas ORDER BY address".to_owned(),
            Self::Replicas => {
                "SELECT * FROM sys.replicas ORDER BY database, \"table\", partition, node"
                    .to_owned()
            }
            Self::Partitions => {
                "SELECT * FROM sys.partitions ORDER BY database, \"table\", partition".to_owned()
            }
            Self::Drain { node } => format!("ADMIN drain_node({node})"),
            Self::Undrain { node } => format!("ADMIN undrain_node({node})"),
            Self::RemoveNode { node } => format!("ADMIN remove_node({node})"),
            Self::Move { partition, from: source, to: target } => {
                format!("ADMIN move_replica({partition}, {source}, {target})")
            }
            Self::Transfer { partition, to: target } => {
                format!("ADMIN transfer_leader({partition}, {target})")
            }
        }
    }
}

/// Runs one command.
///
/// # Errors
/// If the frontend cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let statement = options.command.statement();
    if options.sql {
        return Ok(sql::say(&statement)?);
    }
    let client = sql::connect(&options.client, &options.connect, "public").await?;
    match sql::execute(&client, &statement, options.plain).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("{}", sql::describe(&error)),
    }
}
