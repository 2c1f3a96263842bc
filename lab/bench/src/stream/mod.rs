//! Sessions of `stream`: the server on CPU 0, the backend beside the load on CPU 1.

pub mod idle;
pub mod many;
pub mod mixed;
mod samples;
pub mod storm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Server, Setup, free_port, new_folder};
use crate::subject::{self, Subject};
use crate::tls::Certificate;
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../../configs/stream-kinds.conf");

/// The loads that measure sessions.
pub const LOADS: &[&str] = &[
    "stream-1k",
    "stream-close",
    "stream-echo",
    "stream-tls",
    "stream-bulk",
    "stream-dns",
    "stream-dns-kept",
];

/// The ports of a server.
#[derive(Clone, Copy)]
pub struct Ports {
    pub tls: u16,
    pub udp: u16,
    /// Each session ends with its answer.
    pub dns: u16,
}

/// A server's setup, and its ports besides the usual one, which speaks TCP. The backends are ports
/// of the loopback.
pub fn setup(certificate: &Certificate, tcp: u16, udp: u16) -> Outcome<(Setup, Ports)> {
    let ports = Ports { tls: free_port()?, udp: free_port()?, dns: free_port()? };
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let fill = vec![
        ("%CERTIFICATE%", text(certificate.chain())),
        ("%KEY%", text(certificate.key())),
        ("%TLS_PORT%", ports.tls.to_string()),
        ("%UDP_PORT%", ports.udp.to_string()),
        ("%DNS_PORT%", ports.dns.to_string()),
        ("%UDP_BACKEND%", format!("127.0.0.1:{udp}")),
        ("%BACKEND%", format!("127.0.0.1:{tcp}")),
    ];
    Ok((Setup { template: CONFIG, generation: 0, fill, ..Setup::default() }, ports))
}

/// The backend: the floor, which echoes datagrams as answers to DNS with `udp`, or iperf3.
fn backend(options: &Options, name: &str) -> Outcome<Helper> {
    let port = free_port()?;
    let iperf = format!("-s -B 127.0.0.1 -p {port}");
    match name {
        "stream-bulk" => {
            let arguments: Vec<String> = iperf.split(' ').map(str::to_owned).collect();
            Helper::start(1, Path::new("/usr/bin/iperf3"), &arguments, port, new_folder()?)
        }
        "stream-tls" => Helper::bare(options, 1, "floor", &[]),
        _ => Helper::bare(options, 1, "floor", &["udp"]),
    }
}

/// Runs a load against every server, round after round.
pub fn run(options: &Options, name: &str) -> Outcome {
    let behind = backend(options, name)?;
    let certificate = Certificate::new(false)?;
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        let (setup, ports) = setup(&certificate, behind.port, behind.port)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        let port = match name {
            "stream-tls" => ports.tls,
            "stream-dns" => ports.dns,
            "stream-dns-kept" => ports.udp,
            _ => server.port,
        };
        subjects.push(Subject::server_at(server, port));
    }
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (backend, chain) = (behind.port.to_string(), text(certificate.chain()));
    let words = [backend.as_str(), &chain, &text(certificate.key())];
    let beside = match name {
        "stream-bulk" => Some(("relay", &words[..1])),
        "stream-tls" => Some(("tls_relay", &words[..])),
        _ => None,
    };
    if let Some((name, words)) = beside {
        subjects.push(Subject::helper(name, Helper::bare(options, 0, name, words)?));
    }
    let questions = Questions::new()?;
    subject::measure(options, &mut subjects, |port, seconds| match name {
        "stream-tls" => {
            let (path, connections, pipeline, close, files) = ("/1k", 64, false, false, None);
            let load = wrk::Load { port, path, connections, seconds, pipeline, close, files };
            wrk::run_over_tls(&load)
        }
        "stream-bulk" => bulk(port, seconds),
        _ => questions.ask(port, seconds),
    })?;
    let unit = match name {
        "stream-bulk" => "MB",
        "stream-tls" => "req",
        _ => "query",
    };
    subject::print(&subjects, unit);
    Ok(())
}

/// A number behind a name in a program's report.
fn number(text: &str, name: &str) -> Option<f64> {
    let rest = text.split(name).nth(1)?.trim_start_matches([' ', ':', '"', '\t']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The longest wait for a response in dnsperf's report, in microseconds:
/// `Average Latency (s):  0.001 (min 0.0001, max 0.02)`.
fn longest(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("Average Latency"))?;
    Some((number(line, "max")? * 1e6) as u64)
}

fn output(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// One stream of bytes to the backend, as fast as it goes: the unit is 1 MB.
fn bulk(port: u16, seconds: u32) -> Outcome<wrk::Result> {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "iperf3", "-J", "-c", "127.0.0.1", "-p", &port.to_string()]);
    let text = output(command.args(["-t", &seconds.to_string()]))?;
    let sum = text.split("\"sum_received\"").nth(1).unwrap_or_default();
    let (bytes, length) = (number(sum, "\"bytes\""), number(sum, "\"seconds\""));
    let (Some(bytes), Some(length)) = (bytes, length) else {
        return Err(format!("iperf3 gave no figures: {text}"));
    };
    let (requests, duration_us) = ((bytes / 1e6) as u64, (length * 1e6) as u64);
    Ok(wrk::Result { requests, duration_us, bytes: bytes as u64, ..wrk::Result::default() })
}

/// The questions that dnsperf asks.
struct Questions(PathBuf);

impl Questions {
    fn new() -> Outcome<Questions> {
        let folder = new_folder()?;
        let names: String = (0..1000).map(|n| format!("name-{n}.example.test A\n")).collect();
        fs::write(folder.join("questions"), names).map_err(|e| e.to_string())?;
        Ok(Questions(folder))
    }

    /// As many as get answers, from ten sockets.
    fn ask(&self, port: u16, seconds: u32) -> Outcome<wrk::Result> {
        let mut command = Command::new("taskset");
        command.args(["-c", "1", "dnsperf", "-s", "127.0.0.1", "-p", &port.to_string()]);
        command.args(["-c", "10", "-T", "1", "-q", "100", "-l", &seconds.to_string(), "-d"]);
        let text = output(command.arg(Path::new(&self.0).join("questions")))?;
        let of = |name| number(&text, name);
        let (Some(done), Some(lost)) = (of("Queries completed"), of("Queries lost")) else {
            return Err(format!("dnsperf gave no figures: {text}"));
        };
        let length = of("Run time (s)").unwrap_or(f64::from(seconds));
        Ok(wrk::Result {
            requests: done as u64,
            duration_us: (length * 1e6) as u64,
            errors: [0, lost as u64, 0, 0, 0],
            longest_us: longest(&text).unwrap_or(0),
            ..wrk::Result::default()
        })
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::longest;

    #[test]
    fn the_longest_wait_of_dnsperf_is_read() {
        let report =
            "Queries lost: 0\n  Average Latency (s):  0.000128 (min 0.000016, max 0.001250)\n";
        assert_eq!(longest(report), Some(1_250));
        assert_eq!(longest("Queries lost: 0"), None);
    }
}
