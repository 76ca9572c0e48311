//! A14, A22 to A25, A32, A34, A37 and A40: placement and number of partitions, and their load.

use partita_proto::schema::TABLE_PARTITIONS_MAX;
use partita_sql::identifier::quote;
use serde_json::json;

use crate::ddl::{Definition, HASH_PARTITIONS, alter, lead_key, rekey_by_hash};
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{ColumnFacts, FilterClass, PartitionFacts, Placed};
use crate::rates::whole;
use crate::table::{Subject, rounded, share, with_ddl, with_design};
use crate::words::{is_date, share_of};

/// Maximum number of statements that merge partitions.
const MERGES_MAX: usize = 64;
/// Options of tables.
const MIN_PARTITIONS: &str = "auto_partitioning_min_partitions_count";
const MAX_PARTITIONS: &str = "auto_partitioning_max_partitions_count";

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    monotonic_key(subject, findings);
    by_time(subject, findings);
    too_many(subject, findings);
    too_few(subject, findings);
    skewed(subject, findings);
    hash_scatters(subject, findings);
    hot_key(subject, findings);
    outside_key(subject, findings);
    far_limits(subject, findings);
}

/// Rules about the partitions of a materialized copy: the only change of a copy is a split.
pub(crate) fn rules_of_copy(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    too_few(subject, findings);
    skewed(subject, findings);
}

/// Number of partitions for the bytes and the load of a table, or the present one where its size is not known, as in lint;
/// `None` if one partition is enough.
fn sufficient(subject: &Subject<'_>) -> Option<u16> {
    let table = subject.table;
    let number = match table.bytes.and_then(|_| wanted(subject)) {
        Some(by_size) => {
            let busy: f64 = table.partitions.iter().filter_map(|partition| partition.busy).sum();
            let by_load = whole((busy / subject.thresholds.busy_partition).ceil());
            by_size.max(by_load).max(table.min_partitions)
        }
        None => subject.partitions(),
    };
    let number = number.min(TABLE_PARTITIONS_MAX as u64);
    u16::try_from(number).ok().filter(|number| *number > 1)
}

/// Statements that place rows by hash of a column: new ones, where the table is, if every row is kept and no copy follows
/// it; otherwise all of them, if it is a column of the key.
fn placed_by_hash(subject: &Subject<'_>, column: &str, partitions: u16) -> Option<String> {
    let in_place = match subject.table.append_mode {
        true => subject.table.copies.is_empty(),
        false => subject.is_key(column),
    };
    if in_place {
        let action = format!("PARTITION BY HASH ({}) PARTITIONS {partitions}", quote(column));
        return Some(alter(subject.table, &action));
    }
    if subject.is_key(column) {
        return Some(rekey_by_hash(subject.table, column, partitions));
    }
    let mut definition = Definition::of(subject.table)?;
    definition.hash(column, partitions);
    definition.beside()
}

/// A14: key that grows at its end.
fn monotonic_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let Some(moving) = subject.table.moving_right else { return };
    let is_rising =
        moving.share_above >= thresholds.rising_share && moving.last_share >= thresholds.last_share;
    // One partition for all writes is enough as long as it carries them.
    if !is_rising || subject.table.carries_today() {
        return;
    }
    let Some(first) = subject.first_key() else { return };
    let tag = subject.most_varied_tag(&first.name);
    let ddl = match tag {
        Some(tag) if subject.table.append_mode => {
            placed_by_hash(subject, &tag.name, HASH_PARTITIONS)
        }
        Some(tag) => Some(lead_key(subject.table, &tag.name)),
        None => placed_by_hash(subject, &first.name, HASH_PARTITIONS),
    };
    let advice = match tag {
        Some(tag) => format!(
            "rows come in the order of the key, so one partition takes all writes: begin the key with \"{}\", or place \
             the rows by its hash",
            tag.name
        ),
        None => "rows come in the order of the key, so one partition takes all writes: place them by hash".to_owned(),
    };
    let evidence = json!({
        "share_above": rounded(moving.share_above), "last_share": rounded(moving.last_share), "first_key": first.name,
    });
    let finding = subject.finding(Rule::A14, Severity::Error, subject.object(), evidence, advice);
    let effect = Effect::in_words(format!(
        "writes go to up to {HASH_PARTITIONS} partitions in place of one"
    ));
    findings.push(with_design(subject, with_ddl(finding, ddl, Some(effect))));
}

/// Columns that decide the partition of a row.
fn deciding<'a>(subject: &Subject<'a>) -> Vec<&'a ColumnFacts> {
    let names: Vec<&String> = match &subject.table.placement {
        Placed::Range => subject.table.key.first().into_iter().collect(),
        Placed::Hash { columns } | Placed::Rules { columns } => columns.iter().collect(),
    };
    names.into_iter().filter_map(|name| subject.column(name)).collect()
}

