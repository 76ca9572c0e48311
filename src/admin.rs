//! `partita admin`: what an operator asks of a cluster, through any of its frontends. Each command is
//! a statement, which it shows with --sql.

use anyhow::bail;

use crate::sql;

/// Options of `partita admin`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A frontend's PostgreSQL address.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003", global = true)]
    connect: String,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long, global = true)]
    plain: bool,
    /// Only show the statement.
    #[arg(long, global = true)]
    sql: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// The nodes: where they are, whether they live, what they hold.
    Nodes,
    /// Meta's own members: where they are, whether they answer, which of them leads.
    Metas,
    /// Every replica: where it is, what it is to its group, how far it is.
    Replicas,
    /// Every partition: its range, its leader, its size.
    Partitions,
    /// Moves everything off a node, and puts nothing on it.
    Drain {
        /// The node.
        node: u64,
    },
    /// Lets a node be used again.
    Undrain {
        /// The node.
        node: u64,
    },
    /// Takes a drained or dead node that has no replica any more out of the cluster, for good: its number is not given
    /// again, and its data directory cannot join again.
    RemoveNode {
        /// The node.
        node: u64,
    },
    /// Moves the replica of a partition from one node to another.
    Move {
        /// The partition.
        partition: u64,
        /// The node that has it.
        from: u64,
        /// The node that gets it.
        to: u64,
    },
    /// Hands the leadership of a partition to its replica on a node.
    Transfer {
        /// The partition.
        partition: u64,
        /// The node.
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
            Self::Move { partition, from, to } => {
                format!("ADMIN move_replica({partition}, {from}, {to})")
            }
            Self::Transfer { partition, to } => format!("ADMIN transfer_leader({partition}, {to})"),
        }
    }
}

/// Runs one command.
///
/// # Errors
/// When the frontend cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let statement = options.command.statement();
    if options.sql {
        return Ok(sql::say(&statement)?);
    }
    let client = sql::connect(&options.connect, "public").await?;
    match sql::execute(&client, &statement, options.plain).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("{}", sql::describe(&error)),
    }
}
