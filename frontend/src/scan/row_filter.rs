//! Exact filter of the rows that a token may read, as a part of the scan.
//!
//! ```text
//!   partition ── domains ──▶ rows with the key columns of the predicate ── filter ──▶ columns of the scan ──▶ plan
//! ```
//!
//! The predicate also restricts the domains of the scan, which the engine applies exactly. The filter holds whatever
//! becomes of these. Because it is not an operator of the plan, no optimizer rule can remove it, move it, or push a
//! limit below it. Where operators run at the partitions, they run above it there.
//!
//! Invariant: the conditions come from the predicate itself, not from domains; a value that is not exactly one value
//! of its column's type is an error, and a term without values allows no row.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal, in_list};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use partita_proto::access::{RowPredicate, Term};
use partita_proto::array::array_of;
use partita_proto::domain::Domain;
use partita_proto::schema::{ColumnType, TableSchema};
use partita_proto::value::Value;

use crate::error::SqlError;

/// Maximum values of a column's type that are equal to one literal: both zeros of a float.
const EQUAL_VALUES_MAX: usize = 2;

/// Filter of one table's rows.
#[derive(Clone, Debug)]
pub(crate) struct RowFilter {
    /// Columns of the scan, and after them the columns of the predicate that the scan does not have, by SQL name.
    schema: SchemaRef,
    /// Columns of the scan alone.
    output: SchemaRef,
    /// Columns of the predicate that the scan does not have, by storage name.
    added: Vec<Field>,
    condition: Arc<dyn PhysicalExpr>,
    text: String,
}

impl RowFilter {
    /// The filter of a scan that returns some columns of a table.
    ///
    /// # Errors
    /// Fails if the predicate does not fit the table; then no row may be read.
    pub(crate) fn new(
        predicate: &RowPredicate,
        table: &TableSchema,
        output: &SchemaRef,
    ) -> Result<Self, SqlError> {
        let table_columns = table.arrow();
        let mut fields: Vec<Arc<Field>> = output.fields().iter().map(Arc::clone).collect();
        let mut added = Vec::new();
        for term in predicate.terms() {
            if fields.iter().any(|field| *field.name() == term.column) {
                continue;
            }
            let position = table.index_of(&term.column).ok_or_else(|| unknown(term))?;
            fields.push(Arc::new(table_columns.field(position).clone()));
            added.push(table.columns[position].storage_field());
        }
        let schema = Arc::new(Schema::new(fields));
        let mut condition: Option<Arc<dyn PhysicalExpr>> = None;
        for term in predicate.terms() {
            let term_condition = condition_of(term, table, &schema)?;
            condition = Some(match condition {
                Some(former) => Arc::new(BinaryExpr::new(former, Operator::And, term_condition)),
                None => term_condition,
            });
        }
        // A predicate has at least one term.
        let condition = condition.unwrap_or_else(never);
        let output = Arc::clone(output);
        Ok(Self { schema, output, added, condition, text: predicate.to_string() })
    }

    /// Columns to request: those of the scan, and then those that only the filter needs.
    pub(crate) fn requested(&self, columns: &Schema) -> SchemaRef {
        let added = self.added.iter().map(|field| Arc::new(field.clone()));
        let fields: Vec<Arc<Field>> =
            columns.fields().iter().map(Arc::clone).chain(added).collect();
        Arc::new(Schema::new(fields))
    }

    /// Columns of the rows before the filter, by SQL name.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows of a batch that the predicate allows, with the columns of the scan.
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let mask = self.condition.evaluate(batch)?.into_array(batch.num_rows())?;
        let mask = mask
            .as_boolean_opt()
            .ok_or_else(|| SqlError::internal("a row predicate is not a condition"))?;
        let allowed = filter_record_batch(batch, mask)?;
        let columns = allowed.columns()[..self.output.fields().len()].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(allowed.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?)
    }

    /// The same filter as operators over a leaf with the columns before the filter, for fragments.
    pub(super) fn over(&self, leaf: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let filtered = Arc::new(FilterExec::try_new(Arc::clone(&self.condition), leaf)?);
        let columns = self.output.fields().iter().enumerate().map(|(position, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), position));
            (column, field.name().clone())
        });
        let columns: Vec<(Arc<dyn PhysicalExpr>, String)> = columns.collect();
        Ok(Arc::new(ProjectionExec::try_new(columns, filtered)?))
    }

    /// The predicate, for EXPLAIN.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn unknown(term: &Term) -> SqlError {
    SqlError::internal(format!("no column \"{}\" for a row predicate", term.column))
}

fn never() -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(ScalarValue::Boolean(Some(false))))
}

/// The condition that a column has one of a term's values.
fn condition_of(
    term: &Term,
    table: &TableSchema,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let column = table.column(&term.column).filter(|column| table.is_key(column.id));
    let column_type = column.ok_or_else(|| unknown(term))?.column_type;
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new_with_schema(&term.column, schema)?);
    let mut literals: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(term.values.len());
    for value in &term.values {
        for equal in equal_values(value, column_type)? {
            let scalar = ScalarValue::try_from_array(&array_of(column_type, &[equal])?, 0)?;
            literals.push(Arc::new(Literal::new(scalar)));
        }
    }
    Ok(match literals.as_slice() {
        [] => never(),
        [literal] => Arc::new(BinaryExpr::new(column, Operator::Eq, Arc::clone(literal))),
        _ => in_list(column, literals, &false, schema)?,
    })
}

