//! A view as text.

use super::judge::{Judged, Trouble, View};

/// Lines beside those of servers and workers.
const FIXED_LINES: usize = 7;

/// The most workers that are shown.
const WORKERS_MAX: usize = 16;

/// A time in the unit that suits it.
pub fn time(us: u64) -> String {
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
pub fn frame(view: &View, rows: usize) -> String {
    let sample = &view.sample;
    let sum = |of: fn(&super::sample::Worker) -> u64| sample.workers.iter().map(of).sum::<u64>();
    let (open, idle, under_way) = (sum(|w| w.open), sum(|w| w.idle), sum(|w| w.under_way));
    let mut out = format!(
        "weir {}, configuration {}: {} requests/s, {under_way} under way, {open} connections \
         ({idle} idle), {} slow or failed\n",
        sample.version,
        sample.generation,
        rate(view.rate),
        view.slow
    );
    match view.troubles.len() {
        0 => out.push_str("All is well.\n\n"),
        _ => out.push_str(&format!("Look: {}.\n\n", sentence(&view.troubles))),
    }
    let workers = view.workers.len().min(WORKERS_MAX);
    servers(&mut out, view, rows.saturating_sub(FIXED_LINES + workers).max(3));
    out.push('\n');
    out.push_str(&format!(
        "{:>8} {:>10} {:>9} {:>12} {:>7} {:>13}\n",
        "WORKER", "REQUESTS/S", "UNDER WAY", "CONNECTIONS", "IDLE", "LONGEST TURN"
    ));
    for (worker, per_second) in view.workers.iter().take(WORKERS_MAX) {
        out.push_str(&format!(
            "{:>8} {:>10} {:>9} {:>12} {:>7} {:>10} ms\n",
            worker.pid,
            rate(*per_second),
            worker.under_way,
            worker.open,
            worker.idle,
            worker.longest_ms
        ));
    }
    out
}

fn sentence(troubles: &[String]) -> String {
    const MAX: usize = 4;
    let mut text = troubles[..troubles.len().min(MAX)].join("; ");
    if troubles.len() > MAX {
        text.push_str(&format!("; and {} more", troubles.len() - MAX));
    }
    text
}

fn servers(out: &mut String, view: &View, rows: usize) {
    if !view.sample.is_counted {
        out.push_str(
            "Servers of upstreams are counted if a location has api, prometheus or dashboard.\n",
        );
        return;
    }
    if view.servers.is_empty() {
        out.push_str("There is no upstream.\n");
        return;
    }
    out.push_str(&format!(
        "{:<16} {:<22} {:<10} {:>7} {:>6} {:>8} {:>8} {:>9}\n",
        "UPSTREAM", "SERVER", "STATE", "REQ/S", "ERRORS", "P50", "P99", "UNDER WAY"
    ));
    for judged in view.servers.iter().take(rows) {
        out.push_str(&row(judged));
    }
    if view.servers.len() > rows {
        out.push_str(&format!("and {} more\n", view.servers.len() - rows));
    }
}

fn row(judged: &Judged) -> String {
    let server = &judged.server;
    let state = match judged.trouble {
        Some(Trouble::Slow(_)) => "slow",
        Some(Trouble::Fails(_)) => "failing",
        Some(Trouble::Stopped(_)) => "stopped",
        _ => &server.state,
    };
    let quantile = |us: Option<u64>| match (us, judged.is_timed) {
        (Some(us), _) => time(us),
        (None, true) => "> 60 s".to_owned(),
        (None, false) => "-".to_owned(),
    };
    format!(
        "{:<16} {:<22} {:<10} {:>7} {:>5.0}% {:>8} {:>8} {:>9}\n",
        server.group,
        server.address,
        state,
        rate(judged.rate),
        judged.errors * 100.0,
        quantile(judged.p50_us),
        quantile(judged.p99_us),
        server.active
    )
}

/// The text from the terminal's first line on, over what is there; each line is cut to the width.
pub fn on_terminal(text: &str, columns: usize) -> String {
    const HOME: &str = "\x1b[H";
    const REST_OF_LINE: &str = "\x1b[K\r\n";
    const REST: &str = "\x1b[J";
    let mut out = String::from(HOME);
    for (i, line) in text.lines().enumerate() {
        // The sentence may take several lines.
        let width = if i == 1 { columns * 3 } else { columns };
        out.extend(line.chars().take(width));
        out.push_str(REST_OF_LINE);
    }
    out.push_str(REST);
    out
}

#[cfg(test)]
mod tests {
    use super::super::judge::Watch;
    use super::super::sample::{Sample, Server, Worker};
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
            workers: vec![worker.clone()],
            servers: (0..servers).map(server).collect(),
        };
        let start = Instant::now();
        Watch::new(sample(start)).next(sample(start + Duration::from_secs(1)))
    }

    #[test]
    fn a_frame_names_what_is_wrong_first() {
        let text = frame(&view(3), 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "weir 1.2, configuration 1: 0.0 requests/s, 2 under way, 5 connections (3 idle), 0 \
             slow or failed"
        );
        assert_eq!(lines[1], "Look: 10.0.0.1:80 of app is down.");
        assert!(lines[4].starts_with("app              10.0.0.1:80            down"), "{text}");
        assert!(text.contains("      12        0.0         2            5       3          7 ms"));
        assert!(frame(&view(0), 100).contains("All is well.\n\nThere is no upstream."));
    }

    #[test]
    fn a_frame_fits_the_terminal() {
        let text = frame(&view(500), 24);
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.contains("and 484 more"), "{text}");
        let shown = on_terminal("abcdef\nabcdef\n", 3);
        assert_eq!(shown, "\x1b[Habc\x1b[K\r\nabcdef\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn times_have_units() {
        let texts = [100, 2_500, 250_000, 2_500_000].map(time);
        assert_eq!(texts, ["100 us", "2.5 ms", "250 ms", "2.5 s"]);
    }
}
