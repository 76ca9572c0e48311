//! A response body that encodes rows as they are fetched.
//!
//! The first batch is awaited before the response begins, so that nearly all errors have a status of their own. A later
//! error aborts the body: the client sees an incomplete response, not a short one.

use std::io;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::try_unfold;
use partita_frontend::{RowStream, SqlError};
use partita_proto::size::batch_bytes;

use super::Encoder;

/// Maximum bytes of a batch that is encoded where it arrives, in well under a millisecond.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The rows of a response.
pub(crate) struct Encoded {
    pub(crate) schema: SchemaRef,
    /// The first batch, if there is any.
    pub(crate) first: Option<RecordBatch>,
    /// The remaining batches.
    pub(crate) rest: RowStream,
    pub(crate) encoder: Box<dyn Encoder>,
    /// Bytes before the encoder's.
    pub(crate) before: Vec<u8>,
    /// Returns the bytes after the encoder's.
    pub(crate) behind: Box<dyn FnOnce() -> Vec<u8> + Send>,
}

/// Takes the first batch off a stream.
///
/// # Errors
/// Those of the stream before its first batch.
pub(crate) async fn first_batch(rows: &mut RowStream) -> Result<Option<RecordBatch>, SqlError> {
    loop {
        match rows.next().await.transpose()? {
            Some(batch) if batch.num_rows() == 0 => {}
            batch => return Ok(batch),
        }
    }
}

enum Phase {
    Begin,
    First,
    Rest,
    End,
    Over,
}

struct State {
    phase: Phase,
    rows: Encoded,
}

/// The body that streams the encoded rows.
pub(crate) fn body_of(rows: Encoded) -> Body {
    let state = State { phase: Phase::Begin, rows };
    Body::from_stream(try_unfold(state, |mut state| async move {
        loop {
            match state.step().await {
                Ok(None) => return Ok(None),
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => return Ok(Some((Bytes::from(bytes), state))),
                Err(error) => {
                    tracing::warn!(%error, "a result ended with an error");
                    return Err(io::Error::other(error.message));
                }
            }
        }
    }))
}

impl State {
    /// The next bytes, possibly none; `None` at the end.
    async fn step(&mut self) -> Result<Option<Vec<u8>>, SqlError> {
        let rows = &mut self.rows;
        // One phase a call, each with the bytes of its part.
        match self.phase {
            Phase::Begin => {
                self.phase = Phase::First;
                let mut bytes = std::mem::take(&mut rows.before);
                bytes.extend(rows.encoder.begin(&rows.schema)?);
                Ok(Some(bytes))
            }
            Phase::First => {
                self.phase = Phase::Rest;
                match rows.first.take() {
                    Some(batch) => self.encode(batch).await.map(Some),
                    None => Ok(Some(Vec::new())),
                }
            }
            Phase::Rest => match rows.rest.next().await.transpose()? {
                Some(batch) => self.encode(batch).await.map(Some),
                None => {
                    self.phase = Phase::End;
                    Ok(Some(Vec::new()))
                }
            },
            Phase::End => {
                self.phase = Phase::Over;
                let mut bytes = rows.encoder.end()?;
                let suffix = std::mem::replace(&mut rows.behind, Box::new(Vec::new));
                bytes.extend(suffix());
                Ok(Some(bytes))
            }
            Phase::Over => Ok(None),
        }
    }

    async fn encode(&mut self, batch: RecordBatch) -> Result<Vec<u8>, SqlError> {
        if batch_bytes(&batch) <= INLINE_BYTES_MAX {
            return Ok(self.rows.encoder.rows(&batch)?);
        }
        let mut encoder =
            std::mem::replace(&mut self.rows.encoder, Box::new(super::influx::JsonLines));
        let work = move || {
            let bytes = encoder.rows(&batch);
            (encoder, bytes)
        };
        let (encoder, bytes) = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| SqlError::internal(format!("encoding failed: {error}")))?;
        self.rows.encoder = encoder;
        Ok(bytes?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Int64Array, StringViewArray, TimestampNanosecondArray, TimestampSecondArray,
    };
    use futures::stream;

