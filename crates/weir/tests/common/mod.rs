//! Helpers for tests of the processes. The files next to this one serve other areas: a program
//! includes the file that it needs by its path, so that it does not compile the rest.

use std::path::Path;
use std::process::Output;

use testkit::{Driver, Site, Weir, wait_for};

pub const BINARY: &str = env!("CARGO_BIN_EXE_weir");

/// A site with a page, and a configuration with this many workers around the contents of `http`.
#[allow(dead_code)]
pub fn site(workers: usize, main: &str, http: &str) -> Site {
    Site::new(BINARY, Driver::usual())
        .file("html/a.txt", b"hello")
        .config(&config(workers, main, http))
}

/// The text of such a configuration.
#[allow(dead_code)]
pub fn config(workers: usize, main: &str, http: &str) -> String {
    format!("worker_processes {workers};\n{main}\nevents {{}}\nhttp {{\n{http}\n}}\n")
}

/// A server on `%PORT0%` that serves the folder `html`.
#[allow(dead_code)]
pub const SERVER: &str = "server { listen 127.0.0.1:%PORT0%; root html; }";

/// The output of a run and its end.
#[allow(dead_code)]
pub fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A number from a line `NAME: NUMBER` of a file below /proc.
#[allow(dead_code)]
pub fn proc_field(pid: u32, file: &str, name: &str) -> String {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
}

/// The priority of a process, -20 (the highest) to 19; `None` if it has ended.
#[allow(dead_code)]
pub fn nice(pid: u32) -> Option<i32> {
    os::limits::priority(i32::try_from(pid).ok()?).ok()
}

/// Whether the tests run as root, without which some things cannot be tried.
#[allow(dead_code)]
pub fn is_root() -> bool {
    proc_field(std::process::id(), "status", "Uid").starts_with("0\t")
}

/// Stops a worker.
#[allow(dead_code)]
pub fn stop(weir: &Weir, worker: u32) {
    weir.signal_to(worker, "STOP");
    // Until it gets a processor to stop on, it may accept connections.
    let is_stopped = || proc_field(worker, "status", "State").starts_with('T');
    wait_for("the worker's stop", || is_stopped().then_some(()));
}
