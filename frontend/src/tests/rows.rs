//! Scans restricted by a row predicate: no other row is returned, counted or shown, however the rows are asked for.

use std::sync::Arc;

use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider,
};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use partita_proto::access::{RowPredicate, Term};
use partita_proto::catalog::Table;
use partita_proto::value::Value;

use super::{Db, cells};
use crate::catalog::CATALOG;
use crate::scan::PartitionScanExec;
use crate::table::PartitionedTable;

/// A table of three tenants in two partitions, and one with the same columns and other rows.
async fn shared() -> Db {
    let db = Db::new();
    for (name, first) in [("t", 0), ("older", 100)] {
        db.tag(&format!(
            "CREATE TABLE {name} (tenant STRING, host STRING, ts TIMESTAMP(3) TIME INDEX, v BIGINT, \
             PRIMARY KEY (tenant, host)) PARTITION BY RANGE (tenant, host) SPLIT AT (('b', 'h1'))"
        ))
        .await;
        let row = |n: usize| {
            let (tenant, host) = (["a", "b", "c"][n % 3], n % 4);
            format!("('{tenant}', 'h{host}', {n}, {n})")
        };
        let rows: Vec<_> = (first..first + 60).map(row).collect();
        db.tag(&format!("INSERT INTO {name} VALUES {}", rows.join(","))).await;
    }
    db
}

fn one_of(column: &str, values: &[&str]) -> RowPredicate {
    let values = values.iter().map(|value| Value::String((*value).to_owned())).collect();
    RowPredicate::new(vec![Term { column: column.to_owned(), values }]).unwrap()
}

fn table(db: &Db, name: &str) -> Arc<Table> {
    Arc::clone(db.frontend.catalog().table("public", name).unwrap())
}

/// A context with one table `t`, whose rows are restricted.
fn context(db: &Db, table: &Arc<Table>, rows: RowPredicate) -> SessionContext {
    let catalog = db.frontend.catalog();
    let (view, state) = (db.frontend.view(), db.frontend.state());
    let provider = PartitionedTable::of(&catalog, table, view, state, Some(rows));
    let schema = Arc::new(MemorySchemaProvider::new());
    schema.register_table("t".to_owned(), Arc::new(provider)).unwrap();
    let databases = MemoryCatalogProvider::new();
    databases.register_schema("public", schema).unwrap();
    let state = SessionStateBuilder::new_from_existing(db.session.context().state())
        .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_catalog(CATALOG, Arc::new(databases));
    context
}

async fn lines(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(cells(&batches).into_iter().map(|row| row.join("|")).collect())
}

/// The scan at the bottom of a plan.
fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if plan.downcast_ref::<PartitionScanExec>().is_some() {
        return Some(Arc::clone(plan));
    }
    plan.children().into_iter().find_map(scan_of)
}

const QUERIES: [&str; 13] = [
    "SELECT count(*) FROM t",
    "SELECT * FROM t ORDER BY v",
    "SELECT v FROM t ORDER BY v",
    "SELECT count(*) FROM t WHERE tenant = 'a'",
    "SELECT count(*), sum(v) FROM t WHERE tenant = 'a' OR v > 30",
    "SELECT max(v), min(tenant), max(tenant) FROM t",
    "SELECT count(DISTINCT tenant) FROM t",
    "SELECT host, max(ts), count(*) FROM t GROUP BY host ORDER BY host",
    "SELECT host, last_value(v ORDER BY ts) FROM t GROUP BY host ORDER BY host",
    "SELECT max(ts) FROM t",
    "SELECT v FROM t ORDER BY ts DESC LIMIT 3",
    "SELECT count(*) FROM (SELECT v FROM t LIMIT 7) AS few",
    "SELECT v FROM t WHERE host = 'h1' ORDER BY v DESC LIMIT 2",
];

#[tokio::test]
async fn queries_answer_as_if_the_other_rows_did_not_exist() {
    let db = shared().await;
    for mode in ["off", "on", "always"] {
        db.tag(&format!("SET run_at_data = {mode}")).await;
        for tenants in [&["b"][..], &["a", "c"], &["nobody"]] {
            let restricted = context(&db, &table(&db, "t"), one_of("tenant", tenants));
            for sql in QUERIES {
                let list: Vec<_> = tenants.iter().map(|tenant| format!("'{tenant}'")).collect();
                let of_tenants =
                    format!("FROM (SELECT * FROM t WHERE tenant IN ({})) AS t", list.join(", "));
                let expected = db.lines(&sql.replace("FROM t", &of_tenants)).await;
                let found = lines(&restricted, sql).await.unwrap();
                assert_eq!(found, expected, "{mode}, {tenants:?}: {sql}");
            }
        }
    }
}

#[tokio::test]
async fn the_rows_of_a_former_table_are_restricted_too() {
    let db = shared().await;
    let former = table(&db, "older").id;
    let united = Arc::new(Table { former: Some(former), ..Table::clone(&table(&db, "t")) });
    let restricted = context(&db, &united, one_of("tenant", &["b"]));
    let found = lines(&restricted, "SELECT count(*), min(v), max(v) FROM t").await.unwrap();
    assert_eq!(found, ["40|1|157"]);
    let found = lines(&restricted, "SELECT count(*) FROM t WHERE tenant <> 'b'").await.unwrap();
    assert_eq!(found, ["0"]);
}

#[tokio::test]
async fn a_predicate_that_does_not_fit_is_an_error() {
    let db = shared().await;
    for column in ["v", "missing"] {
        let restricted = context(&db, &table(&db, "t"), one_of(column, &["1"]));
        let error = lines(&restricted, "SELECT count(*) FROM t").await.unwrap_err();
        assert!(error.to_string().contains("is not a key column"), "{error}");
    }
}

#[tokio::test]
async fn plans_show_no_figures_of_other_rows() {
    let db = shared().await;
    for mode in ["off", "always"] {
        db.tag(&format!("SET run_at_data = {mode}")).await;
        let restricted = context(&db, &table(&db, "t"), one_of("tenant", &["b"]));
        for sql in ["SELECT count(*) FROM t", "SELECT v FROM t LIMIT 2"] {
            for explain in ["EXPLAIN", "EXPLAIN ANALYZE"] {
                let plan =
                    lines(&restricted, &format!("{explain} {sql}")).await.unwrap().join("\n");
                assert!(plan.contains("\"tenant\" = 'b'"), "{plan}");
                for hidden in [", partitions=", "partitions_t", "s_scanned", "files_"] {
                    assert!(!plan.contains(hidden), "{hidden} in {plan}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_restricted_scan_has_no_estimate_and_requests_no_limit() {
    let db = shared().await;
    // Estimates arrive in the background after the first query.
    db.one("SELECT count(*) FROM t").await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let restricted = context(&db, &table(&db, "t"), one_of("tenant", &["b"]));
    let plan = restricted.sql("SELECT v FROM t LIMIT 2").await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let leaf = scan_of(&plan).unwrap();
    let spec = leaf.downcast_ref::<PartitionScanExec>().unwrap().spec();
    assert_eq!((spec.rows, spec.request_limit()), (None, None));
    assert!(spec.row_filter.is_some());
}
