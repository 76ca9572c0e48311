//! Bounds on the work of sqlparser.
//!
//! The parser tries one alternative after another and backtracks where one fails. Where alternatives nest, each level
//! doubles the work: `abs(abs(abs(..` takes minutes at 26 levels. Two measures prevent that:
//!
//! - **memoization**: an expression at a given token is parsed at most twice. The second result is kept and reused from
//!   the third time on (a packrat parser, Ford 2002, for one rule of the grammar);
//! - **a budget**: the parser calls its dialect at each step, and each call takes one step from the budget. Copying a
//!   kept result takes a step for each of its tokens: where alternatives nest, so do the copies. When the budget is
//!   used up, or the statement is interrupted, the parse ends, by unwinding where the parser offers no other way.
//!
//! Invariant: the budget in force is that of the innermost [`within`] on this thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use partita_lanes::Reason;

use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};

/// Maximum depth of nested expressions.
const DEPTH_MAX: usize = 64;
/// Maximum depth of nested expressions that are parsed on the thread that received the text.
const QUICK_DEPTH_MAX: usize = 24;
/// Depth of a query around an expression, in levels of sqlparser. The bound of expressions must be reached first:
/// sqlparser may mistake its own error for that of another alternative (it takes the keyword of a CASE that nests too
/// deeply for the name of a column).
const QUERIES_MAX: usize = 6;
/// Steps between two checks for an interruption.
const STEPS_PER_CHECK: u64 = 1024;

/// A number of steps that a parse may take.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Steps for each token.
    per_token: u64,
    /// Steps in addition, whatever the length.
    base: u64,
}

/// Enough for every statement that is not written to be slow.
const FULL: Budget = Budget { per_token: 200, base: 20_000 };
/// A fraction of a millisecond's work; enough for most short statements.
const QUICK: Budget = Budget { per_token: 20, base: 500 };

impl Budget {
    fn steps(self, tokens: usize) -> u64 {
        self.base.saturating_add(self.per_token.saturating_mul(tokens as u64))
    }
}

/// An end of a parse that has nothing to do with the grammar.
#[derive(Debug)]
enum Stop {
    Exhausted,
    TooDeep,
    Interrupted(Reason),
}

/// Memory of the expression that begins at a token.
#[derive(Default)]
enum Known {
    /// It was parsed once; the result was not kept.
    #[default]
    Seen,
    /// The result, and the index of the token after it.
    Read(Box<Result<Expr, ParserError>>, usize),
}

/// One parse.
struct Effort {
    remaining: u64,
    known: HashMap<usize, Known>,
    /// True if the next expression is parsed by the parser itself: the dialect called it.
    pass: bool,
    /// Depth of the current expression.
    depth: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Effort>> = const { RefCell::new(None) };
    /// Set within [`quickly`]: true if all budgets have sufficed.
    static QUICKLY: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The result of a parse under a budget.
pub(super) enum Outcome<T> {
    /// The parser's own result.
    Done(T),
    /// The budget is used up.
    Exhausted,
    /// Expressions or queries are nested more deeply than [`depth_max`].
    TooDeep,
    /// The statement was cancelled or timed out.
    Interrupted(Reason),
}

impl<T> Outcome<T> {
    /// The result, or the error of a parse that did not end.
    pub(super) fn complete(self) -> Result<T, SqlError> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Exhausted => Err(too_complex()),
            Self::TooDeep => Err(ParserError::RecursionLimitExceeded.into()),
            Self::Interrupted(reason) => Err(reason.into()),
        }
    }
}

/// The error of a statement that takes too much work to parse.
pub(super) fn too_complex() -> SqlError {
    SqlError::new(STATEMENT_TOO_COMPLEX, "the statement is too complex to be parsed")
        .with_hint("nest fewer expressions, or split the statement")
}

/// Parses with small budgets; `None` when one of them did not suffice.
pub(super) fn quickly<T>(parse: impl FnOnce() -> T) -> Option<T> {
    let outer = QUICKLY.replace(Some(true));
    let parsed = parse();
    let sufficed = QUICKLY.replace(outer) == Some(true);
    sufficed.then_some(parsed)
}

/// The maximum depth of expressions and queries together; sqlparser uses one set of stack frames per level.
pub(super) fn depth_max() -> usize {
    expressions_max() + QUERIES_MAX
}

