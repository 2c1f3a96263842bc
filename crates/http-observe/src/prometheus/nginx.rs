//! The names of nginx's exporter: the eight of its mode for `stub_status`, and those of its mode
//! for the API.

use std::rc::Rc;

use ::upstream::Group;
use ::upstream::api::{EngineKind, state};
use ::upstream::peer::{self, Peer};
use ::upstream::resolver::NamedStatus;
use cache::{Cache, CacheStatus};
use engine::metrics::native::Native;
use engine::metrics::{Kind, Reading, word};
use engine::stats::{Field, WorkerReport};
use http::server::HttpMain;

use super::table::{ABSENT, Column, Table, Type, label};
use crate::api::{caches, upstreams, whole};

/// The eight names that are always there.
pub(super) fn always(main: &Rc<HttpMain>) -> Vec<Table> {
    let counters = [
        ("nginx_connections_accepted", "Accepted client connections.", Field::Accepted),
        ("nginx_connections_handled", "Handled client connections.", Field::Handled),
        ("nginx_http_requests_total", "Requests.", Field::Requests),
        ("nginx_connections_active", "Open client connections.", Field::Active),
        ("nginx_connections_reading", "Connections whose head is read.", Field::Reading),
        ("nginx_connections_writing", "Connections with a request.", Field::Writing),
        ("nginx_connections_waiting", "Idle client connections.", Field::Waiting),
    ];
    let up = Column::new("nginx_up", Type::Gauge, "The server answers.");
    let kind = |field| match field {
        Field::Requests => Type::Counter,
        Field::Accepted | Field::Handled => Type::Untyped,
        _ => Type::Gauge,
    };
    let columns = counters.map(|(name, help, field)| Column::new(name, kind(field), help));
    let stats = main.stats.clone();
    let values = move || {
        let sums = counters.iter().map(|(_, _, field)| stats.sum(*field));
        [1].into_iter().chain(sums).collect()
    };
    vec![Table::single([up].into_iter().chain(columns).collect(), values)]
}

/// All the others.
pub(super) fn tables(main: &Rc<HttpMain>) -> Vec<Table> {
    let mut tables = vec![
        global(main),
        zones(main, Kind::HttpServer, "server_zone", &http_columns(&SERVER), http_values),
        zones(main, Kind::Location, "location_zone", &http_columns(&LOCATION), location_values),
        zones(main, Kind::StreamServer, "server_zone", &stream_columns(), stream_values),
        zones(main, Kind::LimitReq, "zone", &columns(LIMIT_REQ), limit_req_values),
        zones(main, Kind::HttpLimitConn, "zone", &columns(LIMIT_CONN), limit_conn_values),
        zones(main, Kind::StreamLimitConn, "zone", &columns(STREAM_LIMIT_CONN), limit_conn_values),
    ];
    for kind in [EngineKind::Http, EngineKind::Stream] {
        let groups = upstreams::groups_of(main, kind);
        tables.push(group_table(&groups, kind));
        tables.push(peer_table(&groups, kind));
    }
    tables.extend([cache_table(main), resolver_table(main), worker_table(main)]);
    tables
}

/// A family of one column.
type Plain = (&'static str, Type, &'static str);

use Type::{Gauge, Untyped};

fn columns(plain: &[Plain]) -> Vec<Column> {
    plain.iter().map(|(name, kind, help)| Column::new(name, *kind, help)).collect()
}

/// Zones of a kind.
pub(super) fn zones(
    main: &Rc<HttpMain>,
    kind: Kind,
    name: &str,
    columns: &[Column],
    values: fn(&Reading) -> Vec<u64>,
) -> Table {
    let metrics = main.metrics.clone();
    let names: Vec<Vec<u8>> = metrics.zones(kind).iter().map(|zone| zone.name().to_vec()).collect();
    let name = name.to_owned();
    let labels = move |_, zone: &Vec<u8>| label(&name, zone);
    let (of_began, began) = (names.clone(), metrics.clone());
    let (of_native, native) = (names.clone(), metrics.clone());
    let read = move |_, zone: &Vec<u8>| values(&metrics.any(kind, zone).read());
    let mut table = Table::of(columns.to_vec(), names, labels, read);
    table.began_ms = Some(Box::new(move |i| began.any(kind, &of_began[i]).began_ms()));
    table.native = Some(Box::new(move |i| Native::of(&native.any(kind, &of_native[i]).read())));
    table
}

