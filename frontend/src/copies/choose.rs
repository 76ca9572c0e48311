//! The choice between a table and its copies: the one of which a scan reads the fewest partitions.

use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::id::TableId;

/// Copies that one statement may read in place of their sources: meta said, after the statement began, that they are in
/// step.
#[derive(Debug, Default)]
pub(crate) struct Readable(Vec<Arc<Table>>);

impl Readable {
    pub(crate) fn new(copies: Vec<Arc<Table>>) -> Self {
        Self(copies)
    }

    /// The copies of a table with the same columns; a copy with others belongs to another moment.
    pub(crate) fn of<'a>(&'a self, source: &'a Table) -> impl Iterator<Item = &'a Arc<Table>> {
        self.0.iter().filter(move |copy| fits(copy, source))
    }
}

/// True if a table is a copy of another one and has the same columns, so that one may be scanned for the other.
pub(crate) fn fits(copy: &Table, source: &Table) -> bool {
    copy.copy.as_ref().is_some_and(|state| state.source == source.id)
        && copy.schema.columns == source.schema.columns
}

/// The copy to read in place of a table of which a scan touches `source_touched` partitions: the one of which it touches
/// the fewest, if these are fewer. `copies` has each copy with the number of partitions that the scan would touch.
pub(crate) fn choose(
    source_touched: usize,
    copies: impl IntoIterator<Item = (TableId, usize)>,
) -> Option<TableId> {
    let fewest = copies.into_iter().min_by_key(|(_, touched)| *touched);
    fewest.filter(|(_, touched)| *touched < source_touched).map(|(copy, _)| copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_partitions_are_read_and_the_source_if_it_has_no_more() {
        let (a, b) = (TableId(1), TableId(2));
        assert_eq!(choose(8, [(a, 2), (b, 1)]), Some(b));
        assert_eq!(choose(8, [(a, 2), (b, 2)]), Some(a), "the first of equals");
        assert_eq!(choose(2, [(a, 2), (b, 5)]), None, "the source is as good");
        assert_eq!(choose(1, [(a, 0)]), Some(a));
        assert_eq!(choose(8, []), None);
    }
}
