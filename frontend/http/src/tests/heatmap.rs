//! The picture of load through the routes: what meta is asked, what is added to its answer, and how errors read.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use partita_heatmap::{Finding, Heatmap, History, Key, Metric, PartitionLoad as Drawn, Report};
use partita_heatmap::{Shares, View};
use partita_load::{Class, Standing};
use partita_proto::catalog::Table;
use partita_proto::history::{Cause, ReshapeOutcome};
use partita_proto::load::{
    Busy, HeatmapRequest, LoadReport, PartitionLoad, Rates, ShownReason, SplitEvent, Verdict,
};
use partita_proto::range::Bound;
use partita_proto::value::Value;
use serde_json::json;

use super::Api;

const NOW: u64 = 1_800_000_000;

/// A table of one hot partition, and what meta says of it.
async fn hot() -> Api {
    let api = Api::new();
    let (status, _) = api.post("/api/v2/write?bucket=public", "home,room=k t=1 1\n").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let table = table(&api);
    let partition = table.partitions.routes()[0].partition;
    let mut history = History::default();
    let start = Key::from([]);
    let load = Drawn {
        id: partition.0,
        leader: Some(1),
        start: Key::clone(&start),
        end: None,
        rates: [500.0, 0.0, 0.0, 0.9],
        writes: Shares::default(),
        reads: Shares::default(),
    };
    history.push(&Report { from: NOW - 60, seconds: 60, partitions: vec![load] });
    history.find(Finding {
        partition: None,
        since: NOW - 30,
        until: None,
        start,
        end: None,
        class: "MOVING_RIGHT".to_owned(),
        evidence: "<newer keys are greater>".to_owned(),
        advice: String::new(),
    });
    let view = View {
        table: "home".to_owned(),
        metric: Metric::WriteRows,
        from: NOW - 60,
        to: NOW,
        columns_max: 60,
        rows_max: 8,
        keys: None,
        capacity: Some(600.0),
    };
    let drawn = history.view(&view, |_| String::new());
    *api.fake.heatmap.lock() = Bytes::from(serde_json::to_vec(&drawn).unwrap());
    let verdict = Verdict { class: Class::MovingRight, ..Verdict::default() };
    *api.fake.load.lock() = LoadReport {
        partitions: vec![PartitionLoad {
            table: table.id,
            partition,
            busy: Busy { s10: 0.9, ..Busy::default() },
            rates: Rates { write_rows: 500.0, ..Rates::default() },
            verdict: Some(verdict),
            standing: Standing::Hot,
            reads_busy: 0.25,
            ..PartitionLoad::default()
        }],
        splits: vec![SplitEvent {
            table: table.id,
            partition,
            why: ShownReason { cause: Some(Cause::Load), note: "it is busy".to_owned() },
            outcome: Some(ReshapeOutcome::Done),
            in_vain: Some(true),
            ..SplitEvent::default()
        }],
        ..LoadReport::default()
    };
    api
}

fn table(api: &Api) -> std::sync::Arc<Table> {
    let catalog = api.fake.catalog();
    std::sync::Arc::clone(catalog.table("public", "home").unwrap())
}

async fn raw(api: &Api, uri: &str) -> (String, Vec<u8>) {
    let request = Request::get(uri).body(Body::empty()).unwrap();
    let (status, headers, body) = api.send(request).await;
    assert_eq!(status, StatusCode::OK, "{uri}: {}", String::from_utf8_lossy(&body));
    (headers["content-type"].to_str().unwrap().to_owned(), body)
}

#[tokio::test]
async fn meta_is_asked_for_what_the_address_says_and_the_picture_arrives_with_advice() {
    let api = hot().await;
    let address = "/v1/heatmap.json?table=home&metric=busy&since=60&until=1800000000&rows=8\
                   &columns=60&from_key=0a&to_key=ff00";
    let (kind, body) = raw(&api, address).await;
    assert_eq!(kind, "application/json");
    let heatmap: Heatmap = serde_json::from_slice(&body).unwrap();
    assert_eq!((heatmap.times.len(), heatmap.capacity), (60, Some(600.0)));
    let advice = &heatmap.verdicts[0].advice;
    assert!(advice.contains("PARTITION BY HASH"), "{advice}");
    raw(&api, "/v1/heatmap.json?table=public.home").await;
    let usual = HeatmapRequest {
        table: table(&api).id,
        metric: "write_rows".to_owned(),
        since_s: 900,
        until_s: None,
        rows: 256,
        columns: 240,
        from_key: Bytes::new(),
        to_key: None,
    };
    let asked = HeatmapRequest {
        metric: "busy".to_owned(),
        since_s: 60,
        until_s: Some(NOW),
        rows: 8,
        columns: 60,
        from_key: Bytes::from_static(&[10]),
        to_key: Some(Bytes::from_static(&[255, 0])),
        ..usual
    };
    assert_eq!(*api.fake.pictures.lock(), [asked, usual]);
}