/// The values of a column type that are equal to a literal; none if the type does not have it.
fn equal_values(literal: &Value, column_type: ColumnType) -> Result<Vec<Value>, SqlError> {
    let domain = Domain::point(literal.clone()).typed(column_type)?;
    let values = domain.as_points(EQUAL_VALUES_MAX);
    values.ok_or_else(|| SqlError::internal("a value of a row predicate is a range"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array};
    use arrow::datatypes::Int64Type;
    use partita_proto::id::{ColumnId, SchemaVersion};
    use partita_proto::schema::{Column as TableColumn, Semantic, TableOptions};

    use super::*;

    fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> TableColumn {
        TableColumn {
            id: ColumnId(id),
            name: name.to_owned(),
            storage_name: format!("c{id}"),
            column_type,
            nullable: true,
            semantic,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        }
    }

    /// `i` (tag), `f` (tag), `v` (field).
    fn schema() -> TableSchema {
        TableSchema {
            version: SchemaVersion(1),
            columns: vec![
                column(1, "i", ColumnType::Int32, Semantic::Tag),
                column(2, "f", ColumnType::Float64, Semantic::Tag),
                column(3, "v", ColumnType::Int64, Semantic::Field),
            ],
            key: vec![ColumnId(1), ColumnId(2)],
            options: TableOptions::default(),
            next_column: ColumnId(4),
            schema_on_write: false,
            checks: Vec::new(),
            view: None,
        }
    }

    fn term(column: &str, values: Vec<Value>) -> Term {
        Term { column: column.to_owned(), values }
    }

    /// Values of `v` that are left of rows 0, 1, 2, 3 with `i` of 0, 1, 2, NULL and `f` of -0.0, 0.0, 1.5, NULL.
    fn remaining(terms: Vec<Term>) -> Vec<i64> {
        let schema = schema();
        let output = Arc::new(schema.arrow().project(&[2]).unwrap());
        let predicate = RowPredicate::new(terms).unwrap();
        let filter = RowFilter::new(&predicate, &schema, &output).unwrap();
        let of_name = |name: &str| -> ArrayRef {
            match name {
                "i" => Arc::new(Int32Array::from(vec![Some(0), Some(1), Some(2), None])),
                "f" => Arc::new(Float64Array::from(vec![Some(-0.0), Some(0.0), Some(1.5), None])),
                _ => Arc::new(Int64Array::from(vec![0, 1, 2, 3])),
            }
        };
        let names: Vec<&str> =
            filter.schema().fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names[0], "v");
        let columns = names.into_iter().map(of_name).collect();
        let batch = RecordBatch::try_new(Arc::clone(filter.schema()), columns).unwrap();
        let rows = filter.rows(&batch).unwrap();
        assert_eq!((rows.schema(), rows.num_columns()), (output, 1));
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn only_rows_with_one_of_the_values_are_left() {
        let int = Value::Int;
        assert_eq!(remaining(vec![term("i", vec![int(1)])]), [1]);
        assert_eq!(remaining(vec![term("i", vec![int(0), int(1), int(2)])]), [0, 1, 2]);
        // Values that the type does not have.
        assert_eq!(remaining(vec![term("i", vec![int(i64::MAX)])]), [0; 0]);
        assert_eq!(remaining(vec![term("i", vec![Value::Float(1.5), int(2)])]), [2]);
        // Both zeros are equal, as in SQL.
        assert_eq!(remaining(vec![term("f", vec![Value::Float(0.0)])]), [0, 1]);
        let both = vec![term("f", vec![Value::Float(0.0)]), term("i", vec![int(1), int(2)])];
        assert_eq!(remaining(both), [1]);
    }

    #[test]
    fn columns_that_are_no_keys_are_refused() {
        let schema = schema();
        let output = Arc::new(schema.arrow().project(&[0]).unwrap());
        for name in ["v", "missing"] {
            let predicate = RowPredicate::new(vec![term(name, vec![Value::Int(1)])]).unwrap();
            assert!(RowFilter::new(&predicate, &schema, &output).is_err(), "{name}");
        }
    }

    #[test]
    fn a_scan_of_no_column_counts_the_rows() {
        let (schema, output) = (schema(), Arc::new(Schema::empty()));
        let predicate = RowPredicate::new(vec![term("i", vec![Value::Int(2)])]).unwrap();
        let filter = RowFilter::new(&predicate, &schema, &output).unwrap();
        assert_eq!(filter.requested(&Schema::empty()).field(0).name(), "c1");
        let column: ArrayRef = Arc::new(Int32Array::from(vec![2, 1, 2]));
        let batch = RecordBatch::try_new(Arc::clone(filter.schema()), vec![column]).unwrap();
        let rows = filter.rows(&batch).unwrap();
        assert_eq!((rows.num_rows(), rows.num_columns()), (2, 0));
    }
}
