//! Tables of the rows of a query.
//!
//! ```text
//! CREATE [UNLOGGED | TEMPORARY] TABLE .. AS query [WITH [NO] DATA]        (`create_table.rs` reads what precedes AS)
//! [WITH ..] SELECT .. INTO [UNLOGGED | TEMPORARY] [TABLE] table [FROM ..] ..
//! ```

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, SelectInto, SetExpr};
use partita_proto::schema::TableOptions;

use super::database::unlogged;
use super::shown_names::folded;
use super::statement::{CreateTable, CreateTableAs, Partitioning, Statement, TableName};
use super::tokens::Tokens;
use super::with_clause::writes;
use crate::error::{CATALOG, SqlError};

impl Tokens<'_> {
    /// Takes what follows AS in a CREATE TABLE. `columns` are names of the first columns of the query.
    pub(super) fn create_table_as(
        &mut self,
        table: CreateTable,
        columns: Vec<String>,
    ) -> Result<Statement, SqlError> {
        if self.at("execute") {
            return Err(self.unsupported("CREATE TABLE ... AS EXECUTE"));
        }
        let query = self.query()?;
        let mut with_data = true;
        if self.take(&["with"]) {
            with_data = !self.take(&["no"]);
            self.expect("data")?;
        }
        let (text, is_select_into) = (Arc::from(self.text), false);
        let create = CreateTableAs { text, table, columns, query, with_data, is_select_into };
        Ok(Statement::CreateTableAs(Box::new(create)))
    }

    /// Takes a query, which may store its rows INTO a new table.
    pub(super) fn select(&mut self) -> Result<Statement, SqlError> {
        let (position, offset) = (self.position(), self.offset());
        let mut query = self.parsed_query()?;
        if writes(&query) {
            return self.written(*query, position, offset);
        }
        let target = take_into(&mut query.body);
        let query = self.checked_query(query, position, offset)?;
        let Some(target) = target else { return Ok(Statement::Query(query)) };
        let located = |error: SqlError| error.with_position(position);
        let table = CreateTable {
            table: table_name(&target.name).map_err(located)?,
            if_not_exists: false,
            is_temporary: target.temporary,
            columns: Vec::new(),
            likes: Vec::new(),
            checks: Vec::new(),
            primary_key: None,
            time_index: None,
            partitioning: Partitioning::Range { columns: Vec::new() },
            cuts: None,
            uniform: None,
            schema_on_write: false,
            options: TableOptions::default(),
            notices: if target.unlogged { vec![unlogged()] } else { Vec::new() },
        };
        Ok(Statement::CreateTableAs(Box::new(CreateTableAs {
            text: Arc::from(self.text),
            table,
            columns: Vec::new(),
            query,
            with_data: true,
            is_select_into: true,
        })))
    }
}

/// Takes INTO out of the first SELECT of a query, which is where it may stand.
fn take_into(body: &mut SetExpr) -> Option<SelectInto> {
    let mut body = body;
    loop {
        match body {
            SetExpr::Select(select) => return select.into.take(),
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(query) => body = query.body.as_mut(),
            _ => return None,
        }
    }
}

