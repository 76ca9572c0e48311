//! CHAR(n): texts with insignificant trailing blanks that are shown with a fixed number of characters.
//!
//! PostgreSQL pads such a text with blanks, and ignores them where it is compared, measured or cast to another text
//! type. Here a value is stored without them. The metadata of the cast's field has the number of characters, columns
//! that copy the field keep it, and the PostgreSQL protocol pads the values.
//!
//! Patterns, `octet_length` and functions of values of any type see the blanks. [`FilledTexts`] gives them padded values:
//!
//! ```text
//!   c LIKE p           blank_filled(c, n) LIKE p            also ILIKE, SIMILAR TO and regular expressions
//!   octet_length(c)    octet_length(blank_filled(c, n))     also concat, concat_ws and format
//!   c::TEXT            unpadded(c)::TEXT                    a cast would copy the number of characters
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::bounded::{check_size, check_total};
use crate::functions::REGISTRY;
use crate::plain::{Plain, Texts, all, is_text, is_whole, texts, wholes};

/// Name of the function that replaces a cast; nodes know it too.
pub const NAME: &str = "blank_padded";
/// Key in a field's metadata: the number of characters.
const LETTERS: &str = "pg.letters";

/// Functions whose result depends on the blanks of their first argument.
const MEASURES: [&str; 3] = ["octet_length", "regexp_matched", "similar_to"];
/// Functions whose result depends on the blanks of all their arguments.
const WRITERS: [&str; 3] = ["concat", "concat_ws", "format"];

/// Name of the function that pads a text.
const FILLED: &str = "blank_filled";
/// Name of the function that makes a text of a CHAR(n).
const UNPADDED: &str = "unpadded";

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [padded(), FILL.function(), UNPAD.function()].into_iter()
}

/// The function that replaces a cast; it takes a text and a constant number of characters.
fn padded() -> ScalarUDF {
    let takes = TypeSignature::Exact(vec![DataType::Utf8, DataType::Int64]);
    ScalarUDF::from(Padded { signature: Signature::new(takes, Volatility::Immutable) })
}

/// `blank_filled(text, letters)`: the text with blanks up to a number of characters.
static FILL: Plain = Plain {
    name: FILLED,
    takes: |types| match types {
        [text, letters] if is_text(text) && is_whole(letters) => {
            Some(vec![DataType::Utf8, DataType::Int64])
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (values, letters) = (texts(&arguments[0])?, wholes(&arguments[1])?);
        let mut results = Texts::new(FILLED, values.len());
        for (text, letters) in values.iter().zip(&letters) {
            let filled = text.zip(letters).map(|(text, letters)| -> Result<String> {
                check_size(FILLED, u64::try_from(letters).unwrap_or(0))?;
                Ok(fill(text, usize::try_from(letters).unwrap_or(0)))
            });
            results.push(filled.transpose()?)?;
        }
        Ok(results.finish())
    },
};

/// `unpadded(text)`: the text itself, whose field has no number of characters.
static UNPAD: Plain = Plain {
    name: UNPADDED,
    takes: |types| all(types, 1, is_text, &DataType::Utf8),
    gives: |_| DataType::Utf8,
    run: |arguments| Ok(Arc::clone(&arguments[0])),
};

/// Number of characters with which a column's texts are shown, if it is a CHAR(n).
pub fn letters(field: &Field) -> Option<usize> {
    field.metadata().get(LETTERS)?.parse().ok()
}

/// Pads texts with blanks to a number of characters.
///
/// # Errors
/// When the array has no texts, or the padded values exceed the limit of a call.
pub fn filled(texts: &ArrayRef, letters: usize) -> Result<ArrayRef> {
    let bytes = texts.len().saturating_mul(letters);
    let name = format!("character({letters})");
    check_total(&name, texts.len(), u64::try_from(bytes).unwrap_or(u64::MAX))?;
    let texts = cast(texts, &DataType::Utf8)?;
    let filled = texts.as_string::<i32>().iter().map(|text| text.map(|text| fill(text, letters)));
    Ok(Arc::new(filled.collect::<StringArray>()))
}

/// A text with blanks up to a number of characters, which may be more than a format's width.
fn fill(text: &str, letters: usize) -> String {
    let missing = letters.saturating_sub(text.chars().count());
    let mut filled = String::with_capacity(text.len() + missing);
    filled.push_str(text);
    filled.extend(std::iter::repeat_n(' ', missing));
    filled
}

/// The first characters of a text, without trailing blanks.
fn cut(text: &str, letters: usize) -> &str {
    let end = text.char_indices().nth(letters).map_or(text.len(), |(end, _)| end);
    text[..end].trim_end_matches(' ')
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Padded {
    signature: Signature,
}

impl ScalarUDFImpl for Padded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let mut field = Field::new(NAME, DataType::Utf8, true);
        if let Some(Some(ScalarValue::Int64(Some(letters)))) = args.scalar_arguments.get(1) {
            field.metadata_mut().insert(LETTERS.to_owned(), letters.to_string());
        }
        Ok(Arc::new(field))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text, ColumnarValue::Scalar(ScalarValue::Int64(Some(letters)))] = args.args.as_slice()
        else {
            return exec_err!("{NAME} takes a text and a number");
        };
        let letters = usize::try_from(*letters).unwrap_or(0);
        let constant = matches!(text, ColumnarValue::Scalar(_));
        let texts = text.to_array(1)?;
        let cut = |text| cut(text, letters);
        let values = texts.as_string::<i32>().iter().map(|text| text.map(cut));
        let values: ArrayRef = Arc::new(values.collect::<StringArray>());
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
        }
        Ok(ColumnarValue::Array(values))
    }
}

