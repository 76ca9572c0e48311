//! Places of keys between two others, as numbers.
//!
//! Invariant: pure; a greater key never has a smaller place between the same two keys.

/// Bytes of a key that count: as many as a number has.
const BYTES: usize = size_of::<u64>();

/// The place of a key between the lowest and the highest one: 0 at the lowest or below, 1 at the highest or above. The
/// bytes that all three share are left out, and the next eight are taken as a number; 0 if both ends are the same in
/// those.
pub(crate) fn place(low: &[u8], high: &[u8], key: &[u8]) -> f64 {
    // Outside of the two it shares less with them, and is at one end anyway.
    if key <= low {
        return 0.0;
    }
    if key >= high {
        return 1.0;
    }
    // A key between two others shares what they share.
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |bytes: &[u8]| {
        let mut word = [0; BYTES];
        for (byte, source) in word.iter_mut().zip(bytes.iter().skip(shared)) {
            *byte = *source;
        }
        u64::from_be_bytes(word)
    };
    let (start, end) = (number(low), number(high));
    let width = end.saturating_sub(start).max(1) as f64;
    (number(key).saturating_sub(start) as f64 / width).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn places_rise_with_keys_and_ignore_what_all_share() {
        let key = |prefix: &str, number: u64| [prefix.as_bytes(), &number.to_be_bytes()].concat();
        let (low, high) = (key("tenant-7/", 1_000), key("tenant-7/", 2_000));
        let near = |number, expected: f64| {
            let place = place(&low, &high, &key("tenant-7/", number));
            assert!((place - expected).abs() < 1e-9, "{number}: {place}");
        };
        near(1_000, 0.0);
        near(1_250, 0.25);
        near(2_000, 1.0);
        near(1, 0.0);
        near(u64::MAX, 1.0);
        let places: Vec<f64> =
            (900..2_100).map(|number| place(&low, &high, &key("tenant-7/", number))).collect();
        assert!(places.is_sorted());
        assert!(place(b"Apr", b"Sep", b"Jul") > place(b"Apr", b"Sep", b"Feb"));
        assert!(place(b"a", b"a", b"b") > 0.5 && place(b"", b"", b"") < 0.5);
    }
}
