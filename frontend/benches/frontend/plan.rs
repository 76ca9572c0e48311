//! Planning: SQL to a plan that could run. Two queries of TSBS: a look at one host and hour, and means over all hosts.
//!
//! `parse` is text to statement, `logical` from there to a logical plan, `physical` the rest: rules of both kinds, the
//! partitions and the request of each scan. The table has eight partitions, and nodes are remote, as in a cluster.

use std::hint::black_box;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use partita_bench::stage;
use partita_frontend::SessionOptions;
use partita_frontend::sql::parse;

use super::Criterion;
use super::ingest::with_table;

const POINT: &str = "SELECT date_trunc('minute', time) AS bucket, max(usage_user) AS max_usage_user \
     FROM cpu WHERE hostname IN ('host_7') AND time >= '2016-01-01 00:00:01' \
     AND time < '2016-01-01 01:00:01' GROUP BY bucket ORDER BY bucket";
const HEAVY: &str = "SELECT date_trunc('hour', time) AS bucket, hostname, avg(usage_user) AS a, \
     avg(usage_system) AS b, avg(usage_idle) AS c, avg(usage_nice) AS d, avg(usage_iowait) AS e, \
     avg(usage_irq) AS f, avg(usage_softirq) AS g, avg(usage_steal) AS h, avg(usage_guest) AS i, \
     avg(usage_guest_nice) AS j FROM cpu WHERE time >= '2016-01-01 00:00:01' \
     AND time < '2016-01-01 12:00:01' GROUP BY bucket, hostname ORDER BY bucket, hostname";

pub(crate) fn all(criterion: &mut Criterion) {
    let (runtime, _, frontend) = with_table("PARTITION BY HASH (hostname) PARTITIONS 8");
    let session = frontend.session(SessionOptions::default());
    let state = session.context().state();
    // One query is counted as one row.
    for (name, sql) in [("point", POINT), ("heavy", HEAVY)] {
        stage(
            criterion,
            ("plan", &format!("{name}, parse")),
            1,
            || (),
            |()| parse(black_box(sql)).expect("a query"),
        );
        stage(
            criterion,
            ("plan", &format!("{name}, logical")),
            1,
            || (),
            |()| runtime.block_on(logical(&state, black_box(sql))),
        );
        let plan = runtime.block_on(logical(&state, sql));
        stage(
            criterion,
            ("plan", &format!("{name}, physical")),
            1,
            || (),
            |()| {
                let made = runtime.block_on(state.create_physical_plan(black_box(&plan)));
                made.expect("a plan that can run")
            },
        );
    }
}

async fn logical(state: &SessionState, sql: &str) -> LogicalPlan {
    state.create_logical_plan(sql).await.expect("columns of the table")
}
