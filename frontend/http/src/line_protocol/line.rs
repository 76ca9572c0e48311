//! Checks one parsed line, and stores its values in columns.
//!
//! Checking changes nothing that outlives the line; storing cannot fail. So a rejected line leaves no column, no series
//! and no value.

use std::borrow::Cow;

use partita_proto::schema::ColumnType;

use super::check::{self, Limits};
use super::reject::Kind;
use super::scan::Value;
use super::table::{FieldColumn, FieldType, Rows, TagColumn};

/// A field of the current line.
pub(super) struct FieldScan<'a> {
    pub(super) column: Option<usize>,
    /// Empty if the column is known.
    pub(super) name: Cow<'a, str>,
    pub(super) raw: &'a str,
    pub(super) value: Value<'a>,
    /// The type of the table's column, for a column that is new in this request.
    pub(super) table_type: Option<ColumnType>,
}

/// Table and number of a known series.
#[derive(Clone, Copy)]
pub(super) struct SeriesAt {
    pub(super) table: usize,
    pub(super) series: u32,
}

/// Checks a line against its table and the additions of earlier lines. `tags_expected` is true if the tags are known to
/// have the names of the last new series' tags, in its order; otherwise that is checked here.
pub(super) fn check_line<'a>(
    rows: &mut Rows<'a>,
    limits: &Limits<'_>,
    fields: &mut [FieldScan<'a>],
    (tags, tags_expected): (&[(Cow<'a, str>, Cow<'a, str>)], bool),
    known_series: Option<SeriesAt>,
    expected: bool,
    reading: u64,
) -> Result<(), check::Refusal> {
    let mut added = 0;
    if known_series.is_none() && !tags_expected && !rows.tags_expected(tags) {
        added += check::check_tags(rows, limits, tags)?;
    }
    for position in 0..fields.len() {
        let (earlier, rest) = fields.split_at_mut(position);
        let field = &mut rest[0];
        let Some(index) = field.column else {
            let table_type = check::check_new_field(rows, limits, field, tags)?;
            if earlier
                .iter()
                .any(|candidate| candidate.column.is_none() && candidate.name == field.name)
            {
                return Err(twice(&field.name));
            }
            let field_type = FieldType::of(field.value);
            let narrow = table_type.filter(|narrow| *narrow != field_type.column_type());
            check::check_value(limits, &field.name, field_type, narrow, field.value)?;
            field.table_type = table_type;
            added += usize::from(table_type.is_none());
            continue;
        };
        let column = &mut rows.fields[index];
        // Expected fields have the order of a checked line: none can be repeated.
        if !expected {
            if column.named_by == reading {
                return Err(twice(&column.name));
            }
            column.named_by = reading;
            if let Some((name, _)) = tags.iter().find(|(tag, _)| *tag == column.name) {
                return Err((Kind::Schema, format!("a tag and a field are both named '{name}'")));
            }
        }
        check::check_value(limits, &column.name, column.field_type, column.narrow, field.value)?;
    }
    check::check_column_count(rows, limits, added)?;
    if !rows.required.is_empty() {
        let rows = &*rows;
        check::check_required(rows, |name| {
            let field = |field: &FieldScan<'_>| match field.column {
                Some(index) => rows.fields[index].name == name,
                None => field.name == name,
            };
            fields.iter().any(field) || tag_given(rows, tags, known_series, name)
        })?;
    }
    Ok(())
}

fn twice(name: &str) -> check::Refusal {
    (Kind::Schema, format!("invalid line protocol - multiple instances of '{name}' field found"))
}

/// Returns true if the line's series has a tag.
fn tag_given(
    rows: &Rows<'_>,
    tags: &[(Cow<'_, str>, Cow<'_, str>)],
    known_series: Option<SeriesAt>,
    name: &str,
) -> bool {
    match known_series {
        None => tags.iter().any(|(tag, _)| tag == name),
        // A known series had all required tags when it was new; a required column that is not a tag cannot be one of
        // its tags.
        Some(_) => rows.tag_by_name.contains_key(name),
    }
}

/// Numbers a new series and stores its tags; `tags_expected` is that of [`check_line`].
pub(super) fn store_series<'a>(
    rows: &mut Rows<'a>,
    tags: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
    tags_expected: bool,
) -> u32 {
    let series = rows.series_count;
    rows.series_count += 1;
    if tags_expected || rows.tags_expected(tags) {
        for (index, (_, value)) in rows.tag_layout.iter().zip(tags.drain(..)) {
            rows.tags[*index].append(series, &value);
        }
        return number_of(series);
    }
    rows.tag_layout.clear();
    for (name, value) in tags.drain(..) {
        let index = match rows.tag_by_name.get(&name) {
            Some(index) => *index,
            None => {
                let in_table = rows.table.as_ref().and_then(|table| table.schema.column(&name));
                let new = in_table.is_none();
                rows.column_count += usize::from(new);
                rows.tags.push(TagColumn::new(name.clone(), new));
                rows.tag_by_name.insert(name, rows.tags.len() - 1);
                rows.tags.len() - 1
            }
        };
        rows.tags[index].append(series, &value);
        rows.tag_layout.push(index);
    }
    number_of(series)
}

fn number_of(series: usize) -> u32 {
    u32::try_from(series).expect("a series takes at least three bytes of a text below 4 GiB")
}

/// Appends the values of a checked line to their columns.
pub(super) fn store_fields<'a>(
    rows: &mut Rows<'a>,
    fields: &mut Vec<FieldScan<'a>>,
    expected: bool,
    scratch: &mut String,
) {
    let row = rows.times.len();
    if !expected || fields.len() != rows.layout.len() {
        rows.layout.clear();
    }
    let keep_layout = !rows.layout.is_empty();
    for field in fields.drain(..) {
        let index = match field.column {
            Some(index) => index,
            None => {
                let field_type = FieldType::of(field.value);
                rows.column_count += usize::from(field.table_type.is_none());
                let column =
                    FieldColumn::new(field.name.clone(), field.raw, field_type, field.table_type);
                rows.fields.push(column);
                rows.field_by_name.insert(field.name, rows.fields.len() - 1);
                rows.fields.len() - 1
            }
        };
        rows.fields[index].append(row, field.value, scratch);
        if !keep_layout {
            rows.layout.push(index);
        }
    }
}
