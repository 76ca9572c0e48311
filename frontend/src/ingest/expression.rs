//! Defaults, generated columns and constraints: compiles SQL texts of the schema to compute columns with.
//!
//! Invariants:
//! - a generated column depends only on ordinary columns of its row, so that the same row always gets the same key;
//! - a default depends on no column;
//! - integers do not wrap in either, as in any statement.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{ColumnarValue, Expr, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use partita_proto::schema::{Check, Column, ROW_COLUMN, TableSchema};
use partita_sql::sequence_statement::is_counter;
use partita_worker::{BoundedConcatenation, Checked, CheckedDivision, OneNan};

use super::cast::assign;
use crate::error::{DATATYPE_MISMATCH, SqlError, UNDEFINED_COLUMN};

/// SQLSTATE of an expression that a generated column must not have.
const INVALID_OBJECT_DEFINITION: &str = "42P17";

/// Value of a column that a row leaves out.
#[derive(Clone, Debug)]
pub(crate) enum DefaultValue {
    /// A constant; NULL without DEFAULT.
    Constant(ScalarValue),
    /// Time of the statement.
    Now,
    /// The next number of a sequence, which rows have before they are completed.
    Sequence,
    /// Any other expression, evaluated for every batch.
    Expression(Expr),
}

impl DefaultValue {
    /// Compiles a column's DEFAULT.
    pub(crate) fn new(state: &SessionState, column: &Column) -> Result<Self, SqlError> {
        let data_type = column.column_type.arrow();
        let Some(text) = &column.default else {
            return Ok(Self::Constant(ScalarValue::try_from(&data_type)?));
        };
        if is_counter(text) {
            return Ok(Self::Sequence);
        }
        let with_column = |error: SqlError| SqlError {
            message: format!("default of column \"{}\": {}", column.name, error.message),
            ..error
        };
        let read = || -> Result<Self, SqlError> {
            let expression = state.create_logical_expr(text, &DFSchema::empty())?;
            if is_now(&expression) && column.column_type.is_timestamp() {
                return Ok(Self::Now);
            }
            if volatility(&expression)? != Volatility::Immutable {
                // Evaluate it once, so that an error shows now and not with the first row.
                evaluate_default(state, &expression, column, 1)?;
                return Ok(Self::Expression(expression));
            }
            let value = evaluate_default(state, &expression, column, 1)?;
            Ok(Self::Constant(ScalarValue::try_from_array(&value, 0)?))
        };
        read().map_err(with_column)
    }

    /// Returns true if the default is NULL.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Constant(value) if value.is_null())
    }

    /// A column of default values.
    pub(crate) fn array(
        &self,
        state: &SessionState,
        column: &Column,
        rows: usize,
    ) -> Result<ArrayRef, SqlError> {
        match self {
            Self::Constant(value) if value.is_null() => {
                Ok(new_null_array(&column.column_type.arrow(), rows))
            }
            Self::Constant(value) => Ok(value.to_array_of_size(rows)?),
            Self::Now => {
                let time = ScalarValue::TimestampNanosecond(Some(now_ns()?), None);
                let time = assign(&time.to_array()?, column)?;
                Ok(ScalarValue::try_from_array(&time, 0)?.to_array_of_size(rows)?)
            }
            Self::Sequence if rows == 0 => Ok(new_null_array(&column.column_type.arrow(), 0)),
            Self::Sequence => Err(SqlError::unsupported(format!(
                "the DEFAULT of column \"{}\", a sequence, in this statement",
                column.name
            ))),
            Self::Expression(expression) => evaluate_default(state, expression, column, rows),
        }
    }
}

/// Current time in nanoseconds since 1970-01-01T00:00:00Z.
pub(crate) fn now_ns() -> Result<i64, SqlError> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|age| i64::try_from(age.as_nanos()).ok())
        .ok_or_else(|| SqlError::internal("the clock is outside the years 1970 to 2262"))
}

/// Returns true for `now()` and its synonyms, also below a cast to a timestamp.
fn is_now(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_now(&alias.expr),
        Expr::Cast(cast) => {
            matches!(cast.field.data_type(), DataType::Timestamp(..)) && is_now(&cast.expr)
        }
        Expr::ScalarFunction(function) => function.func.name() == "now",
        _ => false,
    }
}

