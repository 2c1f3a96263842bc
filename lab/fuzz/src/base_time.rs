//! Dates of HTTP.

use base::time::{format_http_date, parse_http_date};

/// A date that was understood is written and understood again.
pub fn run(data: &[u8]) {
    if let Some(secs) = parse_http_date(data) {
        assert_eq!(parse_http_date(&format_http_date(secs)), Some(secs));
    }
    if let Some(bytes) = data.first_chunk::<8>() {
        let text = format_http_date(i64::from_le_bytes(*bytes));
        assert!(text.is_ascii());
    }
}
