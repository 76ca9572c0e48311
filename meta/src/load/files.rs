//! Files of load: pictures, history, profiles and forecasts, so that a start does not begin with nothing.
//!
//! ```text
//!   load/table-17.load, history.load, forecasts.load:  "pldf" + CRC-32C of the rest u32 + version u32 + message
//! ```
//!
//! Each member of meta's group has its own files, of what it has heard itself. They are written every few minutes and at a
//! clean stop, and are never needed: a file that is missing, damaged or of a later version is left out with a warning.
//!
//! Invariants: a file is complete or not there under its name; files of tables that are gone are removed with the next
//! ones that are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use partita_heatmap::{History, METRICS};
use partita_load::{Decided, Forecast, SavedCell, TableId as LoadTable};
use partita_proto::id::TableId;
use partita_proto::load::LoadHistory;
use partita_proto::wire::{Wire, pb};
use prost::Message;
use tracing::warn;

const MAGIC: [u8; 4] = *b"pldf";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 12;
const SUFFIX: &str = "load";
/// File name of a file until it is complete.
const UNFINISHED: &str = "load.new";
const HISTORY: &str = "history";
const FORECASTS: &str = "forecasts";
const TABLE: &str = "table-";

/// The picture of one table.
#[derive(Clone, Debug)]
pub(crate) struct KeptPicture {
    pub(crate) table: TableId,
    /// Recent load, by which tables are compared.
    pub(crate) heat: f64,
    /// Measured capacity of one partition, by metric.
    pub(crate) capacity: [Option<f32>; METRICS],
    /// Number of the newest split or merge that is marked.
    pub(crate) marked: u64,
    pub(crate) history: Arc<Mutex<History>>,
}

/// All that is kept of load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) pictures: Vec<KeptPicture>,
    /// History of partitions by minutes, and by ten of them.
    pub(crate) minutes: Vec<LoadHistory>,
    pub(crate) tens: Vec<LoadHistory>,
    pub(crate) profiles: Vec<(LoadTable, Vec<SavedCell>)>,
    pub(crate) forecasts: Vec<Forecast>,
    /// Version of the catalog that all of this is about.
    pub(crate) version: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PictureForm {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(double, tag = "2")]
    heat: f64,
    /// By metric; NaN: not measured.
    #[prost(float, repeated, tag = "3")]
    capacity: Vec<f32>,
    #[prost(uint64, tag = "4")]
    marked: u64,
    #[prost(bytes = "vec", tag = "5")]
    history: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct HistoryForm {
    #[prost(message, repeated, tag = "1")]
    minutes: Vec<pb::LoadHistory>,
    #[prost(message, repeated, tag = "2")]
    tens: Vec<pb::LoadHistory>,
}

#[derive(Clone, PartialEq, Message)]
struct ForecastsForm {
    #[prost(message, repeated, tag = "1")]
    profiles: Vec<ProfileForm>,
    #[prost(message, repeated, tag = "2")]
    forecasts: Vec<ForecastForm>,
    #[prost(uint64, tag = "3")]
    version: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ProfileForm {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(message, repeated, tag = "2")]
    cells: Vec<CellForm>,
}

#[derive(Clone, PartialEq, Message)]
struct CellForm {
    #[prost(bytes = "vec", tag = "1")]
    start: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    days: Vec<DayForm>,
}

#[derive(Clone, PartialEq, Message)]
struct DayForm {
    #[prost(uint64, tag = "1")]
    day: u64,
    /// Two bytes for each slot, little-endian.
    #[prost(bytes = "vec", tag = "2")]
    loads: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ForecastForm {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(bytes = "vec", tag = "2")]
    start: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "3")]
    end: Option<Vec<u8>>,
    #[prost(uint64, tag = "4")]
    made_ms: u64,
    #[prost(uint64, tag = "5")]
    from_ms: u64,
    #[prost(uint64, tag = "6")]
    until_ms: u64,
    #[prost(double, tag = "7")]
    expected: f64,
    #[prost(double, tag = "8")]
    confidence: f64,
    #[prost(uint32, tag = "9")]
    days: u32,
    /// Cuts, if cuts were decided on.
    #[prost(uint32, optional, tag = "10")]
    cuts: Option<u32>,
    /// True if the table did not split by load.
    #[prost(bool, tag = "11")]
    off: bool,
    #[prost(double, optional, tag = "12")]
    actual: Option<f64>,
    #[prost(bool, tag = "13")]
    is_over: bool,
}

