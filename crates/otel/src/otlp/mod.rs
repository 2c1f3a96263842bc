//! OTLP: encodes spans as Protocol Buffers, and parses the collector's response.
//!
//! A small codec rather than a library, because it writes a span directly from borrowed text into
//! the send buffer; a library would allocate each attribute first. Field numbers are those of
//! `opentelemetry/proto` (`trace.proto`, `common.proto`, `resource.proto`, `trace_service.proto`),
//! version 1.

mod answer;
mod span;
mod wire;

pub use answer::{Partial, partial_success, retry_delay_ms};
pub use span::{Resource, Side, Span, SpanWriter, Value, request_head};

/// The path of the gRPC call that exports spans.
pub const EXPORT_PATH: &[u8] = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The default path of an export over HTTP.
pub const HTTP_PATH: &[u8] = b"/v1/traces";
