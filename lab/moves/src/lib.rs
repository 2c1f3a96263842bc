//! Reloads and binary upgrades under open connections that move: tunnels, sessions of `stream`, and
//! kept connections of HTTP/1 and HTTP/2. Each client sends numbered messages one by one and
//! compares what comes back; beside them, short requests on new connections are timed.
//!
//! Without `--kind`, a few hundred connections of all kinds at once ([`mixed`]); with it, thousands
//! of one kind ([`full`]).

#![forbid(unsafe_code)]

mod changes;
mod clients;
mod crowd;
mod full;
mod mixed;
mod witness;

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rig::options::Options;
use rig::server::{Kind, Setup, free_port, new_folder};
use rig::{Outcome, report};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use testkit::AnyCertificate;

const CONFIG: &str = include_str!("../../bench/configs/moves.conf");

/// The longest wait for an answer, and for the end of old workers.
const PATIENCE: Duration = Duration::from_secs(20);

/// The protocol of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tunnel { tls: bool },
    Stream,
    Http1,
    Http2,
}

#[derive(Clone)]
struct Ports {
    clear: u16,
    tls: u16,
    stream: u16,
}

impl Ports {
    fn of(&self, protocol: Protocol) -> u16 {
        match protocol {
            Protocol::Tunnel { tls: false } => self.clear,
            Protocol::Stream => self.stream,
            Protocol::Tunnel { tls: true } | Protocol::Http1 | Protocol::Http2 => self.tls,
        }
    }
}

/// The events of a kind's clients.
#[derive(Default)]
struct Tally {
    messages: u64,
    /// An answer was another one than expected.
    wrong: u64,
    /// The connection ended before the answer.
    lost: u64,
    /// Connections that were opened again.
    reconnects: u64,
    /// The time of each answer, and the milliseconds until it came.
    times: Vec<(Instant, f64)>,
}

impl Tally {
    fn add(&mut self, sent_at: Instant) {
        self.messages += 1;
        let now = Instant::now();
        self.times.push((now, now.duration_since(sent_at).as_secs_f64() * 1000.0));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The paths of a certificate of its own, and of its key.
fn certificate() -> Outcome<(String, String)> {
    let folder = new_folder()?;
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.join(name).display().to_string());
    let options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"];
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "30"]).args(options).arg("/CN=localhost");
    let output = command.args(["-keyout", &key, "-out", &chain]).output();
    let output = output.map_err(|e| format!("openssl: {e}"))?;
    match output.status.success() {
        true => Ok((chain, key)),
        false => Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A configuration of TLS that takes any certificate.
fn config() -> Outcome<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let verifier = Arc::new(AnyCertificate);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// The server's settings in front of these backends, and its ports but for the first.
fn setup(tunnels: u16, plain: u16, connections: usize) -> Outcome<(Setup, Ports)> {
    let (chain, key) = certificate()?;
    let ports = Ports { clear: 0, tls: free_port()?, stream: free_port()? };
    let fill = vec![
        ("%CERTIFICATE%", chain),
        ("%KEY%", key),
        ("%TLS_PORT%", ports.tls.to_string()),
        ("%STREAM_PORT%", ports.stream.to_string()),
        ("%TUNNELS%", tunnels.to_string()),
        ("%PLAIN%", plain.to_string()),
    ];
    let usual = Setup { template: CONFIG, fill, daemon: true, cpus: "0-1", ..Setup::default() };
    Ok((Setup { connections, ..usual }, ports))
}

/// Runs the load against weir, on each of its drivers that is to be compared.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let kinds: Vec<Kind> = match options.driver.as_deref() {
        Some("epoll") => vec![Kind::Weir],
        Some("io_uring") => vec![Kind::Uring],
        Some(other) => return Err(format!("no driver {other:?}: epoll or io_uring")),
        None => {
            let all = options.servers.iter().copied();
            all.filter(|kind| kind.is_real() && *kind != Kind::Nginx).collect()
        }
    };
    let mut missed = Vec::new();
    for kind in kinds {
        missed.extend(match &options.kind {
            Some(name) => full::run(options, kind, name)?,
            None => mixed::run(options, kind)?,
        });
    }
    match missed.as_slice() {
        [] => Ok(()),
        missed => Err(missed.join("; ")),
    }
}

/// The value below which this share of the sorted values is.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn percentiles(values: impl Iterator<Item = f64>) -> String {
    let sorted = sorted(values);
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| at(&sorted, share));
    format!("p50 {p50:.1} ms, p99 {p99:.1} ms, longest {longest:.1} ms")
}

/// Prints the events of kinds of clients.
fn print<'a>(kinds: impl Iterator<Item = (&'a str, &'a Tally)>) {
    let head = ["connections", "messages", "lost", "wrong", "reconnects", "time until the answer"];
    let mut rows = vec![report::row(head)];
    for (name, t) in kinds {
        let counts = [t.messages, t.lost, t.wrong, t.reconnects].map(|n| n.to_string());
        let [messages, lost, wrong, reconnects] = &counts;
        let times = percentiles(t.times.iter().map(|(_, ms)| *ms));
        rows.push(report::row([name, messages, lost, wrong, reconnects, &times]));
    }
    report::table(&rows);
}
