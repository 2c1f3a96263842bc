//! A view as text.

use super::judge::{Busy, Judged, Trouble, View};
use super::screen::{COLUMNS, Screen};

/// Lines beside those of servers and workers.
const FIXED_LINES: usize = 7;

/// The most workers that are shown.
const WORKERS_MAX: usize = 16;

/// The most functions of scripts that are shown.
const FUNCTIONS_MAX: usize = 8;

/// The keys, for the line of help.
const HELP: &[&str] = &[
    "Keys: 1 to 8 sort by a column, again: the other way round; < > the column before, after",
    "      w worst first; r reverse; p pause; h this help; q quit",
    "",
];

/// The meaning of a line, which has a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// None.
    Plain,
    /// Titles of columns.
    Title,
    /// All is well.
    Good,
    /// Something to look at.
    Warn,
    /// Something is wrong.
    Bad,
    /// Less important.
    Dim,
}

impl Tone {
    /// The sequence that begins the colour (ECMA-48, SGR).
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Title => "\x1b[1m",
            Tone::Good => "\x1b[32m",
            Tone::Warn => "\x1b[33m",
            Tone::Bad => "\x1b[31m",
            Tone::Dim => "\x1b[2m",
        }
    }
}

/// A line of a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Its meaning.
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

fn line(tone: Tone, text: impl Into<String>) -> Line {
    Line { tone, text: text.into() }
}

/// A time in the unit that suits it.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", us as f64 / 1000.0),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

/// The lines of a view, at most `rows` of them, the rows of servers cut first.
pub(crate) fn frame(view: &View, rows: usize, screen: &Screen) -> Vec<Line> {
    let sample = &view.sample;
    let sum = |of: fn(&super::sample::Worker) -> u64| sample.workers.iter().map(of).sum::<u64>();
    let (open, idle, under_way) = (sum(|w| w.open), sum(|w| w.idle), sum(|w| w.under_way));
    let paused = if screen.is_paused { " (paused)" } else { "" };
    let first = format!(
        "weir {}{paused}, configuration {}: {} requests/s, {under_way} under way, {open} \
         connections ({idle} idle), {} slow or failed",
        sample.version,
        sample.generation,
        rate(view.rate),
        view.slow
    );
    let mut out = vec![line(Tone::Title, first)];
    out.push(match view.troubles.len() {
        0 => line(Tone::Good, "All is well."),
        _ => line(Tone::Bad, format!("Look: {}.", sentence(&view.troubles))),
    });
    if !sample.shared_state.is_empty() {
        out.push(line(Tone::Plain, format!("Shared state: {}.", sample.shared_state)));
    }
    out.push(line(Tone::Plain, ""));
    if screen.shows_help {
        out.extend(HELP.iter().map(|text| line(Tone::Dim, *text)));
    }
    let workers = view.workers.len().min(WORKERS_MAX);
    let functions = view.functions.len().min(FUNCTIONS_MAX);
    let more = if functions > 0 { functions + 2 } else { 0 };
    let others = FIXED_LINES + workers + more + out.len() - 3;
    servers(&mut out, view, rows.saturating_sub(others).max(3), screen);
    out.push(line(Tone::Plain, ""));
    let titles = ["WORKER", "REQUESTS/S", "UNDER WAY", "CONNECTIONS", "IDLE", "LONGEST TURN"];
    let [a, b, c, d, e, f] = titles;
    out.push(line(Tone::Title, format!("{a:>8} {b:>10} {c:>9} {d:>12} {e:>7} {f:>13}")));
    for (worker, per_second) in view.workers.iter().take(WORKERS_MAX) {
        let tone = if worker.is_still() { Tone::Bad } else { Tone::Plain };
        let text = format!(
            "{:>8} {:>10} {:>9} {:>12} {:>7} {:>10} ms",
            worker.pid,
            rate(*per_second),
            worker.under_way,
            worker.open,
            worker.idle,
            worker.longest_ms
        );
        out.push(line(tone, text));
    }
    functions_of(&mut out, &view.functions[..functions]);
    out
}