#[tokio::test]
async fn the_picture_is_drawn_and_the_page_is_served() {
    let api = hot().await;
    let (kind, body) = raw(&api, "/v1/heatmap.svg?table=home&theme=light&mode=relative").await;
    let text = String::from_utf8(body).unwrap();
    assert_eq!(kind, "image/svg+xml");
    assert!(text.starts_with("<svg") && text.contains("MOVING_RIGHT"), "{text}");
    let (kind, body) = raw(&api, "/v1/heatmap.png?table=home&width=800&height=200").await;
    assert_eq!(kind, "image/png");
    // Width and height stand behind the signature and the head of the first chunk.
    assert_eq!((&body[1..4], &body[16..20]), (&b"PNG"[..], &800_u32.to_be_bytes()[..]));
    let (kind, body) = raw(&api, "/heatmap").await;
    assert_eq!(kind, "text/html; charset=utf-8");
    assert!(String::from_utf8(body).unwrap().contains("/v1/heatmap.json"));
}

#[tokio::test]
async fn tables_are_listed_with_what_is_wrong_with_them() {
    let api = hot().await;
    let (status, body) = api.get("/v1/tables.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["tables"][0]["name"], "home");
    assert_eq!(body["tables"][0]["verdict"], "MOVING_RIGHT");
    assert_eq!(body["tables"][0]["balance"]["total"], 500.0);
}

#[tokio::test]
async fn what_cannot_be_drawn_is_told_as_the_page_reads_it() {
    let api = hot().await;
    let cases = [
        ("", StatusCode::BAD_REQUEST, "table is required"),
        ("?table=nope", StatusCode::NOT_FOUND, "table \"nope\" does not exist"),
        (
            "?table=home&metric=x",
            StatusCode::BAD_REQUEST,
            "metric must be one of write_rows, read_rows, write_bytes, busy, operations, not \"x\"",
        ),
        ("?table=home&rows=5000", StatusCode::BAD_REQUEST, "rows must be 1 to 1000, not \"5000\""),
        ("?table=home&from_key=abc", StatusCode::BAD_REQUEST, "from_key is not hexadecimal"),
        (
            "?table=home&mode=x",
            StatusCode::BAD_REQUEST,
            "mode must be absolute or relative, not \"x\"",
        ),
    ];
    for (query, status, error) in cases {
        let answer = api.get(&format!("/v1/heatmap.json{query}")).await;
        assert_eq!(answer, (status, json!({ "error": error })), "{query}");
    }
    assert!(api.fake.pictures.lock().is_empty());
}

#[tokio::test]
async fn metrics_tell_of_load_in_a_bounded_number_of_series() {
    let api = hot().await;
    let first = {
        let report = api.fake.load.lock();
        report.partitions[0].clone()
    };
    api.fake.load.lock().partitions.extend((0..500).map(|more| PartitionLoad {
        partition: partita_proto::id::PartitionId(10_000 + more),
        verdict: None,
        standing: Standing::Idle,
        reads_busy: 0.0,
        busy: Busy::default(),
        rates: Rates::default(),
        ..first.clone()
    }));
    let (_, body) = raw(&api, "/metrics").await;
    let text = String::from_utf8(body).unwrap();
    for wanted in [
        "partita_table_neff{table=\"home\"} 1.0\n",
        "partita_table_max_over_mean{table=\"home\"} 501.0\n",
        "partita_splits_total{reason=\"load\"} 1\n",
        "partita_splits_in_vain_total 1\n",
        "partita_detector_verdict{table=\"home\",class=\"MOVING_RIGHT\"} 1\n",
        "class=\"MOVING_RIGHT\",key=\"\"} 0.9\n",
        "partita_top_partition_rho{slot=\"1\"} 0.9\n",
        "partita_top_partition_reads_rho{slot=\"1\"} 0.25\n",
        "partita_partitions_by_standing{standing=\"idle\"} 500\n",
        "partita_partitions_by_standing{standing=\"busy\"} 0\n",
        "partita_partitions_by_standing{standing=\"hot\"} 1\n",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert_eq!(text.matches("\npartita_top_partition_rho{").count(), 20);
}

#[tokio::test]
async fn an_alarm_names_table_partition_class_and_key() {
    let api = hot().await;
    let key = Bound { placement: None, key: vec![Value::String("k".to_owned())] };
    let verdict = Verdict { class: Class::HotKey, hot_key: Some(key), ..Verdict::default() };
    api.fake.load.lock().partitions[0].verdict = Some(verdict);
    let partition = table(&api).partitions.routes()[0].partition;
    let (_, body) = raw(&api, "/metrics").await;
    let text = String::from_utf8(body).unwrap();
    let wanted = format!(
        "partita_hot_partition{{table=\"home\",partition=\"{partition}\",class=\"HOT_KEY\",key=\"('k')\"}} 0.9\n"
    );
    assert!(text.contains(&wanted), "{wanted} is not in\n{text}");
}

#[tokio::test]
async fn a_verdict_on_a_partition_that_carries_its_load_is_no_alarm() {
    for standing in [Standing::Idle, Standing::Healthy, Standing::Busy] {
        let api = hot().await;
        api.fake.load.lock().partitions[0].standing = standing;
        let (_, body) = api.get("/v1/tables.json").await;
        assert_eq!(body["tables"][0]["verdict"], json!(null), "{standing:?}");
        let (_, body) = raw(&api, "/metrics").await;
        let text = String::from_utf8(body).unwrap();
        assert!(!text.contains("partita_detector_verdict{"), "{text}");
        assert!(!text.contains("partita_hot_partition{"), "{text}");
        let counted =
            format!("partita_partitions_by_standing{{standing=\"{}\"}} 1\n", standing.name());
        assert!(text.contains(&counted), "{text}");
    }
}
