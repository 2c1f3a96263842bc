//! The counters of the page `prometheus` as OTLP metrics: one worker sends them all.
//!
//! Counters are shared by all workers and outlive them, so that the first worker of a configuration
//! can send the sums of all. When it dies or leaves, its successor continues with the same sums and
//! start times. An export that fails needs no second try: the next one has the sums again.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};

use engine::Seat;
use engine::life::Work;
use engine::metrics::word;
use event::{Notify, race, sleep};
use http::module::Module;
use http::server::HttpMain;
use otel::MetricsExporter;
use otel::otlp::{Buckets, Kind, Metric, MetricWriter, Number, Times, TracedValue};

use crate::prometheus::all_tables;
use crate::prometheus::table::{ABSENT, Column, Table, Type, labels_of};

/// The module's table; the directive is `otel`'s.
pub static MODULE: Module = Module { name: "otel_metrics", start: Some(start), ..Module::EMPTY };

/// A request to the collector ends at this size, bytes: collectors take 4 MB.
const REQUEST_MAX: usize = 1 << 20;

/// The time for the last export of a worker that leaves, milliseconds.
const LEAVE_MS: u64 = 2_000;

/// Lines of a table that are read in one turn of the loop.
const STEP: usize = 16;

/// Names of OpenTelemetry's conventions, of its HTTP metrics and of its collector's for nginx.
const NAMES: &[(&str, &str)] = &[
    ("nginx_http_requests_total", "nginx.requests"),
    ("nginxplus_server_zone_processing", "http.server.active_requests"),
    ("weir_http_request_duration_seconds", "http.server.request.duration"),
    ("weir_upstream_response_duration_seconds", "http.client.request.duration"),
];

fn start(main: &Rc<HttpMain>, seat: &Seat) -> io::Result<()> {
    if seat.index > 0 {
        return Ok(());
    }
    let Some(exporter) = MetricsExporter::new(main, &seat.log) else { return Ok(()) };
    let done = Rc::new((Cell::new(false), Notify::new()));
    // The worker stays until the last export is over.
    let work = main.life.work();
    event::spawn(run(Rc::downgrade(main), work, exporter, done.clone()));
    let gate = main.life.gate.clone();
    main.life.at_end(move || {
        let done = Some(done.clone()).filter(|done| !done.0.get())?;
        gate.close();
        Some(Box::pin(async move {
            while !done.0.get() {
                done.1.notified().await;
            }
        }))
    });
    Ok(())
}

async fn run(
    main: Weak<HttpMain>,
    work: Work,
    mut exporter: MetricsExporter,
    done: Rc<(Cell<bool>, Notify)>,
) {
    while let Some(gate) = main.upgrade().map(|main| main.life.gate.clone()) {
        race(sleep(exporter.interval_ms()), gate.closed()).await;
        let Some(main) = main.upgrade() else { break };
        let is_last = gate.is_closed();
        let own = &mut exporter;
        let export = pin!(async {
            let limit = async {
                gate.closed().await;
                sleep(LEAVE_MS).await;
            };
            race(pin!(export(&main, own)), pin!(limit)).await
        });
        main.life.unless_given_up(export).await;
        if is_last {
            break;
        }
    }
    drop(work);
    done.0.set(true);
    done.1.notify_all();
}

/// A line of a table.
struct Line {
    labels: Vec<(String, String)>,
    numbers: Vec<u64>,
    start_ns: u64,
}

async fn export(main: &Rc<HttpMain>, exporter: &mut MetricsExporter) {
    let (mut writer, mut out) = (MetricWriter::default(), Vec::new());
    for table in all_tables(main) {
        let mut lines = Vec::with_capacity(table.lines);
        for i in 0..table.lines {
            if i % STEP == STEP - 1 {
                event::task::next_turn().await;
            }
            let began_ms = table.began_ms.as_ref().map_or(0, |began_ms| began_ms(i));
            let began_ms = if began_ms == 0 { main.stats.began_ms() } else { began_ms };
            let (labels, numbers) = (labels_of(&(table.label)(i)), (table.read)(i));
            lines.push(Line { labels, numbers, start_ns: began_ms * 1_000_000 });
        }
        let mut from = 0;
        while let Some(first) = table.columns.get(from) {
            let is_of = |column: &&Column| column.family == first.family;
            let to = from + table.columns[from..].iter().take_while(is_of).count();
            let metric = metric_of(first);
            for (i, line) in lines.iter().enumerate() {
                if i % STEP == STEP - 1 {
                    event::task::next_turn().await;
                }
                add(&table, (from, to), (i, line), &metric, &mut writer);
                if out.len() + writer.len() >= REQUEST_MAX {
                    writer.end(&metric.borrowed(), &mut out);
                    exporter.send(std::mem::take(&mut out)).await;
                }
            }
            writer.end(&metric.borrowed(), &mut out);
            from = to;
        }
    }
    if !out.is_empty() {
        exporter.send(out).await;
    }
}