/// The maximum depth of nested expressions.
fn expressions_max() -> usize {
    if QUICKLY.get().is_some() { QUICK_DEPTH_MAX } else { DEPTH_MAX }
}

/// Records that a bound of [`quickly`] did not suffice.
pub(super) fn insufficient() {
    if QUICKLY.get().is_some() {
        QUICKLY.set(Some(false));
    }
}

/// Parses under a budget for this number of tokens.
pub(super) fn within<T>(tokens: usize, parse: impl FnOnce() -> T) -> Outcome<T> {
    let budget = if QUICKLY.get().is_some() { QUICK } else { FULL };
    let effort =
        Effort { remaining: budget.steps(tokens), known: HashMap::new(), pass: false, depth: 0 };
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
                Stop::TooDeep => {
                    insufficient();
                    Outcome::TooDeep
                }
                Stop::Interrupted(reason) => Outcome::Interrupted(reason),
            },
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Counts one step of the parser. When the budget is used up, unwinds to [`within`].
pub(super) fn step() {
    steps(1);
}

/// Counts a number of steps of the parser.
fn steps(count: usize) {
    let stop = CURRENT.with_borrow_mut(|current| {
        let effort = current.as_mut()?;
        let previous = effort.remaining;
        effort.remaining = previous.saturating_sub(count as u64);
        if effort.remaining == 0 {
            return Some(Stop::Exhausted);
        }
        // True once for each multiple that is passed.
        if previous.div_ceil(STEPS_PER_CHECK) != effort.remaining.div_ceil(STEPS_PER_CHECK) {
            return partita_lanes::interrupt::check().err().map(Stop::Interrupted);
        }
        None
    });
    if let Some(stop) = stop {
        // No panic message: this is no defect, and `within` catches it.
        resume_unwind(Box::new(stop));
    }
}

/// Parses the expression that begins at the next token; `None` when the parser has to do it itself.
pub(super) fn prefix(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    step();
    let start = parser.index();
    // The parser calls the dialect again for the expression that the dialect made it parse.
    let passes = CURRENT.with_borrow_mut(|current| {
        current.as_mut().is_none_or(|effort| std::mem::take(&mut effort.pass))
    });
    if passes {
        return None;
    }
    let kept_end = CURRENT.with_borrow(|current| match current.as_ref()?.known.get(&start)? {
        Known::Read(_, end) => Some(*end),
        Known::Seen => None,
    });
    Some(match kept_end {
        Some(end) => copy(parser, start, end),
        None => read(parser, start),
    })
}

/// Parses an expression with the parser, and keeps the result of the second time.
fn read(parser: &mut Parser<'_>, start: usize) -> Result<Expr, ParserError> {
    let (is_second, depth) = CURRENT.with_borrow_mut(|current| {
        let Some(effort) = current else { return (false, 0) };
        effort.pass = true;
        effort.depth += 1;
        (effort.known.insert(start, Known::Seen).is_some(), effort.depth)
    });
    let result = if depth > expressions_max() {
        Err(ParserError::RecursionLimitExceeded)
    } else {
        parser.parse_prefix()
    };
    if matches!(result, Err(ParserError::RecursionLimitExceeded)) {
        // Another alternative would be about as deep, and would try everything below again.
        resume_unwind(Box::new(Stop::TooDeep));
    }
    CURRENT.with_borrow_mut(|current| {
        if let Some(effort) = current {
            effort.depth -= 1;
        }
    });
    if is_second {
        let end = parser.index();
        steps(end.saturating_sub(start));
        CURRENT.with_borrow_mut(|current| {
            if let Some(effort) = current {
                effort.known.insert(start, Known::Read(Box::new(result.clone()), end));
            }
        });
    }
    result
}

/// Copies a kept result, and skips its tokens.
fn copy(parser: &mut Parser<'_>, start: usize, end: usize) -> Result<Expr, ParserError> {
    steps(end.saturating_sub(start));
    while parser.index() < end {
        parser.next_token_no_skip();
    }
    CURRENT.with_borrow(|current| {
        match current.as_ref().and_then(|effort| effort.known.get(&start)) {
            Some(Known::Read(result, _)) => (**result).clone(),
            _ => Err(ParserError::ParserError("a kept expression is gone".to_owned())),
        }
    })
}
