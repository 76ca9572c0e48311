//! ADVISE: findings about one table, the number of partitions for a rate, and boundaries of equal shares.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::StreamExt;
use partita_advice::{
    ColumnFacts, ForRate, Measurements, TableFacts, Thresholds, literal, partitions_for_rate,
};
use partita_proto::catalog::Table;
use partita_sql::identifier::quote;
use partita_sql::statement::{Advise, AdviseKind, Statement};

use super::executed::Executed;
use crate::advisor::measurements;
use crate::advisor::table::{findings, of_table, rows};
use crate::advisor::thresholds::refused;
use crate::copies::refused::check_stored;
use crate::error::SqlError;
use crate::output::Output;
use crate::privileges::sees_all;
use crate::session::Session;

/// Rows per second that one partition takes, where none has been busy enough to tell.
const ROWS_PER_SECOND: f64 = 50_000.0;
/// Busy share from which the speed of a partition is known.
const BUSY_MIN: f64 = 0.05;

impl Session {
    pub(super) async fn advise(&self, advise: &Advise) -> Result<Executed, SqlError> {
        let table = self.table(&advise.table)?;
        check_stored(&table)?;
        if !sees_all(self.viewer(), table.id) {
            let message = format!("permission denied for table {}", table.name);
            let detail = "advice is about all rows of a table";
            return Err(SqlError::new("42501", message).with_detail(detail));
        }
        let thresholds = thresholds(&advise.thresholds)?;
        let output = match &advise.kind {
            AdviseKind::Table => self.advise_table(&table, &thresholds).await?,
            AdviseKind::Partitions { rate } => partitions(&self.facts(&table).await?, *rate)?,
            AdviseKind::PartitionBy { column } => self.advise_boundaries(&table, column).await?,
        };
        Ok(output.into())
    }

    async fn advise_table(
        &self,
        table: &Arc<Table>,
        thresholds: &Thresholds,
    ) -> Result<Output, SqlError> {
        // Other tables are compared with it.
        let sources = self.frontend().sources();
        let dated = findings(sources, self.viewer(), &self.catalog(), thresholds).await;
        let columns: Vec<&str> =
            table.schema.columns.iter().map(|column| column.name.as_str()).collect();
        Ok(Output::batch(rows(of_table(dated, &table.database, &table.name, &columns))?))
    }

    async fn advise_boundaries(&self, table: &Arc<Table>, name: &str) -> Result<Output, SqlError> {
        let facts = self.facts(table).await?;
        let Some(column) = facts.0.columns.iter().find(|column| column.name == name) else {
            let message =
                format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new("42703", message));
        };
        let values = self.texts(&shares_sql(table, name, wanted(&facts))).await?;
        boundaries(&facts.0, column, &values)
    }

    /// The texts in the only column of a query's rows; NULLs are left out.
    async fn texts(&self, sql: &str) -> Result<Vec<String>, SqlError> {
        let Some(Statement::Query(query)) = partita_sql::parse(sql)?.pop() else {
            return Err(SqlError::internal("the query of ADVISE is no query"));
        };
        let Output::Rows { mut stream, .. } = Box::pin(self.query(&query)).await?.output else {
            return Err(SqlError::internal("the query of ADVISE has no rows"));
        };
        let mut texts = Vec::new();
        while let Some(batch) = stream.next().await {
            for column in batch?.columns() {
                let column = cast(column, &DataType::Utf8View)
                    .map_err(|error| SqlError::internal(error.to_string()))?;
                texts.extend(column.as_string_view().iter().flatten().map(str::to_owned));
            }
        }
        Ok(texts)
    }

    /// Facts of a table, with the number of nodes.
    async fn facts(&self, table: &Arc<Table>) -> Result<(TableFacts, Option<u64>), SqlError> {
        let sources = self.frontend().sources();
        let Measurements { tables, settings, .. } =
            measurements(sources, self.viewer(), &self.catalog()).await;
        let is_meant =
            |facts: &TableFacts| facts.database == table.database && facts.name == table.name;
        let facts = tables.into_iter().find(is_meant);
        // Dropped in the meantime.
        let facts = facts.ok_or_else(|| SqlError::undefined_table(&table.name))?;
        Ok((facts, settings.nodes))
    }
}

fn thresholds(settings: &[(String, f64)]) -> Result<Thresholds, SqlError> {
    let mut thresholds = Thresholds::default();
    for (name, value) in settings {
        thresholds.set(name, *value).map_err(refused)?;
    }
    Ok(thresholds)
}

