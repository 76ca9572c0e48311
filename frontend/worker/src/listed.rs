//! Types of the columns of VALUES, which DataFusion computes before it coerces the values.
//!
//! Before coercion, the type of a CASE of decimals is that of its first branch; afterwards it has room for all of them,
//! but the columns of VALUES keep the first type. So each computed value is wrapped in [`NAME`], and right before types
//! are coerced [`ListedValues`] removes the wrappers and gives the columns the types of their coerced values:
//!
//! ```text
//!   VALUES (CASE WHEN a THEN 1.5 ELSE 2.25 END)    decimals of two digits after the point
//!   VALUES ('\x00'::BYTEA), (b || b)               one kind of bytes
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, exec_err, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Values, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

/// Name of the function that wraps a value.
pub const NAME: &str = "listed_value";

/// The function to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    std::iter::once(ScalarUDF::from(Listed { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Listed {
    signature: Signature,
}

/// One type for all types of bytes; other types stay as they are.
fn general(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => data_type.clone(),
    }
}

impl ScalarUDFImpl for Listed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(general(data_type)),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => {
                Ok(ColumnarValue::Array(cast(values, &general(values.data_type()))?))
            }
            [ColumnarValue::Scalar(value)] => {
                Ok(ColumnarValue::Scalar(value.cast_to(&general(&value.data_type()))?))
            }
            _ => exec_err!("{NAME} takes one argument"),
        }
    }
}

/// The wrapped value, if the expression is a wrapper. A cast around it is of the type that was computed too early.
fn inside(value: &Expr) -> Option<&Expr> {
    match value {
        Expr::ScalarFunction(call) if call.func.name() == NAME => call.args.first(),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::ScalarFunction(call) if call.func.name() == NAME => call.args.first(),
            _ => None,
        },
        _ => None,
    }
}

/// Gives the columns of VALUES the types of their coerced values; to be applied right before types are coerced.
#[derive(Debug)]
pub struct ListedValues;

impl AnalyzerRule for ListedValues {
    fn name(&self) -> &'static str {
        "listed_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut has_wrappers = false;
        plan.apply_with_subqueries(|node| {
            has_wrappers |= matches!(node, LogicalPlan::Values(values) if is_wrapped(values));
            Ok(match has_wrappers {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        if !has_wrappers {
            return Ok(plan);
        }
        let typed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) if is_wrapped(&values) => {
                Ok(Transformed::yes(LogicalPlan::Values(typed(&values)?)))
            }
            node if node.inputs().is_empty() => Ok(Transformed::no(node)),
            node => Ok(Transformed::yes(node.recompute_schema()?)),
        })?;
        Ok(typed.data)
    }
}

fn is_wrapped(values: &Values) -> bool {
    values.values.iter().flatten().any(|value| inside(value).is_some())
}

/// Coerces the values, and gives the columns their types.
fn typed(values: &Values) -> Result<Values> {
    let no_columns = DFSchema::empty();
    let coerced = |value: &Expr| -> Result<Expr> {
        let value = inside(value).unwrap_or(value).clone();
        Ok(value.rewrite(&mut TypeCoercionRewriter::new(&no_columns))?.data)
    };
    let rows = values.values.iter().map(|row| row.iter().map(coerced).collect());
    let mut rows: Vec<Vec<Expr>> = rows.collect::<Result<_>>()?;
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (position, field) in values.schema.fields().iter().enumerate() {
        let mut common: Option<(DataType, FieldMetadata)> = None;
        let mut nullable = false;
        for value in rows.iter().filter_map(|row| row.get(position)) {
            let data_type = general(&value.get_type(&no_columns)?);
            let metadata = value.metadata(&no_columns)?;
            nullable |= value.nullable(&no_columns)?;
            common = Some(match common {
                _ if data_type.is_null() => continue,
                None => (data_type, metadata),
                Some((known_type, known_metadata)) => {
                    let types = [known_type.clone(), data_type.clone()];
                    let Some(union_type) = type_union_resolution(&types) else {
                        return plan_err!(
                            "Inconsistent data type across values list at column {position}. Was {known_type} but found {data_type}"
                        );
                    };
                    // The column has metadata only if all values have the same.
                    let is_same = known_metadata == metadata;
                    (union_type, if is_same { metadata } else { FieldMetadata::default() })
                }
            });
        }
        fields.push(match common {
            Some((data_type, metadata)) => {
                metadata.add_to_field(Field::new(field.name(), data_type, nullable))
            }
            None => Field::new(field.name(), DataType::Null, true),
        });
    }
    for row in &mut rows {
        for (value, field) in row.iter_mut().zip(&fields) {
            let data_type = field.data_type();
            *value = match std::mem::take(value) {
                Expr::Literal(ScalarValue::Null, metadata) => {
                    Expr::Literal(ScalarValue::try_from(data_type)?, metadata)
                }
                value => value.cast_to(data_type, &no_columns)?,
            };
        }
    }
    let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new())?;
    Ok(Values { schema: Arc::new(schema), values: rows })
}