/// The functions of scripts.
fn functions_of(out: &mut Vec<Line>, functions: &[Busy]) {
    if functions.is_empty() {
        return;
    }
    out.push(line(Tone::Plain, ""));
    let [a, b, c, d, e] = ["FUNCTION", "DIRECTIVE", "CALLS/S", "FAILED", "PROCESSOR"];
    out.push(line(Tone::Title, format!("{a:<28} {b:<16} {c:>10} {d:>8} {e:>10}")));
    for Busy { function, rate: per_second, failures, share } in functions {
        let tone = if *failures > 0 { Tone::Bad } else { Tone::Plain };
        let text = format!(
            "{:<28} {:<16} {:>10} {failures:>8} {:>9.1}%",
            function.name,
            function.directive,
            rate(*per_second),
            share * 100.0
        );
        out.push(line(tone, text));
    }
}

/// Lines as text alone.
pub(crate) fn plain(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line.text)).collect()
}

fn sentence(troubles: &[String]) -> String {
    const MAX: usize = 4;
    let mut text = troubles[..troubles.len().min(MAX)].join("; ");
    if troubles.len() > MAX {
        text.push_str(&format!("; and {} more", troubles.len() - MAX));
    }
    text
}

fn servers(out: &mut Vec<Line>, view: &View, rows: usize, screen: &Screen) {
    if !view.sample.is_counted {
        let text =
            "Servers of upstreams are counted if a location has api, prometheus or dashboard.";
        out.push(line(Tone::Dim, text));
        return;
    }
    if view.servers.is_empty() {
        out.push(line(Tone::Dim, "There is no upstream."));
        return;
    }
    let titles = COLUMNS.iter().enumerate().map(|(i, &(title, width, is_text))| {
        let title = match screen.mark(i) {
            Some(true) => format!("{title}+"),
            Some(false) => format!("{title}-"),
            None => title.to_owned(),
        };
        if is_text { format!("{title:<width$}") } else { format!("{title:>width$}") }
    });
    out.push(line(Tone::Title, titles.collect::<Vec<_>>().join(" ")));
    let mut shown: Vec<&Judged> = view.servers.iter().collect();
    shown.sort_by(|a, b| screen.order(a, b));
    out.extend(shown.iter().take(rows).map(|judged| row(judged)));
    if shown.len() > rows {
        out.push(line(Tone::Dim, format!("and {} more", shown.len() - rows)));
    }
}

fn row(judged: &Judged) -> Line {
    let server = &judged.server;
    let (state, tone) = match judged.trouble {
        Some(Trouble::Slow(_)) => ("slow", Tone::Warn),
        Some(Trouble::Fails(_)) => ("failing", Tone::Bad),
        Some(Trouble::Stopped(_)) => ("stopped", Tone::Bad),
        Some(Trouble::Out) => (&*server.state, Tone::Bad),
        None if matches!(&*server.state, "draining" | "checking") => (&*server.state, Tone::Warn),
        None => (&*server.state, Tone::Plain),
    };
    let quantile = |us: Option<u64>| match (us, judged.is_timed) {
        (Some(us), _) => time(us),
        (None, true) => "> 60 s".to_owned(),
        (None, false) => "-".to_owned(),
    };
    let texts = [
        server.group.clone(),
        server.address.clone(),
        state.to_owned(),
        rate(judged.rate),
        format!("{:.0}%", judged.errors * 100.0),
        quantile(judged.p50_us),
        quantile(judged.p99_us),
        server.active.to_string(),
    ];
    let cells = texts.iter().zip(COLUMNS).map(|(text, (_, width, is_text))| match is_text {
        true => format!("{text:<width$}"),
        false => format!("{text:>width$}"),
    });
    line(tone, cells.collect::<Vec<_>>().join(" "))
}

/// The lines from the terminal's first line on, over what is there; each is cut to the width.
pub(crate) fn on_terminal(lines: &[Line], columns: usize, has_colours: bool) -> String {
    const HOME: &str = "\x1b[H";
    const REST_OF_LINE: &str = "\x1b[K\r\n";
    const REST: &str = "\x1b[J";
    const USUAL: &str = "\x1b[0m";
    let mut out = String::from(HOME);
    for (i, Line { tone, text }) in lines.iter().enumerate() {
        // The sentence may take several lines.
        let width = if i == 1 { columns * 3 } else { columns };
        let code = if has_colours { tone.code() } else { "" };
        out.push_str(code);
        out.extend(text.chars().take(width));
        if !code.is_empty() {
            out.push_str(USUAL);
        }
        out.push_str(REST_OF_LINE);
    }
    out.push_str(REST);
    out
}

