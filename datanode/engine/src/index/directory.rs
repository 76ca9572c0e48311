//! The directory of a file's indexes as text in its footer: a protobuf message, compressed by zstd, in hexadecimal
//! digits. A text that cannot be read is no damage: the file then counts as one without indexes.

use bytes::Bytes;
use partita_proto::id::ColumnId;
use partita_proto::index::IndexOptions;
use partita_proto::wire::Wire;
use prost::Message;

use crate::index::Indexed;

/// Compression level of zstd: the fastest.
const LEVEL: i32 = 1;
/// Maximum bytes of a message: enough for a thousand indexes of a file with tens of row groups.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Places of a file's segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) indexes: Vec<Listed>,
}

/// An index of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) index: Indexed,
    /// Offset and length of the segment of each row group.
    pub(crate) segments: Vec<(u64, u32)>,
}

/// A directory in a footer. Field numbers never change their meaning.
#[derive(Clone, PartialEq, Message)]
struct DirectoryMessage {
    #[prost(message, repeated, tag = "1")]
    indexes: Vec<ListedMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ListedMessage {
    #[prost(uint32, tag = "1")]
    column: u32,
    /// [`IndexOptions`].
    #[prost(bytes = "bytes", tag = "2")]
    options: Bytes,
    #[prost(uint64, repeated, tag = "3")]
    offsets: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    lengths: Vec<u32>,
}

impl Directory {
    /// The directory's text; `None` if it is too large, or compression fails.
    pub(crate) fn to_text(&self) -> Option<String> {
        let indexes = self.indexes.iter().map(|listed| ListedMessage {
            column: listed.index.column.0,
            options: listed.index.options.encode_wire(),
            offsets: listed.segments.iter().map(|(offset, _)| *offset).collect(),
            lengths: listed.segments.iter().map(|(_, length)| *length).collect(),
        });
        let message = DirectoryMessage { indexes: indexes.collect() }.encode_to_vec();
        if message.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let compressed = zstd::bulk::compress(&message, LEVEL).ok()?;
        Some(compressed.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The directory of a text; `None` if it is not one that this version reads. An index of a kind that this version
    /// does not know is left out.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let digits = text.as_bytes().chunks(2);
        let compressed: Option<Vec<u8>> = digits
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
            .collect();
        let message = zstd::bulk::decompress(&compressed?, MESSAGE_BYTES_MAX).ok()?;
        let message = DirectoryMessage::decode(message.as_slice()).ok()?;
        let mut indexes = Vec::with_capacity(message.indexes.len());
        for listed in message.indexes {
            let ListedMessage { column, options, offsets, lengths } = listed;
            let ends = offsets.iter().zip(&lengths).map(|(offset, length)| (*offset, *length));
            let is_place =
                |(offset, length): (u64, u32)| offset.checked_add(length.into()).is_some();
            if offsets.len() != lengths.len() || !ends.clone().all(is_place) {
                return None;
            }
            let segments = ends.collect();
            if let Ok(options) = IndexOptions::decode_wire(options) {
                let index = Indexed { column: ColumnId(column), options };
                indexes.push(Listed { index, segments });
            }
        }
        Some(Self { indexes })
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        let segments = self.indexes.iter().flat_map(|listed| &listed.segments);
        segments.map(|(_, length)| u64::from(*length)).sum()
    }

    /// Indexes of a column, with their positions in the directory.
    pub(crate) fn find(&self, column: ColumnId) -> impl Iterator<Item = (usize, &Listed)> {
        let indexes = self.indexes.iter().enumerate();
        indexes.filter(move |(_, listed)| listed.index.column == column)
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::index::{Analyzer, Backend, Blooms, Fulltext};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn options() -> Vec<IndexOptions> {
        let blooms = Blooms { granularity: 7, false_positives_ppm: 500 };
        let exact = Fulltext {
            analyzer: Analyzer::Chinese,
            case_sensitive: true,
            backend: Backend::Inverted,
        };
        vec![
            IndexOptions::Inverted,
            IndexOptions::Skipping(blooms),
            IndexOptions::Fulltext(exact),
            IndexOptions::Fulltext(Fulltext { backend: Backend::Bloom(blooms), ..exact }),
        ]
    }

    #[test]
    fn indexes_are_found_by_column() {
        let listed = |column, options| Listed {
            index: Indexed { column: ColumnId(column), options },
            segments: vec![(100, 20), (u64::from(u32::MAX) * 2, 3)],
        };
        let indexes = [3, 4, 3].into_iter().zip(options()).map(|(id, kind)| listed(id, kind));
        let directory = Directory { indexes: indexes.collect() };
        let of_column = |column| {
            directory.find(ColumnId(column)).map(|(position, _)| position).collect::<Vec<_>>()
        };
        assert_eq!(of_column(3), [0, 2]);
        assert!(of_column(5).is_empty());
        assert_eq!(directory.bytes(), 3 * 23);
        let text = directory.to_text().unwrap();
        assert_eq!(Directory::of_text(&text), Some(directory));
        let empty = Directory::default();
        assert_eq!(Directory::of_text(&empty.to_text().unwrap()), Some(empty));
    }

    #[test]
    fn a_segment_that_ends_beyond_all_files_makes_the_text_unreadable() {
        let index = Indexed { column: ColumnId(1), options: IndexOptions::Inverted };
        let listed = Listed { index, segments: vec![(u64::MAX, 1)] };
        let text = Directory { indexes: vec![listed] }.to_text().unwrap();
        assert_eq!(Directory::of_text(&text), None);
    }

    #[test]
    fn a_directory_over_its_limit_has_no_text() {
        let index = Indexed { column: ColumnId(1), options: IndexOptions::Inverted };
        let segments = vec![(1 << 40, 1 << 20); 200_000];
        let directory = Directory { indexes: vec![Listed { index, segments }] };
        assert_eq!(directory.to_text(), None);
    }

    proptest! {
        #[test]
        fn directories_come_back_from_their_text(
            indexes in vec(
                (any::<u32>(), select(options()), vec((0..1_u64 << 50, any::<u32>()), 0..9)),
                0..9,
            ),
        ) {
            let listed = |(column, options, segments)| Listed {
                index: Indexed { column: ColumnId(column), options },
                segments,
            };
            let directory = Directory { indexes: indexes.into_iter().map(listed).collect() };
            let text = directory.to_text().unwrap();
            prop_assert_eq!(Directory::of_text(&text), Some(directory));
        }

        #[test]
        fn other_texts_are_no_directories(bytes in vec(any::<u8>(), 1..60), text in "\\PC{0,20}") {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            // No panic, whatever comes; random bytes are not compressed data.
            prop_assert_eq!(Directory::of_text(&digits), None);
            Directory::of_text(&text);
        }
    }
}
