//! Column families of wide tables, as text: `stats GC (MAX_VERSIONS = 3 OR MAX_AGE = '30d'), meta`.
//!
//! ```text
//! families = family, ..
//! family   = name [AGGREGATE {SUM | MIN | MAX}] [GC (rule)]
//! rule     = all [OR all ..]                  a cell is garbage if any of these collects it
//! all      = part [AND part ..]               if all of these do
//! part     = MAX_VERSIONS = n | MAX_AGE = 'time' | (rule)
//! ```
//!
//! Invariant: what [`families_sql`] prints is read back as the same families.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::wide::{Aggregate, Family, GC_DEPTH_MAX, GcRule, check_family_name};

use super::identifier::{fold, quote, quote_string};
use super::quantity::{format_duration, parse_duration};
use super::tokens::Tokens;
use crate::error::SqlError;

/// The text of families, from which the same families are read.
pub(super) fn families_sql(families: &[Family]) -> String {
    let family = |family: &Family| {
        let name = quote(&family.name);
        let aggregate = family.aggregate.map(|aggregate| format!(" AGGREGATE {}", aggregate.sql()));
        let gc = family.gc.as_ref().map(|rule| format!(" GC ({})", rule_sql(rule)));
        format!("{name}{}{}", aggregate.unwrap_or_default(), gc.unwrap_or_default())
    };
    families.iter().map(family).collect::<Vec<_>>().join(", ")
}

fn rule_sql(rule: &GcRule) -> String {
    let joined = |rules: &[GcRule], word: &str| {
        let part = |rule: &GcRule| match rule {
            GcRule::MaxVersions(_) | GcRule::MaxAge(_) => rule_sql(rule),
            GcRule::Union(_) | GcRule::Intersection(_) => format!("({})", rule_sql(rule)),
        };
        rules.iter().map(part).collect::<Vec<_>>().join(word)
    };
    match rule {
        GcRule::MaxVersions(versions) => format!("MAX_VERSIONS = {versions}"),
        GcRule::MaxAge(age) => format!("MAX_AGE = {}", quote_string(&format_duration(*age))),
        GcRule::Union(rules) => joined(rules, " OR "),
        GcRule::Intersection(rules) => joined(rules, " AND "),
    }
}

