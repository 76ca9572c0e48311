//! Ids of InfluxDB's clients: 16 hexadecimal digits, never all 0.
//!
//! Databases, tables and roles have numbers, of which the superuser's is 0; users are counted from [`USERS`].

use std::sync::Arc;

use partita_proto::catalog::{Catalog, Database};
use partita_proto::id::{DatabaseId, RoleId, TableId};

/// Id of the first user.
const USERS: u64 = 1 << 32;
const DIGITS: usize = 16;

/// The id of a number.
pub(super) fn id_text(number: impl Into<u64>) -> String {
    format!("{:016x}", number.into())
}

/// The number of an id; `None` unless it has 16 digits.
pub(super) fn number_of(text: &str) -> Option<u64> {
    let is_id = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_id)
}

pub(super) fn user_id(role: RoleId) -> String {
    id_text(USERS + u64::from(role.0))
}

pub(super) fn role_of(text: &str) -> Option<RoleId> {
    let number = number_of(text)?.checked_sub(USERS)?;
    u32::try_from(number).ok().map(RoleId)
}

/// The database with this id.
pub(super) fn database_of<'a>(catalog: &'a Catalog, text: &str) -> Option<&'a Arc<Database>> {
    let id = DatabaseId(u32::try_from(number_of(text)?).ok()?);
    catalog.databases.values().find(|database| database.id == id)
}

pub(super) fn table_of(text: &str) -> Option<TableId> {
    u32::try_from(number_of(text)?).ok().map(TableId)
}

/// The name of a bucket that is given by name or by id.
pub(crate) fn bucket_named(catalog: &Catalog, text: String) -> String {
    if catalog.databases.contains_key(&text) {
        return text;
    }
    database_of(catalog, &text).map_or(text, |database| database.name.clone())
}

#[cfg(test)]
mod tests {
    use partita_proto::id::BOOTSTRAP_ROLE;

    use super::*;

    #[test]
    fn ids_have_sixteen_digits() {
        assert_eq!(id_text(0xab_u32), "00000000000000ab");
        assert_eq!(number_of("00000000000000AB"), Some(0xab));
        for text in ["", "ab", "+0000000000000ab", "00000000000000abc"] {
            assert_eq!(number_of(text), None, "{text}");
        }
        assert_eq!(user_id(BOOTSTRAP_ROLE), "0000000100000000");
        assert_eq!(role_of(&user_id(RoleId(7))), Some(RoleId(7)));
        assert_eq!(role_of("0000000000000007"), None);
        assert_eq!(role_of("ffffffffffffffff"), None);
    }
}