/// Pads texts where their blanks matter; see the head of the file. Apply it before types are coerced: a cast hides the
/// number of characters.
#[derive(Debug)]
pub struct FilledTexts;

impl AnalyzerRule for FilledTexts {
    fn name(&self) -> &'static str {
        "filled_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_padded(&plan)? {
            return Ok(plan);
        }
        let mut changed = false;
        let plan = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let filled = expression.transform_up(|part| filled_part(part, &schema))?;
                Ok(filled.update_data(|expression| name.restore(expression)))
            })?;
            // The operators above read which texts are padded.
            changed |= node.transformed;
            if changed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
        })?;
        Ok(plan.data)
    }
}

/// Returns true if a plan makes a CHAR(n).
fn has_padded(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    let is_padded = |part: &Expr| {
        Ok(matches!(part, Expr::ScalarFunction(function) if function.func.name() == NAME))
    };
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            is_found |= expression.exists(is_padded)?;
            Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(is_found)
}

/// A part of an expression with padded operands, if their blanks matter.
fn filled_part(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut pad = |operand: &mut Expr| -> Result<()> {
        if let Some(letters) = letters_of(operand, schema) {
            let letters = lit(i64::try_from(letters).unwrap_or(i64::MAX));
            *operand = call(FILLED, vec![operand.clone(), letters])?;
            changed = true;
        }
        Ok(())
    };
    let part = match part {
        Expr::Like(mut like) => {
            pad(like.expr.as_mut())?;
            Expr::Like(like)
        }
        Expr::SimilarTo(mut like) => {
            pad(like.expr.as_mut())?;
            Expr::SimilarTo(like)
        }
        Expr::BinaryExpr(mut binary) if is_match(binary.op) => {
            pad(binary.left.as_mut())?;
            Expr::BinaryExpr(binary)
        }
        Expr::ScalarFunction(mut function) => {
            let name = function.func.name();
            let count = if MEASURES.contains(&name) {
                1
            } else if WRITERS.contains(&name) {
                function.args.len()
            } else {
                0
            };
            for argument in function.args.iter_mut().take(count) {
                pad(argument)?;
            }
            Expr::ScalarFunction(function)
        }
        Expr::Cast(mut cast) if letters_of(&cast.expr, schema).is_some() => {
            *cast.expr = call(UNPADDED, vec![cast.expr.as_ref().clone()])?;
            changed = true;
            Expr::Cast(cast)
        }
        part => part,
    };
    Ok(Transformed::new_transformed(part, changed))
}

