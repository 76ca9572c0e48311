//! Counters of the doors of this crate, and `GET /metrics`: these, the frontend's counters, the sizes of the catalog,
//! and the load that meta reports, as Prometheus text.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use partita_frontend::Frontend;
use partita_proto::access::Sight;
use partita_proto::load::LoadReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::caller::Caller;
use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::load_metrics::{LoadIntake, LoadMetrics, Names};

/// From half a millisecond to about half a minute, each bound twice the previous one.
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

/// Counters of the HTTP and Flight doors.
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
    /// Held while a text is made: each text is for one caller.
    making: Mutex<()>,
}

impl DoorMetrics {
    pub(crate) fn new(frontend: Arc<Frontend>) -> Self {
        let (load_metrics, load) = LoadMetrics::new(Arc::clone(&frontend));
        // The families are shared with the registry by cloning.
        let mut metrics = Self {
            load,
            making: Mutex::default(),
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
        // HTTP.
        registry.register(
            "http_requests",
            "Requests with a response, by path, method and status",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time until the response began",
            Unit::Seconds,
            metrics.latencies.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Requests without a response yet",
            metrics.in_flight.clone(),
        );
        registry.register("http_connections", "Open connections", metrics.connections.clone());
        registry.register(
            "http_connections_refused",
            "Connections refused because of the limit",
            metrics.refused_connections.clone(),
        );
        registry.register_with_unit(
            "http_body",
            "Request bodies as sent",
            Unit::Bytes,
            metrics.body_bytes.clone(),
        );
        // Rows.
        registry.register(
            "line_protocol_lines",
            "Lines stored and rejected",
            metrics.lines.clone(),
        );
        registry.register(
            "flight_rows_written",
            "Rows written through Flight",
            metrics.flight_rows.clone(),
        );
        // Values of other parts are collected when metrics are read.
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

    /// Counts a request that was abandoned before its response began.
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

    fn text(
        &self,
        report: Option<Arc<LoadReport>>,
        names: Names,
    ) -> Result<String, std::fmt::Error> {
        let _one_at_a_time = self.making.lock();
        self.load.take(report, names);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// `GET /metrics`: figures of the whole cluster; for callers with MONITOR, with the names of all tables that have load.
pub(crate) async fn metrics(State(door): State<Arc<Door>>, request: Request) -> Response {
    // The middleware found MONITOR, also where the route is open.
    let caller = request.extensions().get::<Caller>().cloned();
    drop(request);
    let report = door.frontend.load().await;
    let names = caller.map_or_else(Names::default, |caller| {
        let viewer = door.frontend.viewer(caller.identity);
        let hot = report.iter().flat_map(|report| &report.partitions).filter(|load| load.is_hot());
        let tables = hot.map(|load| load.table);
        let keys_of = tables.filter(|table| viewer.sight_of(*table) == Sight::All).collect();
        Names { tables: true, keys_of }
    });
    match door.metrics.text(report, names) {
        Ok(text) => {
            let content_type = HeaderValue::from_static(
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            );
            ([(CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => {
            ApiError::internal(format!("cannot encode metrics: {error}")).respond(Dialect::InfluxV3)
        }
    }
}

/// Reads the frontend's counters when metrics are collected.
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
                "Counter of the frontend",
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
    /// Exports quantiles as gauges: this client library has no summaries.
    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        // Quantiles of each kind.
        let latencies = self.frontend.metrics().latencies();
        #[expect(clippy::cast_precision_loss, reason = "microseconds below 2^53")]
        let seconds = |us: u64| us as f64 / 1e6;
        let mut quantiles = encoder.encode_descriptor(
            "frontend_latency_seconds",
            "Latency of operations, by kind and quantile",
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
        // Numbers and total times of each kind, for rates and averages.
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
            "Total time of operations, by kind",
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
