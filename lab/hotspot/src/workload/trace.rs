//! A file of operations, for replay.
//!
//! ```text
//!   "PARTRC2\n"  description: bytes, then that many bytes of UTF-8; columns: count, then the width of each; CRC-32C
//!                of all of this except the first eight bytes
//!   block*:      operations (1..), bytes, then that many bytes, then CRC-32C of these (4 bytes, little-endian)
//!   the end:     0, total number of operations
//!   operation:   microseconds since the previous one, kind (0 write, 1 read, 2 scan), key; for a scan its end
//!   key:         number of bytes shared with the previous key, number of further bytes, these bytes
//! ```
//!
//! All numbers are varints (seven bits a byte, the lowest first), unless said otherwise.
//!
//! Invariants: a reader returns exactly what was written, or an error; it validates every length in the file.

use std::io::{self, Read, Write};

use super::source::Kind;
use crate::streams::Op;

const MAGIC: &[u8; 8] = b"PARTRC2\n";
const BLOCK_OPS: usize = 4_096;
/// Maximum bytes of a block: 4,096 operations of two keys of a kilobyte.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
const COLUMNS_MAX: u64 = 8;
/// Maximum bytes of the description.
const ABOUT_BYTES_MAX: u64 = 64 << 10;

/// Error of reading a trace.
#[derive(Debug)]
pub enum TraceError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is not a trace, or is damaged, in this place.
    Damaged(&'static str),
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the trace: {error}"),
            Self::Damaged(place) => write!(f, "the trace is damaged: {place}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes operations to a trace.
pub struct Writer<W: Write> {
    output: W,
    block: Vec<u8>,
    ops: usize,
    total: u64,
    at_us: u64,
    last: Vec<u8>,
}

fn put(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push((value & 0x7f | 0x80).to_le_bytes()[0]);
        value >>= 7;
    }
    buffer.push((value & 0x7f) as u8);
}

impl<W: Write> Writer<W> {
    /// Begins a trace of keys with these column widths, and writes its description.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut output: W, description: &str, widths: &[usize]) -> io::Result<Self> {
        let mut head = Vec::new();
        put(&mut head, description.len() as u64);
        head.extend_from_slice(description.as_bytes());
        put(&mut head, widths.len() as u64);
        widths.iter().for_each(|width| put(&mut head, *width as u64));
        output.write_all(MAGIC)?;
        output.write_all(&head)?;
        output.write_all(&crc32c::crc32c(&head).to_le_bytes())?;
        Ok(Self { output, block: Vec::new(), ops: 0, total: 0, at_us: 0, last: Vec::new() })
    }

    /// Adds an operation; its time must not be before the previous one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, at_us: u64, kind: Kind, op: &Op) -> io::Result<()> {
        put(&mut self.block, at_us.saturating_sub(self.at_us));
        self.at_us = at_us.max(self.at_us);
        let number = match (&op.end, kind) {
            (Some(_), _) => 2,
            (None, Kind::Write) => 0,
            (None, _) => 1,
        };
        self.block.push(number);
        self.key(&op.key);
        if let Some(end) = &op.end {
            self.key(end);
        }
        self.ops += 1;
        if self.ops == BLOCK_OPS { self.flush_block() } else { Ok(()) }
    }

    fn key(&mut self, key: &[u8]) {
        let shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        put(&mut self.block, shared as u64);
        put(&mut self.block, (key.len() - shared) as u64);
        self.block.extend_from_slice(&key[shared..]);
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    fn flush_block(&mut self) -> io::Result<()> {
        if self.ops > 0 {
            let mut head = Vec::new();
            put(&mut head, self.ops as u64);
            put(&mut head, self.block.len() as u64);
            self.output.write_all(&head)?;
            self.output.write_all(&self.block)?;
            self.output.write_all(&crc32c::crc32c(&self.block).to_le_bytes())?;
            self.total += self.ops as u64;
            (self.ops, self.last) = (0, Vec::new());
            self.block.clear();
        }
        Ok(())
    }

    /// Writes the last block and the end.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_block()?;
        let mut end = vec![0];
        put(&mut end, self.total);
        self.output.write_all(&end)?;
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Reads operations from a trace.
pub struct Reader<R: Read> {
    input: R,
    about: String,
    widths: Vec<usize>,
    block: Vec<u8>,
    position: usize,
    remaining: u64,
    total: u64,
    at_us: u64,
    last: Vec<u8>,
    ended: bool,
}

fn byte(input: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn get(mut next: impl FnMut() -> Result<u8, TraceError>) -> Result<u64, TraceError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(TraceError::Damaged("a number is too long"))
}

/// Reads a number of the header, and keeps its bytes for the checksum.
fn noted(input: &mut impl Read, head: &mut Vec<u8>) -> Result<u64, TraceError> {
    get(|| {
        let byte = byte(input)?;
        head.push(byte);
        Ok(byte)
    })
}

impl<R: Read> Reader<R> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// If the file is not a trace, or cannot be read.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(TraceError::Damaged("the magic bytes are wrong"));
        }
        // Bytes of the header so far, for its checksum.
        let mut head = Vec::new();
        let length = noted(&mut input, &mut head)?;
        if length > ABOUT_BYTES_MAX {
            return Err(TraceError::Damaged("the description is too long"));
        }
        let begin = head.len();
        input.by_ref().take(length).read_to_end(&mut head)?;
        let description = String::from_utf8(head[begin..].to_vec());
        let description =
            description.map_err(|_| TraceError::Damaged("the description is not UTF-8"))?;
        if description.len() as u64 != length {
            return Err(TraceError::Damaged("the description is truncated"));
        }
        let columns = noted(&mut input, &mut head)?;
        if columns > COLUMNS_MAX {
            return Err(TraceError::Damaged("too many columns"));
        }
        let mut widths = Vec::new();
        for _ in 0..columns {
            let width = noted(&mut input, &mut head)?;
            widths.push(usize::try_from(width.min(8)).unwrap_or(8));
        }
        let mut sum = [0; 4];
        input.read_exact(&mut sum)?;
        if crc32c::crc32c(&head) != u32::from_le_bytes(sum) {
            return Err(TraceError::Damaged("the checksum of the header is wrong"));
        }
        let (block, last) = (Vec::new(), Vec::new());
        let (position, remaining, total, at_us, ended) = (0, 0, 0, 0, false);
        Ok(Self {
            input,
            about: description,
            widths,
            block,
            position,
            remaining,
            total,
            at_us,
            last,
            ended,
        })
    }

    /// Description that the writer gave.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Widths of the key columns.
    #[must_use]
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// The next operation; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub fn next(&mut self, op: &mut Op) -> Result<Option<(u64, Kind)>, TraceError> {
        if self.remaining == 0 && !self.open_block()? {
            return Ok(None);
        }
        self.remaining -= 1;
        self.at_us = self.at_us.saturating_add(self.number()?);
        let kind = match self.next_byte()? {
            0 => Kind::Write,
            1 => Kind::Read,
            2 => Kind::ScanAhead(0),
            _ => return Err(TraceError::Damaged("an operation of an unknown kind")),
        };
        self.key(&mut op.key)?;
        op.end = None;
        if kind == Kind::ScanAhead(0) {
            let mut end = Vec::new();
            self.key(&mut end)?;
            op.end = Some(end);
        }
        if self.remaining == 0 && self.position != self.block.len() {
            return Err(TraceError::Damaged("a block is longer than its operations"));
        }
        Ok(Some((self.at_us, kind)))
    }

    fn open_block(&mut self) -> Result<bool, TraceError> {
        if self.ended {
            return Ok(false);
        }
        // An empty block ends the trace, followed by the number of all operations.
        let input = &mut self.input;
        let ops = get(|| Ok(byte(input)?))?;
        if ops == 0 {
            let count = get(|| Ok(byte(input)?))?;
            self.ended = true;
            return if count == self.total {
                Ok(false)
            } else {
                Err(TraceError::Damaged("operations are missing"))
            };
        }
        // The length is checked before memory is allocated for it.
        let length = get(|| Ok(byte(input)?))?;
        if length > BLOCK_BYTES_MAX || ops > length {
            return Err(TraceError::Damaged("a block is too long"));
        }
        self.block.clear();
        input.by_ref().take(length).read_to_end(&mut self.block)?;
        if self.block.len() as u64 != length {
            return Err(TraceError::Damaged("a block is truncated"));
        }
        // The checksum covers the block's bytes.
        let mut sum = [0; 4];
        input.read_exact(&mut sum)?;
        if crc32c::crc32c(&self.block) != u32::from_le_bytes(sum) {
            return Err(TraceError::Damaged("the checksum of a block is wrong"));
        }
        (self.position, self.remaining) = (0, ops);
        self.total += ops;
        self.last.clear();
        Ok(true)
    }

    fn next_byte(&mut self) -> Result<u8, TraceError> {
        let byte = self
            .block
            .get(self.position)
            .copied()
            .ok_or(TraceError::Damaged("a block ends early"))?;
        self.position += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let (block, position) = (&self.block, &mut self.position);
        get(|| {
            let byte =
                block.get(*position).copied().ok_or(TraceError::Damaged("a block ends early"))?;
            *position += 1;
            Ok(byte)
        })
    }

    fn key(&mut self, key: &mut Vec<u8>) -> Result<(), TraceError> {
        let broken = || TraceError::Damaged("a key exceeds its block");
        let shared = usize::try_from(self.number()?).map_err(|_| broken())?;
        let more = usize::try_from(self.number()?).map_err(|_| broken())?;
        let head = self.last.get(..shared).ok_or_else(broken)?;
        let end = self.position.checked_add(more).ok_or_else(broken)?;
        let tail = self.block.get(self.position..end).ok_or_else(broken)?;
        key.clear();
        key.extend_from_slice(head);
        key.extend_from_slice(tail);
        self.position = end;
        self.last.clone_from(key);
        Ok(())
    }
}
