//! Requests passed on over HTTP/2: the server on CPU 0, the backend beside the load on CPU 1.
//!
//! The backends of `proxy` are bare responders, one for each version of HTTP. With a server as
//! backend, its own cost beside the load would decide how many requests come together in one
//! receive.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port, new_folder};
use crate::subject::{self, Subject};
use crate::{Outcome, deploy, h2, proxied, wrk};

const CONFIG: &str = include_str!("../configs/upstream-h2.conf");
const BACKEND: &str = include_str!("../configs/upstream-h2-backend.conf");
/// The message of a call, with its five bytes of prefix.
const MESSAGE: usize = 100;
/// nginx 1.29.4 brought `proxy_http_version 2`.
const NGINX_WITH_IT: [u32; 3] = [1, 29, 4];

/// The setup of a server before a backend, which it speaks that version to, and its port for
/// HTTP/2.
pub fn setup(kind: Kind, version: &str, backend: u16) -> Outcome<(Setup, u16)> {
    let (by_word, h2_port) = (kind == Kind::Nginx, free_port()?);
    let fill = vec![
        ("%BACKEND%", format!("127.0.0.1:{backend}")),
        ("%VERSION%", version.to_owned()),
        ("%H2_PORT%", h2_port.to_string()),
        ("%HTTP2%", if by_word { "http2" } else { "" }.to_string()),
        ("%HTTP2_ON%", if by_word { "" } else { "http2 on;" }.to_string()),
    ];
    Ok((Setup { template: CONFIG, fill, ..Setup::default() }, h2_port))
}

/// nginx, which answers requests of both versions on a port each, with files and calls with a
/// message. Gives its port for HTTP/2, too.
pub fn backend(options: &Options) -> Outcome<(Helper, u16)> {
    let (port, h2_port, prefix) = (free_port()?, free_port()?, new_folder()?);
    crate::server::write_files(&prefix)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let conf = BACKEND
        .replace("%USER%", &deploy::user_line())
        .replace("%PREFIX%", &text(&prefix))
        .replace("%ROOT%", &text(&prefix.join("site")))
        .replace("%PORT%", &port.to_string())
        .replace("%H2_PORT%", &h2_port.to_string())
        .replace("%MESSAGE%", &"x".repeat(MESSAGE));
    let path = prefix.join("server.conf");
    fs::write(&path, conf).map_err(|e| format!("{}: {e}", path.display()))?;
    let args = ["-p", &text(&prefix), "-c", "server.conf", "-g", "daemon off;"];
    let args = args.map(str::to_string);
    Ok((Helper::start(1, &options.nginx, &args, port, prefix)?, h2_port))
}

/// Whether this nginx speaks HTTP/2 to its upstreams.
fn has_version_2(nginx: &Path) -> bool {
    let Ok(output) = Command::new(nginx).arg("-v").output() else { return false };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = text.split("nginx/").nth(1).unwrap_or_default();
    let parts = version.split(|c: char| !c.is_ascii_digit()).take(3);
    let parts: Vec<u32> = parts.filter_map(|part| part.parse().ok()).collect();
    parts.as_slice() >= NGINX_WITH_IT.as_slice()
}

/// 1 KB passed on for 64 kept HTTP/1 clients: both servers over both versions, where they have
/// them, and the bare proxy over HTTP/2.
pub fn proxy(options: &Options) -> Outcome {
    let (backend, over_h2) = (proxied::floor(options)?, Helper::bare(options, 1, "floor_h2", &[])?);
    let h2_port = over_h2.port;
    let mut subjects = Vec::new();
    let mut add = |kind: Kind, name: &'static str, version: &str| -> Outcome {
        let port = if version == "2" { h2_port } else { backend.port };
        let (setup, _) = setup(kind, version, port)?;
        subjects.push(Subject::server(Server::start(options, kind, &setup)?.0).called(name));
        Ok(())
    };
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        add(kind, kind.name(), "1.1")?;
        match kind {
            Kind::Nginx if has_version_2(&options.nginx) => add(kind, "nginx-h2", "2")?,
            Kind::Nginx => {}
            Kind::Uring => add(kind, "uring-h2", "2")?,
            _ => add(kind, "weir-h2", "2")?,
        }
    }
    let bare = Helper::bare(options, 0, "h2_proxy", &[&h2_port.to_string()])?;
    subjects.push(Subject::helper("h2_proxy", bare));
    subject::measure(options, &mut subjects, |port, seconds| {
        let (path, connections, pipeline, close, files) = ("/1k.txt", 64, false, false, None);
        wrk::run(&wrk::Load { port, path, connections, seconds, pipeline, close, files })
    })?;
    subject::print(&subjects, "req");
    Ok(())
}

/// Unary calls of 100 bytes over HTTP/2 on both sides, 8 connections of 32 streams.
pub fn grpc(options: &Options) -> Outcome {
    let (_backend, h2_port) = backend(options)?;
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        let (setup, port) = setup(kind, "1.1", h2_port)?;
        subjects.push(Subject::server_at(Server::start(options, kind, &setup)?.0, port));
    }
    let scratch = h2::Scratch(new_folder()?);
    let body = scratch.0.join("message");
    fs::write(&body, [b'x'; MESSAGE]).map_err(|e| format!("{}: {e}", body.display()))?;
    subject::measure(options, &mut subjects, |port, seconds| {
        let (path, body) = ("/service/Method", Some(body.as_path()));
        let (connections, streams, tls) = (8, 32, false);
        let load =
            h2::h2load::Load { port, path, copies: 1, connections, streams, seconds, tls, body };
        h2::h2load::run(&load, &scratch.0)
    })?;
    subject::print(&subjects, "call");
    Ok(())
}