/// A22: partitioned by time.
fn by_time(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let table = subject.table;
    // The partitions of a hot table are made by splits, and a hash of the time is A32.
    let rises = table
        .moving_right
        .is_some_and(|moving| moving.share_above >= subject.thresholds.rising_share);
    let is_split = table.placement == Placed::Range
        && (table.partitions.iter().any(|partition| partition.hot) || rises);
    let is_hashed = matches!(table.placement, Placed::Hash { .. });
    if subject.partitions() < 2 || is_split {
        return;
    }
    let is_time = |column: &&ColumnFacts| {
        let is_index = table.time_index.as_ref() == Some(&column.name);
        let least = subject.thresholds.pattern_sample;
        let dates = || share_of(&column.sample, least, is_date);
        (is_index && !is_hashed)
            || column.is_text()
                && dates().is_some_and(|dates| dates >= subject.thresholds.pattern_share)
    };
    let Some(column) = deciding(subject).into_iter().find(is_time) else { return };
    let varied = subject.most_varied_tag(&column.name);
    let ddl = varied
        .zip(sufficient(subject))
        .and_then(|(tag, partitions)| placed_by_hash(subject, &tag.name, partitions));
    let advice = "files are kept by time anyway, so partitions by time only put all new rows into one of them: place the \
                  rows by what they are about";
    let evidence = json!({ "column": column.name, "partitions": subject.partitions() });
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A22, Severity::Warning, object, evidence, advice);
    let effect = ddl.as_ref().map(|_| Effect::in_words("new rows go to all partitions"));
    findings.push(with_design(subject, with_ddl(finding, ddl, effect)));
}

/// Number of partitions that the bytes of a table need.
fn wanted(subject: &Subject<'_>) -> Option<u64> {
    let size = subject.table.partition_size_mb.checked_mul(1 << 20).filter(|size| *size > 0)?;
    let bytes: u64 = subject.table.partitions.iter().map(|partition| partition.bytes).sum();
    Some(bytes.div_ceil(size).max(1))
}

/// A23: too many partitions.
fn too_many(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let table = subject.table;
    let number = subject.partitions();
    // Merges are refused for tables that copies follow.
    if !table.copies.is_empty() {
        return;
    }
    let Some(target) = wanted(subject) else { return };
    // Without figures of load, nobody knows that they are idle.
    let busy: Option<Vec<f64>> = table.partitions.iter().map(|partition| partition.busy).collect();
    let Some(busy) = busy else { return };
    let busiest = busy.into_iter().fold(0.0, f64::max);
    let bytes: u64 = table.partitions.iter().map(|partition| partition.bytes).sum();
    let mean = share(bytes, number);
    let size = (table.partition_size_mb << 20) as f64;
    let target = target.max(table.min_partitions).max(1);
    if number <= target
        || number <= table.min_partitions.max(1)
        || mean >= thresholds.small_partition * size
        || busiest >= thresholds.idle_partition
    {
        return;
    }
    let evidence = json!({
        "partitions": number, "mean_bytes": mean.round(), "partition_size_mb": table.partition_size_mb,
        "busiest": rounded(busiest), "target": target,
    });
    let (count, verb) = match target {
        1 => ("one partition".to_owned(), "is"),
        _ => (format!("{target} partitions"), "are"),
    };
    let advice = format!("{count} {verb} enough for these bytes and this load: merge neighbours");
    let finding = subject.finding(Rule::A23, Severity::Warning, subject.object(), evidence, advice);
    let effect = Effect {
        partitions: Some(share(target, number)),
        text: format!("{count} in place of {number}"),
        ..Effect::default()
    };
    findings.push(with_ddl(finding, Some(merges(subject, target)), Some(effect)));
}

/// Statements that merge neighbours until so many partitions are left.
fn merges(subject: &Subject<'_>, target: u64) -> String {
    let partitions = &subject.table.partitions;
    let groups = usize::try_from(target).unwrap_or(usize::MAX).clamp(1, partitions.len().max(1));
    let mut statements = Vec::new();
    for group in 0..groups {
        let begin = group * partitions.len() / groups;
        let end = (group + 1) * partitions.len() / groups;
        let mut members = partitions.get(begin..end).unwrap_or_default().iter();
        // The lower one of two neighbours remains.
        let Some(first) = members.next() else { continue };
        for member in members {
            let action = format!("MERGE PARTITIONS ({}, {})", first.id, member.id);
            statements.push(alter(subject.table, &action));
        }
    }
    let remaining = statements.len().saturating_sub(MERGES_MAX);
    statements.truncate(MERGES_MAX);
    if remaining > 0 {
        statements.push(format!("-- and {remaining} more merges of neighbours"));
    }
    statements.join("\n")
}

