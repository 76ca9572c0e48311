//! Notices of CREATE TABLE: findings that a definition alone shows.

use partita_advice::{Rule, Severity, Thresholds, facts_of_new_table};
use partita_proto::service::NewTable;
use partita_sql::Notice;

/// Rules whose mistakes the parser of CREATE TABLE reports or refuses by itself.
const REPORTED: [Rule; 4] = [Rule::A20, Rule::A22, Rule::A32, Rule::A37];

/// Notices for the creator of a table. Mere chances to improve it are left to `sys.advice`.
pub(crate) fn of_new_table(table: &NewTable) -> Vec<Notice> {
    let facts = facts_of_new_table(table);
    let findings = partita_advice::of_new_table(&facts, &Thresholds::default());
    findings
        .into_iter()
        .filter(|finding| finding.severity > Severity::Info && !REPORTED.contains(&finding.rule))
        .map(|finding| {
            let rule = finding.rule;
            let message = format!("{}: {} ({})", finding.object, rule.title(), rule.id());
            Notice::notice(message).with_hint(finding.advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use partita_sql::Statement;

    use super::*;

    fn notices(sql: &str) -> Vec<Notice> {
        let statement = partita_sql::parse(sql).unwrap().remove(0);
        let Statement::CreateTable(create) = statement else { panic!("{sql}") };
        of_new_table(&create.to_new_table("public").unwrap().0)
    }

    #[test]
    fn a_mistake_in_the_definition_is_a_notice() {
        let shown = notices(
            "CREATE TABLE t (level REAL, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (level))",
        );
        let [notice] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(notice.message, "public.t.level: key type without exact equality (A17)");
        assert!(notice.hint.as_ref().unwrap().contains("BIGINT or STRING"));
    }

    #[test]
    fn a_definition_without_mistakes_has_none() {
        let sql =
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (host))";
        assert!(notices(sql).is_empty());
        // The owner has switched the rule off.
        let sql = "CREATE TABLE t (level REAL, ts TIMESTAMP TIME INDEX, PRIMARY KEY (level)) WITH ('advice_off' = 'A17')";
        assert!(notices(sql).is_empty());
    }
}
