//! A client library that blocks, on the loop and on threads: two load generators of 400 connections
//! each, as it was published, and a file on the same worker.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Maria;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../configs/mysql.conf");
const CONNECTIONS: usize = 400;
/// Of the client that asks for the file.
const FILE_CONNECTIONS: usize = 16;
/// Threads of the pool `default`, and the time of a query.
const THREADS: f64 = 32.0;
const QUERY_SECONDS: f64 = 0.05;

/// Builds the server with the module, starts a database, and prints the tables.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let binary = build(options)?;
    let maria = Maria::start();
    let fill = vec![("%MYSQL%", maria.port().to_string())];
    let setup = Setup { template: CONFIG, fill, ..Setup::default() };
    let mut with = options.clone();
    with.weir = binary;
    println!("\n### two clients of {CONNECTIONS} connections, the same query");
    let mut lines =
        vec![row(["", "first/s", "second/s", "timeouts", "errors", "p99 ms", "longest ms"])];
    for path in ["/sleep-block", "/sleep-thread", "/select-block", "/select-thread"] {
        // Each has a server of its own: the one before may still work off its queue.
        let (server, _) = Server::start(&with, Kind::Weir, &setup)?;
        let first = wrk::start(&load(&server, path, CONNECTIONS, options.seconds + 1))?;
        let second = wrk::run(&load(&server, path, CONNECTIONS, options.seconds))?;
        let first = wrk::finish(first)?;
        lines.push(row([
            path,
            &format!("{:.0}", first.rate()),
            &format!("{:.0}", second.rate()),
            &format!("{}", first.errors[3] + second.errors[3]),
            &format!("{}", first.failures() + second.failures()),
            &format!("{}", first.p99_us.max(second.p99_us) / 1000),
            &format!("{}", first.longest_us.max(second.longest_us) / 1000),
        ]));
    }
    report::table(&lines);
    let most = THREADS / QUERY_SECONDS;
    println!("threads / query time of /sleep-thread: {most:.0} requests/s for both together");
    beside_a_file(&with, &setup)
}

/// A file of 1 KB alone, and beside both clients.
fn beside_a_file(options: &Options, setup: &Setup) -> Outcome {
    println!("\n### a file of 1 KB on the same worker, {FILE_CONNECTIONS} connections");
    let mut lines = vec![row(["beside", "alone/s", "beside/s", "kept", "p99 x", "held the loop"])];
    for path in ["/sleep-block", "/sleep-thread"] {
        let (server, _) = Server::start(options, Kind::Weir, setup)?;
        let file = load(&server, "/1k.txt", FILE_CONNECTIONS, options.seconds);
        let alone = wrk::run(&file)?;
        let both = load(&server, path, 2 * CONNECTIONS, options.seconds + 2);
        let client = wrk::start(&both)?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        let beside = wrk::run(&file)?;
        wrk::finish(client)?;
        let log = std::fs::read_to_string(server.prefix().join("error.log")).unwrap_or_default();
        let held = log.lines().filter(|line| line.contains("event loop was held")).count();
        lines.push(row([
            path,
            &format!("{:.0}", alone.rate()),
            &format!("{:.0}", beside.rate()),
            &format!("{:.2}", beside.rate() / alone.rate()),
            &format!("{:.1}", beside.p99_us as f64 / alone.p99_us.max(1) as f64),
            &format!("{held} times"),
        ]));
    }
    report::table(&lines);
    Ok(())
}

fn load<'a>(server: &Server, path: &'a str, connections: usize, seconds: u32) -> wrk::Load<'a> {
    let port = server.port;
    wrk::Load { port, path, connections, seconds, pipeline: false, close: false, files: None }
}

/// The server with the module, as its users make it.
fn build(options: &Options) -> Outcome<PathBuf> {
    let project =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no project around bench")?;
    let folder = project.join("target/bench-modules");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let binary = folder.join("weir");
    let module = project.join("modules/mysql");
    let out = Command::new(&options.weir)
        .arg("build")
        .arg(format!("--with=weir-mysql={}", module.display()))
        .arg("--weir")
        .arg(project)
        .arg("--folder")
        .arg(&folder)
        .arg("--output")
        .arg(&binary)
        .output()
        .map_err(|e| format!("weir build: {e}"))?;
    match out.status.success() {
        true => Ok(binary),
        false => Err(format!("weir build: {}", String::from_utf8_lossy(&out.stderr))),
    }
}
