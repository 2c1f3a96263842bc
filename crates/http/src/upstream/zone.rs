//! `zone`: servers of upstreams in memory that workers share and a reload keeps.
//!
//! Where the configuration says the same of all upstreams of a zone as before, the new workers go
//! on in the same memory, beside those that leave. Where it says something else, the zone is made
//! anew, and servers that are in both keep what is known of them.
//!
//! A file of servers (`state`) is read for a zone that is made. Of one that is kept, the file is
//! the copy: a worker that leaves may be answering a change at the very moment.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use conf::value::parse_size;
use conf::{ConfError, Node, Word};
use shm::Rows;

use super::block::Block;
use super::group::Explicit;
use super::peer::word;
use super::servers::{Asked, Servers, ZoneRows};
use crate::cx::Cx;
use crate::upstream::Upstreams;

/// Whose zones these are among all modules'.
const USER: &str = "upstream";

/// `zone NAME [SIZE]`
pub(super) fn directive(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?;
    if name.bytes().is_empty() {
        return Err(ConfError::at(name, format!("invalid zone name \"{}\"", name.lossy())));
    }
    let bytes = match n.args.get(1) {
        None => None,
        Some(w) => {
            let invalid = || ConfError::at(w, format!("invalid zone size \"{}\"", w.lossy()));
            let bytes = parse_size(w.bytes()).ok_or_else(invalid)?;
            if bytes < 8 * os::limits::page_size() {
                let m = format!("zone \"{}\" is too small", name.lossy());
                return Err(ConfError::at(name, m));
            }
            Some(bytes)
        }
    };
    cx.declare_zone(name, name.bytes(), bytes, USER)?;
    if let Some(bytes) = bytes {
        cx.main::<Upstreams>().zone_bytes.insert(name.text.clone(), bytes);
    }
    cx.loc::<Block>().zone = Some((name.text.clone(), name.clone()));
    Ok(())
}

/// Gives each block its servers, in the order of the blocks.
pub(super) fn servers(cx: &mut Cx, blocks: &[Explicit]) -> Result<Vec<Rc<Servers>>, ConfError> {
    let mut made: HashMap<Bytes, Vec<Rc<Servers>>> = HashMap::new();
    let mut all = Vec::with_capacity(blocks.len());
    for e in blocks {
        let Some((zone, at)) = &e.block.zone else {
            all.push(Servers::own(e.name.text.clone(), &e.specs()));
            continue;
        };
        if !made.contains_key(zone) {
            let of_zone = |e: &&Explicit| e.block.zone.as_ref().is_some_and(|(z, _)| z == zone);
            let members: Vec<&Explicit> = blocks.iter().filter(of_zone).collect();
            made.insert(zone.clone(), make(cx, zone, at, &members)?);
        }
        let same = |s: &&Rc<Servers>| s.name == e.name.text;
        let found = made.get(zone).and_then(|list| list.iter().find(same));
        all.push(found.cloned().unwrap_or_else(|| Servers::own(e.name.text.clone(), &[])));
    }
    Ok(all)
}

/// The servers of all upstreams of a zone.
fn make(
    cx: &mut Cx,
    zone: &Bytes,
    at: &Word,
    members: &[&Explicit],
) -> Result<Vec<Rc<Servers>>, ConfError> {
    let Some(bytes) = cx.main::<Upstreams>().zone_bytes.get(zone).copied() else {
        let m = format!("zero size shared memory zone \"{}\"", base::log::lossy(zone));
        return Err(ConfError::at(at, m));
    };
    let print: String = members.iter().map(|e| e.print()).collect();
    let old = cx.env.zones.kept::<ZoneRows>(zone);
    if let Some(old) = &old
        && old.print == print
    {
        cx.env.zones.put(zone, old.clone());
        let anew = |(s, i)| Servers::at(Servers::name_of(s), old.rows.clone(), i);
        return Ok(old.upstreams.iter().zip(1..).map(anew).collect());
    }
    // Workers that leave after a reload have slots, too.
    let slots = cx.env.slots();
    let rows = Rows::shared(bytes, word::ROW, slots).map_err(|e| {
        let e = base::log::os_error(&e);
        ConfError::at(at, format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"))
    })?;
    let rows = Rc::new(rows);
    let mut upstreams = Vec::with_capacity(members.len());
    let mut asked = Vec::new();
    for (e, owner) in members.iter().zip(1..) {
        let servers = Servers::at(e.name.text.clone(), rows.clone(), owner);
        let full = |_| {
            let m = format!("zone \"{}\" is too small", base::log::lossy(zone));
            ConfError::at(at, format!("{m} for the servers of its upstreams"))
        };
        for spec in e.specs() {
            servers.add(&spec).map_err(full)?;
        }
        for asked in e.asked() {
            servers.add_template(asked.template).map_err(full)?;
        }
        if let Some(old) = &old {
            inherit(&servers, e, old);
        }
        asked.extend(e.asked());
        upstreams.push(servers);
    }
    let state = ZoneRows { rows, print, upstreams: upstreams.clone(), asked };
    cx.env.zones.put(zone, Rc::new(state));
    Ok(upstreams)
}

/// Takes over what is known: addresses of names that are asked for as before, and how servers fare.
fn inherit(servers: &Servers, e: &Explicit, old: &ZoneRows) {
    let Some(was) = old.upstreams.iter().find(|s| s.name == servers.name) else { return };
    let asks = |a: &&Asked, b: &Asked| {
        a.upstream == b.upstream && a.host == b.host && a.service == b.service
    };
    for fresh in e.asked() {
        let Some(before) = old.asked.iter().find(|a| asks(a, &fresh)) else { continue };
        let of_before = was.lists();
        servers.set_valid(fresh.template, was.valid(before.template));
        for peer in of_before.all().filter(|p| p.spec.template == before.template) {
            if let Some(spec) = e.resolved(fresh.template, &peer.spec) {
                // A zone that has become smaller finds out at the next answer.
                let _ = servers.add(&spec);
            }
        }
    }
    servers.inherit(was);
}

impl Servers {
    fn name_of(servers: &Rc<Servers>) -> Bytes {
        servers.name.clone()
    }
}
