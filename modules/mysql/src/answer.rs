//! Results as text: an array of JSON objects, or lines with tabs between.

use mysql::Value;
use mysql::consts::ColumnType;
use weir_module::Bytes;

/// `mysql_format`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `json`
    Json,
    /// `tsv`
    Tsv,
}

impl Format {
    /// The answer's type.
    pub fn content_type(self) -> Bytes {
        Bytes::from_static(match self {
            Format::Json => b"application/json",
            Format::Tsv => b"text/tab-separated-values; charset=utf-8",
        })
    }
}

/// A column of a result.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Whether its values are numbers.
    pub number: bool,
}

impl Column {
    /// A column as the database names it.
    pub fn new(name: String, kind: ColumnType) -> Column {
        use ColumnType::{
            MYSQL_TYPE_DECIMAL, MYSQL_TYPE_DOUBLE, MYSQL_TYPE_FLOAT, MYSQL_TYPE_INT24,
            MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_NEWDECIMAL, MYSQL_TYPE_SHORT,
            MYSQL_TYPE_TINY, MYSQL_TYPE_YEAR,
        };
        let number = matches!(
            kind,
            MYSQL_TYPE_DECIMAL
                | MYSQL_TYPE_DOUBLE
                | MYSQL_TYPE_FLOAT
                | MYSQL_TYPE_INT24
                | MYSQL_TYPE_LONG
                | MYSQL_TYPE_LONGLONG
                | MYSQL_TYPE_NEWDECIMAL
                | MYSQL_TYPE_SHORT
                | MYSQL_TYPE_TINY
                | MYSQL_TYPE_YEAR
        );
        Column { name, number }
    }
}

/// An answer in the making.
pub struct Answer {
    format: Format,
    columns: Vec<Column>,
    rows: u64,
    out: Vec<u8>,
}

impl Answer {
    /// An answer with these columns.
    pub fn new(format: Format, columns: Vec<Column>) -> Answer {
        let mut out = Vec::new();
        match format {
            Format::Json => out.push(b'['),
            Format::Tsv => {
                for (i, column) in columns.iter().enumerate() {
                    tab(&mut out, i);
                    tsv(&mut out, column.name.as_bytes());
                }
                out.push(b'\n');
            }
        }
        Answer { format, columns, rows: 0, out }
    }

    /// Adds a row; values that are missing are null.
    pub fn row(&mut self, values: impl Iterator<Item = Value>) {
        let Answer { format, columns, rows, out } = self;
        if *format == Format::Json {
            if *rows > 0 {
                out.push(b',');
            }
            out.push(b'{');
        }
        *rows += 1;
        for (i, (value, column)) in values.zip(columns.iter()).enumerate() {
            match format {
                Format::Json => {
                    if i > 0 {
                        out.push(b',');
                    }
                    json(out, column.name.as_bytes());
                    out.push(b':');
                    json_value(out, value, column.number);
                }
                Format::Tsv => {
                    tab(out, i);
                    tsv_value(out, value);
                }
            }
        }
        out.push(if *format == Format::Json { b'}' } else { b'\n' });
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// The whole text.
    pub fn finish(mut self) -> Vec<u8> {
        if self.format == Format::Json {
            self.out.extend_from_slice(b"]\n");
        }
        self.out
    }

    /// The text for a statement that has no rows.
    pub fn changed(format: Format, rows: u64, last_id: Option<u64>) -> Vec<u8> {
        let last = |none: &str| last_id.map_or(none.to_owned(), |id| id.to_string());
        match format {
            Format::Json => {
                format!("{{\"affected_rows\":{rows},\"last_insert_id\":{}}}\n", last("null"))
            }
            Format::Tsv => {
                format!("affected_rows\tlast_insert_id\n{rows}\t{}\n", last("\\N"))
            }
        }
        .into_bytes()
    }
}

/// A value's text; `None` for NULL, and whether it is a number by itself.
fn text(value: Value) -> Option<(Vec<u8>, bool)> {
    let plain = |text: String| Some((text.into_bytes(), true));
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some((bytes, false)),
        Value::Int(n) => plain(n.to_string()),
        Value::UInt(n) => plain(n.to_string()),
        Value::Float(n) => plain(n.to_string()),
        Value::Double(n) => plain(n.to_string()),
        // The database's own form, in quotes that are not wanted.
        date => Some((date.as_sql(true).trim_matches('\'').as_bytes().to_vec(), false)),
    }
}

fn json_value(out: &mut Vec<u8>, value: Value, number: bool) {
    match text(value) {
        None => out.extend_from_slice(b"null"),
        Some((text, is_number)) if (is_number || number) && is_json_number(&text) => {
            out.extend_from_slice(&text);
        }
        Some((text, _)) => json(out, &text),
    }
}

/// Whether the text is a number as JSON writes it (RFC 8259 section 6): no zeros before others.
fn is_json_number(text: &[u8]) -> bool {
    let digits = |t: &[u8]| t.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || whole > 1 && text[0] == b'0' {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let n = digits(fraction);
        if n == 0 {
            return false;
        }
        rest = &fraction[n..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', exponent @ ..] => exponent,
            _ => exponent,
        };
        let n = digits(exponent);
        return n > 0 && n == exponent.len();
    }
    rest.is_empty()
}

/// A string with its quotes. Bytes that are not UTF-8 become U+FFFD.
fn json(out: &mut Vec<u8>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let mut rest = text.as_bytes();
    out.push(b'"');
    while let Some(at) = rest.iter().position(|b| *b < b' ' || matches!(b, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn tab(out: &mut Vec<u8>, column: usize) {
    if column > 0 {
        out.push(b'\t');
    }
}

fn tsv_value(out: &mut Vec<u8>, value: Value) {
    match text(value) {
        None => out.extend_from_slice(b"\\N"),
        Some((text, _)) => tsv(out, &text),
    }
}

/// With backslashes before bytes that would end a field or a line, as the database's own tools
/// write it.
fn tsv(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0 => out.extend_from_slice(b"\\0"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format) -> String {
        let column = |name: &str, number| Column { name: name.to_owned(), number };
        let columns = vec![column("id", true), column("na\"me", false), column("price", true)];
        let mut answer = Answer::new(format, columns);
        let bytes = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        answer.row([Value::Int(-1), bytes("a\t\"b\"\n\u{1}"), bytes("1.50")].into_iter());
        answer.row([Value::UInt(7), Value::NULL, bytes("007")].into_iter());
        String::from_utf8(answer.finish()).unwrap()
    }

    #[test]
    fn rows_as_objects() {
        assert_eq!(
            written(Format::Json),
            "[{\"id\":-1,\"na\\\"me\":\"a\\t\\\"b\\\"\\n\\u0001\",\"price\":1.50},\
             {\"id\":7,\"na\\\"me\":null,\"price\":\"007\"}]\n"
        );
        assert_eq!(Answer::new(Format::Json, Vec::new()).finish(), b"[]\n");
    }

    #[test]
    fn rows_as_lines() {
        assert_eq!(
            written(Format::Tsv),
            "id\tna\"me\tprice\n-1\ta\\t\"b\"\\n\u{1}\t1.50\n7\t\\N\t007\n"
        );
    }

    #[test]
    fn what_is_a_number_to_json() {
        let all = |list: &[&str], is| list.iter().all(|t| is_json_number(t.as_bytes()) == is);
        assert!(all(&["0", "-1", "1.5", "10", "1e5", "1.2E-10", "0.0"], true));
        assert!(all(&["", "-", "01", "1.", ".5", "1e", "1e+", "NaN", "inf", "1 ", "+1"], false));
    }
}
