//! A table as the rules look at it: with its statements, and figures that several rules derive.

use std::collections::HashMap;

use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{
    ClusterFacts, ColumnFacts, DesignFacts, Filter, FilterClass, PartitionFacts, StatementShape,
    TableFacts,
};
use crate::thresholds::Thresholds;

/// One table, and all that its own rules may know; other tables are not among it.
pub(crate) struct Subject<'a> {
    pub(crate) table: &'a TableFacts,
    pub(crate) settings: &'a ClusterFacts,
    pub(crate) thresholds: &'a Thresholds,
    /// Statements that read the table.
    pub(crate) statements: Vec<&'a StatementShape>,
    qualified: String,
}

/// Statements by each name of a table that they read.
#[derive(Debug, Default)]
pub(crate) struct ByTable<'a>(HashMap<&'a str, Vec<&'a StatementShape>>);

impl<'a> ByTable<'a> {
    pub(crate) fn new(statements: &'a [StatementShape]) -> Self {
        let mut by_table: HashMap<&str, Vec<&StatementShape>> = HashMap::new();
        for statement in statements {
            for table in &statement.tables {
                by_table.entry(table.as_str()).or_default().push(statement);
            }
        }
        Self(by_table)
    }

    /// Statements that read a table, by its name with or without the database.
    pub(crate) fn of(&self, table: &TableFacts) -> Vec<&'a StatementShape> {
        let mut statements: Vec<&StatementShape> =
            self.0.get(qualified(table).as_str()).cloned().unwrap_or_default();
        if !table.database.is_empty()
            && let Some(unqualified) = self.0.get(table.name.as_str())
        {
            statements.extend(unqualified.iter().copied());
        }
        statements
    }
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        table: &'a TableFacts,
        settings: &'a ClusterFacts,
        thresholds: &'a Thresholds,
        statements: Vec<&'a StatementShape>,
    ) -> Self {
        Self { table, settings, thresholds, statements, qualified: qualified(table) }
    }

    /// The table as the object of a finding.
    pub(crate) fn object(&self) -> String {
        self.qualified.clone()
    }

    /// A column as the object of a finding.
    pub(crate) fn column_object(&self, column: &str) -> String {
        format!("{}.{column}", self.qualified)
    }

    /// True if a statement means the table by this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        name == self.qualified || name == self.table.name
    }

    /// A finding without DDL and effect.
    pub(crate) fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        object: String,
        evidence: serde_json::Value,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { rule, severity, object, evidence, advice: advice.into(), ddl: None, effect: None }
    }

    /// A column by its name.
    pub(crate) fn column(&self, name: &str) -> Option<&'a ColumnFacts> {
        self.table.columns.iter().find(|column| column.name == name)
    }

    /// Key columns, without the time index.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &'a ColumnFacts> {
        let key: &'a [String] = &self.table.key;
        let time = self.table.time_index.as_deref();
        let columns: &'a [ColumnFacts] = &self.table.columns;
        key.iter()
            .filter(move |name| Some(name.as_str()) != time)
            .filter_map(move |name| columns.iter().find(|column| column.name == *name))
    }

    /// Columns outside the key.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'a ColumnFacts> {
        self.table.columns.iter().filter(|column| column.is_field())
    }

    pub(crate) fn is_key(&self, column: &str) -> bool {
        self.table.key.iter().any(|name| name == column)
    }

    /// The most significant column of the key.
    pub(crate) fn first_key(&self) -> Option<&'a ColumnFacts> {
        self.column(self.table.key.first()?)
    }

    /// Calls of the statements that read the table.
    pub(crate) fn calls(&self) -> u64 {
        self.statements.iter().map(|statement| statement.calls).sum()
    }

    /// Filters of a statement on the table.
    pub(crate) fn filters<'s>(
        &'s self,
        statement: &'s StatementShape,
    ) -> impl Iterator<Item = &'s Filter> {
        statement.filters.iter().filter(move |filter| self.is_named(&filter.table))
    }

    /// True if a statement filters a column by one of these classes.
    pub(crate) fn is_filtered(
        &self,
        statement: &StatementShape,
        column: &str,
        classes: &[FilterClass],
    ) -> bool {
        self.filters(statement)
            .any(|filter| filter.column == column && classes.contains(&filter.class))
    }

    /// Calls that filter a column by one of these classes.
    pub(crate) fn filtering_calls(&self, column: &str, classes: &[FilterClass]) -> u64 {
        let statements = self.statements.iter();
        let filtering = statements.filter(|statement| self.is_filtered(statement, column, classes));
        filtering.map(|statement| statement.calls).sum()
    }

    /// True if a statement reads or sorts by a column.
    pub(crate) fn reads(&self, statement: &StatementShape, column: &str) -> bool {
        statement.columns.iter().any(|(table, name)| self.is_named(table) && name == column)
    }

    /// Mean size of a row, in bytes.
    pub(crate) fn row_bytes(&self) -> Option<f64> {
        let rows = self.table.rows.filter(|rows| *rows > 0)?;
        let sizes: Option<u64> = self.table.columns.iter().map(|column| column.bytes).sum();
        let total = sizes.or(self.table.bytes)?;
        Some(total as f64 / rows as f64)
    }

    /// Size of the rows that are kept together by the leading key columns, in bytes.
    pub(crate) fn wide_row_bytes(&self) -> Option<f64> {
        Some(self.table.versions_per_key? * self.row_bytes()?)
    }

    /// True for a column of which enough values are known to say that they hardly repeat.
    pub(crate) fn differs_in_each_row(&self, column: &ColumnFacts) -> bool {
        column.values.is_some_and(|values| values as f64 >= self.thresholds.id_values)
            && column.distinct_share().is_some_and(|share| share > self.thresholds.changing_share)
    }

    /// The key column without the time index that has the most distinct values, but not this one.
    pub(crate) fn most_varied_tag(&self, except: &str) -> Option<&'a ColumnFacts> {
        let tags = self.tags().filter(|tag| tag.name != except && !is_time_type(tag));
        tags.max_by_key(|tag| tag.distinct.unwrap_or_default())
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> u64 {
        self.table.partitions.len() as u64
    }

    /// The busiest partition.
    pub(crate) fn busiest(&self) -> Option<&'a PartitionFacts> {
        let busy = |partition: &PartitionFacts| partition.busy.unwrap_or_default();
        self.table.partitions.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)))
    }
}

