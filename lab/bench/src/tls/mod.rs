//! TLS: handshakes, requests over kept connections, and requests passed on over TLS.
//!
//! All servers of a load have the same certificate and key, and the clients leave them no choice of
//! version, cipher and key exchange, so that all do the same work.

pub mod client;
pub mod foreign;
pub mod idle;
pub mod interop;
pub mod storm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port, new_folder};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

const FILES: &str = include_str!("../../configs/tls.conf");
const PROXY: &str = include_str!("../../configs/tls-proxy.conf");

/// Clients that shake hands at the same time: enough that the server never waits for them.
const THREADS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Full,
    Resumed,
    Requests(&'static str),
}

struct Shape {
    work: Work,
    rsa: bool,
    template: &'static str,
    /// Whether the floor's handshakes and its 1 KB compare.
    floor: bool,
}

fn shape(name: &str) -> Shape {
    let usual = Shape { work: Work::Requests("/1k.txt"), rsa: false, template: FILES, floor: true };
    match name {
        "tls-handshake-ecdsa" => Shape { work: Work::Full, ..usual },
        "tls-handshake-rsa" => Shape { work: Work::Full, rsa: true, ..usual },
        "tls-resumed" => Shape { work: Work::Resumed, ..usual },
        "tls-100k" => Shape { work: Work::Requests("/100k.bin"), floor: false, ..usual },
        "tls-1m" => Shape { work: Work::Requests("/1m.bin"), floor: false, ..usual },
        "tls-proxy" => Shape { template: PROXY, floor: false, ..usual },
        _ => usual,
    }
}

/// A self-signed certificate and its key in files of a folder, which goes with it.
pub struct Certificate {
    folder: PathBuf,
}

impl Certificate {
    /// With a key of RSA of 2048 bits, or of ECDSA on P-256.
    pub fn new(rsa: bool) -> Outcome<Self> {
        let certificate = Self { folder: new_folder()? };
        let key: &[&str] = match rsa {
            true => &["rsa:2048"],
            false => &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
        };
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
        command.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-newkey"]);
        command.args(key).arg("-keyout").arg(certificate.key());
        command.arg("-out").arg(certificate.chain());
        let output = command.output().map_err(|e| format!("openssl: {e}"))?;
        match output.status.success() {
            true => Ok(certificate),
            false => Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// The certificate's file.
    pub fn chain(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// The key's file.
    pub fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A server's setup, and the port on which it speaks TLS.
fn setup(
    certificate: &Certificate,
    template: &'static str,
    backend: Option<&Helper>,
) -> Outcome<(Setup, u16)> {
    let port = free_port()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let backend = backend.map_or_else(String::new, |b| format!("127.0.0.1:{}", b.port));
    let fill = vec![
        ("%CERTIFICATE%", text(certificate.chain())),
        ("%KEY%", text(certificate.key())),
        ("%TLS_PORT%", port.to_string()),
        ("%BACKEND%", backend),
    ];
    Ok((Setup { template, fill, ..Setup::default() }, port))
}

/// The floor with TLS.
fn floor(options: &Options, cpu: u8, certificate: &Certificate) -> Outcome<Helper> {
    let port = free_port()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let arguments = [port.to_string(), text(certificate.chain()), text(certificate.key())];
    Helper::start(cpu, &beside(options, "tls_floor"), &arguments, port, new_folder()?)
}

fn beside(options: &Options, program: &str) -> PathBuf {
    options.floor.with_file_name(program)
}

/// Runs a load against every server, round after round.
pub fn run(options: &Options, name: &str) -> Outcome {
    let shape = shape(name);
    let certificate = Certificate::new(shape.rsa)?;
    let behind = match shape.template {
        PROXY => Some(floor(options, 1, &certificate)?),
        _ => None,
    };
    let mut subjects = Vec::new();
    for &kind in &options.servers {
        if kind.is_real() {
            let (setup, port) = setup(&certificate, shape.template, behind.as_ref())?;
            let (server, _) = Server::start(options, kind, &setup)?;
            subjects.push(Subject::server_at(server, port));
        } else if shape.floor {
            subjects.push(Subject::helper(Kind::Floor.name(), floor(options, 0, &certificate)?));
        }
    }
    subject::measure(options, &mut subjects, |port, seconds| {
        load(options, shape.work, port, seconds)
    })?;
    let unit = if matches!(shape.work, Work::Requests(_)) { "req" } else { "handshake" };
    subject::print(&subjects, unit);
    Ok(())
}

fn load(options: &Options, work: Work, port: u16, seconds: u32) -> Outcome<wrk::Result> {
    let kind = match work {
        Work::Requests(path) => {
            let (connections, pipeline, close, files) = (64, false, false, None);
            let load = wrk::Load { port, path, connections, seconds, pipeline, close, files };
            return wrk::run_over_tls(&load);
        }
        Work::Full => "full",
        Work::Resumed => "resumed",
    };
    handshakes(&beside(options, "handshakes"), port, seconds, kind)
}

fn handshakes(program: &Path, port: u16, seconds: u32, kind: &str) -> Outcome<wrk::Result> {
    let numbers = [port.to_string(), THREADS.to_string(), seconds.to_string()];
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(program).args(numbers).arg(kind);
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    wrk::parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} gave no figures: {errors}", program.display())
    })
}