/// Returns true for operators that match a text with a pattern.
fn is_match(op: Operator) -> bool {
    use Operator::{
        ILikeMatch, LikeMatch, NotILikeMatch, NotLikeMatch, RegexIMatch, RegexMatch,
        RegexNotIMatch, RegexNotMatch,
    };
    matches!(
        op,
        LikeMatch
            | ILikeMatch
            | NotLikeMatch
            | NotILikeMatch
            | RegexMatch
            | RegexIMatch
            | RegexNotMatch
            | RegexNotIMatch
    )
}

/// Number of characters of an operand, if it is a CHAR(n). Some expressions have no type before types are coerced; none
/// of them is a CHAR(n).
fn letters_of(operand: &Expr, schema: &DFSchema) -> Option<usize> {
    operand.to_field(schema).ok().and_then(|(_, field)| letters(&field))
}

fn call(name: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(name) else {
        return exec_err!("{name} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion::logical_expr::{cast, col};

    use super::*;

    #[test]
    fn blanks_at_the_end_are_shown_and_not_kept() {
        for (text, kept, shown) in [
            ("a", "a", "a  "),
            ("a ", "a", "a  "),
            (" éabc", " éa", " éa"),
            ("", "", "   "),
            ("a  b", "a", "a  "),
        ] {
            assert_eq!(cut(text, 3), kept, "{text}");
            let texts: ArrayRef = Arc::new(StringArray::from(vec![kept]));
            let filled = filled(&texts, 3).unwrap();
            assert_eq!(filled.as_string::<i32>().value(0), shown, "{text}");
        }
    }

    #[test]
    fn more_letters_than_a_width_of_a_format_are_filled() {
        assert_eq!(fill("é", 100_000).chars().count(), 100_000);
        assert_eq!(fill("abc", 2), "abc");
    }

    #[test]
    fn patterns_see_the_blanks_of_a_padded_text_only() {
        let padded_field = Field::new("c", DataType::Utf8, true)
            .with_metadata([(LETTERS.to_owned(), "3".to_owned())].into());
        let text_field = Field::new("t", DataType::Utf8, true);
        let schema = Schema::new(vec![padded_field, text_field]);
        let schema = DFSchema::try_from(schema).unwrap();
        let rewritten =
            |expression: Expr| filled_part(expression, &schema).unwrap().data.to_string();
        assert_eq!(
            rewritten(col("c").like(lit("a"))),
            "blank_filled(c, Int64(3)) LIKE Utf8(\"a\")"
        );
        assert_eq!(rewritten(col("t").like(lit("a"))), "t LIKE Utf8(\"a\")");
        assert_eq!(rewritten(lit("a").like(col("c"))), "Utf8(\"a\") LIKE c");
        assert_eq!(rewritten(cast(col("c"), DataType::Utf8View)), "CAST(unpadded(c) AS Utf8View)");
        assert_eq!(rewritten(col("c").eq(col("t"))), "c = t");
    }

    #[test]
    fn the_field_of_the_cast_says_how_many_letters_it_has() {
        let text: FieldRef = Arc::new(Field::new("a", DataType::Utf8, true));
        let number: FieldRef = Arc::new(Field::new("n", DataType::Int64, false));
        let five = ScalarValue::from(5_i64);
        let field = padded().return_field_from_args(ReturnFieldArgs {
            arg_fields: &[Arc::clone(&text), number],
            scalar_arguments: &[None, Some(&five)],
        });
        assert_eq!(letters(&field.unwrap()), Some(5));
        assert_eq!(letters(&text), None);
    }
}
