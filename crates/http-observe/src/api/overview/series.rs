//! Series of the history as JSON: a list for each value, with a number for each step.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use base::ascii::write_u64;
use base::json::Object;
use engine::history::{History, Point, Series, SeriesKind, SeriesName};
use http::server::HttpMain;

use super::super::document::Writer;

/// The steps that the latest values of a server are taken from: a minute.
const LATEST: u64 = 6;

/// The series by their names.
pub(super) struct Rows {
    by_name: HashMap<SeriesName, usize>,
    /// Row and kind of each series, in the order of rows.
    all: Vec<(usize, SeriesKind)>,
}

impl Rows {
    pub(super) fn read(history: &History) -> Rows {
        let (mut by_name, mut all) = (HashMap::new(), Vec::new());
        for row in 0..history.rows() {
            if let Some(series) = history.series(row, 0..0) {
                all.push((row, series.name.kind));
                by_name.insert(series.name, row);
            }
        }
        Rows { by_name, all }
    }

    /// The row of a server of an upstream, and the greatest p99 of its last minute.
    pub(super) fn peer(
        &self,
        history: &History,
        kind: SeriesKind,
        upstream: &[u8],
        address: &[u8],
    ) -> Option<(usize, u32)> {
        let name = [upstream, b"\0", address].concat();
        let row = *self.by_name.get(&SeriesName { kind, name })?;
        let next = history.steps().end;
        let latest = history.series(row, next.saturating_sub(LATEST)..next)?;
        Some((row, latest.points.iter().map(|point| point.p99_us).max().unwrap_or(0)))
    }
}

/// The series that a request wants.
pub(super) struct Wanted {
    /// The names of kinds, if it names any.
    pub kinds: Option<Vec<Vec<u8>>>,
    /// The kinds otherwise.
    pub usual: fn(SeriesKind) -> bool,
    /// Further rows.
    pub rows: Vec<usize>,
    /// Rows with histograms.
    pub heat: Vec<usize>,
}

impl Wanted {
    pub(super) fn has(&self, kind: SeriesKind, row: usize) -> bool {
        let by_kind = match &self.kinds {
            Some(kinds) => kinds.iter().any(|name| name == kind.text().as_bytes()),
            None => (self.usual)(kind),
        };
        by_kind || self.rows.contains(&row) || self.heat.contains(&row)
    }
}

/// A list of the wanted series, one at a time.
pub(super) fn write(
    main: Rc<HttpMain>,
    rows: Rc<Rows>,
    wanted: Wanted,
    steps: Range<u64>,
) -> Writer {
    // Without a new step there is nothing to say of any.
    let mut at = if steps.is_empty() { rows.all.len() } else { 0 };
    let mut before = b'[';
    Box::new(move |out| {
        while let Some((row, kind)) = rows.all.get(at).copied() {
            at += 1;
            if !wanted.has(kind, row) {
                continue;
            }
            if let Some(series) = main.stats.history.series(row, steps.clone()) {
                let with_heat = kind == SeriesKind::Total || wanted.heat.contains(&row);
                out.push(std::mem::replace(&mut before, b','));
                Object::write(out, |o| one(o, row, &series, with_heat));
                return true;
            }
        }
        if before == b'[' {
            out.push(b'[');
        }
        out.push(b']');
        false
    })
}

fn one(o: &mut Object<'_>, row: usize, series: &Series, with_heat: bool) {
    o.number("row", row as u64);
    o.text("kind", series.name.kind.text().as_bytes());
    let name = &series.name.name;
    match name.iter().position(|b| *b == 0) {
        Some(at) => {
            o.text("upstream", &name[..at]);
            o.text("name", &name[at + 1..]);
        }
        None => o.text("name", name),
    }
    let mut values = |name, value: fn(&Point) -> u64| {
        numbers(o, name, series.points.iter().map(value));
    };
    values("done", |p| p.done.into());
    values("errors_4xx", |p| p.errors_4xx.into());
    values("errors_5xx", |p| p.errors_5xx.into());
    values("failed", |p| p.failed.into());
    values("active", |p| p.active.into());
    values("state", |p| p.state as u64);
    values("p99_us", |p| p.p99_us.into());
    if with_heat {
        numbers(o, "heat", series.points.iter().flat_map(|p| p.heat.map(u64::from)));
    }
}

/// A member with a list of numbers.
pub(super) fn numbers(o: &mut Object<'_>, name: &str, numbers: impl Iterator<Item = u64>) {
    o.raw(name, |out| {
        out.push(b'[');
        for (i, n) in numbers.enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_u64(out, n);
        }
        out.push(b']');
    });
}
