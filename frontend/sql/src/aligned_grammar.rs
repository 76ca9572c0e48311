//! GreptimeDB's RANGE behind an aggregate, and its clause ALIGN, as calls that sqlparser can read.
//!
//! ```text
//!   avg(v) RANGE '10s' FILL PREV               "range of"(avg(v), '10s', "prev")
//!   ALIGN '5s' TO NOW BY (host) FILL NULL      GROUP BY "aligned by"('5s', "now", NULL, "listed", host)
//! ```
//!
//! `aligned.rs` makes ordinary SQL of the calls. Both words are names elsewhere, and RANGE also begins the frame of a
//! window: so a text without ALIGN and a width stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use partita_worker::functions::is_aggregate;

/// Name of the function that stands for RANGE: of an operand, a width and optionally what fills gaps.
pub(super) const RANGE_OF: &str = "range of";
/// Name of the function that stands for ALIGN: of a width, an origin, what fills gaps, one of the two words that follow,
/// and the keys.
pub(super) const ALIGNED_BY: &str = "aligned by";
/// Keys follow, which may be none.
pub(super) const LISTED: &str = "listed";
/// The keys are those of the table.
pub(super) const OF_TABLE: &str = "of table";
/// The origin is the beginning of 1970.
pub(super) const CALENDAR: &str = "calendar";
/// The origin is the time of the statement.
pub(super) const NOW: &str = "now";
/// A gap has the value before it.
pub(super) const PREV: &str = "prev";
/// A gap lies on the line between its neighbours.
pub(super) const LINEAR: &str = "linear";
/// There are no rows for gaps.
pub(super) const NOTHING: &str = "nothing";

/// Replaces RANGE and ALIGN of a query. The new tokens have the places of these words.
pub(super) fn written_out(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, "align")) {
        return tokens;
    }
    let words = Words::of(&tokens);
    // Predicates of statements that change rows are not read as queries are.
    if words.is(0, "delete") || words.is(0, "update") {
        return tokens;
    }
    let clauses: Vec<Clause> =
        (0..words.places.len()).filter_map(|place| words.align(place)).collect();
    let mut edits = Edits::default();
    for clause in &clauses {
        clause.write(&words, &mut edits);
    }
    if !clauses.is_empty() {
        for aggregate in (0..words.places.len()).filter_map(|place| words.range(place)) {
            aggregate.write(&words, &mut edits);
        }
    }
    edits.applied(&tokens)
}

/// The tokens that are not blank.
struct Words<'a> {
    tokens: &'a [TokenWithSpan],
    /// Their places among all tokens.
    places: Vec<usize>,
}

/// An operand with RANGE, by the numbers of its words.
struct Ranged {
    start: usize,
    /// The word RANGE.
    range: usize,
    /// The word FILL.
    fill: Option<usize>,
    /// The word behind the last one.
    end: usize,
}

/// A clause ALIGN, by the numbers of its words.
struct Clause {
    align: usize,
    width: Range<usize>,
    origin: Option<Range<usize>>,
    /// What is within the parentheses of BY.
    keys: Option<Range<usize>>,
    fill: Option<Range<usize>>,
    end: usize,
}

impl<'a> Words<'a> {
    fn of(tokens: &'a [TokenWithSpan]) -> Self {
        let numbered = tokens.iter().enumerate();
        let places = numbered.filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
        Self { tokens, places: places.map(|(place, _)| place).collect() }
    }

