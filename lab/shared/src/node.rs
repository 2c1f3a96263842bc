//! The servers of a fleet.

use std::fs;

use rig::Outcome;
use rig::options::Options;
use rig::server::{Kind, Server, Setup, get};

use crate::{INTERVAL_MS, NODES, TIMEOUT_MS, wait_until};

const CONFIG: &str = include_str!("../../bench/configs/shared.conf");

/// A server.
pub(crate) struct Node {
    pub server: Server,
}

/// Starts the servers of a fleet on CPU 0. `engines` are the ports at which each finds the engine;
/// without one, nothing is shared. `origin` is the port behind their caches.
pub(crate) fn fleet(
    options: &Options,
    engines: Option<[u16; NODES]>,
    origin: u16,
) -> Outcome<Vec<Node>> {
    let mut nodes = Vec::new();
    for i in 0..NODES {
        let (shared, sync) = match engines {
            Some(ports) => {
                let port = ports[i];
                let times = format!("interval={INTERVAL_MS}ms timeout={TIMEOUT_MS}ms");
                (format!("shared_state redis://127.0.0.1:{port} prefix=rig {times};"), "sync")
            }
            None => (String::new(), ""),
        };
        let fill = vec![
            ("%SHARED_STATE%", shared),
            ("%SYNC%", sync.to_string()),
            ("%ORIGIN%", origin.to_string()),
        ];
        let setup = Setup { template: CONFIG, fill, ..Setup::default() };
        let (server, _) = Server::start(options, Kind::Weir, &setup)?;
        nodes.push(Node { server });
    }
    if engines.is_some() {
        wait_until("all are joined", || nodes.iter().all(|node| node.is("joined")))?;
        wait_until("all know all", || {
            nodes.iter().all(|node| node.number("peers") == Some(NODES as u64))
        })?;
    }
    Ok(nodes)
}

pub(crate) fn ports(nodes: &[Node]) -> Vec<u16> {
    nodes.iter().map(Node::port).collect()
}

impl Node {
    pub fn port(&self) -> u16 {
        self.server.port
    }

    pub fn get(&self, path: &str) -> Outcome<String> {
        get(self.port(), "localhost", path).map_err(|e| format!("{path}: {e}"))
    }

    /// The object of the shared state in the status.
    fn state(&self) -> Option<String> {
        let status = self.get("/status").ok()?;
        Some(status.split("\"shared_state\":{").nth(1)?.to_owned())
    }

    pub fn is(&self, state: &str) -> bool {
        let wanted = format!("\"state\":\"{state}\"");
        self.state().is_some_and(|text| text.contains(&wanted))
    }

    /// A number of the shared state.
    pub fn number(&self, name: &str) -> Option<u64> {
        number(&self.state()?, name)
    }

    /// The requests that the limit let pass.
    pub fn passed(&self) -> Option<u64> {
        number(&self.get("/api/9/http/limit_reqs/rate").ok()?, "passed")
    }

    /// Lines of its log about the engine.
    pub fn lines(&self) -> Vec<String> {
        let log = fs::read(self.server.prefix().join("error.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let all = log.lines().filter_map(|line| line.split_once("shared state: "));
        all.map(|(_, text)| text.to_owned()).collect()
    }
}

/// The number behind a name in JSON.
fn number(text: &str, name: &str) -> Option<u64> {
    let rest = text.split_once(&format!("\"{name}\":"))?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_a_status_are_read() {
        assert_eq!(super::number("{\"a\":12,\"b\":3}", "b"), Some(3));
        assert_eq!(super::number("{\"a\":12}", "a"), Some(12));
        assert_eq!(super::number("{\"a\":null}", "a"), None);
    }
}
