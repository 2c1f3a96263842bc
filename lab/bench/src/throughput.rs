//! Requests a second, CPU a request, latency and memory under load.

use std::time::Duration;

use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{FILTERS, Kind, LIMITS, Server, Setup, XSLT};
use crate::{Outcome, proc, wrk};

/// The shape of a throughput load.
struct Shape {
    path: &'static str,
    connections: usize,
    pipeline: bool,
    close: bool,
    file_cache: bool,
    /// Whether there is an access log.
    logged: bool,
    /// More words of `listen`.
    listen: &'static str,
    /// Whether the floor compares.
    floor: bool,
    /// The file that it gives instead of its fixed 1 KB.
    file: Option<&'static str>,
    /// Another configuration than the usual one.
    template: Option<&'static str>,
    /// A field that each request has besides.
    header: Option<&'static str>,
}

fn shape(name: &str) -> Shape {
    let usual = Shape {
        path: "/1k.txt",
        connections: 64,
        pipeline: false,
        close: false,
        file_cache: false,
        logged: false,
        listen: "",
        floor: true,
        file: None,
        template: None,
        header: None,
    };
    let gzip = Some("Accept-Encoding: gzip");
    let filters = Shape { template: Some(FILTERS), floor: false, connections: 8, ..usual };
    match name {
        "1k-cache" => Shape { file_cache: true, ..usual },
        "1k-cache-500" => Shape { file_cache: true, connections: 500, ..usual },
        "1k-cache-1000" => Shape { file_cache: true, connections: 1000, ..usual },
        "1k-500" => Shape { connections: 500, ..usual },
        "limit-req" => Shape { template: Some(LIMITS), floor: false, ..usual },
        "gzip" => Shape { path: "/gzip/text.html", header: gzip, ..filters },
        "gzip-json" => Shape { path: "/gzip/1k.json", header: gzip, ..filters },
        "sub-filter" => Shape { path: "/sub/text.html", ..filters },
        "xslt" => Shape { path: "/list.xml", template: Some(XSLT), ..filters },
        "100k" => Shape { path: "/100k.bin", file: Some("100k.bin"), ..usual },
        "1m" => Shape { path: "/1m.bin", file: Some("1m.bin"), ..usual },
        "close" => Shape { close: true, ..usual },
        "close-reuseport" => Shape { close: true, listen: "reuseport", ..usual },
        "close-deferred" => Shape { close: true, listen: "deferred", ..usual },
        "close-log" => Shape { close: true, logged: true, ..usual },
        "1k-log" => Shape { logged: true, ..usual },
        "pipe" => Shape { pipeline: true, ..usual },
        "pipe-return" => Shape { path: "/return", pipeline: true, ..usual },
        _ => usual,
    }
}

/// One server's figures, a value for each round.
#[derive(Default)]
struct Series {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    longest: Vec<f64>,
    rss: Vec<f64>,
    pss: Vec<f64>,
    dirty: Vec<f64>,
    bytes: Vec<f64>,
    errors: u64,
}

/// Runs a load against every server, round after round.
pub fn run(options: &Options, name: &str) -> Outcome {
    let reference = options.servers.first().copied().unwrap_or(Kind::Nginx);
    run_on(options, name, &options.servers, reference)
}

/// The same against these servers; ratios are to the last one named.
pub fn run_on(options: &Options, name: &str, kinds: &[Kind], reference: Kind) -> Outcome {
    let shape = shape(name);
    let usual = Setup::default();
    let template = shape.template.unwrap_or(usual.template);
    let Shape { file_cache, logged, close, listen, file, .. } = shape;
    let setup = Setup { file_cache, logged, close, listen, file, template, ..usual };
    let mut servers = Vec::new();
    for &kind in kinds.iter().filter(|k| k.is_real() || shape.floor) {
        servers.push((Server::start(options, kind, &setup)?.0, Series::default()));
    }
    for (server, _) in &servers {
        // Warm: files in the page cache, pools grown, branches learnt.
        wrk::run_with(&load(&shape, server.port, 1), shape.header)?;
    }
    for _ in 0..options.rounds {
        for (server, series) in &mut servers {
            measure(&shape, options.seconds, server, series)?;
        }
    }
    print(&servers, reference);
    Ok(())
}

fn load(shape: &Shape, port: u16, seconds: u32) -> wrk::Load<'static> {
    let Shape { path, connections, pipeline, close, .. } = *shape;
    wrk::Load { port, path, connections, seconds, pipeline, close, files: None }
}

fn measure(shape: &Shape, seconds: u32, server: &Server, series: &mut Series) -> Outcome {
    let pids = server.pids();
    let before = proc::cpu_ns(&pids);
    let result = wrk::run_with(&load(shape, server.port, seconds), shape.header)?;
    let cpu_ns = proc::cpu_ns(&pids) - before;
    let memory = proc::memory(&pids);
    series.rate.push(result.rate());
    series.cpu_us.push(cpu_ns as f64 / 1000.0 / result.requests.max(1) as f64);
    series.p50.push(result.p50_us as f64);
    series.p99.push(result.p99_us as f64);
    series.longest.push(result.longest_us as f64);
    series.rss.push(memory.rss as f64);
    series.pss.push(memory.pss as f64);
    series.dirty.push(memory.private_dirty as f64);
    series.bytes.push(result.bytes as f64 / result.requests.max(1) as f64);
    series.errors += result.failures();
    // Sockets of the round before settle.
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// p99 and the longest wait. wrk measures no latencies beyond the median when it pipelines.
fn tail(series: &Series) -> [String; 2] {
    let (p50, p99) = (median(&series.p50), median(&series.p99));
    match p99 < p50 {
        true => ["-", "-"].map(str::to_string),
        false => [format!("{p99:.0}"), report::longest(&series.longest)],
    }
}

fn print(servers: &[(Server, Series)], to: Kind) {
    let mut rows = vec![row([
        "server",
        "requests/s",
        "CPU us/req",
        "p50 us",
        "p99 us",
        "longest ms",
        "RSS MB",
        "PSS MB",
        "dirty MB",
        "errors",
    ])];
    for (server, s) in servers {
        let [p99, longest] = tail(s);
        rows.push(row([
            server.kind.name(),
            &format!("{:.0}", median(&s.rate)),
            &format!("{:.2}", median(&s.cpu_us)),
            &format!("{:.0}", median(&s.p50)),
            &p99,
            &longest,
            &report::megabytes(median(&s.rss)),
            &report::megabytes(median(&s.pss)),
            &report::megabytes(median(&s.dirty)),
            &s.errors.to_string(),
        ]));
    }
    report::table(&rows);
    for (server, s) in servers {
        println!(
            "{}: {:.0} bytes a response, its head among them",
            server.kind.name(),
            median(&s.bytes)
        );
    }
    let Some((_, reference)) = servers.iter().find(|(s, _)| s.kind == to) else { return };
    for (server, s) in servers.iter().filter(|(s, _)| s.kind != to) {
        println!(
            "{} / {}: CPU {}, requests/s {}",
            server.kind.name(),
            to.name(),
            report::ratios(&s.cpu_us, &reference.cpu_us),
            report::ratios(&s.rate, &reference.rate)
        );
    }
}
