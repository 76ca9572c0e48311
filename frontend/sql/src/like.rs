//! LIKE in CREATE TABLE: the columns of another table, with some of their properties.
//!
//! ```text
//! CREATE TABLE .. (LIKE table [{INCLUDING | EXCLUDING} property ..], ..) ..
//! CREATE TABLE .. LIKE table
//! ```
//!
//! As in PostgreSQL, the first form copies names, types and NOT NULL, and each property that is INCLUDED. The second, of
//! other databases, copies what SHOW CREATE TABLE prints. Neither copies rows, and the tables have nothing to do with each
//! other afterwards; only a default that is `nextval` names the same sequence.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::schema::Column;
use partita_proto::sequence::{Identity, SequenceOptions};

use super::parser;
use super::sequence_statement::{ColumnCounter, SequenceClauses};
use super::show::{create_table_sql, create_table_sql_unplaced};
use super::statement::{
    CheckDefinition, ColumnDefinition, Copied, CreateTable, LikeProperty, LikeTable, Statement,
};
use super::tokens::Tokens;
use crate::error::SqlError;

/// A table that another one is to be like.
pub struct LikeSource {
    /// The table or view.
    pub table: Arc<Table>,
    /// True if the client may know the boundaries of its partitions, which are keys of rows.
    pub is_placed: bool,
    /// Columns with identities: position, kind, and options of the sequence.
    pub identities: Vec<(usize, Identity, SequenceOptions)>,
}

impl Tokens<'_> {
    /// Takes what follows LIKE in the list of columns; `position` is the number of columns before it.
    pub(super) fn like_table(&mut self, position: usize) -> Result<LikeTable, SqlError> {
        let table = self.table_name()?;
        let mut properties = BTreeSet::new();
        loop {
            let is_included = self.take(&["including"]);
            if !is_included && !self.take(&["excluding"]) {
                break;
            }
            for property in self.like_properties()? {
                match is_included {
                    true => properties.insert(*property),
                    false => properties.remove(property),
                };
            }
        }
        Ok(LikeTable { table, position, copied: Copied::Properties(properties) })
    }

    /// Takes the name of a property; none for one that no table has.
    fn like_properties(&mut self) -> Result<&'static [LikeProperty], SqlError> {
        let unexpected = self.unexpected("ALL, DEFAULTS, CONSTRAINTS, INDEXES or another property");
        Ok(match self.name("a property")?.as_str() {
            "all" => &LikeProperty::ALL,
            "comments" => &[LikeProperty::Comments],
            "constraints" => &[LikeProperty::Constraints],
            "defaults" => &[LikeProperty::Defaults],
            "generated" => &[LikeProperty::Generated],
            "identity" => &[LikeProperty::Identity],
            "indexes" => &[LikeProperty::Indexes],
            "compression" | "statistics" | "storage" => &[],
            _ => return Err(unexpected),
        })
    }
}

impl CreateTable {
    /// The statement with the columns of the tables that it is like; `find` looks up a table.
    ///
    /// # Errors
    /// Errors of `find`, 42809 for a view whose keys and options are to be copied, 42P16 for two primary keys.
    pub fn with_likes(
        &self,
        find: impl Fn(&LikeTable) -> Result<LikeSource, SqlError>,
    ) -> Result<Self, SqlError> {
        let mut create = self.clone();
        let likes = std::mem::take(&mut create.likes);
        let mut added = 0;
        for like in likes {
            let source = find(&like)?;
            match &like.copied {
                Copied::Everything => create = create.like_all_of(&source)?,
                Copied::Properties(properties) => {
                    let columns = columns_of(&source, properties);
                    let position = like.position + added;
                    added += columns.len();
                    drop(create.columns.splice(position..position, columns));
                    create.copy_properties(&source.table, properties)?;
                }
            }
        }
        Ok(create)
    }

