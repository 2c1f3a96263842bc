//! What modules cost that are there and not switched on: instructions a request, of the whole
//! server and of one without them.
//!
//! valgrind counts, which needs no counters of the hardware: each server answers few requests, and
//! many; the difference is without its start and end.

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

/// Reading the clock, looking at the file again, and the pace of the client come at their own
/// times: so much of a difference is no difference.
const TOLERANCE: f64 = 0.002;

/// Runs the load. It fails when the whole server takes more instructions.
pub fn run(options: &Options, _: &str) -> Outcome {
    // Builds that valgrind can run: `cargo xtask bench` makes them for this load.
    let counted = options.floor.with_file_name("../counted/release");
    let (without, with) = (counted.join("examples/few"), counted.join("weir"));
    let mut rows = vec![row(["server", "instructions a request", "ratio"])];
    let mut each = Vec::new();
    for (name, binary) in [("without modules", &without), ("weir", &with)] {
        // What comes with time (ticks, looks at the file) is the least when least else runs.
        let mut of_each = f64::MAX;
        for _ in 0..options.rounds {
            let count = instructions(binary, MANY)? - instructions(binary, FEW)?;
            of_each = of_each.min(count / (MANY - FEW) as f64);
        }
        each.push(of_each);
        let ratio = format!("{:.4}", of_each / each[0]);
        rows.push(row([name, &format!("{of_each:.1}"), &ratio]));
    }
    report::table(&rows);
    if each[1] > each[0] * (1.0 + TOLERANCE) {
        return Err("modules that are not switched on cost instructions".to_string());
    }
    Ok(())
}

/// A server under valgrind, and its own folder.
struct Counted {
    child: Child,
    prefix: PathBuf,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.prefix);
    }
}

/// How many instructions a server takes from its start to its end, with so many requests.
fn instructions(binary: &Path, requests: u64) -> Outcome<f64> {
    let (prefix, port) = (new_folder()?, free_port()?);
    write_files(&prefix)?;
    write_config(&prefix, Kind::Weir, port, &Setup { template: CONFIG, ..Setup::default() })?;
    let report = prefix.join("valgrind.txt");
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(format!("--log-file={}", report.display()));
    command.arg(binary).arg("-p").arg(&prefix).arg("-c").arg(prefix.join("server.conf"));
    command.arg("-e").arg(prefix.join("error.log"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|e| format!("valgrind: {e}"))?;
    let mut server = Counted { child, prefix };
    ask(connect(&mut server.child, port)?, requests).map_err(|e| format!("requests: {e}"))?;
    proc::signal(server.child.id(), Signal::QUIT);
    server.child.wait().map_err(|e| e.to_string())?;
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

/// How long the answer is with its body of 1 KB, if its head is there.
fn whole(answer: &[u8]) -> Option<usize> {
    Some(answer.windows(4).position(|w| w == b"\r\n\r\n")? + 4 + (1 << 10))
}
