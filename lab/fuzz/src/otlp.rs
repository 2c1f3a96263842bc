//! Bytes of clients and collectors about traces.

use otel::otlp::{partial_success, retry_delay_ms};
use proto::grpc::{decode_binary, decode_message, message};
use proto::trace_context::{TRACEPARENT_LEN, TraceParent, is_state};

/// Contexts that are read are written the same; answers of collectors are read without a panic,
/// and what is made of them is no longer than they are.
pub fn run(data: &[u8]) {
    if let Some(parent) = TraceParent::parse(data) {
        let written = parent.write();
        assert_eq!(TraceParent::parse(&written), Some(parent));
        assert_eq!(written[3..52], data[3..52]);
        assert!(data.len() >= TRACEPARENT_LEN);
    }
    if is_state(data) {
        assert!(std::str::from_utf8(data).is_ok());
    }
    if let Some(partial) = partial_success(data) {
        // Bytes that are no UTF-8 become three.
        assert!(partial.message.len() <= 3 * data.len());
        assert!(partial.rejected > 0 || !partial.message.is_empty());
    }
    retry_delay_ms(data);
    assert!(decode_message(data).len() <= data.len());
    if let Some(bytes) = decode_binary(data) {
        assert!(bytes.len() <= data.len());
        retry_delay_ms(&bytes);
    }
    if let Some(inner) = message(data) {
        assert_eq!(inner.len() + 5, data.len());
    }
}