impl Tokens<'_> {
    /// Takes `(family [AGGREGATE ..] [GC (rule)], ..)`.
    pub(super) fn families(&mut self) -> Result<Vec<Family>, SqlError> {
        self.list(Self::family)
    }

    fn family(&mut self) -> Result<Family, SqlError> {
        let position = self.position();
        let name = match self.string() {
            Ok(name) => name,
            Err(_) => self.name("a column family's name")?,
        };
        check_family_name(&name).map_err(|error| SqlError::from(error).with_position(position))?;
        let aggregate = if self.take(&["aggregate"]) { Some(self.aggregate()?) } else { None };
        let mut gc = None;
        if self.take(&["gc"]) {
            self.expect_mark(&Token::LParen)?;
            gc = Some(self.gc_rule(1)?);
            self.expect_mark(&Token::RParen)?;
        }
        Ok(Family { name, gc, aggregate })
    }

    fn aggregate(&mut self) -> Result<Aggregate, SqlError> {
        let aggregate = Aggregate::ALL.into_iter().find(|aggregate| self.take(&[aggregate.sql()]));
        aggregate.ok_or_else(|| self.unexpected("SUM, MIN or MAX"))
    }

    /// Takes a rule of garbage collection that is nested in others.
    fn gc_rule(&mut self, depth: usize) -> Result<GcRule, SqlError> {
        if depth > GC_DEPTH_MAX {
            let message =
                format!("garbage collection rules are nested more than {GC_DEPTH_MAX} deep");
            return Err(self.located(SqlError::new("54001", message)));
        }
        self.joined_rules(
            "or",
            |tokens| {
                tokens.joined_rules("and", |tokens| tokens.gc_part(depth), GcRule::Intersection)
            },
            GcRule::Union,
        )
    }

    /// Takes rules between which a word stands; one alone is itself.
    fn joined_rules(
        &mut self,
        word: &str,
        mut rule: impl FnMut(&mut Self) -> Result<GcRule, SqlError>,
        join: impl FnOnce(Vec<GcRule>) -> GcRule,
    ) -> Result<GcRule, SqlError> {
        let first = rule(self)?;
        if !self.at(word) {
            return Ok(first);
        }
        let mut rules = vec![first];
        while self.take(&[word]) {
            rules.push(rule(self)?);
        }
        Ok(join(rules))
    }

    fn gc_part(&mut self, depth: usize) -> Result<GcRule, SqlError> {
        if self.take_mark(&Token::LParen) {
            let rule = self.gc_rule(depth + 1)?;
            self.expect_mark(&Token::RParen)?;
            return Ok(rule);
        }
        if self.take(&["max_versions"]) || self.take(&["maxversions"]) {
            self.expect_mark(&Token::Eq)?;
            let position = self.position();
            let versions = self.unsigned("a number of versions")?;
            let versions = u32::try_from(versions).ok().filter(|versions| *versions > 0);
            return versions.map(GcRule::MaxVersions).ok_or_else(|| {
                let message = "MAX_VERSIONS takes a number from 1 to 4294967295";
                SqlError::new("22023", message).with_position(position)
            });
        }
        if self.take(&["max_age"]) || self.take(&["maxage"]) {
            self.expect_mark(&Token::Eq)?;
            let position = self.position();
            let age = parse_duration(&fold(&self.string()?));
            return age.filter(|age| age.as_millis() > 0).map(GcRule::MaxAge).ok_or_else(|| {
                let message = "MAX_AGE takes a time such as '30d', of a millisecond or more";
                SqlError::new("22023", message).with_position(position)
            });
        }
        Err(self.unexpected("MAX_VERSIONS, MAX_AGE or \"(\""))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn families_of(text: &str) -> Result<Vec<Family>, SqlError> {
        let listed = format!("({text})");
        let mut tokens = Tokens::new(&listed, 0)?;
        let families = tokens.families()?;
        tokens.expect_end()?;
        Ok(families)
    }

    fn rules() -> impl Strategy<Value = GcRule> {
        let leaf = prop_oneof![
            (1_u32..).prop_map(GcRule::MaxVersions),
            (1_u64..1 << 50).prop_map(|millis| GcRule::MaxAge(Duration::from_millis(millis))),
        ];
        leaf.prop_recursive(4, 16, 3, |rule| {
            prop_oneof![
                prop::collection::vec(rule.clone(), 2..4).prop_map(GcRule::Union),
                prop::collection::vec(rule, 2..4).prop_map(GcRule::Intersection),
            ]
        })
    }

    #[test]
    fn rules_are_read_as_conditions_of_garbage() {
        let read = |text: &str| families_of(text).unwrap();
        let age = GcRule::MaxAge(Duration::from_secs(30 * 86_400));
        let versions = GcRule::MaxVersions(3);
        assert_eq!(read(""), []);
        let union = GcRule::Union(vec![versions.clone(), age.clone()]);
        let families = read("stats GC (MAX_VERSIONS = 3 OR max_age = '30 days'), \"a.b\", 'c-d'");
        assert_eq!(
            families[0],
            Family { name: "stats".to_owned(), gc: Some(union), aggregate: None }
        );
        assert_eq!(
            families[1..].iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["a.b", "c-d"]
        );
        let both = GcRule::Intersection(vec![versions, age]);
        let nested = GcRule::Union(vec![both, GcRule::MaxVersions(9)]);
        let rule = |text: &str| read(text).pop().and_then(|family| family.gc);
        assert_eq!(
            rule("f GC (maxversions = 3 AND maxage = '30d' OR max_versions = 9)"),
            Some(nested.clone())
        );
        assert_eq!(
            rule("f GC ((max_versions = 3 AND max_age = '30d') OR max_versions = 9)"),
            Some(nested)
        );
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (text, message) in [
            ("f GC ()", "MAX_VERSIONS, MAX_AGE or \"(\""),
            ("f GC (max_versions = 0)", "from 1 to 4294967295"),
            ("f GC (max_age = 'soon')", "a time such as '30d'"),
            ("f GC (max_age = '1us')", "a millisecond or more"),
            ("f GC (max_versions = 1 OR)", "MAX_VERSIONS, MAX_AGE or \"(\""),
            ("f g", "\")\""),
            ("f AGGREGATE avg", "SUM, MIN or MAX"),
            ("f AGGREGATE", "SUM, MIN or MAX"),
            ("\"f g\"", "must consist of letters"),
        ] {
            let error = families_of(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let deep = format!("f GC ({}max_versions = 1{})", "(".repeat(20), ")".repeat(20));
        assert!(families_of(&deep).unwrap_err().to_string().contains("more than 20 deep"));
    }

    proptest! {
        #[test]
        fn families_are_read_back_as_they_are_printed(
            families in prop::collection::vec(
                (
                    "[-_.a-zA-Z0-9]{1,6}",
                    prop::option::of(rules()),
                    prop::option::of(prop::sample::select(Aggregate::ALL.to_vec())),
                ),
                0..4,
            ),
        ) {
            let family = |(name, gc, aggregate): (String, Option<GcRule>, Option<Aggregate>)| {
                Family { name, gc, aggregate }
            };
            let families: Vec<Family> = families.into_iter().map(family).collect();
            let printed = families_sql(&families);
            prop_assert_eq!(families_of(&printed).unwrap(), families, "{}", printed);
        }
    }
}
