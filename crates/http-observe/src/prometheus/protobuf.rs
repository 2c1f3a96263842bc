//! Tables as messages of Protocol Buffers, each behind its length: the format in which Prometheus
//! reads native histograms. Field numbers are those of `io.prometheus.client` (`metrics.proto` in
//! `prometheus/client_model`), version 2.
//!
//! A histogram has the buckets of the text formats as well, so that a client that keeps those
//! finds them, and their exemplars.

use engine::metrics::native::{Native, SCHEMA, ZERO_THRESHOLD};
use engine::metrics::word;
use otel::Exemplar;
use otel::otlp::wire::{write_bytes, write_double, write_number, write_varint};

use super::table::{ABSENT, At, Column, STEP, Table, Type, end_of_family, labels_of};
use crate::api::document::Writer;

/// The media type.
pub(super) const CONTENT_TYPE: &[u8] =
    b"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// A line that is read.
struct Line {
    labels: Vec<(String, String)>,
    numbers: Vec<u64>,
    native: Option<Native>,
}

/// Writes tables. A family is a message: it is made in steps, then written at once.
pub(super) fn write(tables: Vec<Table>) -> Writer {
    let tables: Vec<Table> = tables.into_iter().filter(|t| t.lines > 0).collect();
    let (mut at, mut lines, mut family) = (At::default(), Vec::new(), Family::default());
    Box::new(move |out| {
        let Some(table) = tables.get(at.table) else { return false };
        if lines.len() < table.lines {
            let until = table.lines.min(lines.len() + STEP);
            lines.extend((lines.len()..until).map(|i| read(table, i)));
            return true;
        }
        let end = end_of_family(&table.columns, at.column);
        let columns = &table.columns[at.column..end];
        for _ in 0..STEP {
            let Some(line) = lines.get(at.line) else { break };
            family.add(table, columns, at.column, (at.line, line));
            at.line += 1;
        }
        if at.line >= lines.len() {
            family.finish(&columns[0], out);
            (at.column, at.line) = (end, 0);
        }
        if at.column >= table.columns.len() {
            at = At { table: at.table + 1, ..At::default() };
            lines.clear();
        }
        at.table < tables.len()
    })
}

fn read(table: &Table, i: usize) -> Line {
    let has_times = table.columns.iter().any(|column| column.kind == Type::Histogram);
    Line {
        labels: labels_of(&(table.label)(i)),
        numbers: (table.read)(i),
        native: table.native.as_ref().filter(|_| has_times).map(|native| native(i)),
    }
}

/// `MetricFamily`, whose metrics are made.
#[derive(Default)]
struct Family {
    metrics: Vec<u8>,
}

impl Family {
    /// Adds the metrics of a line: one for each column, or one for a histogram.
    fn add(&mut self, table: &Table, columns: &[Column], from: usize, (i, line): (usize, &Line)) {
        let numbers = &line.numbers[from..][..columns.len()];
        if columns[0].kind == Type::Histogram {
            return self.metric(&line.labels, &[], 7, &histogram(table, numbers, i, line));
        }
        for (column, &n) in columns.iter().zip(numbers).filter(|(_, n)| **n != ABSENT) {
            let mut value = Vec::new();
            write_double(&mut value, 1, if column.is_time { n as f64 / 1e6 } else { n as f64 });
            self.metric(&line.labels, &labels_of(&column.labels), field(column.kind), &value);
        }
    }

    /// Adds a metric, whose value is the message of a field.
    fn metric(&mut self, of_line: &[(String, String)], own: &[(String, String)], at: u8, v: &[u8]) {
        let mut metric = Vec::new();
        for (name, value) in of_line.iter().chain(own) {
            write_bytes(&mut metric, 1, &pair(name.as_bytes(), value.as_bytes()));
        }
        write_bytes(&mut metric, at, v);
        write_bytes(&mut self.metrics, 4, &metric);
    }

    /// Writes the family, if it has metrics, and begins the next one.
    fn finish(&mut self, column: &Column, out: &mut Vec<u8>) {
        let metrics = std::mem::take(&mut self.metrics);
        if metrics.is_empty() {
            return;
        }
        let mut head = Vec::new();
        write_bytes(&mut head, 1, column.family.as_bytes());
        write_bytes(&mut head, 2, column.help.as_bytes());
        write_number(&mut head, 3, number(column.kind));
        write_varint(out, (head.len() + metrics.len()) as u64);
        out.extend_from_slice(&head);
        out.extend_from_slice(&metrics);
    }
}

/// The number of a type.
fn number(kind: Type) -> u64 {
    match kind {
        Type::Counter => 0,
        Type::Gauge => 1,
        Type::Untyped => 3,
        Type::Histogram => 4,
    }
}

/// The field of `Metric` that has a value of a type.
fn field(kind: Type) -> u8 {
    match kind {
        Type::Gauge => 2,
        Type::Counter => 3,
        Type::Untyped => 5,
        Type::Histogram => 7,
    }
}

/// `LabelPair`
fn pair(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut pair = Vec::new();
    write_bytes(&mut pair, 1, name);
    write_bytes(&mut pair, 2, value);
    pair
}

