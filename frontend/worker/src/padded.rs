//! CHAR(n): texts with insignificant trailing blanks that are shown with a fixed number of characters.
//!
//! PostgreSQL pads such a text with blanks, and ignores them where it is compared, measured or cast to another text
//! type. Here a value is stored without them. The metadata of the cast's field has the number of characters, columns
//! that copy the field keep it, and the PostgreSQL protocol pads the values.

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

/// Name of the function that replaces a cast; nodes know it too.
pub const NAME: &str = "blank_padded";
/// Key in a field's metadata: the number of characters.
const LETTERS: &str = "pg.letters";

/// The function to register; it takes a text and a constant number of characters.
pub(crate) fn function() -> ScalarUDF {
    let takes = TypeSignature::Exact(vec![DataType::Utf8, DataType::Int64]);
    ScalarUDF::from(Padded { signature: Signature::new(takes, Volatility::Immutable) })
}

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
    let fill = |text: &str| format!("{text:<letters$}");
    let filled = texts.as_string::<i32>().iter().map(|text| text.map(fill));
    Ok(Arc::new(filled.collect::<StringArray>()))
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