/// Sets an option of a table to a number.
fn set_option(subject: &Subject<'_>, option: &str, number: u64) -> String {
    alter(subject.table, &format!("SET ('{option}' = {number})"))
}

/// A24: too few partitions.
fn too_few(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let table = subject.table;
    let number = subject.partitions();
    let limit = table.max_partitions;
    let is_capped = limit > 0 && number >= limit;
    let busiest = subject.busiest();
    let overloaded = busiest.filter(|partition| {
        partition.busy.is_some_and(|busy| busy > subject.thresholds.busy_partition)
    });
    let hot = table.partitions.iter().find(|partition| partition.hot);
    // One key, or a key that only grows, cannot be split: A34 and A14 say what helps.
    let is_in_vain = table
        .moving_right
        .is_some_and(|moving| moving.share_above >= subject.thresholds.rising_share)
        || table.hot_keys.first().is_some_and(|key| key.share > subject.thresholds.hot_key_share);
    let loaded = overloaded.or(hot.filter(|_| is_capped)).filter(|_| !is_in_vain);
    // The options of a copy are those of its source.
    if table.is_copy && (is_capped || loaded.is_none()) {
        return;
    }
    if let Some(partition) = loaded {
        let evidence = json!({
            "partition": partition.id, "busy": partition.busy.map(rounded), "partitions": number, "max_partitions": limit,
        });
        let (ddl, advice) = if is_capped {
            let ddl = set_option(subject, MAX_PARTITIONS, limit.saturating_mul(2));
            (ddl, "the table has as many partitions as its options allow: raise the maximum")
        } else {
            let ddl = alter(table, &format!("SPLIT PARTITION {}", partition.id));
            (ddl, "one partition is busy for more than half of the time: split it")
        };
        let finding =
            subject.finding(Rule::A24, Severity::Warning, subject.object(), evidence, advice);
        let effect = Effect {
            partitions: Some(share(number + 1, number.max(1))),
            text: "half the load on the busiest partition".to_owned(),
            ..Effect::default()
        };
        findings.push(with_design(subject, with_ddl(finding, Some(ddl), Some(effect))));
        return;
    }
    let Some(nodes) = subject.settings.nodes else { return };
    let bytes: u64 = table.partitions.iter().map(|partition| partition.bytes).sum();
    let size = table.partition_size_mb << 20;
    if number > 0 && number < nodes && size > 0 && bytes > size && !is_in_vain {
        let evidence = json!({ "partitions": number, "nodes": nodes, "bytes": bytes });
        let advice = "some nodes have no part of the table: let it have a partition for each node";
        let finding =
            subject.finding(Rule::A24, Severity::Warning, subject.object(), evidence, advice);
        let ddl = set_option(subject, MIN_PARTITIONS, nodes);
        let effect = Effect {
            partitions: Some(share(nodes, number)),
            text: format!("{nodes} nodes in place of {number} share the work"),
            ..Effect::default()
        };
        findings.push(with_ddl(finding, Some(ddl), Some(effect)));
    }
}

/// A25: partitions of unequal load.
fn skewed(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let partitions = &subject.table.partitions;
    if (partitions.len() as f64) < thresholds.skew_partitions || subject.table.carries_today() {
        return;
    }
    let ratio = |value: &dyn Fn(&PartitionFacts) -> f64| {
        let total: f64 = partitions.iter().map(value).sum();
        let most = partitions.iter().map(value).fold(0.0, f64::max);
        if total > 0.0 { most * partitions.len() as f64 / total } else { 0.0 }
    };
    let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
    let bytes: u64 = partitions.iter().map(|partition| partition.bytes).sum();
    let writes: f64 = partitions.iter().filter_map(|partition| partition.writes_per_s).sum();
    let row_ratio = ratio(&|partition| partition.rows as f64);
    let write_ratio = ratio(&|partition| partition.writes_per_s.unwrap_or_default());
    // One node carries a small table, and few writes, however they are divided.
    let is_large = rows as f64 >= thresholds.skew_rows && bytes as f64 >= thresholds.skew_bytes;
    let by_rows = row_ratio > thresholds.skew_ratio && is_large;
    let by_writes = write_ratio > thresholds.skew_ratio && writes >= thresholds.skew_writes;
    if !by_rows && !by_writes {
        return;
    }
    let most = if by_rows {
        partitions.iter().max_by_key(|partition| partition.rows)
    } else {
        let writes = |partition: &PartitionFacts| partition.writes_per_s.unwrap_or_default();
        partitions.iter().max_by(|a, b| writes(a).total_cmp(&writes(b)))
    };
    let Some(most) = most else { return };
    let evidence = json!({
        "partition": most.id, "rows_ratio": rounded(row_ratio), "writes_ratio": rounded(write_ratio),
        "partitions": partitions.len(),
    });
    let advice = "one partition has far more than the others: split it; if the same happens again, place the rows by hash \
                  of a column with many values";
    let finding = subject.finding(Rule::A25, Severity::Warning, subject.object(), evidence, advice);
    let ddl = alter(subject.table, &format!("SPLIT PARTITION {}", most.id));
    let effect = Effect::in_words("half of the largest partition");
    findings.push(with_design(subject, with_ddl(finding, Some(ddl), Some(effect))));
}

