//! The queries behind the commands that list what the database has: `\d` and its like.
//!
//! ```text
//!   \dt public.ev*  ── Pattern ── conditions on names ── a query of pg_catalog
//! ```
//!
//! Patterns are psql's: `*` is any text, `?` any letter, a dot separates schema and name, and double quotes keep letters
//! as they are.

use super::quote_literal;

/// Listings of one query each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// `\d` without a name, and `\dt`, `\dv`, `\ds`, `\dm`: letters of `pg_class.relkind`.
    Relations(&'static [char]),
    /// `\di`
    Indexes,
    /// `\dn`
    Schemas,
    /// `\df`
    Functions,
    /// `\du`
    Roles,
    /// `\l`
    Databases,
}

/// Schemas that are listed only when a pattern asks for them.
const HIDDEN: &str = "NOT IN ('pg_catalog', 'information_schema', 'sys')";

impl Listing {
    /// Query of the listing.
    ///
    /// # Errors
    /// If the pattern has too many parts.
    pub(super) fn query(self, pattern: &str, is_verbose: bool) -> Result<String, String> {
        let pattern = Pattern::parse(pattern)?;
        Ok(match self {
            Self::Relations(kinds) => relations(kinds, &pattern, is_verbose),
            Self::Indexes => indexes(&pattern, is_verbose),
            Self::Schemas => schemas(&pattern, is_verbose),
            Self::Functions => functions(&pattern),
            Self::Roles => roles(&pattern),
            Self::Databases => databases(&pattern, is_verbose),
        })
    }

    /// Heading of the listing.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Relations(_) => "List of relations",
            Self::Indexes => "List of indexes",
            Self::Schemas => "List of schemas",
            Self::Functions => "List of functions",
            Self::Roles => "List of roles",
            Self::Databases => "List of databases",
        }
    }
}

/// Type of a relation in words.
const KIND: &str = "CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' \
                    WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index' END";

fn relations(kinds: &[char], pattern: &Pattern, is_verbose: bool) -> String {
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
    let mut columns = format!(
        "n.nspname AS \"Schema\", c.relname AS \"Name\", {KIND} AS \"Type\", \
         pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\""
    );
    if is_verbose {
        columns.push_str(
            ", pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(c.oid)) AS \"Size\", \
             pg_catalog.obj_description(c.oid, 'pg_class') AS \"Description\"",
        );
    }
    let mut conditions = vec![format!("c.relkind IN ({})", kinds.join(", "))];
    conditions.extend(pattern.conditions("n.nspname", "c.relname", Some("c.oid")));
    format!(
        "SELECT {columns} FROM pg_catalog.pg_class c \
         LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE {} ORDER BY 1, 2",
        conditions.join(" AND ")
    )
}

fn indexes(pattern: &Pattern, is_verbose: bool) -> String {
    let mut columns = format!(
        "n.nspname AS \"Schema\", c.relname AS \"Name\", {KIND} AS \"Type\", \
         pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\", c2.relname AS \"Table\""
    );
    if is_verbose {
        columns.push_str(", pg_catalog.pg_get_indexdef(c.oid) AS \"Definition\"");
    }
    let mut conditions = vec!["c.relkind IN ('i')".to_owned()];
    conditions.extend(pattern.conditions("n.nspname", "c.relname", Some("c.oid")));
    format!(
        "SELECT {columns} FROM pg_catalog.pg_class c \
         LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
         LEFT JOIN pg_catalog.pg_class c2 ON i.indrelid = c2.oid \
         WHERE {} ORDER BY 1, 2",
        conditions.join(" AND ")
    )
}

fn schemas(pattern: &Pattern, is_verbose: bool) -> String {
    let mut columns =
        "n.nspname AS \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) AS \"Owner\"".to_owned();
    if is_verbose {
        columns.push_str(", pg_catalog.obj_description(n.oid, 'pg_namespace') AS \"Description\"");
    }
    let condition = if pattern.name.is_none() {
        format!("n.nspname {HIDDEN} AND n.nspname !~ '^pg_'")
    } else {
        pattern.name_condition("n.nspname")
    };
    format!("SELECT {columns} FROM pg_catalog.pg_namespace n WHERE {condition} ORDER BY 1")
}

