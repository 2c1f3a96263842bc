//! The price of asking the page cache: files in memory, with and without `aio`.

use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, wrk};

const CONFIG: &str = include_str!("../configs/files.conf");
const CONNECTIONS: usize = 64;

const PATHS: &[(&str, &str)] = &[("1 KB", "/1k.txt"), ("100 KB", "/100k.bin"), ("1 MB", "/1m.bin")];

/// The rows; the ratios of a server are to its first row. Last, workers that own the files.
const ROWS: &[(Kind, &str, &str)] = &[
    (Kind::Nginx, "off", "aio off;"),
    (Kind::Nginx, "threads", "aio threads;"),
    (Kind::Weir, "off", "aio off;"),
    (Kind::Weir, "threads", "aio threads;"),
    (Kind::Weir, "auto", "aio auto;"),
    (Kind::Uring, "off", "aio off;"),
    (Kind::Uring, "threads", "aio threads;"),
    (Kind::Uring, "auto", "aio auto;"),
    (Kind::Weir, OWNERS, "aio auto;"),
];

const OWNERS: &str = "auto, owner";

/// A server with its figures, a value for each round.
struct Row {
    server: Server,
    aio: &'static str,
    cpu_us: Vec<f64>,
    rate: Vec<f64>,
}

/// Runs each size against every row, round after round.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut rows = Vec::new();
    for &(kind, aio, directive) in ROWS.iter().filter(|r| options.servers.contains(&r.0)) {
        let fill = vec![
            ("%WORKERS%", "1".to_string()),
            ("%CHUNK%", String::new()),
            ("%AIO%", directive.to_string()),
            ("%POOL%", String::new()),
        ];
        let user = (aio == OWNERS).then_some("root");
        let setup = Setup { template: CONFIG, fill, user, ..Setup::default() };
        let (server, _) = Server::start(options, kind, &setup)?;
        rows.push(Row { server, aio, cpu_us: Vec::new(), rate: Vec::new() });
    }
    for (size, path) in PATHS {
        println!("\n### {size}");
        measure(options, path, &mut rows)?;
        print(&rows);
    }
    Ok(())
}

fn measure(options: &Options, path: &'static str, rows: &mut [Row]) -> Outcome {
    let load = |port, seconds| wrk::Load {
        port,
        path,
        connections: CONNECTIONS,
        seconds,
        pipeline: false,
        close: false,
        files: None,
    };
    for row in rows.iter_mut() {
        (row.cpu_us, row.rate) = (Vec::new(), Vec::new());
        wrk::run(&load(row.server.port, 1))?;
    }
    for round in 0..options.rounds {
        // Each is first as often as it is last.
        let backwards = round % 2 == 1;
        for i in 0..rows.len() {
            let at = if backwards { rows.len() - 1 - i } else { i };
            let row = &mut rows[at];
            let pids = row.server.pids();
            let before = proc::cpu_ns(&pids);
            let result = wrk::run(&load(row.server.port, options.seconds))?;
            let cpu = (proc::cpu_ns(&pids) - before) as f64 / 1e3;
            if result.failures() > 0 {
                return Err(format!("{path}: {} failures", result.failures()));
            }
            row.cpu_us.push(cpu / result.requests.max(1) as f64);
            row.rate.push(result.rate());
        }
    }
    Ok(())
}

fn print(rows: &[Row]) {
    let mut lines = vec![row(["server", "aio", "requests/s", "CPU us/req", "CPU to off"])];
    for r in rows {
        let off = rows.iter().find(|o| o.server.kind == r.server.kind);
        lines.push(row([
            r.server.kind.name(),
            r.aio,
            &format!("{:.0}", median(&r.rate)),
            &format!("{:.2}", median(&r.cpu_us)),
            &match off {
                Some(off) if off.aio != r.aio => report::ratios(&r.cpu_us, &off.cpu_us),
                _ => "1".to_string(),
            },
        ]));
    }
    report::table(&lines);
}
