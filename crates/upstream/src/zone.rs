//! `zone`: servers of upstreams in memory that workers share and a reload keeps.
//!
//! If the settings of all upstreams of a zone are the same as before, the new workers go on in the
//! same memory, beside those that leave. Otherwise the zone is made anew, and servers that are in
//! both keep their state.
//!
//! The servers of a state file are read for a zone that is made. Of a zone that is kept, the file
//! is the copy: a worker that leaves may be answering a change at this moment.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Word};
use engine::LoadEnv;
use shm::Rows;

use crate::block::NamedUpstream;
use crate::peer::word;
use crate::servers::{ResolveQuery, Servers, ZoneRows};

/// Gives each block its servers, in the order of the blocks.
pub(crate) fn servers(
    sizes: &HashMap<Bytes, usize>,
    env: &LoadEnv,
    blocks: &[NamedUpstream],
) -> Result<Vec<Rc<Servers>>, ConfError> {
    let mut made: HashMap<Bytes, Vec<Rc<Servers>>> = HashMap::new();
    let mut of_blocks = Vec::with_capacity(blocks.len());
    for e in blocks {
        let Some(at) = &e.block.zone else {
            of_blocks.push(Servers::own(e.name.text.clone(), &e.specs()));
            continue;
        };
        let zone = &at.text;
        if !made.contains_key(zone) {
            let of_zone =
                |e: &&NamedUpstream| e.block.zone.as_ref().is_some_and(|z| z.text == *zone);
            let members: Vec<&NamedUpstream> = blocks.iter().filter(of_zone).collect();
            made.insert(zone.clone(), make(sizes, env, at, &members)?);
        }
        let same = |s: &&Rc<Servers>| s.name == e.name.text;
        let found = made.get(zone).and_then(|list| list.iter().find(same));
        of_blocks.push(found.cloned().unwrap_or_else(|| Servers::own(e.name.text.clone(), &[])));
    }
    Ok(of_blocks)
}

/// The servers of all upstreams of a zone.
fn make(
    sizes: &HashMap<Bytes, usize>,
    env: &LoadEnv,
    at: &Word,
    members: &[&NamedUpstream],
) -> Result<Vec<Rc<Servers>>, ConfError> {
    let (zone, zones) = (&at.text, &env.zones);
    let Some(bytes) = sizes.get(zone).copied() else {
        let m = format!("zero size shared memory zone \"{}\"", base::log::lossy(zone));
        return Err(ConfError::at(at, m));
    };
    let print: String = members.iter().map(|e| e.print()).collect();
    let old = zones.kept::<ZoneRows>(zone);
    if let Some(old) = &old
        && old.print == print
    {
        zones.put(zone, old.clone());
        let anew = |(s, i): (&Rc<Servers>, u64)| Servers::at(s.name.clone(), old.rows.clone(), i);
        return Ok(old.upstreams.iter().zip(1..).map(anew).collect());
    }
    let rows = Rows::shared(bytes, word::ROW, env.slots()).map_err(|e| {
        let e = base::log::os_error(&e);
        ConfError::at(at, format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"))
    })?;
    let rows = Rc::new(rows);
    let mut upstreams = Vec::with_capacity(members.len());
    let mut queries = Vec::new();
    for (e, owner) in members.iter().zip(1..) {
        let servers = Servers::at(e.name.text.clone(), rows.clone(), owner);
        let full = |_| {
            let m = format!("zone \"{}\" is too small", base::log::lossy(zone));
            ConfError::at(at, format!("{m} for the servers of its upstreams"))
        };
        for spec in e.specs() {
            servers.add(&spec).map_err(full)?;
        }
        for query in e.queries() {
            servers.add_template(query.template).map_err(full)?;
        }
        if let Some(old) = &old {
            inherit(&servers, e, old);
        }
        queries.extend(e.queries());
        upstreams.push(servers);
    }
    let state = ZoneRows { rows, print, upstreams: upstreams.clone(), queries };
    zones.put(zone, Rc::new(state));
    Ok(upstreams)
}

/// Takes over the addresses of names that are asked for as before, and the state of servers.
fn inherit(servers: &Servers, e: &NamedUpstream, old: &ZoneRows) {
    let Some(was) = old.upstreams.iter().find(|s| s.name == servers.name) else { return };
    let asks = |a: &&ResolveQuery, b: &ResolveQuery| {
        a.upstream == b.upstream && a.host == b.host && a.service == b.service
    };
    for fresh in e.queries() {
        let Some(before) = old.queries.iter().find(|a| asks(a, &fresh)) else { continue };
        let of_before = was.lists();
        servers.set_valid(fresh.template, was.valid(before.template));
        for peer in of_before.all().filter(|p| p.spec.template == before.template) {
            if let Some(spec) = e.resolved(fresh.template, &peer.spec) {
                // In a zone that became smaller there may be no room; the next answer tells.
                let _ = servers.add(&spec);
            }
        }
    }
    servers.inherit(was);
}
