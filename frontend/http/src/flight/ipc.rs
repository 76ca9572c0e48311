//! Checks of a client's Arrow messages before arrow parses them.
//!
//! Arrow's reader trusts most of a message: an unknown type, a buffer that extends beyond its body, or a missing one
//! end the task with a panic, and data that decompresses to gigabytes is decompressed. So each message is checked here
//! first, by its own metadata:
//!
//! | message | checked |
//! |---|---|
//! | schema | types, their parameters and children; number and depth of fields |
//! | dictionary, rows | lengths and NULL counts; the nodes and buffers that the schema requires, within the body; the size of decompressed buffers |
//!
//! Values (offsets, UTF-8, indexes of dictionaries) are validated by arrow as it builds arrays.
//!
//! Source: the Arrow columnar format's encapsulated messages (Message.fbs, Schema.fbs).

use std::collections::HashMap;
use std::io::{self, Read};

use arrow::ipc::{
    BodyCompression, Buffer, CompressionType, DateUnit, DictionaryBatch, Endianness, Field,
    IntervalUnit, KeyValue, MessageHeader, MetadataVersion, Precision, RecordBatch, Schema,
    TimeUnit, Type, root_as_message,
};
use arrow_flight::FlightData;

/// Maximum number of fields in a schema, nested ones included.
const FIELDS_MAX: usize = 10_000;
/// Maximum nesting of fields.
const DEPTH_MAX: usize = 32;
/// Maximum rows of a message.
const ROWS_MAX: usize = 16 << 20;
/// Maximum bytes of a message after decompression.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Buffers must begin at multiples of this.
const BUFFER_ALIGNMENT: i64 = 8;
/// Bytes of a compressed buffer that hold its uncompressed length.
const PREFIX_BYTES: usize = 8;

/// The error of a malformed message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Arrow message is malformed: {0}")]
pub(crate) struct Malformed(String);

fn malformed<T>(description: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(description.into()))
}

/// A node of a schema's rows, or of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Number of buffers, without those of views, whose number is in each message.
    buffers: usize,
    /// True if the first buffer has the validity of values.
    has_validity: bool,
    is_view: bool,
    /// Bytes of each element of the second buffer if arrow requires whole elements: offsets, views and indexes of
    /// dictionaries; else 1.
    width: usize,
}

impl Node {
    /// A node with this number of buffers, the first of which has the validity.
    const fn of(buffers: usize, width: usize) -> Self {
        Self { buffers, has_validity: true, is_view: false, width }
    }
}

/// The nodes of a schema's rows, or of a dictionary's values, in the order of messages.
type Shape = Vec<Node>;

/// Bytes that are aligned for numbers of any width.
struct Aligned(arrow::buffer::Buffer);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Checks the messages of one stream.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// Nodes of rows according to the schema; `None` before the schema.
    rows: Option<Shape>,
    /// Nodes of each dictionary according to the schema, by id.
    dictionaries: HashMap<i64, Shape>,
    /// Bytes of the last message's buffers after decompression.
    inflated: usize,
    /// Id of the dictionary that the last message brought.
    dictionary: Option<i64>,
}

impl Check {
    /// Bytes of the arrays that arrow makes of the last message.
    pub(crate) fn inflated(&self) -> usize {
        self.inflated
    }

    /// Id of the dictionary that the last message brought.
    pub(crate) fn dictionary_id(&self) -> Option<i64> {
        self.dictionary
    }

    /// Checks a message; later ones are checked against the schema that it brings.
    ///
    /// # Errors
    /// When arrow could not handle the message.
    pub(crate) fn admit(&mut self, mut data: FlightData) -> Result<FlightData, Malformed> {
        if self.message(&data)? == MessageHeader::DictionaryBatch {
            // Arrow copies rows into aligned memory, but uses dictionaries as the network delivered them.
            let aligned = Aligned(arrow::buffer::Buffer::from(data.data_body.as_ref()));
            data.data_body = bytes::Bytes::from_owner(aligned);
        }
        Ok(data)
    }

