//! Upstreams of an engine as JSON, a server at a time: there may be thousands.

use std::rc::Rc;

use ::upstream::Group;
use ::upstream::api::{self, EngineKind};
use base::json::{Object, string};

use super::document::{Fields, Writer};

/// The groups of an engine, in order.
pub(crate) fn groups(r: &http::request::Request, kind: EngineKind) -> Vec<Rc<Group>> {
    groups_of(&r.main, kind)
}

/// The same by the engine.
pub(crate) fn groups_of(main: &http::server::HttpMain, kind: EngineKind) -> Vec<Rc<Group>> {
    use ::upstream::directives::AllGroups;
    use engine::metrics::Kind;
    let wanted = match kind {
        EngineKind::Http => Kind::HttpPeer,
        EngineKind::Stream => Kind::StreamPeer,
    };
    let parts = main.metrics.parts::<AllGroups>();
    parts.iter().filter(|part| part.kind == wanted).flat_map(|part| part.groups()).collect()
}

/// Whether there is a `stream` block.
pub(super) fn has_stream(r: &http::request::Request) -> bool {
    use ::upstream::directives::AllGroups;
    let parts = r.main.metrics.parts::<AllGroups>();
    parts.iter().any(|part| part.kind == engine::metrics::Kind::StreamPeer)
}

/// Writes groups: as members of an object, or one alone.
pub(super) fn write(groups: Vec<Rc<Group>>, kind: EngineKind, fields: Fields, all: bool) -> Writer {
    if all && fields.as_ref().is_some_and(|fields| fields.is_empty()) {
        let names = groups.iter().map(|g| g.shown().to_vec()).collect();
        return super::document::collection(fields, names, |_, _| {});
    }
    let mut position = Position { group: 0, peer: 0 };
    Box::new(move |out| {
        if all && position.group == 0 && position.peer == 0 {
            out.push(b'{');
        }
        let more = match groups.get(position.group) {
            Some(group) => step(out, group, kind, &fields, all, &mut position),
            None => true,
        };
        if more && position.group >= groups.len() {
            out.extend_from_slice(if all { b"}\n" } else { b"\n" });
            return false;
        }
        true
    })
}

/// The next thing to be written.
struct Position {
    group: usize,
    /// 0 is the group's beginning.
    peer: usize,
}

/// Writes the beginning of a group, one of its servers, or its end, after which the next group is
/// due: true then.
fn step(
    out: &mut Vec<u8>,
    group: &Group,
    kind: EngineKind,
    fields: &Fields,
    all: bool,
    at: &mut Position,
) -> bool {
    let wants =
        |name: &[u8]| fields.as_ref().is_none_or(|f| f.is_empty() || f.iter().any(|f| f == name));
    let lists = group.servers.lists();
    if at.peer == 0 {
        if all {
            if at.group > 0 {
                out.push(b',');
            }
            string(out, &group.shown());
            out.push(b':');
        }
        out.push(b'{');
        if wants(b"peers") {
            out.extend_from_slice(b"\"peers\":[");
        }
    }
    if wants(b"peers")
        && let Some(peer) = lists.all().nth(at.peer)
    {
        if at.peer > 0 {
            out.push(b',');
        }
        Object::write(out, |o| api::peer(o, peer, kind));
        at.peer += 1;
        return false;
    }
    let mut rest = Vec::new();
    let only = fields.as_deref().filter(|fields| !fields.is_empty());
    Object::write_only(&mut rest, only, |o| api::group(o, group, kind));
    if wants(b"peers") {
        out.push(b']');
        if rest.len() > 2 {
            out.push(b',');
        }
    }
    out.extend_from_slice(&rest[1..]);
    *at = Position { group: at.group + 1, peer: 0 };
    true
}

/// Writes the settings of all servers.
pub(super) fn servers(group: Rc<Group>, kind: EngineKind) -> Writer {
    let mut i = 0;
    Box::new(move |out| {
        out.push(if i == 0 { b'[' } else { b',' });
        let lists = group.servers.lists();
        match lists.all().nth(i) {
            Some(peer) => Object::write(out, |o| api::settings(o, peer, kind)),
            None => {
                // A server may have gone meanwhile.
                if i > 0 {
                    out.pop();
                }
                out.extend_from_slice(b"]\n");
                return false;
            }
        }
        i += 1;
        true
    })
}