impl ForecastForm {
    fn new(forecast: &Forecast) -> Self {
        let cuts = match forecast.decided {
            Decided::Cut(cuts) => Some(cuts),
            Decided::NoPlace | Decided::Off => None,
        };
        Self {
            table: forecast.table.0,
            start: forecast.start.to_vec(),
            end: forecast.end.as_deref().map(<[u8]>::to_vec),
            made_ms: forecast.made_ms,
            from_ms: forecast.from_ms,
            until_ms: forecast.until_ms,
            expected: forecast.expected,
            confidence: forecast.confidence,
            days: forecast.days,
            cuts,
            off: forecast.decided == Decided::Off,
            actual: forecast.actual,
            is_over: forecast.is_over,
        }
    }

    fn forecast(self) -> Forecast {
        let decided = match (self.cuts, self.off) {
            (Some(cuts), _) => Decided::Cut(cuts),
            (None, true) => Decided::Off,
            (None, false) => Decided::NoPlace,
        };
        Forecast {
            table: LoadTable(self.table),
            start: self.start.into(),
            end: self.end.map(Box::from),
            made_ms: self.made_ms,
            from_ms: self.from_ms,
            until_ms: self.until_ms,
            expected: self.expected,
            confidence: self.confidence,
            days: self.days,
            decided,
            actual: self.actual,
            is_over: self.is_over,
        }
    }
}

impl CellForm {
    fn new(cell: &SavedCell) -> Self {
        let day = |(day, loads): &(u64, Vec<u16>)| DayForm {
            day: *day,
            loads: loads.iter().flat_map(|load| load.to_le_bytes()).collect(),
        };
        Self { start: cell.start.to_vec(), days: cell.days.iter().map(day).collect() }
    }

    fn cell(self) -> SavedCell {
        let loads = |form: DayForm| {
            let pairs = form.loads.chunks_exact(2);
            let loads = pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            (form.day, loads)
        };
        SavedCell { start: self.start.into(), days: self.days.into_iter().map(loads).collect() }
    }
}

/// The files of one member. Every operation on them blocks.
#[derive(Debug)]
pub(crate) struct LoadFiles {
    dir: PathBuf,
    /// Checksums of the files that were written last, by name: what has not changed is not written again.
    written: Mutex<BTreeMap<String, u32>>,
}

impl LoadFiles {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, written: Mutex::default() }
    }

    /// All that is kept. What cannot be read is left out.
    pub(crate) fn read(&self) -> Kept {
        let mut content = Kept::default();
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return content };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| is_load(path)) {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
            let result = std::fs::read(path)
                .map_err(|error| error.to_string())
                .and_then(|bytes| content.take(&name.unwrap_or_default(), &bytes));
            if let Err(error) = result {
                warn!(path = %path.display(), %error, "a file of load is left out");
            }
        }
        content
    }

    /// Writes all that has changed, and removes the files of tables that are gone. A failure changes no other file.
    pub(crate) fn write(&self, content: &Kept) {
        let mut written = self.written.lock();
        if let Err(error) = std::fs::create_dir_all(&self.dir) {
            warn!(dir = %self.dir.display(), %error, "making the directory of load failed");
            return;
        }
        let mut names = BTreeSet::new();
        for (name, bytes) in content.files() {
            let checksum = crc32c::crc32c(&bytes);
            names.insert(format!("{name}.{SUFFIX}"));
            if written.get(&name) == Some(&checksum) {
                continue;
            }
            match self.write_one(&name, &bytes) {
                Ok(()) => {
                    written.insert(name, checksum);
                }
                Err(error) => warn!(name, %error, "writing a file of load failed"),
            }
        }
        written.retain(|name, _| names.contains(&format!("{name}.{SUFFIX}")));
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| is_load(path)) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let is_current = name.is_some_and(|name| names.contains(&name));
            if !is_current && let Err(error) = std::fs::remove_file(&path) {
                warn!(path = %path.display(), %error, "removing a file of load failed");
            }
        }
    }

    fn write_one(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let unfinished = self.dir.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, self.dir.join(format!("{name}.{SUFFIX}")))?;
        File::open(&self.dir)?.sync_all()
    }
}

