//! Removes the cells of column families that were dropped, and frees the names of these.
//!
//! ```text
//!   families of the newest schema ── scan the cells of a dropped one ──▶ deletes, if the schema is the same ──▶ meta: name is free
//!          ▲                                                                     │
//!          └──────────────── again, when a partition refused ────────────────────┘
//! ```
//!
//! Meta gives the name to no other family before (`proto/src/wide/family.rs`). A removal that comes late cannot take the
//! cells of that one along: each delete carries the version of the schema in which the family was dropped, and partitions
//! refuse it under a later version. So removals may be interrupted, repeated, and run at the same time.

use std::sync::Arc;

use arrow::datatypes::Schema;
use futures::StreamExt;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::domain::{Domain, Domains};
use partita_proto::schema::Column;
use partita_proto::service::{Ddl, ReadFrom, ScanRequest, TableChange, WriteKind};
use partita_proto::value::Value;
use partita_proto::wide::{FamilyChange, KEY_COLUMNS};
use tokio::time::Instant;

use super::read::is_stale;
use super::{CONTENDED_MAX, contended};
use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::ingest::plan::{Completed, TablePlan};
use crate::reads::Reads;

/// Position of the family among the columns of a wide table.
const FAMILY: usize = 1;

/// Result of one pass over the cells of a family.
struct Removal {
    /// Cells that were deleted.
    cells: u64,
    /// True if no cell is left; false if a partition refused deletes.
    is_complete: bool,
}

impl Frontend {
    /// Removes the cells of the families that were dropped from a table, and frees the names of these. Does nothing if there
    /// are none. `permit` is the proof that the client owns the table.
    ///
    /// # Errors
    /// Fails if cells could not be removed in time; another call goes on with the rest.
    pub async fn clear_dropped(&self, permit: &Permit, table: &Arc<Table>) -> Result<(), SqlError> {
        let mut deadline = Instant::now() + CONTENDED_MAX;
        loop {
            let version = self.view().catalog().version;
            let (newest, plan) = self.table_plan(table)?;
            let wide = newest.schema.options.wide.as_ref();
            let Some(family) = wide.and_then(|wide| wide.dropped.first()) else { return Ok(()) };
            let removal = self.remove_cells(permit, (&newest, &plan), &family.name);
            let Removal { cells, is_complete } = Box::pin(removal).await?;
            let mut has_progress = cells > 0;
            if is_complete {
                let cleared = FamilyChange::Cleared(family.clone());
                let change = Ddl::AlterTable {
                    database: newest.database.clone(),
                    name: newest.name.clone(),
                    change: TableChange::ChangeFamilies(vec![cleared]),
                };
                has_progress |= Box::pin(self.change(permit, change)).await?;
            }
            if has_progress {
                deadline = Instant::now() + CONTENDED_MAX;
            } else if Instant::now() >= deadline {
                return Err(contended(&newest));
            } else {
                // Another request has changed the table.
                self.view().newer_catalog(version, deadline).await;
            }
        }
    }

    /// Deletes the cells of a family that a table does not have, as long as it has the same schema.
    async fn remove_cells(
        &self,
        permit: &Permit,
        (table, plan): (&Arc<Table>, &Arc<TablePlan>),
        family: &str,
    ) -> Result<Removal, SqlError> {
        let schema = &table.schema;
        let mut domains = Domains::default();
        if let Some(column) = schema.columns.get(FAMILY) {
            let point = Domain::point(Value::String(family.to_owned()));
            domains.restrict(&column.storage_name, point);
        }
        let fields = schema.columns.iter().take(KEY_COLUMNS).map(Column::storage_field);
        let columns = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let reads = Arc::new(Reads::new(schema.version, usize::MAX));
        let mut cells = 0;
        for route in table.partitions.routes() {
            let request = ScanRequest {
                partition: route.partition,
                epoch: route.epoch,
                columns: Arc::clone(&columns),
                domains: domains.clone(),
                limit: None,
                parallelism: 1,
                newest_only: false,
                probes: Vec::new(),
                read_from: ReadFrom::Leader,
                first_by_time: None,
                order: None,
                for_update: true,
                uncollected: true,
            };
            let reply = match self.scan_leader(route, &request).await {
                Err(error) if is_stale(&error) => return Ok(Removal { cells, is_complete: false }),
                reply => reply?,
            };
            reads.note(route.partition, route.epoch, reply.index);
            for mut stream in reply.streams {
                while let Some(batch) = stream.next().await {
                    let keys = match batch {
                        Err(error) if is_stale(&error) => {
                            return Ok(Removal { cells, is_complete: false });
                        }
                        batch => batch?,
                    };
                    let count = keys.num_rows() as u64;
                    let write = (WriteKind::Delete, Completed::counted(keys));
                    let cause = || self.cause_without_statement(permit);
                    Box::pin(self.ingest_if(permit, (table, plan), write, &reads, cause)).await?;
                    if !reads.take_refused().is_empty() {
                        return Ok(Removal { cells, is_complete: false });
                    }
                    self.view().metrics().rows_deleted.add(count);
                    cells += count;
                }
            }
        }
        Ok(Removal { cells, is_complete: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::{FrontendOptions, SessionOptions};

    #[tokio::test]
    async fn a_late_removal_spares_the_cells_of_a_family_that_was_created_again() {
        let fake = Fake::new(1);
        let frontend = fake.frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let insert = "INSERT INTO w (row_key, family, qualifier, cell_ts, value) \
                      VALUES ('r', 'g', 'q', '1970-01-01 00:00:01', 'v')";
        for sql in ["CREATE TABLE w WIDE (ROW KEY STRING) FAMILIES (f, g)", insert] {
            session.execute(sql).await.unwrap();
        }
        let table = || Arc::clone(frontend.catalog().table("public", "w").unwrap());
        let permit = session.viewer().check(&[]).unwrap();
        session.execute("ALTER TABLE w SET ('families' = 'f')").await.unwrap();
        assert!(table().schema.options.wide.as_ref().unwrap().dropped.is_empty());
        let (former, plan) = frontend.table_plan(&table()).unwrap();
        let cells = || async {
            let removal = frontend.remove_cells(&permit, (&former, &plan), "g").await.unwrap();
            (removal.cells, removal.is_complete)
        };
        assert_eq!(cells().await, (0, true), "those of the dropped family are gone");
        for sql in ["ALTER TABLE w SET ('families' = 'f, g')", insert] {
            session.execute(sql).await.unwrap();
        }
        assert_eq!(cells().await, (0, false));
        let (newest, plan) = frontend.table_plan(&table()).unwrap();
        let removal = frontend.remove_cells(&permit, (&newest, &plan), "g").await.unwrap();
        assert_eq!(removal.cells, 1, "it was there still");
    }
}
