//! System calls a request, counted by the kernel's own trace point.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, wrk};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Counts for every server, with and without the file cache, at few and at many connections.
pub fn run(options: &Options, _name: &str) -> Outcome {
    run_on(options, &options.servers)
}

/// The same for these servers.
pub fn run_on(options: &Options, kinds: &[Kind]) -> Outcome {
    mount_tracefs()?;
    let mut rows =
        vec![row(["server", "open_file_cache", "connections", "requests", "calls each"])];
    for file_cache in [true, false] {
        for connections in [64, 500] {
            // The floor has no file and no cache: one row is enough.
            for &kind in kinds.iter().filter(|k| k.is_real() || file_cache) {
                let setup = Setup { file_cache, ..Setup::default() };
                let (server, _) = Server::start(options, kind, &setup)?;
                let (calls, requests) = count(options, &server, connections)?;
                rows.push(row([
                    kind.name(),
                    if !kind.is_real() {
                        "-"
                    } else if file_cache {
                        "on"
                    } else {
                        "off"
                    },
                    &connections.to_string(),
                    &requests.to_string(),
                    &format!("{:.2}", calls as f64 / requests.max(1) as f64),
                ]));
            }
        }
    }
    report::table(&rows);
    Ok(())
}

fn count(options: &Options, server: &Server, connections: usize) -> Outcome<(u64, u64)> {
    let seconds = options.seconds;
    let shape = wrk::Load {
        port: server.port,
        path: "/1k.txt",
        connections,
        seconds: 1,
        pipeline: false,
        close: false,
        files: None,
    };
    wrk::run(&shape)?;
    let pids: Vec<String> = server.pids().iter().map(ToString::to_string).collect();
    // perf counts while its own command runs, which is a little longer than the load.
    let length = (f64::from(seconds) + 0.7).to_string();
    let perf = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")])
        .args(["--", "sleep", &length])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start perf: {e}"))?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let result = wrk::run(&wrk::Load { seconds, ..shape })?;
    let output = perf.wait_with_output().map_err(|e| format!("perf: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| l.contains("raw_syscalls:sys_enter"));
    let calls = line.and_then(|l| l.split(',').next()?.parse().ok());
    Ok((calls.ok_or_else(|| format!("perf counted nothing: {text}"))?, result.requests))
}

/// perf reads the trace point's number there.
fn mount_tracefs() -> Outcome {
    if Path::new(TRACEFS).join("events/raw_syscalls").exists() {
        return Ok(());
    }
    println!("mounting tracefs on {TRACEFS}");
    let status = Command::new("mount")
        .args(["-t", "tracefs", "tracefs", TRACEFS])
        .status()
        .map_err(|e| format!("mount: {e}"))?;
    if status.success() { Ok(()) } else { Err("tracefs cannot be mounted (root?)".to_string()) }
}