/// A32: hash that scatters an entity.
fn hash_scatters(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let Placed::Hash { columns } = &subject.table.placement else { return };
    let hashed: Vec<&ColumnFacts> =
        columns.iter().filter_map(|name| subject.column(name)).collect();
    // Without another key column, rows have no entity that belongs together.
    let entity = subject
        .most_varied_tag("")
        .filter(|tag| hashed.len() > 1 || hashed.iter().all(|column| column.name != tag.name));
    let Some(entity) = entity else { return };
    let time = hashed.iter().find(|column| subject.table.time_index.as_ref() == Some(&column.name));
    let binds_others = || {
        let is_bound = |statement: &&&crate::StatementShape| {
            subject.is_filtered(statement, &entity.name, &[FilterClass::Point, FilterClass::Points])
                && hashed.iter().any(|column| {
                    column.name != entity.name
                        && !subject.is_filtered(
                            statement,
                            &column.name,
                            &[FilterClass::Point, FilterClass::Points],
                        )
                })
        };
        let bound = subject.statements.iter().filter(is_bound);
        let calls: u64 = bound.map(|statement| statement.calls).sum();
        calls as f64 >= subject.thresholds.calls
    };
    let unique = || {
        hashed.iter().find(|column| {
            column.name != entity.name
                && column
                    .distinct_share()
                    .is_some_and(|share| share > subject.thresholds.scatter_share)
        })
    };
    let scattering = time.or_else(|| unique().filter(|_| binds_others()));
    let Some(column) = scattering else { return };
    let evidence = json!({ "hashed": columns, "scattered_by": column.name, "partitions": subject.partitions() });
    let advice = format!(
        "\"{}\" differs from row to row, so the rows of one \"{}\" are in all partitions: hash \"{}\" alone",
        column.name, entity.name, entity.name
    );
    let finding = subject.finding(Rule::A32, Severity::Warning, subject.object(), evidence, advice);
    let number = subject.partitions().max(1);
    let effect = Effect {
        rows_read: Some(1.0 / number as f64),
        partitions: Some(1.0 / number as f64),
        text: format!(
            "a read of one \"{}\" goes to one partition in place of {number}",
            entity.name
        ),
        ..Effect::default()
    };
    let ddl = sufficient(subject)
        .and_then(|partitions| placed_by_hash(subject, &entity.name, partitions));
    findings.push(with_design(subject, with_ddl(finding, ddl, Some(effect))));
}

/// A34: single hot key.
fn hot_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let Some(key) = subject.table.hot_keys.first() else { return };
    let is_hot = subject.table.partitions.iter().any(|partition| partition.hot);
    if !is_hot || key.share <= subject.thresholds.hot_key_share {
        return;
    }
    let evidence = json!({ "key": key.key, "share": rounded(key.share) });
    let advice = format!(
        "no split divides the load of one key, {}: add a column to the key that divides it, such as a random number that \
         readers combine again (salt), or write fewer versions of it",
        key.key
    );
    let finding = subject.finding(Rule::A34, Severity::Error, subject.object(), evidence, advice);
    findings.push(with_design(subject, finding));
}

/// A37: partition column outside the key.
fn outside_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let columns = match &subject.table.placement {
        Placed::Range => return,
        Placed::Hash { columns } | Placed::Rules { columns } => columns,
    };
    if subject.table.append_mode {
        return;
    }
    for column in columns.iter().filter(|column| !subject.is_key(column)) {
        let object = subject.column_object(column);
        let evidence = json!({ "partition_columns": columns, "key": subject.table.key });
        let advice = format!(
            "two versions of one row could be in two partitions: add \"{column}\" to the key, or keep every row \
             ('append_mode')"
        );
        findings.push(subject.finding(Rule::A37, Severity::Error, object, evidence, advice));
    }
}

/// A40: partition limits far apart.
fn far_limits(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let (least, most) = (subject.table.min_partitions, subject.table.max_partitions);
    let Some(cycles) = subject.table.split_merge_cycles_per_day else { return };
    let gap = if most == 0 { 1.0 } else { share(most.saturating_sub(least), most) };
    if gap <= thresholds.limit_gap || cycles < thresholds.cycles_per_day {
        return;
    }
    // The number that the load has led to is where the limits belong.
    let number = subject.partitions().max(least).max(1);
    let limit = whole((number as f64 / (1.0 - thresholds.limit_gap.min(0.9))).floor()).max(number);
    let evidence = json!({
        "min_partitions": least, "max_partitions": most, "cycles_per_day": rounded(cycles), "partitions": number,
    });
    let advice = "partitions are split and merged again and again: bring the limits of their number closer together";
    let ddl = format!(
        "{}\n{}",
        set_option(subject, MIN_PARTITIONS, number),
        set_option(subject, MAX_PARTITIONS, limit)
    );
    let finding = subject.finding(Rule::A40, Severity::Info, subject.object(), evidence, advice);
    findings.push(with_ddl(finding, Some(ddl), Some(Effect::in_words("fewer splits and merges"))));
}

