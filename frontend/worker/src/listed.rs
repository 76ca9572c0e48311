//! The values of VALUES, whose types DataFusion asks for before it coerces them.
//!
//! The type of a CASE of decimals is that of its first branch then, and later one with room for all of them; the columns
//! of VALUES keep the first. So [`NAME`] stands around each value that is computed, and once types can be coerced
//! [`ListedValues`] takes it away and gives the columns the types that their values have:
//!
//! ```text
//!   VALUES (CASE WHEN a THEN 1.5 ELSE 2.25 END)    decimals of two digits behind the point
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

/// The name of the function that stands around a value.
pub const NAME: &str = "listed_value";

/// The function.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    std::iter::once(ScalarUDF::from(Listed { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Listed {
    signature: Signature,
}

/// A type as far as it matters which values it has.
fn general(of: &DataType) -> DataType {
    match of {
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
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
            [of] => Ok(general(of)),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(of)] => {
                Ok(ColumnarValue::Array(cast(of, &general(of.data_type()))?))
            }
            [ColumnarValue::Scalar(of)] => {
                Ok(ColumnarValue::Scalar(of.cast_to(&general(&of.data_type()))?))
            }
            _ => exec_err!("{NAME} takes one argument"),
        }
    }
}

/// What stands within the function; the cast around it was made for a type that was not known yet.
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

/// Gives the columns of VALUES the types of their values; to be applied right before types are coerced.
#[derive(Debug)]
pub struct ListedValues;

impl AnalyzerRule for ListedValues {
    fn name(&self) -> &'static str {
        "listed_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_there = false;
        plan.apply_with_subqueries(|node| {
            is_there |= matches!(node, LogicalPlan::Values(values) if has_marks(values));
            Ok(match is_there {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        if !is_there {
            return Ok(plan);
        }
        let typed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) if has_marks(&values) => {
                Ok(Transformed::yes(LogicalPlan::Values(typed(&values)?)))
            }
            node if node.inputs().is_empty() => Ok(Transformed::no(node)),
            node => Ok(Transformed::yes(node.recompute_schema()?)),
        })?;
        Ok(typed.data)
    }
}

fn has_marks(values: &Values) -> bool {
    values.values.iter().flatten().any(|value| inside(value).is_some())
}

/// The same values, coerced, in columns of the types that they have.
fn typed(values: &Values) -> Result<Values> {
    let nothing = DFSchema::empty();
    let coerced = |value: &Expr| -> Result<Expr> {
        let value = inside(value).unwrap_or(value).clone();
        Ok(value.rewrite(&mut TypeCoercionRewriter::new(&nothing))?.data)
    };
    let rows = values.values.iter().map(|row| row.iter().map(coerced).collect());
    let mut rows: Vec<Vec<Expr>> = rows.collect::<Result<_>>()?;
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (place, field) in values.schema.fields().iter().enumerate() {
        let mut common: Option<(DataType, FieldMetadata)> = None;
        let mut nullable = false;
        for value in rows.iter().filter_map(|row| row.get(place)) {
            let (of, metadata) = (general(&value.get_type(&nothing)?), value.metadata(&nothing)?);
            nullable |= value.nullable(&nothing)?;
            common = Some(match common {
                _ if of.is_null() => continue,
                None => (of, metadata),
                Some((other, marks)) => {
                    let Some(of) = type_union_resolution(&[other.clone(), of.clone()]) else {
                        return plan_err!(
                            "Inconsistent data type across values list at column {place}. Was {other} but found {of}"
                        );
                    };
                    // What is not said of all of them is not said.
                    (of, if marks == metadata { marks } else { FieldMetadata::default() })
                }
            });
        }
        let of = match common {
            Some((of, metadata)) => metadata.add_to_field(Field::new(field.name(), of, nullable)),
            None => Field::new(field.name(), DataType::Null, true),
        };
        fields.push(of);
    }
    for row in &mut rows {
        for (value, field) in row.iter_mut().zip(&fields) {
            let of = field.data_type();
            *value = match std::mem::take(value) {
                Expr::Literal(ScalarValue::Null, metadata) => {
                    Expr::Literal(ScalarValue::try_from(of)?, metadata)
                }
                value => value.cast_to(of, &nothing)?,
            };
        }
    }
    let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new())?;
    Ok(Values { schema: Arc::new(schema), values: rows })
}
