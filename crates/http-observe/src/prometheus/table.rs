//! Tables of numbers, and their text: in the format of Prometheus, and in that of OpenMetrics.
//!
//! OpenMetrics 1.0 differs in what is named here: the family of a counter has no `_total`, bounds
//! of buckets have a point, a bucket may end in an exemplar, and the text ends in `# EOF`.

use std::rc::Rc;

use base::ascii::{write_hex, write_u64};
use engine::metrics::native::Native;
use engine::metrics::{Reading, word};
use otel::Exemplar;

use crate::api::document::Writer;

/// The type of a family, as Prometheus has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Counter,
    Gauge,
    /// A counter whose name has no `_total`: the format has no type for that.
    Untyped,
    Histogram,
}

impl Type {
    fn text(self, format: Format) -> &'static str {
        match self {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Untyped if format == Format::OpenMetrics => "unknown",
            Type::Untyped => "untyped",
            Type::Histogram => "histogram",
        }
    }
}

/// The format of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

/// A column: the numbers of one family, with labels of its own. Columns of a family are neighbours.
#[derive(Clone)]
pub(crate) struct Column {
    pub family: &'static str,
    pub kind: Type,
    pub help: &'static str,
    /// What follows the family's name.
    pub suffix: &'static str,
    /// As in `code="2xx"`; may be empty.
    pub labels: String,
    /// The numbers are microseconds, and shown as seconds.
    pub is_time: bool,
    /// The bucket of a histogram that it is, by its bound.
    pub bucket: Option<usize>,
}

impl Column {
    pub fn new(family: &'static str, kind: Type, help: &'static str) -> Column {
        let (suffix, labels) = ("", String::new());
        Column { family, kind, help, suffix, labels, is_time: false, bucket: None }
    }

    pub fn with(self, labels: impl Into<String>) -> Column {
        Column { labels: labels.into(), ..self }
    }

    pub fn time(self) -> Column {
        Column { is_time: true, ..self }
    }
}

/// A number that is not shown.
pub(crate) const ABSENT: u64 = u64::MAX;

/// The exemplar of a bucket in a line.
type ExemplarOf = Box<dyn Fn(usize, usize) -> Option<Exemplar>>;

/// The histogram of a line in the buckets of native histograms.
type NativeOf = Box<dyn Fn(usize) -> Native>;

pub(crate) struct Table {
    pub columns: Rc<[Column]>,
    /// The number of lines.
    pub lines: usize,
    /// The labels of a line; may be empty.
    pub label: Box<dyn Fn(usize) -> String>,
    /// Reads the numbers of a line.
    pub read: Box<dyn Fn(usize) -> Vec<u64>>,
    /// Gives the exemplars of histograms, if there are any.
    pub exemplar: Option<ExemplarOf>,
    /// Reads the histogram of a line, where the table has one, for native histograms.
    pub native: Option<NativeOf>,
    /// Gives the time when the counters of a line were 0, milliseconds since 1970, if it is not the
    /// start of the server.
    pub began_ms: Option<Box<dyn Fn(usize) -> u64>>,
}

impl Table {
    /// A table of one line without labels.
    pub fn single(columns: Vec<Column>, read: impl Fn() -> Vec<u64> + 'static) -> Table {
        let (label, read) = (Box::new(|_| String::new()), Box::new(move |_| read()));
        Table {
            columns: columns.into(),
            lines: 1,
            label,
            read,
            exemplar: None,
            native: None,
            began_ms: None,
        }
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
            exemplar: None,
            native: None,
            began_ms: None,
        }
    }
}

/// A label with its value, escaped.
pub(crate) fn label(name: &str, value: &[u8]) -> String {
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
pub(crate) fn histogram(family: &'static str, help: &'static str) -> Vec<Column> {
    let base = Column::new(family, Type::Histogram, help);
    let bucket = |i| Column { suffix: "_bucket", bucket: Some(i), ..base.clone() };
    let mut columns: Vec<Column> = (0..=word::SCRAPED.len()).map(bucket).collect();
    columns.push(Column { suffix: "_sum", ..base.clone().time() });
    columns.push(Column { suffix: "_count", ..base });
    columns
}

/// The numbers of [`histogram`].
pub(crate) fn times(reading: &Reading) -> impl Iterator<Item = u64> {
    reading.scraped().chain([reading.get(word::TIME_US), reading.times()])
}

/// The labels in a text such as `zone="a",code="2xx"`: the reverse of [`label`].
pub(crate) fn labels_of(mut text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c)) => value.push(c),
                    None => {}
                },
                c => value.push(c),
            }
        }
        all.push((name.trim_start_matches(',').to_owned(), value));
        text = &rest[end..];
    }
    all
}

