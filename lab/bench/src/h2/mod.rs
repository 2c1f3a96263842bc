//! HTTP/2, in the clear by prior knowledge and over TLS: the cost of a request.

pub mod bomb;
pub mod floods;
pub mod h2load;
pub mod idle;
pub mod mixed;
pub mod reload;
pub mod spec;

use std::fs;
use std::path::{Path, PathBuf};

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port, new_folder, write_files};
use crate::subject::{self, Subject};
use crate::tls::Certificate;
use crate::{Outcome, deploy};

const CONFIG: &str = include_str!("../../configs/h2.conf");
const H2O_CONFIG: &str = include_str!("../../configs/h2o.yaml");
const H2O: &str = "/usr/bin/h2o";
const BODY: usize = 10 << 10;

/// The loads that measure requests.
pub const LOADS: &[&str] = &[
    "h2-1k",
    "h2-1k-one",
    "h2-1k-many",
    "h2-1k-paths",
    "h2-100k",
    "h2-1m",
    "h2-post",
    "h2-tls-1k",
    "h2-tls-100k",
];

struct Shape {
    path: &'static str,
    /// Requests are for so many copies of the file, one after the other.
    copies: usize,
    connections: usize,
    streams: usize,
    tls: bool,
    post: bool,
}

fn shape(name: &str) -> Shape {
    let usual =
        Shape { path: "/1k.txt", copies: 1, connections: 8, streams: 32, tls: false, post: false };
    match name {
        "h2-1k-paths" => Shape { copies: 100, ..usual },
        "h2-1k-one" => Shape { connections: 1, streams: 100, ..usual },
        "h2-1k-many" => Shape { connections: 256, streams: 8, ..usual },
        "h2-100k" => Shape { path: "/100k.bin", ..usual },
        "h2-1m" => Shape { path: "/1m.bin", ..usual },
        "h2-post" => Shape { path: "/post", post: true, ..usual },
        "h2-tls-1k" => Shape { tls: true, ..usual },
        "h2-tls-100k" => Shape { path: "/100k.bin", tls: true, ..usual },
        _ => usual,
    }
}

/// The ports on which a server speaks HTTP/2.
#[derive(Clone, Copy)]
pub struct Ports {
    pub clear: u16,
    pub tls: u16,
}

impl Ports {
    fn new() -> Outcome<Self> {
        Ok(Self { clear: free_port()?, tls: free_port()? })
    }

    fn fill(self, certificate: &Certificate, backend: u16) -> Vec<(&'static str, String)> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        vec![
            ("%CERTIFICATE%", text(certificate.chain())),
            ("%KEY%", text(certificate.key())),
            ("%H2_PORT%", self.clear.to_string()),
            ("%H2_TLS_PORT%", self.tls.to_string()),
            ("%BACKEND%", format!("127.0.0.1:{backend}")),
        ]
    }
}

/// A real server's setup, and its ports.
pub fn setup(kind: Kind, certificate: &Certificate, backend: u16) -> Outcome<(Setup, Ports)> {
    let ports = Ports::new()?;
    let mut fill = ports.fill(certificate, backend);
    let by_word = kind == Kind::Nginx;
    fill.push(("%HTTP2%", if by_word { "http2" } else { "" }.to_string()));
    fill.push(("%HTTP2_ON%", if by_word { "" } else { "http2 on;" }.to_string()));
    fill.push(("%LOG_LEVEL%", "error".to_string()));
    fill.push(("%SENDFILE%", "on".to_string()));
    fill.push(("%SEND_TIMEOUT%", "60s".to_string()));
    Ok((Setup { template: CONFIG, fill, ..Setup::default() }, ports))
}

/// The same without `sendfile`: with it, nginx answers a lone request in the clear in two pieces,
/// the second one 40 ms after the first.
pub fn prompt_setup(
    kind: Kind,
    certificate: &Certificate,
    backend: u16,
) -> Outcome<(Setup, Ports)> {
    let (mut setup, ports) = setup(kind, certificate, backend)?;
    for (name, value) in &mut setup.fill {
        if *name == "%SENDFILE%" {
            *value = "off".to_string();
        }
    }
    Ok((setup, ports))
}

/// h2o; none where it is not installed.
fn h2o(certificate: &Certificate, backend: u16) -> Outcome<Option<(Helper, Ports)>> {
    if !Path::new(H2O).exists() {
        println!("h2o is left out: no {H2O} (Debian: apt-get install h2o)");
        return Ok(None);
    }
    let (ports, prefix) = (Ports::new()?, new_folder()?);
    write_files(&prefix)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let user = deploy::names().map_or_else(String::new, |(user, _)| format!("user: {user}"));
    let mut conf = H2O_CONFIG
        .replace("%USER%", &user)
        .replace("%PREFIX%", &text(&prefix))
        .replace("%ROOT%", &text(&prefix.join("site")));
    for (name, value) in ports.fill(certificate, backend) {
        conf = conf.replace(name, &value);
    }
    let path = prefix.join("h2o.yaml");
    fs::write(&path, conf).map_err(|e| format!("{}: {e}", path.display()))?;
    let arguments = ["-c".to_string(), text(&path)];
    let helper = Helper::start(0, Path::new(H2O), &arguments, ports.clear, prefix)?;
    Ok(Some((helper, ports)))
}

/// Runs a load against every server, round after round.
pub fn run(options: &Options, name: &str) -> Outcome {
    let shape = shape(name);
    let certificate = Certificate::new(false)?;
    let backend_port = free_port()?;
    let backend = match shape.post {
        true => {
            let arguments = [backend_port.to_string(), "sink".to_string()];
            let program = &options.floor;
            Some(Helper::start(1, program, &arguments, backend_port, new_folder()?)?)
        }
        false => None,
    };
    let port = |ports: Ports| if shape.tls { ports.tls } else { ports.clear };
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let (setup, ports) = setup(kind, &certificate, backend_port)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        copy(&server.root(), &shape)?;
        subjects.push(Subject::server_at(server, port(ports)));
    }
    if let Some((helper, ports)) = h2o(&certificate, backend_port)? {
        copy(&helper.prefix.join("site"), &shape)?;
        subjects.push(Subject::helper_at("h2o", helper, port(ports)));
    }
    let scratch = Scratch(new_folder()?);
    let body = scratch.0.join("body");
    fs::write(&body, [b'x'; BODY]).map_err(|e| format!("{}: {e}", body.display()))?;
    subject::measure(options, &mut subjects, |port, seconds| {
        let Shape { path, copies, connections, streams, tls, post } = shape;
        let body = post.then_some(body.as_path());
        let load = h2load::Load { port, path, copies, connections, streams, seconds, tls, body };
        h2load::run(&load, &scratch.0)
    })?;
    subject::print(&subjects, "req");
    subject::print_ratios(&subjects, "req", "h2o");
    drop(backend);
    Ok(())
}

/// Makes the copies of a load's file in a site, with its time.
fn copy(site: &Path, shape: &Shape) -> Outcome {
    let file = site.join(shape.path.trim_start_matches('/'));
    for n in 1..shape.copies {
        let copy = site.join(h2load::copy_of(shape.path, n).trim_start_matches('/'));
        let copied = fs::copy(&file, &copy).and_then(|_| {
            let modified = fs::metadata(&file)?.modified()?;
            fs::File::options().write(true).open(&copy)?.set_modified(modified)
        });
        copied.map_err(|e| format!("{}: {e}", copy.display()))?;
    }
    Ok(())
}

/// A folder that goes with its value.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