fn name_of(facts: &TableFacts) -> String {
    format!("{}.{}", quote(&facts.database), quote(&facts.name))
}

/// Rows per second that a partition of the table takes: those of the busiest one, if all of its time were used.
fn speed(facts: &TableFacts) -> Option<f64> {
    let speeds = facts.partitions.iter().filter_map(|partition| {
        let (writes, busy) = (partition.writes_per_s?, partition.busy?);
        (busy >= BUSY_MIN && writes > 0.0).then(|| writes / busy)
    });
    speeds.max_by(f64::total_cmp)
}

/// The number of partitions for a rate.
fn partitions((facts, _): &(TableFacts, Option<u64>), rate: f64) -> Result<Output, SqlError> {
    let measured = speed(facts);
    let rows_per_second = measured.unwrap_or(ROWS_PER_SECOND);
    let ForRate { partitions: number, reached } = partitions_for_rate(facts, rate, rows_per_second);
    let source = if measured.is_some() { "measured" } else { "assumed" };
    let ddl = format!(
        "ALTER TABLE {} SET ('auto_partitioning_min_partitions_count' = {number});",
        name_of(facts)
    );
    let note = reached.map(|reached| {
        let subject = if number == facts.max_partitions { "the table" } else { "a table" };
        format!(
            "{subject} may have {number} partitions at most, which take {reached:.0} rows per second"
        )
    });
    let cells = [number.to_string(), format!("{rows_per_second:.0}"), source.to_owned(), ddl];
    let row = cells.into_iter().map(Some).chain([note]).collect();
    Output::text(&["partitions", "rows_per_second_of_a_partition", "source", "ddl", "note"], &[row])
}

/// Number of partitions that a table is divided into: as many as there are, as its bytes need, and one for each node.
fn wanted((facts, nodes): &(TableFacts, Option<u64>)) -> u64 {
    let size = (facts.partition_size_mb << 20).max(1);
    let by_size = facts.bytes.unwrap_or_default().div_ceil(size);
    by_size.max(facts.partitions.len() as u64).max(nodes.unwrap_or(1)).max(2)
}

/// The query of the values at which equal shares of a table's rows begin, ascending; the first one is the least value. Rows of
/// one value stay together.
fn shares_sql(table: &Table, column: &str, partitions: u64) -> String {
    let source = format!("{}.{}", quote(&table.database), quote(&table.name));
    let column = quote(column);
    format!(
        "SELECT CAST(bound AS STRING) FROM (SELECT part, min(v) AS bound FROM (SELECT v, \
         floor(CAST(upto - c AS DOUBLE) * {partitions} / CAST(total AS DOUBLE)) AS part FROM (SELECT v, c, \
         sum(c) OVER (ORDER BY v) AS upto, sum(c) OVER () AS total FROM (SELECT {column} AS v, count(*) AS c \
         FROM {source} WHERE {column} IS NOT NULL GROUP BY {column}) AS counted) AS summed) AS parted \
         GROUP BY part) AS shares ORDER BY shares.bound"
    )
}

/// Boundaries between which the rows are spread equally by a column, from the values at which the shares begin.
fn boundaries(
    facts: &TableFacts,
    column: &ColumnFacts,
    values: &[String],
) -> Result<Output, SqlError> {
    let Some((_, values)) = values.split_first() else {
        let (column, table) = (&column.name, &facts.name);
        let message = format!("column \"{column}\" of relation \"{table}\" has no values");
        return Err(SqlError::new("55000", message));
    };
    let literals: Vec<String> = values.iter().map(|value| literal(column, value)).collect();
    let cuts: Vec<String> = literals.iter().map(|literal| format!("({literal})")).collect();
    // Only the key's order can be cut.
    let is_first = facts.key.first().is_some_and(|first| *first == column.name);
    let is_range = facts.placement == partita_advice::Placed::Range;
    let cuts = cuts.join(", ");
    let ddl = match (is_first, is_range) {
        _ if literals.is_empty() => None,
        (true, true) => Some(format!("ALTER TABLE {} SPLIT AT ({cuts});", name_of(facts))),
        (true, false) if facts.append_mode => {
            let (table, column) = (name_of(facts), quote(&column.name));
            Some(format!("ALTER TABLE {table} PARTITION BY RANGE ({column}) SPLIT AT ({cuts});"))
        }
        _ => None,
    };
    let partitions = (literals.len() + 1).to_string();
    let row = vec![Some(partitions), Some(literals.join(", ")), ddl];
    Output::text(&["partitions", "boundaries", "ddl"], &[row])
}