/// `database.table`, or the name alone where the database is not known.
pub(crate) fn qualified(table: &TableFacts) -> String {
    if table.database.is_empty() {
        table.name.clone()
    } else {
        format!("{}.{}", table.database, table.name)
    }
}

/// True for a column of times or dates.
pub(crate) fn is_time_type(column: &ColumnFacts) -> bool {
    column.column_type.starts_with("TIMESTAMP") || column.column_type == "DATE"
}

/// True if a name means a table, with or without the database.
pub(crate) fn is_name_of(table: &TableFacts, name: &str) -> bool {
    let unqualified =
        name.strip_prefix(table.database.as_str()).and_then(|rest| rest.strip_prefix('.'));
    name == table.name || unqualified == Some(table.name.as_str())
}

/// Part divided by whole; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A figure as it is printed in evidence: with three digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Finding with the best design of the table's key as remedy. The finding stays as it is if no other design is better
/// than today's, or if it is that of a materialized copy, which cannot follow it.
pub(crate) fn with_design(subject: &Subject<'_>, finding: Finding) -> Finding {
    let can_follow = |design: &&DesignFacts| design.sql.is_some() || !subject.table.is_copy;
    let Some(design) = subject.table.better_design().filter(can_follow) else { return finding };
    let today = subject.table.designs.iter().find(|design| design.is_today);
    let load = if design.carries { "carries the load" } else { "spreads the load best" };
    let advice = format!("{}; by the sampled rows, {} {load}", finding.advice, design.clauses);
    let text = match today {
        Some(today) => format!(
            "writes as on {:.1} equal partitions in place of {:.1}",
            design.n_eff, today.n_eff
        ),
        None => format!("writes as on {:.1} equal partitions", design.n_eff),
    };
    let visits = today.filter(|today| today.partitions_per_read > 0.0);
    let effect = Effect {
        partitions: visits
            .map(|today| rounded(design.partitions_per_read / today.partitions_per_read)),
        text,
        ..Effect::default()
    };
    let ddl = design.sql.clone().or(finding.ddl);
    Finding { advice, ddl, effect: Some(effect), ..finding }
}

/// Finding with a remedy by statements, and the effect in words.
pub(crate) fn with_ddl(finding: Finding, ddl: Option<String>, effect: Option<Effect>) -> Finding {
    Finding { ddl, effect, ..finding }
}