    fn token(&self, at: usize) -> Option<&'a Token> {
        self.places.get(at).and_then(|place| self.tokens.get(*place)).map(|token| &token.token)
    }

    fn is(&self, at: usize, word: &str) -> bool {
        self.token(at).is_some_and(|token| is_word(token, word))
    }

    fn is_text(&self, at: usize) -> bool {
        matches!(self.token(at), Some(Token::SingleQuotedString(_)))
    }

    /// The closing parenthesis of an opening one.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in open..self.places.len() {
            match self.token(at)? {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// The opening parenthesis of a closing one.
    fn opening(&self, close: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in (0..=close).rev() {
            match self.token(at)? {
                Token::RParen => depth += 1,
                Token::LParen => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// End of a width: a text, an interval, or an expression in parentheses.
    fn width_end(&self, at: usize) -> Option<usize> {
        match self.token(at)? {
            Token::SingleQuotedString(_) => Some(at + 1),
            Token::LParen => self.closing(at).map(|close| close + 1),
            token if is_word(token, "interval") && self.is_text(at + 1) => Some(at + 2),
            _ => None,
        }
    }

    /// The words behind FILL.
    fn filling(&self, at: usize) -> Option<Range<usize>> {
        if !self.is(at, "fill") {
            return None;
        }
        let start = at + 1;
        match self.token(start)? {
            Token::SingleQuotedString(_) | Token::Number(..) => Some(start..start + 1),
            Token::Minus if matches!(self.token(start + 1), Some(Token::Number(..))) => {
                Some(start..start + 2)
            }
            token => [PREV, LINEAR, "null"]
                .iter()
                .any(|word| is_word(token, word))
                .then_some(start..start + 1),
        }
    }

    /// Start of the operand that ends with a parenthesis: a call with its clauses, or what is in the parentheses.
    fn operand(&self, close: usize) -> Option<usize> {
        let mut start = self.opening(close)?;
        loop {
            let is_behind_call = |words: usize| {
                start.checked_sub(words + 1).filter(|end| self.token(*end) == Some(&Token::RParen))
            };
            let call_end = match start.checked_sub(1) {
                Some(at) if self.is(at, "filter") => is_behind_call(1),
                Some(at) if self.is(at, "group") && at > 0 && self.is(at - 1, "within") => {
                    is_behind_call(2)
                }
                _ => None,
            };
            let Some(end) = call_end else { break };
            start = self.opening(end)?;
        }
        let name = start.checked_sub(1).filter(|place| match self.token(*place) {
            Some(Token::Word(word)) => {
                word.keyword == Keyword::NoKeyword || is_aggregate(&word.value.to_ascii_lowercase())
            }
            _ => false,
        });
        Some(name.unwrap_or(start))
    }

    fn range(&self, at: usize) -> Option<Ranged> {
        if !self.is(at, "range") {
            return None;
        }
        let close = at.checked_sub(1).filter(|at| self.token(*at) == Some(&Token::RParen))?;
        let width_end = self.width_end(at + 1)?;
        // The frame of a window.
        if self.is(width_end, "preceding") || self.is(width_end, "following") {
            return None;
        }
        let filling = self.filling(width_end);
        let fill = filling.as_ref().map(|_| width_end);
        let end = filling.map_or(width_end, |words| words.end);
        Some(Ranged { start: self.operand(close)?, range: at, fill, end })
    }

    fn align(&self, at: usize) -> Option<Clause> {
        if !self.is(at, "align") {
            return None;
        }
        // A name, or the name of a function.
        let is_name = match at.checked_sub(1).and_then(|before| self.token(before))? {
            Token::Comma | Token::Period | Token::LParen => true,
            token => ["as", "from", "join", "select"].iter().any(|word| is_word(token, word)),
        };
        if is_name {
            return None;
        }
        let width = at + 1..self.width_end(at + 1)?;
        let mut end = width.end;
        let mut origin = None;
        if self.is(end, "to") {
            let start = end + 1;
            end = match self.token(start)? {
                Token::LParen => self.closing(start)? + 1,
                _ => start + 1,
            };
            origin = Some(start..end);
        }
        let mut keys = None;
        if self.is(end, "by") && self.token(end + 1) == Some(&Token::LParen) {
            let close = self.closing(end + 1)?;
            keys = Some(end + 2..close);
            end = close + 1;
        }
        let fill = self.filling(end);
        let end = fill.as_ref().map_or(end, |words| words.end);
        Some(Clause { align: at, width, origin, keys, fill, end })
    }
}

impl Ranged {
    fn write(&self, words: &Words<'_>, edits: &mut Edits) {
        let [start, range, last] =
            [self.start, self.range, self.end - 1].map(|place| words.places[place]);
        edits.before.entry(start).or_default().extend([quoted(RANGE_OF), Token::LParen]);
        edits.instead.insert(range, vec![Token::Comma]);
        if let Some(fill) = self.fill {
            edits.instead.insert(words.places[fill], vec![Token::Comma]);
        }
        edits.behind.entry(last).or_default().push(Token::RParen);
    }
}

impl Clause {
    fn write(&self, words: &Words<'_>, edits: &mut Edits) {
        let tokens_of = |range: &Range<usize>| {
            range.clone().filter_map(|place| words.token(place).cloned()).collect::<Vec<_>>()
        };
        let mut call = vec![Token::make_keyword("GROUP"), Token::make_keyword("BY")];
        call.extend([quoted(ALIGNED_BY), Token::LParen]);
        call.extend(tokens_of(&self.width));
        call.push(Token::Comma);
        call.extend(self.origin.as_ref().map_or_else(|| vec![quoted(CALENDAR)], tokens_of));
        call.push(Token::Comma);
        call.extend(self.fill.as_ref().map_or_else(|| vec![quoted(NOTHING)], tokens_of));
        call.push(Token::Comma);
        match self.keys.as_ref().map(tokens_of) {
            None => call.push(quoted(OF_TABLE)),
            Some(keys) => {
                call.push(quoted(LISTED));
                if !keys.is_empty() {
                    call.push(Token::Comma);
                    call.extend(keys);
                }
            }
        }
        call.push(Token::RParen);
        edits.instead.insert(words.places[self.align], call);
        edits.dropped.extend((self.align + 1..self.end).map(|place| words.places[place]));
    }
}

/// Returns true if a token is this unquoted word.
fn is_word(token: &Token, name: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name))
}

fn quoted(name: &str) -> Token {
    Token::make_word(name, Some('"'))
}

/// What changes, by the places of tokens.
#[derive(Default)]
struct Edits {
    before: BTreeMap<usize, Vec<Token>>,
    instead: BTreeMap<usize, Vec<Token>>,
    behind: BTreeMap<usize, Vec<Token>>,
    dropped: BTreeSet<usize>,
}

impl Edits {
    fn applied(mut self, tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
        let mut written = Vec::with_capacity(tokens.len());
        for (place, token) in tokens.iter().enumerate() {
            let mut pieces = self.before.remove(&place).unwrap_or_default();
            match self.instead.remove(&place) {
                Some(replacement) => pieces.extend(replacement),
                None if self.dropped.contains(&place) => {}
                None => pieces.push(token.token.clone()),
            }
            pieces.extend(self.behind.remove(&place).unwrap_or_default());
            written.extend(pieces.into_iter().map(|new| TokenWithSpan::new(new, token.span)));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::written_out;

    fn written(sql: &str) -> String {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location().unwrap();
        let text: String =
            written_out(tokens).iter().map(|token| token.token.to_string()).collect();
        // Blanks around words that are gone stay.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn both_words_become_calls() {
        for (sql, expected) in [
            (
                "SELECT ts, avg(v) RANGE '10s' FROM t ALIGN '5s'",
                "SELECT ts, \"range of\"(avg(v) , '10s') FROM t \
                 GROUPBY\"aligned by\"('5s',\"calendar\",\"nothing\",\"of table\")",
            ),
            (
                "SELECT floor(min(v) RANGE '5m' FILL PREV) FROM t ALIGN '5m' TO NOW BY (host, a + 1) FILL -1 ORDER BY 1",
                "SELECT floor(\"range of\"(min(v) , '5m' , PREV)) FROM t \
                 GROUPBY\"aligned by\"('5m',NOW,-1,\"listed\",host,a+1) ORDER BY 1",
            ),
            (
                "SELECT (min(v) + max(v)) RANGE (INTERVAL '1' day) + 1 FROM t ALIGN (INTERVAL '1' day) BY ()",
                "SELECT \"range of\"((min(v) + max(v)) , (INTERVAL '1' day)) + 1 FROM t \
                 GROUPBY\"aligned by\"((INTERVAL'1'day),\"calendar\",\"nothing\",\"listed\")",
            ),
            (
                "SELECT p(0.5) WITHIN GROUP (ORDER BY v) FILTER (WHERE b) RANGE '5s' FROM t ALIGN '5s' TO '2026-01-01'",
                "SELECT \"range of\"(p(0.5) WITHIN GROUP (ORDER BY v) FILTER (WHERE b) , '5s') FROM t \
                 GROUPBY\"aligned by\"('5s','2026-01-01',\"nothing\",\"of table\")",
            ),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }

    #[test]
    fn names_and_frames_stay() {
        for sql in [
            "SELECT align, 'align' AS x FROM t AS align",
            "SELECT align('5s') FROM t",
            "SELECT sum(v) OVER (ORDER BY f(ts) RANGE '1 h' PRECEDING) FROM t",
            "SELECT sum(v) OVER (ORDER BY f(ts) RANGE '1 h' PRECEDING), align FROM t",
            "DELETE FROM t WHERE k IN (SELECT max(k) RANGE '5s' FROM t ALIGN '5s')",
        ] {
            assert_eq!(written(sql), sql);
        }
    }
}
