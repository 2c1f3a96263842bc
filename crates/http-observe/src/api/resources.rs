//! Resources as JSON.

use std::rc::Rc;

use ::upstream::api::{EngineKind, settings};
use base::json::{Object, string};
use base::time::{format_utc_ms, unix_ms};
use engine::metrics::{Kind, Metrics, Reading, json};
use http::request::Request;
use http::server::HttpMain;
use shm::ZoneReport;

use super::document::{Fields, Writer, collection, object, text};
use super::path::{Resource, VERSIONS};
use super::{keyvals, overview, upstreams, whole};

/// The writer of a resource.
pub(super) fn write(r: &Request, resource: Resource, fields: Fields) -> Writer {
    let main = r.main.clone();
    match resource {
        Resource::Root => {
            let versions: Vec<String> = VERSIONS.map(|version| version.to_string()).collect();
            text(format!("[{}]\n", versions.join(",")).into_bytes())
        }
        Resource::Index(names) => {
            let mut out = Vec::new();
            for name in names {
                out.push(if out.is_empty() { b'[' } else { b',' });
                string(&mut out, name.as_bytes());
            }
            out.extend_from_slice(b"]\n");
            text(out)
        }
        Resource::Nginx => {
            let address =
                r.c().local().map(|address| address.host().to_string()).unwrap_or_default();
            object(fields, move |o| nginx(o, &main.metrics, &address))
        }
        Resource::Processes => {
            object(fields, move |o| o.number("respawned", whole::respawned(&main)))
        }
        Resource::Connections => object(fields, move |o| whole::connections(o, &main)),
        Resource::Requests => object(fields, move |o| whole::requests(o, &main)),
        Resource::Ssl => object(fields, move |o| whole::ssl(o, &main.metrics)),
        Resource::Empty => text(b"{}\n".to_vec()),
        Resource::Slabs(None) => slabs(&main, fields),
        Resource::Slabs(Some(zone)) => object(fields, move |o| slab(o, &zone)),
        Resource::Workers(None) => whole::workers(&main, fields),
        Resource::Workers(Some(id)) => object(fields, move |o| {
            if let Some(worker) = main.stats.workers().get(id) {
                whole::worker(o, id, worker);
            }
        }),
        Resource::Resolvers(name) => whole::resolver(r, name.as_deref(), fields),
        Resource::Zones(kind, name) => zones(main.metrics.clone(), kind, name, fields),
        Resource::Caches(None) => self::caches(&main, fields),
        Resource::Caches(Some(cache)) => {
            object(fields, move |o| super::caches::write(o, &main.metrics, &cache))
        }
        Resource::Upstreams(kind) => {
            upstreams::write(upstreams::groups(r, kind), kind, fields, true)
        }
        Resource::Upstream(kind, group) => upstreams::write(vec![group], kind, fields, false),
        Resource::Servers(kind, group) => upstreams::servers(group, kind),
        Resource::Server(kind, _, peer) => object(fields, move |o| settings(o, &peer, kind)),
        Resource::Keyvals(kind) => keyvals::all(keyvals::zones(r, kind), fields),
        Resource::Keyval(zone) => keyvals::one(zone),
        Resource::Pair(zone, key) => keyvals::pair(&zone, &key),
        Resource::Status => text(main.status()),
        Resource::SlowRequests => {
            let since = super::number(&r.target.args, b"since=").unwrap_or(0);
            let last = super::number(&r.target.args, b"last=").unwrap_or(u64::MAX);
            slow_requests(&main, since, last, fields)
        }
        Resource::SharedState => object(fields, move |o| {
            if let Some(fleet) = crate::shared_state::fleet(&main) {
                crate::shared_state::write(o, &fleet);
            }
        }),
        Resource::Overview => overview::write(r),
        Resource::Certificates(None) => certificates(r, fields),
        Resource::Certificates(Some(known)) => object(fields, move |o| known.write(o)),
        Resource::Times(kind) => times(r, kind, fields),
    }
}

pub(super) fn slabs(main: &HttpMain, fields: Fields) -> Writer {
    let all = main.metrics.shared_zones();
    let names = all.iter().map(|zone| zone.name.clone()).collect();
    collection(fields, names, move |o, i| slab(o, &all[i]))
}

pub(super) fn caches(main: &Rc<HttpMain>, fields: Fields) -> Writer {
    let (main, all) = (main.clone(), http_upstream::caching::all(main));
    let names = all.iter().map(|cache| cache.name.to_vec()).collect();
    collection(fields, names, move |o, i| super::caches::write(o, &main.metrics, &all[i]))
}

pub(super) fn certificates(r: &Request, fields: Fields) -> Writer {
    let all = http::ssl::certificates(&r.main);
    let names = all.iter().map(|known| known.name.clone().into_bytes()).collect();
    collection(fields, names, move |o, i| all[i].write(o))
}

