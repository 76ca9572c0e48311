//! Fragments: encoding operators, decoding them, and the rows of the result.

mod codec;
mod running;

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{AggregateUDF, Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::prelude::{SessionConfig, SessionContext};
use partita_proto::service::{RowStream, ScanReply, ScanStats};

use crate::functions::{shared, shared_aggregates};
use crate::leaf::LeafExec;

/// A table that a leaf stands for.
#[derive(Debug)]
struct Leaf;

#[async_trait]
impl TableProvider for Leaf {
    fn schema(&self) -> SchemaRef {
        schema("")
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut schema = self.schema();
        if let Some(projection) = projection {
            schema = Arc::new(schema.project(projection)?);
        }
        Ok(Arc::new(LeafExec::new(schema, 1)))
    }
}

/// Columns `host`, `n`, `v`, with a prefix before each name.
fn schema(prefix: &str) -> SchemaRef {
    let field = |name: &str, data_type| Field::new(format!("{prefix}{name}"), data_type, true);
    Arc::new(Schema::new(vec![
        field("host", DataType::Utf8View),
        field("n", DataType::Int64),
        field("v", DataType::Float64),
    ]))
}

/// The operators that DataFusion plans for a query of `t`, without any optimizer rule.
async fn planned(sql: &str) -> Arc<dyn ExecutionPlan> {
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().with_target_partitions(2))
        .with_default_features()
        .with_physical_optimizer_rules(Vec::new())
        .build();
    let context = SessionContext::new_with_state(state);
    for function in shared() {
        context.register_udf(function);
    }
    for function in shared_aggregates() {
        context.register_udaf(AggregateUDF::clone(&function));
    }
    context.register_table("t", Arc::new(Leaf)).unwrap();
    context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

/// The lowest aggregate of a plan.
fn lowest_aggregate(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let child = plan.children().into_iter().find_map(lowest_aggregate);
    child.or_else(|| (plan.name() == "AggregateExec").then(|| Arc::clone(plan)))
}

/// The operators of a query that work on one stream at a time.
async fn chain(sql: &str) -> Arc<dyn ExecutionPlan> {
    let mut plan = planned(sql).await;
    if plan.name() == "ProjectionExec" && plan.children()[0].name() == "GlobalLimitExec" {
        plan = Arc::clone(plan.children()[0]);
    }
    if let Some(aggregate) = lowest_aggregate(&plan) {
        return aggregate;
    }
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return Arc::new(
            SortExec::new(sort.expr().clone(), Arc::clone(sort.input()))
                .with_preserve_partitioning(true)
                .with_fetch(sort.fetch()),
        );
    }
    if plan.name() == "GlobalLimitExec" {
        return Arc::new(LocalLimitExec::new(Arc::clone(plan.children()[0]), 3));
    }
    plan
}

async fn encoded(sql: &str) -> Result<bytes::Bytes> {
    crate::encode(&chain(sql).await, &ConfigOptions::new())
}

/// Rows with storage names.
fn rows(rows: &[(&str, Option<i64>, f64)]) -> RecordBatch {
    let hosts: StringViewArray = rows.iter().map(|row| Some(row.0)).collect();
    let numbers: Int64Array = rows.iter().map(|row| row.1).collect();
    let values: Float64Array = rows.iter().map(|row| Some(row.2)).collect();
    let columns = vec![Arc::new(hosts) as _, Arc::new(numbers) as _, Arc::new(values) as _];
    RecordBatch::try_new(schema("stored_"), columns).unwrap()
}

/// The reply of a scan over the streams.
fn reply(streams: Vec<RowStream>) -> ScanReply {
    ScanReply { streams, order: None, stats: Arc::new(ScanStats::default()), index: 0 }
}

fn stream(batches: Vec<RecordBatch>) -> RowStream {
    Box::pin(futures::stream::iter(batches.into_iter().map(Ok)))
}
