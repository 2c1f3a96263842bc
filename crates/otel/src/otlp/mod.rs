//! OTLP: encodes spans, metrics and log records as Protocol Buffers, and parses the collector's
//! response.
//!
//! A small codec rather than a library, because it writes a span directly from borrowed text into
//! the send buffer; a library would allocate each attribute first. Field numbers are those of
//! `opentelemetry/proto` (`trace.proto`, `metrics.proto`, `common.proto`, `resource.proto`,
//! `trace_service.proto`), version 1.

mod answer;
mod logs;
mod metrics;
mod span;
pub mod wire;

pub use answer::{Partial, partial_success, retry_delay_ms};
pub use logs::write_record;
pub use metrics::{Buckets, Kind, Metric, MetricWriter, Number, Times, TracedValue};
pub use span::{Resource, Side, Span, SpanWriter, Value, request_head};

/// What is exported: each signal has paths of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Counters and histograms.
    Metrics,
    /// Lines of logs.
    Logs,
}

impl Signal {
    /// The path of the gRPC call.
    pub fn call(self) -> &'static [u8] {
        match self {
            Signal::Traces => b"/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Logs => b"/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Signal::Metrics => b"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }

    /// The path of an export over HTTP, given that of spans, which ends in `/traces`, maybe with a
    /// query; `None` if it is another one, from which no other signal's follows.
    pub fn path(self, of_traces: &[u8]) -> Option<Vec<u8>> {
        let own: &[u8] = match self {
            Signal::Traces => return Some(of_traces.to_vec()),
            Signal::Metrics => b"/metrics",
            Signal::Logs => b"/logs",
        };
        let query = of_traces.iter().position(|b| *b == b'?').unwrap_or(of_traces.len());
        let (path, query) = of_traces.split_at(query);
        Some([path.strip_suffix(b"/traces")?, own, query].concat())
    }
}

/// The default path of an export of spans over HTTP.
pub(crate) const HTTP_PATH: &[u8] = b"/v1/traces";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_metrics_follow_from_those_of_spans() {
        let path = |text: &str| {
            let path = Signal::Metrics.path(text.as_bytes());
            path.map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(path("/v1/traces").as_deref(), Some("/v1/metrics"));
        assert_eq!(path("/otlp/v1/traces?a=/b").as_deref(), Some("/otlp/v1/metrics?a=/b"));
        assert_eq!(Signal::Logs.path(b"/v1/traces").as_deref(), Some(&b"/v1/logs"[..]));
        assert_eq!(path("/spans"), None);
        assert_eq!(Signal::Traces.path(b"/spans").as_deref(), Some(&b"/spans"[..]));
    }
}