/// The table that a name in sqlparser's form means.
fn table_name(name: &ObjectName) -> Result<TableName, SqlError> {
    let parts = name.0.iter().filter_map(ObjectNamePart::as_ident).map(folded);
    let mut parts: Vec<String> = parts.collect();
    let text = parts.join(".");
    let table = parts.pop().unwrap_or_default();
    let database = parts.pop();
    if parts.is_empty() || parts == [CATALOG] {
        return Ok(TableName { database, name: table });
    }
    Err(SqlError::unsupported(format!("a table of another catalog (\"{text}\")")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(sql: &str) -> CreateTableAs {
        match crate::parse(sql).unwrap().pop() {
            Some(Statement::CreateTableAs(create)) => *create,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn a_query_gives_a_table_its_columns_and_rows() {
        let create = created(
            "CREATE TABLE IF NOT EXISTS d.t (a, \"B\", PRIMARY KEY (a)) PARTITION BY HASH (a) \
             PARTITIONS 4 WITH (ttl = '1d') AS SELECT 1 AS x, 2 AS y WITH NO DATA",
        );
        assert_eq!(create.table.table.to_string(), "d.t");
        assert!(create.table.if_not_exists && !create.with_data && !create.is_select_into);
        assert_eq!(create.columns, ["a", "B"]);
        assert_eq!(create.table.primary_key, Some(vec!["a".to_owned()]));
        assert_eq!(&*create.query.text, "SELECT 1 AS x, 2 AS y");
        assert!(create.table.options.ttl.is_some());
        for sql in [
            "CREATE TABLE t AS TABLE u",
            "CREATE TABLE t AS (SELECT 1)",
            "CREATE TABLE t (a) AS VALUES (1), (2) WITH DATA",
            "CREATE TABLE t AS WITH w AS (SELECT 1) SELECT * FROM w GROUP BY a WITH DATA",
            "CREATE TABLE t AS SELECT 1 AS a UNION ALL TABLE u ORDER BY a LIMIT 3",
            "CREATE TABLE t (CHECK (a > 0)) AS SELECT a FROM u",
        ] {
            let create = created(sql);
            assert!(create.with_data && !create.table.if_not_exists, "{sql}");
            assert_eq!(create.table.table, TableName::bare("t"), "{sql}");
        }
    }

    #[test]
    fn into_names_the_table_of_the_rows_of_a_select() {
        for (sql, table) in [
            ("SELECT 1 AS a INTO t", "t"),
            ("SELECT a INTO TABLE d.\"T\" FROM u WHERE a > 1", "d.\"T\""),
            ("WITH w AS (SELECT 1) SELECT * INTO partita.d.t FROM w", "d.t"),
            ("(SELECT 1 INTO t) UNION SELECT 2 ORDER BY 1", "t"),
        ] {
            let create = created(sql);
            assert_eq!(create.table.table.to_string(), table, "{sql}");
            assert!(create.is_select_into && create.with_data, "{sql}");
            assert_eq!((&*create.text, &*create.query.text), (sql, sql));
            assert!(!format!("{:?}", create.query.statement).contains("SelectInto"), "{sql}");
        }
        let unlogged = created("SELECT 1 INTO UNLOGGED t").table.notices;
        assert_eq!(unlogged.len(), 1);
        assert!(created("SELECT 1 INTO TEMP t").table.is_temporary);
        assert!(created("CREATE LOCAL TEMP TABLE t AS SELECT 1").table.is_temporary);
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        for (sql, says) in [
            ("CREATE TABLE t AS EXECUTE q", "CREATE TABLE ... AS EXECUTE"),
            ("CREATE TABLE t (a INT) AS SELECT 1", "a column with a type"),
            ("CREATE TABLE t (LIKE u) AS SELECT 1", "LIKE in CREATE TABLE ... AS"),
            ("CREATE TABLE t (a, INVERTED INDEX (a)) AS SELECT 1", "an index"),
            ("CREATE TABLE t AS SELECT 1 INTO u", "SELECT ... INTO"),
            ("SELECT 1 INTO a.b.t", "another catalog"),
            ("SELECT 1 UNION SELECT 2 INTO t", "SELECT ... INTO"),
            ("SELECT * FROM (SELECT 1 INTO t) AS u", "SELECT ... INTO"),
            ("PREPARE q AS CREATE TABLE t AS SELECT 1", "PREPARE ... AS CREATE TABLE AS"),
            ("PREPARE q AS SELECT 1 INTO t", "PREPARE ... AS SELECT INTO"),
        ] {
            let error = crate::parse(sql).unwrap_err();
            assert_eq!(error.sqlstate, "0A000", "{sql}: {error:?}");
            assert!(error.message.contains(says), "{sql}: {error:?}");
        }
        for sql in [
            "CREATE TABLE t (a)",
            "CREATE TABLE t (a, b INT)",
            "CREATE TABLE t",
            "CREATE TABLE t AS",
            "CREATE TABLE t AS SELECT 1 WITH NO",
            "CREATE TABLE t AS SELECT 1 WITH DATA nonsense",
            "CREATE TABLE t AS nonsense",
        ] {
            assert_eq!(crate::parse(sql).unwrap_err().sqlstate, "42601", "{sql}");
        }
    }
}