    fn message(&mut self, data: &FlightData) -> Result<MessageHeader, Malformed> {
        (self.inflated, self.dictionary) = (0, None);
        if data.data_header.is_empty() {
            // Metadata only; arrow's reader would take it for a message.
            return malformed("it has no header");
        }
        let message =
            root_as_message(&data.data_header).map_err(|error| Malformed(error.to_string()))?;
        if message.version() != MetadataVersion::V5 && message.version() != MetadataVersion::V4 {
            return malformed("its version is neither 4 nor 5");
        }
        let kind = message.header_type();
        let checked = match kind {
            MessageHeader::NONE => Ok(0),
            MessageHeader::Schema => match message.header_as_schema() {
                Some(schema) => self.schema(schema).map(|()| 0),
                None => malformed("it has no schema"),
            },
            MessageHeader::DictionaryBatch => match message.header_as_dictionary_batch() {
                Some(batch) => self.dictionary(batch, &data.data_body),
                None => malformed("it has no dictionary"),
            },
            MessageHeader::RecordBatch => match (message.header_as_record_batch(), &self.rows) {
                (Some(batch), Some(shape)) => check_batch(batch, shape, &data.data_body),
                (None, _) => malformed("it has no rows"),
                (_, None) => malformed("rows come before the schema"),
            },
            _ => malformed("its kind is unknown"),
        };
        self.inflated = checked?;
        Ok(kind)
    }

    fn schema(&mut self, schema: Schema<'_>) -> Result<(), Malformed> {
        if schema.endianness() != Endianness::Little {
            return malformed("only the little-endian byte order is supported");
        }
        let Some(fields) = schema.fields() else { return malformed("the schema has no fields") };
        let mut walk = Walk::default();
        let mut rows = Shape::new();
        for field in fields {
            rows.extend(walk.field(field, 0)?);
        }
        check_pairs(schema.custom_metadata())?;
        self.rows = Some(rows);
        self.dictionaries = walk.dictionaries;
        Ok(())
    }

    fn dictionary(&mut self, batch: DictionaryBatch<'_>, body: &[u8]) -> Result<usize, Malformed> {
        self.dictionary = Some(batch.id());
        let Some(shape) = self.dictionaries.get(&batch.id()) else {
            return malformed(format!("the schema has no dictionary {}", batch.id()));
        };
        match batch.data() {
            Some(data) => check_batch(data, shape, body),
            None => malformed("the dictionary has no values"),
        }
    }
}

/// Checks the key-value pairs of a schema or a field; arrow's reader expects both halves of each.
fn check_pairs<'a>(pairs: Option<impl IntoIterator<Item = KeyValue<'a>>>) -> Result<(), Malformed> {
    for pair in pairs.into_iter().flatten() {
        if pair.key().is_none() || pair.value().is_none() {
            return malformed("metadata has a key without a value");
        }
    }
    Ok(())
}

/// Traversal of a schema's fields.
#[derive(Debug, Default)]
struct Walk {
    fields: usize,
    dictionaries: HashMap<i64, Shape>,
}

