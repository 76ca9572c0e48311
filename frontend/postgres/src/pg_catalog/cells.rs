//! Tables of `pg_catalog` that are computed when they are read: columns by kind, rows by cells.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, ListBuilder, StringBuilder, TimestampMillisecondBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use partita_frontend::access::viewer::{Viewer, viewer_of};

use crate::types;

/// The zone of all instants.
const UTC: &str = "UTC";

/// The type of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// An object id.
    Oid,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Bool,
    Text,
    /// PostgreSQL's one-byte type `"char"`.
    Char,
    /// An instant.
    Time,
    Int2s,
    Oids,
    Texts,
}

impl Kind {
    fn field(self, name: &str) -> Field {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Self::Oid => types::marked_as_oid(Field::new(name, DataType::Int32, true)),
            Self::Int2 => Field::new(name, DataType::Int16, true),
            Self::Int4 => Field::new(name, DataType::Int32, true),
            Self::Int8 => Field::new(name, DataType::Int64, true),
            Self::Float4 => Field::new(name, DataType::Float32, true),
            Self::Float8 => Field::new(name, DataType::Float64, true),
            Self::Bool => Field::new(name, DataType::Boolean, true),
            Self::Text => Field::new(name, DataType::Utf8, true),
            Self::Char => types::marked_as_char(Field::new(name, DataType::Utf8, true)),
            Self::Time => {
                Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())), true)
            }
            Self::Int2s => Field::new(name, list(DataType::Int16), true),
            Self::Oids => types::marked_as_oid(Field::new(name, list(DataType::Int32), true)),
            Self::Texts => Field::new(name, list(DataType::Utf8), true),
        }
    }
}

/// A value of any kind of column.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Null,
    Number(i32),
    Long(i64),
    Float(f32),
    Flag(bool),
    Text(String),
    /// Milliseconds since 1970.
    Time(i64),
    Numbers(Vec<i32>),
    Texts(Vec<String>),
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Self::Number(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Long(value)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<i32>> for Cell {
    fn from(value: Vec<i32>) -> Self {
        Self::Numbers(value)
    }
}

impl From<Vec<String>> for Cell {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row as cells by column name; columns without a cell are NULL.
pub(super) type Row = Vec<(&'static str, Cell)>;

/// The columns of a table, in order.
pub(super) type Columns = &'static [(&'static str, Kind)];

/// Computes the current rows of a table that a viewer may see.
type Rows = Box<dyn Fn(&Viewer) -> Vec<Row> + Send + Sync>;

/// A table without stored rows.
pub(super) struct ComputedTable {
    columns: Columns,
    schema: SchemaRef,
    rows: Rows,
}

impl fmt::Debug for ComputedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComputedTable({} columns)", self.columns.len())
    }
}

impl ComputedTable {
    pub(super) fn new(
        columns: Columns,
        rows: impl Fn(&Viewer) -> Vec<Row> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let fields: Vec<Field> = columns.iter().map(|(name, kind)| kind.field(name)).collect();
        Arc::new(Self { columns, schema: Arc::new(Schema::new(fields)), rows: Box::new(rows) })
    }

    fn batch(&self, viewer: &Viewer) -> Result<RecordBatch> {
        let rows = (self.rows)(viewer);
        for (name, _) in rows.first().into_iter().flatten() {
            if !self.columns.iter().any(|(column, _)| column == name) {
                return Err(DataFusionError::Internal(format!("a cell for {name}, no column")));
            }
        }
        let arrays = self
            .columns
            .iter()
            .map(|(name, kind)| {
                let cells = rows.iter().map(|row| {
                    row.iter()
                        .find(|(column, _)| column == name)
                        .map_or(&Cell::Null, |(_, cell)| cell)
                });
                array(*kind, cells).ok_or_else(|| {
                    DataFusionError::Internal(format!("a cell of another kind in {name}"))
                })
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options =
            arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// The column for cells; `None` when a cell is of another kind.
fn array<'a>(kind: Kind, cells: impl Iterator<Item = &'a Cell>) -> Option<ArrayRef> {
    macro_rules! flat {
        ($builder:expr, $cell:ident => $value:expr) => {{
            let mut builder = $builder;
            for $cell in cells {
                match $cell {
                    Cell::Null => builder.append_null(),
                    _ => builder.append_value($value?),
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => Some(*number),
        _ => None,
    };
    let text = |cell: &'a Cell| match cell {
        Cell::Text(text) => Some(text.as_str()),
        _ => None,
    };
    Some(match kind {
        Kind::Oid | Kind::Int4 => flat!(Int32Builder::new(), cell => number(cell)),
        Kind::Int2 => {
            flat!(Int16Builder::new(), cell => number(cell).and_then(|n| i16::try_from(n).ok()))
        }
        Kind::Int8 => flat!(Int64Builder::new(), cell => match cell {
            Cell::Long(number) => Some(*number),
            _ => None,
        }),
        Kind::Float4 => flat!(Float32Builder::new(), cell => match cell {
            Cell::Float(float) => Some(*float),
            _ => None,
        }),
        Kind::Float8 => flat!(Float64Builder::new(), cell => match cell {
            Cell::Float(float) => Some(f64::from(*float)),
            _ => None,
        }),
        Kind::Bool => flat!(BooleanBuilder::new(), cell => match cell {
            Cell::Flag(flag) => Some(*flag),
            _ => None,
        }),
        Kind::Time => {
            let builder = TimestampMillisecondBuilder::new().with_timezone(UTC);
            flat!(builder, cell => match cell {
                Cell::Time(milliseconds) => Some(*milliseconds),
                _ => None,
            })
        }
        Kind::Text | Kind::Char => flat!(StringBuilder::new(), cell => text(cell)),
        Kind::Int2s => {
            let mut builder = ListBuilder::new(Int16Builder::new());
            for cell in cells {
                match cell {
                    Cell::Null => builder.append_null(),
                    Cell::Numbers(numbers) => {
                        for number in numbers {
                            builder.values().append_value(i16::try_from(*number).ok()?);
                        }
                        builder.append(true);
                    }
                    _ => return None,
                }
            }
            Arc::new(builder.finish())
        }
        Kind::Oids => {
            let mut builder = ListBuilder::new(Int32Builder::new());
            for cell in cells {
                match cell {
                    Cell::Null => builder.append_null(),
                    Cell::Numbers(numbers) => {
                        builder.values().append_slice(numbers);
                        builder.append(true);
                    }
                    _ => return None,
                }
            }
            Arc::new(builder.finish())
        }
        // Privileges, and options, which do not exist here.
        Kind::Texts => {
            let mut builder = ListBuilder::new(StringBuilder::new());
            for cell in cells {
                match cell {
                    Cell::Null => builder.append_null(),
                    Cell::Texts(texts) => {
                        for text in texts {
                            builder.values().append_value(text);
                        }
                        builder.append(true);
                    }
                    _ => return None,
                }
            }
            Arc::new(builder.finish())
        }
    })
}

#[async_trait]
impl TableProvider for ComputedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = self.batch(viewer_of(state)?.as_ref())?;
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}
