//! Questions about balloons, in SQL for each pattern.
//!
//! ```text
//!   a minute, an hour or all of one balloon, all of a location  ×  all columns, or the pressure alone
//! ```
//!
//! Rows of wide tables are read by their key or a prefix of it, as Bigtable's clients do; conditions on times within a row
//! are those of its cells.
//!
//! Invariant: a question asks each pattern for the same events, so the number of cells that answer it is known.

use super::balloons::{
    Data, Event, FAMILY, KeyOrder, METRICS, Pattern, balloon_key, bucket, location, moment, stamp,
};

/// Minutes of an hour.
const HOUR: u64 = 60;

/// Events that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// One event.
    Minute,
    /// An hour of one balloon.
    Hour,
    /// All minutes of one balloon, up to a week.
    Week,
    /// All minutes of all balloons at a location, by the prefix of their keys.
    Many,
}

/// What a reader of the rows wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) scope: Scope,
    /// True if it asks for all columns, false if for the pressure.
    pub(super) all: bool,
}

/// Condition on row keys: an argument of `cells`, and a pattern that they match.
#[derive(Default)]
struct Keys {
    argument: Option<String>,
    like: Option<String>,
}

impl Keys {
    fn row(key: &str) -> Self {
        Self { argument: Some(format!("row => '{key}'")), like: None }
    }

    fn prefix(prefix: &str) -> Self {
        Self { argument: Some(format!("prefix => '{prefix}'")), like: None }
    }

    fn like(mut self, pattern: String) -> Self {
        self.like = Some(pattern);
        self
    }
}

impl Question {
    pub(super) const ALL: [Self; 8] = [
        Self { scope: Scope::Minute, all: true },
        Self { scope: Scope::Minute, all: false },
        Self { scope: Scope::Hour, all: true },
        Self { scope: Scope::Hour, all: false },
        Self { scope: Scope::Week, all: true },
        Self { scope: Scope::Week, all: false },
        Self { scope: Scope::Many, all: true },
        Self { scope: Scope::Many, all: false },
    ];