#[cfg(test)]
mod tests {
    use super::super::judge::Watch;
    use super::super::sample::{Function, Sample, Server, Worker};
    use super::*;
    use std::time::{Duration, Instant};

    fn view(servers: usize) -> View {
        let worker = Worker {
            pid: 12,
            open: 5,
            idle: 3,
            under_way: 2,
            requests: 100,
            longest_ms: 7,
            silent_ms: 10,
        };
        let server = |n| Server {
            group: "app".to_owned(),
            address: format!("10.0.0.{n}:80"),
            state: if n == 1 { "down" } else { "up" }.to_owned(),
            ..Server::default()
        };
        let sample = |at| Sample {
            at,
            version: "1.2".to_owned(),
            generation: 1,
            is_counted: true,
            dropped: 0,
            respawned: 0,
            slow: 4,
            shared_state: String::new(),
            workers: vec![worker.clone()],
            servers: (0..servers).map(server).collect(),
            functions: vec![Function {
                engine: "http".to_owned(),
                directive: "js_content".to_owned(),
                name: "main.hello".to_owned(),
                calls: 100,
                ..Function::default()
            }],
        };
        let start = Instant::now();
        Watch::new(sample(start)).next(sample(start + Duration::from_secs(1)))
    }

    #[test]
    fn a_frame_names_what_is_wrong_first() {
        let text = plain(&frame(&view(3), 100, &Screen::default()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "weir 1.2, configuration 1: 0.0 requests/s, 2 under way, 5 connections (3 idle), 0 \
             slow or failed"
        );
        assert_eq!(lines[1], "Look: 10.0.0.1:80 of app is down.");
        assert!(lines[4].starts_with("app              10.0.0.1:80            down"), "{text}");
        assert!(text.contains("      12        0.0         2            5       3          7 ms"));
        let function =
            "main.hello                   js_content              0.0        0       0.0%";
        assert!(text.contains(function), "{text}");
        let none = plain(&frame(&view(0), 100, &Screen::default()));
        assert!(none.contains("All is well.\n\nThere is no upstream."));
    }

    #[test]
    fn a_frame_fits_the_terminal() {
        let text = plain(&frame(&view(500), 24, &Screen::default()));
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.contains("and 487 more"), "{text}");
        let help = Screen { shows_help: true, ..Screen::default() };
        assert!(frame(&view(500), 24, &help).len() <= 24);
        let lines = [line(Tone::Good, "abcdef"), line(Tone::Plain, "abcdef")];
        let shown = on_terminal(&lines, 3, false);
        assert_eq!(shown, "\x1b[Habc\x1b[K\r\nabcdef\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn lines_have_colours() {
        let tones = |screen: &Screen| -> Vec<(Tone, String)> {
            let lines = frame(&view(3), 100, screen).into_iter().skip(4).take(3);
            lines.map(|line| (line.tone, line.text[17..28].trim().to_owned())).collect()
        };
        let worst = tones(&Screen::default());
        assert_eq!(worst[0], (Tone::Bad, "10.0.0.1:80".to_owned()));
        assert_eq!(worst[1].0, Tone::Plain);
        let mut screen = Screen::default();
        screen.keys(b"22");
        let addresses: Vec<String> = tones(&screen).into_iter().map(|(_, text)| text).collect();
        assert_eq!(addresses, ["10.0.0.2:80", "10.0.0.1:80", "10.0.0.0:80"]);
        assert!(plain(&frame(&view(3), 100, &screen)).contains("SERVER-  "));
        let shown = on_terminal(&[line(Tone::Bad, "abcdef")], 3, true);
        assert_eq!(shown, "\x1b[H\x1b[31mabc\x1b[0m\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn times_have_units() {
        let texts = [100, 2_500, 250_000, 2_500_000].map(time);
        assert_eq!(texts, ["100 us", "2.5 ms", "250 ms", "2.5 s"]);
    }
}