/// The metric of a family.
struct Named {
    name: String,
    description: &'static str,
    unit: &'static str,
    kind: Kind,
}

impl Named {
    fn borrowed(&self) -> Metric<'_> {
        let Named { name, description, unit, kind } = self;
        Metric { name, description, unit, kind: *kind }
    }
}

/// The name, unit and kind of a family. A name without a convention is the page's, with a point
/// behind the first word, and without the unit and `_total`.
fn metric_of(column: &Column) -> Named {
    let bare = column.family.strip_suffix("_total").unwrap_or(column.family);
    let (bare, unit) = match bare.strip_suffix("_seconds") {
        Some(bare) => (bare, "s"),
        None => (bare, ""),
    };
    let known = NAMES.iter().find(|(family, _)| *family == column.family);
    let name = known.map_or_else(|| bare.replacen('_', ".", 1), |(_, name)| (*name).to_owned());
    let kind = match column.kind {
        Type::Counter | Type::Untyped => Kind::Sum,
        Type::Gauge if known.is_some() => Kind::UpDown,
        Type::Gauge => Kind::Gauge,
        Type::Histogram => Kind::Histogram,
    };
    Named { name, description: column.help, unit, kind }
}

/// Adds the points of a line in the columns of a family.
fn add(
    table: &Table,
    (from, to): (usize, usize),
    (i, line): (usize, &Line),
    metric: &Named,
    writer: &mut MetricWriter,
) {
    let times = Times { start_ns: line.start_ns, now_ns: base::time::unix_ms() * 1_000_000 };
    let numbers = &line.numbers[from.min(line.numbers.len())..to.min(line.numbers.len())];
    if metric.kind == Kind::Histogram {
        return add_histogram(table, (i, line), numbers, times, writer);
    }
    for (column, &n) in table.columns[from..to].iter().zip(numbers).filter(|(_, n)| **n != ABSENT) {
        let n = match column.is_time {
            true => Number::Double(n as f64 / 1e6),
            false => Number::Int(n),
        };
        if column.labels.is_empty() {
            writer.number(&line.labels, times, n, metric.kind);
        } else {
            let labels = [&line.labels[..], &labels_of(&column.labels)].concat();
            writer.number(&labels, times, n, metric.kind);
        }
    }
}

/// `numbers` are those of `table::histogram`: for each bound the values up to it, then the sum in
/// microseconds and the number of values.
fn add_histogram(
    table: &Table,
    (i, line): (usize, &Line),
    numbers: &[u64],
    times: Times,
    writer: &mut MetricWriter,
) {
    let Some((up_to, [sum, _])) = numbers.split_last_chunk::<2>() else { return };
    let below = [0].into_iter().chain(up_to.iter().copied());
    let counts: Vec<u64> =
        up_to.iter().zip(below).map(|(n, below)| n.saturating_sub(below)).collect();
    let bounds = word::SCRAPED_US.map(|us| us as f64 / 1e6);
    let traced = |bucket: usize| {
        let found = table.exemplar.as_ref().filter(|_| counts[bucket] > 0)?(i, bucket)?;
        let (value, time_ns) = (found.us as f64 / 1e6, found.unix_ms * 1_000_000);
        Some(TracedValue { trace_id: found.trace_id, value, time_ns })
    };
    let exemplars: Vec<TracedValue> = (0..counts.len()).filter_map(traced).collect();
    let sum = *sum as f64 / 1e6;
    let buckets = Buckets { counts: &counts, bounds: &bounds, sum, exemplars: &exemplars };
    writer.histogram(&line.labels, times, &buckets);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_conventions_or_the_page_s() {
        let of = |family, kind| {
            let Named { name, unit, kind, .. } = metric_of(&Column::new(family, kind, "h"));
            (name, unit, kind)
        };
        let named = |name: &str, unit, kind| (name.to_owned(), unit, kind);
        assert_eq!(
            of("weir_http_request_duration_seconds", Type::Histogram),
            named("http.server.request.duration", "s", Kind::Histogram)
        );
        assert_eq!(
            of("nginxplus_server_zone_processing", Type::Gauge),
            named("http.server.active_requests", "", Kind::UpDown)
        );
        assert_eq!(
            of("nginx_connections_accepted", Type::Untyped),
            named("nginx.connections_accepted", "", Kind::Sum)
        );
        assert_eq!(
            of("weir_loop_turns_total", Type::Counter),
            named("weir.loop_turns", "", Kind::Sum)
        );
        assert_eq!(
            of("weir_certificate_expires_seconds", Type::Gauge),
            named("weir.certificate_expires", "s", Kind::Gauge)
        );
    }
}
