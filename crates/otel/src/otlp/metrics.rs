//! Encodes metrics: sums, gauges and histograms with their points (`metrics.proto`).

use super::span::{Value, key_value};
use super::wire::{write_bytes, write_double, write_fixed64, write_head, write_number};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u64 = 2;

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A sum that only grows.
    Sum,
    /// A sum that goes up and down: of work under way.
    UpDown,
    /// A value that goes up and down.
    Gauge,
    /// Numbers by bucket, which only grow.
    Histogram,
}

/// A metric without its points.
#[derive(Clone, Copy, Debug)]
pub struct Metric<'a> {
    /// Its name, as in `http.server.request.duration`.
    pub name: &'a str,
    /// A sentence about it.
    pub description: &'a str,
    /// Its unit, as UCUM has it; may be empty.
    pub unit: &'a str,
    /// How its points are to be added up.
    pub kind: Kind,
}

/// The times of a point, nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time when it was 0.
    pub start_ns: u64,
    /// The time of the points, nanoseconds since 1970.
    pub now_ns: u64,
}

/// A number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole one.
    Int(u64),
    /// One with a fraction.
    Double(f64),
}

/// A traced measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TracedValue {
    /// The id of its trace.
    pub trace_id: [u8; 16],
    /// Its value, in the unit of its metric.
    pub value: f64,
    /// Its time, nanoseconds since 1970.
    pub time_ns: u64,
}

/// A point of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Buckets<'a> {
    /// The numbers by bucket, one more than there are bounds.
    pub counts: &'a [u64],
    /// The upper bounds.
    pub bounds: &'a [f64],
    /// The sum of all values.
    pub sum: f64,
    /// Some of them.
    pub exemplars: &'a [TracedValue],
}

/// Encodes metrics one after another; the buffers are reused.
#[derive(Default)]
pub struct MetricWriter {
    points: Vec<u8>,
    point: Vec<u8>,
    part: Vec<u8>,
}

impl MetricWriter {
    /// Adds a point of a sum or a gauge.
    pub fn number(&mut self, labels: &[(String, String)], times: Times, n: Number, kind: Kind) {
        let out = &mut self.point;
        out.clear();
        if kind != Kind::Gauge {
            write_fixed64(out, 2, times.start_ns);
        }
        write_fixed64(out, 3, times.now_ns);
        match n {
            Number::Double(n) => write_double(out, 4, n),
            // Signed: a number of ours never has the highest bit.
            Number::Int(n) => write_fixed64(out, 6, n),
        }
        attributes(out, 7, labels);
        write_bytes(&mut self.points, 1, &self.point);
    }

    /// Adds a point of a histogram.
    pub fn histogram(&mut self, labels: &[(String, String)], times: Times, of: &Buckets<'_>) {
        let out = &mut self.point;
        out.clear();
        write_fixed64(out, 2, times.start_ns);
        write_fixed64(out, 3, times.now_ns);
        write_fixed64(out, 4, of.counts.iter().sum());
        write_double(out, 5, of.sum);
        write_head(out, 6, of.counts.len() * 8);
        of.counts.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        write_head(out, 7, of.bounds.len() * 8);
        of.bounds.iter().for_each(|bound| out.extend_from_slice(&bound.to_le_bytes()));
        for exemplar in of.exemplars {
            self.part.clear();
            write_fixed64(&mut self.part, 2, exemplar.time_ns);
            write_double(&mut self.part, 3, exemplar.value);
            write_bytes(&mut self.part, 5, &exemplar.trace_id);
            write_bytes(out, 8, &self.part);
        }
        attributes(out, 9, labels);
        write_bytes(&mut self.points, 1, &self.point);
    }

