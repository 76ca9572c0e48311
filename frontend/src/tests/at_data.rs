//! Operators pushed down to the partitions: which are, and that results are the same.

use std::sync::atomic::Ordering;

use partita_proto::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::range::Bound;
use partita_proto::value::Value;

use super::{Db, cells, collect};
use crate::SqlError;

/// A table of four partitions with NULLs, ties and several types; the numbers have exact sums.
async fn events() -> Db {
    let db = Db::new();
    db.tag(
        "CREATE TABLE t (k BIGINT, h STRING, ts TIMESTAMP(3) TIME INDEX, n INT, v DOUBLE, b BOOLEAN, \
         d DECIMAL(10, 2), PRIMARY KEY (k, h)) PARTITION BY RANGE (k, h) SPLIT AT ((20), (40, 'b'), (60))",
    )
    .await;
    let mut random = Random(7);
    let rows: Vec<_> = (0..300)
        .map(|row| {
            let mut or_null = |text: String| {
                if random.below(5) == 0 { "NULL".to_owned() } else { text }
            };
            let n = or_null(format!("{}", row % 23 - 7));
            let v = or_null(format!("{}.25", row % 17 - 5));
            let b = or_null(format!("{}", row % 3 == 0));
            let d = or_null(format!("{}.5", row % 11));
            let h = ["a", "b", "bc", "c", "a longer name of a host"][random.below(5)];
            format!("({}, '{h}', {row}, {n}, {v}, {b}, {d})", random.below(80))
        })
        .collect();
    db.tag(&format!("INSERT INTO t VALUES {}", rows.join(","))).await;
    db.tag("CREATE TABLE few (n INT PRIMARY KEY, name STRING)").await;
    db.tag("INSERT INTO few VALUES (1, 'one'), (2, 'two'), (3, NULL), (-4, 'minus four')").await;
    db
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

impl Db {
    async fn mode(&self, mode: &str) {
        self.tag(&format!("SET run_at_data = {mode}")).await;
    }

    /// Operators that are pushed down, top first, for each scan.
    async fn at_data(&self, sql: &str) -> Vec<String> {
        let plan = self.explain(sql).await;
        let lines = plan.lines().filter_map(|line| line.trim().strip_prefix("AtDataExec: "));
        let names = |line: &str| {
            let names = line.split(" <- ").map(|one| one.split([':', ' ']).next().unwrap());
            names.map(|name| name.trim_end_matches("Exec")).collect::<Vec<_>>().join(" ")
        };
        lines.map(names).collect()
    }

    async fn answer(&self, sql: &str) -> Result<Vec<String>, SqlError> {
        let rows = cells(&collect(self.try_run(sql).await?).await?);
        Ok(rows.into_iter().map(|row| row.join("|")).collect())
    }

    /// Checks that a query has the same rows or error with and without operators pushed down.
    async fn same(&self, sql: &str) {
        self.mode("off").await;
        let mut here = self.answer(sql).await;
        self.mode("always").await;
        let mut there = self.answer(sql).await;
        if !sql.contains("k, h, ts LIMIT") {
            for lines in [&mut here, &mut there].into_iter().flatten() {
                lines.sort();
            }
        }
        // Which of several wrong rows is met first is anybody's guess.
        let said = |error: SqlError| error.sqlstate;
        assert_eq!(there.map_err(said), here.map_err(said), "{sql}\n{}", self.explain(sql).await);
    }
}

#[tokio::test]
async fn what_works_on_one_stream_at_a_time_goes_to_the_data() {
    let db = events().await;
    db.mode("always").await;
    for (sql, expected) in [
        ("SELECT * FROM t WHERE n % 7 > 3", "Filter PartitionScan"),
        ("SELECT k + n FROM t WHERE b", "Projection Filter PartitionScan"),
        ("SELECT count(*) FROM t", "Aggregate PartitionScan"),
        ("SELECT k % 10, avg(v) FROM t GROUP BY 1", "Aggregate PartitionScan"),
        ("SELECT h, sum(n) FROM t WHERE v > 1 GROUP BY h", "Aggregate Filter PartitionScan"),
        ("SELECT h FROM t GROUP BY h HAVING count(*) > 3", "Aggregate PartitionScan"),
        ("SELECT DISTINCT b FROM t", "Aggregate PartitionScan"),
        ("SELECT count(DISTINCT n) FROM t", "Aggregate PartitionScan"),
        (
            "SELECT date_bin(INTERVAL '1 second', ts), stddev(v) FROM t GROUP BY 1",
            "Aggregate PartitionScan",
        ),
        (
            "SELECT CAST(n AS TEXT) FROM t WHERE n::BIGINT % 7 > 3",
            "Projection Filter PartitionScan",
        ),
        ("SELECT * FROM t ORDER BY v DESC LIMIT 3", "Sort PartitionScan"),
        (
            "SELECT k FROM t WHERE n % 7 = 1 ORDER BY v LIMIT 3 OFFSET 2",
            "Sort Projection Filter PartitionScan",
        ),
        (
            "SELECT v FROM t WHERE n % 7 = 1 LIMIT 3 OFFSET 2",
            "LocalLimit Projection Filter PartitionScan",
        ),
        ("SELECT first_value(v ORDER BY ts) FROM t", "Aggregate PartitionScan"),
        ("SELECT sum(n) OVER (ORDER BY k) FROM t WHERE n % 7 > 3", "Filter PartitionScan"),
        ("SELECT h, b, count(*) FROM t GROUP BY ROLLUP (h, b)", "Aggregate PartitionScan"),
        ("SELECT upper(h), hash64(h) FROM t", "Projection PartitionScan"),
    ] {
        let found = db.at_data(sql).await;
        // A projection of a filter is the filter's own in some plans.
        let found: Vec<_> =
            found.iter().map(|one| one.replace(" Projection Filter", " Filter")).collect();
        let expected = expected.replace(" Projection Filter", " Filter");
        assert_eq!(found, [expected], "{sql}\n{}", db.explain(sql).await);
    }
}

#[tokio::test]
async fn what_sees_all_rows_or_cannot_be_sent_stays() {
    let db = events().await;
    db.mode("always").await;
    for (sql, expected) in [
        ("SELECT * FROM t", &[][..]),
        // The scan itself excludes rows outside of its domains.
        ("SELECT * FROM t WHERE n > 3 AND h IN ('a', 'b')", &[]),
        ("SELECT * FROM t LIMIT 3", &["LocalLimit PartitionScan"]),
        ("SELECT * FROM t ORDER BY v", &[]),
        ("SELECT random() FROM t", &[]),
        ("SELECT k FROM t WHERE random() < v", &[]),
        ("SELECT random() FROM t WHERE n % 7 > 3", &["Filter PartitionScan"]),
        ("SELECT array_agg(n) FROM t WHERE n % 7 > 3", &["Aggregate Filter PartitionScan"]),
        // Lists of lists are not a type of tables.
        ("SELECT array_agg(make_array(n)) FROM t WHERE n % 7 > 3", &["Filter PartitionScan"]),
        ("SELECT array_agg(n ORDER BY k) FROM t", &[]),
        ("SELECT row_number() OVER (ORDER BY k, h, ts) FROM t", &[]),
        ("SELECT k FROM t WHERE v > (SELECT avg(v) FROM t)", &["Aggregate PartitionScan"]),
        ("SELECT name FROM few JOIN t USING (n)", &[]),
        ("SELECT name FROM few JOIN t USING (n) WHERE v > 1", &["Filter PartitionScan"]),
        (
            "SELECT n FROM t WHERE b UNION ALL SELECT n FROM few WHERE name IS NULL",
            &["Filter PartitionScan", "Filter PartitionScan"],
        ),
    ] {
        let found = db.at_data(sql).await;
        let found: Vec<_> =
            found.iter().map(|one| one.replace("Projection Filter", "Filter")).collect();
        assert_eq!(found, expected, "{sql}\n{}", db.explain(sql).await);
    }
}

#[tokio::test]
async fn the_setting_says_when() {
    let db = events().await;
    let (filter, projection) = ("SELECT k FROM t WHERE n > 3", "SELECT k + n FROM t");
    assert_eq!(db.one("SHOW run_at_data").await, "on");
    db.mode("off").await;
    assert!(db.at_data(filter).await.is_empty());
    db.mode("ALWAYS").await;
    assert_eq!(db.one("SHOW run_at_data").await, "always");
    assert_eq!(db.at_data(projection).await.len(), 1);
    db.mode("on").await;
    assert!(db.at_data(projection).await.is_empty());
    // One key is one row.
    assert!(
        db.at_data("SELECT v FROM t WHERE k = 1 AND h = 'a' AND ts = 5 AND v > 1").await.is_empty()
    );
    assert_eq!(db.error("SET run_at_data = maybe").await.sqlstate, "22023");
    db.mode("off").await;
    db.tag("RESET run_at_data").await;
    assert_eq!(db.one("SHOW run_at_data").await, "on");
    db.mode("off").await;
    db.tag("RESET ALL").await;
    assert_eq!(db.one("SHOW run_at_data").await, "on");
    db.tag("BEGIN").await;
    db.tag("SET LOCAL run_at_data = always").await;
    assert_eq!(db.at_data(projection).await.len(), 1);
    db.tag("COMMIT").await;
    assert!(db.at_data(projection).await.is_empty());
}

#[tokio::test]
async fn made_up_queries_have_the_same_answers() {
    let db = events().await;
    let mut random = Random(11);
    let wheres = [
        "",
        "WHERE n > 3",
        "WHERE v IS NULL",
        "WHERE k BETWEEN 10 AND 50",
        "WHERE h IN ('a', 'c') AND NOT b",
        "WHERE h LIKE 'b%' OR n < 0",
        "WHERE ts > '1970-01-01T00:00:00.120'",
        "WHERE k % 7 <> 3 AND v + n > 1.5",
        "WHERE CASE WHEN b THEN n ELSE k END > 5",
        "WHERE random() < 2",
        "WHERE n IS DISTINCT FROM 4 AND d > 2.5",
        "WHERE v > (SELECT avg(v) FROM t)",
        "WHERE n IN (SELECT n FROM few)",
    ];
    let groups = [
        "h",
        "k % 5",
        "h, b",
        "n",
        "date_bin(INTERVAL '10 milliseconds', ts)",
        "upper(h), d",
        "ROLLUP (h, b)",
        "k, h, ts",
    ];
    let aggregates = [
        "count(*)",
        "count(n)",
        "sum(n)",
        "sum(d)",
        "avg(d)",
        "min(v)",
        "max(h)",
        "max(ts)",
        "avg(v)",
        "round(stddev(v), 6)",
        "round(corr(v, n), 6)",
        "count(DISTINCT n)",
        "sum(DISTINCT n)",
        "sum(v) FILTER (WHERE n > 0)",
        "bool_or(b)",
        "bit_xor(n)",
        "first_value(v ORDER BY ts, k, h)",
        "last_value(n ORDER BY k, h, ts)",
        "array_agg(n ORDER BY k, h, ts)",
        "string_agg(h, ',' ORDER BY k, h, ts)",
        "approx_distinct(k)",
        "median(n)",
    ];
    let orders = ["n DESC NULLS LAST", "v NULLS FIRST", "h", "ts DESC", "b, d", "upper(h) DESC"];
    for _ in 0..120 {
        let filter = random.one_of(&wheres);
        let sql = match random.below(3) {
            0 => {
                let order = random.one_of(&orders);
                let (rows, skipped) = (random.below(20), random.below(5));
                format!(
                    "SELECT k, h, ts, n + 1, v * 2, upper(h) FROM t {filter} ORDER BY {order}, k, h, ts \
                     LIMIT {rows} OFFSET {skipped}"
                )
            }
            1 => format!(
                "SELECT {}, {}, {} FROM t {filter}",
                random.one_of(&aggregates),
                random.one_of(&aggregates),
                random.one_of(&aggregates)
            ),
            _ => {
                let group = random.one_of(&groups);
                let having = random.one_of(&["", "HAVING count(*) > 2", "HAVING min(n) < 3"]);
                // Columns without names of their own may not be alike.
                format!(
                    "SELECT {}, {} AS other, count(*) AS c FROM t {filter} GROUP BY {group} {having}",
                    random.one_of(&aggregates),
                    random.one_of(&aggregates),
                )
            }
        };
        db.same(&sql).await;
    }
}

#[tokio::test]
async fn queries_of_every_shape_have_the_same_answers() {
    let db = events().await;
    for sql in [
        "SELECT name, count(*), sum(v) FROM t JOIN few USING (n) WHERE k > 5 GROUP BY name",
        "SELECT name FROM few LEFT JOIN t USING (n) WHERE t.v IS NULL OR t.v > 3",
        "SELECT n FROM t WHERE b UNION SELECT n FROM few WHERE name LIKE '%o%'",
        "SELECT * FROM (SELECT k, h, sum(n) OVER (PARTITION BY h ORDER BY k, ts) FROM t WHERE v > 0)",
        "SELECT h, c FROM (SELECT h, count(*) AS c FROM t GROUP BY h) WHERE c > 50",
        "SELECT count(*) FROM (SELECT * FROM t LIMIT 7)",
        "SELECT count(*) FROM (SELECT * FROM t WHERE n > 3 LIMIT 7 OFFSET 3)",
        "SELECT DISTINCT ON (h) h, k, n FROM t ORDER BY h, k DESC, ts",
        "SELECT DISTINCT ON (k, h) k, h, v FROM t ORDER BY k, h, ts DESC",
        "SELECT h, max(ts) FROM t GROUP BY h",
        "SELECT count(*) FROM t AS a, t AS b WHERE a.k = b.k AND a.n < b.n",
        "SELECT (SELECT max(v) FROM t), (SELECT count(*) FROM few)",
        "SELECT h FROM t WHERE EXISTS (SELECT 1 FROM few WHERE few.n = t.n)",
        "WITH s AS (SELECT h, avg(v) AS a FROM t GROUP BY h) SELECT t.h, count(*) FROM t JOIN s USING (h) WHERE t.v > s.a GROUP BY t.h",
        "SELECT count(*), min(k) FROM t WHERE k > 1000",
        "SELECT h, count(*) FROM t WHERE k > 1000 GROUP BY h",
        "SELECT 1 / (n - n) FROM t WHERE n > 3",
        "SELECT sum(1 / n) FROM t",
        "SELECT CAST(h AS INT) FROM t",
        "SELECT current_database(), h FROM t WHERE h <> current_user",
        "SELECT count(*) FROM t WHERE ts < now()",
        "SELECT to_timestamp(k) AT TIME ZONE 'Europe/Berlin', count(*) FROM t GROUP BY 1",
        "SELECT arrow_typeof(h), arrow_typeof(upper(h)), count(*) FROM t GROUP BY 1, 2",
        "SELECT n FROM t ORDER BY 1 NULLS FIRST LIMIT 5",
        // Several hosts have the same extreme, and any of them may come first.
        "SELECT m FROM (SELECT h, min(v) AS m FROM t GROUP BY h ORDER BY m LIMIT 2) AS first",
        "SELECT m FROM (SELECT h, max(n) AS m FROM t GROUP BY h ORDER BY m DESC LIMIT 1) AS first",
        "SELECT DISTINCT h FROM t LIMIT 100",
        "SELECT k FROM t WHERE n > 3 LIMIT 0",
    ] {
        db.same(sql).await;
    }
    db.tag("SET timezone = 'Asia/Tokyo'").await;
    db.same("SELECT to_timestamp('2024-01-01T00:00:00'), to_timestamp(h || '2024') FROM t LIMIT 1")
        .await;
    db.same("SELECT count(*) FROM t WHERE to_timestamp('1970-01-01T09:00:00.1') < ts").await;
    db.same("SELECT date_trunc('day', to_timestamp(k * 3600)), count(*) FROM t GROUP BY 1").await;
}

#[tokio::test]
async fn a_table_that_was_placed_otherwise_is_read_whole() {
    let db = events().await;
    db.tag("CREATE TABLE log (ts TIMESTAMP(3) TIME INDEX, n INT) WITH ('append_mode' = 'true')")
        .await;
    db.tag("INSERT INTO log VALUES (1, 1), (2, 2), (3, 3)").await;
    db.tag("ALTER TABLE log PARTITION BY HASH (n) PARTITIONS 3").await;
    db.tag("INSERT INTO log VALUES (4, 1), (5, 2)").await;
    for sql in ["SELECT n, count(*) FROM log GROUP BY n", "SELECT * FROM log WHERE n > 1"] {
        db.same(sql).await;
    }
    assert_eq!(db.one("SELECT count(*) FROM log").await, "5");
}

const GROUPED: &str = "SELECT h, count(*), sum(n) FROM t WHERE k >= 0 GROUP BY h";

/// Result of a query without operators pushed down.
async fn expected(db: &Db, sql: &str) -> Vec<String> {
    db.mode("off").await;
    let mut lines = db.lines(sql).await;
    lines.sort();
    db.mode("always").await;
    lines
}

async fn sorted(db: &Db, sql: &str) -> Vec<String> {
    let mut lines = db.lines(sql).await;
    lines.sort();
    lines
}

#[tokio::test]
async fn a_fragment_follows_its_partition_when_that_moves_or_is_split() {
    let db = events().await;
    let right = expected(&db, GROUPED).await;
    let before = db.fake.fragments.load(Ordering::Relaxed);
    db.fake.scan_errors.lock().extend([
        Error::NotLeader { partition: PartitionId(0), leader: None },
        Error::Unavailable("starting".to_owned()),
        Error::StaleRoute { partition: PartitionId(0), requested: Epoch(1), current: Epoch(2) },
    ]);
    let at = Bound { placement: None, key: vec![Value::Int(10)] };
    db.fake.split("public", "t", 0, at).unwrap();
    assert_eq!(sorted(&db, GROUPED).await, right);
    // Five partitions now, three errors.
    assert_eq!(db.fake.fragments.load(Ordering::Relaxed) - before, 5 + 3);
}

#[tokio::test]
async fn a_plan_from_before_a_split_runs_on_both_halves() {
    let db = events().await;
    let right = expected(&db, GROUPED).await;
    let statement = db.session.parse(GROUPED).await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    // The first fragment request finds the split.
    let at = Bound { placement: None, key: vec![Value::Int(10)] };
    db.fake.fragment_errors.lock().push_back(Error::Unavailable("later".to_owned()));
    let run = async {
        let output = db.session.run_prepared(&prepared, Vec::new()).await.unwrap();
        cells(&collect(output).await.unwrap())
    };
    let split = async {
        tokio::task::yield_now().await;
        db.fake.split("public", "t", 0, at).unwrap();
    };
    let (rows, ()) = tokio::join!(run, split);
    let mut lines: Vec<_> = rows.into_iter().map(|row| row.join("|")).collect();
    lines.sort();
    assert_eq!(lines, right);
}

#[tokio::test]
async fn a_node_that_fails_before_its_first_rows_is_asked_again_and_nothing_is_counted_twice() {
    let db = events().await;
    let right = expected(&db, GROUPED).await;
    for sql in
        [GROUPED, "SELECT k, n FROM t WHERE n % 7 > 3", "SELECT v FROM t ORDER BY v LIMIT 300"]
    {
        let right = if sql == GROUPED { right.clone() } else { expected(&db, sql).await };
        let lost = || Error::Unavailable("the node is gone".to_owned());
        db.fake.late_fragment_errors.lock().extend([lost(), lost(), lost()]);
        assert_eq!(sorted(&db, sql).await, right, "{sql}");
        assert!(db.fake.late_fragment_errors.lock().is_empty());
    }
    let broken = Error::Corrupted("file 7".to_owned());
    db.fake.late_fragment_errors.lock().push_back(broken);
    let error = db.error(GROUPED).await;
    assert_eq!(error.sqlstate, "XX001");
    assert!(error.detail.unwrap().contains("table \"t\", partition"), "{}", error.message);
    // Not for ever.
    for _ in 0..100 {
        let lost = Error::Unavailable("the node is gone".to_owned());
        db.fake.late_fragment_errors.lock().push_back(lost);
    }
    assert_eq!(db.error(GROUPED).await.sqlstate, "57P03");
}

#[tokio::test]
async fn nodes_of_another_version_give_rows_and_the_rest_is_done_here() {
    let db = events().await;
    for sql in [GROUPED, "SELECT k, n FROM t WHERE n % 7 > 3", "SELECT n FROM t ORDER BY n LIMIT 4"]
    {
        let right = expected(&db, sql).await;
        let before = db.fake.fragments.load(Ordering::Relaxed);
        let other = || Error::Unsupported("a part of a query of version 9".to_owned());
        // Some of the nodes, as while they are upgraded one after another.
        db.fake.fragment_errors.lock().extend([other(), other()]);
        assert_eq!(sorted(&db, sql).await, right, "{sql}");
        assert_eq!(db.fake.fragments.load(Ordering::Relaxed) - before, 2);
        assert!(db.fake.fragment_errors.lock().is_empty());
    }
}

#[tokio::test]
async fn what_a_node_has_too_little_memory_for_is_done_here() {
    let db = events().await;
    let right = expected(&db, GROUPED).await;
    let full = Error::Query {
        sqlstate: "53200".to_owned(),
        message: "the query needs more memory than it may have".to_owned(),
        hint: None,
    };
    db.fake.late_fragment_errors.lock().extend([full.clone(), full]);
    let before = db.fake.fragments.load(Ordering::Relaxed);
    assert_eq!(sorted(&db, GROUPED).await, right);
    assert!(db.fake.late_fragment_errors.lock().is_empty());
    // Two of the four partitions; their second start does not reach a node.
    assert_eq!(db.fake.fragments.load(Ordering::Relaxed) - before, 4);
}

#[tokio::test]
async fn writes_that_read_find_their_rows_at_the_data() {
    let db = events().await;
    db.mode("always").await;
    db.tag("CREATE TABLE copy (k BIGINT, h STRING, n INT, PRIMARY KEY (k, h))").await;
    db.tag("INSERT INTO copy SELECT k, h, max(n) FROM t WHERE n > 3 GROUP BY k, h").await;
    db.same("SELECT count(*), sum(n) FROM copy").await;
    let gone: usize = db.one("SELECT count(*) FROM t WHERE n % 2 = 0").await.parse().unwrap();
    assert_eq!(db.tag("DELETE FROM t WHERE n % 2 = 0").await, format!("DELETE {gone}"));
    assert_eq!(db.one("SELECT count(*) FROM t WHERE n % 2 = 0").await, "0");
    let left: usize = db.one("SELECT count(*) FROM t").await.parse().unwrap();
    assert_eq!(left + gone, db.fake.rows("public", "t").iter().sum::<usize>() + gone);
}

#[tokio::test]
async fn explain_analyze_and_the_log_tell_what_was_scanned() {
    let db = events().await;
    db.mode("always").await;
    let plan = db.explain("ANALYZE SELECT h, count(*) FROM t GROUP BY h").await;
    let line = plan.lines().find(|line| line.contains("AtDataExec: Aggregate")).unwrap();
    let scanned: usize = db.fake.rows("public", "t").iter().sum();
    assert!(line.contains(&format!("rows_scanned={scanned}")), "{line}");
    assert!(line.contains("partitions_touched=4"), "{line}");
    assert_eq!(db.lines("SELECT h, count(*) FROM t GROUP BY h").await.len(), 5);
    assert_eq!(db.logged("SELECT").rows_scanned, scanned as u64);
    let newest = db.explain("SELECT k, h, max(ts) FROM t GROUP BY k, h").await;
    let line = newest.lines().find(|line| line.contains("AtDataExec: Aggregate")).unwrap();
    assert!(line.contains("newest_only=true"), "{line}");
}