impl Walk {
    /// Checks a field and its children. Returns its nodes.
    fn field(&mut self, field: Field<'_>, depth: usize) -> Result<Shape, Malformed> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return malformed(format!("it has more than {FIELDS_MAX} fields"));
        }
        if depth > DEPTH_MAX {
            return malformed(format!("its fields are nested more than {DEPTH_MAX} deep"));
        }
        check_pairs(field.custom_metadata())?;
        let nodes = self.values(field, depth)?;
        let Some(dictionary) = field.dictionary() else { return Ok(nodes) };
        let width = match dictionary.indexType().map(|index| index.bitWidth()) {
            Some(8) => 1,
            Some(16) => 2,
            Some(32) => 4,
            Some(64) => 8,
            _ => return malformed("a dictionary has no index type"),
        };
        // Arrow reads each dictionary by the first field that has it.
        if self.dictionaries.get(&dictionary.id()).is_some_and(|earlier| *earlier != nodes) {
            return malformed(format!("dictionary {} has values of two types", dictionary.id()));
        }
        self.dictionaries.insert(dictionary.id(), nodes);
        Ok(vec![Node::of(2, width)])
    }

    /// The nodes for values of a field's type, leaving out its dictionary.
    fn values(&mut self, field: Field<'_>, depth: usize) -> Result<Shape, Malformed> {
        match field.type_type() {
            Type::Null => Ok(vec![Node { has_validity: false, ..Node::of(0, 1) }]),
            Type::Utf8 | Type::Binary => Ok(vec![Node::of(3, 4)]),
            Type::LargeUtf8 | Type::LargeBinary => Ok(vec![Node::of(3, 8)]),
            Type::Utf8View | Type::BinaryView => {
                Ok(vec![Node { is_view: true, ..Node::of(2, 16) }])
            }
            Type::List | Type::Map => self.nested(field, depth, Node::of(2, 4), Some(1)),
            Type::LargeList => self.nested(field, depth, Node::of(2, 8), Some(1)),
            Type::FixedSizeList => match field.type_as_fixed_size_list() {
                Some(list) if (0..=1 << 20).contains(&list.listSize()) => {
                    self.nested(field, depth, Node::of(1, 1), Some(1))
                }
                _ => malformed("a fixed-size list has no size"),
            },
            Type::Struct_ => self.nested(field, depth, Node::of(1, 1), None),
            _ if is_plain(field) => Ok(vec![Node::of(2, 1)]),
            unsupported => malformed(format!(
                "type {} is not supported, or not with these parameters",
                unsupported.variant_name().unwrap_or("unknown")
            )),
        }
    }

    fn nested(
        &mut self,
        field: Field<'_>,
        depth: usize,
        node: Node,
        children: Option<usize>,
    ) -> Result<Shape, Malformed> {
        let nested_fields = field.children();
        let count = nested_fields.map_or(0, |nested_fields| nested_fields.len());
        if children.is_some_and(|children| children != count) {
            return malformed(format!("a list or a map has {count} element types"));
        }
        let is_map = field.type_type() == Type::Map;
        let mut shape = vec![node];
        for child in nested_fields.into_iter().flatten() {
            let pairs = child.children().map_or(0, |pairs| pairs.len());
            if is_map && (child.type_type() != Type::Struct_ || pairs != 2) {
                return malformed("the elements of a map are not pairs");
            }
            shape.extend(self.field(child, depth + 1)?);
        }
        Ok(shape)
    }
}

/// Returns true if a field has a type of fixed size with parameters that arrow supports.
fn is_plain(field: Field<'_>) -> bool {
    // Types with a width or a unit, each with the values that arrow has arrays for.
    let is_supported = match field.type_type() {
        Type::Bool => Some(true),
        Type::Int => field.type_as_int().map(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        Type::FloatingPoint => field.type_as_floating_point().map(|float| {
            matches!(float.precision(), Precision::HALF | Precision::SINGLE | Precision::DOUBLE)
        }),
        Type::Decimal => field.type_as_decimal().map(|decimal| {
            let digits = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&decimal.precision())
                && (-decimal.precision()..=decimal.precision()).contains(&decimal.scale())
        }),
        Type::Date => field
            .type_as_date()
            .map(|date| matches!(date.unit(), DateUnit::DAY | DateUnit::MILLISECOND)),
        Type::Time => field.type_as_time().map(|time| {
            matches!(
                (time.bitWidth(), time.unit()),
                (32, TimeUnit::SECOND | TimeUnit::MILLISECOND)
                    | (64, TimeUnit::MICROSECOND | TimeUnit::NANOSECOND)
            )
        }),
        Type::Timestamp => field.type_as_timestamp().map(|time| is_unit(time.unit())),
        Type::Duration => field.type_as_duration().map(|time| is_unit(time.unit())),
        Type::Interval => field.type_as_interval().map(|interval| {
            matches!(
                interval.unit(),
                IntervalUnit::YEAR_MONTH | IntervalUnit::DAY_TIME | IntervalUnit::MONTH_DAY_NANO
            )
        }),
        Type::FixedSizeBinary => field
            .type_as_fixed_size_binary()
            .map(|bytes| (0..=1 << 20).contains(&bytes.byteWidth())),
        _ => None,
    };
    is_supported == Some(true)
}

