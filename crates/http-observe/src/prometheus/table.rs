//! Tables of numbers, and their text.

use std::rc::Rc;

use base::ascii::write_u64;
use engine::metrics::{Reading, word};

use crate::api::document::Writer;

/// The type of a family, as Prometheus has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    /// A counter whose name has no `_total`: the format has no type for that.
    Untyped,
    Histogram,
}

impl Type {
    fn text(self) -> &'static str {
        match self {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Untyped => "untyped",
            Type::Histogram => "histogram",
        }
    }
}

/// A column: the numbers of one family, with labels of its own. Columns of a family are neighbours.
#[derive(Clone)]
pub(super) struct Column {
    pub family: &'static str,
    pub kind: Type,
    pub help: &'static str,
    /// Behind the family's name.
    pub suffix: &'static str,
    /// As in `code="2xx"`; may be empty.
    pub labels: String,
    /// The numbers are microseconds, and shown as seconds.
    pub is_time: bool,
}

impl Column {
    pub fn new(family: &'static str, kind: Type, help: &'static str) -> Column {
        let (suffix, labels) = ("", String::new());
        Column { family, kind, help, suffix, labels, is_time: false }
    }

    pub fn with(self, labels: impl Into<String>) -> Column {
        Column { labels: labels.into(), ..self }
    }

    pub fn time(self) -> Column {
        Column { is_time: true, ..self }
    }
}

/// A number that is not shown.
pub(super) const ABSENT: u64 = u64::MAX;

/// A table.
pub(super) struct Table {
    pub columns: Rc<[Column]>,
    /// The number of lines.
    pub lines: usize,
    /// The labels of a line; may be empty.
    pub label: Box<dyn Fn(usize) -> String>,
    /// Reads the numbers of a line.
    pub read: Box<dyn Fn(usize) -> Vec<u64>>,
}

impl Table {
    /// A table of one line without labels.
    pub fn single(columns: Vec<Column>, read: impl Fn() -> Vec<u64> + 'static) -> Table {
        let (label, read) = (Box::new(|_| String::new()), Box::new(move |_| read()));
        Table { columns: columns.into(), lines: 1, label, read }
    }

    /// A table with a line for each of `items`.
    pub fn of<T: 'static>(
        columns: Vec<Column>,
        items: Vec<T>,
        label: impl Fn(usize, &T) -> String + 'static,
        read: impl Fn(usize, &T) -> Vec<u64> + 'static,
    ) -> Table {
        let (lines, items) = (items.len(), Rc::new(items));
        let same = items.clone();
        Table {
            columns: columns.into(),
            lines,
            label: Box::new(move |i| label(i, &same[i])),
            read: Box::new(move |i| read(i, &items[i])),
        }
    }
}

