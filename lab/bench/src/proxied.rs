//! Requests passed on: the server on CPU 0, the backend beside the load on CPU 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Server, Setup, free_port, new_folder, write_files};
use crate::subject::{self, Subject};
use crate::{Outcome, deploy, wrk};

const CONFIG: &str = include_str!("../configs/proxy.conf");
const STREAM: &str = include_str!("../configs/stream.conf");
const HAPROXY: &str = include_str!("../configs/haproxy.cfg");
const PHP_FPM: &str = include_str!("../configs/php-fpm.conf");
const STATIC: &str = include_str!("../configs/static.conf");

/// The server behind the proxies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// The bare responder.
    Floor,
    /// The same, closing after each answer.
    Closing,
    /// The same, echoing the bytes of an upgraded connection.
    Echo,
    /// nginx with files.
    Nginx,
    /// The same, which sends little at once: a client that measures shares the processor with it,
    /// and would wait for a call that sends a megabyte.
    Parts,
    /// PHP.
    Php,
}

struct Shape {
    path: &'static str,
    connections: usize,
    behind: Behind,
    haproxy: bool,
    /// With the bare relay beside.
    relay: bool,
    /// Bytes are passed on, whatever they mean.
    stream: bool,
    /// Each request has a connection.
    close: bool,
}

fn shape(name: &str) -> Shape {
    let usual = Shape {
        path: "/1k",
        connections: 64,
        behind: Behind::Floor,
        haproxy: true,
        relay: true,
        stream: false,
        close: false,
    };
    let alone = Shape { haproxy: false, relay: false, ..usual };
    let files = Shape { behind: Behind::Nginx, ..alone };
    match name {
        "proxy-1m" => Shape { path: "/1m.bin", ..files },
        "cache" => Shape { path: "/kept/1k", ..alone },
        "cache-1m" => Shape { path: "/kept/1m.bin", ..files },
        "proxy-1m-unbuffered" => Shape { path: "/unbuffered/1m.bin", ..files },
        "fastcgi" => Shape { path: "/script.php", connections: 8, behind: Behind::Php, ..alone },
        "websocket" => {
            Shape { path: "/echo", connections: 1000, behind: Behind::Echo, relay: true, ..alone }
        }
        "stream-1k" => Shape { stream: true, ..usual },
        "stream-close" => Shape { behind: Behind::Closing, stream: true, close: true, ..usual },
        "stream-echo" => {
            let (path, behind) = ("/echo", Behind::Echo);
            Shape { path, connections: 1000, behind, stream: true, ..usual }
        }
        _ => usual,
    }
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// php-fpm has its version in its name.
fn php_fpm() -> Outcome<PathBuf> {
    let found = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|e| e.path());
    let is =
        |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("php-fpm"));
    found.into_iter().find(is).ok_or("no php-fpm (Debian: apt-get install php-fpm)".to_string())
}

fn backend(options: &Options, behind: Behind) -> Outcome<Helper> {
    let bare = |words: &[&str]| Helper::bare(options, 1, "floor", words);
    let (port, prefix) = (free_port()?, new_folder()?);
    let text = |p: &Path| p.to_string_lossy().into_owned();
    let (program, arguments) = match behind {
        Behind::Floor => return bare(&[]),
        Behind::Closing => return bare(&["close"]),
        Behind::Echo => return bare(&["echo"]),
        Behind::Nginx | Behind::Parts => {
            let max = if behind == Behind::Parts { "sendfile_max_chunk 32k;" } else { "" };
            write_files(&prefix)?;
            let conf = STATIC
                .replace("%USER%", &deploy::user_line())
                .replace("%PREFIX%", &text(&prefix))
                .replace("%PORT%", &port.to_string())
                .replace("%ROOT%", &text(&prefix.join("site")))
                .replace("%LOG%", "off")
                .replace("sendfile on;", &format!("sendfile on; {max}"))
                .replace("%CONNECTIONS%", "4096");
            let names = ["USE", "ONLY_NGINX", "FILE_CACHE", "GENERATION", "BLOCKS", "LISTEN"];
            let conf = names.iter().fold(conf, |c, n| c.replace(&format!("%{n}%"), ""));
            write(&prefix.join("server.conf"), &conf)?;
            let args = ["-p", &text(&prefix), "-c", "server.conf", "-g", "daemon off;"];
            (options.nginx.clone(), args.map(str::to_string).to_vec())
        }
        Behind::Php => {
            let user = deploy::names().map_or_else(String::new, |(user, group)| {
                format!("user = {user}\ngroup = {group}")
            });
            let conf = PHP_FPM
                .replace("%PREFIX%", &text(&prefix))
                .replace("%PORT%", &port.to_string())
                .replace("%USER%", &user);
            write(&prefix.join("fpm.conf"), &conf)?;
            write(&prefix.join("script.php"), "<?php echo str_repeat('x', 1024);\n")?;
            let args = ["-R", "-n", "-y", &text(&prefix.join("fpm.conf"))];
            (php_fpm()?, args.map(str::to_string).to_vec())
        }
    };
    Helper::start(1, &program, &arguments, port, prefix)
}

