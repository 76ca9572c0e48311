//! Blanks around the elements of array literals.

/// True for a blank. As in PostgreSQL, those of Unicode alone are parts of elements.
pub(crate) fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}