#[cfg(test)]
mod tests {
    use crate::finding::{Rule, Severity};
    use crate::measurements::{
        DesignFacts, Filter, FilterClass, HotKey, MovingFacts, PartitionFacts, Placed,
        StatementShape, TableFacts,
    };
    use crate::tests::{alone, column, of_rule, parses, table};

    const EVENTS: &str = "CREATE TABLE events (ts TIMESTAMP(6) TIME INDEX, userid BIGINT UNSIGNED, userevent STRING, \
         PRIMARY KEY (ts, userid))";

    fn partitions(number: u64) -> Vec<PartitionFacts> {
        (1..=number).map(|id| PartitionFacts { id, ..PartitionFacts::default() }).collect()
    }

    #[test]
    fn a14_the_events_of_the_seed_get_another_order() {
        let mut facts = table(EVENTS);
        column(&mut facts, "userid").distinct = Some(10_000);
        facts.moving_right = Some(MovingFacts { share_above: 1.0, last_share: 1.0 });
        let finding = of_rule(&alone(facts.clone()), Rule::A14).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(
            ddl.contains("PRIMARY KEY (userid)") || ddl.contains("PRIMARY KEY (userid, ts)"),
            "{ddl}"
        );
        // A few rows that come late are no other order; half of the rows are.
        facts.moving_right = Some(MovingFacts { share_above: 0.94, last_share: 1.0 });
        assert!(of_rule(&alone(facts.clone()), Rule::A14).is_none());
        facts.moving_right = Some(MovingFacts { share_above: 1.0, last_share: 0.79 });
        assert!(of_rule(&alone(facts), Rule::A14).is_none());
    }

    #[test]
    fn a14_a_log_is_placed_by_hash_without_a_copy() {
        let mut facts = table(&format!("{EVENTS} WITH ('append_mode' = 'true')"));
        facts.moving_right = Some(MovingFacts { share_above: 1.0, last_share: 1.0 });
        let ddl = of_rule(&alone(facts), Rule::A14).unwrap().ddl.unwrap();
        parses(&ddl);
        assert_eq!(ddl, "ALTER TABLE public.events PARTITION BY HASH (userid) PARTITIONS 16;");
    }

    fn design(clauses: &str, is_today: bool, carries: bool) -> DesignFacts {
        DesignFacts {
            clauses: clauses.to_owned(),
            placed: clauses.to_owned(),
            sql: (!is_today).then(|| "ALTER TABLE public.t SET ('ttl' = '1d');".to_owned()),
            n_eff: if is_today { 1.0 } else { 7.5 },
            max_share: 0.2,
            partitions_per_read: if is_today { 4.0 } else { 1.0 },
            carries,
            is_today,
        }
    }

    #[test]
    fn a14_the_best_design_is_printed_and_none_where_todays_carries() {
        let mut facts = table(EVENTS);
        facts.moving_right = Some(MovingFacts { share_above: 1.0, last_share: 1.0 });
        let better = design("PRIMARY KEY (userid, ts)", false, true);
        facts.designs = vec![better.clone(), design("PRIMARY KEY (ts, userid)", true, false)];
        let finding = of_rule(&alone(facts.clone()), Rule::A14).unwrap();
        assert_eq!(finding.ddl, better.sql);
        assert!(
            finding.advice.ends_with("PRIMARY KEY (userid, ts) carries the load"),
            "{finding:?}"
        );
        let effect = finding.effect.unwrap();
        assert_eq!(effect.partitions, Some(0.25));
        assert_eq!(effect.text, "writes as on 7.5 equal partitions in place of 1.0");
        facts.designs = vec![design("PRIMARY KEY (ts, userid)", true, true), better];
        assert!(of_rule(&alone(facts), Rule::A14).is_none());
    }

    #[test]
    fn a25_and_a34_follow_the_best_design() {
        let mut facts = sized(4, 400 << 20, 0.2);
        facts.partitions[3].rows = 100_000;
        facts.partitions[3].hot = true;
        facts.hot_keys = vec![HotKey { key: "('a')".to_owned(), share: 0.9 }];
        let better = design("PARTITION BY HASH (host, ts) PARTITIONS 8", false, true);
        facts.designs = vec![better.clone(), design("PRIMARY KEY (host, ts)", true, false)];
        for rule in [Rule::A25, Rule::A34] {
            assert_eq!(of_rule(&alone(facts.clone()), rule).unwrap().ddl, better.sql, "{rule:?}");
        }
        facts.designs = vec![design("PRIMARY KEY (host, ts)", true, true)];
        assert!(of_rule(&alone(facts), Rule::A25).is_none());
    }

