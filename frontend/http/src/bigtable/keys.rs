//! Row keys of any bytes as values of a table's column, which may be text.

use datafusion::common::ScalarValue;
use partita_bigtable::rows::KeySpan;
use partita_proto::schema::ColumnType;

/// Largest code point.
const CODE_POINT_MAX: u32 = 0x0010_ffff;

/// A span of keys as values of the column of row keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyRange {
    /// First key; `None` for no bound.
    pub(super) start: Option<ScalarValue>,
    /// First key after the range; `None` for no bound.
    pub(super) end: Option<ScalarValue>,
}

impl KeyRange {
    /// The range of a span; `None` if no key of the column's type lies in it.
    pub(super) fn of(span: &KeySpan, column_type: ColumnType) -> Option<Self> {
        let start = match span.start.is_empty() {
            true => None,
            // If no text is as large as the start, the span has no key.
            false => Some(bound(&span.start, column_type)?),
        };
        let end = span.end.as_ref().and_then(|end| bound(end, column_type));
        Some(Self { start, end })
    }

    /// The only key of the range; `None` if it has room for several.
    pub(super) fn key(&self) -> Option<&ScalarValue> {
        let start = self.start.as_ref()?;
        // Nothing lies between a key and the same key with a zero behind it.
        let last = bytes_of(self.end.as_ref()?)?.strip_suffix(b"\0")?;
        (bytes_of(start)? == last).then_some(start)
    }
}

/// Bytes of a row key.
fn bytes_of(key: &ScalarValue) -> Option<&[u8]> {
    match key {
        ScalarValue::BinaryView(Some(bytes)) => Some(bytes),
        ScalarValue::Utf8View(Some(text)) => Some(text.as_bytes()),
        _ => None,
    }
}

/// The least value of the column that is not less than some bytes; `None` if there is none.
fn bound(bytes: &[u8], column_type: ColumnType) -> Option<ScalarValue> {
    match column_type {
        ColumnType::String => ceiling(bytes).map(|text| ScalarValue::Utf8View(Some(text))),
        _ => Some(ScalarValue::BinaryView(Some(bytes.to_vec()))),
    }
}

/// The least text that is not less than some bytes; `None` if there is none.
fn ceiling(bytes: &[u8]) -> Option<String> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Some(text.to_owned()),
        Err(error) => error,
    };
    let (valid, rest) = bytes.split_at(error.valid_up_to());
    let mut text = String::from_utf8_lossy(valid).into_owned();
    if let Some(letter) = letter_from(rest) {
        text.push(letter);
        return Some(text);
    }
    // No letter is as large: the next text is that with a greater last letter.
    while let Some(last) = text.pop() {
        if let Some(letter) = letter_after(last) {
            text.push(letter);
            return Some(text);
        }
    }
    None
}

/// The least letter whose bytes are not less than some. Letters have the order of their bytes.
fn letter_from(bytes: &[u8]) -> Option<char> {
    let is_less = |code: u32| {
        // Surrogates are no letters; the next one stands for them.
        let letter = char::from_u32(code).unwrap_or('\u{e000}');
        letter.encode_utf8(&mut [0; 4]).as_bytes() < bytes
    };
    let (mut low, mut high) = (0, CODE_POINT_MAX + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_less(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low <= CODE_POINT_MAX).then(|| char::from_u32(low).unwrap_or('\u{e000}'))
}

fn letter_after(letter: char) -> Option<char> {
    let next = u32::from(letter) + 1;
    (next <= CODE_POINT_MAX).then(|| char::from_u32(next).unwrap_or('\u{e000}'))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_that_are_no_text_are_rounded_up() {
        assert_eq!(ceiling(b"a#").as_deref(), Some("a#"));
        assert_eq!(ceiling(b"a\xff").as_deref(), Some("b"));
        assert_eq!(ceiling(b"\xc3").as_deref(), Some("\u{c0}"));
        // Between the last letter before the surrogates and the first one after them.
        assert_eq!(ceiling(b"\xed\xa0").as_deref(), Some("\u{e000}"));
        assert_eq!(ceiling("\u{10ffff}".as_bytes()).as_deref(), Some("\u{10ffff}"));
        assert_eq!(ceiling(b"\xf4\x8f\xbf\xbf\xff"), None);
        assert_eq!(ceiling(b"\xff"), None);
        let beyond = KeySpan { start: Bytes::from_static(b"\xff"), end: None };
        assert_eq!(KeyRange::of(&beyond, ColumnType::String), None);
        let until = KeySpan { start: Bytes::new(), end: Some(Bytes::from_static(b"\xff")) };
        let full_range = KeyRange { start: None, end: None };
        assert_eq!(KeyRange::of(&until, ColumnType::String), Some(full_range));
        assert!(KeyRange::of(&beyond, ColumnType::Binary).is_some());
    }

    #[test]
    fn a_range_of_one_key_is_told_from_others() {
        for column_type in [ColumnType::Binary, ColumnType::String] {
            let range = |span| KeyRange::of(&span, column_type).unwrap();
            let single = range(KeySpan::key(b"a"));
            assert_eq!(single.key(), single.start.as_ref());
            assert_eq!(range(KeySpan::key(b"a\0")).key().and_then(bytes_of), Some(&b"a\0"[..]));
            let end = |end: &'static [u8]| Some(Bytes::from_static(end));
            let start = || Bytes::from_static(b"a");
            for end in [None, end(b"a\0\0"), end(b"b"), end(b"b\0")] {
                assert_eq!(range(KeySpan { start: start(), end }).key(), None);
            }
            assert_eq!(range(KeySpan { start: Bytes::new(), end: end(b"\0") }).key(), None);
        }
    }

    proptest! {
        #[test]
        fn texts_lie_before_bytes_and_before_their_ceiling_alike(
            bytes in proptest::collection::vec(any::<u8>(), 0..5),
            text in "\\PC{0,4}",
        ) {
            let is_before = text.as_bytes() < &bytes[..];
            let ceiling = ceiling(&bytes);
            prop_assert_eq!(ceiling.as_ref().is_none_or(|ceiling| text < *ceiling), is_before);
            if let Some(ceiling) = ceiling {
                prop_assert!(ceiling.as_bytes() >= &bytes[..]);
            }
        }
    }
}