fn functions(pattern: &Pattern) -> String {
    let conditions = pattern.conditions("n.nspname", "p.proname", None).join(" AND ");
    format!(
        "SELECT n.nspname AS \"Schema\", p.proname AS \"Name\", \
         pg_catalog.pg_get_function_result(p.oid) AS \"Result data type\", \
         pg_catalog.pg_get_function_arguments(p.oid) AS \"Argument data types\" \
         FROM pg_catalog.pg_proc p \
         LEFT JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
         WHERE {conditions} ORDER BY 1, 2, 4"
    )
}

fn roles(pattern: &Pattern) -> String {
    let condition = pattern.name_condition("r.rolname");
    format!(
        "SELECT r.rolname AS \"Role name\", concat_ws(', ', \
         CASE WHEN r.rolsuper THEN 'Superuser' END, \
         CASE WHEN NOT r.rolinherit THEN 'No inheritance' END, \
         CASE WHEN r.rolcreaterole THEN 'Create role' END, \
         CASE WHEN r.rolcreatedb THEN 'Create DB' END, \
         CASE WHEN NOT r.rolcanlogin THEN 'Cannot login' END) AS \"Attributes\", \
         g.parents AS \"Member of\" FROM pg_catalog.pg_roles r LEFT JOIN \
         (SELECT m.member AS role_oid, string_agg(b.rolname, ', ') AS parents \
         FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles b ON m.roleid = b.oid \
         GROUP BY m.member) g ON g.role_oid = r.oid \
         WHERE r.rolname !~ '^pg_' AND {condition} ORDER BY 1"
    )
}

fn databases(pattern: &Pattern, is_verbose: bool) -> String {
    let size = if is_verbose {
        ", pg_catalog.pg_size_pretty(pg_catalog.pg_database_size(d.datname)) AS \"Size\""
    } else {
        ""
    };
    format!(
        "SELECT d.datname AS \"Name\", pg_catalog.pg_get_userbyid(d.datdba) AS \"Owner\", \
         pg_catalog.pg_encoding_to_char(d.encoding) AS \"Encoding\"{size} \
         FROM pg_catalog.pg_database d WHERE {} ORDER BY 1",
        pattern.name_condition("d.datname")
    )
}

/// Relation that a pattern of `\d NAME` has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) oid: String,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) kind: String,
}

impl Relation {
    /// Query of the relations that a pattern describes: their oids, schemas, names and kinds.
    ///
    /// # Errors
    /// If the pattern has too many parts.
    pub(super) fn query(pattern: &str) -> Result<String, String> {
        let pattern = Pattern::parse(pattern)?;
        let conditions = pattern.conditions("n.nspname", "c.relname", Some("c.oid")).join(" AND ");
        Ok(format!(
            "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c \
             LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE {conditions} ORDER BY 2, 3"
        ))
    }

    /// Relation of a row of the query.
    pub(super) fn of_row(row: &[Option<String>]) -> Option<Self> {
        let [Some(oid), Some(schema), Some(name), Some(kind)] = row else { return None };
        // It becomes part of queries.
        oid.parse::<u64>().ok()?;
        Some(Self {
            oid: oid.clone(),
            schema: schema.clone(),
            name: name.clone(),
            kind: kind.clone(),
        })
    }

    /// Heading of the description.
    pub(super) fn title(&self) -> String {
        let kind = match self.kind.as_str() {
            "r" | "p" => "Table",
            "v" => "View",
            "m" => "Materialized view",
            "S" => "Sequence",
            "i" => "Index",
            _ => "Relation",
        };
        format!("{kind} \"{}.{}\"", self.schema, self.name)
    }

    fn is_table(&self) -> bool {
        matches!(self.kind.as_str(), "r" | "p")
    }

    fn condition(&self) -> String {
        format!(
            "table_schema = {} AND table_name = {}",
            quote_literal(&self.schema),
            quote_literal(&self.name)
        )
    }

