//! Texts of questions in the servers' languages.

use super::tsbs::{Kind, Question};
use crate::civil::{rfc3339, spaced};
use crate::cpu::{TABLE, TIME};

/// A query language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// SQL of Partita and DataFusion.
    Sql,
    /// SQL of PostgreSQL, with lastpoint along its index.
    Postgres,
    /// SQL of ClickHouse.
    Clickhouse,
    /// InfluxQL, the language of InfluxDB 1.
    Influxql,
    /// MetricsQL of VictoriaMetrics; as in TSBS, it cannot query whole rows.
    Metricsql,
}

/// Text of a question; `None` if the language cannot express it.
pub(crate) fn text(question: &Question, dialect: Dialect) -> Option<String> {
    match dialect {
        Dialect::Sql | Dialect::Postgres | Dialect::Clickhouse => Some(sql(question, dialect)),
        Dialect::Influxql => Some(influxql(question)),
        Dialect::Metricsql => metricsql(question),
    }
}

/// `max(a) AS a, max(b) AS b`.
fn each(function: &str, fields: &[&str], alias: bool) -> String {
    let term = |field: &&str| {
        if alias {
            format!("{function}({field}) AS {function}_{field}")
        } else {
            format!("{function}({field})")
        }
    };
    fields.iter().map(term).collect::<Vec<_>>().join(", ")
}

fn sql(question: &Question, dialect: Dialect) -> String {
    let truncated = |step_s: i64| match (dialect, step_s) {
        (Dialect::Clickhouse, 60) => format!("toStartOfMinute({TIME})"),
        (Dialect::Clickhouse, _) => format!("toStartOfHour({TIME})"),
        (_, 60) => format!("date_trunc('minute', {TIME})"),
        _ => format!("date_trunc('hour', {TIME})"),
    };
    // Window and hosts are the same in all forms of SQL.
    let fields = question.fields();
    let (start, end) = (spaced(question.start_s), spaced(question.end_s));
    let window = format!("{TIME} >= '{start}' AND {TIME} < '{end}'");
    let hosts = if question.hosts.is_empty() {
        String::new()
    } else {
        format!("hostname IN ('{}') AND ", question.hosts.join("', '"))
    };
    match question.query.kind {
        Kind::Maximum { step_s, .. } => format!(
            "SELECT {} AS bucket, {} FROM {TABLE} WHERE {hosts}{window} GROUP BY bucket ORDER BY bucket",
            truncated(step_s),
            each("max", fields, true)
        ),
        Kind::MeanByHost { .. } => format!(
            "SELECT {} AS bucket, hostname, {} FROM {TABLE} WHERE {window} \
             GROUP BY bucket, hostname ORDER BY bucket, hostname",
            truncated(3_600),
            each("avg", fields, true)
        ),
        Kind::Busy => {
            format!("SELECT * FROM {TABLE} WHERE {hosts}usage_user > 90 AND {window}")
        }
        Kind::LastPoint => last_point(dialect),
        Kind::LastMinutes => format!(
            "SELECT {} AS bucket, max(usage_user) AS max_usage_user FROM {TABLE} \
             WHERE {TIME} < '{end}' GROUP BY bucket ORDER BY bucket DESC LIMIT 5",
            truncated(60)
        ),
    }
}

/// The newest row of each host, in each server's fastest form.
fn last_point(dialect: Dialect) -> String {
    match dialect {
        // Host by host along the index: PostgreSQL has no skip scan.
        Dialect::Postgres => format!(
            "WITH RECURSIVE hosts AS ((SELECT hostname FROM {TABLE} ORDER BY hostname LIMIT 1) \
             UNION ALL SELECT (SELECT hostname FROM {TABLE} WHERE hostname > hosts.hostname \
             ORDER BY hostname LIMIT 1) FROM hosts WHERE hosts.hostname IS NOT NULL) \
             SELECT last.* FROM hosts CROSS JOIN LATERAL (SELECT * FROM {TABLE} \
             WHERE {TABLE}.hostname = hosts.hostname ORDER BY {TIME} DESC LIMIT 1) last"
        ),
        Dialect::Clickhouse => format!(
            "SELECT * FROM {TABLE} WHERE (hostname, {TIME}) IN \
             (SELECT hostname, max({TIME}) FROM {TABLE} GROUP BY hostname)"
        ),
        _ => format!("SELECT DISTINCT ON (hostname) * FROM {TABLE} ORDER BY hostname, {TIME} DESC"),
    }
}

