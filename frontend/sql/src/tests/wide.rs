//! CREATE TABLE of wide tables: three forms of one table, what is refused, and the statement that is shown.

use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::ColumnType;
use partita_proto::value::Value;
use partita_proto::wide::{Family, GcRule, Wide, columns};

use super::{made, new_table, one, table};
use crate::show::create_table_sql;
use crate::statement::Statement;

const CLAUSES: &str = "FAMILIES (stats GC (MAX_VERSIONS = 3), meta)";

fn refused(sql: &str, sqlstate: &str, says: &str) {
    let error = new_table(sql).unwrap_err();
    assert_eq!(
        (error.sqlstate.as_str(), error.message.contains(says)),
        (sqlstate, true),
        "{sql}: {error}"
    );
}

#[test]
fn all_forms_make_the_same_table() {
    let (table, notices) =
        new_table(&format!("CREATE TABLE w WIDE (ROW KEY STRING) {CLAUSES}")).unwrap();
    assert!(notices.is_empty(), "{notices:?}");
    assert_eq!(table.schema.columns, columns(ColumnType::String));
    assert_eq!(table.schema.key.len(), 4);
    assert_eq!(table.schema.options.partitioning.keep_together, 1);
    let families = vec![
        Family { name: "stats".to_owned(), gc: Some(GcRule::MaxVersions(3)), aggregate: None },
        Family { name: "meta".to_owned(), gc: None, aggregate: None },
    ];
    assert_eq!(table.schema.options.wide, Some(Wide { families, ..Wide::default() }));
    let options = "WITH (kind = 'wide', families = 'stats GC (max_versions = 3), meta')";
    let columns = "row_key TEXT, family TEXT, qualifier BYTEA, cell_ts TIMESTAMP(6) DEFAULT now(), value BYTEA";
    for sql in [
        format!("CREATE TABLE w (row_key STRING) {options}"),
        format!("CREATE TABLE w ({columns}) {options}"),
        format!(
            "CREATE TABLE w ({columns}, PRIMARY KEY (row_key, family, qualifier, cell_ts)) {options}"
        ),
    ] {
        assert_eq!(new_table(&sql).unwrap().0, table, "{sql}");
    }
}

#[test]
fn a_wide_table_is_divided_by_its_row_keys() {
    let sql = |clause: &str| format!("CREATE TABLE w WIDE (ROW KEY BYTES) {CLAUSES} {clause}");
    let (table, _) = new_table(&sql("SPLIT AT ('\\x61', '\\x62')")).unwrap();
    let bound = |byte| Bound { placement: None, key: vec![Value::Binary(vec![byte])] };
    assert_eq!(table.cuts, [bound(0x61), bound(0x62)]);
    let (table, _) = new_table(&sql("PARTITION BY HASH (row_key) PARTITIONS 4")).unwrap();
    assert!(matches!(table.placement, Placement::Hash { .. }));
    let by_column = sql("PARTITION BY HASH (row_key, qualifier) PARTITIONS 4");
    refused(&by_column, "42P16", "partitioned by \"row_key\" only");
}

#[test]
fn what_is_no_wide_table_is_refused() {
    let wide = |rest: &str| format!("CREATE TABLE w WIDE (ROW KEY STRING) {rest}");
    refused("CREATE TABLE w WIDE (ROW KEY INT) FAMILIES (f)", "42P16", "STRING or BYTES, not INT");
    refused("CREATE TABLE w WIDE (KEY STRING)", "42601", "expected ROW");
    refused(&wide("FAMILIES (f) FAMILIES (g)"), "42601", "more than once");
    refused(&wide("FAMILIES (f, f)"), "42P16", "\"f\" specified more than once");
    refused(&wide("FAMILIES (f) WITH (append_mode = 'true')"), "42P16", "on a wide table");
    refused(&wide("FAMILIES (f) WITH (keep_together = 2)"), "42P16", "must be 1");
    refused(
        &wide("FAMILIES (f) WITH (row_size_warn = '2GiB', row_size_max = '1GiB')"),
        "42P16",
        "'row_size_warn' (2147483648 bytes) must not exceed",
    );
    refused(&wide("WITH (families = 'f GC (x)')"), "22023", "takes column families such as");
    refused("CREATE TABLE t (a INT PRIMARY KEY) FAMILIES (f)", "42P16", "columns of a wide table");
    refused("CREATE TABLE t (a INT PRIMARY KEY) WITH (kind = 'tall')", "22023", "takes 'wide'");
}

#[test]
fn a_wide_table_has_no_copies() {
    let table = made("CREATE TABLE w WIDE (ROW KEY STRING) FAMILIES (f)");
    let sql = "CREATE MATERIALIZED COPY c OF w PRIMARY KEY (cell_ts, row_key, family, qualifier)";
    let Statement::CreateCopy(copy) = one(sql).unwrap() else { panic!("{sql}") };
    let error = copy.to_new_table(&table).unwrap_err();
    assert_eq!(error.message, "a copy of a wide table is not supported");
}

#[test]
fn a_shown_wide_table_makes_itself_again() {
    let sql = "CREATE TABLE w WIDE (ROW KEY BYTES) FAMILIES (stats GC (MAX_VERSIONS = 3 OR \
               (max_age = '30d' AND max_versions = 9)), \"a-b\", n aggregate sum) \
               SPLIT AT ('m') WITH (row_size_max = '1GB', row_size_warn = '7 MB')";
    let shown = create_table_sql(&made(sql));
    assert_eq!(
        shown,
        "CREATE TABLE w WIDE (ROW KEY BYTES)
FAMILIES (stats GC (MAX_VERSIONS = 3 OR (MAX_AGE = '30d' AND MAX_VERSIONS = 9)), \"a-b\", n AGGREGATE SUM)
PARTITION BY RANGE (row_key)
SPLIT AT (
  (X'6D')
)
WITH (
  'row_size_warn' = '7MiB',
  'row_size_max' = '1GiB'
)"
    );
    assert_eq!(create_table_sql(&made(&shown)), shown);
    // Columns that differ from those of the short form are listed.
    let (mut new, _) = new_table(sql).unwrap();
    new.schema.columns[4].comment = Some("a reading".to_owned());
    let shown = create_table_sql(&table(&new));
    assert!(shown.contains("value BINARY NOT NULL COMMENT 'a reading'"), "{shown}");
    assert!(shown.contains("'kind' = 'wide',\n  'families' = 'stats GC (MAX_VERSIONS"), "{shown}");
    let (again, _) = new_table(&shown).unwrap();
    assert_eq!(again, new);
}
