//! Full-text index of a row group: of the tokens of its texts, either their rows ([`Inverted`]) or bloom filters.

use std::collections::BTreeSet;

use bytes::Bytes;
use partita_proto::index::{Backend, Fulltext};
use partita_proto::text::needed_tokens;
use roaring::RoaringBitmap;

use crate::index::bloom::Filters;
use crate::index::inverted::Inverted;

/// A decoded index.
#[derive(Debug)]
pub(crate) enum Terms {
    Exact(Fulltext, Inverted),
    Blocks(Fulltext, Filters),
}

impl Terms {
    /// Decodes a body, of which it may keep parts. `Err`: why it is none.
    pub(crate) fn decode(body: Bytes, options: Fulltext) -> Result<Self, String> {
        Ok(match options.backend {
            Backend::Inverted => Self::Exact(options, Inverted::decode(body)?),
            Backend::Bloom(_) => Self::Blocks(options, Filters::decode(&body)?),
        })
    }

    /// Rows that may contain all terms; with `folded`, in lower case. `None` if the index cannot tell.
    pub(crate) fn rows(
        &self,
        terms: &[String],
        folded: bool,
    ) -> Result<Option<RoaringBitmap>, String> {
        let (Self::Exact(options, _) | Self::Blocks(options, _)) = self;
        if options.case_sensitive && folded {
            return Ok(None);
        }
        let tokens_of =
            |term: &String| needed_tokens(term, options.analyzer, !options.case_sensitive);
        let tokens: BTreeSet<String> = terms.iter().filter_map(tokens_of).flatten().collect();
        if tokens.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Blocks(_, filters) => {
                let keys: Vec<Vec<u8>> = tokens.into_iter().map(String::into_bytes).collect();
                Ok(Some(filters.all_of(&keys)))
            }
            Self::Exact(_, postings) => {
                let mut rows: Option<RoaringBitmap> = None;
                for token in tokens {
                    let Some(posting) = postings.of_key(token.as_bytes())? else {
                        return Ok(Some(RoaringBitmap::new()));
                    };
                    rows = Some(match rows {
                        Some(rows) => rows & posting,
                        None => posting,
                    });
                }
                Ok(rows)
            }
        }
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Exact(_, postings) => postings.bytes(),
            Self::Blocks(_, filters) => filters.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::index::{Analyzer, Blooms};
    use partita_proto::text::tokens;

    use super::*;
    use crate::index::bloom::BlockKeys;
    use crate::index::inverted::Postings;

    const TEXTS: [&str; 4] = ["Disk full", "disk error", "我们是中国人", "ERROR: 中国 disk-full"];

    fn built(options: Fulltext) -> Terms {
        let (mut postings, blooms) =
            (Postings::default(), Blooms { granularity: 1, ..Blooms::default() });
        let mut keys = BlockKeys::new(blooms);
        for (row, text) in (0..).zip(TEXTS) {
            tokens(text, options.analyzer, !options.case_sensitive, &mut |token| {
                postings.add(row, token.as_bytes());
                keys.add(row, Some(token.as_bytes())).unwrap();
            });
        }
        let body = match options.backend {
            Backend::Inverted => postings.finish(4).unwrap(),
            Backend::Bloom(_) => keys.finish(4).unwrap(),
        };
        Terms::decode(body.into(), options).unwrap()
    }

    #[test]
    fn rows_are_found_by_the_words_of_terms() {
        let english = |case_sensitive| (Analyzer::English, case_sensitive);
        let chinese = (Analyzer::Chinese, false);
        let unknown: Option<Vec<u32>> = None;
        for ((analyzer, case_sensitive), terms, folded, expected) in [
            (english(false), vec!["disk"], true, Some(vec![0, 1, 3])),
            (english(false), vec!["Disk"], false, Some(vec![0, 1, 3])),
            (english(true), vec!["Disk"], false, Some(vec![0])),
            // A term in lower case says nothing about the words as they are written.
            (english(true), vec!["disk"], true, unknown.clone()),
            (english(false), vec!["disk full"], true, Some(vec![0, 3])),
            (english(false), vec!["disk", "error"], true, Some(vec![1, 3])),
            (english(false), vec!["floppy", "disk"], true, Some(vec![])),
            (english(false), vec!["--"], true, unknown.clone()),
            (english(false), vec!["--", "full"], true, Some(vec![0, 3])),
            (english(false), vec!["中国"], true, unknown.clone()),
            (english(false), vec![], true, unknown),
            (chinese, vec!["中国"], true, Some(vec![2, 3])),
            (chinese, vec!["中国人"], true, Some(vec![2])),
            (chinese, vec!["国"], true, Some(vec![2, 3])),
        ] {
            let terms: Vec<String> = terms.into_iter().map(str::to_owned).collect();
            for backend in [Backend::Inverted, Backend::Bloom(Blooms::default())] {
                let index = built(Fulltext { analyzer, case_sensitive, backend });
                let rows = index.rows(&terms, folded).unwrap();
                let rows = rows.map(|rows| rows.iter().collect::<Vec<u32>>());
                assert_eq!(rows, expected, "{terms:?} by {index:?}");
                assert!(index.bytes() > 0);
            }
        }
    }
}