/// The place of the writer within its tables.
#[derive(Default)]
pub(super) struct At {
    pub table: usize,
    /// The first column of the family.
    pub column: usize,
    pub line: usize,
}

/// Lines that are read, or written, in one call.
pub(super) const STEP: usize = 16;

/// The first column behind the family of the column `from`.
pub(super) fn end_of_family(columns: &[Column], from: usize) -> usize {
    let family = columns[from].family;
    from + columns[from..].iter().take_while(|c| c.family == family).count()
}

pub(crate) fn write(tables: Vec<Table>, format: Format) -> Writer {
    let mut samples = samples(tables, format);
    Box::new(move |out| {
        let more = samples(out);
        if !more && format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        more
    })
}

fn samples(tables: Vec<Table>, format: Format) -> Writer {
    let tables: Vec<Table> = tables.into_iter().filter(|t| t.lines > 0).collect();
    let mut frames: Vec<Frame> = Vec::new();
    let (mut at, mut read): (At, Vec<(String, Vec<u64>)>) = Default::default();
    Box::new(move |out| {
        let Some(table) = tables.get(at.table) else { return false };
        if read.len() < table.lines {
            if read.is_empty() {
                let labelled = !(table.label)(0).is_empty();
                let frame = |column| Frame::new(column, labelled, format);
                frames = table.columns.iter().map(frame).collect();
            }
            let until = table.lines.min(read.len() + STEP);
            read.extend((read.len()..until).map(|i| ((table.label)(i), (table.read)(i))));
            return true;
        }
        let end = end_of_family(&table.columns, at.column);
        if at.line == 0 {
            write_head(out, &table.columns[at.column], format);
        }
        for _ in 0..STEP {
            let Some((labels, numbers)) = read.get(at.line) else { break };
            let numbers = numbers.iter().zip(&frames).take(end).skip(at.column);
            let mut below = 0;
            for (n, frame) in numbers.filter(|(n, _)| **n != ABSENT) {
                frame.sample(out, labels, *n);
                if let (Some(bucket), Some(exemplar)) = (frame.bucket, &table.exemplar) {
                    let is_empty = *n <= std::mem::replace(&mut below, *n);
                    let exemplar = || exemplar(at.line, bucket).filter(|_| !is_empty);
                    write_exemplar(out, (format == Format::OpenMetrics).then(exemplar).flatten());
                }
                out.push(b'\n');
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

/// The lines before the samples of a family.
fn write_head(out: &mut Vec<u8>, column: &Column, format: Format) {
    let Column { family, kind, help, .. } = column;
    let family = match format {
        Format::OpenMetrics if *kind == Type::Counter => {
            family.strip_suffix("_total").unwrap_or(family)
        }
        _ => family,
    };
    let kind = kind.text(format);
    let head = format!("# HELP {family} {help}\n# TYPE {family} {kind}\n");
    out.extend_from_slice(head.as_bytes());
}

/// Writes the exemplar behind the number of its bucket.
fn write_exemplar(out: &mut Vec<u8>, exemplar: Option<Exemplar>) {
    let Some(Exemplar { trace_id, us, unix_ms }) = exemplar else { return };
    out.extend_from_slice(b" # {trace_id=\"");
    write_hex(out, &trace_id);
    out.extend_from_slice(b"\"} ");
    write_fraction(out, us, 1_000_000);
    out.push(b' ');
    write_fraction(out, unix_ms, 1_000);
}

/// Writes `n / unit`, a power of ten, with all of its digits.
fn write_fraction(out: &mut Vec<u8>, n: u64, unit: u64) {
    write_u64(out, n / unit);
    out.push(b'.');
    // With the zeros in front.
    let from = out.len();
    write_u64(out, unit + n % unit);
    out.remove(from);
}

/// The text of a column's samples around the labels of a line: made once, for thousands of lines.
struct Frame {
    before: String,
    behind: String,
    is_time: bool,
    bucket: Option<usize>,
}

impl Frame {
    /// `labelled`: the lines have labels of their own.
    fn new(column: &Column, labelled: bool, format: Format) -> Frame {
        let Column { family, suffix, labels, is_time, bucket, .. } = column;
        let bound = bucket.map(|i| label("le", bound(i, format).as_bytes()));
        let labels = bound.as_ref().unwrap_or(labels);
        let (before, behind) = match (labelled, labels.is_empty()) {
            (false, true) => (format!("{family}{suffix}"), " ".to_owned()),
            (true, true) => (format!("{family}{suffix}{{"), "} ".to_owned()),
            (false, false) => (format!("{family}{suffix}{{"), format!("{labels}}} ")),
            (true, false) => (format!("{family}{suffix}{{"), format!(",{labels}}} ")),
        };
        Frame { before, behind, is_time: *is_time, bucket: *bucket }
    }

    fn sample(&self, out: &mut Vec<u8>, labels: &str, n: u64) {
        out.extend_from_slice(self.before.as_bytes());
        out.extend_from_slice(labels.as_bytes());
        out.extend_from_slice(self.behind.as_bytes());
        if self.is_time {
            write_fraction(out, n, 1_000_000);
        } else {
            write_u64(out, n);
        }
    }
}

/// The upper bound of a bucket. OpenMetrics has a point in each number.
fn bound(bucket: usize, format: Format) -> String {
    let text = word::SCRAPED.get(bucket).copied().unwrap_or("+Inf");
    let is_whole = text.bytes().all(|b| b.is_ascii_digit());
    let point = if is_whole && format == Format::OpenMetrics { ".0" } else { "" };
    format!("{text}{point}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(tables: Vec<Table>, format: Format) -> String {
        let (mut write, mut out) = (write(tables, format), Vec::new());
        while write(&mut out) {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn openmetrics_has_exemplars_and_an_end() {
        let mut columns = histogram("h_seconds", "Help.");
        columns.push(Column::new("n_total", Type::Counter, "Help."));
        columns.push(Column::new("u", Type::Untyped, "Help."));
        let read = || {
            let mut numbers = vec![0; 14];
            numbers.extend([2; 8]);
            numbers.extend([1_500_000, 2, 7, ABSENT]);
            numbers
        };
        let mut table = Table::single(columns.clone(), read);
        let found = |_, bucket: usize| {
            let exemplar = Exemplar { trace_id: [0xab; 16], us: 1_000_000, unix_ms: 70_005 };
            (bucket >= 12).then_some(exemplar)
        };
        table.exemplar = Some(Box::new(found));
        let text = written(vec![table], Format::OpenMetrics);
        let id = "ab".repeat(16);
        assert!(text.contains("\nh_seconds_bucket{le=\"0.75\"} 0\n"), "{text}");
        let one =
            format!("\nh_seconds_bucket{{le=\"1.0\"}} 2 # {{trace_id=\"{id}\"}} 1.000000 70.005\n");
        assert!(text.contains(&one), "{text}");
        // In the first bucket alone: the others have nothing of their own.
        assert_eq!(text.matches("trace_id").count(), 1);
        assert!(text.contains("\nh_seconds_bucket{le=\"+Inf\"} 2\n"), "{text}");
        assert!(text.contains("\n# HELP n Help.\n# TYPE n counter\nn_total 7\n"), "{text}");
        assert!(text.ends_with("\n# TYPE u unknown\n# EOF\n"), "{text}");
        assert_eq!(written(vec![], Format::OpenMetrics), "# EOF\n");
        let text = written(vec![Table::single(columns, read)], Format::Prometheus);
        assert!(text.contains("\nh_seconds_bucket{le=\"1\"} 2\n"), "{text}");
        assert!(text.contains("\n# TYPE n_total counter\n") && !text.contains('!'), "{text}");
        assert!(text.ends_with("\n# TYPE u untyped\n"), "{text}");
    }

    #[test]
    fn labels_come_back_as_they_were() {
        let values = ["a", "", "q\"\\\n,x=\"", "\u{e9}"];
        let text: Vec<String> = values.iter().map(|value| label("n", value.as_bytes())).collect();
        let found = labels_of(&text.join(","));
        let want: Vec<_> = values.iter().map(|v| ("n".to_owned(), (*v).to_owned())).collect();
        assert_eq!(found, want);
        assert_eq!(labels_of(""), []);
    }

    #[test]
    fn families_are_whole_whatever_the_number_of_lines() {
        let column = |family| Column::new(family, Type::Untyped, "Help.");
        let columns =
            vec![column("a").with("x=\"1\""), column("a").with("x=\"2\""), column("b").time()];
        let zone = |_, i: &u8| label("zone", &[b'"', b'a' + i % 26]);
        let read = |i: usize, _: &u8| vec![i as u64, ABSENT, 1_500_000];
        let table = Table::of(columns, (0..40).collect(), zone, read);
        let text = written(vec![table], Format::Prometheus);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# HELP a Help.");
        assert_eq!(lines[1], "# TYPE a untyped");
        assert_eq!(lines[3], "a{zone=\"\\\"b\",x=\"1\"} 1");
        assert_eq!(lines[42], "# HELP b Help.");
        assert_eq!(lines[44], "b{zone=\"\\\"a\"} 1.500000");
        assert_eq!(lines.len(), 84);
    }
}
