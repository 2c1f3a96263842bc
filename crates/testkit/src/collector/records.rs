//! Log records as a collector reads them.

use super::{Attribute, Call, attribute_of, fields, read_resources};

/// A record of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRecord {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// `SeverityNumber`; 0 where there is none.
    pub severity: u64,
    /// Its name.
    pub level: String,
    /// The line.
    pub body: String,
    /// In their order.
    pub attributes: Vec<(String, Attribute)>,
    /// In hexadecimal digits; may be empty.
    pub trace_id: String,
    /// The same of the span.
    pub span_id: String,
}

impl LogRecord {
    /// The text of an attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).and_then(|(_, value)| match value {
            Attribute::Text(text) => Some(&**text),
            _ => None,
        })
    }

    /// The number of an attribute.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.attributes.iter().find(|(n, _)| n == name).and_then(|(_, value)| match value {
            Attribute::Number(number) => Some(*number),
            _ => None,
        })
    }
}

/// Reads an `ExportLogsServiceRequest`.
///
/// # Panics
/// It is malformed.
pub(super) fn read_request(message: &[u8]) -> Call {
    read_resources(message, |scope, call| {
        for (number, field) in fields(scope) {
            match number {
                1 => call.scope = fields(field.bytes())[0].1.text(),
                2 => call.records.push(read_record(field.bytes())),
                number => panic!("field {number} of ScopeLogs"),
            }
        }
    })
}

fn read_record(message: &[u8]) -> LogRecord {
    let mut record = LogRecord::default();
    for entry in fields(message) {
        let field = &entry.1;
        match entry.0 {
            1 => record.time_ns = field.number(),
            2 => record.severity = field.number(),
            3 => record.level = field.text(),
            5 => record.body = fields(field.bytes())[0].1.text(),
            6 => record.attributes.push(attribute_of(&entry)),
            9 => record.trace_id = field.hex(),
            10 => record.span_id = field.hex(),
            11 => assert_eq!(field.number(), record.time_ns),
            number => panic!("field {number} of LogRecord"),
        }
    }
    record
}
