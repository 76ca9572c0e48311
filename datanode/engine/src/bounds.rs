//! Shortens the smallest and largest text of a page or column, so that statistics stay small
//! however long texts are.
//!
//! Invariant: what is shortened still bounds the values: a minimum is at most what it was, a
//! maximum at least. What of a text is left is a text. The results are those of the `parquet`
//! crate's own writer.

/// At most so many bytes of a minimum, and whether it was shortened.
pub(crate) fn lower(value: &[u8], text: bool, bytes_max: Option<usize>) -> (Vec<u8>, bool) {
    let shorter = bytes_max.filter(|max| value.len() > *max).and_then(|max| {
        match text.then(|| std::str::from_utf8(value)) {
            Some(Ok(text)) => {
                let end = (1..=max).rfind(|at| text.is_char_boundary(*at))?;
                Some(value[..end].to_vec())
            }
            _ => Some(value[..max].to_vec()),
        }
    });
    let shortened = shorter.is_some();
    (shorter.unwrap_or_else(|| value.to_vec()), shortened)
}

/// At most so many bytes that are more than a maximum's, and whether it was shortened. Where there are none, all of it.
pub(crate) fn upper(value: &[u8], text: bool, bytes_max: Option<usize>) -> (Vec<u8>, bool) {
    let shorter = bytes_max.filter(|max| value.len() > *max).and_then(|max| {
        match text.then(|| std::str::from_utf8(value)) {
            Some(Ok(text)) => {
                // A character has four bytes at most.
                let mut ends = max.saturating_sub(3)..=max;
                let end = ends.rfind(|at| text.is_char_boundary(*at))?;
                next_text(&text[..end])
            }
            _ => next_bytes(value[..max].to_vec()),
        }
    });
    let shortened = shorter.is_some();
    (shorter.unwrap_or_else(|| value.to_vec()), shortened)
}

/// A text that is more than all that begin with this one: the last character that has a successor of as many bytes is
/// replaced by it, and those behind it left out.
fn next_text(text: &str) -> Option<Vec<u8>> {
    text.char_indices().rev().find_map(|(at, character)| {
        let next = char::from_u32(u32::from(character) + 1)?;
        if next.len_utf8() != character.len_utf8() {
            return None;
        }
        let mut bytes = text.as_bytes()[..at].to_vec();
        bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
        Some(bytes)
    })
}

/// Bytes that are more than all that begin with these.
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
