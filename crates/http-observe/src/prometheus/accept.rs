//! The choice between the text formats, by `Accept`.

use http_wire::accept::weight;

use super::table::Format;

/// OpenMetrics, if the client accepts its version 1.0.0, or any, and prefers no other text to it.
pub(super) fn format(accept: &[u8]) -> Format {
    let open = weight(accept, b"application/openmetrics-text", b"1.0.0");
    let text = weight(accept, b"text/plain", b"0.0.4");
    if open > 0 && open >= text { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_prefer_it() {
        // Prometheus 2.42 and 3.
        for accept in [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
             q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;\
             escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            "Application/OpenMetrics-Text",
            "text/plain; q=0.5, application/openmetrics-text; version=\"1.0.0\"; Q=0.5",
        ] {
            assert_eq!(format(accept.as_bytes()), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html,text/plain",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;q=0.5,text/plain",
            "application/openmetrics-text2",
            ";;q=,=,\u{e9}",
        ] {
            assert_eq!(format(accept.as_bytes()), Format::Prometheus, "{accept}");
        }
    }
}
