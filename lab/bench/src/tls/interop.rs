//! A thousand handshakes of each of other people's clients, on every driver: curl, OpenSSL's
//! `s_client`, Go and Python; with each version, fresh and resumed, with a certificate of the
//! client's and without.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Certificate;
use crate::Outcome;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port, new_folder};

const CONFIG: &str = include_str!("../../configs/tls-interop.conf");
const GO: &str = include_str!("clients/client.go");
const PYTHON: &str = include_str!("clients/client.py");

const DRIVERS: [&str; 4] = ["epoll", "io_uring", "poll", "select"];
const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// Handshakes of a client in one series; there are 32 of them.
const COUNT: usize = 32;

/// A client, by its program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Curl,
    OpenSsl,
    Go,
    Python,
}

const CLIENTS: [(Client, &str); 4] = [
    (Client::Curl, "curl"),
    (Client::OpenSsl, "openssl s_client"),
    (Client::Go, "Go crypto/tls"),
    (Client::Python, "Python ssl"),
];

/// The terms of a row of handshakes.
#[derive(Clone, Copy)]
struct Series<'a> {
    port: u16,
    version: &'static str,
    resumed: bool,
    /// The client shows a certificate.
    shows: bool,
    server: &'a Certificate,
    own: &'a Certificate,
    /// A folder for programs and sessions.
    folder: &'a Path,
}

/// Runs the clients.
///
/// # Errors
/// A handshake failed, or was not as it was to be.
pub fn run(options: &Options, _: &str) -> Outcome {
    let (server, own) = (Certificate::new(false)?, Certificate::new(false)?);
    let folder = new_folder()?;
    programs(&folder)?;
    let mut failures = Vec::new();
    for (client, name) in CLIENTS {
        let (mut good, mut resumed) = (0, 0);
        for driver in DRIVERS {
            let setup = setup(driver, &server, &own)?;
            let (running, _) = Server::start(options, Kind::Weir, &setup.0)?;
            for version in VERSIONS {
                for (is_resumed, shows) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let series = Series {
                        port: setup.1,
                        version,
                        resumed: is_resumed,
                        shows,
                        server: &server,
                        own: &own,
                        folder: &folder,
                    };
                    for (at, line) in answers(client, &series)?.iter().enumerate() {
                        match *line == series.expected(at) {
                            true => good += 1,
                            false => failures.push(format!(
                                "{name}, {driver}, TLS {version}, number {at}: {line:?} for {:?}",
                                series.expected(at)
                            )),
                        }
                        resumed += usize::from(line.contains(" r "));
                    }
                }
            }
            let complaints = running.complaints();
            if !complaints.is_empty() {
                failures.push(format!("{name}, {driver}: the log says {complaints}"));
            }
        }
        println!("{name:17} {good} good handshakes, {resumed} of them resumed");
    }
    let _ = fs::remove_dir_all(&folder);
    match failures.len() {
        0 => Ok(()),
        n => Err(format!("{n} failures, the first ones: {:#?}", failures.get(..n.min(10)))),
    }
}

fn setup(driver: &str, server: &Certificate, own: &Certificate) -> Outcome<(Setup, u16)> {
    let port = free_port()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let fill = vec![
        ("%CERTIFICATE%", text(server.chain())),
        ("%KEY%", text(server.key())),
        ("%CLIENT%", text(own.chain())),
        ("%TLS_PORT%", port.to_string()),
        ("%METHOD%", driver.to_owned()),
    ];
    // As many as `select` takes.
    Ok((Setup { template: CONFIG, fill, connections: 512, ..Setup::default() }, port))
}

/// Writes the programs of Go and Python.
fn programs(folder: &Path) -> Outcome {
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("client.go", GO)?;
    write("client.py", PYTHON)?;
    let mut build = Command::new("go");
    build.args(["build", "-o", "client", "client.go"]).env("GO111MODULE", "off");
    run_all(build.current_dir(folder), "").map(drop)
}

impl Series<'_> {
    /// The page of a handshake; the first one of a row cannot resume.
    fn expected(&self, at: usize) -> String {
        let reused = if self.resumed && at > 0 { "r" } else { "." };
        let verify = if self.shows { "SUCCESS" } else { "NONE" };
        format!("TLSv{} {reused} {verify}", self.version)
    }

    fn text(path: PathBuf) -> String {
        path.to_string_lossy().into_owned()
    }
}

/// The pages that a client got, one for each handshake.
fn answers(client: Client, series: &Series<'_>) -> Outcome<Vec<String>> {
    let mut lines = match client {
        Client::Curl => curl(series)?,
        Client::OpenSsl => (0..COUNT).map(|_| openssl(series)).collect::<Outcome<Vec<_>>>()?,
        Client::Go => own(Command::new(series.folder.join("client")), series)?,
        Client::Python => {
            let mut command = Command::new("python3");
            command.arg(series.folder.join("client.py"));
            own(command, series)?
        }
    };
    let _ = fs::remove_file(series.folder.join("session"));
    // A missing page is a failure, too.
    lines.resize(COUNT, String::new());
    Ok(lines)
}

/// One process that keeps its sessions, or is told not to.
fn curl(series: &Series<'_>) -> Outcome<Vec<String>> {
    let Series { port, version, resumed, shows, server, own, .. } = *series;
    let mut command = Command::new("curl");
    command.args(["-sS", "-H", "Connection: close", "--tls-max", version]);
    command.arg(format!("--tlsv{version}")).arg("--cacert").arg(server.chain());
    if !resumed {
        command.arg("--no-sessionid");
    }
    if shows {
        command.arg("--cert").arg(own.chain()).arg("--key").arg(own.key());
    }
    command.arg(format!("https://localhost:{port}/tls?[1-{COUNT}]"));
    Ok(run_all(&mut command, "")?.lines().map(str::to_owned).collect())
}

/// One connection of a process.
fn openssl(series: &Series<'_>) -> Outcome<String> {
    let Series { port, version, resumed, shows, server, own, folder } = *series;
    let session = Series::text(folder.join("session"));
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost"]);
    command.arg(format!("-tls{}", version.replace('.', "_")));
    command.arg("-connect").arg(format!("localhost:{port}"));
    command.arg("-CAfile").arg(server.chain());
    if shows {
        command.arg("-cert").arg(own.chain()).arg("-key").arg(own.key());
    }
    if resumed {
        command.args(["-sess_out", &session]);
        if Path::new(&session).exists() {
            command.args(["-sess_in", &session]);
        }
    }
    let text = run_all(&mut command, "GET /tls HTTP/1.0\r\n\r\n")?;
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

/// A program of ours.
fn own(mut command: Command, series: &Series<'_>) -> Outcome<Vec<String>> {
    let Series { port, version, resumed, shows, server, own, .. } = *series;
    let kind = if resumed { "resumed" } else { "fresh" };
    command.args([&format!("127.0.0.1:{port}"), version, kind, &COUNT.to_string()]);
    command.arg(server.chain());
    if shows {
        command.arg(own.chain()).arg(own.key());
    }
    Ok(run_all(&mut command, "")?.lines().map(str::to_owned).collect())
}

/// What a program writes. A failed handshake is seen by what is missing.
fn run_all(command: &mut Command, input: &str) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| format!("{name}: {e}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may have ended without reading it.
        let _ = stdin.write_all(input.as_bytes());
        if !input.is_empty() {
            // `s_client` would end with its input.
            let output = child.wait_with_output().map_err(failed)?;
            drop(stdin);
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() && output.stdout.is_empty() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