    #[test]
    fn a22_partitions_by_time_are_found() {
        let mut facts = table(EVENTS);
        facts.partitions = partitions(2);
        column(&mut facts, "userid").distinct = Some(10);
        let finding = of_rule(&alone(facts.clone()), Rule::A22).unwrap();
        assert_eq!(finding.object, "public.events.ts");
        parses(&finding.ddl.unwrap());
        // Splits of a hot table are none of the owner's.
        facts.partitions[1].hot = true;
        assert!(of_rule(&alone(facts.clone()), Rule::A22).is_none());
        facts.partitions = partitions(1);
        assert!(of_rule(&alone(facts), Rule::A22).is_none());
    }

    #[test]
    fn a22_a_partition_for_each_day_as_in_the_seed_is_one_by_time() {
        let mut facts = table(
            "CREATE TABLE logs (day STRING, host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (day, host))",
        );
        facts.partitions = partitions(7);
        column(&mut facts, "day").sample = (10..18).map(|day| format!("2021-03-{day}")).collect();
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A22).unwrap().object, "public.logs.day");
        column(&mut facts, "day").sample = (10..18).map(|day| format!("host-{day}")).collect();
        assert!(of_rule(&alone(facts), Rule::A22).is_none());
    }

    fn sized(number: u64, bytes: u64, busy: f64) -> TableFacts {
        let mut facts = table(
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (host))",
        );
        facts.partitions = partitions(number);
        for partition in &mut facts.partitions {
            (partition.bytes, partition.busy) = (bytes, Some(busy));
        }
        facts
    }

    #[test]
    fn a23_small_idle_partitions_are_merged() {
        let finding = of_rule(&alone(sized(16, 50 << 20, 0.05)), Rule::A23).unwrap();
        assert_eq!(finding.evidence["target"], 2);
        assert_eq!(finding.effect.unwrap().partitions, Some(0.125));
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert_eq!(ddl.lines().count(), 14);
        assert!(ddl.starts_with("ALTER TABLE public.t MERGE PARTITIONS (1, 2);"), "{ddl}");
        // Larger or busier ones stay, and so does the minimum.
        assert!(of_rule(&alone(sized(16, 52 << 20, 0.05)), Rule::A23).is_none());
        assert!(of_rule(&alone(sized(16, 50 << 20, 0.1)), Rule::A23).is_none());
        let mut facts = sized(16, 50 << 20, 0.05);
        facts.min_partitions = 16;
        assert!(of_rule(&alone(facts), Rule::A23).is_none());
    }

    #[test]
    fn a23_partitions_that_copies_follow_are_not_merged() {
        let mut facts = sized(16, 50 << 20, 0.05);
        facts.copies = vec!["t_by_v".to_owned()];
        assert!(of_rule(&alone(facts.clone()), Rule::A23).is_none());
        (facts.copies, facts.is_copy) = (Vec::new(), true);
        assert!(of_rule(&alone(facts), Rule::A23).is_none());
    }

    #[test]
    fn a14_a_log_with_copies_is_rekeyed() {
        let mut facts = table(&format!("{EVENTS} WITH ('append_mode' = 'true')"));
        facts.moving_right = Some(MovingFacts { share_above: 1.0, last_share: 1.0 });
        facts.copies = vec!["by_user".to_owned()];
        let ddl = of_rule(&alone(facts), Rule::A14).unwrap().ddl.unwrap();
        parses(&ddl);
        assert_eq!(
            ddl,
            "ALTER TABLE public.events PRIMARY KEY (ts, userid) PARTITION BY HASH (userid) PARTITIONS 16;"
        );
    }

    #[test]
    fn a23_ten_thousand_bytes_need_one_partition() {
        // The seed: a table can use all of a machine without partitions.
        let finding = of_rule(&alone(sized(8, 10_000, 0.0)), Rule::A23).unwrap();
        assert_eq!(finding.evidence["target"], 1);
        assert!(finding.advice.starts_with("one partition is enough for"), "{finding:?}");
        assert_eq!(finding.effect.unwrap().text, "one partition in place of 8");
    }

    #[test]
    fn a_hash_has_as_many_partitions_as_bytes_and_load_need() {
        // The partitions of a table with such a size and load each, by two rules and as they are known.
        let advised = |bytes: u64, busy: f64, known: bool| {
            [
                ("PRIMARY KEY (day, host))", Rule::A22),
                ("PRIMARY KEY (host, ts)) PARTITION BY HASH (ts, host) PARTITIONS 8", Rule::A32),
            ]
            .map(|(clauses, rule)| {
                let mut facts = table(&format!(
                    "CREATE TABLE t (day STRING, host STRING, ts TIMESTAMP TIME INDEX, {clauses}"
                ));
                facts.partitions = partitions(8);
                for partition in &mut facts.partitions {
                    (partition.bytes, partition.busy) = (bytes, Some(busy));
                }
                facts.bytes = known.then_some(8 * bytes);
                column(&mut facts, "day").sample =
                    (10..18).map(|day| format!("2021-03-{day}")).collect();
                column(&mut facts, "host").distinct = Some(10_000);
                let findings = alone(facts);
                let small = of_rule(&findings, Rule::A23).is_some();
                let ddl = of_rule(&findings, rule).unwrap().ddl;
                let number = ddl.and_then(|ddl| {
                    parses(&ddl);
                    let (_, rest) = ddl.split_once("PARTITION BY HASH (host) PARTITIONS ")?;
                    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
                });
                (number, small)
            })
        };
        assert_eq!(advised(10_000, 0.0, true), [(None, true); 2], "one partition is enough");
        assert_eq!(advised(256 << 20, 0.0, true), [(Some(4), false); 2]);
        assert_eq!(advised(10_000, 0.2, true), [(Some(4), false); 2]);
        assert_eq!(advised(0, 0.2, false), [(Some(8), false); 2]);
    }

    #[test]
    fn a24_an_overloaded_partition_is_split() {
        let mut facts = sized(2, 400 << 20, 0.2);
        facts.partitions[1].busy = Some(0.51);
        let finding = of_rule(&alone(facts.clone()), Rule::A24).unwrap();
        assert_eq!(finding.ddl.unwrap(), "ALTER TABLE public.t SPLIT PARTITION 2;");
        facts.partitions[1].busy = Some(0.5);
        assert!(of_rule(&alone(facts), Rule::A24).is_none());
    }

    #[test]
    fn a24_a_table_at_its_maximum_gets_a_larger_one() {
        let mut facts = sized(2, 400 << 20, 0.2);
        facts.max_partitions = 2;
        assert!(of_rule(&alone(facts.clone()), Rule::A24).is_none());
        facts.partitions[0].hot = true;
        let ddl = of_rule(&alone(facts.clone()), Rule::A24).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("'auto_partitioning_max_partitions_count' = 4"), "{ddl}");
        // A split of a single hot key is in vain.
        facts.hot_keys = vec![HotKey { key: "(1)".to_owned(), share: 0.9 }];
        assert!(of_rule(&alone(facts), Rule::A24).is_none());
    }

    #[test]
    fn a24_every_node_gets_a_partition() {
        let mut measurements = alone(sized(1, 600 << 20, 0.2));
        measurements.settings.nodes = Some(3);
        let ddl = of_rule(&measurements, Rule::A24).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("'auto_partitioning_min_partitions_count' = 3"), "{ddl}");
        measurements.settings.nodes = Some(1);
        assert!(of_rule(&measurements, Rule::A24).is_none());
    }

    #[test]
    fn a25_one_partition_with_nearly_everything_is_split() {
        let mut facts = sized(4, 400 << 20, 0.2);
        for (partition, rows) in facts.partitions.iter_mut().zip([1_000, 1_000, 1_000, 9_000]) {
            partition.rows = rows;
        }
        assert!(of_rule(&alone(facts.clone()), Rule::A25).is_none(), "three times the mean");
        facts.partitions[3].rows = 9_100;
        assert!(of_rule(&alone(facts.clone()), Rule::A25).is_some());
        facts.partitions.truncate(3);
        assert!(of_rule(&alone(facts), Rule::A25).is_none());
    }

    #[test]
    fn a25_small_tables_and_few_writes_are_left_alone() {
        let skewed = |bytes: u64, rows: u64, writes: f64| {
            let mut facts = sized(4, bytes, 0.2);
            for partition in &mut facts.partitions {
                (partition.rows, partition.writes_per_s) = (0, Some(0.0));
            }
            (facts.partitions[3].rows, facts.partitions[3].writes_per_s) = (rows, Some(writes));
            of_rule(&alone(facts), Rule::A25).is_some()
        };
        assert!(skewed(16 << 20, 10_000, 0.0));
        assert!(!skewed(15 << 20, 10_000, 0.0), "60 MiB in all");
        assert!(!skewed(16 << 20, 9_999, 0.0));
        assert!(skewed(0, 1, 1_000.0));
        assert!(!skewed(0, 9_999, 999.0));
    }

    #[test]
    fn a25_writes_are_compared_as_well() {
        // The seed's zipf: four equal ranges of users, one of which takes 79 % of the writes.
        let mut facts = sized(4, 400 << 20, 0.2);
        for (partition, writes) in facts.partitions.iter_mut().zip([787.0, 71.0, 71.0, 71.0]) {
            (partition.rows, partition.writes_per_s) = (10_000, Some(writes));
        }
        assert_eq!(of_rule(&alone(facts), Rule::A25).unwrap().evidence["partition"], 1);
    }

    #[test]
    fn a32_the_hash_of_the_seed_scatters_the_user() {
        let facts = table(
            "CREATE TABLE events (ts TIMESTAMP(6) TIME INDEX, userid BIGINT UNSIGNED, userevent STRING, \
             PRIMARY KEY (userid, ts)) PARTITION BY HASH (ts, userid) PARTITIONS 8",
        );
        let finding = of_rule(&alone(facts), Rule::A32).unwrap();
        assert_eq!(finding.effect.clone().unwrap().partitions, Some(0.125));
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("PARTITION BY HASH (userid) PARTITIONS 8"), "{ddl}");
        // The corrected form keeps a user together.
        let facts = table(
            "CREATE TABLE events (ts TIMESTAMP(6) TIME INDEX, userid BIGINT UNSIGNED, userevent STRING, \
             PRIMARY KEY (userid, ts)) PARTITION BY HASH (userid) PARTITIONS 8",
        );
        assert!(of_rule(&alone(facts), Rule::A32).is_none());
    }

    #[test]
    fn a32_a_unique_column_scatters_if_reads_bind_another() {
        let mut facts = table(
            "CREATE TABLE orders (customer STRING, number STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (customer, number)) PARTITION BY HASH (customer, number) PARTITIONS 8",
        );
        column(&mut facts, "customer").distinct = Some(900_000);
        (column(&mut facts, "customer").values, column(&mut facts, "number").values) =
            (Some(1_000_000), Some(1_000_000));
        column(&mut facts, "number").distinct = Some(600_000);
        let mut measurements = alone(facts);
        assert!(of_rule(&measurements, Rule::A32).is_none());
        measurements.statements.push(StatementShape {
            tables: vec!["public.orders".to_owned()],
            calls: 20,
            filters: vec![Filter {
                table: "public.orders".to_owned(),
                column: "customer".to_owned(),
                class: FilterClass::Point,
            }],
            ..StatementShape::default()
        });
        assert!(of_rule(&measurements, Rule::A32).is_some());
        column(&mut measurements.tables[0], "number").distinct = Some(500_000);
        assert!(of_rule(&measurements, Rule::A32).is_none());
    }

    #[test]
    fn a34_one_key_cannot_be_split() {
        let mut facts = sized(2, 400 << 20, 0.4);
        facts.hot_keys = vec![HotKey { key: "('user 1')".to_owned(), share: 0.21 }];
        assert!(of_rule(&alone(facts.clone()), Rule::A34).is_none(), "no partition is hot");
        facts.partitions[0].hot = true;
        let finding = of_rule(&alone(facts.clone()), Rule::A34).unwrap();
        assert_eq!((finding.severity, finding.ddl), (Severity::Error, None));
        facts.hot_keys[0].share = 0.2;
        assert!(of_rule(&alone(facts), Rule::A34).is_none());
    }

    #[test]
    fn a37_a_partition_column_outside_the_key_is_an_error() {
        let mut facts = table(
            "CREATE TABLE t (host STRING, area STRING, ts TIMESTAMP TIME INDEX, PRIMARY KEY (host))",
        );
        facts.placement = Placed::Hash { columns: vec!["area".to_owned()] };
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A37).unwrap().severity, Severity::Error);
        facts.append_mode = true;
        assert!(of_rule(&alone(facts.clone()), Rule::A37).is_none());
        (facts.append_mode, facts.placement) =
            (false, Placed::Hash { columns: vec!["host".to_owned()] });
        assert!(of_rule(&alone(facts), Rule::A37).is_none());
    }

    #[test]
    fn a40_limits_far_apart_let_partitions_come_and_go() {
        let mut facts = sized(10, 400 << 20, 0.2);
        (facts.min_partitions, facts.max_partitions) = (1, 50);
        facts.split_merge_cycles_per_day = Some(3.0);
        let ddl = of_rule(&alone(facts.clone()), Rule::A40).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(
            ddl.contains("min_partitions_count' = 10")
                && ddl.contains("max_partitions_count' = 12"),
            "{ddl}"
        );
        facts.split_merge_cycles_per_day = Some(2.9);
        assert!(of_rule(&alone(facts.clone()), Rule::A40).is_none());
        (facts.min_partitions, facts.max_partitions) = (40, 50);
        facts.split_merge_cycles_per_day = Some(3.0);
        assert!(of_rule(&alone(facts), Rule::A40).is_none());
    }
}
