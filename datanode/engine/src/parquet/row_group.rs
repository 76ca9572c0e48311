//! Encodes batches as row groups of a Parquet file, column by column.
//!
//! Texts are encoded by [`Texts`] while a dictionary holds them, everything else by the `parquet` crate. A chunk whose
//! texts outgrow a dictionary is left to the crate as well. It has no dictionary then: one that only its first rows use
//! would be read and decoded whole for every row that is looked for in the chunk, and texts that hardly repeat gain
//! nothing by it. Only where texts repeat the crate writes a dictionary for the first rows, in this chunk and the next
//! ones of the file until one of them needs no more than a dictionary.
//!
//! Invariant: pages of all columns end at the same rows, after as many as the writer is told, except for columns with
//! values so large that the crate ends pages by their bytes.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::parquet::chunk::Codec;
use crate::parquet::spans::{in_file, schema_in_file};
use crate::parquet::texts::{Texts, encodes};

/// Maximum bytes of a dictionary.
const DICTIONARY_BYTES_MAX: usize = if cfg!(test) { 256 } else { 1024 * 1024 };

/// Purpose of a file, which decides its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Written quickly, to be merged soon: LZ4.
    Flush,
    /// Small, and read for a long time: zstd.
    Compaction,
}

/// Writes row groups.
pub(crate) struct GroupWriter<W: Write + Send> {
    schema: SchemaRef,
    pub(crate) writer: SerializedFileWriter<W>,
    factory: ArrowRowGroupWriterFactory,
    /// Makes encoders that use no dictionaries.
    bare_factory: ArrowRowGroupWriterFactory,
    codec: Codec,
    /// Maximum number of rows from one page header to the next.
    page_rows: usize,
    /// True for each column whose last chunk outgrew its dictionary and has it for its first rows.
    outgrown: Vec<bool>,
    /// The row group in progress, if it has rows.
    group: Option<Group>,
}

struct Group {
    columns: Vec<Column>,
    rows: usize,
}

/// Encodes a column chunk.
struct Column {
    /// Position in the schema.
    number: usize,
    /// The crate's encoder; it has no rows while `texts` takes them.
    plain: ArrowColumnWriter,
    /// True if `plain` uses no dictionary.
    is_bare: bool,
    texts: Option<Texts>,
}

impl<W: Write + Send> GroupWriter<W> {
    /// A writer into `sink`, with pages of `page_rows` rows.
    pub(crate) fn new(
        schema: SchemaRef,
        purpose: Purpose,
        page_rows: usize,
        sink: W,
    ) -> Result<Self> {
        let schema = schema_in_file(schema);
        let codec = match purpose {
            Purpose::Flush => Codec::Lz4,
            Purpose::Compaction => Codec::zstd()?,
        };
        let compression = codec.compression()?;
        let builder = || properties(&schema, compression, page_rows);
        // The crate's writer knows how the footer stores Arrow's schema.
        let writer = ArrowWriter::try_new(sink, Arc::clone(&schema), Some(builder().build()))?;
        let (writer, factory) = writer.into_serialized_writer()?;
        // Only encoders come from the second writer.
        let bare = builder().set_dictionary_enabled(false).build();
        let bare = ArrowWriter::try_new(io::sink(), Arc::clone(&schema), Some(bare))?;
        let (_, bare_factory) = bare.into_serialized_writer()?;
        let outgrown = vec![false; schema.fields().len()];
        Ok(Self { schema, writer, factory, bare_factory, codec, page_rows, outgrown, group: None })
    }