fn is_unit(unit: TimeUnit) -> bool {
    matches!(
        unit,
        TimeUnit::SECOND | TimeUnit::MILLISECOND | TimeUnit::MICROSECOND | TimeUnit::NANOSECOND
    )
}

/// Checks rows, or the values of a dictionary, against the schema. Returns the bytes of their buffers after decompression.
fn check_batch(batch: RecordBatch<'_>, shape: &[Node], body: &[u8]) -> Result<usize, Malformed> {
    // As many nodes as the schema requires.
    if !is_count(batch.length()) {
        return malformed(format!(
            "invalid number of rows {}, the maximum is {ROWS_MAX}",
            batch.length()
        ));
    }
    let nodes = batch.nodes().map_or(0, |nodes| nodes.len());
    if nodes != shape.len() {
        return malformed(format!("it has {nodes} nodes, but the schema requires {}", shape.len()));
    }
    // Each node takes its buffers in order.
    let mut views = batch.variadicBufferCounts().into_iter().flatten();
    let mut buffers = batch.buffers().into_iter().flatten();
    let mut inflated = 0_usize;
    for (node, expected) in batch.nodes().into_iter().flatten().zip(shape) {
        if !is_count(node.length()) || !(0..=node.length()).contains(&node.null_count()) {
            return malformed(format!(
                "a node has {} values, {} of them null",
                node.length(),
                node.null_count()
            ));
        }
        let of_views = match expected.is_view.then(|| views.next()) {
            None => Some(0),
            Some(count) => count.and_then(|count| usize::try_from(count).ok()),
        };
        let Some(of_views) = of_views.filter(|count| *count <= body.len()) else {
            return malformed("the number of buffers of a view column is missing or invalid");
        };
        for position in 0..expected.buffers + of_views {
            let Some(buffer) = buffers.next() else {
                return malformed("it has fewer buffers than the schema requires");
            };
            let bytes = part(body, *buffer)?;
            let len = match batch.compression() {
                Some(compression) => inflated_len(bytes, compression)?,
                None => bytes.len(),
            };
            let values = usize::try_from(node.length()).unwrap_or(usize::MAX);
            if position == 0
                && expected.has_validity
                && node.null_count() > 0
                && len < values.div_ceil(8)
            {
                return malformed("a validity buffer is too short");
            }
            if position == 1 && len % expected.width != 0 {
                return malformed(
                    "a buffer of offsets, views or indexes ends inside of an element",
                );
            }
            inflated = inflated.saturating_add(len);
        }
    }
    // No buffer is left over, and all together have a bounded size.
    if buffers.next().is_some() || views.next().is_some() {
        return malformed("it has more buffers than the schema requires");
    }
    if inflated > BODY_BYTES_MAX {
        return malformed(format!("it decompresses to more than {BODY_BYTES_MAX} bytes"));
    }
    Ok(inflated)
}

fn is_count(count: i64) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= ROWS_MAX)
}

/// The bytes of a buffer in the body of its message.
fn part(body: &[u8], buffer: Buffer) -> Result<&[u8], Malformed> {
    if buffer.offset() % BUFFER_ALIGNMENT != 0 {
        return malformed(format!(
            "a buffer begins at {}, which is not a multiple of 8",
            buffer.offset()
        ));
    }
    let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
    range.and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?)).ok_or_else(
        || {
            Malformed(format!(
                "a buffer of {} bytes at {} is not within its body of {} bytes",
                buffer.length(),
                buffer.offset(),
                body.len()
            ))
        },
    )
}

