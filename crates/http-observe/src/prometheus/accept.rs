//! The choice between the formats, by `Accept`.

use http_wire::accept::weight;

use super::table::Format;

fn open_metrics(accept: &[u8]) -> u16 {
    weight(accept, b"application/openmetrics-text", &[("version", "1.0.0")])
}

fn text(accept: &[u8]) -> u16 {
    weight(accept, b"text/plain", &[("version", "0.0.4")])
}

/// OpenMetrics, if the client accepts its version 1.0.0, or any, and prefers no other text to it.
pub(super) fn format(accept: &[u8]) -> Format {
    let open = open_metrics(accept);
    if open > 0 && open >= text(accept) { Format::OpenMetrics } else { Format::Prometheus }
}

/// Whether the client accepts messages of Protocol Buffers behind their lengths, and prefers no
/// text to them.
pub(super) fn is_protobuf(accept: &[u8]) -> bool {
    let parameters = [("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")];
    let weight = weight(accept, b"application/vnd.google.protobuf", &parameters);
    weight > 0 && weight >= open_metrics(accept).max(text(accept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_for_those_who_prefer_it() {
        // Prometheus 2.42 with native histograms, and 3.
        for accept in [
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
             */*;q=0.1",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
             escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert!(is_protobuf(accept.as_bytes()), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/openmetrics-text",
            "application/vnd.google.protobuf;encoding=text",
            "application/vnd.google.protobuf;proto=other;encoding=delimited",
            "application/vnd.google.protobuf;q=0.4,text/plain;q=0.5",
        ] {
            assert!(!is_protobuf(accept.as_bytes()), "{accept}");
        }
    }

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
