//! Plain DataFusion over one sorted Parquet file: the reference for query times.
//!
//! ```text
//!   rows, sorted by the key ── write ──> one Parquet file ── open ──> ask(SQL) ──> batches
//! ```
//!
//! This is the minimum cost of a query if rows lie ready in one file: no network, no memtable, no versions of a key
//! to choose from. A store that adds those cannot be much faster, and should not be much slower.
//!
//! It knows nothing of Partita, and DataFusion runs with its defaults, so that the reference is not tuned. Its
//! only hint is the file's sort order.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, ensure};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::logical_expr::SortExpr;
use datafusion::prelude::{ParquetReadOptions, SessionContext, col};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// Rows of a row group: Parquet's usual number.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Writes sorted rows to one file; returns the numbers of rows and bytes. With LZ4, dictionaries and page
/// statistics, as a writer would choose for reading.
///
/// # Errors
/// If there are no rows, or they cannot be written.
pub fn write(
    path: &Path,
    schema: &SchemaRef,
    batches: impl IntoIterator<Item = anyhow::Result<RecordBatch>>,
) -> anyhow::Result<(u64, u64)> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties))?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.write(&batch)?;
    }
    ensure!(rows > 0, "there are no rows to write");
    writer.close()?;
    Ok((rows, std::fs::metadata(path)?.len()))
}

/// DataFusion over such a file.
pub struct Yardstick {
    context: SessionContext,
}

impl Yardstick {
    /// Opens a file as a table with this name, sorted by these columns in ascending order.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn open(path: &Path, table: &str, sorted_by: &[&str]) -> anyhow::Result<Self> {
        let context = SessionContext::new();
        let order: Vec<SortExpr> =
            sorted_by.iter().map(|name| col(*name).sort(true, true)).collect();
        let options = ParquetReadOptions::default().file_sort_order(vec![order]);
        let path = path.to_str().context("the path of the file is not text")?;
        context.register_parquet(table, path, options).await?;
        Ok(Self { context })
    }

    /// Plans and runs a query; returns all of its rows.
    ///
    /// # Errors
    /// If it cannot be planned or run.
    pub async fn ask(&self, sql: &str) -> anyhow::Result<Vec<RecordBatch>> {
        Ok(self.context.sql(sql).await?.collect().await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    #[tokio::test]
    async fn what_was_written_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let schema = Arc::new(Schema::new(vec![
            Field::new("host", DataType::Utf8, true),
            Field::new("value", DataType::Int64, true),
        ]));
        let batch = |host: &str, values: &[i64]| {
            let hosts = StringArray::from(vec![host; values.len()]);
            let values = Int64Array::from(values.to_vec());
            Ok(RecordBatch::try_new(
                SchemaRef::clone(&schema),
                vec![Arc::new(hosts), Arc::new(values)],
            )?)
        };
        let (rows, bytes) = write(&path, &schema, [batch("a", &[1, 2]), batch("b", &[3])]).unwrap();
        assert_eq!(rows, 3);
        assert!(bytes > 0);
        let yardstick = Yardstick::open(&path, "t", &["host", "value"]).await.unwrap();
        let sql = "SELECT host, sum(value) AS value FROM t GROUP BY host ORDER BY host";
        let answer = yardstick.ask(sql).await.unwrap();
        let sums = answer.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>());
        assert_eq!(sums.flatten().collect::<Vec<_>>(), [3, 3]);
        assert!(yardstick.ask("SELECT nothing FROM t").await.is_err());
        assert!(write(&path, &schema, []).is_err());
    }
}