/// The uncompressed length of a compressed buffer in bytes, which is verified by decompression.
fn inflated_len(bytes: &[u8], compression: BodyCompression<'_>) -> Result<usize, Malformed> {
    if bytes.is_empty() {
        // Arrow's reader leaves it as it is.
        return Ok(0);
    }
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return malformed("a compressed buffer has no length");
    };
    let length = match i64::from_le_bytes(*prefix) {
        // The data is not compressed after all.
        -1 => return Ok(rest.len()),
        length => usize::try_from(length).ok().filter(|length| *length <= BODY_BYTES_MAX),
    };
    let Some(length) = length else {
        return malformed("a compressed buffer has an invalid length");
    };
    if length == 0 {
        return Ok(0);
    }
    let inflated = match compression.codec() {
        CompressionType::LZ4_FRAME => drained(lz4_flex::frame::FrameDecoder::new(rest), length),
        CompressionType::ZSTD => {
            zstd::Decoder::new(rest).and_then(|decoder| drained(decoder, length))
        }
        _ => return malformed("its compression is neither lz4 nor zstd"),
    };
    match inflated {
        Ok(inflated) if inflated == length => Ok(length),
        Ok(_) => malformed("the length of a compressed buffer is wrong"),
        Err(error) => malformed(format!("a buffer cannot be decompressed: {error}")),
    }
}