    /// The encoded length of the points so far, bytes.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether the metric has no points yet.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Finishes the metric and appends it to `metrics`. Without points it is left out.
    pub fn end(&mut self, metric: &Metric<'_>, metrics: &mut Vec<u8>) {
        if self.points.is_empty() {
            return;
        }
        match metric.kind {
            Kind::Gauge => {}
            Kind::Sum => {
                write_number(&mut self.points, 2, CUMULATIVE);
                write_number(&mut self.points, 3, 1);
            }
            Kind::UpDown | Kind::Histogram => write_number(&mut self.points, 2, CUMULATIVE),
        }
        let out = &mut self.part;
        out.clear();
        write_bytes(out, 1, metric.name.as_bytes());
        write_bytes(out, 2, metric.description.as_bytes());
        if !metric.unit.is_empty() {
            write_bytes(out, 3, metric.unit.as_bytes());
        }
        let field = match metric.kind {
            Kind::Gauge => 5,
            Kind::Sum | Kind::UpDown => 7,
            Kind::Histogram => 9,
        };
        write_bytes(out, field, &self.points);
        write_bytes(metrics, 2, out);
        self.points.clear();
    }
}

fn attributes(out: &mut Vec<u8>, field: u8, labels: &[(String, String)]) {
    for (name, value) in labels {
        key_value(out, field, name.as_bytes(), Value::Text(value.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { start_ns: 1, now_ns: 2 };

    fn metric(kind: Kind) -> Metric<'static> {
        Metric { name: "m", description: "d", unit: "s", kind }
    }

    #[test]
    fn sums_and_gauges_are_these_bytes() {
        let (mut writer, mut out) = (MetricWriter::default(), Vec::new());
        writer.end(&metric(Kind::Sum), &mut out);
        assert!(out.is_empty());
        let labels = [("k".to_owned(), "v".to_owned())];
        writer.number(&labels, TIMES, Number::Int(3), Kind::Sum);
        writer.end(&metric(Kind::Sum), &mut out);
        let mut want = b"\x12\x38\x0a\x01m\x12\x01d\x1a\x01s\x3a\x2d\x0a\x27".to_vec();
        want.extend(b"\x11\x01\0\0\0\0\0\0\0\x19\x02\0\0\0\0\0\0\0\x31\x03\0\0\0\0\0\0\0");
        want.extend(b"\x3a\x08\x0a\x01k\x12\x03\x0a\x01v\x10\x02\x18\x01");
        // The lengths follow from the parts.
        want[1] = (want.len() - 2) as u8;
        want[12] = (want.len() - 13) as u8;
        want[14] = (want.len() - 15 - 4) as u8;
        assert_eq!(out, want);

        out.clear();
        writer.number(&[], TIMES, Number::Double(1.5), Kind::Gauge);
        writer.end(&metric(Kind::Gauge), &mut out);
        let mut want = b"\x12\x20\x0a\x01m\x12\x01d\x1a\x01s\x2a\x14\x0a\x12".to_vec();
        want.extend(b"\x19\x02\0\0\0\0\0\0\0\x21");
        want.extend(1.5f64.to_le_bytes());
        want[1] = (want.len() - 2) as u8;
        assert_eq!(out, want);
    }

    #[test]
    fn histograms_have_packed_buckets_and_exemplars() {
        let (mut writer, mut out) = (MetricWriter::default(), Vec::new());
        let exemplar = TracedValue { trace_id: [0xab; 16], value: 0.5, time_ns: 9 };
        let buckets =
            Buckets { counts: &[1, 2], bounds: &[0.25], sum: 4.0, exemplars: &[exemplar] };
        writer.histogram(&[], TIMES, &buckets);
        writer.end(&metric(Kind::Histogram), &mut out);
        let mut point =
            b"\x11\x01\0\0\0\0\0\0\0\x19\x02\0\0\0\0\0\0\0\x21\x03\0\0\0\0\0\0\0".to_vec();
        point.push(0x29);
        point.extend(4f64.to_le_bytes());
        point.extend(b"\x32\x10\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x3a\x08");
        point.extend(0.25f64.to_le_bytes());
        point.extend(b"\x42\x24\x11\x09\0\0\0\0\0\0\0\x19");
        point.extend(0.5f64.to_le_bytes());
        point.extend(b"\x2a\x10");
        point.extend([0xab; 16]);
        let at = out.windows(point.len()).position(|w| w == point);
        assert!(at.is_some(), "{out:x?}");
        assert!(out.ends_with(b"\x10\x02"));
    }
}