    /// A table of this name with the whole definition of another one.
    fn like_all_of(self, source: &LikeSource) -> Result<Self, SqlError> {
        let table = &source.table;
        if table.schema.view.is_some() || table.copy.is_some() {
            return Err(SqlError::new("42809", format!("\"{}\" is not a table", table.name)));
        }
        let text = match source.is_placed {
            true => create_table_sql(table),
            false => create_table_sql_unplaced(table),
        };
        let Some(Statement::CreateTable(like)) = parser::parse(&text)?.pop() else {
            return Err(SqlError::internal("the definition of a table makes no table"));
        };
        let like = *like;
        let mut create = Self {
            table: self.table,
            if_not_exists: self.if_not_exists,
            is_temporary: self.is_temporary,
            notices: self.notices,
            ..like
        };
        // Names of indexes are those of the other table.
        let indexes = create.columns.iter_mut().flat_map(|column| &mut column.indexes);
        indexes.for_each(|(name, _)| *name = None);
        Ok(create)
    }

    /// Copies the properties that are those of the table, not of a column.
    fn copy_properties(
        &mut self,
        table: &Table,
        properties: &BTreeSet<LikeProperty>,
    ) -> Result<(), SqlError> {
        let schema = table.schema.as_ref();
        if properties.contains(&LikeProperty::Constraints) {
            self.checks.extend(schema.checks.iter().map(|check| CheckDefinition {
                name: Some(check.name.clone()),
                column: None,
                expression: check.expression.clone(),
                not_valid: false,
            }));
        }
        if !properties.contains(&LikeProperty::Indexes) {
            return Ok(());
        }
        let time_index = schema.time_index();
        let mut key: Vec<_> = schema.key_columns().filter(|column| !column.is_hidden()).collect();
        // A time index at the end of the key is implied.
        key.pop_if(|last| Some(last.id) == time_index.map(|time| time.id));
        let key: Vec<String> = key.into_iter().map(|column| column.name.clone()).collect();
        if !key.is_empty() && self.primary_key.replace(key).is_some() {
            let message =
                format!("multiple primary keys for table \"{}\" are not allowed", self.table.name);
            return Err(SqlError::new("42P16", message));
        }
        if let Some(time) = time_index {
            let name = time.name.clone();
            if self.time_index.replace(name).is_some_and(|former| former != time.name) {
                return Err(SqlError::new("42P16", "a table can have only one TIME INDEX"));
            }
        }
        Ok(())
    }
}

/// The columns of a table, with some of their properties.
fn columns_of(source: &LikeSource, properties: &BTreeSet<LikeProperty>) -> Vec<ColumnDefinition> {
    let copies = |property: LikeProperty| properties.contains(&property);
    let definition = |(position, column): (usize, &Column)| {
        let mut identities = source.identities.iter();
        let identity = identities.find(|(of_column, ..)| *of_column == position);
        let counter = identity.filter(|_| copies(LikeProperty::Identity));
        // As in PostgreSQL, an identity is no default.
        let has_default = copies(LikeProperty::Defaults) && identity.is_none();
        let (generated, comment) = (column.generated.clone(), column.comment.clone());
        let indexes = column.indexes.iter().filter(|_| copies(LikeProperty::Indexes));
        ColumnDefinition {
            name: column.name.clone(),
            column_type: column.column_type,
            length: column.length,
            json: column.json,
            nullable: Some(column.nullable),
            default: column.default.clone().filter(|_| has_default),
            generated: generated.filter(|_| copies(LikeProperty::Generated)),
            counter: counter.map(|(_, kind, options)| counter_like(*kind, options)),
            indexes: indexes.map(|index| (None, index.options)).collect(),
            comment: comment.filter(|_| copies(LikeProperty::Comments)),
        }
    };
    source.table.schema.shown().enumerate().map(definition).collect()
}

/// A counter with the options of another one, which begins anew.
fn counter_like(kind: Identity, options: &SequenceOptions) -> ColumnCounter {
    let clauses = SequenceClauses {
        data_type: Some(options.data_type),
        increment: Some(options.increment),
        min_value: Some(Some(options.min_value)),
        max_value: Some(Some(options.max_value)),
        start: Some(options.start),
        cache: Some(options.cache),
        cycle: Some(options.cycle),
        ..SequenceClauses::default()
    };
    ColumnCounter { identity: Some(kind), clauses }
}

#[cfg(test)]
mod tests {
    use partita_proto::sequence::SequenceType;

