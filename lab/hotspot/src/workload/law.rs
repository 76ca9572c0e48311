//! Distribution of a whole key: its parts one after another, each independent of the parts before.
//!
//! Invariants: [`Law::below`] never falls as keys grow, and is 0 for the empty key; a truncated key is the lower
//! bound of all keys that begin with it.

use partita_load::Random;

use super::part::Part;

/// See the head of the file.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    pub(crate) parts: Vec<Part>,
    /// Width of each column, in bytes.
    pub(crate) widths: Vec<usize>,
}

impl Law {
    /// True if the distribution is constant over time, as far as cuts of the first part show.
    pub(crate) fn still(&self) -> bool {
        self.parts.iter().all(Part::still)
    }

    /// Share of operations on keys below this one, at a time.
    pub(crate) fn below(&self, at_us: u64, key: &[u8]) -> f64 {
        let mut columns = [0; 8];
        let complete = decode(key, &self.widths, &mut columns);
        let (mut sum, mut weight, mut index) = (0.0, 1.0, 0);
        for part in &self.parts {
            if index > complete {
                break;
            }
            let end = index + part.columns();
            let prefix = &columns[index..end.min(complete.max(index + 1))];
            let (share_below, share_at) = part.before(at_us, prefix);
            sum += weight * share_below;
            if share_at <= 0.0 || end > complete {
                break;
            }
            weight *= share_at;
            index = end;
        }
        sum.clamp(0.0, 1.0)
    }

    /// Draws a key whose share of all operations below it lies between two shares.
    pub(crate) fn draw(
        &self,
        at_us: u64,
        low: f64,
        high: f64,
        random: &mut Random,
        key: &mut Vec<u8>,
    ) {
        let mut columns = Vec::with_capacity(self.widths.len());
        let mut u = (low + random.unit() * (high - low)).min(1.0 - f64::EPSILON);
        for part in &self.parts {
            u = part.place(at_us, u, &mut columns).unwrap_or_else(|| random.unit());
        }
        encode(&columns, &self.widths, key);
    }
}

/// Decodes the columns of a key, truncated ones filled with zeros; returns the number of complete ones.
fn decode(key: &[u8], widths: &[usize], columns: &mut [u64; 8]) -> usize {
    let mut offset = 0;
    let mut complete = 0;
    for (column, width) in columns.iter_mut().zip(widths) {
        let bytes = &key[offset.min(key.len())..(offset + width).min(key.len())];
        *column = bytes
            .iter()
            .chain(std::iter::repeat(&0))
            .take(*width)
            .fold(0, |value, byte| value << 8 | u64::from(*byte));
        complete += usize::from(bytes.len() == *width);
        offset += width;
    }
    complete
}

/// Encodes columns so that bytes compare like values; fewer columns than widths give a bound.
pub(crate) fn encode(columns: &[u64], widths: &[usize], key: &mut Vec<u8>) {
    key.clear();
    for (column, width) in columns.iter().zip(widths) {
        key.extend_from_slice(&column.to_be_bytes()[8 - width..]);
    }
}

/// The complete columns of a key.
pub(crate) fn columns_of(key: &[u8], widths: &[usize]) -> Vec<u64> {
    let mut columns = [0; 8];
    let complete = decode(key, widths, &mut columns);
    columns[..complete].to_vec()
}
