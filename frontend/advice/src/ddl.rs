//! Statements that carry out an advice.
//!
//! A change of a key or of a type needs another table: it is created beside the old one, which no statement touches, and
//! comments say how rows get there. The definition of the new table is that of SHOW CREATE TABLE, parsed, changed and
//! printed again; what the change makes invalid yields no statements.
//!
//! Invariants: every text parses; no statement drops or renames a table, or drops a row.

use std::sync::Arc;

use partita_proto::catalog::{DEFAULT_DATABASE, Table};
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::index::{Blooms, IndexOptions};
use partita_proto::key::KeyCodec;
use partita_proto::route::PartitionMap;
use partita_proto::schema::{ColumnType, MergeMode};
use partita_proto::service::NewTable;
use partita_sql::Statement;
use partita_sql::identifier::{quote, quote_list};
use partita_sql::show::create_table_sql;
use partita_sql::statement::{ColumnDefinition, CreateTable, Partitioning};

use crate::measurements::TableFacts;

/// Partitions that a suggested hash begins with: a few for each node of a small cluster.
pub(crate) const HASH_PARTITIONS: u16 = 16;

/// Difference of a new table from the one that it is like, as a comment says it.
const NOT_KEPT: &str = "The new table belongs to the role that creates it, and has no grants and no materialized copies.";

/// Statements that lead to another definition of a table, safe beside writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The statements, perhaps with comments.
    pub sql: String,
    /// True if the statements are all that has to be done; false if the rows have to be moved by hand.
    pub is_complete: bool,
    /// True if existing rows are written again, by the statements or by hand.
    pub moves_rows: bool,
}

impl Script {
    /// Statements after which nothing is left to be done.
    pub(crate) fn complete(sql: String) -> Self {
        Self { sql, is_complete: true, moves_rows: false }
    }

    /// A statement after which the table's rows are moved in the background.
    pub(crate) fn rekeying(sql: String) -> Self {
        Self { sql, is_complete: true, moves_rows: true }
    }

    /// A CREATE TABLE, without its semicolon, of a table beside the one with this name.
    pub(crate) fn beside(create: &str, name: &str) -> Self {
        // A line break would end the comment.
        let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let sql = format!(
            "{create};\n\
             -- The rows stay in \"{name}\": no statement moves them to such a table under writes. \
             Let the writers write to both tables, then copy old rows; \
             see docs/operations.md, \"Another key for a table\". {NOT_KEPT}"
        );
        Self { sql, is_complete: false, moves_rows: true }
    }
}

/// Comment about what a new table does not get from old ones, which have these materialized copies. It may stand before
/// other comments and statements.
fn left_behind(copies: &[String]) -> String {
    format!("-- {NOT_KEPT}{}", followers(copies))
}

/// Another line of comment that names the materialized copies of old tables; empty if there are none.
fn followers(copies: &[String]) -> String {
    if copies.is_empty() {
        return String::new();
    }
    // A line break would end the comment.
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let names: String = quote_list(copies.iter().map(String::as_str)).chars().map(plain).collect();
    format!("\n-- Materialized copies of the old rows, see CREATE MATERIALIZED COPY: {names}.")
}

/// Name of a table in statements, with its database.
pub(crate) fn name_of(table: &TableFacts) -> String {
    qualified(&table.database, &table.name)
}

fn qualified(database: &str, name: &str) -> String {
    if database.is_empty() {
        quote(name).into_owned()
    } else {
        format!("{}.{}", quote(database), quote(name))
    }
}

/// One ALTER TABLE with an action.
pub(crate) fn alter(table: &TableFacts, action: &str) -> String {
    format!("ALTER TABLE {} {action};", name_of(table))
}

/// Puts a key column of a table before the others, whose rows follow.
pub(crate) fn lead_key(table: &TableFacts, column: &str) -> String {
    alter(table, &format!("PRIMARY KEY ({})", led_by(table, column)))
}

