//! `state FILE`: the servers of an upstream in a file, as the API left them, in the language of the
//! configuration.

use std::cell::Cell;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::log::lossy;
use conf::{ConfError, Node};

use super::block::{Block, Template};
use super::group::Group;
use super::peer::{Spec, down};
use crate::cx::Cx;

/// Where an upstream's servers are kept.
pub(crate) struct Saved {
    path: PathBuf,
    /// The file is being written by this worker.
    busy: Cell<bool>,
    /// Servers changed meanwhile.
    again: Cell<bool>,
}

impl Saved {
    pub fn new(path: PathBuf) -> Saved {
        Saved { path, busy: Cell::new(false), again: Cell::new(false) }
    }
}

/// `state FILE`: reads the servers from there. A file that is not there yet holds none.
pub(super) fn directive(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().state.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    if !cx.loc::<Block>().lines.is_empty() {
        return Err(ConfError::directive(n, "is incompatible with \"server\""));
    }
    let word = n.arg(0)?;
    let path = cx.env.conf_path(word.bytes());
    if path.exists() {
        let tree = conf::parse::parse_file(&path, &conf::parse::Options::default())?;
        for node in &tree.nodes {
            if node.name.bytes() != b"server" || node.args.is_empty() || node.block.is_some() {
                let m = format!("unexpected \"{}\" in a state file", node.name.lossy());
                return Err(ConfError::at(&node.name, m));
            }
            super::block::server(cx, node)?;
        }
    }
    cx.loc::<Block>().state = Some(path);
    Ok(())
}

fn parameters(out: &mut String, s: &Spec, reasons: u64) {
    let default = Spec::new(s.addr.clone());
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

fn template_line(out: &mut String, t: &Template) {
    let _ = write!(out, "server {} resolve", lossy(&t.spec.server));
    if !t.service.is_empty() {
        let _ = write!(out, " service={}", lossy(&t.service));
    }
    parameters(out, &t.spec, t.spec.down);
    out.push_str(";\n");
}

impl Group {
    /// The servers as a state file has them.
    fn as_text(&self) -> String {
        let mut out = "# Written by weir's API; read at a start and a reload.\n".to_owned();
        for t in self.names.iter().flat_map(|n| n.templates()) {
            template_line(&mut out, t);
        }
        for peer in self.servers.lists().all().filter(|p| p.spec.template == 0) {
            let _ = write!(out, "server {}", lossy(&peer.spec.server));
            parameters(&mut out, &peer.spec, peer.down());
            out.push_str(";\n");
        }
        out
    }

    /// Keeps the servers as they are now in the upstream's file, if it has one: a reload and a new
    /// start find them there. Written by a thread, beside the old one, whose place it takes.
    ///
    /// # Errors
    /// The system's.
    pub async fn save(&self) -> io::Result<()> {
        let Some(saved) = &self.saved else { return Ok(()) };
        if saved.busy.replace(true) {
            // Who is writing writes once more.
            saved.again.set(true);
            return Ok(());
        }
        let mut done = Ok(());
        loop {
            saved.again.set(false);
            let (path, text, version) =
                (saved.path.clone(), self.as_text(), self.servers.lists().version());
            let written = event::run_blocking(move || write(&path, text.as_bytes())).await;
            done = done.and(written.unwrap_or_else(|e| Err(io::Error::other(e.to_string()))));
            // Another worker may have changed them, too, and have written first.
            if done.is_err() || !saved.again.get() && self.servers.lists().version() == version {
                break;
            }
        }
        saved.busy.set(false);
        done
    }
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // Others may not change it: a server in the background has no umask.
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
        let text = |s: &Spec, down| {
            let mut out = String::new();
            parameters(&mut out, s, down);
            out
        };
        let plain = Spec::new(addr);
        assert_eq!(text(&plain, 0), "");
        assert_eq!(text(&plain, down::DRAINING | down::UNHEALTHY), " drain");
        let all = Spec {
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