fn influxql(question: &Question) -> String {
    let (start, end) = (rfc3339(question.start_s), rfc3339(question.end_s));
    let window = format!("time >= '{start}' and time < '{end}'");
    let fields = question.fields();
    let hosts = if question.hosts.is_empty() {
        String::new()
    } else {
        let conditions: Vec<_> =
            question.hosts.iter().map(|h| format!("hostname = '{h}'")).collect();
        format!("({}) and ", conditions.join(" or "))
    };
    match question.query.kind {
        Kind::Maximum { step_s, .. } => format!(
            "SELECT {} from {TABLE} where {hosts}{window} group by time({}m)",
            each("max", fields, false),
            step_s / 60
        ),
        Kind::MeanByHost { .. } => format!(
            "SELECT {} from {TABLE} where {window} group by time(1h), hostname",
            each("mean", fields, false)
        ),
        Kind::Busy => format!("SELECT * from {TABLE} where {hosts}usage_user > 90 and {window}"),
        Kind::LastPoint => {
            format!("SELECT * from {TABLE} group by \"hostname\" order by time desc limit 1")
        }
        // TSBS omits the order and so gets the first minutes.
        Kind::LastMinutes => format!(
            "SELECT max(usage_user) from {TABLE} where time < '{end}' \
             group by time(1m) order by time desc limit 5"
        ),
    }
}

/// Expression of a range query; [`step_s`] is its step.
fn metricsql(question: &Question) -> Option<String> {
    let metrics = question.fields().iter().map(|field| format!("{TABLE}_{field}"));
    let metrics = metrics.collect::<Vec<_>>().join("|");
    let hosts = if question.hosts.is_empty() {
        String::new()
    } else {
        format!(", hostname=~'{}'", question.hosts.join("|"))
    };
    match question.query.kind {
        Kind::Maximum { step_s, .. } => Some(format!(
            "max(max_over_time({{__name__=~'{metrics}'{hosts}}}[{}m])) by (__name__)",
            step_s / 60
        )),
        Kind::MeanByHost { .. } => Some(format!(
            "avg(avg_over_time({{__name__=~'{metrics}'}}[1h])) by (__name__, hostname)"
        )),
        Kind::Busy | Kind::LastPoint | Kind::LastMinutes => None,
    }
}

/// Seconds between the points of a range query.
pub(crate) fn step_s(question: &Question) -> i64 {
    match question.query.kind {
        Kind::Maximum { step_s, .. } => step_s,
        Kind::MeanByHost { .. } | Kind::Busy | Kind::LastPoint | Kind::LastMinutes => 3_600,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tsbs::{QUERIES, named, tests::data};
    use super::*;

    fn asked(name: &str) -> Question {
        let question = named(name).unwrap()[0].question(&data(100, 24), 42, 0);
        Question { start_s: 1_451_606_401, end_s: 1_451_610_001, ..question }
    }

    #[test]
    fn the_first_query_reads_as_tsbs_documents_it() {
        let question = Question { hosts: vec!["host_7".into()], ..asked("single-groupby-1-1-1") };
        assert_eq!(
            text(&question, Dialect::Sql).unwrap(),
            "SELECT date_trunc('minute', time) AS bucket, max(usage_user) AS max_usage_user FROM cpu \
             WHERE hostname IN ('host_7') AND time >= '2016-01-01 00:00:01' \
             AND time < '2016-01-01 01:00:01' GROUP BY bucket ORDER BY bucket"
        );
        assert_eq!(
            text(&question, Dialect::Influxql).unwrap(),
            "SELECT max(usage_user) from cpu where (hostname = 'host_7') and \
             time >= '2016-01-01T00:00:01Z' and time < '2016-01-01T01:00:01Z' group by time(1m)"
        );
        assert_eq!(
            text(&question, Dialect::Metricsql).unwrap(),
            "max(max_over_time({__name__=~'cpu_usage_user', hostname=~'host_7'}[1m])) by (__name__)"
        );
    }

    #[test]
    fn every_language_but_one_has_every_query() {
        let data = data(100, 24);
        for query in QUERIES {
            let question = query.question(&data, 42, 0);
            for dialect in [Dialect::Sql, Dialect::Postgres, Dialect::Clickhouse, Dialect::Influxql]
            {
                let text = text(&question, dialect).unwrap();
                assert!(text.contains("cpu"), "{text}");
                for host in &question.hosts {
                    assert!(text.contains(&format!("'{host}'")), "{text}");
                }
            }
        }
        let questions = QUERIES.map(|query| query.question(&data, 42, 0));
        let count = questions.iter().filter(|q| text(q, Dialect::Metricsql).is_some()).count();
        assert_eq!(count, 11);
    }
}