    use super::super::{Csv, CsvNames, IpcStream, JsonArray, JsonLines, Parquet, Pretty};
    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let names: ArrayRef =
            Arc::new((0..rows).map(|n| (n > 0).then_some("x")).collect::<StringViewArray>());
        let times: ArrayRef = Arc::new(TimestampNanosecondArray::from_iter_values(
            (0..rows).map(|n| n * 1_500_000_000),
        ));
        RecordBatch::try_from_iter([("n", numbers), ("name", names), ("time", times)]).unwrap()
    }

    async fn text(encoder: impl Encoder + 'static, batches: Vec<RecordBatch>) -> Vec<u8> {
        let schema = batch(1).schema();
        let rest: RowStream = Box::pin(stream::iter(batches.into_iter().map(Ok)));
        let rows = Encoded {
            schema,
            first: None,
            rest,
            encoder: Box::new(encoder),
            before: Vec::new(),
            behind: Box::new(Vec::new),
        };
        axum::body::to_bytes(body_of(rows), usize::MAX).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn json_joins_batches_and_leaves_out_null() {
        let bytes = text(JsonArray::default(), vec![batch(1), batch(2)]).await;
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            r#"[{"n":0,"time":"1970-01-01T00:00:00"},{"n":0,"time":"1970-01-01T00:00:00"},"#
                .to_owned()
                + r#"{"n":1,"name":"x","time":"1970-01-01T00:00:01.500"}]"#
        );
        assert_eq!(text(JsonArray::default(), vec![]).await, b"[]");
        assert_eq!(text(JsonArray::default(), vec![batch(0)]).await, b"[]");
    }

    #[tokio::test]
    async fn lines_csv_and_tables_have_their_forms() {
        let bytes = text(JsonLines, vec![batch(1)]).await;
        assert_eq!(bytes, b"{\"n\":0,\"time\":\"1970-01-01T00:00:00\"}\n");
        let bytes = text(Csv(CsvNames::Names), vec![batch(2)]).await;
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "n,name,time\n0,,1970-01-01T00:00:00\n1,x,1970-01-01T00:00:01.500\n"
        );
        let bytes = text(Csv(CsvNames::None), vec![batch(1)]).await;
        assert_eq!(bytes, b"0,,1970-01-01T00:00:00\n");
        let bytes = text(Pretty::default(), vec![]).await;
        assert!(String::from_utf8(bytes).unwrap().contains("| n | name | time |"));
        // Parts of a large batch count as much as they show.
        let large = batch(100_000);
        let parts = (0..40).map(|row| large.slice(row, 1)).collect();
        let bytes = text(Pretty::default(), parts).await;
        assert!(String::from_utf8(bytes).unwrap().contains("| 39 | x    |"));
    }

    #[tokio::test]
    async fn what_fails_midway_breaks_off_and_is_never_a_value() {
        use super::super::{GreptimeRows, InfluxV1Rows};

        // A time beyond the calendar: nothing can write it down.
        let beyond: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
        let beyond = RecordBatch::try_from_iter([("time", beyond)]).unwrap();
        let well: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1; 5000]));
        let well = RecordBatch::try_from_iter([("time", well)]).unwrap();
        let of = |failure: Result<RecordBatch, SqlError>, encoder: Box<dyn Encoder>| Encoded {
            schema: well.schema(),
            first: None,
            rest: Box::pin(stream::iter([Ok(well.clone()), failure])) as RowStream,
            encoder,
            before: Vec::new(),
            behind: Box::new(|| b"the end".to_vec()),
        };
        let encoders: Vec<fn() -> Box<dyn Encoder>> = vec![
            || Box::new(JsonArray::default()),
            || Box::new(JsonLines),
            || Box::new(Csv(CsvNames::Names)),
            || Box::new(Pretty::default()),
            || Box::new(GreptimeRows::default()),
            || Box::new(InfluxV1Rows::default()),
            || Box::new(Parquet::default()),
            || Box::new(IpcStream::default()),
        ];
        for (at, encoder) in encoders.into_iter().enumerate() {
            let failed = SqlError::new("22012", "division by zero");
            let body = body_of(of(Err(failed), encoder()));
            assert!(axum::body::to_bytes(body, usize::MAX).await.is_err(), "encoder {at}");
            let body = body_of(of(Ok(beyond.clone()), encoder()));
            if let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await {
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains("ERROR"), "encoder {at}");
            }
        }
    }

    #[tokio::test]
    async fn parquet_and_arrow_read_back() {
        let bytes = text(Parquet::default(), vec![batch(3), batch(20_000)]).await;
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(
            Bytes::from(bytes),
            100_000,
        );
        let rows: usize = reader.unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 20_003);
        let bytes = text(IpcStream::default(), vec![batch(3)]).await;
        let reader = arrow::ipc::reader::StreamReader::try_new(bytes.as_slice(), None).unwrap();
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(batches, [batch(3)]);
    }
}
