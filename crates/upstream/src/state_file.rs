//! `state FILE`: the servers of an upstream in a file, as the API left them, in the language of the
//! configuration.

use std::cell::Cell;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::log::lossy;
use conf::{ConfError, Node};

use crate::peer::{ServerSpec, down};
use crate::server_line::ResolveLine;
use crate::servers::Servers;

/// The state file of an upstream.
pub(crate) struct StateFile {
    path: PathBuf,
    /// This worker is writing the file.
    busy: Cell<bool>,
    /// Servers changed meanwhile.
    again: Cell<bool>,
}

impl StateFile {
    pub fn new(path: PathBuf) -> StateFile {
        StateFile { path, busy: Cell::new(false), again: Cell::new(false) }
    }
}

/// Calls `each` for the `server` lines of a file. A file that is not there has none.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(&Node) -> Result<(), ConfError>,
) -> Result<(), ConfError> {
    if !path.exists() {
        return Ok(());
    }
    let tree = conf::parse::parse_file(path, &conf::parse::Options::default())?;
    for node in &tree.nodes {
        if node.name.bytes() != b"server" || node.args.is_empty() || node.block.is_some() {
            let m = format!("unexpected \"{}\" in a state file", node.name.lossy());
            return Err(ConfError::at(&node.name, m));
        }
        each(node)?;
    }
    Ok(())
}

fn parameters(out: &mut String, s: &ServerSpec, reasons: u64) {
    let default = ServerSpec::new(s.addr.clone());
    let mut put = |text: String| {
        out.push(' ');
        out.push_str(&text);
    };
    if s.weight != default.weight {
        put(format!("weight={}", s.weight));
    }
    if s.max_conns != default.max_conns {
        put(format!("max_conns={}", s.max_conns));
    }
    if s.max_fails != default.max_fails {
        put(format!("max_fails={}", s.max_fails));
    }
    if s.fail_timeout != default.fail_timeout {
        put(format!("fail_timeout={}s", s.fail_timeout));
    }
    if s.slow_start > 0 {
        put(format!("slow_start={}ms", s.slow_start));
    }
    if !s.route.is_empty() {
        put(format!("route={}", lossy(&s.route)));
    }
    if s.backup {
        put("backup".to_owned());
    }
    if reasons & down::DOWN != 0 {
        put("down".to_owned());
    } else if reasons & down::DRAINING != 0 {
        put("drain".to_owned());
    }
}

fn resolve_line(out: &mut String, t: &ResolveLine) {
    let _ = write!(out, "server {} resolve", lossy(&t.spec.server));
    if !t.service.is_empty() {
        let _ = write!(out, " service={}", lossy(&t.service));
    }
    parameters(out, &t.spec, t.spec.down);
    out.push_str(";\n");
}

/// The servers as a state file has them.
fn text(servers: &Servers, lines: &[ResolveLine]) -> String {
    let mut out = "# Written by weir's API; read at start and reload.\n".to_owned();
    lines.iter().for_each(|t| resolve_line(&mut out, t));
    for peer in servers.lists().all().filter(|p| p.spec.template == 0) {
        let _ = write!(out, "server {}", lossy(&peer.spec.server));
        parameters(&mut out, &peer.spec, peer.down());
        out.push_str(";\n");
    }
    out
}

impl StateFile {
    /// Writes the servers as they are now, for the next start or reload. A thread writes a new
    /// file, which then takes the old one's name.
    ///
    /// # Errors
    /// The system's.
    pub async fn save(&self, servers: &Servers, lines: &[ResolveLine]) -> io::Result<()> {
        if self.busy.replace(true) {
            // The writer at work writes once more.
            self.again.set(true);
            return Ok(());
        }
        let mut done = Ok(());
        loop {
            self.again.set(false);
            let (path, text, version) =
                (self.path.clone(), text(servers, lines), servers.lists().version());
            let written = event::run_blocking(move || write(&path, text.as_bytes())).await;
            done = done.and(written.unwrap_or_else(|e| Err(io::Error::other(e.to_string()))));
            // Another worker may have changed servers, too, and have written first.
            if done.is_err() || !self.again.get() && servers.lists().version() == version {
                break;
            }
        }
        self.busy.set(false);
        done
    }
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // No umask in a server in the background: others must not write to the file.
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create(true).truncate(true).mode(0o644).open(&beside);
    let written = made.and_then(|mut file| file.write_all(text));
    let done = written.and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use os::SockAddr;

    #[test]
    fn lines() {
        let addr = SockAddr::parse(b"127.0.0.1:80").unwrap();
        let text = |s: &ServerSpec, down| {
            let mut out = String::new();
            parameters(&mut out, s, down);
            out
        };
        let plain = ServerSpec::new(addr);
        assert_eq!(text(&plain, 0), "");
        assert_eq!(text(&plain, down::DRAINING | down::UNHEALTHY), " drain");
        let all = ServerSpec {
            weight: 2,
            max_conns: 3,
            max_fails: 4,
            fail_timeout: 5,
            slow_start: 6,
            route: Bytes::from_static(b"r"),
            backup: true,
            ..plain
        };
        let expected = " weight=2 max_conns=3 max_fails=4 fail_timeout=5s slow_start=6ms route=r \
                        backup down";
        assert_eq!(text(&all, down::DOWN), expected);
    }
}
