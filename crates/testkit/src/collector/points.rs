//! Metrics as a collector reads them.

use super::{Attribute, Call, Field, attribute_of, fields, read_resources};

/// A point of a metric, with the metric's own fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The metric's name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// `gauge`, `sum`, `up_down` or `histogram`.
    pub kind: &'static str,
    /// Nanoseconds since 1970; 0 where there is none.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// In their order.
    pub attributes: Vec<(String, Attribute)>,
    /// The number; of a histogram the sum.
    pub value: f64,
    /// Of a histogram: the numbers by bucket.
    pub counts: Vec<u64>,
    /// Of a histogram: the bounds.
    pub bounds: Vec<f64>,
    /// The ids of the traces of exemplars, with their values.
    pub exemplars: Vec<(String, f64)>,
}

impl Point {
    /// The text of an attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).and_then(|(_, value)| match value {
            Attribute::Text(text) => Some(&**text),
            _ => None,
        })
    }
}

/// Reads an `ExportMetricsServiceRequest`.
///
/// # Panics
/// It is malformed.
pub fn read_request(message: &[u8]) -> Call {
    read_resources(message, |scope, call| {
        for (number, field) in fields(scope) {
            match number {
                1 => call.scope = fields(field.bytes())[0].1.text(),
                2 => read_metric(field.bytes(), &mut call.points),
                number => panic!("field {number} of ScopeMetrics"),
            }
        }
    })
}

fn read_metric(message: &[u8], points: &mut Vec<Point>) {
    let mut metric = Point::default();
    for (number, field) in fields(message) {
        match number {
            1 => metric.name = field.text(),
            2 => drop(field.text()),
            3 => metric.unit = field.text(),
            5 => read_data(field.bytes(), Point { kind: "gauge", ..metric.clone() }, points),
            7 => read_data(field.bytes(), Point { kind: "up_down", ..metric.clone() }, points),
            9 => read_data(field.bytes(), Point { kind: "histogram", ..metric.clone() }, points),
            number => panic!("field {number} of Metric"),
        }
    }
}

fn read_data(message: &[u8], mut metric: Point, points: &mut Vec<Point>) {
    let parts = fields(message);
    for (number, field) in &parts {
        match number {
            1 => {}
            2 => assert_eq!((field.number(), metric.kind == "gauge"), (2, false), "cumulative"),
            3 => {
                assert_eq!((field.number(), metric.kind), (1, "up_down"));
                metric.kind = "sum";
            }
            number => panic!("field {number} of {}", metric.name),
        }
    }
    let of_points = parts.iter().filter(|(number, _)| *number == 1);
    points.extend(of_points.map(|(_, field)| read_point(field.bytes(), metric.clone())));
}

fn read_point(message: &[u8], mut point: Point) -> Point {
    let is_histogram = point.kind == "histogram";
    let double = |field: &Field<'_>| f64::from_bits(field.number());
    let packed = |field: &Field<'_>| -> Vec<u64> {
        let numbers = field.bytes().chunks(8);
        numbers.map(|n| u64::from_le_bytes(n.try_into().expect("eight bytes"))).collect()
    };
    let mut count = None;
    for entry in fields(message) {
        let field = &entry.1;
        match (entry.0, is_histogram) {
            (2, _) => point.start_ns = field.number(),
            (3, _) => point.time_ns = field.number(),
            (4, false) | (5, true) => point.value = double(field),
            (6, false) => point.value = field.number() as f64,
            (7, false) | (9, true) => point.attributes.push(attribute_of(&entry)),
            (4, true) => count = Some(field.number()),
            (6, true) => point.counts = packed(field),
            (7, true) => point.bounds = packed(field).into_iter().map(f64::from_bits).collect(),
            (8, true) => {
                let exemplar = fields(field.bytes());
                let of = |number| exemplar.iter().find(|(n, _)| *n == number).map(|(_, f)| f);
                let id = of(5).expect("a trace").hex();
                point.exemplars.push((id, double(of(3).expect("a value"))));
            }
            (number, _) => panic!("field {number} of a point of {}", point.name),
        }
    }
    if is_histogram {
        assert_eq!(count, Some(point.counts.iter().sum()));
        assert_eq!(point.counts.len(), point.bounds.len() + 1);
    }
    point
}