    /// Number of rows of the row group in progress.
    pub(crate) fn rows(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rows)
    }

    /// Approximate bytes of the file so far.
    pub(crate) fn bytes(&self) -> usize {
        let columns = self.group.iter().flat_map(|group| &group.columns);
        let in_progress = columns.map(|column| match &column.texts {
            Some(texts) => texts.bytes(),
            None => column.plain.get_estimated_total_bytes(),
        });
        self.writer.bytes_written() + in_progress.sum::<usize>()
    }

    /// Begins a row group.
    fn begin(&self) -> Result<Group> {
        let fields = self.schema.fields();
        let plain = self.factory.create_column_writers(self.writer.flushed_row_groups().len())?;
        if plain.len() != fields.len() {
            return Err(ParquetError::General("a column in columns".to_owned()));
        }
        let columns = plain.into_iter().zip(fields).enumerate().map(|(number, (plain, field))| {
            let ours = encodes(field.data_type()) && !self.outgrown[number];
            let texts = ours.then(|| {
                let column = self.writer.schema_descr().column(number);
                Texts::new(column, Arc::clone(self.writer.properties()))
            });
            Column { number, plain, is_bare: false, texts }
        });
        Ok(Group { columns: columns.collect(), rows: 0 })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let arrays =
            batch.columns().iter().map(in_file).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut offset = 0;
        while offset < batch.num_rows() {
            let mut group = match self.group.take() {
                Some(group) => group,
                None => self.begin()?,
            };
            // The crate ends a page at the end of each write.
            let page_rest = self.page_rows - group.rows % self.page_rows;
            let rows = (batch.num_rows() - offset).min(page_rest);
            let fields = self.schema.fields().iter();
            for ((field, array), column) in fields.zip(&arrays).zip(&mut group.columns) {
                let (codec, bare) = (&mut self.codec, &self.bare_factory);
                if rows == batch.num_rows() {
                    column.write(codec, bare, field, array)?;
                } else {
                    column.write(codec, bare, field, &array.slice(offset, rows))?;
                }
            }
            group.rows += rows;
            self.group = Some(group);
            offset += rows;
        }
        Ok(())
    }

    /// Ends the row group in progress, if any.
    pub(crate) fn end(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let mut written = self.writer.next_row_group()?;
        for (column, outgrown) in group.columns.into_iter().zip(&mut self.outgrown) {
            if let Some(texts) = column.texts {
                let (bytes, close) = texts.finish(&mut self.codec)?;
                written.append_column(&bytes, close)?;
                *outgrown = false;
            } else {
                let chunk = column.plain.close()?;
                let mut encodings = chunk.close().metadata.encodings();
                // Texts without a dictionary do not tell whether the next ones need more than one.
                *outgrown = !column.is_bare
                    && encodings.any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY);
                drop(encodings);
                chunk.append_to_row_group(&mut written)?;
            }
        }
        written.close()?;
        Ok(())
    }
}

impl Column {
    /// Writes rows; `bare` makes an encoder without a dictionary if the column needs one.
    fn write(
        &mut self,
        codec: &mut Codec,
        bare: &ArrowRowGroupWriterFactory,
        field: &Field,
        array: &ArrayRef,
    ) -> Result<()> {
        let Some(texts) = &mut self.texts else { return self.write_plain(field, array) };
        let count = texts.write(codec, array)?;
        if count == array.len() {
            return Ok(());
        }
        // The dictionary is full.
        if let Some(texts) = self.texts.take() {
            if !texts.repeats() {
                // The number of the row group is for encryption alone.
                let mut encoders = bare.create_column_writers(0)?;
                self.plain = encoders.swap_remove(self.number);
                self.is_bare = true;
            }
            for earlier in texts.into_arrays(array.data_type())? {
                self.write_plain(field, &earlier)?;
            }
        }
        self.write_plain(field, &array.slice(count, array.len() - count))
    }

    fn write_plain(&mut self, field: &Field, array: &ArrayRef) -> Result<()> {
        compute_leaves(field, array)?.iter().try_for_each(|leaf| self.plain.write(leaf))
    }
}

