//! The heatmap of one table's load, on request.
//!
//! Invariants: the drawing does not hold the keeper's lock; keys are shown as SQL values, as in all system tables.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use partita_heatmap::{History, Key, Metric, PartitionLoad, Report, Shares, View};
use partita_proto::blocking;
use partita_proto::error::Error;
use partita_proto::key::KeyCodec;
use partita_proto::load::HeatmapRequest;

use super::key_text::key_text;
use crate::catalog::TableRecord;
use crate::core::Core;
use crate::transition::shown_name;

impl Core {
    /// The requested heatmap, as JSON.
    ///
    /// # Errors
    /// If the table or the metric does not exist.
    pub(crate) async fn picture(&self, request: HeatmapRequest) -> Result<Bytes, Error> {
        let metric = Metric::named(&request.metric).ok_or_else(|| {
            Error::InvalidInput(format!("there is no metric \"{}\"", request.metric))
        })?;
        // A table without load still shows its partitions.
        let until_s = request.until_s.unwrap_or(self.now_ms() / 1_000);
        let (name, codec) = self.keyed(&request)?;
        let picture = self.load.lock().pictures.of(request.table);
        let (history, capacity) = match picture {
            // Operations of both kinds have no common capacity.
            Some((history, capacity)) => (history, capacity.get(metric.index()).copied().flatten()),
            None => (Arc::new(Mutex::new(self.idle(&request, &codec, until_s))), None),
        };
        let limit = |most: u32| usize::try_from(most).unwrap_or(usize::MAX);
        let end = request.to_key.as_deref().map(Key::from);
        let view = View {
            table: name,
            metric,
            from: until_s.saturating_sub(request.since_s.max(1)),
            to: until_s,
            columns_max: limit(request.columns),
            rows_max: limit(request.rows),
            keys: (!request.from_key.is_empty() || end.is_some())
                .then(|| (Key::from(request.from_key.as_ref()), end)),
            capacity,
        };
        // Drawing may take long: off the asynchronous threads, and without the keeper's lock.
        let drawn = blocking::spawn(move || {
            let heatmap = history.lock().view(&view, |key| key_text(&codec, key));
            serde_json::to_vec(&heatmap)
        });
        let failed = |error: &dyn std::fmt::Display| {
            Error::Internal(format!("drawing the heatmap failed: {error}"))
        };
        let json = drawn.await.map_err(|error| failed(&error))?;
        json.map(Bytes::from).map_err(|error| failed(&error))
    }

    fn keyed(&self, request: &HeatmapRequest) -> Result<(String, KeyCodec), Error> {
        let state = self.machine.state();
        let missing =
            || Error::NotFound { kind: "table", name: format!("number {}", request.table) };
        let table = state.table(request.table).filter(|table| table.is_visible());
        let table: &TableRecord = table.ok_or_else(missing)?;
        let database = state.database(table.database).map_or("", |database| &database.name);
        Ok((shown_name(database, &table.name), KeyCodec::new(&table.schema, &table.placement)?))
    }

    /// A history without load that shows where the partitions of a table are.
    fn idle(&self, request: &HeatmapRequest, codec: &KeyCodec, until_s: u64) -> History {
        let state = self.machine.state();
        let ids = state.table(request.table).map_or(&[][..], |table| &table.partitions);
        let keeper = self.load.lock();
        let partition = |id| {
            let range = codec.range(&state.partition(id)?.range).ok()?;
            Some(PartitionLoad {
                id: id.0,
                leader: keeper.leader(id).map(|node| node.0),
                start: Key::from(range.start.as_ref()),
                end: range.end.as_deref().map(Key::from),
                rates: [0.0; 4],
                writes: Shares::default(),
                reads: Shares::default(),
            })
        };
        let partitions = ids.iter().copied().filter_map(partition).collect();
        let mut history = History::default();
        history.push(&Report { from: until_s.saturating_sub(1), seconds: 1, partitions });
        history
    }
}
