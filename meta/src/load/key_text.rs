//! Keys as users see them: SQL values of the table's key.

use partita_proto::key::KeyCodec;
use partita_proto::literal::printable;

/// An encoded key as a tuple of SQL values: `(3, 'a')`. If the bytes end within a value, as edges of rows may, the
/// values before it.
pub(super) fn key_text(codec: &KeyCodec, key: &[u8]) -> String {
    let whole = codec.decode(key).ok();
    let shortened = || {
        let end = codec.cell_ends(key).pop()?;
        codec.decode(&key[..end]).ok()
    };
    let Some(bound) = whole.or_else(shortened) else { return "()".to_owned() };
    let values: Vec<_> = bound.key.iter().zip(codec.key_types().iter().copied()).collect();
    printable(&values, bound.placement)
}

#[cfg(test)]
mod tests {
    use partita_proto::placement::Placement;
    use partita_proto::range::Bound;
    use partita_proto::value::Value;

    use super::*;

    #[test]
    fn keys_are_shown_as_values_whole_or_cut_short() {
        let codec = KeyCodec::new(&crate::tests::readings(), &Placement::Range).unwrap();
        let shown = |values: &[Value]| {
            let types = values.iter().zip(codec.key_types());
            let texts: Vec<_> = types.map(|(value, of)| value.display(*of)).collect();
            format!("({})", texts.join(", "))
        };
        let values = [Value::Int(7), Value::Timestamp(5)];
        let bound = Bound { placement: None, key: values.to_vec() };
        let key = codec.encode_bound(&bound).unwrap();
        assert_eq!(key_text(&codec, &key), shown(&values));
        assert_eq!(key_text(&codec, &[&key[..], &[0]].concat()), shown(&values));
        assert_eq!(key_text(&codec, &key[..key.len() - 1]), "(7)");
        assert_eq!(key_text(&codec, &key[..1]), "()");
    }
}