    /// The question in words.
    pub(super) fn name(self) -> &'static str {
        match (self.scope, self.all) {
            (Scope::Minute, true) => "a minute",
            (Scope::Minute, false) => "a minute, pressure",
            (Scope::Hour, true) => "an hour",
            (Scope::Hour, false) => "an hour, pressure",
            (Scope::Week, true) => "a week",
            (Scope::Week, false) => "a week, pressure",
            (Scope::Many, true) => "a week of many",
            (Scope::Many, false) => "a week of many, pressure",
        }
    }

    /// Minutes that it asks for: from the first to before the last.
    fn minutes(self, data: &Data) -> std::ops::Range<u64> {
        let hour = data.minutes / 2 / HOUR * HOUR;
        match self.scope {
            Scope::Minute => hour..hour + 1,
            Scope::Hour => hour..hour + HOUR,
            Scope::Week | Scope::Many => 0..data.minutes,
        }
    }

    /// Rows of the answer.
    pub(super) fn expected(self, pattern: Pattern, data: &Data, balloon: u32) -> u64 {
        let balloons = match self.scope {
            Scope::Many => data.balloons_at(location(balloon)),
            Scope::Minute | Scope::Hour | Scope::Week => 1,
        };
        let minutes = self.minutes(data);
        let rows_per_event = match pattern {
            Pattern::Table => 1,
            pattern if self.all => pattern.cells_per_event(),
            _ => 1,
        };
        balloons * (minutes.end - minutes.start) * rows_per_event
    }

    /// The SELECT for a balloon, or for the balloons at its location.
    pub(super) fn sql(self, pattern: Pattern, data: &Data, balloon: u32) -> String {
        if pattern == Pattern::Table {
            return self.of_table(data, balloon);
        }
        let mut arguments = vec![pattern.table().to_owned()];
        let keys = match pattern.has_buckets() {
            true => self.buckets(pattern, data, balloon),
            false => self.times(pattern, data, balloon),
        };
        arguments.extend(keys.argument);
        arguments.push(format!("family => '{FAMILY}'"));
        // The pressure is a column of its own in patterns 2 and 4; in pattern 1 it is a row of its own.
        if !self.all && matches!(pattern, Pattern::NewCells | Pattern::Unserialized) {
            arguments.push(format!("qualifier => '{}'", METRICS[0]));
        }
        let mut conditions = Vec::new();
        conditions.extend(keys.like.map(|pattern| format!("row_key LIKE '{pattern}'")));
        if pattern.has_buckets() {
            conditions.extend(self.time_condition(data, "cell_ts"));
        }
        let arguments = arguments.join(", ");
        let filter = filter(&conditions);
        format!("SELECT row_key, qualifier, cell_ts, value FROM cells({arguments}){filter}")
    }

    /// The SELECT of the ordinary table.
    fn of_table(self, data: &Data, balloon: u32) -> String {
        let columns = if self.all { METRICS.join(", ") } else { METRICS[0].to_owned() };
        let whose = match self.scope {
            Scope::Many => format!("balloon LIKE '{}#%'", location(balloon)),
            Scope::Minute | Scope::Hour | Scope::Week => {
                format!("balloon = '{}'", balloon_key(balloon))
            }
        };
        let mut conditions = vec![whose];
        conditions.extend(self.time_condition(data, "ts"));
        let filter = filter(&conditions);
        format!("SELECT balloon, ts, {columns} FROM {}{filter}", Pattern::Table.table())
    }

    /// Keys of rows that hold a week.
    fn buckets(self, pattern: Pattern, data: &Data, balloon: u32) -> Keys {
        let week = bucket(0);
        let has_rows_of_metrics = pattern == Pattern::NewColumns;
        // One row has all that is asked for, unless the measurements have rows of their own.
        if self.scope != Scope::Many && !(has_rows_of_metrics && self.all) {
            let event = Event { balloon, minute: 0 };
            return Keys::row(&data.row_key(pattern, event, METRICS[0]));
        }
        let whose = self.whose(balloon);
        let keys = match data.key_order {
            KeyOrder::Balloon => Keys::prefix(&format!("{whose}#")),
            KeyOrder::Time => Keys::prefix(&format!("{week}#{whose}#")),
        };
        match (has_rows_of_metrics && !self.all, data.key_order) {
            (false, _) => keys,
            (true, KeyOrder::Balloon) => keys.like(format!("%#{}#{week}", METRICS[0])),
            (true, KeyOrder::Time) => keys.like(format!("%#{}", METRICS[0])),
        }
    }

    /// Keys of rows that hold a minute.
    fn times(self, pattern: Pattern, data: &Data, balloon: u32) -> Keys {
        let minute = self.minutes(data).start;
        if self.scope == Scope::Minute {
            return Keys::row(&data.row_key(pattern, Event { balloon, minute }, ""));
        }
        let whose = self.whose(balloon);
        // A time without its minutes is the prefix of an hour.
        let stamp = stamp(minute);
        let hour = &stamp[..stamp.len() - 2];
        match (data.key_order, self.scope) {
            (KeyOrder::Balloon, Scope::Hour) => Keys::prefix(&format!("{whose}#{hour}")),
            (KeyOrder::Balloon, _) => Keys::prefix(&format!("{whose}#")),
            (KeyOrder::Time, Scope::Hour) => Keys::prefix(hour).like(format!("%#{whose}")),
            (KeyOrder::Time, Scope::Many) => Keys::default().like(format!("%#{whose}#%")),
            (KeyOrder::Time, _) => Keys::default().like(format!("%#{whose}")),
        }
    }

    /// The balloon, or its location.
    fn whose(self, balloon: u32) -> String {
        match self.scope {
            Scope::Many => location(balloon).to_owned(),
            Scope::Minute | Scope::Hour | Scope::Week => balloon_key(balloon),
        }
    }

    /// Condition on the column of times; `None` where all are asked for.
    fn time_condition(self, data: &Data, column: &str) -> Option<String> {
        let minutes = self.minutes(data);
        let start = moment(minutes.start);
        match self.scope {
            Scope::Minute => Some(format!("{column} = '{start}'")),
            Scope::Hour => {
                let end = moment(minutes.end);
                Some(format!("{column} >= '{start}' AND {column} < '{end}'"))
            }
            Scope::Week | Scope::Many => None,
        }
    }
}

