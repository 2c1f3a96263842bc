//! Small MaxMind databases for tests, after the format's specification 2.0.

/// A value of a record.
#[derive(Clone)]
#[allow(missing_docs)] // The names say it.
pub enum Value {
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
    Text(&'static str),
    Number16(u16),
    Number32(u32),
    Number(u64),
    Double(f64),
    Flag(bool),
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        let mut control = |kind: u8, len: usize| {
            // Lengths from 29 on stand in the next byte, types above 7 in one before that.
            let short = len.min(29) as u8;
            if kind > 7 {
                out.extend_from_slice(&[short, kind - 7]);
            } else {
                out.push(kind << 5 | short);
            }
            if len >= 29 {
                out.push(u8::try_from(len - 29).expect("tests have no longer values"));
            }
        };
        match self {
            Value::Text(text) => {
                control(2, text.len());
                out.extend_from_slice(text.as_bytes());
            }
            Value::Double(value) => {
                control(3, 8);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Number16(value) => {
                control(5, 2);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Number32(value) => {
                control(6, 4);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Number(value) => {
                control(9, 8);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Flag(on) => control(14, usize::from(*on)),
            Value::List(values) => {
                control(11, values.len());
                values.iter().for_each(|value| value.write(out));
            }
            Value::Map(entries) => {
                control(7, entries.len());
                for (key, value) in entries {
                    Value::Text(key).write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// A database of that type in which one IPv4 address has a record, and no other.
pub fn mmdb(kind: &'static str, ip: [u8; 4], record: &Value) -> Vec<u8> {
    let bits = u32::from_be_bytes(ip);
    const NODES: u32 = 32;
    let mut out = Vec::new();
    for depth in 0..NODES {
        // Behind the nodes and sixteen zeros, the first byte of the data is `NODES + 16`.
        let on = if depth == NODES - 1 { NODES + 16 } else { depth + 1 };
        let one = bits >> (NODES - 1 - depth) & 1 == 1;
        let halves = if one { [NODES, on] } else { [on, NODES] };
        for half in halves {
            out.extend_from_slice(&half.to_be_bytes()[1..]);
        }
    }
    out.extend_from_slice(&[0; 16]);
    record.write(&mut out);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    Value::Map(vec![
        ("binary_format_major_version", Value::Number16(2)),
        ("binary_format_minor_version", Value::Number16(0)),
        ("build_epoch", Value::Number(1_500_000_000)),
        ("database_type", Value::Text(kind)),
        ("description", Value::Map(vec![])),
        ("ip_version", Value::Number16(4)),
        ("languages", Value::List(vec![])),
        ("node_count", Value::Number32(NODES)),
        ("record_size", Value::Number16(24)),
    ])
    .write(&mut out);
    out
}
