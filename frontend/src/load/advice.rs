//! The remedy for a finding about a partition, at any time after the finding.

use partita_load::{Class, ReadShape};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::load::LoadReport;

use crate::hotspot;
use crate::hotspot::class::{is_curable, remedy};

/// The remedy for a finding of a class about a partition of a table: statements if the report still has the finding or
/// they concern the whole table, otherwise words. `None` if no remedy is known or the table's options exclude it.
/// `shapes` are the reads of the table.
pub(crate) fn advice(
    catalog: &Catalog,
    table: &Table,
    report: &LoadReport,
    shapes: &[ReadShape],
    (partition, class): (Option<u64>, Class),
) -> Option<String> {
    let of_class = report.partitions.iter().filter(|load| load.table == table.id);
    let of_class = of_class.filter_map(|load| {
        Some((load, load.verdict.as_ref().filter(|verdict| verdict.class == class)?))
    });
    let whole_table = is_curable(class);
    let fitting = of_class.filter(|(load, _)| whole_table || Some(load.partition.0) == partition);
    let busiest = fitting.max_by(|(a, _), (b, _)| a.busiest().total_cmp(&b.busiest()));
    // A former table gets no new rows.
    let mut tables = catalog.tables.values().flat_map(|tables| tables.values());
    let busiest = busiest.filter(|_| !tables.any(|successor| successor.former == Some(table.id)));
    let statements =
        busiest.and_then(|(load, verdict)| hotspot::advice(table, report, load, verdict, shapes));
    let statements = hotspot::unless_rekeyed(catalog, table, class, statements);
    statements.or_else(|| remedy(class).map(str::to_owned))
}
