//! HTTP/3: the cost of a request, of an idle connection, and of attacks. The load of requests is
//! `tools/src/bin/h3load.rs` on CPU 1.

pub mod floods;
pub mod idle;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port, new_folder};
use crate::subject::{self, Subject};
use crate::tls::Certificate;
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../../configs/h3.conf");
/// The loads that measure requests.
pub const LOADS: &[&str] = &[
    "h3-1k",
    "h3-1k-return",
    "h3-1k-one",
    "h3-1k-many",
    "h3-100k",
    "h3-1m",
    "h3-post",
    "h3-handshakes",
];

/// Settings of the bare responder, by name: the first is what the others are compared with.
const SETTINGS: &[(&str, &[&str])] = &[
    ("floor", &[]),
    ("no-gso", &["datagrams=1"]),
    ("gso-10", &["datagrams=10"]),
    ("no-gro", &["gro=off"]),
    ("no-turns", &["turns=off"]),
    ("mtu-1200", &["mtu-max=0"]),
    ("mtu-1452", &["mtu=1452", "mtu-max=0"]),
    ("unfair", &["fair=off"]),
    ("acks-10", &["acks=10"]),
    ("window-1m", &["send-window=1048576"]),
    ("reno", &["cc=reno"]),
    ("bbr", &["cc=bbr"]),
    ("unpaced", &["cc=wide"]),
];

#[derive(Clone, Copy)]
struct Shape {
    path: &'static str,
    /// Length of a response's body.
    length: usize,
    connections: usize,
    streams: usize,
    words: &'static [&'static str],
}

fn shape(name: &str) -> Shape {
    let usual = Shape { path: "/1k.txt", length: 1024, connections: 8, streams: 32, words: &[] };
    let (k100, m1) = (100 << 10, 1 << 20);
    match name {
        "h3-1k-return" => Shape { path: "/fixed", ..usual },
        "h3-1k-one" => Shape { connections: 1, streams: 100, ..usual },
        "h3-1k-many" => Shape { connections: 64, streams: 1, ..usual },
        "h3-100k" | "h3-settings-100k" => Shape { path: "/100k.bin", length: k100, ..usual },
        // Responses under way at the end are not counted: they have to be few.
        "h3-1m" => Shape { path: "/1m.bin", length: m1, streams: 2, ..usual },
        "h3-post" => Shape { path: "/post", length: 2, words: &["post=10240"], ..usual },
        "h3-handshakes" => Shape { connections: 16, streams: 1, words: &["close=on"], ..usual },
        _ => usual,
    }
}

/// A real server's setup, and its port for HTTP/3.
fn setup(certificate: &Certificate, backend: u16, gso: bool) -> Outcome<(Setup, u16)> {
    let port = free_port()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let fill = vec![
        ("%CERTIFICATE%", text(certificate.chain())),
        ("%KEY%", text(certificate.key())),
        ("%QUIC_PORT%", port.to_string()),
        ("%GSO%", if gso { "on" } else { "off" }.to_string()),
        ("%LOG_LEVEL%", "error".to_string()),
        ("%FIXED%", "x".repeat(1024)),
        ("%BACKEND%", format!("127.0.0.1:{backend}")),
    ];
    Ok((Setup { template: CONFIG, fill, ..Setup::default() }, port))
}

/// The bare responder, which gets these words.
fn floor(
    options: &Options,
    certificate: &Certificate,
    length: usize,
    words: &[&str],
) -> Outcome<Helper> {
    let port = free_port()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut arguments = vec![port.to_string(), text(certificate.chain()), text(certificate.key())];
    arguments.push(format!("size={length}"));
    arguments.extend(words.iter().map(ToString::to_string));
    let program = options.floor.with_file_name("floor_h3");
    Helper::start(0, &program, &arguments, port, new_folder()?)
}

/// Runs a load against every server, round after round: nginx as it is by default, and with its
/// offload.
pub fn run(options: &Options, name: &str) -> Outcome {
    let shape = shape(name);
    let certificate = Certificate::new(false)?;
    let backend_port = free_port()?;
    let _backend = match name {
        "h3-post" => {
            let arguments = [backend_port.to_string(), "sink".to_string()];
            Some(Helper::start(1, &options.floor, &arguments, backend_port, new_folder()?)?)
        }
        _ => None,
    };
    let mut subjects = Vec::new();
    let mut add = |kind: Kind, name: &'static str, gso: bool| -> Outcome {
        let (setup, port) = setup(&certificate, backend_port, gso)?;
        match Server::start(options, kind, &setup) {
            Ok((server, _)) => subjects.push(Subject::server_at(server, port).called(name)),
            Err(message) => println!("{name} is left out: {}", message.trim_end()),
        }
        Ok(())
    };
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        add(kind, kind.name(), kind != Kind::Nginx)?;
        if kind == Kind::Nginx {
            add(kind, "nginx-gso", true)?;
        }
    }
    if options.servers.contains(&Kind::Floor) {
        let floor = floor(options, &certificate, shape.length, &[])?;
        subjects.push(Subject::helper(Kind::Floor.name(), floor));
    }
    measure(options, &mut subjects, shape)?;
    subject::print(&subjects, if name == "h3-handshakes" { "conn" } else { "req" });
    Ok(())
}

/// The bare responder with one setting changed at a time.
pub fn settings(options: &Options, name: &str) -> Outcome {
    let shape = shape(name);
    let certificate = Certificate::new(false)?;
    let mut subjects = Vec::new();
    for (i, (name, words)) in SETTINGS.iter().enumerate() {
        if i == 0 || options.only.is_none_or(|only| only == i) {
            let floor = floor(options, &certificate, shape.length, words)?;
            subjects.push(Subject::helper(name, floor));
        }
    }
    measure(options, &mut subjects, shape)?;
    subject::print(&subjects, "req");
    subject::print_ratios(&subjects, "req", SETTINGS[0].0);
    Ok(())
}

fn measure(options: &Options, subjects: &mut [Subject], shape: Shape) -> Outcome {
    let program = options.floor.with_file_name("h3load");
    subject::measure(options, subjects, |port, seconds| load(&program, shape, port, seconds))
}

fn load(program: &Path, shape: Shape, port: u16, seconds: u32) -> Outcome<wrk::Result> {
    let Shape { path, length, connections, streams, words } = shape;
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(program).arg(port.to_string());
    command.args([connections, streams, seconds as usize].map(|n| n.to_string()));
    command.args([path, &length.to_string()]).args(words).stdin(Stdio::null());
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let result = wrk::parse(&text).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} gave no figures: {errors}", program.display())
    })?;
    match result.requests {
        0 => Err(format!("no request was answered: {text}")),
        _ => Ok(result),
    }
}
