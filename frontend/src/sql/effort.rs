//! Bounds on the work of sqlparser.
//!
//! The parser tries one reading after another and goes back where one fails. Where readings nest, each level doubles
//! the work: `abs(abs(abs(..` takes minutes at twenty-six levels. Two things keep that from happening:
//!
//! - **memory**: what begins at a token is read at most twice. The second time its result is kept, and from the third
//!   time on it is taken from there (a packrat parser, Ford 2002, for one rule of the grammar);
//! - **a budget**: the parser asks its dialect at each step, and each of these questions takes from the budget. When it
//!   is used up, or the statement is interrupted, the parse ends, by unwinding where the parser offers no other way.
//!
//! Invariant: the budget in force is that of the innermost [`within`] on this thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use partita_lanes::Reason;

use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};

/// Depth of nesting that is read at all.
const DEPTH_MAX: usize = 64;
/// Depth of nesting that is read on the thread that received the text.
const QUICK_DEPTH_MAX: usize = 24;
/// Steps between two checks for an interruption.
const STEPS_PER_CHECK: u64 = 1024;

/// A number of steps that a parse may take.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Steps for each token.
    per_token: u64,
    /// Steps beyond those.
    base: u64,
}

/// Enough for every statement that is not made to be slow.
const FULL: Budget = Budget { per_token: 200, base: 20_000 };
/// A fraction of a millisecond's work; enough for most short statements.
const QUICK: Budget = Budget { per_token: 20, base: 500 };

impl Budget {
    fn steps(self, tokens: usize) -> u64 {
        self.base.saturating_add(self.per_token.saturating_mul(tokens as u64))
    }
}

/// The end of a parse that is not the grammar's.
#[derive(Debug)]
enum Stop {
    Exhausted,
    Interrupted(Reason),
}

/// Readings of the expression that begins at a token.
#[derive(Default)]
enum Known {
    /// It was read once.
    #[default]
    Seen,
    /// The result, and the index of the token behind it.
    Read(Box<Result<Expr, ParserError>>, usize),
}

/// One parse.
struct Effort {
    remaining: u64,
    known: HashMap<usize, Known>,
    /// The next expression is read by the parser itself: the dialect asked for it.
    pass: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Effort>> = const { RefCell::new(None) };
    /// Set within [`quickly`]: whether all budgets sufficed so far.
    static QUICKLY: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The result of a parse under a budget.
pub(super) enum Outcome<T> {
    /// The parser's own result.
    Done(T),
    /// The budget is used up.
    Exhausted,
    /// The statement is to end.
    Interrupted(Reason),
}

impl<T> Outcome<T> {
    /// The result, or the error that says why there is none.
    pub(super) fn complete(self) -> Result<T, SqlError> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Exhausted => Err(too_complex()),
            Self::Interrupted(reason) => Err(reason.into()),
        }
    }
}

/// The error of a statement that takes too much work to read.
pub(super) fn too_complex() -> SqlError {
    SqlError::new(STATEMENT_TOO_COMPLEX, "the statement is too complex to be parsed")
        .with_hint("nest fewer expressions, or split the statement")
}

/// Parses with small budgets; `None` when one of them did not suffice.
pub(super) fn quickly<T>(parse: impl FnOnce() -> T) -> Option<T> {
    let before = QUICKLY.replace(Some(true));
    let parsed = parse();
    let sufficed = QUICKLY.replace(before) == Some(true);
    sufficed.then_some(parsed)
}

/// The depth to which expressions and queries may nest; sqlparser keeps one stack frame set per level.
pub(super) fn depth_max() -> usize {
    if QUICKLY.get().is_some() { QUICK_DEPTH_MAX } else { DEPTH_MAX }
}

/// Notes that a bound of [`quickly`] did not suffice.
pub(super) fn insufficient() {
    if QUICKLY.get().is_some() {
        QUICKLY.set(Some(false));
    }
}

/// Parses so many tokens under a budget.
pub(super) fn within<T>(tokens: usize, parse: impl FnOnce() -> T) -> Outcome<T> {
    let budget = if QUICKLY.get().is_some() { QUICK } else { FULL };
    let effort = Effort { remaining: budget.steps(tokens), known: HashMap::new(), pass: false };
    let outer = CURRENT.replace(Some(effort));
    let parsed = catch_unwind(AssertUnwindSafe(parse));
    CURRENT.set(outer);
    match parsed {
        Ok(value) => Outcome::Done(value),
        Err(panic) => match panic.downcast::<Stop>() {
            Ok(stop) => match *stop {
                Stop::Exhausted => {
                    insufficient();
                    Outcome::Exhausted
                }
                Stop::Interrupted(reason) => Outcome::Interrupted(reason),
            },
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Counts one step of the parser. When there are no more the parser's call unwinds up to [`within`].
pub(super) fn step() {
    let stop = CURRENT.with_borrow_mut(|current| {
        let effort = current.as_mut()?;
        effort.remaining = effort.remaining.saturating_sub(1);
        if effort.remaining == 0 {
            return Some(Stop::Exhausted);
        }
        if effort.remaining.is_multiple_of(STEPS_PER_CHECK) {
            return partita_lanes::interrupt::check().err().map(Stop::Interrupted);
        }
        None
    });
    if let Some(stop) = stop {
        // No message: this is no defect, and `within` takes it.
        resume_unwind(Box::new(stop));
    }
}

/// A way to read an expression.
enum Way {
    /// The parser reads it.
    Parser,
    /// The parser reads it, and the result is kept.
    Keep,
    /// The result is known, and the index of the token behind it.
    Known(Box<Result<Expr, ParserError>>, usize),
}

/// Reads the expression that begins at the next token; `None` when the parser has to do that itself.
pub(super) fn prefix(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    step();
    let start = parser.index();
    let way = CURRENT.with_borrow_mut(|current| {
        let Some(effort) = current.as_mut() else { return Way::Parser };
        if std::mem::take(&mut effort.pass) {
            return Way::Parser;
        }
        match effort.known.get(&start) {
            None => {
                effort.known.insert(start, Known::Seen);
                Way::Parser
            }
            Some(Known::Seen) => {
                effort.pass = true;
                Way::Keep
            }
            Some(Known::Read(result, end)) => Way::Known(result.clone(), *end),
        }
    });
    match way {
        Way::Parser => None,
        Way::Keep => {
            let result = parser.parse_prefix();
            let end = parser.index();
            // How deep the parser is differs from reading to reading.
            if !matches!(result, Err(ParserError::RecursionLimitExceeded)) {
                CURRENT.with_borrow_mut(|current| {
                    if let Some(effort) = current {
                        effort.known.insert(start, Known::Read(Box::new(result.clone()), end));
                    }
                });
            }
            Some(result)
        }
        Way::Known(result, end) => {
            while parser.index() < end {
                parser.next_token_no_skip();
            }
            Some(*result)
        }
    }
}
