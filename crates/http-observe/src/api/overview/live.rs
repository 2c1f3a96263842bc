//! The values that have no history: workers, connections, and the servers of upstreams.

use std::rc::Rc;

use ::upstream::Group;
use ::upstream::api::{self, EngineKind};
use ::upstream::peer::{Peer, word as state};
use base::ascii::write_u64;
use base::json::{Object, string};
use engine::history::SeriesKind;
use engine::metrics::word;
use http::server::HttpMain;

use super::super::document::Writer;
use super::super::whole;
use super::series::Rows;

/// Connections, requests and workers.
pub(super) fn now(o: &mut Object<'_>, main: &Rc<HttpMain>) {
    let ((accepted, dropped), (active, idle)) = (whole::accepted(main), whole::open(main));
    let (requests, current) = whole::all_requests(main);
    for (name, n) in [
        ("accepted", accepted),
        ("dropped", dropped),
        ("active", active),
        ("idle", idle),
        ("requests", requests),
        ("current", current),
        ("respawned", whole::respawned(main)),
        ("log_lines_dropped", main.stats.work().dropped),
        ("slow", main.stats.flight.next()),
    ] {
        o.number(name, n);
    }
    if let Some(fleet) = crate::shared_state::fleet(main) {
        o.object("shared_state", |o| crate::shared_state::write(o, &fleet));
    }
    o.list("workers", main.stats.workers().iter(), |o, worker| {
        o.number("pid", worker.pid);
        o.number("active", worker.active.saturating_sub(worker.waiting));
        o.number("idle", worker.waiting);
        o.number("requests", worker.requests);
        o.number("current", worker.writing);
        o.number("longest_turn_ms", worker.longest_turn_ms);
        o.number("silent_ms", engine::beat::silent_ms(worker.slot).unwrap_or(0));
    });
}

/// A list of upstreams with their servers, a server at a time.
pub(super) fn upstreams(
    main: Rc<HttpMain>,
    groups: Vec<Rc<Group>>,
    kind: EngineKind,
    rows: Rc<Rows>,
) -> Writer {
    let (mut at, mut server) = (0, 0);
    Box::new(move |out| {
        if at == 0 && server == 0 {
            out.push(b'[');
        }
        let Some(group) = groups.get(at) else {
            out.push(b']');
            return false;
        };
        if server == 0 {
            begin(out, group, at > 0);
        }
        match group.servers.lists().all().nth(server) {
            Some(peer) => {
                if server > 0 {
                    out.push(b',');
                }
                let row = of(&main, &rows, group, kind, peer);
                self::peer(out, peer, row);
                server += 1;
            }
            None => {
                out.extend_from_slice(b"]}");
                (at, server) = (at + 1, 0);
            }
        }
        true
    })
}

fn begin(out: &mut Vec<u8>, group: &Group, is_next: bool) {
    if is_next {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"name\":");
    string(out, &group.shown());
    out.extend_from_slice(b",\"zone\":");
    string(out, group.zone.as_deref().unwrap_or_default());
    if let Some(at) = &group.at {
        out.extend_from_slice(b",\"at\":");
        string(out, at.to_string().as_bytes());
    }
    out.extend_from_slice(b",\"peers\":[");
}

fn of(
    main: &HttpMain,
    rows: &Rows,
    group: &Group,
    kind: EngineKind,
    peer: &Peer,
) -> Option<(usize, u32)> {
    let series = match kind {
        EngineKind::Http => SeriesKind::HttpPeer,
        EngineKind::Stream => SeriesKind::StreamPeer,
    };
    rows.peer(&main.stats.history, series, &group.shown(), &peer.name)
}

/// The values of a server, in the order of [`peer`]: a list of them takes a third of an object's
/// bytes, and there may be hundreds of servers every two seconds.
pub(super) const COLUMNS: [&str; 19] = [
    "id",
    "server",
    "name",
    "state",
    "backup",
    "out_since",
    "checks",
    "checks_failed",
    "active",
    "answering",
    "done",
    "failed",
    "errors_5xx",
    "headers",
    "header_us",
    "sent",
    "received",
    "row",
    "p99_us",
];

/// Writes a server. `row` is that of its history, with the p99 of its last minute.
fn peer(out: &mut Vec<u8>, p: &Peer, row: Option<(usize, u32)>) {
    let reading = p.reading();
    out.push(b'[');
    write_u64(out, p.number());
    let name = if p.spec.server == p.name { &b""[..] } else { &p.spec.server };
    for text in [&p.name, name, api::state(p).as_bytes()] {
        out.push(b',');
        string(out, text);
    }
    for n in [
        p.spec.backup.into(),
        p.get(state::OUT_SINCE),
        p.get(state::CHECKS),
        p.get(state::CHECKS_FAILED),
        p.active(&reading),
        reading.get(word::ANSWERING),
        reading.get(word::DONE),
        reading.get(word::FAILS),
        reading.class(5),
        reading.get(word::HEADERS),
        reading.get(word::HEADER_US),
        reading.get(word::SENT),
        reading.get(word::RECEIVED),
    ] {
        out.push(b',');
        write_u64(out, n);
    }
    match row {
        Some((row, p99_us)) => {
            for n in [row as u64, p99_us.into()] {
                out.push(b',');
                write_u64(out, n);
            }
        }
        None => out.extend_from_slice(b",null,0"),
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::upstream::peer::ServerSpec;
    use ::upstream::servers::Servers;

    #[test]
    fn a_server_has_a_value_for_each_column() {
        let spec = ServerSpec::new(os::SockAddr::parse(b"192.0.2.1:80").unwrap());
        let servers = Servers::own("app".into(), &[spec]);
        let lists = servers.lists();
        for row in [None, Some((7, 9))] {
            let mut out = Vec::new();
            peer(&mut out, &lists.main[0], row);
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.split(',').count(), COLUMNS.len(), "{text}");
        }
    }
}
