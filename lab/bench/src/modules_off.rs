//! The cost of modules that are built in and not switched on: instructions a request, of the whole
//! server and of one without them.
//!
//! valgrind counts, which needs no counters of the hardware: each server answers few requests, and
//! many; the difference is without its start and end. A module that is switched on and finds
//! nothing to do proves that the count would show one.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Setup, free_port, new_folder, write_config, write_files};
use crate::{Outcome, proc};

const CONFIG: &str = include_str!("../configs/modules-off.conf");
const FEW: u64 = 2_000;
const MANY: u64 = 12_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// For two seconds after a file was changed, it is read again for each request: those cost more.
const SETTLED: Duration = Duration::from_secs(3);

/// Instructions by which two runs of the same server differ: ticks of the clock, and looks at the
/// file, come at their own times. The least module takes twenty.
const NOISE: f64 = 2.0;

/// The module that is switched on for the comparison.
const ON: &str = "ssi on;";

/// Runs the load. It fails when the whole server takes more instructions.
pub fn run(options: &Options, _: &str) -> Outcome {
    // Builds that valgrind can run: `cargo xtask bench` makes them for this load.
    let counted = options.floor.with_file_name("../counted/release");
    let (few, all) = (counted.join("examples/few"), counted.join("weir"));
    let folder = Folder(new_folder()?);
    write_files(&folder.0)?;
    std::thread::sleep(SETTLED);
    let mut rows = vec![row(["server", "instructions a request", "ratio"])];
    let mut each = Vec::new();
    for (name, binary, on) in
        [("without modules", &few, ""), ("weir", &all, ""), ("weir, one switched on", &all, ON)]
    {
        // Work that depends on time is least where the whole is least, in either of the two counts.
        let counts = |requests| {
            let once = |_| instructions(binary, &folder.0, on, requests);
            let least = |least: Outcome<f64>, count| Ok(f64::min(least?, count?));
            (0..options.rounds).map(once).fold(Ok(f64::MAX), least)
        };
        let least = (counts(MANY)? - counts(FEW)?) / (MANY - FEW) as f64;
        each.push(least);
        let ratio = format!("{:.4}", least / each[0]);
        rows.push(row([name, &format!("{least:.1}"), &ratio]));
    }
    report::table(&rows);
    judge(each[0], each[1], each[2])
}

/// Compares a server without modules, one with all, and that with one of them switched on.
fn judge(without: f64, with: f64, on: f64) -> Outcome {
    if with > without + NOISE {
        return Err("modules that are not switched on cost instructions".to_string());
    }
    if on <= with + NOISE {
        return Err("a module that is switched on does not show: the count is wrong".to_string());
    }
    Ok(())
}

/// The folder of all servers, one after the other: paths of other lengths cost other counts.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server under valgrind.
struct Counted(Child);

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Instructions of a server from its start to its end, with `requests` requests.
fn instructions(binary: &Path, prefix: &Path, on: &str, requests: u64) -> Outcome<f64> {
    let port = free_port()?;
    let fill = vec![("%ON%", on.to_string())];
    let setup = Setup { template: CONFIG, fill, ..Setup::default() };
    write_config(prefix, Kind::Weir, port, &setup)?;
    let report = prefix.join("valgrind.txt");
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(format!("--log-file={}", report.display()));
    command.arg(binary).arg("-p").arg(prefix).arg("-c").arg(prefix.join("server.conf"));
    command.arg("-e").arg(prefix.join("error.log"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Counted(child.map_err(|e| format!("valgrind: {e}"))?);
    ask(connect(&mut server.0, port)?, requests).map_err(|e| format!("requests: {e}"))?;
    proc::signal(server.0.id(), Signal::QUIT);
    server.0.wait().map_err(|e| e.to_string())?;
    let text = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    let count = |line: &str| line.split_once(" refs:")?.1.trim().replace(',', "").parse().ok();
    let count = text.lines().find_map(count);
    count.ok_or_else(|| format!("valgrind counted nothing: {text}"))
}

fn connect(server: &mut Child, port: u16) -> Outcome<TcpStream> {
    let began = Instant::now();
    loop {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            return Ok(stream);
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server under valgrind ended at once: {status}"));
        }
        if began.elapsed() > PATIENCE {
            return Err("the server under valgrind does not answer".to_string());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asks for a file on one connection, one request after the other.
fn ask(mut stream: TcpStream, requests: u64) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    for _ in 0..requests {
        stream.write_all(b"GET /1k.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        answer.clear();
        while whole(&answer).is_none_or(|len| answer.len() < len) {
            match stream.read(&mut buffer)? {
                0 => return Err(std::io::Error::other("the connection was closed")),
                len => answer.extend_from_slice(&buffer[..len]),
            }
        }
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err(std::io::Error::other("not the file"));
        }
    }
    Ok(())
}

/// The length of the answer with its body of 1 KB, if its head is there.
fn whole(answer: &[u8]) -> Option<usize> {
    Some(answer.windows(4).position(|w| w == b"\r\n\r\n")? + 4 + (1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_fail_and_so_does_a_count_that_shows_nothing() {
        assert!(judge(11_430.0, 11_412.0, 11_500.0).is_ok());
        assert!(judge(11_430.0, 11_431.0, 11_500.0).is_ok());
        assert!(judge(11_314.0, 11_337.0, 11_500.0).is_err());
        assert!(judge(11_430.0, 11_412.0, 11_413.0).is_err());
    }
}
