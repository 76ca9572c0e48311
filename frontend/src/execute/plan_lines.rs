//! EXPLAIN's result as PostgreSQL's clients expect it: one column QUERY PLAN, a row for each line.
//!
//! DataFusion returns the kind of a plan and its whole text as one value, which a terminal shows as one very long
//! line.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::format::ExplainStatementOptions;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Explain, ExplainFormat, LogicalPlan, PlanType, ToStringifiedPlan};
use datafusion::sql::parser::{ExplainStatement, Statement as PlannerStatement};
use futures::StreamExt;
use partita_sql::hidden::with_known_names;
use partita_sql::parser;
use partita_sql::statement::Statement;

use crate::error::SqlError;
use crate::output::RowStream;

/// Name of the column in PostgreSQL.
const QUERY_PLAN: &str = "QUERY PLAN";

/// Schema of EXPLAIN's result.
pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(QUERY_PLAN, DataType::Utf8, false)]))
}

/// EXPLAIN of a plan.
///
/// # Errors
/// When the options contradict each other.
pub(super) async fn explained(
    state: &SessionState,
    options: ExplainStatementOptions,
    logical: LogicalPlan,
) -> Result<LogicalPlan, SqlError> {
    // DataFusion looks at the options while it plans a statement, which may be any.
    let Some(Statement::Query(query)) = parser::parse("SELECT 1")?.pop() else {
        return Err(SqlError::internal("a query that is explained is no query"));
    };
    let statement = ExplainStatement { options, statement: Box::new(query.statement) };
    let logical = Arc::new(logical);
    Ok(match state.statement_to_plan(PlannerStatement::Explain(statement)).await? {
        LogicalPlan::Explain(mut explain) => {
            explain.stringified_plans = vec![logical.to_stringified(PlanType::InitialLogicalPlan)];
            explain.plan = logical;
            LogicalPlan::Explain(explain)
        }
        LogicalPlan::Analyze(mut analyze) => {
            analyze.input = logical;
            LogicalPlan::Analyze(analyze)
        }
        plan => plan,
    })
}

/// Returns true if a plan's rows are DataFusion's result of EXPLAIN or EXPLAIN ANALYZE.
pub(super) fn explains(logical: &LogicalPlan) -> bool {
    matches!(logical, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_))
}

/// Returns true if the text is one document and must not be cut into lines.
pub(super) fn is_document(logical: &LogicalPlan) -> bool {
    let documents = [ExplainFormat::PostgresJSON, ExplainFormat::Graphviz];
    matches!(logical, LogicalPlan::Explain(Explain { explain_format, .. }) if documents.contains(explain_format))
}

/// The lines of a text as rows.
pub(super) fn of_text(text: &str) -> Result<RecordBatch, SqlError> {
    let lines = StringArray::from(text.lines().collect::<Vec<_>>());
    Ok(RecordBatch::try_new(schema(), vec![Arc::new(lines)])?)
}

/// The lines of DataFusion's result; with several plans, a line with the kind precedes each.
pub(super) fn of_rows(rows: RowStream, document: bool) -> RowStream {
    Box::pin(rows.map(move |batch| of_batch(&batch?, document)))
}

fn of_batch(batch: &RecordBatch, document: bool) -> Result<RecordBatch, SqlError> {
    let text = |column: usize| Ok::<_, SqlError>(cast(batch.column(column), &DataType::Utf8)?);
    let (kinds, plans) = (text(0)?, text(1)?);
    let (kinds, plans) = (kinds.as_string::<i32>(), plans.as_string::<i32>());
    let mut lines: Vec<String> = Vec::new();
    for row in 0..batch.num_rows() {
        let plan = with_known_names(plans.value(row));
        if document {
            lines.push(plan);
            continue;
        }
        if batch.num_rows() > 1 {
            lines.push(kinds.value(row).to_owned());
        }
        lines.extend(plan.lines().map(str::to_owned));
    }
    let lines = StringArray::from(lines);
    Ok(RecordBatch::try_new(schema(), vec![Arc::new(lines)])?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;

    use super::*;

    fn batch(rows: &[(&str, &str)]) -> RecordBatch {
        let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as Arc<dyn Array>;
        let kinds = column(rows.iter().map(|(kind, _)| *kind).collect());
        let plans = column(rows.iter().map(|(_, plan)| *plan).collect());
        RecordBatch::try_from_iter([("plan_type", kinds), ("plan", plans)]).unwrap()
    }

    fn lines(rows: &[(&str, &str)], document: bool) -> Vec<String> {
        let batch = of_batch(&batch(rows), document).unwrap();
        let lines = batch.column(0).as_string::<i32>().iter();
        lines.map(|line| line.unwrap().to_owned()).collect()
    }

    #[test]
    fn each_line_of_a_plan_is_a_row_below_its_kind() {
        let rows = [("logical_plan", "Sort\n  Scan"), ("physical_plan", "SortExec\n  ScanExec\n")];
        let expected =
            ["logical_plan", "Sort", "  Scan", "physical_plan", "SortExec", "  ScanExec"];
        assert_eq!(lines(&rows, false), expected);
        assert_eq!(lines(&[("Plan with Metrics", "A\n  B\n")], false), ["A", "  B"]);
        assert_eq!(lines(&[("logical_plan", "[\n]")], true), ["[\n]"]);
    }
}
