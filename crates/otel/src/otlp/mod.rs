//! OTLP: spans in the wire format of Protocol Buffers, and the collector's answer.
//!
//! A small codec and not a library: a span is written once, from borrowed text to the place that it
//! is sent from, where a library would have each attribute be a value of its own on the heap first.
//! Numbers of fields are those of `opentelemetry/proto` (`trace.proto`, `common.proto`,
//! `resource.proto`, `trace_service.proto`), version 1.

mod answer;
mod span;
mod wire;

pub use answer::{Partial, partial_success, retry_delay_ms};
pub use span::{Resource, Span, SpanWriter, Value, request_head};

/// The path of the call that takes spans, over gRPC.
pub const EXPORT_PATH: &[u8] = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The path of the same over HTTP, where an endpoint names no other.
pub const HTTP_PATH: &[u8] = b"/v1/traces";