/// Places all rows of a table by hash of one of its key columns, in the order of the key that it has.
pub(crate) fn rekey_by_hash(table: &TableFacts, column: &str, partitions: u16) -> String {
    let key = quote_list(table.key.iter().map(String::as_str));
    let placed = format!("PARTITION BY HASH ({}) PARTITIONS {partitions}", quote(column));
    alter(table, &format!("PRIMARY KEY ({key}) {placed}"))
}

/// The key columns of a table, this one first.
fn led_by(table: &TableFacts, column: &str) -> String {
    let names = table.key.iter().map(String::as_str).filter(|name| *name != column);
    quote_list([column].into_iter().chain(names))
}

/// Gives a column an index of a kind; the old one of another kind goes first.
pub(crate) fn set_index(
    table: &TableFacts,
    column: &str,
    kind: &str,
    replaced: Option<&str>,
) -> String {
    let column = quote(column);
    let modify = |action: &str, kind: &str| {
        let kind = kind.to_ascii_uppercase();
        alter(table, &format!("MODIFY COLUMN {column} {action} {kind} INDEX"))
    };
    match replaced {
        Some(old) => format!("{}\n{}", modify("UNSET", old), modify("SET", kind)),
        None => modify("SET", kind),
    }
}

/// The statement that drops an index.
pub(crate) fn drop_index(table: &TableFacts, name: &str) -> String {
    format!("DROP INDEX {} ON {};", quote(name), name_of(table))
}

/// Creates a materialized copy of a table whose key begins with one of the table's key columns.
pub(crate) fn copy_by(table: &TableFacts, column: &str) -> String {
    format!(
        "CREATE MATERIALIZED COPY {} OF {} PRIMARY KEY ({});",
        qualified(&table.database, &format!("{}_by_{column}", table.name)),
        name_of(table),
        led_by(table, column),
    )
}

/// The table that a definition describes, as meta would create it; `None` if it contradicts itself.
pub(crate) fn table_of(new: &NewTable) -> Option<Table> {
    let codec = KeyCodec::new(&new.schema, &new.placement).ok()?;
    let ids = (1..).map(PartitionId);
    let map = PartitionMap::from_cuts(&codec, &new.cuts, ids, Epoch(1)).ok()?;
    Some(Table {
        id: TableId(1),
        database: new.database.clone(),
        name: new.name.clone(),
        schema: Arc::new(new.schema.clone()),
        placement: new.placement.clone(),
        partitions: Arc::new(map),
        former: None,
        succeeded_by: None,
        copy: None,
        owner: new.owner,
    })
}

/// A column of the new table, and the expression over the old one that fills it.
#[derive(Clone, Debug)]
struct Filled {
    column: String,
    expression: String,
}

/// Definition of a table that a copy changes.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    create: CreateTable,
    database: String,
    name: String,
    filled: Vec<Filled>,
    copies: Vec<String>,
}

impl Definition {
    /// The present definition; `None` if it does not parse.
    pub(crate) fn of(table: &TableFacts) -> Option<Self> {
        let statements = partita_sql::parse(&table.created).ok()?;
        let [Statement::CreateTable(create)] = statements.as_slice() else { return None };
        let stored = create.columns.iter().filter(|column| column.generated.is_none());
        let filled = stored.map(|column| Filled {
            column: column.name.clone(),
            expression: quote(&column.name).into_owned(),
        });
        Some(Self {
            filled: filled.collect(),
            create: CreateTable::clone(create),
            database: table.database.clone(),
            name: table.name.clone(),
            copies: table.copies.clone(),
        })
    }

