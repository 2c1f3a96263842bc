//! The report: one page of HTML with lines drawn in it, and the samples as lines of text beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::samples::{Kind, Sample, fit};
use super::tally::{Event, Results, Row};
use crate::Outcome;

/// Everything that a report says.
pub struct Report<'a> {
    /// Name and value: version, machine, configuration, times.
    pub facts: Vec<(String, String)>,
    pub results: &'a Results,
    pub samples: &'a [Sample],
    /// The time from a disturbance to the next one of its kind, in which all kinds come.
    pub cycle: Duration,
    /// Rows that are counted elsewhere.
    pub others: Vec<(&'static str, String)>,
    /// Lines of the log of level crit and worse, without their numbers.
    pub log: Vec<(String, u64)>,
    /// Whether it passed and why not; nothing while it runs.
    pub verdict: Option<Vec<String>>,
}

/// What is drawn: its name, its unit, and a process kind's value.
type Curve = (&'static str, &'static str, fn(&Kind) -> f64);

const CURVES: [Curve; 4] = [
    ("PSS", "MB", |k| k.pss as f64 / MB),
    ("private dirty", "MB", |k| k.private_dirty as f64 / MB),
    ("descriptors", "", |k| k.descriptors as f64),
    ("processes", "", |k| k.processes as f64),
];
const MB: f64 = (1 << 20) as f64;
const STYLE: &str = "body{font:14px/1.4 sans-serif;margin:2em auto;max-width:75em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border:1px solid #ccc;\
    text-align:left;vertical-align:top}td.n{text-align:right}svg{background:#fafafa;\
    border:1px solid #ddd}.bad{color:#b00;font-weight:bold}.good{color:#070;font-weight:bold}\
    figure{display:inline-block;margin:.5em}figcaption{font-size:12px}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes the page, and the samples to the same name with `.tsv` behind it.
pub fn write(path: &Path, report: &Report<'_>) -> Outcome {
    let mut lines = Sample::heads();
    for sample in report.samples {
        lines.push('\n');
        lines.push_str(&sample.line());
    }
    lines.push('\n');
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tsv");
    // In one step: a reader never sees half of it.
    let put = |path: &Path, text: &str| {
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    put(Path::new(&beside), &lines).and_then(|()| put(path, &page(report)))
}

fn page(report: &Report<'_>) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>weir: soak</title>\n\
         <style>{STYLE}</style>\n<h1>Soak</h1>\n"
    );
    match &report.verdict {
        None => out.push_str("<p>It is still running.</p>\n"),
        Some(bad) if bad.is_empty() => out.push_str("<p class=\"good\">It passed.</p>\n"),
        Some(bad) => {
            out.push_str("<p class=\"bad\">It did not pass:</p><ul>\n");
            for text in bad {
                let _ = writeln!(out, "<li>{}", escaped(text));
            }
            out.push_str("</ul>\n");
        }
    }
    out.push_str("<table>\n");
    for (name, value) in &report.facts {
        let _ = writeln!(out, "<tr><th>{}<td>{}", escaped(name), escaped(value));
    }
    out.push_str("</table>\n<h2>Requests</h2>\n");
    requests(&mut out, report);
    events(&mut out, "Findings", &report.results.findings);
    out.push_str("<h2>Disturbances</h2>\n<table>\n");
    for (name, count) in &report.results.disturbances {
        let _ = writeln!(out, "<tr><th>{}<td class=\"n\">{count}", escaped(name));
    }
    out.push_str("</table>\n<h2>Processes</h2>\n");
    curves(&mut out, report.samples, report.cycle.as_secs_f64());
    out.push_str("<h2>Slowest answers</h2>\n<table><tr><th>ms<th>ended at, s<th>request\n");
    for slow in &report.results.slowest {
        let (ms, Event { at, text }) = (slow.ms, &slow.event);
        let text = escaped(text);
        let _ = writeln!(out, "<tr><td class=\"n\">{ms}<td class=\"n\">{at:.1}<td>{text}");
    }
    out.push_str(
        "</table>\n<h2>Log</h2>\n<table><tr><th>lines<th>crit and worse, without numbers\n",
    );
    for (line, count) in &report.log {
        let _ = writeln!(out, "<tr><td class=\"n\">{count}<td>{}", escaped(line));
    }
    out.push_str("</table>\n<details><summary>Last disturbances</summary>\n");
    let last: Vec<Event> = report.results.events.iter().cloned().collect();
    events(&mut out, "", &last);
    out.push_str("</details>\n</html>\n");
    out
}

fn requests(out: &mut String, report: &Report<'_>) {
    out.push_str(
        "<table><tr><th>by<th>requests<th>right<th>given up<th>lost, explained by a disturbance\
         <th>failed\n",
    );
    let sum = |counts: &std::collections::BTreeMap<String, u64>| counts.values().sum::<u64>();
    let words = |counts: &std::collections::BTreeMap<String, u64>| {
        let each = counts.iter().map(|(what, n)| format!("{n} × {}", escaped(what)));
        each.collect::<Vec<_>>().join("<br>")
    };
    for (name, row) in &report.results.rows {
        let Row { right, kinds, given_up, explained, failed } = row;
        let all = right + given_up + sum(explained) + sum(failed);
        let class = if failed.is_empty() { "" } else { " class=\"bad\"" };
        let _ = writeln!(
            out,
            "<tr><th>{}<td class=\"n\">{all}<td><details><summary>{right}</summary>{}</details>\
             <td class=\"n\">{given_up}<td>{}<td{class}>{}",
            escaped(name),
            words(kinds),
            words(explained),
            words(failed)
        );
    }
    for (name, text) in &report.others {
        let _ = writeln!(out, "<tr><th>{}<td colspan=\"5\">{}", escaped(name), escaped(text));
    }
    out.push_str("</table>\n");
}