/// Decompresses to the end, or one byte further than expected, and discards the data.
fn drained(source: impl Read, expected: usize) -> io::Result<usize> {
    let bound = u64::try_from(expected).unwrap_or(u64::MAX).saturating_add(1);
    let read = io::copy(&mut source.take(bound), &mut io::sink())?;
    Ok(usize::try_from(read).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, AsArray, BooleanArray, DictionaryArray, Int64Array, ListArray, StringArray,
        StringViewArray, StructArray, TimestampNanosecondArray,
    };
    use arrow::datatypes::{DataType, Field, Int32Type, Schema};
    use arrow::ipc::writer::IpcWriteOptions;
    use arrow::record_batch::RecordBatch;
    use arrow_flight::decode::FlightRecordBatchStream;
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use arrow_flight::error::FlightError;
    use futures::{StreamExt, TryStreamExt};

    use super::*;

    fn batch() -> RecordBatch {
        let texts: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let numbers = Int64Array::from(vec![Some(1), None, Some(3)]);
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let number = Arc::new(Field::new("n", DataType::Int64, true));
        let structure = StructArray::from(vec![(number, Arc::new(numbers.clone()) as ArrayRef)]);
        let long = "a text that is longer than a view holds by itself";
        let columns: [(&str, ArrayRef); 8] = [
            ("texts", Arc::new(texts)),
            ("numbers", Arc::new(numbers)),
            ("strings", Arc::new(StringArray::from(vec!["x", "", "zz"]))),
            ("views", Arc::new(StringViewArray::from(vec![Some(long), None, Some("z")]))),
            ("flags", Arc::new(BooleanArray::from(vec![true, false, true]))),
            ("times", Arc::new(TimestampNanosecondArray::from(vec![1, 2, 3]))),
            ("lists", Arc::new(lists)),
            ("structures", Arc::new(structure)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// The messages of a batch: schema, dictionary, rows.
    async fn messages(compression: Option<CompressionType>) -> Vec<FlightData> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let encoder = FlightDataEncoderBuilder::new()
            .with_options(options)
            .with_dictionary_handling(DictionaryHandling::Resend);
        let batches = futures::stream::iter([Ok::<_, FlightError>(batch())]);
        encoder.build(batches).try_collect().await.unwrap()
    }

    /// What becomes of a stream: its rows, or what is wrong with it. A panic is the caller's.
    async fn read(messages: Vec<FlightData>) -> Result<Vec<RecordBatch>, String> {
        let mut check = Check::default();
        let messages = messages.into_iter().map(|message| check.admit(message));
        let messages: Vec<_> = messages.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let stream = futures::stream::iter(messages.into_iter().map(Ok));
        let batches = FlightRecordBatchStream::new_from_flight_data(stream.boxed());
        batches.try_collect().await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_is_well_formed_is_let_through() {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let batches = read(messages(compression).await).await.unwrap();
            assert_eq!(batches.len(), 1, "{compression:?}");
            let strings = batches[0].column_by_name("strings").unwrap().as_string::<i32>();
            assert_eq!(strings.value(2), "zz");
        }
    }

    #[tokio::test]
    async fn rows_need_a_schema_and_a_header() {
        let stream = messages(None).await;
        let rows_first = stream.iter().rev().cloned().collect();
        assert!(read(rows_first).await.unwrap_err().contains("before the schema"));
        let empty = vec![FlightData::default()];
        assert!(read(empty).await.unwrap_err().contains("no header"));
        let mut cut = stream;
        cut.last_mut().unwrap().data_body = bytes::Bytes::from_static(b"short");
        assert!(read(cut).await.unwrap_err().contains("not within its body"));
    }

    #[tokio::test]
    async fn rows_have_the_parts_that_the_schema_asks_for() {
        let mut all = messages(None).await;
        let other =
            RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
        let encoder = FlightDataEncoderBuilder::new();
        let one = futures::stream::iter([Ok::<_, FlightError>(other.unwrap())]);
        let schema: Vec<FlightData> = encoder.build(one).try_collect().await.unwrap();
        all[0] = schema[0].clone();
        all.remove(1);
        assert!(read(all).await.unwrap_err().contains("nodes, but the schema requires 1"));
    }

    /// The message of a schema whose only column has lists within each other.
    async fn nested(levels: usize) -> FlightData {
        let list = |inner: DataType, _| DataType::List(Arc::new(Field::new("l", inner, true)));
        let column = Field::new("c", (0..levels).fold(DataType::Int64, list), true);
        let schema = Arc::new(Schema::new(vec![column]));
        let no_rows = futures::stream::empty::<Result<RecordBatch, FlightError>>();
        let encoder = FlightDataEncoderBuilder::new().with_schema(schema);
        encoder.build(no_rows).try_collect::<Vec<_>>().await.unwrap().remove(0)
    }

    #[tokio::test]
    async fn nested_types_have_a_bounded_depth() {
        assert!(Check::default().admit(nested(32).await).is_ok());
        for levels in [33, 62, 63, 200] {
            let refused = Check::default().admit(nested(levels).await);
            assert!(refused.is_err(), "{levels}");
        }
    }

    #[test]
    fn what_decompresses_beyond_its_length_is_malformed() {
        let zeros = vec![0; 10 << 20];
        let bomb = zstd::encode_all(zeros.as_slice(), 1).unwrap();
        let drained_len = drained(zstd::Decoder::new(bomb.as_slice()).unwrap(), 1000).unwrap();
        assert_eq!(drained_len, 1001, "a byte too many is enough to know");
    }

    /// Numbers that decide the mutations; xorshift, so that a seed is all that it takes.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound.max(1) as u64).unwrap()
        }
    }

    fn mutate(bytes: &[u8], numbers: &mut Numbers) -> bytes::Bytes {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            return bytes.into();
        }
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len());
            match numbers.below(5) {
                0 => bytes[at] ^= 1 << numbers.below(8),
                1 => bytes[at] = u8::try_from(numbers.below(256)).unwrap(),
                2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                3 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0),
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes.into()
    }

    #[tokio::test]
    async fn mutated_messages_are_errors_or_rows_and_never_a_panic() {
        let number = |name: &str, or: u64| {
            std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
        };
        let seed = number("PARTITA_SEED", 20_285_571);
        println!("again: PARTITA_SEED={seed}");
        let mut numbers = Numbers(seed | 1);
        let sets = [
            messages(None).await,
            messages(Some(CompressionType::LZ4_FRAME)).await,
            messages(Some(CompressionType::ZSTD)).await,
        ];
        let (mut read_well, mut refused) = (0, 0);
        for _ in 0..number("PARTITA_MUTATIONS", 3000) {
            let mut all = sets[numbers.below(sets.len())].clone();
            let at = numbers.below(all.len());
            if numbers.below(2) == 0 {
                all[at].data_header = mutate(&all[at].data_header, &mut numbers);
            } else {
                all[at].data_body = mutate(&all[at].data_body, &mut numbers);
            }
            match read(all).await {
                Ok(batches) => {
                    // What was let through can be shown, too.
                    for batch in &batches {
                        drop(arrow::util::pretty::pretty_format_batches(std::slice::from_ref(
                            batch,
                        )));
                    }
                    read_well += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(read_well > 0 && refused > 0, "{read_well} read, {refused} refused");
    }
}
