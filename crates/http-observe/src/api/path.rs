//! The resource that a path names.

use std::rc::Rc;

use ::upstream::Group;
use ::upstream::api::{EngineKind, Refusal};
use ::upstream::peer::Peer;
use cache::Cache;
use common_modules::ssl::Known;
use engine::metrics::Kind;
use http::request::Request;
use shm::ZoneReport;

pub(super) enum Resource {
    /// The versions.
    Root,
    /// A list of names of sections.
    Index(&'static [&'static str]),
    Nginx,
    Processes,
    Connections,
    Requests,
    Ssl,
    /// A section that is empty here.
    Empty,
    /// All workers, or one of them by its number.
    Workers(Option<usize>),
    /// All zones in shared memory, or one.
    Slabs(Option<ZoneReport>),
    /// All resolvers with counters, or one.
    Resolvers(Option<Vec<u8>>),
    /// All zones of a kind, or one.
    Zones(Kind, Option<Vec<u8>>),
    /// All caches, or one.
    Caches(Option<Rc<Cache>>),
    Upstreams(EngineKind),
    Upstream(EngineKind, Rc<Group>),
    Servers(EngineKind, Rc<Group>),
    Server(EngineKind, Rc<Group>, Rc<Peer>),
    /// The tables of an engine, or one, or one of its pairs.
    Keyvals(EngineKind),
    Keyval(Rc<keyval::Zone>),
    Pair(Rc<keyval::Zone>, Vec<u8>),
    /// The object of `stub_status json`.
    Status,
    /// The state of `shared_state`.
    SharedState,
    /// All that a dashboard shows.
    Overview,
    /// The histograms of zones of a kind.
    Times(Kind),
    /// The requests of the flight recorder.
    SlowRequests,
    /// The certificates of servers, or one of them.
    Certificates(Option<Known>),
}

/// The versions whose paths are known.
pub(super) const VERSIONS: std::ops::RangeInclusive<u64> = 1..=9;

const SECTIONS: &[&str] = &[
    "nginx",
    "processes",
    "connections",
    "slabs",
    "http",
    "stream",
    "resolvers",
    "ssl",
    "workers",
    "license",
    "weir",
];
const HTTP: &[&str] = &[
    "requests",
    "server_zones",
    "location_zones",
    "caches",
    "limit_conns",
    "limit_reqs",
    "upstreams",
    "keyvals",
];
const SECTIONS_OF_HTTP: &[&str] = &[
    "nginx",
    "processes",
    "connections",
    "slabs",
    "http",
    "resolvers",
    "ssl",
    "workers",
    "license",
    "weir",
];
// Clients that find no zone_sync here do not report it; its path is answered all the same.
const STREAM: &[&str] = &["server_zones", "limit_conns", "upstreams", "keyvals"];
const WEIR: &[&str] = &[
    "status",
    "server_zones",
    "location_zones",
    "upstreams",
    "stream_server_zones",
    "stream_upstreams",
    "slow_requests",
    "certificates",
    "shared_state",
    "v1",
];

fn not_found() -> Refusal {
    Refusal::new(404, "PathNotFound", "path not found")
}

/// The resource of a request's path.
pub(super) fn find(r: &Request, prefix: &[u8]) -> Result<Resource, Refusal> {
    let rest = r.target.uri.strip_prefix(prefix).unwrap_or(&r.target.uri);
    let mut parts: Vec<&[u8]> = rest.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
    match parts.first() {
        None => return Ok(Resource::Root),
        Some(version) if version.iter().all(u8::is_ascii_digit) => {
            let number = base::ascii::parse_u64(version);
            if !number.is_some_and(|number| VERSIONS.contains(&number)) {
                return Err(Refusal::new(404, "UnknownVersion", "unknown version"));
            }
            parts.remove(0);
        }
        Some(_) => {}
    }
    Ok(match parts[..] {
        [] if super::upstreams::has_stream(r) => Resource::Index(SECTIONS),
        [] => Resource::Index(SECTIONS_OF_HTTP),
        [b"nginx"] => Resource::Nginx,
        [b"processes"] => Resource::Processes,
        [b"connections"] => Resource::Connections,
        [b"ssl"] => Resource::Ssl,
        [b"license"] => Resource::Empty,
        [b"slabs"] => Resource::Slabs(None),
        [b"slabs", name] => {
            let zones = r.main.metrics.shared_zones();
            let none = || Refusal::new(404, "SlabNotFound", "slab not found");
            let zone = zones.into_iter().find(|zone| zone.name == name);
            Resource::Slabs(Some(zone.ok_or_else(none)?))
        }
        [b"workers"] => Resource::Workers(None),
        [b"workers", id] => {
            let id = base::ascii::parse_u64(id).and_then(|id| usize::try_from(id).ok());
            let known = id.filter(|id| *id < r.main.stats.workers().len());
            let none = || Refusal::new(404, "WorkerNotFound", "worker not found");
            Resource::Workers(Some(known.ok_or_else(none)?))
        }
        [b"resolvers"] => Resource::Resolvers(None),
        [b"resolvers", name] => {
            let none = || Refusal::new(404, "ResolverZoneNotFound", "resolver zone not found");
            let known = super::whole::resolvers(r).iter().any(|part| part.name == name);
            Resource::Resolvers(Some(known.then(|| name.to_vec()).ok_or_else(none)?))
        }
        [b"http"] => Resource::Index(HTTP),
        [b"http", ref rest @ ..] => in_http(r, rest)?,
        [b"stream"] => Resource::Index(STREAM),
        [b"stream", ref rest @ ..] => in_stream(r, rest)?,
        [b"weir"] => Resource::Index(WEIR),
        [b"weir", b"v1"] => Resource::Index(&["overview"]),
        [b"weir", b"v1", b"overview"] => Resource::Overview,
        [b"weir", b"status"] => Resource::Status,
        [b"weir", b"server_zones"] => Resource::Times(Kind::HttpServer),
        [b"weir", b"location_zones"] => Resource::Times(Kind::Location),
        [b"weir", b"upstreams"] => Resource::Times(Kind::HttpPeer),
        [b"weir", b"stream_upstreams"] => Resource::Times(Kind::StreamPeer),
        [b"weir", b"stream_server_zones"] => Resource::Times(Kind::StreamServer),
        [b"weir", b"slow_requests"] => Resource::SlowRequests,
        [b"weir", b"shared_state"] => Resource::SharedState,
        [b"weir", b"certificates"] => Resource::Certificates(None),
        // Names of files and orders have slashes.
        [b"weir", b"certificates", ..] => {
            let of =
                |known: &Known| rest.ends_with(format!("/certificates/{}", known.name).as_bytes());
            let found = http::ssl::certificates(&r.main).into_iter().find(of);
            let none = || Refusal::new(404, "CertificateNotFound", "certificate not found");
            Resource::Certificates(Some(found.ok_or_else(none)?))
        }
        _ => return Err(not_found()),
    })
}