/// The bare responder, on CPU 1.
pub fn floor(options: &Options) -> Outcome<Helper> {
    backend(options, Behind::Floor)
}

/// nginx with files, which sends little at once, on CPU 1.
pub fn files(options: &Options) -> Outcome<Helper> {
    backend(options, Behind::Parts)
}

fn haproxy(backend: &Helper, stream: bool) -> Outcome<Helper> {
    let (port, prefix) = (free_port()?, new_folder()?);
    let conf = match stream {
        false => HAPROXY.to_owned(),
        true => {
            let of_http = ["    http-reuse always\n", "    monitor-uri /monitor\n"];
            let conf = HAPROXY.replace("mode http", "mode tcp");
            of_http.iter().fold(conf, |conf, line| conf.replace(line, ""))
        }
    };
    let conf = conf
        .replace("%PORT%", &port.to_string())
        .replace("%BACKEND%", &format!("127.0.0.1:{}", backend.port));
    let path = prefix.join("haproxy.cfg");
    write(&path, &conf)?;
    let arguments = ["-f".to_string(), path.to_string_lossy().into_owned()];
    Helper::start(0, Path::new("/usr/sbin/haproxy"), &arguments, port, prefix)
}

/// Runs a load against every server, round after round.
pub fn run(options: &Options, name: &str) -> Outcome {
    let shape = shape(name);
    let behind = backend(options, shape.behind)?;
    let (template, generation) = if shape.stream { (STREAM, 0) } else { (CONFIG, 1) };
    let setup = Setup {
        template,
        generation,
        fill: vec![
            ("%BACKEND%", format!("127.0.0.1:{}", behind.port)),
            ("%SCRIPT%", behind.prefix.join("script.php").to_string_lossy().into_owned()),
        ],
        ..Setup::default()
    };
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        subjects.push(Subject::server(Server::start(options, kind, &setup)?.0));
    }
    if shape.haproxy && Path::new("/usr/sbin/haproxy").exists() {
        subjects.push(Subject::helper("haproxy", haproxy(&behind, shape.stream)?));
    }
    if shape.relay {
        subjects.push(Subject::helper(
            "relay",
            Helper::bare(options, 0, "relay", &[&behind.port.to_string()])?,
        ));
    }
    subject::measure(options, &mut subjects, |port, seconds| load(options, &shape, port, seconds))?;
    subject::print(&subjects, "req");
    Ok(())
}

fn load(options: &Options, shape: &Shape, port: u16, seconds: u32) -> Outcome<wrk::Result> {
    let Shape { path, connections, behind, .. } = *shape;
    if behind == Behind::Echo {
        let program = options.floor.with_file_name("echoes");
        let arguments = [port.to_string(), connections.to_string(), seconds.to_string()];
        let output =
            Command::new("taskset").args(["-c", "1"]).arg(&program).args(arguments).output();
        let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        return wrk::parse(&text)
            .ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let (pipeline, close, files) = (false, shape.close, None);
    wrk::run(&wrk::Load { port, path, connections, seconds, pipeline, close, files })
}