fn global(main: &Rc<HttpMain>) -> Table {
    let main = main.clone();
    let columns = columns(&[
        ("nginxplus_connections_accepted", Untyped, "Accepted client connections."),
        ("nginxplus_connections_dropped", Untyped, "Dropped client connections."),
        ("nginxplus_connections_active", Gauge, "Client connections with a request."),
        ("nginxplus_connections_idle", Gauge, "Idle client connections."),
        ("nginxplus_http_requests_total", Type::Counter, "Requests."),
        ("nginxplus_http_requests_current", Gauge, "Requests under way."),
        ("nginxplus_ssl_handshakes", Untyped, "Handshakes of TLS."),
        ("nginxplus_ssl_handshakes_failed", Untyped, "Failed handshakes of TLS."),
        ("nginxplus_ssl_session_reuses", Untyped, "Resumed sessions of TLS."),
    ]);
    let read = move || {
        let (accepted, dropped) = whole::accepted(&main);
        let ((active, idle), (total, current)) = (whole::open(&main), whole::all_requests(&main));
        let tls = ssl(&whole::handshakes(&main.metrics));
        [accepted, dropped, active, idle, total, current].into_iter().chain(tls).collect()
    };
    Table::single(columns, read)
}

fn ssl(reading: &Reading) -> [u64; 3] {
    [word::HANDSHAKES, word::HANDSHAKES_FAILED, word::SESSION_REUSES].map(|w| reading.get(w))
}