fn in_http(r: &Request, parts: &[&[u8]]) -> Result<Resource, Refusal> {
    Ok(match parts {
        [b"requests"] => Resource::Requests,
        [b"server_zones", rest @ ..] => zone(r, Kind::HttpServer, rest)?,
        [b"location_zones", rest @ ..] => zone(r, Kind::Location, rest)?,
        [b"limit_conns", rest @ ..] => zone(r, Kind::HttpLimitConn, rest)?,
        [b"limit_reqs", rest @ ..] => zone(r, Kind::LimitReq, rest)?,
        [b"caches"] => Resource::Caches(None),
        [b"caches", name] => {
            let cache =
                http_upstream::caching::all(&r.main).into_iter().find(|cache| cache.name == name);
            let none = || Refusal::new(404, "CacheNotFound", "cache not found");
            Resource::Caches(Some(cache.ok_or_else(none)?))
        }
        [b"upstreams", rest @ ..] => upstream(r, EngineKind::Http, rest)?,
        [b"keyvals", rest @ ..] => keyvals(r, EngineKind::Http, rest)?,
        _ => return Err(not_found()),
    })
}

fn in_stream(r: &Request, parts: &[&[u8]]) -> Result<Resource, Refusal> {
    Ok(match parts {
        [b"server_zones", rest @ ..] => zone(r, Kind::StreamServer, rest)?,
        [b"limit_conns", rest @ ..] => zone(r, Kind::StreamLimitConn, rest)?,
        [b"upstreams", rest @ ..] => upstream(r, EngineKind::Stream, rest)?,
        [b"zone_sync"] => Resource::Empty,
        [b"keyvals", rest @ ..] => keyvals(r, EngineKind::Stream, rest)?,
        _ => return Err(not_found()),
    })
}

fn keyvals(r: &Request, kind: EngineKind, rest: &[&[u8]]) -> Result<Resource, Refusal> {
    let [name, rest @ ..] = rest else { return Ok(Resource::Keyvals(kind)) };
    if !rest.is_empty() {
        return Err(not_found());
    }
    let mut zones = super::keyvals::zones(r, kind).into_iter();
    let zone = zones.find(|zone| zone.name == *name);
    let zone = zone.ok_or(Refusal::new(404, "KeyvalNotFound", "keyval not found"))?;
    Ok(match super::keyvals::key(&r.target.args) {
        Some(key) => Resource::Pair(zone, key),
        None => Resource::Keyval(zone),
    })
}

fn zone(r: &Request, kind: Kind, rest: &[&[u8]]) -> Result<Resource, Refusal> {
    let (code, text) = match kind {
        Kind::HttpServer | Kind::StreamServer => ("ServerZoneNotFound", "server zone not found"),
        Kind::Location => ("LocationZoneNotFound", "location zone not found"),
        Kind::LimitReq => ("LimitReqNotFound", "limit_req not found"),
        _ => ("LimitConnNotFound", "limit_conn not found"),
    };
    match rest {
        [] => Ok(Resource::Zones(kind, None)),
        [name] => match r.main.metrics.zone(kind, name) {
            Some(_) => Ok(Resource::Zones(kind, Some(name.to_vec()))),
            None => Err(Refusal::new(404, code, text)),
        },
        _ => Err(not_found()),
    }
}

fn upstream(r: &Request, kind: EngineKind, rest: &[&[u8]]) -> Result<Resource, Refusal> {
    let [name, rest @ ..] = rest else { return Ok(Resource::Upstreams(kind)) };
    let group = super::upstreams::groups(r, kind).into_iter().find(|group| group.shown() == *name);
    let none = || Refusal::new(404, "UpstreamNotFound", "upstream not found");
    let group = group.ok_or_else(none)?;
    Ok(match rest {
        [] => Resource::Upstream(kind, group),
        [b"servers"] => Resource::Servers(kind, group),
        [b"servers", id] => {
            let bad = || Refusal::new(400, "UpstreamBadServerId", "invalid server ID");
            let id = base::ascii::parse_u64(id).ok_or_else(bad)?;
            let lists = group.servers.lists();
            let peer = lists.all().find(|peer| peer.number() == id).cloned();
            let none = || {
                let text = format!("server with ID \"{id}\" does not exist");
                Refusal::new(404, "UpstreamServerNotFound", text)
            };
            Resource::Server(kind, group, peer.ok_or_else(none)?)
        }
        _ => return Err(not_found()),
    })
}