fn events(out: &mut String, head: &str, events: &[Event]) {
    if !head.is_empty() {
        let _ = writeln!(out, "<h2>{head}</h2>");
    }
    if events.is_empty() {
        out.push_str("<p>None.</p>\n");
        return;
    }
    out.push_str("<table><tr><th>at, s<th>\n");
    for Event { at, text } in events {
        let _ = writeln!(out, "<tr><td class=\"n\">{at:.1}<td>{}", escaped(text));
    }
    out.push_str("</table>\n");
}

fn curves(out: &mut String, samples: &[Sample], cycle: f64) {
    for (n, kind) in ["master", "workers", "helpers"].into_iter().enumerate() {
        for (what, unit, of) in CURVES {
            let points: Vec<(f64, f64)> =
                samples.iter().map(|s| (s.at, of(&s.kinds()[n].1))).collect();
            curve(out, &format!("{kind}: {what}"), unit, &points, cycle);
        }
    }
    for (n, kind) in ["the master", "a worker", "a helper"].into_iter().enumerate() {
        let each = samples.iter().filter_map(|s| Some((s.at, s.kinds()[n].1.each_mb()?)));
        let each: Vec<_> = each.collect();
        curve(out, &format!("own memory of {kind}"), "MB", &each, cycle);
    }
}

/// The growth of a value in an hour: the median of what each sample has more than the one a cycle
/// before. The same things happen to the server in each cycle, and a line through all samples would
/// rise or fall with the part of the last one. The first cycle is left out, in which memory is
/// taken that is kept. None for a run of less than two more.
pub fn growth(points: &[(f64, f64)], cycle: f64) -> Option<f64> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    if last - first < cycle * 2.9 {
        return None;
    }
    let mut more = Vec::new();
    let mut before = points.iter().filter(|p| p.0 >= first + cycle).peekable();
    for point in points {
        while before.next_if(|p| p.0 + cycle < point.0).is_some() {}
        if let Some(old) = before.peek().filter(|p| p.0 < point.0) {
            more.push((point.1 - old.1) / (point.0 - old.0) * 3600.0);
        }
    }
    more.sort_by(f64::total_cmp);
    more.get(more.len() / 2).copied()
}

fn curve(out: &mut String, name: &str, unit: &str, points: &[(f64, f64)], cycle: f64) {
    const WIDTH: f64 = 360.0;
    const HEIGHT: f64 = 120.0;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let most = points.iter().map(|p| p.1).fold(0.0, f64::max).max(1e-9) * 1.1;
    let span = (last.0 - first.0).max(1e-9);
    let place = |(x, y): (f64, f64)| ((x - first.0) / span * WIDTH, HEIGHT - y / most * HEIGHT);
    let line: Vec<String> = points
        .iter()
        .map(|p| {
            let (x, y) = place(*p);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let half = &points[points.len() / 2..];
    let fitted = fit(half).map_or(String::new(), |(at, slope)| {
        let ends = [half[0].0, last.0].map(|x| place((x, at + slope * x)));
        let [(x1, y1), (x2, y2)] = ends;
        format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#c33\"/>"
        )
    });
    let grown = growth(points, cycle).map_or("too short to compare".to_string(), |g| {
        format!("{g:+.2} {unit} an hour, from cycle to cycle")
    });
    let _ = writeln!(
        out,
        "<figure><svg width=\"{WIDTH}\" height=\"{HEIGHT}\"><polyline fill=\"none\" \
         stroke=\"#247\" points=\"{}\"/>{fitted}</svg><figcaption>{} (0 to {most:.1} {unit}); last \
         {:.1}; {grown}</figcaption></figure>",
        line.join(" "),
        escaped(name),
        last.1
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_alone() {
        let mut results = Results::default();
        results.rows.entry("<b>").or_default().failed.insert("cut & lost".into(), 3);
        let samples: Vec<Sample> =
            (0..10).map(|n| Sample { at: f64::from(n), ..Sample::default() }).collect();
        let verdict = Some(vec!["a finding".to_string()]);
        let (facts, others, log) = (Vec::new(), Vec::new(), Vec::new());
        let (results, samples) = (&results, &samples[..]);
        let cycle = Duration::from_secs(3);
        let report = Report { facts, results, samples, cycle, others, log, verdict };
        let text = page(&report);
        assert!(text.contains("3 × cut &amp; lost") && text.contains("&lt;b&gt;"), "{text}");
        assert!(text.contains("<polyline") && !text.contains("NaN") && !text.contains("http"));
    }

    #[test]
    fn growth_is_that_of_an_hour() {
        // A saw whose teeth are ten seconds long, and that rises by two in each.
        let saw = |n: u32| (f64::from(n), f64::from(n % 10) * 5.0 + f64::from(n / 10) * 2.0);
        let points: Vec<(f64, f64)> = (0..45).map(saw).collect();
        assert!((growth(&points, 10.0).unwrap() - 720.0).abs() < 1e-6);
        assert_eq!(growth(&points[..25], 10.0), None, "the first cycle and one more");
        // Memory that is taken in the first cycle alone is no growth.
        let kept = |n: u32| (f64::from(n), f64::from(n.min(9)));
        let points: Vec<(f64, f64)> = (0..45).map(kept).collect();
        assert_eq!(growth(&points, 10.0), Some(0.0));
    }
}
