//! `@>`: whether a value of JSONB has all parts of another one.
//!
//! ```text
//!   [1, [2, 3], {"a": 1}]  @>  [[3], 1]     each part on the right is in some element on the left
//!   {"a": [1, 2], "b": 3}  @>  {"a": [2]}   each member on the right is in the member with its key
//! ```
//!
//! An element that equals a part is found by its hash, so that long arrays of much the same elements are compared in
//! about the time that it takes to read them. A container that equals no element can still be in any of them, and is
//! compared with each: at worst that takes the product of both lengths.
//!
//! Invariants:
//! - an array is hashed at most once, however many parts are looked for in it;
//! - the statement is checked for an interrupt every [`STEPS`] comparisons.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::mem::discriminant;
use std::rc::Rc;

use partita_lanes::interrupt;

use super::normal::{Value, significant};
use crate::error::SqlError;

/// Number of elements up to which an array is not hashed, and of parts that are looked for in a longer one before it is.
const COMPARED_MAX: usize = 16;
/// Comparisons between two checks for an interrupt.
const STEPS: u32 = 1 << 12;

/// True if `value @> part`: an array has the other one's elements, an object its members; parts of both kinds contain
/// each other likewise.
///
/// # Errors
/// 57014 when the statement is interrupted.
pub(super) fn contains(value: &Value<'_>, part: &Value<'_>) -> Result<bool, SqlError> {
    match value {
        // As an exception, an array contains a single value.
        Value::Array(elements) if !part.is_container() => {
            Ok(elements.iter().any(|element| element.equals(part)))
        }
        _ => Search::default().has_parts(value, part),
    }
}

/// Elements of an array by the hashes of their values.
type Hashed<'v> = HashMap<u64, &'v Value<'v>>;

/// A long array of the value that is searched.
#[derive(Default)]
struct LongArray<'v> {
    /// Number of parts that have been looked for in it.
    parts: usize,
    hashed: Option<Rc<Hashed<'v>>>,
}

/// Search for the parts of a value in another one.
#[derive(Default)]
struct Search<'v> {
    steps: u32,
    state: RandomState,
    /// Long arrays by the addresses of their first elements.
    arrays: HashMap<*const Value<'v>, LongArray<'v>>,
}