    /// Query of the rows that describe it: its columns, for sequences and indexes what they are.
    pub(super) fn columns(&self, is_verbose: bool) -> String {
        match self.kind.as_str() {
            "S" => format!(
                "SELECT data_type AS \"Type\", start_value AS \"Start\", minimum_value AS \"Minimum\", \
                 maximum_value AS \"Maximum\", increment AS \"Increment\", \
                 cycle_option AS \"Cycles?\" FROM information_schema.sequences \
                 WHERE sequence_schema = {} AND sequence_name = {}",
                quote_literal(&self.schema),
                quote_literal(&self.name)
            ),
            "i" => format!(
                "SELECT pg_catalog.pg_get_indexdef(i.indexrelid) AS \"Definition\" \
                 FROM pg_catalog.pg_index i WHERE i.indexrelid = {}",
                self.oid
            ),
            _ => {
                let more = if is_verbose { ", column_comment AS \"Description\"" } else { "" };
                let key = if self.is_table() { ", semantic_type AS \"Kind\"" } else { "" };
                format!(
                    "SELECT column_name AS \"Column\", lower(column_type) AS \"Type\", \
                     CASE is_nullable WHEN 'NO' THEN 'not null' ELSE '' END AS \"Nullable\", \
                     CASE WHEN is_identity = 'YES' \
                     THEN concat('generated ', lower(identity_generation), ' as identity') \
                     WHEN is_generated = 'ALWAYS' \
                     THEN concat('generated always as (', generation_expression, ')') \
                     ELSE coalesce(column_default, '') END AS \"Default\"{key}{more} \
                     FROM information_schema.columns WHERE {} ORDER BY ordinal_position",
                    self.condition()
                )
            }
        }
    }

    /// Queries of lines below the columns, with their headings.
    pub(super) fn footers(&self, is_verbose: bool) -> Vec<(&'static str, String)> {
        let mut footers = Vec::new();
        if self.is_table() {
            footers.push(("Indexes:", format!(
                "SELECT concat('\"', c.relname, '\"', \
                 CASE WHEN i.indisprimary THEN ' PRIMARY KEY' WHEN i.indisunique THEN ' UNIQUE' ELSE '' END, \
                 ', ', split_part(pg_catalog.pg_get_indexdef(i.indexrelid), ' USING ', 2)) \
                 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
                 WHERE i.indrelid = {} ORDER BY c.relname",
                self.oid
            )));
            footers.push((
                "Check constraints:",
                format!(
                    "SELECT concat('\"', r.conname, '\" ', pg_catalog.pg_get_constraintdef(r.oid)) \
                 FROM pg_catalog.pg_constraint r \
                 WHERE r.conrelid = {} AND r.contype = 'c' ORDER BY r.conname",
                    self.oid
                ),
            ));
        }
        let name = format!("{}.{}", super::quote(&self.schema), super::quote(&self.name));
        if is_verbose && self.is_table() && self.schema != "sys" {
            footers.push((
                "Partitions:",
                format!(
                    "SELECT count(*) FROM information_schema.partitions WHERE {}",
                    self.condition()
                ),
            ));
            footers.push(("Statement:", format!("SHOW CREATE TABLE {name}")));
        }
        if is_verbose && self.kind == "v" {
            footers.push(("View definition:", format!("SHOW CREATE VIEW {name}")));
        }
        footers
    }
}