/// `Histogram`. `numbers` are those of [`super::table::histogram`].
fn histogram(table: &Table, numbers: &[u64], i: usize, line: &Line) -> Vec<u8> {
    let mut out = Vec::new();
    let Some((up_to, [sum, count])) = numbers.split_last_chunk::<2>() else { return out };
    // The row is read twice. The number is that of the native buckets, as Prometheus demands.
    let count = match &line.native {
        Some(native) => native.zero + native.counts.iter().sum::<u64>(),
        None => *count,
    };
    write_number(&mut out, 1, count);
    write_double(&mut out, 2, *sum as f64 / 1e6);
    let mut below = 0;
    for (bucket, &n) in up_to.iter().enumerate() {
        let mut part = Vec::new();
        write_number(&mut part, 1, n);
        let bound = word::SCRAPED_US.get(bucket).map_or(f64::INFINITY, |us| *us as f64 / 1e6);
        write_double(&mut part, 2, bound);
        let has_own = n > std::mem::replace(&mut below, n);
        let exemplar = table.exemplar.as_ref().filter(|_| has_own);
        if let Some(found) = exemplar.and_then(|exemplar| exemplar(i, bucket)) {
            write_bytes(&mut part, 3, &traced(&found));
        }
        write_bytes(&mut out, 3, &part);
    }
    if let Some(native) = &line.native {
        write_native(&mut out, native);
    }
    out
}

fn traced(found: &Exemplar) -> Vec<u8> {
    let (mut out, mut id, mut time) = (Vec::new(), Vec::new(), Vec::new());
    base::ascii::write_hex(&mut id, &found.trace_id);
    write_bytes(&mut out, 1, &pair(b"trace_id", &id));
    write_double(&mut out, 2, found.us as f64 / 1e6);
    write_number(&mut time, 1, found.unix_ms / 1000);
    write_number(&mut time, 2, found.unix_ms % 1000 * 1_000_000);
    write_bytes(&mut out, 3, &time);
    out
}

/// Writes the native buckets: runs of those that are not empty, and the difference of each number
/// to the one before it.
fn write_native(out: &mut Vec<u8>, native: &Native) {
    write_number(out, 5, zigzag(SCHEMA.into()));
    write_double(out, 6, ZERO_THRESHOLD);
    write_number(out, 7, native.zero);
    let (mut next, mut before) = (0, 0);
    let mut deltas = Vec::new();
    let mut rest = &native.counts[..];
    let mut index = i64::from(Native::FIRST_INDEX);
    while let Some(gap) = rest.iter().position(|n| *n > 0) {
        let run = rest[gap..].iter().take_while(|n| **n > 0).count();
        index += gap as i64;
        // From the end of the run before; of the first one, from index 0.
        let mut span = Vec::new();
        write_number(&mut span, 1, zigzag(index - next));
        write_number(&mut span, 2, run as u64);
        write_bytes(out, 12, &span);
        for &n in &rest[gap..gap + run] {
            deltas.push(n.wrapping_sub(before) as i64);
            before = n;
        }
        index += run as i64;
        next = index;
        rest = &rest[gap + run..];
    }
    deltas.into_iter().for_each(|delta| write_number(out, 13, zigzag(delta)));
}

/// A number with a sign, so that small ones are short.
fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_buckets_and_differences() {
        let mut native = Native { zero: 3, counts: [0; word::POWERS_US.len()] };
        // Indices -55, -54 and 0.
        (native.counts[0], native.counts[1], native.counts[55]) = (5, 2, 9);
        let mut out = Vec::new();
        write_native(&mut out, &native);
        let mut want = vec![5 << 3, 4, 6 << 3 | 1];
        want.extend_from_slice(&(1.0f64 / 16384.0).to_le_bytes());
        want.extend_from_slice(&[7 << 3, 3]);
        want.extend_from_slice(&[12 << 3 | 2, 4, 1 << 3, 109, 2 << 3, 2]);
        want.extend_from_slice(&[12 << 3 | 2, 4, 1 << 3, 106, 2 << 3, 1]);
        want.extend_from_slice(&[13 << 3, 10, 13 << 3, 5, 13 << 3, 14]);
        assert_eq!(out, want);
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }

    #[test]
    fn a_family_is_a_message_behind_its_length() {
        let columns = vec![
            Column::new("n_total", Type::Counter, "Help.").with("a=\"1\""),
            Column::new("empty", Type::Gauge, "Help."),
        ];
        let table = Table::single(columns, || vec![7, ABSENT]);
        let (mut write, mut out) = (write(vec![table]), Vec::new());
        while write(&mut out) {}
        let mut want = vec![39, 10, 7];
        want.extend_from_slice(b"n_total");
        want.extend_from_slice(&[18, 5]);
        want.extend_from_slice(b"Help.");
        want.extend_from_slice(&[24, 0, 34, 19, 10, 6, 10, 1, b'a', 18, 1, b'1', 26, 9, 9]);
        want.extend_from_slice(&7f64.to_le_bytes());
        assert_eq!(out, want);
    }
}