fn properties(
    schema: &SchemaRef,
    compression: Compression,
    page_rows: usize,
) -> WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("partita {}", env!("CARGO_PKG_VERSION")))
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(compression)
        // Row groups are ended by the writer, at the end of a batch, so that their first keys are known.
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size((page_rows / 4).max(1))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_statistics_enabled(EnabledStatistics::Page);
    for field in schema.fields() {
        let column = ColumnPath::from(field.name().as_str());
        properties = match field.data_type() {
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Timestamp(..) => properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED),
            // Measured values hardly repeat; a dictionary would be built only to be dropped.
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => {
                properties.set_column_dictionary_enabled(column, false)
            }
            _ => properties,
        };
    }
    properties
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow::array::{AsArray, BinaryViewArray, Int64Array, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::Schema;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::{
        ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    };
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::sizes::{INDEXED_PAGE_ROWS, PAGE_ROWS, ROW_GROUP_ROWS};

    const PURPOSES: [Purpose; 2] = [Purpose::Flush, Purpose::Compaction];

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int64, true),
            Field::new("text", DataType::Utf8View, true),
            Field::new("key", DataType::Utf8View, false),
            Field::new("bytes", DataType::BinaryView, true),
        ]))
    }

    fn batch(texts: &[Option<String>]) -> RecordBatch {
        let numbers = texts.iter().map(|text| text.as_ref().map(|text| text.len() as i64));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(numbers.collect::<Int64Array>()),
            Arc::new(texts.iter().map(Option::as_deref).collect::<StringViewArray>()),
            Arc::new(StringViewArray::from_iter_values(
                texts.iter().map(|text| text.as_deref().unwrap_or("none of twelve")),
            )),
            Arc::new(
                // Not all of them are texts.
                (texts.iter().enumerate())
                    .map(|(row, text)| {
                        text.as_ref()
                            .map(|text| [text.as_bytes(), &[255; 70][..row % 2 * 70]].concat())
                    })
                    .collect::<BinaryViewArray>(),
            ),
        ];
        RecordBatch::try_new(schema(), columns).unwrap()
    }

    /// The row groups that batches make.
    fn groups(batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
        let (mut groups, mut rows) = (vec![Vec::new()], 0);
        for batch in batches {
            if rows + batch.num_rows() > ROW_GROUP_ROWS {
                groups.push(Vec::new());
                rows = 0;
            }
            rows += batch.num_rows();
            groups.last_mut().unwrap().push(batch.clone());
        }
        groups
    }

    fn written(purpose: Purpose, groups: &[Vec<RecordBatch>]) -> Bytes {
        written_in_pages(purpose, PAGE_ROWS, groups)
    }

    fn written_in_pages(purpose: Purpose, page_rows: usize, groups: &[Vec<RecordBatch>]) -> Bytes {
        let mut writer = GroupWriter::new(schema(), purpose, page_rows, Vec::new()).unwrap();
        for group in groups {
            group.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.end().unwrap();
        }
        writer.writer.into_inner().unwrap().into()
    }

    /// Output of the crate for the same batches, if its writes end at page boundaries.
    fn expected(purpose: Purpose, groups: &[Vec<RecordBatch>]) -> Bytes {
        let compression = match purpose {
            Purpose::Flush => Compression::LZ4_RAW,
            Purpose::Compaction => Codec::zstd().unwrap().compression().unwrap(),
        };
        let properties = properties(&schema(), compression, PAGE_ROWS).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema(), Some(properties)).unwrap();
        for group in groups {
            let all = concat_batches(&schema(), group).unwrap();
            for at in (0..all.num_rows()).step_by(PAGE_ROWS) {
                writer.write(&all.slice(at, PAGE_ROWS.min(all.num_rows() - at))).unwrap();
            }
            writer.flush().unwrap();
        }
        writer.into_inner().unwrap().into()
    }

    fn reader(file: &Bytes) -> ParquetRecordBatchReaderBuilder<Bytes> {
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options).unwrap()
    }

    fn read(file: &Bytes, selection: Option<RowSelection>) -> RecordBatch {
        let mut builder = reader(file).with_batch_size(7);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let batches = builder.build().unwrap().collect::<std::result::Result<Vec<_>, _>>();
        concat_batches(&schema(), &batches.unwrap()).unwrap()
    }

    /// All that is said of a file but where in it things are and how many bytes they take.
    fn told(metadata: &ParquetMetaData, other: &ParquetMetaData) -> Vec<String> {
        let file = metadata.file_metadata();
        let mut told = vec![format!("{file:?}")];
        for (group, columns) in metadata.row_groups().iter().enumerate() {
            told.push(format!("{} rows", columns.num_rows()));
            for (number, column) in columns.columns().iter().enumerate() {
                let index = &metadata.column_index().unwrap()[group][number];
                let pages = &metadata.offset_index().unwrap()[group][number];
                told.push(format!(
                    "{:?} {:?} {:?} {:?} {:?} {:?}",
                    column.column_descr(),
                    column.compression(),
                    column.num_values(),
                    column.statistics(),
                    column.unencoded_byte_array_data_bytes(),
                    column.definition_level_histogram(),
                ));
                // Where the crate gives a dictionary up it ends a page, which depends on how rows come to it.
                let mut encodings =
                    column.encodings().chain(other.row_group(group).column(number).encodings());
                if !encodings.any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY) {
                    let starts = pages.page_locations().iter().map(|page| page.first_row_index);
                    told.push(format!(
                        "{:?} {:?} {:?} {:?} {:?} {:?}",
                        column.encodings().collect::<Vec<_>>(),
                        column.page_encoding_stats_mask(),
                        column.page_encoding_stats(),
                        index,
                        starts.collect::<Vec<_>>(),
                        pages.unencoded_byte_array_data_bytes(),
                    ));
                }
                let locations = pages.page_locations();
                let (start, length) = column.byte_range();
                let mut at = column.data_page_offset();
                assert_eq!(column.dictionary_page_offset().unwrap_or(at).cast_unsigned(), start);
                for page in locations {
                    assert_eq!(page.offset, at, "pages lie one behind the other");
                    at += i64::from(page.compressed_page_size);
                }
                assert_eq!(at.cast_unsigned(), start + length, "and fill the chunk");
            }
        }
        told
    }

    fn check(batches: &[RecordBatch], marks: &[bool]) {
        let all = concat_batches(&schema(), batches).unwrap();
        let groups = groups(batches);
        for purpose in PURPOSES {
            let (file, expected) = (written(purpose, &groups), expected(purpose, &groups));
            assert_eq!(read(&file, None), all);
            let (metadata, reference) = (reader(&file), reader(&expected));
            let (ours, theirs) = (metadata.metadata(), reference.metadata());
            assert_eq!(told(ours, theirs), told(theirs, ours));
            assert_eq!(metadata.schema(), reference.schema());
            let rows = (0..all.num_rows()).filter(|row| marks[row % marks.len()]);
            let ranges = rows.map(|row| row..row + 1).collect::<Vec<_>>();
            let chosen: Vec<_> = ranges.iter().map(|range| all.slice(range.start, 1)).collect();
            let selection =
                RowSelection::from_consecutive_ranges(ranges.into_iter(), all.num_rows());
            let chosen = concat_batches(&schema(), &chosen).unwrap();
            assert_eq!(read(&file, Some(selection)), chosen);
        }
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            1 => Just(String::new()),
            // Views of these have the same prefix; some are inline, some are not.
            4 => (0_usize..=5, select(vec!['a', 'b', 'ä'])).prop_map(|(length, last)| {
                format!("prefix of{}{last}", "x".repeat(length))
            }),
            2 => "[a-c]{1,2}",
            1 => (60_usize..70, select(vec!["", "z", "\u{7F}", "\u{10FFFF}", "ä"]))
                .prop_map(|(length, last)| format!("{}{last}", "ä".repeat(length / 2) + &"y".repeat(length % 2))),
        ]
    }

    /// Texts in runs, cut into batches.
    fn columns() -> impl Strategy<Value = Vec<RecordBatch>> {
        let runs = prop_oneof![Just(vec![1]), Just(vec![1, 1, 2, 3]), Just(vec![1, 7, 8, 9, 30]),];
        let pool = prop_oneof![
            2 => prop::collection::vec(value(), 1..4),
            1 => prop::collection::vec(value(), 10..40),
        ];
        let nulls = select(vec![0.0, 0.2, 1.0]);
        (runs, pool, nulls).prop_flat_map(|(lengths, pool, nulls)| {
            let run = (select(lengths), select(pool), prop::bool::weighted(nulls));
            let runs = prop::collection::vec(run, 1..40);
            let cuts = prop::collection::vec(1_usize..=ROW_GROUP_ROWS, 1..10);
            (runs, cuts).prop_map(|(runs, cuts)| {
                let rows = runs.into_iter().flat_map(|(length, text, null)| {
                    std::iter::repeat_n((!null).then_some(text), length)
                });
                let (rows, mut at) = (rows.collect::<Vec<_>>(), 0);
                let mut batches = Vec::new();
                for cut in cuts.iter().cycle() {
                    let end = rows.len().min(at + cut);
                    // Views of a slice begin anywhere in their buffers.
                    batches
                        .push(batch(&rows[at.saturating_sub(1)..end]).slice(at.min(1), end - at));
                    at = end;
                    if at == rows.len() {
                        return batches;
                    }
                }
                batches
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn rows_come_back_and_as_much_is_told_of_them_as_by_the_crate(
            batches in columns(),
            marks in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            check(&batches, &marks);
        }
    }

    fn texts(rows: impl IntoIterator<Item = String>) -> Vec<RecordBatch> {
        let rows: Vec<_> = rows.into_iter().map(Some).collect();
        rows.chunks(5).map(batch).collect()
    }

    /// Which row groups' texts are in a dictionary only.
    fn with_dictionary_only(file: &Bytes) -> Vec<bool> {
        let groups = reader(file);
        let groups = groups.metadata().row_groups().iter();
        let plain = Encoding::DELTA_BYTE_ARRAY;
        groups.map(|group| !group.column(1).encodings().any(|encoding| encoding == plain)).collect()
    }

    #[test]
    fn a_column_that_outgrew_its_dictionary_has_one_again_when_it_needs_no_more() {
        let long = (0..15).map(|row| format!("a text of some bytes that is alone: {row}"));
        let few = (0..45).map(|row| format!("one of four texts that come again: {}", row % 4));
        let batches = texts(few.clone().take(15).chain(long).chain(few));
        check(&batches, &[true, false]);
        let file = written(Purpose::Flush, &groups(&batches));
        assert_eq!(with_dictionary_only(&file), [true, false, true, true, true]);
    }

    #[test]
    fn texts_that_outgrow_a_dictionary_have_one_only_if_they_repeat() {
        let alone = (0..15).map(|row| format!("{row:y<100}"));
        let again = (0..15).map(|row| format!("{:x<100}", row / 5));
        let batches = texts(alone.clone().chain(again).chain(alone));
        check(&batches, &[true, false, false]);
        for purpose in PURPOSES {
            let file = written(purpose, &groups(&batches));
            assert_eq!(with_dictionary_only(&file), [false; 3]);
            let metadata = reader(&file);
            let groups = metadata.metadata().row_groups().iter();
            let dictionaries: Vec<bool> =
                groups.map(|group| group.column(1).dictionary_page_offset().is_some()).collect();
            // The third one is left to the crate, because the second one was.
            assert_eq!(dictionaries, [false, true, true]);
        }
    }

    #[test]
    fn a_text_larger_than_a_dictionary_is_written_by_the_crate() {
        let batches = texts([String::new(), "x".repeat(1 << 20), "y".to_owned()]);
        check(&batches, &[true]);
        assert_eq!(with_dictionary_only(&written(Purpose::Flush, &groups(&batches))), [false]);
    }

    #[test]
    fn the_size_so_far_grows_with_rows_and_counts_what_is_not_yet_written() {
        let mut writer = GroupWriter::new(schema(), Purpose::Flush, PAGE_ROWS, Vec::new()).unwrap();
        let mut before = writer.bytes();
        for batch in texts((0..16).map(|row| format!("a text: {row}"))) {
            writer.write(&batch).unwrap();
            assert!(writer.bytes() > before);
            before = writer.bytes();
        }
        assert_eq!(writer.rows(), 16);
        writer.end().unwrap();
        assert_eq!(writer.rows(), 0);
        assert!(writer.bytes() > 100);
    }

    #[test]
    fn pages_of_all_columns_have_the_rows_that_the_writer_is_told() {
        let batches = texts((0..15).map(|row| format!("{}", row / 4)));
        for (page_rows, expected) in [(PAGE_ROWS, 4), (INDEXED_PAGE_ROWS, 8)] {
            for purpose in PURPOSES {
                let file = written_in_pages(purpose, page_rows, &groups(&batches));
                let reader = reader(&file);
                let pages = &reader.metadata().offset_index().unwrap()[0];
                // The last column outgrows its dictionary, where the crate ends a page early.
                for column in pages.iter().take(3) {
                    let starts = column.page_locations().iter().map(|page| page.first_row_index);
                    let starts: Vec<i64> = starts.collect();
                    let ends = (0..expected).map(|page| page * i64::try_from(page_rows).unwrap());
                    assert_eq!(starts, ends.collect::<Vec<_>>());
                }
                let all = concat_batches(&schema(), &batches).unwrap();
                assert_eq!(read(&file, None), all);
            }
        }
    }

    #[test]
    fn equal_views_of_other_batches_are_other_texts() {
        let rows = |text: &str| vec![Some(text.to_owned()); 3];
        let batches =
            [batch(&rows("a text of many bytes, a")), batch(&rows("a text of many bytes, b"))];
        let views: HashSet<u128> =
            batches.iter().map(|batch| batch.column(1).as_string_view().views()[0]).collect();
        assert_eq!(views.len(), 1, "they are equal");
        check(&batches, &[true]);
    }
}
