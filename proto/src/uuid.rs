//! Texts of UUIDs: `a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11`.
//!
//! Input is read as PostgreSQL reads it: digits of either case, in braces or not, with hyphens after any group of four
//! digits. Output has lower case, and hyphens after 8, 12, 16 and 20 digits. Bytes compare as digits do, so a UUID
//! column has the order of its texts.

/// Bytes of a UUID.
pub const UUID_BYTES: usize = 16;

/// Number of bytes before each hyphen of the output.
const GROUP_ENDS: [usize; 4] = [4, 6, 8, 10];

/// The bytes of a text; `None` if it is not one of a UUID.
#[must_use]
pub fn parse(text: &str) -> Option<[u8; UUID_BYTES]> {
    let text = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let mut rest = text.as_bytes();
    let mut bytes = [0; UUID_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
        rest = tail;
        // A hyphen may follow every second byte but the last.
        if index % 2 == 1
            && index + 1 < UUID_BYTES
            && let [b'-', tail @ ..] = rest
        {
            rest = tail;
        }
    }
    rest.is_empty().then_some(bytes)
}

/// Calls `push` with each character, which is ASCII, of the text of a UUID's bytes.
pub fn write(bytes: &[u8], mut push: impl FnMut(u8)) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (index, byte) in bytes.iter().enumerate() {
        if GROUP_ENDS.contains(&index) {
            push(b'-');
        }
        push(DIGITS[usize::from(byte >> 4)]);
        push(DIGITS[usize::from(byte & 15)]);
    }
}

/// The text of a UUID's bytes.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len() + GROUP_ENDS.len());
    write(bytes, |character| text.push(char::from(character)));
    text
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";

    #[test]
    fn every_spelling_of_postgresql_is_read() {
        let bytes = parse(TEXT).unwrap();
        assert_eq!(bytes[..4], [0xa0, 0xee, 0xbc, 0x99]);
        assert_eq!(bytes[15], 0x11);
        for spelling in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(parse(spelling), Some(bytes), "{spelling}");
        }
        assert_eq!(text(&bytes), TEXT);
    }

    #[test]
    fn other_texts_are_refused() {
        for wrong in [
            "",
            "11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11",
            "a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "g0eebc99-9c0b4ef8-bb6d6bb9-bd380a11",
            "a0-eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1é",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1111",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn texts_read_back_and_have_the_order_of_their_bytes(
            one in any::<[u8; UUID_BYTES]>(),
            other in any::<[u8; UUID_BYTES]>(),
        ) {
            prop_assert_eq!(parse(&text(&one)), Some(one));
            prop_assert_eq!(text(&one).cmp(&text(&other)), one.cmp(&other));
        }
    }
}