fn is_load(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == SUFFIX)
}

impl Kept {
    /// The files by name, without the suffix.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        for picture in &self.pictures {
            let form = PictureForm {
                table: picture.table.0,
                heat: picture.heat,
                capacity: picture.capacity.map(|capacity| capacity.unwrap_or(f32::NAN)).to_vec(),
                marked: picture.marked,
                history: picture.history.lock().to_bytes(),
            };
            files.push((format!("{TABLE}{}", picture.table.0), file(&form)));
        }
        let rows = |rows: &[LoadHistory]| rows.iter().map(Wire::to_wire).collect();
        let history = HistoryForm { minutes: rows(&self.minutes), tens: rows(&self.tens) };
        let profile = |(table, cells): &(LoadTable, Vec<SavedCell>)| ProfileForm {
            table: table.0,
            cells: cells.iter().map(CellForm::new).collect(),
        };
        let forecasts = ForecastsForm {
            profiles: self.profiles.iter().map(profile).collect(),
            forecasts: self.forecasts.iter().map(ForecastForm::new).collect(),
            version: self.version,
        };
        files.push((HISTORY.to_owned(), file(&history)));
        files.push((FORECASTS.to_owned(), file(&forecasts)));
        files
    }

    /// Adds the content of a file; the error says why there is none.
    fn take(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let message = message_of(bytes)?;
        let damaged = |error: prost::DecodeError| error.to_string();
        if name.starts_with(TABLE) {
            let form = PictureForm::decode(message).map_err(damaged)?;
            let history = History::from_bytes(&form.history);
            let history = history.ok_or("the picture is damaged, or of another version")?;
            let mut capacity = [None; METRICS];
            for (capacity, measured) in capacity.iter_mut().zip(form.capacity) {
                *capacity = Some(measured).filter(|measured| measured.is_finite());
            }
            self.pictures.push(KeptPicture {
                table: TableId(form.table),
                heat: form.heat,
                capacity,
                marked: form.marked,
                history: Arc::new(Mutex::new(history)),
            });
        } else if name == HISTORY {
            let form = HistoryForm::decode(message).map_err(damaged)?;
            let rows = |rows: Vec<pb::LoadHistory>| -> Vec<LoadHistory> {
                rows.into_iter().filter_map(|row| LoadHistory::from_wire(row).ok()).collect()
            };
            (self.minutes, self.tens) = (rows(form.minutes), rows(form.tens));
        } else if name == FORECASTS {
            let form = ForecastsForm::decode(message).map_err(damaged)?;
            let profile = |form: ProfileForm| {
                (LoadTable(form.table), form.cells.into_iter().map(CellForm::cell).collect())
            };
            self.profiles = form.profiles.into_iter().map(profile).collect();
            self.forecasts = form.forecasts.into_iter().map(ForecastForm::forecast).collect();
            self.version = form.version;
        }
        Ok(())
    }
}

/// A file with this message.
fn file(message: &impl Message) -> Vec<u8> {
    let rest = [&FORMAT.to_be_bytes()[..], &message.encode_to_vec()].concat();
    [&MAGIC[..], &crc32c::crc32c(&rest).to_be_bytes(), &rest].concat()
}