    /// Names the materialized copies of several tables, which a table of this definition replaces.
    pub(crate) fn set_copies<'a>(&mut self, copies: impl IntoIterator<Item = &'a String>) {
        self.copies = copies.into_iter().cloned().collect();
    }

    fn position(&self, column: &str) -> Option<usize> {
        self.create.columns.iter().position(|definition| definition.name == column)
    }

    /// The key columns without an implied time index.
    pub(crate) fn key(&self) -> Vec<String> {
        self.create.primary_key.clone().unwrap_or_default()
    }

    /// Gives it another order of the key, or other key columns. Cuts of the old key do not fit the new one.
    pub(crate) fn set_key(&mut self, key: Vec<String>) {
        self.create.primary_key = (!key.is_empty()).then_some(key);
        self.create.cuts = None;
        self.create.uniform = None;
        if let Partitioning::Range { columns } = &mut self.create.partitioning {
            columns.clear();
        }
    }

    /// Puts a column at the beginning of the key.
    pub(crate) fn lead_key(&mut self, column: &str) {
        let rest = self.key().into_iter().filter(|name| name != column);
        let key = std::iter::once(column.to_owned()).chain(rest).collect();
        self.set_key(key);
    }

    /// Keeps every row. A table without some of its key columns needs that, because rows that differ in these would
    /// replace each other.
    pub(crate) fn append(&mut self) {
        self.create.options.append_mode = true;
        self.create.options.merge_mode = MergeMode::default();
    }

    /// Takes a column out of the key.
    pub(crate) fn make_field(&mut self, column: &str) {
        let key = self.key().into_iter().filter(|name| name != column).collect();
        self.set_key(key);
        self.append();
    }

    /// Gives a column another type, with an expression for the values that exist.
    pub(crate) fn retype(&mut self, column: &str, column_type: ColumnType, expression: String) {
        let Some(position) = self.position(column) else { return };
        let definition = &mut self.create.columns[position];
        definition.column_type = column_type;
        definition.length = None;
        definition.json = None;
        definition.default = None;
        definition.indexes.clear();
        if let Some(filled) = self.filled.iter_mut().find(|filled| filled.column == column) {
            filled.expression = expression;
        }
    }

    /// Gives a column bloom filters.
    pub(crate) fn set_skipping_index(&mut self, column: &str) {
        let Some(position) = self.position(column) else { return };
        let indexes = &mut self.create.columns[position].indexes;
        let options = IndexOptions::Skipping(Blooms::default());
        if !indexes.iter().any(|(_, declared)| declared.kind() == options.kind()) {
            indexes.push((None, options));
        }
    }

    /// Adds a text column after another one, in the key if that is, filled by an expression.
    pub(crate) fn add_text(&mut self, neighbour: &str, name: &str, expression: String) {
        let Some(position) = self.position(neighbour) else { return };
        let added = ColumnDefinition {
            name: name.to_owned(),
            column_type: ColumnType::String,
            length: None,
            json: None,
            nullable: None,
            default: None,
            generated: None,
            counter: None,
            comment: None,
            indexes: Vec::new(),
        };
        self.create.columns.insert(position + 1, added);
        self.filled.push(Filled { column: name.to_owned(), expression });
        if let Some(key) = &mut self.create.primary_key
            && let Some(place) = key.iter().position(|column| column == neighbour)
        {
            key.insert(place + 1, name.to_owned());
        }
    }

    /// Adds a tag at the end of the key.
    pub(crate) fn add_tag(&mut self, name: &str) {
        let Some(last) = self.create.columns.last().map(|column| column.name.clone()) else {
            return;
        };
        self.add_text(&last, name, quote(name).into_owned());
        let mut key = self.key();
        if !key.iter().any(|column| column == name) {
            let time = self.create.time_index.as_ref();
            let end = key.iter().position(|column| Some(column) == time).unwrap_or(key.len());
            key.insert(end, name.to_owned());
        }
        self.set_key(key);
    }

    /// Fills a column by an expression.
    pub(crate) fn fill(&mut self, column: &str, expression: &str) {
        if let Some(filled) = self.filled.iter_mut().find(|filled| filled.column == column) {
            expression.clone_into(&mut filled.expression);
        }
    }

    /// Leaves in a column what its values have beside the columns that were added after it: mostly nothing. In the key it
    /// comes behind them. `None` if the column places the rows, which would all have one place.
    pub(crate) fn keep_rest(&mut self, column: &str, expression: &str) -> Option<()> {
        let position = self.position(column)?;
        if let Partitioning::Hash { columns, .. } | Partitioning::Rules { columns, .. } =
            &self.create.partitioning
            && columns.iter().any(|name| name == column)
        {
            return None;
        }
        let definition = &mut self.create.columns[position];
        (definition.nullable, definition.default) = (Some(true), None);
        self.fill(column, expression);
        let mut key = self.key();
        if let Some(place) = key.iter().position(|name| name == column) {
            let name = key.remove(place);
            let time = self.create.time_index.as_ref();
            let end = key.iter().position(|name| Some(name) == time).unwrap_or(key.len());
            key.insert(end, name);
            self.set_key(key);
        }
        Some(())
    }

    /// Leaves a column out.
    pub(crate) fn remove(&mut self, column: &str) {
        self.create.columns.retain(|definition| definition.name != column);
        self.filled.retain(|filled| filled.column != column);
        if self.key().iter().any(|name| name == column) {
            let key = self.key().into_iter().filter(|name| name != column).collect();
            self.set_key(key);
        }
    }

    /// Places rows by hash.
    pub(crate) fn hash(&mut self, column: &str, partitions: u16) {
        self.create.cuts = None;
        self.create.uniform = None;
        self.create.partitioning =
            Partitioning::Hash { columns: vec![column.to_owned()], partitions };
    }

    /// Adds a column of the definition `source` under a new name, to be filled by `expression`.
    fn adopt(&mut self, source: &Self, column: &str, name: &str, expression: String) {
        let Some(position) = source.position(column) else { return };
        let mut definition = source.create.columns[position].clone();
        definition.name = name.to_owned();
        // A row that only one of the two tables has is NULL in the columns of the other.
        definition.nullable = Some(true);
        definition.generated = None;
        definition.indexes.clear();
        self.create.columns.push(definition);
        self.filled.push(Filled { column: name.to_owned(), expression });
    }

    /// CREATE TABLE of the definition under a name; `None` if the definition is not valid.
    pub(crate) fn create(&self, name: &str) -> Option<String> {
        let mut create = self.create.clone();
        create.table.name = name.to_owned();
        create.if_not_exists = false;
        let database =
            if self.database.is_empty() { DEFAULT_DATABASE } else { self.database.as_str() };
        let (new_table, _) = create.to_new_table(database).ok()?;
        let text = create_table_sql(&table_of(&new_table)?);
        let rest = text.strip_prefix(&format!("CREATE TABLE {}", quote(name)))?;
        Some(format!("CREATE TABLE {}{rest}", qualified(&self.database, name)))
    }

    /// The names of the filled columns, and their expressions.
    fn lists(&self) -> (String, String) {
        let names = quote_list(self.filled.iter().map(|filled| filled.column.as_str()));
        let expressions: Vec<&str> =
            self.filled.iter().map(|filled| filled.expression.as_str()).collect();
        (names, expressions.join(", "))
    }

    /// INSERT .. SELECT of the filled columns from a table, perhaps of some of its rows.
    pub(crate) fn insert(&self, target: &str, source: &str, filter: &str) -> String {
        let (names, expressions) = self.lists();
        let target = qualified(&self.database, target);
        let source = qualified(&self.database, source);
        format!("INSERT INTO {target} ({names}) SELECT {expressions} FROM {source}{filter};")
    }

    /// Comment about what a table of the new definition does not get from the old one.
    pub(crate) fn left_behind(&self) -> String {
        left_behind(&self.copies)
    }

    /// Statements that create a table of the new definition beside the old one; `None` if the definition contradicts
    /// itself. Columns that are not those of the old table are explained by a comment.
    pub(crate) fn beside(&self) -> Option<String> {
        let create = self.create(&format!("{}_new", self.name))?;
        let Script { mut sql, .. } = Script::beside(&create, &self.name);
        sql.push_str(&followers(&self.copies));
        for filled in &self.filled {
            let column = quote(&filled.column);
            let is_plain = |text: &str| !text.chars().any(char::is_control);
            if filled.expression != column && is_plain(&filled.expression) && is_plain(&column) {
                sql.push_str(&format!("\n-- Column {column} of old rows: {}", filled.expression));
            }
        }
        Some(sql)
    }
}

