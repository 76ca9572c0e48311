//! `ADMIN function(...)`: commands of operators. Strings name tables; whole numbers name partitions and nodes as
//! `sys.partitions` and `sys.nodes` show them. An unknown function is an error that lists the known ones.

use partita_proto::id::{NodeId, PartitionId};
use partita_proto::service::AdminOrder;

use super::options::OptionValue;
use super::statement::{Admin, Statement, TableName};
use super::tokens::Tokens;
use crate::error::SqlError;

/// All functions and their arguments.
const FUNCTIONS: [(&str, &str); 9] = [
    ("flush_table", "('table')"),
    ("compact_table", "('table')"),
    ("drain_node", "(node)"),
    ("undrain_node", "(node)"),
    ("remove_node", "(node)"),
    ("move_replica", "(partition, from_node, to_node)"),
    ("transfer_leader", "(partition, to_node)"),
    ("split_partition", "(partition)"),
    ("merge_partitions", "(left_partition, right_partition)"),
];

impl Tokens<'_> {
    /// Takes ADMIN function(...).
    pub(super) fn admin(&mut self) -> Result<Statement, SqlError> {
        self.expect("admin")?;
        let unknown = self.unsupported(format!("ADMIN {}", self.peek().token));
        let function = self.name("a function")?;
        let Some((_, takes)) = FUNCTIONS.iter().find(|(name, _)| *name == function) else {
            let names: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
            return Err(unknown.with_hint(format!("the functions are {}", names.join(", "))));
        };
        let arguments = self.list(Self::option_value)?;
        let admin = admin(&function, &arguments)?;
        let admin = admin.ok_or_else(|| {
            SqlError::syntax(format!("the arguments of {function} are {function}{takes}"))
        })?;
        Ok(Statement::Admin(admin))
    }
}

/// The order that a call stands for; `None` when its arguments are not those of the function.
fn admin(function: &str, arguments: &[OptionValue]) -> Result<Option<Admin>, SqlError> {
    // All arguments but tables are numbers.
    let numbers: Option<Vec<u64>> = arguments.iter().map(number).collect();
    let order = match (function, arguments, numbers.as_deref()) {
        ("flush_table", [OptionValue::Text(name)], _) => {
            return Ok(Some(Admin::FlushTable(table(name)?)));
        }
        ("compact_table", [OptionValue::Text(name)], _) => {
            return Ok(Some(Admin::CompactTable(table(name)?)));
        }
        ("drain_node", _, Some([node])) => AdminOrder::Drain { node: NodeId(*node), on: true },
        ("undrain_node", _, Some([node])) => AdminOrder::Drain { node: NodeId(*node), on: false },
        ("remove_node", _, Some([node])) => AdminOrder::RemoveNode { node: NodeId(*node) },
        ("move_replica", _, Some([partition, source, destination])) => AdminOrder::MoveReplica {
            partition: PartitionId(*partition),
            from: NodeId(*source),
            to: NodeId(*destination),
        },
        ("transfer_leader", _, Some([partition, destination])) => AdminOrder::TransferLeader {
            partition: PartitionId(*partition),
            to: NodeId(*destination),
        },
        ("split_partition", _, Some([partition])) => {
            AdminOrder::SplitPartition { partition: PartitionId(*partition), at: None }
        }
        ("merge_partitions", _, Some([left, right])) => {
            AdminOrder::MergePartitions { left: PartitionId(*left), right: PartitionId(*right) }
        }
        _ => return Ok(None),
    };
    Ok(Some(Admin::Order(order)))
}

fn number(value: &OptionValue) -> Option<u64> {
    match value {
        OptionValue::Text(text) => text.parse().ok(),
        OptionValue::Null | OptionValue::Tuples(_) => None,
    }
}

fn table(name: &str) -> Result<TableName, SqlError> {
    let mut name = Tokens::new(name, 0)?;
    let table = name.table_name()?;
    name.expect_end()?;
    Ok(table)
}
