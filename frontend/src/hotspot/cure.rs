//! The statements against one hot partition.

use partita_advice::designs::words::{is_curable, is_splittable};
use partita_advice::designs::{Found, Script, replay, split, statements};
use partita_load::{Choice, Class, Design, ReadShape};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::load::{LoadReport, PartitionLoad, Verdict};
use partita_proto::range::Bound;
use partita_proto::schema::HotspotRemedy;
use partita_sql::identifier::quote;

/// Maximum ratio of the busiest partition's share, and of the cost of reads, to those of the best design, up to which a
/// design that moves no row is preferred.
const NEARLY_AS_GOOD: (f64, f64) = (1.25, 2.0);
/// Advice for a table that is being re-keyed.
const UNDER_WAY: &str = "-- the table is being re-keyed, see sys.rekeyings";
/// Limits of the number of buckets that is advised without samples.
const BUCKETS: (u32, u32) = (16, 256);

/// The DDL against a hot partition; `None` if the partition is not hot, no DDL helps, or the table's options exclude
/// advice. With samples of the table in the report, the design is a replayed one.
pub(crate) fn advice(
    table: &Table,
    report: &LoadReport,
    load: &PartitionLoad,
    verdict: &Verdict,
    shapes: &[ReadShape],
) -> Option<String> {
    if table.schema.options.partitioning.hotspot_remedy == HotspotRemedy::Off || !load.is_hot() {
        return None;
    }
    if is_splittable(verdict.class) {
        return Some(split(table, load.partition, verdict.cut.as_ref().map(|(key, _)| key)));
    }
    if !is_curable(verdict.class) {
        return None;
    }
    let replayed = replay(table, report, shapes);
    let script = if replayed.choices.is_empty() {
        spread(table, verdict.class)
    } else {
        best(table, &replayed)
    };
    let name = quote(&table.name);
    Some(match script {
        Some(Script { sql, .. }) => {
            format!("{sql}\n-- EXPLAIN HOTSPOT {name} compares this with other designs")
        }
        None => format!("EXPLAIN HOTSPOT {name}"),
    })
}

/// Advice for a finding of a class about a table as it is in the catalog: one that is being re-keyed gets no other key
/// meanwhile.
pub(crate) fn unless_rekeyed(
    catalog: &Catalog,
    table: &Table,
    class: Class,
    advice: Option<String>,
) -> Option<String> {
    let is_rekeyed = is_curable(class) && catalog.rekeying_of(table.id).is_some();
    advice.map(|advice| if is_rekeyed { UNDER_WAY.to_owned() } else { advice })
}

/// Statements of the best design; of one that moves no row if it is nearly as good, or else of one that needs nothing to
/// be done by hand. `None` if today's design is the best one and needs no statement.
fn best(table: &Table, found: &Found) -> Option<Script> {
    let first = found.choices.first()?;
    if first.is_today {
        return script(table, first, found.cuts.first()?);
    }
    let is_as_good = |choice: &Choice| {
        choice.carries == first.carries
            && choice.max_share <= first.max_share * NEARLY_AS_GOOD.0
            && choice.read_cost <= first.read_cost * NEARLY_AS_GOOD.1
    };
    let candidates = || found.choices.iter().zip(&found.cuts);
    let first_that = |is_meant: fn(&Script) -> bool| {
        candidates()
            .filter(|(choice, _)| is_as_good(choice))
            .find_map(|(choice, cuts)| script(table, choice, cuts).filter(is_meant))
    };
    let light = first_that(|script| !script.moves_rows);
    light
        .or_else(|| first_that(|script| script.is_complete))
        .or_else(|| candidates().next().and_then(|(choice, cuts)| script(table, choice, cuts)))
}

/// Statements that lead to a design; `None` if today's design is meant and needs no further partitions, or carries no
/// more with them.
pub(super) fn script(table: &Table, choice: &Choice, cuts: &[Bound]) -> Option<Script> {
    let grows = choice.carries && choice.partitions > table.partitions.routes().len();
    let is_meant = !choice.is_today || (grows && matches!(choice.design, Design::Range { .. }));
    is_meant.then(|| statements(table, &choice.design, cuts)).flatten()
}

/// Statements without samples: a hash of the first key column that is not a time, or of the whole key if that has none
/// or one of its values is hot. A table that keeps rows together is hashed by no other columns than those that must
/// agree.
fn spread(table: &Table, class: Class) -> Option<Script> {
    let columns_max = table.schema.options.partitioning.cut_columns_max();
    let columns = table.schema.key.len();
    let key: Vec<_> = table.schema.key_columns().take(columns_max).collect();
    let of_whole_key = matches!(class, Class::HotKey | Class::Rotating);
    let first = key.iter().position(|column| !column.column_type.is_timestamp());
    let hashed = match first.filter(|_| !of_whole_key) {
        Some(position) => vec![position],
        None => (0..key.len()).collect(),
    };
    let (least, most) = BUCKETS;
    let partitions = u32::try_from(table.partitions.routes().len()).unwrap_or(u32::MAX);
    let buckets = partitions.clamp(least, most);
    let design = Design::Hash { of: hashed, buckets, order: (0..columns).collect() };
    statements(table, &design, &[])
}