/// Pattern of names, as regular expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pattern {
    schema: Option<String>,
    name: Option<String>,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = vec![String::new()];
        let mut is_quoted = false;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let Some(part) = parts.last_mut() else { break };
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    part.push('"');
                }
                '"' => is_quoted = !is_quoted,
                '.' if !is_quoted => parts.push(String::new()),
                '*' if !is_quoted => part.push_str(".*"),
                '?' if !is_quoted => part.push('.'),
                _ => {
                    if "\\^$.|?*+()[]{}".contains(letter) {
                        part.push('\\');
                    }
                    if is_quoted {
                        part.push(letter);
                    } else {
                        part.extend(letter.to_lowercase());
                    }
                }
            }
        }
        let mut parts = parts.into_iter().map(|part| Some(part).filter(|part| !part.is_empty()));
        match (parts.next().flatten(), parts.next(), parts.next()) {
            (name, None, _) => Ok(Self { schema: None, name }),
            (schema, Some(name), None) => Ok(Self { schema, name }),
            _ => Err(format!("improper qualified name (too many dotted names): {text}")),
        }
    }

    /// Conditions on schema and name. Without a schema only relations that need none are listed, and without a name only
    /// those of users.
    fn conditions(&self, schema: &str, name: &str, oid: Option<&str>) -> Vec<String> {
        let mut conditions = Vec::new();
        if let Some(expression) = &self.schema {
            conditions.push(matching(schema, expression));
        } else if let Some(oid) = oid {
            conditions.push(format!("pg_catalog.pg_table_is_visible({oid})"));
        }
        if self.schema.is_none() && self.name.is_none() {
            conditions.push(format!("{schema} {HIDDEN}"));
        }
        conditions.push(self.name_condition(name));
        conditions
    }

    fn name_condition(&self, column: &str) -> String {
        match &self.name {
            Some(expression) => matching(column, expression),
            None => "true".to_owned(),
        }
    }
}

fn matching(column: &str, expression: &str) -> String {
    format!("{column} ~ {}", quote_literal(&format!("^({expression})$")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> (Option<String>, Option<String>) {
        let pattern = Pattern::parse(text).unwrap();
        (pattern.schema, pattern.name)
    }

    #[test]
    fn patterns_are_those_of_psql() {
        let some = |text: &str| Some(text.to_owned());
        for (text, schema, name) in [
            ("", None, None),
            ("Events", None, some("events")),
            ("ev*", None, some("ev.*")),
            ("ev?nts", None, some("ev.nts")),
            ("public.ev*", some("public"), some("ev.*")),
            ("sys.", some("sys"), None),
            ("\"Odd.name*\"", None, some("Odd\\.name\\*")),
            ("\"a\"\"b\"", None, some("a\"b")),
            ("a+b$", None, some("a\\+b\\$")),
        ] {
            assert_eq!(pattern(text), (schema, name), "{text}");
        }
        assert!(Pattern::parse("a.b.c").is_err());
    }

    #[test]
    fn a_listing_without_a_pattern_has_what_users_made() {
        let query = Listing::Relations(&['r', 'v']).query("", false).unwrap();
        assert!(query.contains("c.relkind IN ('r', 'v')"), "{query}");
        assert!(query.contains("pg_table_is_visible(c.oid)"), "{query}");
        assert!(query.contains("n.nspname NOT IN ('pg_catalog'"), "{query}");
        let query = Listing::Relations(&['r']).query("sys.*", true).unwrap();
        assert!(query.contains("n.nspname ~ '^(sys)$' AND c.relname ~ '^(.*)$'"), "{query}");
        assert!(!query.contains("visible") && !query.contains("NOT IN"), "{query}");
        assert!(query.contains("pg_table_size"), "{query}");
    }

    #[test]
    fn quotes_of_a_pattern_do_not_leave_their_literal() {
        let query = Listing::Schemas.query("a'b", false).unwrap();
        assert!(query.contains("n.nspname ~ '^(a''b)$'"), "{query}");
    }

    #[test]
    fn a_relation_is_described_by_its_kind() {
        let row = |oid: &str, kind: &str| {
            let texts = [oid, "public", "it's", kind];
            Relation::of_row(&texts.map(|text| Some(text.to_owned())))
        };
        let table = row("7", "r").unwrap();
        assert_eq!(table.title(), "Table \"public.it's\"");
        assert!(table.columns(false).contains("table_name = 'it''s'"));
        assert!(!table.columns(false).contains("column_comment"));
        assert!(table.columns(true).contains("column_comment"));
        assert_eq!(table.footers(false).len(), 2);
        assert!(table.footers(true).iter().any(|(_, query)| query.contains("SHOW CREATE TABLE")));
        assert!(row("8", "v").unwrap().footers(false).is_empty());
        assert!(row("8", "S").unwrap().columns(false).contains("information_schema.sequences"));
        assert!(row("8; DROP", "r").is_none());
    }
}
