//! The choice between the text formats, by `Accept`.

use super::table::Format;

/// OpenMetrics, if the client accepts its version 1.0.0, or any, and prefers no other text to it.
pub(super) fn format(accept: &[u8]) -> Format {
    let (mut open, mut text) = (0, 0);
    for element in accept.split(|b| *b == b',') {
        let mut parts = element.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        let (mut weight, mut is_known) = (1000, true);
        for parameter in parts {
            match split(parameter) {
                (b"q" | b"Q", value) => weight = thousandths(value),
                (b"version", value) => is_known = value == b"1.0.0",
                _ => {}
            }
        }
        if kind.eq_ignore_ascii_case(b"application/openmetrics-text") && is_known {
            open = open.max(weight);
        } else if kind.eq_ignore_ascii_case(b"text/plain") {
            text = text.max(weight);
        }
    }
    if open > 0 && open >= text { Format::OpenMetrics } else { Format::Prometheus }
}

/// A parameter's name and value, without quotes.
fn split(parameter: &[u8]) -> (&[u8], &[u8]) {
    let at = parameter.iter().position(|b| *b == b'=').unwrap_or(parameter.len());
    let value = parameter.get(at + 1..).unwrap_or_default();
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    (&parameter[..at], bare.unwrap_or(value))
}

/// A weight of RFC 9110 12.4.2; what is none counts as 0.
fn thousandths(text: &[u8]) -> u32 {
    let weight = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    weight.filter(|w| (0.0..=1.0).contains(w)).map_or(0, |w| (w * 1000.0) as u32)
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
