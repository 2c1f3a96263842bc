//! Encodes log records (`logs.proto`).

use base::log::Level;
use engine::logs::Record;

use super::span::{Value, key_value, text};
use super::wire::{bytes_len, write_bytes, write_fixed64, write_head, write_number};

/// Encodes a record as a field of `ScopeLogs`. `time_ns` is since 1970.
pub fn write_record(record: &Record<'_>, time_ns: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.body.len() + 256);
    write_fixed64(&mut out, 1, time_ns);
    if let Some(level) = record.level {
        write_number(&mut out, 2, severity(level));
        write_bytes(&mut out, 3, level.name().as_bytes());
    }
    let body = text(record.body);
    write_head(&mut out, 5, bytes_len(body.len()));
    write_bytes(&mut out, 1, body.as_bytes());
    key_value(&mut out, 6, b"weir.log", Value::Text(record.log.as_bytes()));
    for (name, number) in record.numbers {
        let number = i64::try_from(*number).unwrap_or(i64::MAX);
        key_value(&mut out, 6, name.as_bytes(), Value::Number(number));
    }
    for (name, value) in record.fields {
        key_value(&mut out, 6, name.as_bytes(), Value::Text(value));
    }
    if let Some(trace) = &record.trace {
        write_bytes(&mut out, 9, &trace.trace_id);
        write_bytes(&mut out, 10, &trace.span_id);
    }
    write_fixed64(&mut out, 11, time_ns);
    let mut field = Vec::with_capacity(out.len() + 8);
    write_bytes(&mut field, 2, &out);
    field
}

/// `SeverityNumber`, as OpenTelemetry maps the levels of syslog.
fn severity(level: Level) -> u64 {
    match level {
        Level::Stderr | Level::Emerg => 21,
        Level::Alert => 19,
        Level::Crit => 18,
        Level::Error => 17,
        Level::Warn => 13,
        Level::Notice => 10,
        Level::Info => 9,
        Level::Debug => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::logs::TraceIds;

    #[test]
    fn a_record_is_these_bytes() {
        let record = Record {
            log: "l",
            level: Some(Level::Warn),
            body: b"a\xff",
            numbers: &[("pid", 5)],
            fields: &[("c", b"v")],
            trace: Some(TraceIds { trace_id: [7; 16], span_id: [8; 8] }),
        };
        let out = write_record(&record, 1);
        let mut want = b"\x09\x01\0\0\0\0\0\0\0\x10\x0d\x1a\x04warn".to_vec();
        want.extend(b"\x2a\x06\x0a\x04a\xef\xbf\xbd");
        want.extend(b"\x32\x0f\x0a\x08weir.log\x12\x03\x0a\x01l");
        want.extend(b"\x32\x09\x0a\x03pid\x12\x02\x18\x05");
        want.extend(b"\x32\x08\x0a\x01c\x12\x03\x0a\x01v");
        want.extend(b"\x4a\x10");
        want.extend([7; 16]);
        want.extend(b"\x52\x08");
        want.extend([8; 8]);
        want.extend(b"\x59\x01\0\0\0\0\0\0\0");
        assert_eq!(out[0], 0x12);
        assert_eq!(out[2..], want);
        let levels = [Level::Emerg, Level::Alert, Level::Crit, Level::Error, Level::Info];
        assert_eq!(levels.map(severity), [21, 19, 18, 17, 9]);
    }
}
