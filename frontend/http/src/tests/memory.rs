//! Rows of Flight clients share the memory for bodies with other requests.

use std::convert::Infallible;

use arrow::array::TimestampNanosecondArray;
use arrow_flight::error::FlightError;
use axum::body::HttpBody;
use axum::http::HeaderMap;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tonic::Code;

use super::*;

/// Memory for bodies.
const MEMORY: usize = 2 << 20;
/// Bytes of a value that is written.
const VALUE: usize = 300 << 10;

struct World {
    fake: Arc<Fake>,
    door: Arc<Door>,
    app: Router,
}

impl World {
    /// A door with the table `m` in the database `b`.
    async fn new() -> Self {
        let fake = Fake::new(1);
        let options = HttpOptions {
            in_flight_bytes_max: MEMORY,
            body_wait: Duration::from_millis(50),
            ..HttpOptions::default()
        };
        let door = Door::new(fake.frontend(FrontendOptions::default()).unwrap(), options);
        let world = Self { app: routes(&door), fake, door };
        let write = Request::post("/write?db=b").body(Body::from("m v=\"x\" 1")).unwrap();
        let response = world.app.clone().oneshot(write).await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        world
    }

    /// Writes a large row; returns the status of the call.
    async fn put(app: Router) -> Code {
        let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![2]));
        let values: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(VALUE)]));
        let batch = RecordBatch::try_from_iter([("time", times), ("v", values)]).unwrap();
        let path = FlightDescriptor::new_path(vec!["b".to_owned(), "m".to_owned()]);
        let rows = futures::stream::iter([Ok::<_, FlightError>(batch)]);
        let messages = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(path));
        let messages: Vec<_> = messages.build(rows).try_collect().await.unwrap();
        let mut body = BytesMut::new();
        for message in messages {
            body.put_u8(0);
            body.put_u32(u32::try_from(message.encoded_len()).unwrap());
            message.encode(&mut body).unwrap();
        }
        // As a connection delivers it.
        let body = body.freeze();
        let starts = (0..body.len()).step_by(16 << 10);
        let frame = |start: usize| body.slice(start..body.len().min(start + (16 << 10)));
        let frames: Vec<Result<Bytes, Infallible>> = starts.map(|start| Ok(frame(start))).collect();
        let request = Request::post("/arrow.flight.protocol.FlightService/DoPut")
            .header("content-type", "application/grpc")
            .body(Body::from_stream(futures::stream::iter(frames)))
            .unwrap();
        let (head, body) = app.oneshot(request).await.unwrap().into_parts();
        let trailers = trailers_of(body).await;
        // A call that is refused at once has no trailers.
        let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
        Code::from_bytes(status.expect("a status").as_bytes())
    }

    /// Number of rows in the table.
    fn rows(&self) -> usize {
        self.fake.rows("b", "m").iter().sum()
    }

    /// Bytes of memory that requests occupy.
    fn occupied(&self) -> usize {
        MEMORY - self.door.free_bytes()
    }
}

/// Reads a body to its end; returns its trailers.
async fn trailers_of(body: Body) -> HeaderMap {
    let mut body = std::pin::pin!(body);
    let mut trailers = HeaderMap::new();
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await
    {
        if let Ok(found) = frame.unwrap().into_trailers() {
            trailers.extend(found);
        }
    }
    trailers
}

#[tokio::test]
async fn rows_of_flight_wait_for_memory_that_other_requests_occupy() {
    let world = World::new().await;
    let mut other = world.door.body_share().await.unwrap();
    world.door.grow(&mut other, MEMORY - (100 << 10)).await.unwrap();
    assert_eq!(World::put(world.app.clone()).await, Code::Unavailable);
    assert_eq!(world.rows(), 1);
    drop(other);
    assert_eq!(World::put(world.app.clone()).await, Code::Ok);
    assert_eq!((world.rows(), world.occupied()), (2, 0));
}

#[tokio::test]
async fn rows_of_flight_occupy_memory_until_they_are_written() {
    let world = World::new().await;
    let writes = Arc::clone(&world.fake.writes).write_owned().await;
    let put = tokio::spawn(World::put(world.app.clone()));
    // The message and the batch that is made of it.
    while world.occupied() < 2 * VALUE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.occupied() >= 2 * VALUE, "{}", world.occupied());
    drop(writes);
    assert_eq!(put.await.unwrap(), Code::Ok);
    assert_eq!((world.rows(), world.occupied()), (2, 0));
}
