//! CHAR(n): texts whose blanks at the end say nothing, and that are shown with so many letters.
//!
//! PostgreSQL fills such a text with blanks, and leaves them out where it is compared, measured or becomes another text.
//! Here a value is kept without them. The field of the cast says with how many letters it is to be shown, columns that
//! are made of it alone say so too, and the PostgreSQL door fills it up.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use crate::bounded::check_total;

/// The name of the function that a cast becomes, at a node too.
pub const NAME: &str = "blank_padded";
/// The field's metadata that has the number of letters.
const LETTERS: &str = "pg.letters";

/// The function: a text and a constant number of letters.
pub(crate) fn function() -> ScalarUDF {
    let takes = TypeSignature::Exact(vec![DataType::Utf8, DataType::Int64]);
    ScalarUDF::from(Padded { signature: Signature::new(takes, Volatility::Immutable) })
}

/// With how many letters a column's texts are shown, if that is told.
pub fn letters(field: &Field) -> Option<usize> {
    field.metadata().get(LETTERS)?.parse().ok()
}

/// Texts with blanks up to so many letters.
///
/// # Errors
/// When it is no array of texts, or too many letters are shown at once.
pub fn filled(texts: &ArrayRef, letters: usize) -> Result<ArrayRef> {
    let bytes = texts.len().saturating_mul(letters);
    let name = format!("character({letters})");
    check_total(&name, texts.len(), u64::try_from(bytes).unwrap_or(u64::MAX))?;
    let texts = cast(texts, &DataType::Utf8)?;
    let fill = |text: &str| format!("{text:<letters$}");
    let filled = texts.as_string::<i32>().iter().map(|text| text.map(fill));
    Ok(Arc::new(filled.collect::<StringArray>()))
}

/// The first letters of a text, without blanks at its end.
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
        let made = texts.as_string::<i32>().iter().map(|text| text.map(cut));
        let made: ArrayRef = Arc::new(made.collect::<StringArray>());
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }
}

#[cfg(test)]
mod tests {
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
    fn the_field_of_the_cast_says_how_many_letters_it_has() {
        let text: FieldRef = Arc::new(Field::new("a", DataType::Utf8, true));
        let number: FieldRef = Arc::new(Field::new("n", DataType::Int64, false));
        let five = ScalarValue::from(5_i64);
        let field = function().return_field_from_args(ReturnFieldArgs {
            arg_fields: &[Arc::clone(&text), number],
            scalar_arguments: &[None, Some(&five)],
        });
        assert_eq!(letters(&field.unwrap()), Some(5));
        assert_eq!(letters(&text), None);
    }
}
