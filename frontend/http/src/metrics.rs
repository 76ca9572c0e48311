//! What the doors of this crate count, and `GET /metrics`: that, what the frontend counts, the sizes of
//! the catalog, and what meta says of load, as Prometheus text.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use partita_frontend::Frontend;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::load_metrics::{LoadIntake, LoadMetrics};

/// Half a millisecond to about half a minute, each twice the one before.
const LATENCY_BUCKETS: [f64; 17] = [
    0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048,
    4.096, 8.192, 16.384, 32.768,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: String,
    method: String,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// What is counted.
pub(crate) struct DoorMetrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latencies: Family<PathLabels, Histogram>,
    in_flight: Gauge,
    connections: Gauge,
    refused_connections: Counter,
    body_bytes: Counter,
    lines: Family<OutcomeLabels, Counter>,
    flight_rows: Counter,
    load: LoadIntake,
}

impl DoorMetrics {
    pub(crate) fn new(frontend: Arc<Frontend>) -> Self {
        let (load_metrics, load) = LoadMetrics::new(Arc::clone(&frontend));
        let mut metrics = Self {
            load,
            registry: Registry::with_prefix("partita"),
            requests: Family::default(),
            latencies: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            body_bytes: Counter::default(),
            lines: Family::default(),
            flight_rows: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "http_requests",
            "Requests answered, by path, method and status",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Until the answer began",
            Unit::Seconds,
            metrics.latencies.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Requests whose answer has not begun",
            metrics.in_flight.clone(),
        );
        registry.register("http_connections", "Open connections", metrics.connections.clone());
        registry.register(
            "http_connections_refused",
            "Connections closed because there were too many",
            metrics.refused_connections.clone(),
        );
        registry.register_with_unit(
            "http_body",
            "Bodies of requests as they were sent",
            Unit::Bytes,
            metrics.body_bytes.clone(),
        );
        registry.register(
            "line_protocol_lines",
            "Lines stored and rejected",
            metrics.lines.clone(),
        );
        registry.register(
            "flight_rows_written",
            "Rows taken in by Flight",
            metrics.flight_rows.clone(),
        );
        registry.register_collector(Box::new(FrontendCollector { frontend }));
        registry.register_collector(Box::new(load_metrics));
        metrics
    }

    pub(crate) fn begin(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn end(&self, path: &str, method: &str, status: u16, time: Duration) {
        self.in_flight.dec();
        let path = path.to_owned();
        self.latencies
            .get_or_create(&PathLabels { path: path.clone() })
            .observe(time.as_secs_f64());
        let labels = RequestLabels { path, method: method.to_owned(), status: u32::from(status) };
        self.requests.get_or_create(&labels).inc();
    }

    /// A request that was given up before its answer began.
    pub(crate) fn abandoned(&self) {
        self.in_flight.dec();
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub(crate) fn body_bytes(&self, bytes: usize) {
        self.body_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn lines(&self, stored: usize, rejected: usize) {
        let add = |outcome, count: usize| {
            self.lines.get_or_create(&OutcomeLabels { outcome }).inc_by(count as u64);
        };
        add("stored", stored);
        add("rejected", rejected);
    }

    pub(crate) fn flight_rows(&self, rows: u64) {
        self.flight_rows.inc_by(rows);
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(door): State<Arc<Door>>) -> Response {
    door.metrics.load.take(door.frontend.load().await);
    match door.metrics.text() {
        Ok(text) => {
            let content_type = HeaderValue::from_static(
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            );
            ([(CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => ApiError::internal(format!("metrics could not be written: {error}"))
            .respond(Dialect::InfluxV3),
    }
}

/// Reads the frontend's counters when they are asked for.
struct FrontendCollector {
    frontend: Arc<Frontend>,
}

impl std::fmt::Debug for FrontendCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrontendCollector")
    }
}

impl Collector for FrontendCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = self.frontend.metrics();
        for (name, value) in metrics.counters() {
            let counter = ConstCounter::new(value);
            let name = format!("frontend_{name}");
            let metric = encoder.encode_descriptor(
                &name,
                "Counted by the frontend",
                None,
                MetricType::Counter,
            )?;
            counter.encode(metric)?;
        }
        let mut errors = encoder.encode_descriptor(
            "frontend_errors",
            "Statements that failed, by SQLSTATE",
            None,
            MetricType::Counter,
        )?;
        for (sqlstate, count) in metrics.errors() {
            let labels = [("sqlstate", sqlstate)];
            ConstCounter::new(count).encode(errors.encode_family(&labels)?)?;
        }
        self.encode_latencies(&mut encoder)?;
        self.encode_catalog(&mut encoder)
    }
}

impl FrontendCollector {
    /// Quantiles as gauges: this client has no summaries.
    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let latencies = self.frontend.metrics().latencies();
        #[expect(clippy::cast_precision_loss, reason = "microseconds below 2^53")]
        let seconds = |us: u64| us as f64 / 1e6;
        let mut quantiles = encoder.encode_descriptor(
            "frontend_latency_seconds",
            "How long operations took, by kind",
            None,
            MetricType::Gauge,
        )?;
        for (kind, latency) in &latencies {
            let points = [
                ("0.5", latency.p50_us),
                ("0.9", latency.p90_us),
                ("0.99", latency.p99_us),
                ("0.999", latency.p999_us),
                ("1", latency.max_us),
            ];
            for (quantile, us) in points {
                let labels = [("kind", *kind), ("quantile", quantile)];
                ConstGauge::new(seconds(us)).encode(quantiles.encode_family(&labels)?)?;
            }
        }
        let mut counts = encoder.encode_descriptor(
            "frontend_operations",
            "Operations, by kind",
            None,
            MetricType::Counter,
        )?;
        for (kind, latency) in &latencies {
            let labels = [("kind", *kind)];
            ConstCounter::new(latency.count).encode(counts.encode_family(&labels)?)?;
        }
        let mut sums = encoder.encode_descriptor(
            "frontend_operation_seconds",
            "Time that operations took together, by kind",
            None,
            MetricType::Counter,
        )?;
        for (kind, latency) in &latencies {
            let labels = [("kind", *kind)];
            ConstCounter::new(seconds(latency.sum_us)).encode(sums.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_catalog(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let catalog = self.frontend.catalog();
        let tables = catalog.tables.values().map(|tables| tables.len()).sum::<usize>();
        let partitions = catalog
            .tables
            .values()
            .flat_map(|tables| tables.values())
            .map(|table| table.partitions.routes().len())
            .sum::<usize>();
        let sizes = [
            ("databases", "Databases", catalog.databases.len()),
            ("tables", "Tables", tables),
            ("partitions", "Partitions of all tables", partitions),
        ];
        for (name, help, count) in sizes {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