/// A label with its value, escaped.
pub(super) fn label(name: &str, value: &[u8]) -> String {
    let mut out = format!("{name}=\"");
    for c in String::from_utf8_lossy(value).chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Columns of a histogram of times: those that [`times`] reads.
pub(super) fn histogram(family: &'static str, help: &'static str) -> Vec<Column> {
    let base = Column::new(family, Type::Histogram, help);
    let bounds = word::SCRAPED.into_iter().chain(["+Inf"]);
    let bucket = |bound| Column { suffix: "_bucket", ..base.clone().with(label("le", bound)) };
    let mut columns: Vec<Column> = bounds.map(|bound: &str| bucket(bound.as_bytes())).collect();
    columns.push(Column { suffix: "_sum", ..base.clone().time() });
    columns.push(Column { suffix: "_count", ..base });
    columns
}

/// The numbers of [`histogram`].
pub(super) fn times(reading: &Reading) -> impl Iterator<Item = u64> {
    reading.scraped().chain([reading.get(word::TIME_US), reading.times()])
}

/// The place of the writer within its tables.
#[derive(Default)]
struct At {
    table: usize,
    /// The first column of the family.
    column: usize,
    line: usize,
}

/// Lines that are read, or written, in one call.
const STEP: usize = 16;

/// Writes tables.
pub(super) fn write(tables: Vec<Table>) -> Writer {
    let tables: Vec<Table> = tables.into_iter().filter(|t| t.lines > 0).collect();
    let mut frames: Vec<Frame> = Vec::new();
    let (mut at, mut read): (At, Vec<(String, Vec<u64>)>) = Default::default();
    Box::new(move |out| {
        let Some(table) = tables.get(at.table) else { return false };
        if read.len() < table.lines {
            if read.is_empty() {
                let labelled = !(table.label)(0).is_empty();
                frames = table.columns.iter().map(|column| Frame::new(column, labelled)).collect();
            }
            let until = table.lines.min(read.len() + STEP);
            read.extend((read.len()..until).map(|i| ((table.label)(i), (table.read)(i))));
            return true;
        }
        let family = table.columns[at.column].family;
        let columns = table.columns[at.column..].iter().take_while(|c| c.family == family);
        let end = at.column + columns.count();
        if at.line == 0 {
            let Column { kind, help, .. } = &table.columns[at.column];
            let kind = kind.text();
            let head = format!("# HELP {family} {help}\n# TYPE {family} {kind}\n");
            out.extend_from_slice(head.as_bytes());
        }
        for _ in 0..STEP {
            let Some((labels, numbers)) = read.get(at.line) else { break };
            let numbers = numbers.iter().zip(&frames).take(end).skip(at.column);
            for (n, frame) in numbers.filter(|(n, _)| **n != ABSENT) {
                frame.sample(out, labels, *n);
            }
            at.line += 1;
        }
        if at.line >= read.len() {
            (at.column, at.line) = (end, 0);
        }
        if at.column >= table.columns.len() {
            at = At { table: at.table + 1, ..At::default() };
            read.clear();
        }
        at.table < tables.len()
    })
}

/// The text of a column's samples around the labels of a line: made once, for thousands of lines.
struct Frame {
    before: String,
    behind: String,
    is_time: bool,
}

impl Frame {
    /// `labelled`: the lines have labels of their own.
    fn new(column: &Column, labelled: bool) -> Frame {
        let Column { family, suffix, labels, is_time, .. } = column;
        let (before, behind) = match (labelled, labels.is_empty()) {
            (false, true) => (format!("{family}{suffix}"), " ".to_owned()),
            (true, true) => (format!("{family}{suffix}{{"), "} ".to_owned()),
            (false, false) => (format!("{family}{suffix}{{"), format!("{labels}}} ")),
            (true, false) => (format!("{family}{suffix}{{"), format!(",{labels}}} ")),
        };
        Frame { before, behind, is_time: *is_time }
    }

    fn sample(&self, out: &mut Vec<u8>, labels: &str, n: u64) {
        out.extend_from_slice(self.before.as_bytes());
        out.extend_from_slice(labels.as_bytes());
        out.extend_from_slice(self.behind.as_bytes());
        if self.is_time {
            write_u64(out, n / 1_000_000);
            out.push(b'.');
            // Six digits, with the zeros in front.
            let from = out.len();
            write_u64(out, 1_000_000 + n % 1_000_000);
            out.remove(from);
        } else {
            write_u64(out, n);
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_whole_whatever_the_number_of_lines() {
        let column = |family| Column::new(family, Type::Untyped, "Help.");
        let columns =
            vec![column("a").with("x=\"1\""), column("a").with("x=\"2\""), column("b").time()];
        let zone = |_, i: &u8| label("zone", &[b'"', b'a' + i % 26]);
        let read = |i: usize, _: &u8| vec![i as u64, ABSENT, 1_500_000];
        let mut write = write(vec![Table::of(columns, (0..40).collect(), zone, read)]);
        let mut out = Vec::new();
        while write(&mut out) {}
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# HELP a Help.");
        assert_eq!(lines[1], "# TYPE a untyped");
        assert_eq!(lines[3], "a{zone=\"\\\"b\",x=\"1\"} 1");
        assert_eq!(lines[42], "# HELP b Help.");
        assert_eq!(lines[44], "b{zone=\"\\\"a\"} 1.500000");
        assert_eq!(lines.len(), 84);
    }
}