#[cfg(test)]
mod tests {
    use partita_advice::PartitionFacts;

    use super::*;

    fn facts() -> (TableFacts, Option<u64>) {
        let column = ColumnFacts {
            name: "userid".to_owned(),
            column_type: "BIGINT".to_owned(),
            ..ColumnFacts::default()
        };
        let table = TableFacts {
            database: "public".to_owned(),
            name: "events".to_owned(),
            columns: vec![column],
            key: vec!["userid".to_owned(), "ts".to_owned()],
            partitions: vec![PartitionFacts::default(); 4],
            partition_size_mb: 512,
            ..TableFacts::default()
        };
        (table, Some(3))
    }

    /// The only row of an output.
    async fn cells(output: Output) -> Vec<Option<String>> {
        let Output::Rows { mut stream, .. } = output else { panic!("no rows") };
        let batch = stream.next().await.unwrap().unwrap();
        let cell = |column: &arrow::array::ArrayRef| {
            column.as_string_view().iter().next().unwrap().map(str::to_owned)
        };
        batch.columns().iter().map(cell).collect()
    }

    #[tokio::test]
    async fn partitions_follow_from_the_speed_of_the_busiest() {
        let mut known = facts();
        let assumed = cells(partitions(&known, 100_000.0).unwrap()).await;
        assert_eq!(assumed[0].as_deref(), Some("4"));
        assert_eq!(assumed[2].as_deref(), Some("assumed"));
        known.0.partitions[1].busy = Some(0.5);
        known.0.partitions[1].writes_per_s = Some(1_000.0);
        let measured = cells(partitions(&known, 100_000.0).unwrap()).await;
        assert_eq!(measured[0].as_deref(), Some("100"));
        assert_eq!(measured[1].as_deref(), Some("2000"));
        assert!(partita_sql::parse(measured[3].as_deref().unwrap()).is_ok());
        assert_eq!((&assumed[4], &measured[4]), (&None, &None));
    }

    #[tokio::test]
    async fn a_rate_that_the_limits_of_the_table_do_not_allow_is_told() {
        let mut limited = facts();
        for (most, number, note) in [
            (
                10,
                "10",
                "the table may have 10 partitions at most, which take 250000 rows per second",
            ),
            (
                0,
                "4096",
                "a table may have 4096 partitions at most, which take 102400000 rows per second",
            ),
        ] {
            limited.0.max_partitions = most;
            let told = cells(partitions(&limited, 1e9).unwrap()).await;
            assert_eq!(told[0].as_deref(), Some(number));
            assert_eq!(told[4].as_deref(), Some(note));
        }
    }

    #[tokio::test]
    async fn boundaries_become_splits_of_the_first_key_column() {
        let (mut facts, _) = facts();
        let column = facts.columns[0].clone();
        let values =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let texts = values(&["1", "8", "16", "24"]);
        let shown = cells(boundaries(&facts, &column, &texts).unwrap()).await;
        assert_eq!(shown[..2], [Some("4".to_owned()), Some("8, 16, 24".to_owned())]);
        let ddl = shown[2].clone().unwrap();
        assert_eq!(ddl, "ALTER TABLE public.events SPLIT AT ((8), (16), (24));");
        assert!(partita_sql::parse(&ddl).is_ok());
        // One value cannot be divided, and other orders than the key's are not cut.
        let shown = cells(boundaries(&facts, &column, &texts[..1]).unwrap()).await;
        assert_eq!((shown[0].as_deref(), &shown[2]), (Some("1"), &None));
        facts.key.reverse();
        assert_eq!(cells(boundaries(&facts, &column, &texts).unwrap()).await[2], None);
        let error = boundaries(&facts, &column, &[]).err().unwrap();
        assert!(error.to_string().contains("has no values"));
    }

    #[test]
    fn the_number_of_partitions_is_the_largest_that_is_needed() {
        let (mut facts, nodes) = facts();
        assert_eq!(wanted(&(facts.clone(), nodes)), 4);
        facts.bytes = Some(10 << 30);
        assert_eq!(wanted(&(facts.clone(), nodes)), 20);
        facts.partitions.clear();
        facts.bytes = None;
        assert_eq!((wanted(&(facts.clone(), nodes)), wanted(&(facts, None))), (3, 2));
    }

    #[test]
    fn unknown_thresholds_are_refused() {
        assert!(thresholds(&[("calls".to_owned(), 5.0)]).is_ok());
        let error = thresholds(&[("apples".to_owned(), 5.0)]).unwrap_err();
        assert!(error.to_string().contains("apples"));
    }
}