/// The message of a file.
fn message_of(bytes: &[u8]) -> Result<&[u8], String> {
    let (header, message) =
        bytes.split_at_checked(HEADER_BYTES).ok_or("it ends within its header")?;
    let (magic, rest) = header.split_at(MAGIC.len());
    let (checksum, format) = rest.split_at(4);
    let sum = crc32c::crc32c_append(crc32c::crc32c(format), message);
    if *magic != MAGIC || *checksum != sum.to_be_bytes() {
        return Err("it fails its checksum".to_owned());
    }
    if *format != FORMAT.to_be_bytes() {
        return Err("a later version has written it".to_owned());
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use partita_heatmap::{Event, Key, MarkKind};
    use partita_proto::id::PartitionId;
    use partita_proto::load::Instant;

    use super::*;

    fn kept(table: u32) -> Kept {
        let mut history = History::default();
        let (at, key, kind) = (7, Key::from([9]), MarkKind::Split);
        history.mark(Event { at, key, kind, text: "split".to_owned() });
        let row = LoadHistory {
            at: Instant(60_000),
            span: Duration::from_secs(60),
            table: TableId(table),
            partition: PartitionId(3),
            busy: 0.5,
            ..LoadHistory::default()
        };
        let day = (20_000, (0..96).collect());
        Kept {
            pictures: vec![KeptPicture {
                table: TableId(table),
                heat: 12.5,
                capacity: [Some(100.0), None, None, None],
                marked: 42,
                history: Arc::new(Mutex::new(history)),
            }],
            minutes: vec![row.clone()],
            tens: vec![row],
            profiles: vec![(
                LoadTable(table),
                vec![SavedCell { start: Box::from([]), days: vec![day] }],
            )],
            forecasts: vec![Forecast {
                table: LoadTable(table),
                start: Box::from([1]),
                end: None,
                made_ms: 1,
                from_ms: 2,
                until_ms: 3,
                expected: 1.5,
                confidence: 0.75,
                days: 6,
                decided: Decided::Cut(3),
                actual: Some(1.25),
                is_over: true,
            }],
            version: 9,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = LoadFiles::new(dir.path().join("load"));
        assert!(files.read().pictures.is_empty(), "nothing is there yet");
        let kept = kept(1);
        files.write(&kept);
        let read = LoadFiles::new(dir.path().join("load")).read();
        assert_eq!(read.files(), kept.files());
        assert_eq!(read.pictures[0].capacity, kept.pictures[0].capacity);
        assert_eq!((&read.profiles, &read.forecasts), (&kept.profiles, &kept.forecasts));
        assert_eq!((&read.minutes, &read.tens), (&kept.minutes, &kept.tens));
        assert_eq!(read.version, 9);
    }

    #[test]
    fn files_of_tables_that_are_gone_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let files = LoadFiles::new(dir.path().to_owned());
        files.write(&kept(1));
        files.write(&kept(2));
        let tables: Vec<_> = files.read().pictures.iter().map(|picture| picture.table).collect();
        assert_eq!(tables, [TableId(2)]);
    }

    #[test]
    fn a_damaged_file_is_left_out_and_the_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = LoadFiles::new(dir.path().to_owned());
        files.write(&kept(1));
        let path = dir.path().join("table-1.load");
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let read = files.read();
        assert_eq!((read.pictures.len(), read.minutes.len(), read.forecasts.len()), (0, 1, 1));
        std::fs::write(&path, b"pldf").unwrap();
        assert!(files.read().pictures.is_empty());
    }

    #[test]
    fn the_forms_stay() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let form = ForecastForm::new(&kept(1).forecasts[0]);
        let expected = [
            "0801120101200128023003",
            "39000000000000f83f41000000000000e83f",
            "4806500361000000000000f43f6801",
        ];
        assert_eq!(hex(&form.encode_to_vec()), expected.concat());
        let cell = SavedCell { start: Box::from([7]), days: vec![(5, vec![1, 0x0203])] };
        assert_eq!(hex(&CellForm::new(&cell).encode_to_vec()), "0a010712080805120401000302");
        assert_eq!(CellForm::new(&cell).cell(), cell);
        let bytes = file(&DayForm { day: 5, loads: Vec::new() });
        assert_eq!(hex(&bytes[..4]), "706c6466");
        assert_eq!(hex(&bytes[8..]), "000000010805");
        assert_eq!(message_of(&bytes), Ok(&[8, 5][..]));
    }
}
