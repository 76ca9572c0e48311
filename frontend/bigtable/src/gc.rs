//! Rules of garbage collection between their two forms.

use std::time::Duration;

use partita_proto::wide::GcRule;
use tonic::Status;

use crate::api::tables;
use crate::api::tables::gc_rule::{Intersection, Rule, Union};
use crate::status::refused;

/// The rule of a message; `None` for one that keeps all cells.
///
/// # Errors
/// INVALID_ARGUMENT for a rule that is empty, out of range or too deep.
pub(crate) fn rule_of(message: Option<&tables::GcRule>) -> Result<Option<GcRule>, Status> {
    let Some(rule) = message.and_then(|message| message.rule.as_ref()) else { return Ok(None) };
    let rule = part_of(rule)?;
    rule.check().map_err(|error| refused(&error))?;
    Ok(Some(rule))
}

fn part_of(rule: &Rule) -> Result<GcRule, Status> {
    Ok(match rule {
        Rule::MaxNumVersions(versions) => {
            GcRule::MaxVersions(u32::try_from(*versions).unwrap_or_default())
        }
        Rule::MaxAge(age) => {
            let seconds = u64::try_from(age.seconds);
            let (Ok(seconds), Ok(nanoseconds)) = (seconds, u32::try_from(age.nanos)) else {
                return Err(Status::invalid_argument("max_age must not be negative"));
            };
            if nanoseconds >= 1_000_000_000 {
                return Err(Status::invalid_argument(
                    "max_age has a second or more in its nanoseconds",
                ));
            }
            GcRule::MaxAge(Duration::new(seconds, nanoseconds))
        }
        Rule::Intersection(Intersection { rules }) => GcRule::Intersection(parts_of(rules)?),
        Rule::Union(Union { rules }) => GcRule::Union(parts_of(rules)?),
    })
}

fn parts_of(rules: &[tables::GcRule]) -> Result<Vec<GcRule>, Status> {
    let empty = || Status::invalid_argument("a rule in a union or intersection is empty");
    rules.iter().map(|rule| part_of(rule.rule.as_ref().ok_or_else(empty)?)).collect()
}

/// The message of a rule.
pub(crate) fn message_of(rule: &GcRule) -> tables::GcRule {
    let messages = |rules: &[GcRule]| rules.iter().map(message_of).collect();
    let rule = match rule {
        GcRule::MaxVersions(versions) => {
            Rule::MaxNumVersions(i32::try_from(*versions).unwrap_or(i32::MAX))
        }
        GcRule::MaxAge(age) => Rule::MaxAge(prost_types::Duration {
            seconds: i64::try_from(age.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(age.subsec_nanos()).unwrap_or_default(),
        }),
        GcRule::Intersection(rules) => Rule::Intersection(Intersection { rules: messages(rules) }),
        GcRule::Union(rules) => Rule::Union(Union { rules: messages(rules) }),
    };
    tables::GcRule { rule: Some(rule) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> impl Strategy<Value = GcRule> {
        let leaf = prop_oneof![
            (1_u32..9).prop_map(GcRule::MaxVersions),
            (1_u64..9_000_000).prop_map(|millis| GcRule::MaxAge(Duration::from_millis(millis))),
        ];
        leaf.prop_recursive(3, 12, 3, |rule| {
            prop_oneof![
                proptest::collection::vec(rule.clone(), 1..3).prop_map(GcRule::Union),
                proptest::collection::vec(rule, 1..3).prop_map(GcRule::Intersection),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_rule_is_read_as_it_was_written(rule in rules()) {
            prop_assert_eq!(rule_of(Some(&message_of(&rule))).unwrap(), Some(rule));
        }
    }

    #[test]
    fn rules_that_keep_nothing_or_say_nothing_are_refused() {
        let of = |rule| tables::GcRule { rule: Some(rule) };
        let age = |seconds, nanos| of(Rule::MaxAge(prost_types::Duration { seconds, nanos }));
        let empty = tables::GcRule { rule: None };
        for rule in [
            of(Rule::MaxNumVersions(0)),
            of(Rule::MaxNumVersions(-1)),
            age(0, 999_999),
            age(-1, 0),
            age(1, -1),
            age(0, 1_000_000_000),
            of(Rule::Union(Union { rules: Vec::new() })),
            of(Rule::Intersection(Intersection { rules: vec![empty.clone()] })),
        ] {
            assert!(rule_of(Some(&rule)).is_err(), "{rule:?}");
        }
        assert_eq!(rule_of(Some(&empty)).unwrap(), None);
        assert_eq!(rule_of(None).unwrap(), None);
    }
}