    use super::*;
    use crate::tests::{create, made};

    const SOURCE: &str = "CREATE TABLE u (id BIGINT NOT NULL DEFAULT 7 COMMENT 'x', \
                          twice BIGINT GENERATED ALWAYS AS (id * 2) STORED, \
                          host VARCHAR(9) INVERTED INDEX, ts TIMESTAMP(3) TIME INDEX, \
                          PRIMARY KEY (id), CONSTRAINT c CHECK (id > 0)) \
                          PARTITION BY HASH (id) PARTITIONS 4 WITH (ttl = '1d')";

    fn like(sql: &str) -> Result<CreateTable, SqlError> {
        let options = SequenceOptions::new(SequenceType::Big);
        create(sql)?.with_likes(|_| {
            let identities = vec![(0, Identity::Always, options)];
            let is_plain = sql.contains("plain");
            Ok(LikeSource {
                table: Arc::new(made(SOURCE)),
                is_placed: true,
                identities: if is_plain { Vec::new() } else { identities },
            })
        })
    }

    #[test]
    fn columns_are_copied_with_the_properties_that_are_included() {
        let bare = like("CREATE TABLE t (a INT, LIKE u, b INT)").unwrap();
        let names: Vec<&str> = bare.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["a", "id", "twice", "host", "ts", "b"]);
        let id = &bare.columns[1];
        assert_eq!((id.nullable, &id.default, &id.comment), (Some(false), &None, &None));
        assert!(bare.columns[2].generated.is_none() && bare.columns[3].indexes.is_empty());
        assert_eq!(bare.columns[3].length.map(|length| length.characters), Some(9));
        assert!(bare.primary_key.is_none() && bare.time_index.is_none() && bare.checks.is_empty());
        let clause = like("CREATE TABLE plain (LIKE u INCLUDING ALL EXCLUDING COMMENTS)").unwrap();
        let id = &clause.columns[0];
        assert_eq!((id.default.as_deref(), &id.comment), (Some("7"), &None));
        assert!(clause.columns[1].generated.is_some() && clause.columns[2].indexes.len() == 1);
        assert_eq!(clause.primary_key, Some(vec!["id".to_owned()]));
        assert_eq!((clause.time_index.as_deref(), clause.checks.len()), (Some("ts"), 1));
        assert!(clause.options.ttl.is_none() && clause.to_new_table("public").is_ok());
    }

    #[test]
    fn an_identity_is_copied_with_a_counter_and_not_as_a_default() {
        let defaults =
            like("CREATE TABLE t (LIKE u INCLUDING DEFAULTS INCLUDING STORAGE)").unwrap();
        assert!(defaults.columns[0].default.is_none() && defaults.columns[0].counter.is_none());
        let identity = like("CREATE TABLE t (LIKE u INCLUDING IDENTITY)").unwrap();
        let counter = identity.columns[0].counter.as_ref().unwrap();
        assert_eq!(counter.identity, Some(Identity::Always));
        let (table, _) = identity.to_new_table("public").unwrap();
        assert_eq!((table.sequences.len(), table.sequences[0].name.as_str()), (1, "t_id_seq"));
    }

    #[test]
    fn a_table_like_another_one_has_its_whole_definition() {
        let clause = like("CREATE TABLE IF NOT EXISTS d.t LIKE u").unwrap();
        assert!(clause.if_not_exists && clause.likes.is_empty());
        let (table, _) = clause.to_new_table("public").unwrap();
        assert_eq!((table.database.as_str(), table.name.as_str()), ("d", "t"));
        let source = made(SOURCE);
        assert_eq!(table.schema.options, source.schema.options);
        assert_eq!((&table.placement, table.cuts.len()), (&source.placement, 3));
        assert_eq!(table.schema.key, source.schema.key);
        let index = &table.schema.columns[2].indexes[0];
        assert_eq!(index.name, "t_host_inverted");
    }

    #[test]
    fn two_primary_keys_are_refused() {
        let error =
            like("CREATE TABLE t (a INT PRIMARY KEY, LIKE u INCLUDING INDEXES)").unwrap_err();
        assert_eq!(error.sqlstate, "42P16");
    }
}