/// The WHERE clause of conditions; empty if there are none.
fn filter(conditions: &[String]) -> String {
    match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::balloons::WEEK;
    use super::*;

    fn data(key_order: KeyOrder) -> Data {
        Data { balloons: 20, minutes: WEEK, seed: 1, key_order, partitions: 1 }
    }

    fn sql(pattern: Pattern, key_order: KeyOrder, scope: Scope, all: bool) -> String {
        Question { scope, all }.sql(pattern, &data(key_order), 0)
    }

    #[test]
    fn a_week_of_a_balloon_is_one_row_of_its_bucket() {
        let select = "SELECT row_key, qualifier, cell_ts, value FROM";
        assert_eq!(
            sql(Pattern::NewCells, KeyOrder::Balloon, Scope::Week, false),
            format!(
                "{select} cells(lab_patterns_2, row => 'us-west2#3698#week1', family => 'measurements', qualifier => 'pressure')"
            )
        );
        // Pattern 1 has a row for each measurement.
        assert_eq!(
            sql(Pattern::NewColumns, KeyOrder::Balloon, Scope::Week, false),
            format!(
                "{select} cells(lab_patterns_1, row => 'us-west2#3698#pressure#week1', family => 'measurements')"
            )
        );
        let statement = sql(Pattern::NewColumns, KeyOrder::Balloon, Scope::Week, true);
        assert!(statement.contains("prefix => 'us-west2#3698#'"), "{statement}");
    }

    #[test]
    fn a_week_of_many_is_a_prefix_where_the_key_begins_so() {
        let many = |pattern, key_order| sql(pattern, key_order, Scope::Many, false);
        let buckets = many(Pattern::NewCells, KeyOrder::Time);
        assert!(buckets.contains("prefix => 'week1#us-west2#'"), "{buckets}");
        let columns = many(Pattern::NewColumns, KeyOrder::Balloon);
        assert!(columns.contains("prefix => 'us-west2#'"), "{columns}");
        assert!(columns.ends_with("WHERE row_key LIKE '%#pressure#week1'"), "{columns}");
        // No prefix has the rows of a location where the time is first.
        let times = many(Pattern::Unserialized, KeyOrder::Time);
        assert!(!times.contains("prefix") && times.contains("LIKE '%#us-west2#%'"), "{times}");
    }

    #[test]
    fn times_are_in_the_key_or_on_the_cells() {
        let hour = |pattern| sql(pattern, KeyOrder::Balloon, Scope::Hour, true);
        let keys = hour(Pattern::Serialized);
        assert!(keys.contains("prefix => 'us-west2#3698#2021-03-04-12'"), "{keys}");
        assert!(!keys.contains("cell_ts >="), "{keys}");
        let cells = hour(Pattern::SerializedCells);
        let times = "cell_ts >= '2021-03-04 12:00:00' AND cell_ts < '2021-03-04 13:00:00'";
        assert!(cells.ends_with(times), "{cells}");
        let table = hour(Pattern::Table);
        assert!(table.contains("balloon = 'us-west2#3698' AND ts >= '2021-03-04 12:00:00'"));
    }

    #[test]
    fn answers_have_known_numbers_of_cells() {
        let data = data(KeyOrder::Balloon);
        let expected = |pattern, scope, all| Question { scope, all }.expected(pattern, &data, 0);
        assert_eq!(expected(Pattern::NewCells, Scope::Week, true), 40_320);
        assert_eq!(expected(Pattern::NewCells, Scope::Week, false), 10_080);
        assert_eq!(expected(Pattern::Serialized, Scope::Hour, true), 60);
        assert_eq!(expected(Pattern::Table, Scope::Many, true), 2 * 10_080);
        assert_eq!(expected(Pattern::NewColumns, Scope::Minute, true), 4);
    }
}