fn volatility(expression: &Expr) -> Result<Volatility, SqlError> {
    let mut worst = Volatility::Immutable;
    expression.apply(|expr| {
        if let Expr::ScalarFunction(function) = expr {
            worst = match (worst, function.func.signature().volatility) {
                (Volatility::Volatile, _) | (_, Volatility::Volatile) => Volatility::Volatile,
                (Volatility::Stable, _) | (_, Volatility::Stable) => Volatility::Stable,
                _ => Volatility::Immutable,
            };
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(worst)
}

fn evaluate_default(
    state: &SessionState,
    expression: &Expr,
    column: &Column,
    rows: usize,
) -> Result<ArrayRef, SqlError> {
    let physical = compile(state, expression.clone(), &DFSchema::empty())?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    let value = physical.evaluate(&empty)?;
    let array = match value {
        ColumnarValue::Array(array) => array,
        ColumnarValue::Scalar(value) => value.to_array_of_size(rows)?,
    };
    assign(&array, column)
}

/// Coerces, simplifies (which gives `now()` its value) and compiles an expression.
fn compile(
    state: &SessionState,
    expression: Expr,
    schema: &DFSchema,
) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .with_current_time()
        .build();
    let simplifier = ExprSimplifier::new(context);
    let expression = simplifier.coerce(expression, schema)?;
    let options = state.config_options();
    let expression = expression.transform_up(|expression| {
        Checked
            .rewrite(expression, schema, options)?
            .transform_data(|expression| OneNan.rewrite(expression, schema, options))?
            .transform_data(|expression| CheckedDivision.rewrite(expression, schema, options))?
            .transform_data(|expression| BoundedConcatenation.rewrite(expression, schema, options))
    });
    let expression = expression?.data;
    let expression = simplifier.simplify(expression)?;
    Ok(state.create_physical_expr(expression, schema)?)
}

/// A generated column: its expression over the other columns of a table.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    /// Position of the computed column.
    pub(crate) column: usize,
    /// Positions of the columns that the expression reads, ascending.
    pub(crate) inputs: Vec<usize>,
    expression: Arc<dyn PhysicalExpr>,
}

impl Generated {
    /// Compiles a column's GENERATED ALWAYS AS; `None` for other columns.
    pub(crate) fn new(
        state: &SessionState,
        schema: &TableSchema,
        position: usize,
    ) -> Result<Option<Self>, SqlError> {
        let Some(column) = schema.columns.get(position) else { return Ok(None) };
        let Some(text) = &column.generated else { return Ok(None) };
        let invalid = |message: String| SqlError::new(INVALID_OBJECT_DEFINITION, message);
        // The closure returns errors without the column's name, which is added below.
        let read = || -> Result<Self, SqlError> {
            let arrow = schema.arrow();
            let columns = DFSchema::try_from(arrow)?;
            let expression = state.create_logical_expr(text, &columns)?;
            if volatility(&expression)? != Volatility::Immutable {
                return Err(invalid("generation expression is not immutable".to_owned()));
            }
            let expression = compile(state, expression, &columns)?;
            let mut inputs: Vec<usize> =
                collect_columns(&expression).into_iter().map(|column| column.index()).collect();
            inputs.sort_unstable();
            for input in &inputs {
                let input = &schema.columns[*input];
                if input.generated.is_some() {
                    return Err(invalid(format!(
                        "the expression uses generated column \"{}\"",
                        input.name
                    )));
                }
            }
            // Evaluate it once, so that a type error shows now and not with the first row.
            let rows = RecordBatch::new_empty(schema.arrow());
            assign(&expression.evaluate(&rows)?.into_array(0)?, column)?;
            Ok(Self { column: position, inputs, expression })
        };
        read().map(Some).map_err(|error| SqlError {
            message: format!("generated column \"{}\": {}", column.name, error.message),
            ..error
        })
    }

    /// Computes the column. `rows` has all columns of the table by SQL name and position; columns that the expression
    /// does not read may be NULL.
    pub(crate) fn array(
        &self,
        schema: &TableSchema,
        rows: &RecordBatch,
    ) -> Result<ArrayRef, SqlError> {
        let value = self.expression.evaluate(rows)?.into_array(rows.num_rows())?;
        assign(&value, &schema.columns[self.column])
    }
}

/// Refuses a condition that names the hidden column of its table.
fn check_shown(expression: &Expr) -> Result<(), SqlError> {
    match expression.column_refs().iter().any(|column| column.name == ROW_COLUMN) {
        true => {
            let message = format!("column \"{ROW_COLUMN}\" does not exist");
            Err(SqlError::new(UNDEFINED_COLUMN, message))
        }
        false => Ok(()),
    }
}

/// A CHECK constraint: a condition that no row of a table may fail.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// Name of the constraint.
    pub(crate) name: String,
    expression: Arc<dyn PhysicalExpr>,
}

impl Condition {
    /// Compiles a constraint.
    ///
    /// # Errors
    /// 42804 unless the condition is a boolean, 42P17 if its value changes from call to call, and errors of the
    /// expression.
    pub(crate) fn new(
        state: &SessionState,
        schema: &TableSchema,
        check: &Check,
    ) -> Result<Self, SqlError> {
        let read = || -> Result<Self, SqlError> {
            let columns = DFSchema::try_from(schema.arrow())?;
            let expression = state.create_logical_expr(&check.expression, &columns)?;
            check_shown(&expression)?;
            if volatility(&expression)? != Volatility::Immutable {
                let message = "the condition is not immutable";
                return Err(SqlError::new(INVALID_OBJECT_DEFINITION, message));
            }
            let expression = compile(state, expression, &columns)?;
            let data_type = expression.data_type(&schema.arrow())?;
            if !matches!(data_type, DataType::Boolean | DataType::Null) {
                let message =
                    format!("argument of CHECK must be type boolean, not type {data_type}");
                return Err(SqlError::new(DATATYPE_MISMATCH, message));
            }
            Ok(Self { name: check.name.clone(), expression })
        };
        read().map_err(|error| SqlError {
            message: format!("check constraint \"{}\": {}", check.name, error.message),
            ..error
        })
    }

    /// Position of the first row for which the condition is false. `rows` has all columns of the table by SQL name and
    /// position.
    pub(crate) fn failing_row(&self, rows: &RecordBatch) -> Result<Option<usize>, SqlError> {
        let values = self.expression.evaluate(rows)?.into_array(rows.num_rows())?;
        let Some(values) = values.as_boolean_opt() else { return Ok(None) };
        Ok((0..values.len()).find(|row| values.is_valid(*row) && !values.value(*row)))
    }
}