impl<'v> Search<'v> {
    fn step(&mut self) -> Result<(), SqlError> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS) {
            interrupt::check()?;
        }
        Ok(())
    }

    fn has_parts(&mut self, value: &'v Value<'v>, part: &Value<'_>) -> Result<bool, SqlError> {
        self.step()?;
        match (value, part) {
            (Value::Array(elements), Value::Array(parts)) => self.has_elements(elements, parts),
            (Value::Object(_), Value::Object(parts)) => {
                for (key, part) in parts {
                    let Some(member) = value.member(key) else { return Ok(false) };
                    if !self.has_parts(member, part)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(value.equals(part)),
        }
    }

    /// True if each part is in some element.
    fn has_elements(
        &mut self,
        elements: &'v [Value<'v>],
        parts: &[Value<'_>],
    ) -> Result<bool, SqlError> {
        let hashed = self.hashed(elements, parts.len())?;
        for part in parts {
            let is_found = match &hashed {
                Some(hashed) => {
                    let candidate = hashed.get(&self.hash_of(part)?);
                    // A single value is in an element that equals it only. Other values may have the same hash.
                    match candidate {
                        None if !part.is_container() => false,
                        Some(element) if element.equals(part) => true,
                        _ => self.is_in_some(elements, part)?,
                    }
                }
                None => self.is_in_some(elements, part)?,
            };
            if !is_found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_in_some(
        &mut self,
        elements: &'v [Value<'v>],
        part: &Value<'_>,
    ) -> Result<bool, SqlError> {
        for element in elements {
            if self.has_parts(element, part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The elements of an array in which `parts` more parts are looked for; `None` while each is compared with each.
    fn hashed(
        &mut self,
        elements: &'v [Value<'v>],
        parts: usize,
    ) -> Result<Option<Rc<Hashed<'v>>>, SqlError> {
        if elements.len() <= COMPARED_MAX {
            return Ok(None);
        }
        let array = self.arrays.entry(elements.as_ptr()).or_default();
        array.parts = array.parts.saturating_add(parts);
        if array.parts <= COMPARED_MAX || array.hashed.is_some() {
            return Ok(array.hashed.as_ref().map(Rc::clone));
        }
        let mut hashed = HashMap::with_capacity(elements.len());
        for element in elements {
            hashed.insert(self.hash_of(element)?, element);
        }
        let hashed = Rc::new(hashed);
        self.arrays.entry(elements.as_ptr()).or_default().hashed = Some(Rc::clone(&hashed));
        Ok(Some(hashed))
    }

    /// A hash that is the same for equal values.
    fn hash_of(&mut self, value: &Value<'_>) -> Result<u64, SqlError> {
        let mut hasher = self.state.build_hasher();
        self.write_hash(value, &mut hasher)?;
        Ok(hasher.finish())
    }

    fn write_hash(
        &mut self,
        value: &Value<'_>,
        hasher: &mut DefaultHasher,
    ) -> Result<(), SqlError> {
        self.step()?;
        discriminant(value).hash(hasher);
        match value {
            Value::Null => {}
            Value::Bool(truth) => truth.hash(hasher),
            Value::Number(digits) => significant(digits).hash(hasher),
            Value::String(text) => text.hash(hasher),
            Value::Array(elements) => {
                elements.len().hash(hasher);
                for element in elements {
                    self.write_hash(element, hasher)?;
                }
            }
            Value::Object(members) => {
                members.len().hash(hasher);
                for (key, member) in members {
                    key.hash(hasher);
                    self.write_hash(member, hasher)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use partita_lanes::{LaneOptions, Lanes, Reason};
    use tokio::runtime::Handle;

    use super::*;

    fn holds(left: &str, right: &str) -> bool {
        contains(&Value::read(left).unwrap(), &Value::read(right).unwrap()).unwrap()
    }

    /// An array of what is written of each number.
    fn array(numbers: Range<u32>, write: impl Fn(u32) -> String) -> String {
        let elements: Vec<String> = numbers.map(write).collect();
        format!("[{}]", elements.join(", "))
    }

    #[test]
    fn a_value_contains_others_as_in_postgresql() {
        for (left, right, is_contained) in [
            ("{\"a\":1,\"b\":2}", "{\"b\":2.0}", true),
            ("{\"a\":1}", "{\"a\":2}", false),
            ("[1,2,[1,3]]", "[1,3]", false),
            ("[1,2,[1,3]]", "[[1]]", true),
            ("[1,2]", "[2,2,1]", true),
            ("[1,2]", "2", true),
            ("[[1,2]]", "2", false),
            ("[[1,2]]", "[2]", false),
            ("2", "[2]", false),
            ("{\"a\":[1,2]}", "{\"a\":1}", false),
            ("{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"c\":2}}", true),
            ("{}", "[]", false),
            ("[]", "[]", true),
        ] {
            assert_eq!(holds(left, right), is_contained, "{left} {right}");
        }
    }

    #[test]
    fn large_arrays_contain_what_small_ones_do() {
        let array = |numbers| {
            let numbers = array(numbers, |number| number.to_string());
            numbers.replace(']', ", [1, 2], \"a\"]")
        };
        let large = array(0..100_000);
        assert!(holds(&large, &array(50_000..100_000)));
        assert!(holds(&large, &array(0..20).replace("[1, 2]", "[2]")));
        assert!(holds(&large, &array(0..50).replace("7,", "7.0,")));
        assert!(!holds(&large, &array(99_950..100_001)));
        assert!(!holds(&large, &array(0..50).replace("\"a\"", "\"b\"")));
        assert!(!holds(&large, &array(0..50).replace("[1, 2]", "[3]")));
    }

    #[test]
    fn equal_containers_of_large_arrays_are_found_by_their_hashes() {
        let pairs = |numbers| array(numbers, |number| format!("[{number}, {{\"n\": {number}}}]"));
        let large = pairs(0..50_000);
        assert!(holds(&large, &large));
        assert!(holds(&large, &pairs(0..49_000).replace(", ", ".0, ").replace("}].0", "}]")));
        assert!(!holds(&large, &pairs(49_999..50_001)));
        // A part of an element has another hash.
        assert!(holds(&large, &array(0..20, |number| format!("[{{\"n\": {number}}}]"))));
        assert!(!holds(&large, &array(0..20, |number| format!("[{{\"m\": {number}}}]"))));
    }

    #[test]
    fn a_large_array_is_hashed_once_for_all_parts() {
        let inner = array(0..50_000, |number| number.to_string());
        let parts = array(0..5_000, |number| format!("[{number}, {}]", number + 40_000));
        assert!(holds(&format!("[{inner}]"), &parts));
        assert!(!holds(&format!("[{inner}]"), &parts.replace("44999", "50000")));
    }

    #[tokio::test]
    async fn a_long_comparison_ends_when_its_statement_does() {
        let lanes = Lanes::new(LaneOptions::default(), &Handle::current());
        let lane = lanes.enter().await.unwrap();
        lane.interrupt(Reason::Canceled);
        // No element equals a part, so that each part is compared with the elements before the one that has it.
        let compare = async {
            let elements = array(0..500, |number| format!("[{number}, 0]"));
            let parts = array(0..500, |number| format!("[{number}]"));
            contains(&Value::read(&elements).unwrap(), &Value::read(&parts).unwrap())
        };
        let error = lane.run(compare).await.unwrap().unwrap_err();
        assert_eq!(error.sqlstate, "57014");
    }
}