/// Zones have units of their own, which are shown as shares of the zone's pages.
fn slab(o: &mut Object<'_>, zone: &ZoneReport) {
    let page = os::limits::page_size();
    let pages = zone.bytes.div_ceil(page);
    let used = (pages * zone.fill.used).div_ceil(zone.fill.capacity.max(1));
    o.object("pages", |o| {
        o.number("used", used as u64);
        o.number("free", pages.saturating_sub(used) as u64);
    });
    o.object("slots", |_| {});
}

fn nginx(o: &mut Object<'_>, metrics: &Metrics, address: &str) {
    o.text("version", env!("CARGO_PKG_VERSION").as_bytes());
    o.text("build", concat!("weir-", env!("CARGO_PKG_VERSION")).as_bytes());
    o.text("address", address.as_bytes());
    o.number("generation", engine::metrics::generation());
    o.text("load_timestamp", format_utc_ms(metrics.loaded_ms()).as_bytes());
    o.text("timestamp", format_utc_ms(unix_ms()).as_bytes());
    o.number("pid", os::process::id().into());
    o.number("ppid", std::os::unix::process::parent_id().into());
}

fn names(metrics: &Metrics, kind: Kind) -> Vec<Vec<u8>> {
    metrics.zones(kind).iter().map(|zone| zone.name().to_vec()).collect()
}

pub(super) fn zones(
    metrics: Rc<Metrics>,
    kind: Kind,
    name: Option<Vec<u8>>,
    fields: Fields,
) -> Writer {
    let fill: fn(&mut Object<'_>, &Reading) = match kind {
        Kind::HttpServer => json::http_server,
        Kind::Location => json::location,
        Kind::StreamServer => json::stream_server,
        Kind::LimitReq => json::limit_req,
        _ => json::limit_conn,
    };
    match name {
        Some(name) => object(fields, move |o| fill(o, &metrics.any(kind, &name).read())),
        None => {
            let names = names(&metrics, kind);
            let all = names.clone();
            collection(fields, names, move |o, i| fill(o, &metrics.any(kind, &all[i]).read()))
        }
    }
}

/// The requests of the flight recorder, the latest first: those with numbers from `since` on, and
/// of these the last ones.
pub(super) fn slow_requests(main: &Rc<HttpMain>, since: u64, last: u64, fields: Fields) -> Writer {
    let main = main.clone();
    let kept = main.stats.flight.numbers();
    let first = kept.start.max(since).max(kept.end.saturating_sub(last));
    let fields = fields.filter(|fields| !fields.is_empty());
    let (mut next, mut before) = (kept.end, b'[');
    Box::new(move |out| {
        if next <= first {
            if before == b'[' {
                out.push(b'[');
            }
            out.extend_from_slice(b"]\n");
            return false;
        }
        next -= 1;
        main.stats.flight.show(next, |record| {
            out.push(std::mem::replace(&mut before, b','));
            Object::write_only(out, fields.as_deref(), |o| record.json(o, next));
        });
        true
    })
}

/// The histograms of a kind of zones.
fn times(r: &Request, kind: Kind, fields: Fields) -> Writer {
    match kind {
        Kind::HttpPeer => return times_of_upstreams(r, EngineKind::Http, fields),
        Kind::StreamPeer => return times_of_upstreams(r, EngineKind::Stream, fields),
        _ => {}
    }
    let main = r.main.clone();
    let names = names(&main.metrics, kind);
    let all = names.clone();
    collection(fields, names, move |o, i| {
        json::own(o, &main.metrics.any(kind, &all[i]).read());
    })
}

/// The histograms of servers, by upstream and address, a server at a time.
fn times_of_upstreams(r: &Request, kind: EngineKind, fields: Fields) -> Writer {
    let groups = upstreams::groups(r, kind);
    if fields.as_ref().is_some_and(|fields| fields.is_empty()) {
        let names = groups.iter().map(|group| group.shown().to_vec()).collect();
        return collection(fields, names, |_, _| {});
    }
    let (mut at, mut server) = (0, 0);
    Box::new(move |out| {
        if at == 0 && server == 0 {
            out.push(b'{');
        }
        let Some(group) = groups.get(at) else {
            out.extend_from_slice(b"}\n");
            return false;
        };
        if server == 0 {
            if at > 0 {
                out.push(b',');
            }
            string(out, &group.shown());
            out.extend_from_slice(b":{");
        }
        match group.servers.lists().all().nth(server) {
            Some(peer) => {
                if server > 0 {
                    out.push(b',');
                }
                string(out, &peer.name);
                out.push(b':');
                Object::write(out, |o| json::own_of_peer(o, &peer.reading()));
                server += 1;
            }
            None => {
                out.push(b'}');
                (at, server) = (at + 1, 0);
            }
        }
        true
    })
}
