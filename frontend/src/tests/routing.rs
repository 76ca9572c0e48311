//! The scripts of `testscripts/routing`: statements in, the partitions that they touch out.
//!
//! ```text
//!   > CREATE TABLE ...       the table of the script, `t`
//!   > INSERT INTO t ...      the partitions that took rows
//!   > SELECT ... FROM t ...  what the predicate leaves of each column, and the partitions that are asked
//!   partitions               the ranges of all partitions
//!   > ALTER TABLE t ...      a change of the table
//! ```
//!
//! Everything a statement passes is the real router, predicate and key code; only nodes and meta are in memory.

use std::error::Error;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use goldenscript::{Command, Context, Runner};
use partita_proto::catalog::Table;
use tokio::runtime::Runtime;

use super::Db;
use crate::scan::PartitionScanExec;

#[path = "../../../tests/scripts/run.rs"]
mod run;

struct Script {
    runtime: Runtime,
    db: Db,
}

/// The scan at the bottom of a plan.
fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if plan.downcast_ref::<PartitionScanExec>().is_some() {
        return Some(Arc::clone(plan));
    }
    plan.children().into_iter().find_map(scan_of)
}

impl Script {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let db = runtime.block_on(async { Db::new() });
        Self { runtime, db }
    }

    fn table(&self) -> Result<Arc<Table>, Box<dyn Error>> {
        let catalog = self.db.fake.catalog();
        Ok(Arc::clone(catalog.table("public", "t").ok_or("there is no table t")?))
    }

    fn execute(&self, sql: &str) -> Result<(), Box<dyn Error>> {
        let output = self.runtime.block_on(self.db.try_run(sql));
        output.map(|_| ()).map_err(|error| error.message.into())
    }

    fn insert(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        let before = self.db.fake.rows("public", "t");
        self.execute(sql)?;
        let after = self.db.fake.rows("public", "t");
        let table = self.table()?;
        let routes = table.partitions.routes().iter().zip(before).zip(after);
        let lines = routes.filter(|((_, before), after)| before != after).map(
            |((route, before), after)| format!("{} row(s) to {}", after - before, route.range),
        );
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn select(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        let plan = self.runtime.block_on(async {
            self.db.session.context().sql(sql).await?.create_physical_plan().await
        })?;
        let table = self.table()?;
        let routes = table.partitions.routes();
        let leaf = scan_of(&plan);
        let Some(scan) = leaf.as_ref().and_then(|plan| plan.downcast_ref::<PartitionScanExec>())
        else {
            return Ok("no partition is asked".to_owned());
        };
        // EXPLAIN shows the domains in the same words.
        let text = format!("{scan:?}");
        let domains = text.split_once("domains=[").and_then(|(_, rest)| {
            let end = rest.rfind("])")?;
            Some(&rest[..end])
        });
        let touched = &scan.spec().touched;
        let mut lines = vec![domains.unwrap_or("every value").to_owned()];
        lines.push(format!("{} of {} partitions", touched.len(), routes.len()));
        if touched.len() < routes.len() {
            lines.extend(touched.iter().map(|position| format!("  {}", routes[*position].range)));
        }
        Ok(lines.join("\n"))
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        command.consume_args().reject_next()?;
        let output = match command.name.split(' ').next().unwrap_or_default() {
            "CREATE" | "ALTER" => {
                self.execute(&command.name)?;
                String::new()
            }
            "INSERT" => self.insert(&command.name)?,
            "SELECT" => self.select(&command.name)?,
            "partitions" => {
                let table = self.table()?;
                let ranges = table.partitions.routes().iter().map(|route| route.range.to_string());
                ranges.collect::<Vec<_>>().join("\n")
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("routing", Script::new);
}