/// Statements that make one table of two that have the same key; `shared` are the columns that are equal in both.
pub(crate) fn joined(first: &TableFacts, second: &TableFacts, shared: &[String]) -> Option<String> {
    let (mut wide, source) = (Definition::of(first)?, Definition::of(second)?);
    let is_shared = |column: &str| shared.iter().any(|name| name == column);
    for filled in &mut wide.filled {
        let column = quote(&filled.column);
        filled.expression = if is_shared(&filled.column) {
            format!("coalesce(l.{column}, r.{column})")
        } else {
            format!("l.{column}")
        };
    }
    for definition in &mut wide.create.columns {
        let is_key = wide.create.primary_key.iter().flatten().any(|name| *name == definition.name);
        if !is_key && Some(&definition.name) != wide.create.time_index.as_ref() {
            definition.nullable = Some(true);
        }
    }
    for filled in &source.filled {
        let column = &filled.column;
        if is_shared(column) {
            continue;
        }
        let name = match wide.position(column) {
            Some(_) => format!("{}_{column}", second.name),
            None => column.clone(),
        };
        wide.adopt(&source, column, &name, format!("r.{}", quote(column)));
    }
    let name = format!("{}_{}", first.name, second.name);
    let create = wide.create(&name)?;
    let (names, expressions) = wide.lists();
    let equal: Vec<String> =
        shared.iter().map(|column| format!("l.{0} = r.{0}", quote(column))).collect();
    let copies: Vec<String> = first.copies.iter().chain(&second.copies).cloned().collect();
    Some(format!(
        "{create};\n\
         {}\n\
         INSERT INTO {} ({names}) SELECT {expressions} FROM {} AS l FULL JOIN {} AS r ON {};",
        left_behind(&copies),
        qualified(&first.database, &name),
        name_of(first),
        name_of(second),
        equal.join(" AND ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{parses, table};

    #[test]
    fn a_definition_that_is_not_changed_is_the_one_of_the_table() {
        let facts = table(
            "CREATE TABLE t (host STRING NULL, ts TIMESTAMP(3) NOT NULL, v DOUBLE NULL, PRIMARY KEY (host), \
             TIME INDEX (ts)) PARTITION BY HASH (host) PARTITIONS 4 WITH ('merge_mode' = 'last_non_null')",
        );
        let definition = Definition::of(&facts).unwrap();
        let text = definition.create("t").unwrap();
        assert_eq!(text.replacen("public.t", "t", 1), facts.created);
    }

    #[test]
    fn a_table_with_a_tag_as_field_keeps_every_row() {
        let facts = table(
            "CREATE TABLE t (host STRING, id STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (host, id))",
        );
        let mut definition = Definition::of(&facts).unwrap();
        definition.make_field("id");
        definition.set_skipping_index("id");
        let text = definition.beside().unwrap();
        parses(&text);
        assert!(text.contains("PRIMARY KEY (host)") && text.contains("'append_mode' = 'true'"));
        assert!(text.contains("SKIPPING INDEX"));
        assert!(text.starts_with("CREATE TABLE public.t_new ("), "{text}");
        assert!(text.contains("-- The rows stay in \"t\""), "{text}");
        for word in ["DROP", "RENAME", "INSERT", "-- Column"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn two_tables_become_one_with_the_columns_of_both() {
        let left = table(
            "CREATE TABLE heart_rate (person STRING, ts TIMESTAMP TIME INDEX, value DOUBLE, PRIMARY KEY (person))",
        );
        let right = table(
            "CREATE TABLE blood_oxygen (person STRING, ts TIMESTAMP TIME INDEX, value DOUBLE, PRIMARY KEY (person))",
        );
        let text = joined(&left, &right, &["person".to_owned(), "ts".to_owned()]).unwrap();
        parses(&text);
        assert!(text.contains("blood_oxygen_value"));
        assert!(text.contains("coalesce(l.person, r.person)"));
    }

    #[test]
    fn what_contradicts_itself_yields_no_statements() {
        let facts = table(
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, PRIMARY KEY (host)) PARTITION BY HASH (host) \
             PARTITIONS 4",
        );
        let mut definition = Definition::of(&facts).unwrap();
        definition.remove("host");
        assert_eq!(definition.beside(), None);
        assert_eq!(Definition::of(&TableFacts::default()).map(|_| ()), None);
    }

    #[test]
    fn a_comment_says_what_old_rows_have_in_a_new_column() {
        let facts = table(
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, v STRING, PRIMARY KEY (host))",
        );
        let mut definition = Definition::of(&facts).unwrap();
        definition.retype("v", ColumnType::Float64, "CAST(v AS DOUBLE)".to_owned());
        let text = definition.beside().unwrap();
        parses(&text);
        assert!(text.ends_with("\n-- Column v of old rows: CAST(v AS DOUBLE)"), "{text}");
        // A name with a line break does not end the comment.
        let script = Script::beside("CREATE TABLE n (a INT PRIMARY KEY)", "a\nDROP TABLE t; --");
        let lines: Vec<&str> = script.sql.lines().collect();
        assert_eq!(lines.len(), 2, "{script:?}");
        assert!(lines[1].starts_with("-- The rows stay in \"a DROP TABLE t; --\""), "{script:?}");
        parses(&script.sql);
    }

    #[test]
    fn a_comment_names_the_copies_that_do_not_follow_a_new_table() {
        let mut facts = table(
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, v STRING, PRIMARY KEY (host))",
        );
        let rights = "The new table belongs to the role that creates it, and has no grants";
        let text = Definition::of(&facts).unwrap().beside().unwrap();
        assert!(text.contains(rights) && !text.contains("Materialized"), "{text}");
        facts.copies = vec!["t_by_v".to_owned(), "B\nDROP".to_owned()];
        let text = Definition::of(&facts).unwrap().beside().unwrap();
        parses(&text);
        let copies = "\n-- Materialized copies of the old rows, see CREATE MATERIALIZED COPY: t_by_v, \"B DROP\".";
        assert!(text.contains(rights) && text.ends_with(copies), "{text}");
        let mut other = facts.clone();
        "u".clone_into(&mut other.name);
        other.copies = vec!["u_by_v".to_owned()];
        let text = joined(&facts, &other, &["host".to_owned(), "ts".to_owned()]).unwrap();
        parses(&text);
        assert!(text.contains("COPY: t_by_v, \"B DROP\", u_by_v.\nINSERT INTO"), "{text}");
    }

    #[test]
    fn names_are_quoted() {
        let mut facts = table("CREATE TABLE t (ts TIMESTAMP TIME INDEX)");
        "My Table".clone_into(&mut facts.name);
        assert_eq!(
            alter(&facts, "RENAME TO my_table"),
            "ALTER TABLE public.\"My Table\" RENAME TO my_table;"
        );
        let text = set_index(&facts, "Group", "inverted", Some("skipping"));
        parses(&text);
        assert_eq!(text.lines().count(), 2);
        parses(&drop_index(&facts, "by x"));
    }
}
