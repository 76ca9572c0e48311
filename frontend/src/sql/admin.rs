//! `ADMIN function(...)`: what operators say. Strings name tables, whole numbers partitions and nodes
//! as `sys.partitions` and `sys.nodes` show them. A function that does not exist is an error that
//! lists those that do.

use partita_proto::id::{NodeId, PartitionId};
use partita_proto::service::AdminOrder;

use super::options::OptionValue;
use super::statement::{Admin, Statement, TableName};
use super::tokens::Tokens;
use crate::error::SqlError;

/// All functions and what they take.
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
            let known: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
            return Err(unknown.with_hint(format!("there are {}", known.join(", "))));
        };
        let arguments = self.list(Self::option_value)?;
        let admin = admin(&function, &arguments)?;
        let admin = admin.ok_or_else(|| {
            SqlError::syntax(format!("the arguments of {function} are {function}{takes}"))
        })?;
        Ok(Statement::Admin(admin))
    }
}

/// What a function is to do; `None` when it takes other arguments.
fn admin(function: &str, arguments: &[OptionValue]) -> Result<Option<Admin>, SqlError> {
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
        ("move_replica", _, Some([partition, from, to])) => AdminOrder::MoveReplica {
            partition: PartitionId(*partition),
            from: NodeId(*from),
            to: NodeId(*to),
        },
        ("transfer_leader", _, Some([partition, to])) => {
            AdminOrder::TransferLeader { partition: PartitionId(*partition), to: NodeId(*to) }
        }
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
