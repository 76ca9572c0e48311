//! Shortens the smallest and largest text of a page or column, so that statistics stay small however long texts are.
//!
//! Invariant: a shortened bound still bounds the values: a minimum is at most the original, a maximum at least. A
//! shortened text is valid UTF-8. The results equal those of the `parquet` crate's own writer.

/// A lower bound of at most `bytes_max` bytes for a minimum; true if it was shortened.
pub(crate) fn lower(value: &[u8], text: bool, bytes_max: Option<usize>) -> (Vec<u8>, bool) {
    let shorter = bytes_max.filter(|max| value.len() > *max).and_then(|max| {
        match text.then(|| std::str::from_utf8(value)) {
            Some(Ok(text)) => {
                let end = (1..=max).rfind(|position| text.is_char_boundary(*position))?;
                Some(value[..end].to_vec())
            }
            _ => Some(value[..max].to_vec()),
        }
    });
    let shortened = shorter.is_some();
    (shorter.unwrap_or_else(|| value.to_vec()), shortened)
}

/// An upper bound of at most `bytes_max` bytes for a maximum; true if it was shortened. Without such a bound, the
/// maximum itself.
pub(crate) fn upper(value: &[u8], text: bool, bytes_max: Option<usize>) -> (Vec<u8>, bool) {
    let shorter = bytes_max.filter(|max| value.len() > *max).and_then(|max| {
        match text.then(|| std::str::from_utf8(value)) {
            Some(Ok(text)) => {
                // A character takes at most four bytes.
                let mut ends = max.saturating_sub(3)..=max;
                let end = ends.rfind(|position| text.is_char_boundary(*position))?;
                next_text(&text[..end])
            }
            _ => next_bytes(value[..max].to_vec()),
        }
    });
    let shortened = shorter.is_some();
    (shorter.unwrap_or_else(|| value.to_vec()), shortened)
}

/// A text greater than all that begin with this one: the last character with a successor of the same length is replaced
/// by it, and the rest is dropped.
fn next_text(text: &str) -> Option<Vec<u8>> {
    text.char_indices().rev().find_map(|(position, character)| {
        let next = char::from_u32(u32::from(character) + 1)?;
        if next.len_utf8() != character.len_utf8() {
            return None;
        }
        let mut bytes = text.as_bytes()[..position].to_vec();
        bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
        Some(bytes)
    })
}

/// Bytes greater than all that begin with these.
fn next_bytes(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Option<usize> = Some(4);

    #[test]
    fn what_is_short_enough_stays() {
        assert_eq!(lower(b"abcd", true, MAX), (b"abcd".to_vec(), false));
        assert_eq!(upper(b"abcd", true, MAX), (b"abcd".to_vec(), false));
        assert_eq!(upper(b"abcde", true, None), (b"abcde".to_vec(), false));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(lower("abcä".as_bytes(), true, MAX), (b"abc".to_vec(), true));
        assert_eq!(upper("abcä".as_bytes(), true, MAX), (b"abd".to_vec(), true));
        assert_eq!(upper("aa\u{7F}\u{7F}b".as_bytes(), true, MAX), (b"ab".to_vec(), true));
        let last = "\u{10FFFF}\u{10FFFF}";
        assert_eq!(upper(last.as_bytes(), true, MAX), (last.as_bytes().to_vec(), false));
    }

    #[test]
    fn bytes_are_cut_anywhere() {
        assert_eq!(lower(&[255; 5], false, MAX), (vec![255; 4], true));
        assert_eq!(upper(&[255; 5], false, MAX), (vec![255; 5], false));
        assert_eq!(upper(&[1, 2, 255, 255, 9], false, MAX), (vec![1, 3, 0, 0], true));
    }
}