/// The names of a zone's families: requests, responses, their codes, discarded, received, sent.
type HttpNames = [&'static str; 6];

const SERVER: HttpNames = [
    "nginxplus_server_zone_requests",
    "nginxplus_server_zone_responses",
    "nginxplus_server_zone_responses_codes",
    "nginxplus_server_zone_discarded",
    "nginxplus_server_zone_received",
    "nginxplus_server_zone_sent",
];
const LOCATION: HttpNames = [
    "nginxplus_location_zone_requests",
    "nginxplus_location_zone_responses",
    "nginxplus_location_zone_responses_codes",
    "nginxplus_location_zone_discarded",
    "nginxplus_location_zone_received",
    "nginxplus_location_zone_sent",
];

fn http_columns(names: &HttpNames) -> Vec<Column> {
    let [requests, responses, codes, discarded, received, sent] = *names;
    let mut all = vec![Column::new(requests, Untyped, "Requests.")];
    all.extend(response_columns(responses, codes));
    all.push(Column::new(discarded, Untyped, "Requests without a response."));
    all.push(Column::new(received, Untyped, "Bytes received from clients."));
    all.push(Column::new(sent, Untyped, "Bytes sent to clients."));
    if *names == SERVER {
        all.extend(columns(&[
            ("nginxplus_server_zone_processing", Gauge, "Requests under way."),
            ("nginxplus_server_zone_ssl_handshakes", Untyped, "Handshakes of TLS."),
            ("nginxplus_server_zone_ssl_handshakes_failed", Untyped, "Failed handshakes of TLS."),
            ("nginxplus_server_zone_ssl_session_reuses", Untyped, "Resumed sessions of TLS."),
        ]));
    }
    all
}

/// Responses by class, and by status.
fn response_columns(responses: &'static str, codes: &'static str) -> Vec<Column> {
    let class = |class: u16| {
        let column = Column::new(responses, Untyped, "Responses by class.");
        column.with(label("code", format!("{class}xx").as_bytes()))
    };
    let code = |code: &u16| {
        let column = Column::new(codes, Untyped, "Responses by status.");
        column.with(label("code", code.to_string().as_bytes()))
    };
    (1..=5).map(class).chain(word::CODES_KNOWN.iter().map(code)).collect()
}

/// The numbers of [`response_columns`]; statuses that never occurred are left out.
fn response_values(reading: &Reading) -> impl Iterator<Item = u64> {
    let codes = word::CODES_KNOWN.iter().filter_map(|code| word::of_code(*code));
    let codes = codes.map(|word| match reading.get(word) {
        0 => ABSENT,
        n => n,
    });
    (1..=5).map(|class| reading.class(class)).chain(codes)
}

fn location_values(reading: &Reading) -> Vec<u64> {
    let rest = [word::DISCARDED, word::RECEIVED, word::SENT].map(|w| reading.get(w));
    [reading.begun()].into_iter().chain(response_values(reading)).chain(rest).collect()
}

fn http_values(reading: &Reading) -> Vec<u64> {
    let mut values = location_values(reading);
    values.push(reading.get(word::PROCESSING));
    values.extend(ssl(reading));
    values
}

fn stream_columns() -> Vec<Column> {
    let sessions = |class: &str| {
        let column =
            Column::new("nginxplus_stream_server_zone_sessions", Untyped, "Sessions by status.");
        column.with(label("code", class.as_bytes()))
    };
    let mut all = columns(&[
        ("nginxplus_stream_server_zone_processing", Gauge, "Connections under way."),
        ("nginxplus_stream_server_zone_connections", Untyped, "Connections."),
    ]);
    all.extend(["2xx", "4xx", "5xx"].map(sessions));
    all.extend(columns(&[
        ("nginxplus_stream_server_zone_discarded", Untyped, "Connections without a session."),
        ("nginxplus_stream_server_zone_received", Untyped, "Bytes received from clients."),
        ("nginxplus_stream_server_zone_sent", Untyped, "Bytes sent to clients."),
        ("nginxplus_stream_server_zone_ssl_handshakes", Untyped, "Handshakes of TLS."),
        ("nginxplus_stream_server_zone_ssl_handshakes_failed", Untyped, "Failed handshakes."),
        ("nginxplus_stream_server_zone_ssl_session_reuses", Untyped, "Resumed sessions of TLS."),
    ]));
    all
}

fn stream_values(reading: &Reading) -> Vec<u64> {
    let mut values = vec![reading.get(word::PROCESSING), reading.begun()];
    values.extend([2, 4, 5].map(|class| reading.class(class)));
    values.extend([word::DISCARDED, word::RECEIVED, word::SENT].map(|w| reading.get(w)));
    values.extend(ssl(reading));
    values
}

const LIMIT_REQ: &[Plain] = &[
    ("nginxplus_limit_request_passed", Untyped, "Requests that passed."),
    ("nginxplus_limit_request_delayed", Untyped, "Requests that were delayed."),
    ("nginxplus_limit_request_rejected", Untyped, "Requests that were refused."),
    ("nginxplus_limit_request_delayed_dry_run", Untyped, "Requests to delay, in a dry run."),
    ("nginxplus_limit_request_rejected_dry_run", Untyped, "Requests to refuse, in a dry run."),
];
const LIMIT_CONN: &[Plain] = &[
    ("nginxplus_limit_connection_passed", Untyped, "Connections that passed."),
    ("nginxplus_limit_connection_rejected", Untyped, "Connections that were refused."),
    ("nginxplus_limit_connection_rejected_dry_run", Untyped, "The same in a dry run."),
];
const STREAM_LIMIT_CONN: &[Plain] = &[
    ("nginxplus_stream_limit_connection_passed", Untyped, "Connections that passed."),
    ("nginxplus_stream_limit_connection_rejected", Untyped, "Connections that were refused."),
    ("nginxplus_stream_limit_connection_rejected_dry_run", Untyped, "The same in a dry run."),
];

fn limit_req_values(reading: &Reading) -> Vec<u64> {
    use word::{DELAYED, DELAYED_DRY_RUN, PASSED, REJECTED, REJECTED_DRY_RUN};
    let words = [PASSED, DELAYED, REJECTED, DELAYED_DRY_RUN, REJECTED_DRY_RUN];
    words.map(|w| reading.get(w)).into()
}

fn limit_conn_values(reading: &Reading) -> Vec<u64> {
    use word::{PASSED, REJECTED, REJECTED_DRY_RUN};
    [PASSED, REJECTED, REJECTED_DRY_RUN].map(|w| reading.get(w)).into()
}

fn group_table(groups: &[Rc<Group>], kind: EngineKind) -> Table {
    let all = match kind {
        EngineKind::Http => columns(&[
            ("nginxplus_upstream_keepalive", Gauge, "Idle connections."),
            ("nginxplus_upstream_zombies", Gauge, "Removed servers with requests."),
        ]),
        EngineKind::Stream => {
            columns(&[("nginxplus_stream_upstream_zombies", Gauge, "Removed servers in use.")])
        }
    };
    let read = move |_, group: &Rc<Group>| {
        let zombies = group.servers.zombies();
        match kind {
            EngineKind::Http => vec![group.idle(), zombies],
            EngineKind::Stream => vec![zombies],
        }
    };
    Table::of(all, groups.to_vec(), |_, group| label("upstream", &group.shown()), read)
}

/// A line for each server of the groups.
pub(super) fn of_peers(
    groups: &[Rc<Group>],
    columns: Vec<Column>,
    names: [&'static str; 2],
    read: fn(&Peer) -> Vec<u64>,
) -> Table {
    let of_group = |group: &Rc<Group>| -> Vec<(Rc<Group>, Rc<Peer>)> {
        group.servers.lists().all().map(|peer| (group.clone(), peer.clone())).collect()
    };
    let peers: Vec<_> = groups.iter().flat_map(of_group).collect();
    let (began, native) = (peers.clone(), peers.clone());
    let labels = move |_, (group, peer): &(Rc<Group>, Rc<Peer>)| {
        format!("{},{}", label(names[0], &group.shown()), label(names[1], &peer.name))
    };
    let mut table = Table::of(columns, peers, labels, move |_, (_, peer)| read(peer));
    table.began_ms = Some(Box::new(move |i| began[i].1.began_ms()));
    table.native = Some(Box::new(move |i| Native::of(&native[i].1.reading())));
    table
}

fn peer_table(groups: &[Rc<Group>], kind: EngineKind) -> Table {
    match kind {
        EngineKind::Http => {
            let mut all = columns(HTTP_PEER);
            let responses = "nginxplus_upstream_server_responses";
            all.extend(response_columns(responses, "nginxplus_upstream_server_responses_codes"));
            of_peers(groups, all, ["upstream", "server"], |peer| {
                let reading = peer.reading();
                let mut values = peer_values(peer, &reading);
                let headers = reading.get(word::HEADERS);
                values.push(reading.average_ms(word::HEADER_US, headers));
                values.extend(ssl(&reading));
                values.extend(response_values(&reading));
                values
            })
        }
        EngineKind::Stream => {
            of_peers(groups, columns(STREAM_PEER), ["upstream", "server"], |peer| {
                let reading = peer.reading();
                let mut values = peer_values(peer, &reading);
                let headers = reading.get(word::HEADERS);
                values.push(reading.average_ms(word::CONNECT_US, reading.times()));
                values.push(reading.average_ms(word::HEADER_US, headers));
                values.extend(ssl(&reading));
                values
            })
        }
    }
}

/// The numbers of states are those of the exporter.
const STATES: &str = "1 up, 2 draining, 3 down, 4 unavail, 5 checking, 6 unhealthy.";

const HTTP_PEER: &[Plain] = &[
    ("nginxplus_upstream_server_state", Gauge, STATES),
    ("nginxplus_upstream_server_active", Gauge, "Requests under way."),
    ("nginxplus_upstream_server_limit", Gauge, "max_conns of the server."),
    ("nginxplus_upstream_server_requests", Untyped, "Requests."),
    ("nginxplus_upstream_server_sent", Untyped, "Bytes sent to the server."),
    ("nginxplus_upstream_server_received", Untyped, "Bytes received from the server."),
    ("nginxplus_upstream_server_fails", Untyped, "Failed attempts."),
    ("nginxplus_upstream_server_unavail", Untyped, "Times that failures took the server out."),
    ("nginxplus_upstream_server_health_checks_checks", Untyped, "Health checks."),
    ("nginxplus_upstream_server_health_checks_fails", Untyped, "Failed health checks."),
    ("nginxplus_upstream_server_health_checks_unhealthy", Untyped, "Times it was unhealthy."),
    ("nginxplus_upstream_server_response_time", Gauge, "The average time until the end."),
    ("nginxplus_upstream_server_header_time", Gauge, "The average time until the head."),
    ("nginxplus_upstream_server_ssl_handshakes", Untyped, "Handshakes of TLS."),
    ("nginxplus_upstream_server_ssl_handshakes_failed", Untyped, "Failed handshakes."),
    ("nginxplus_upstream_server_ssl_session_reuses", Untyped, "Resumed sessions of TLS."),
];
const STREAM_PEER: &[Plain] = &[
    ("nginxplus_stream_upstream_server_state", Gauge, STATES),
    ("nginxplus_stream_upstream_server_active", Gauge, "Connections under way."),
    ("nginxplus_stream_upstream_server_limit", Gauge, "max_conns of the server."),
    ("nginxplus_stream_upstream_server_connections", Untyped, "Connections."),
    ("nginxplus_stream_upstream_server_sent", Untyped, "Bytes sent to the server."),
    ("nginxplus_stream_upstream_server_received", Untyped, "Bytes received from the server."),
    ("nginxplus_stream_upstream_server_fails", Untyped, "Failed attempts."),
    ("nginxplus_stream_upstream_server_unavail", Untyped, "Times that failures took it out."),
    ("nginxplus_stream_upstream_server_health_checks_checks", Untyped, "Health checks."),
    ("nginxplus_stream_upstream_server_health_checks_fails", Untyped, "Failed health checks."),
    (
        "nginxplus_stream_upstream_server_health_checks_unhealthy",
        Untyped,
        "Times it was unhealthy.",
    ),
    ("nginxplus_stream_upstream_server_response_time", Gauge, "The average time until the end."),
    ("nginxplus_stream_upstream_server_connect_time", Gauge, "The average time of connecting."),
    ("nginxplus_stream_upstream_server_first_byte_time", Gauge, "The same for the first byte."),
    ("nginxplus_stream_upstream_server_ssl_handshakes", Untyped, "Handshakes of TLS."),
    ("nginxplus_stream_upstream_server_ssl_handshakes_failed", Untyped, "Failed handshakes."),
    ("nginxplus_stream_upstream_server_ssl_session_reuses", Untyped, "Resumed sessions."),
];

fn peer_values(peer: &Peer, reading: &Reading) -> Vec<u64> {
    let states = ["up", "draining", "down", "unavail", "checking", "unhealthy"];
    let state = states.iter().position(|name| *name == state(peer)).unwrap_or(0) as u64 + 1;
    let mut values = vec![state, peer.active(reading), peer.spec.max_conns, reading.begun()];
    let words = [word::SENT, word::RECEIVED, word::FAILS, word::UNAVAILABLE];
    values.extend(words.map(|w| reading.get(w)));
    use peer::word::{CHECKS, CHECKS_FAILED, UNHEALTHY};
    values.extend([CHECKS, CHECKS_FAILED, UNHEALTHY].map(|w| peer.get(w)));
    values.push(reading.average_ms(word::TIME_US, reading.times()));
    values
}

fn cache_table(main: &Rc<HttpMain>) -> Table {
    let mut all = columns(&[
        ("nginxplus_cache_size", Gauge, "Bytes of files."),
        ("nginxplus_cache_max_size", Gauge, "max_size of the cache."),
        ("nginxplus_cache_cold", Gauge, "Not all files are known yet."),
    ]);
    const STATUSES: [(CacheStatus, &str, &str); 7] = [
        (CacheStatus::Hit, "nginxplus_cache_hit_responses", "nginxplus_cache_hit_bytes"),
        (CacheStatus::Stale, "nginxplus_cache_stale_responses", "nginxplus_cache_stale_bytes"),
        (
            CacheStatus::Updating,
            "nginxplus_cache_updating_responses",
            "nginxplus_cache_updating_bytes",
        ),
        (
            CacheStatus::Revalidated,
            "nginxplus_cache_revalidated_responses",
            "nginxplus_cache_revalidated_bytes",
        ),
        (CacheStatus::Miss, "nginxplus_cache_miss_responses", "nginxplus_cache_miss_bytes"),
        (
            CacheStatus::Expired,
            "nginxplus_cache_expired_responses",
            "nginxplus_cache_expired_bytes",
        ),
        (CacheStatus::Bypass, "nginxplus_cache_bypass_responses", "nginxplus_cache_bypass_bytes"),
    ];
    for (_, responses, bytes) in STATUSES {
        all.push(Column::new(responses, Untyped, "Responses with this part of the cache in them."));
        all.push(Column::new(bytes, Untyped, "Bytes of these responses."));
    }
    let (metrics, all_caches) = (main.metrics.clone(), http_upstream::caching::all(main));
    let read = move |_, cache: &Rc<Cache>| {
        let report = cache.report();
        let max = report.max_bytes.unwrap_or(0);
        let mut values = vec![report.bytes, max, u64::from(!report.is_loaded)];
        for (status, ..) in STATUSES {
            let (requests, bytes) = caches::requests(&metrics, cache, status);
            values.extend([requests, bytes]);
        }
        values
    };
    Table::of(all, all_caches, |_, cache| label("zone", &cache.name), read)
}

fn resolver_table(main: &Rc<HttpMain>) -> Table {
    let all = columns(&[
        ("nginxplus_resolver_name", Untyped, "Queries for addresses."),
        ("nginxplus_resolver_srv", Untyped, "Queries for SRV records."),
        ("nginxplus_resolver_addr", Untyped, "Queries for names of addresses."),
        ("nginxplus_resolver_noerror", Untyped, "Answers without an error."),
        ("nginxplus_resolver_formerr", Untyped, "Answers FORMERR."),
        ("nginxplus_resolver_servfail", Untyped, "Answers SERVFAIL."),
        ("nginxplus_resolver_nxdomain", Untyped, "Answers NXDOMAIN."),
        ("nginxplus_resolver_notimp", Untyped, "Answers NOTIMP."),
        ("nginxplus_resolver_refused", Untyped, "Answers REFUSED."),
        ("nginxplus_resolver_timedout", Untyped, "Queries that timed out."),
        ("nginxplus_resolver_unknown", Untyped, "Queries with another error."),
    ]);
    let (metrics, parts) = (main.metrics.clone(), main.metrics.parts::<NamedStatus>());
    Table::of(
        all,
        parts,
        |_, part| label("resolver", &part.name),
        move |_, part| whole::resolver_values(&metrics, part),
    )
}

fn worker_table(main: &Rc<HttpMain>) -> Table {
    let all = columns(&[
        ("nginxplus_worker_connection_accepted", Untyped, "Accepted connections."),
        ("nginxplus_worker_connection_dropped", Untyped, "Dropped connections."),
        ("nginxplus_worker_connection_active", Gauge, "Connections with a request."),
        ("nginxplus_worker_connection_idle", Gauge, "Idle connections."),
        ("nginxplus_worker_http_requests_total", Type::Counter, "Requests."),
        ("nginxplus_worker_http_requests_current", Gauge, "Requests under way."),
    ]);
    let labels = |id, w: &WorkerReport| format!("id=\"{id}\",pid=\"{}\"", w.pid);
    Table::of(all, main.stats.workers(), labels, |_, w| {
        let (dropped, active) =
            (w.accepted.saturating_sub(w.handled), w.active.saturating_sub(w.waiting));
        vec![w.accepted, dropped, active, w.waiting, w.requests, w.writing]
    })
}
