//! The API in the shape of nginx's version 9, and the counters that it shows.

use std::io::Read;
use std::net::TcpListener;

use testkit::{Backend, Driver, Json, Site, Weir, built_binary, each_driver, wait_until};

/// The shape of a value. `Map` is an object with names of any kind; a name that ends with `?` may
/// be missing, and no others may be there.
enum Shape {
    N,
    S,
    B,
    Time,
    Map(Box<Shape>),
    List(Box<Shape>),
    Object(Vec<(&'static str, Shape)>),
}
use Shape::{B, List, Map, N, Object, S, Time};

impl Shape {
    fn check(&self, value: &Json, at: &str) {
        match (self, value) {
            (N, Json::Number(n)) => assert!(*n >= 0.0, "{at}: {n}"),
            (S, Json::Text(_)) | (B, Json::Bool(_)) => {}
            (Time, Json::Text(t)) => {
                assert!(t.len() == 24 && t.ends_with('Z') && &t[10..11] == "T", "{at}: {t}");
            }
            (Map(shape), Json::Object(members)) => {
                members.iter().for_each(|(name, v)| shape.check(v, &format!("{at}.{name}")));
            }
            (List(shape), Json::List(items)) => {
                items.iter().for_each(|item| shape.check(item, &format!("{at}[]")));
            }
            (Object(shapes), Json::Object(members)) => {
                for (name, shape) in shapes {
                    match (members.get(name.trim_end_matches('?')), name.ends_with('?')) {
                        (Some(v), _) => shape.check(v, &format!("{at}.{name}")),
                        (None, true) => {}
                        (None, false) => panic!("{at} has no {name}: {value:?}"),
                    }
                }
                for name in members.keys() {
                    let known = shapes.iter().any(|(n, _)| n.trim_end_matches('?') == name);
                    assert!(known, "{at} has {name}, which version 9 has not");
                }
            }
            (_, other) => panic!("{at} is {other:?}"),
        }
    }
}

fn numbers(names: &[&'static str]) -> Shape {
    Object(names.iter().map(|name| (*name, N)).collect())
}

fn map(shape: Shape) -> Shape {
    Map(Box::new(shape))
}

fn ssl() -> Shape {
    numbers(&[
        "handshakes",
        "session_reuses",
        "handshakes_failed",
        "no_common_protocol?",
        "no_common_cipher?",
        "handshake_timeout?",
        "peer_rejected_cert?",
    ])
}

fn responses() -> Shape {
    let mut members: Vec<_> =
        ["1xx", "2xx", "3xx", "4xx", "5xx", "total"].map(|name| (name, N)).into();
    members.push(("codes", map(N)));
    Object(members)
}

fn location_zone() -> Shape {
    Object(vec![
        ("requests", N),
        ("responses", responses()),
        ("discarded", N),
        ("received", N),
        ("sent", N),
    ])
}

fn server_zone() -> Shape {
    let Object(mut members) = location_zone() else { unreachable!() };
    members.extend([("processing", N), ("ssl?", ssl())]);
    Object(members)
}

fn stream_zone() -> Shape {
    Object(vec![
        ("processing", N),
        ("connections", N),
        ("discarded", N),
        ("received", N),
        ("sent", N),
        ("sessions", numbers(&["2xx", "4xx", "5xx", "total"])),
        ("ssl?", ssl()),
    ])
}

fn peer(own: Vec<(&'static str, Shape)>) -> Shape {
    let health = Object(vec![("checks", N), ("fails", N), ("unhealthy", N), ("last_passed?", B)]);
    let mut members = vec![
        ("id", N),
        ("server", S),
        ("name", S),
        ("service?", S),
        ("backup", B),
        ("weight", N),
        ("state", S),
        ("active", N),
        ("max_conns?", N),
        ("response_time?", N),
        ("sent", N),
        ("received", N),
        ("fails", N),
        ("unavail", N),
        ("health_checks", health),
        ("downtime", N),
        ("downstart?", Time),
        ("selected?", Time),
        ("ssl?", ssl()),
    ];
    members.extend(own);
    Object(members)
}

fn upstream() -> Shape {
    let peer = peer(vec![("requests", N), ("responses", responses()), ("header_time?", N)]);
    let queue = numbers(&["size", "max_size", "overflows"]);
    Object(vec![
        ("peers", List(Box::new(peer))),
        ("keepalive", N),
        ("zombies", N),
        ("zone", S),
        ("queue?", queue),
    ])
}

fn stream_upstream() -> Shape {
    let peer = peer(vec![("connections", N), ("connect_time?", N), ("first_byte_time?", N)]);
    Object(vec![("peers", List(Box::new(peer))), ("zombies", N), ("zone", S)])
}

fn settings(route: bool) -> Shape {
    let mut members = vec![
        ("id", N),
        ("server", S),
        ("name?", S),
        ("service?", S),
        ("weight", N),
        ("max_conns", N),
        ("max_fails", N),
        ("fail_timeout", S),
        ("slow_start", S),
        ("backup", B),
        ("down", B),
        ("drain?", B),
    ];
    members.extend(route.then_some(("route", S)));
    Object(members)
}

fn cache() -> Shape {
    let mut members = vec![("size", N), ("max_size?", N), ("cold", B)];
    for name in ["hit", "stale", "updating", "revalidated", "miss", "expired", "bypass"] {
        members.push((name, numbers(&["responses", "bytes"])));
    }
    Object(members)
}

fn worker() -> Shape {
    let requests = Object(vec![("requests", numbers(&["total", "current"]))]);
    let connections = numbers(&["accepted", "dropped", "active", "idle"]);
    Object(vec![("id", N), ("pid", N), ("connections", connections), ("http", requests)])
}

fn paths() -> Vec<(&'static str, Shape)> {
    let names = || List(Box::new(S));
    let resolver = Object(vec![
        ("requests", numbers(&["name", "srv", "addr"])),
        (
            "responses",
            numbers(&[
                "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout",
                "unknown",
            ]),
        ),
    ]);
    let slab = || Object(vec![("pages", numbers(&["used", "free"])), ("slots", map(N))]);
    let nginx = Object(vec![
        ("version", S),
        ("build", S),
        ("address", S),
        ("generation", N),
        ("load_timestamp", Time),
        ("timestamp", Time),
        ("pid", N),
        ("ppid", N),
    ]);
    let limit_conn = || numbers(&["passed", "rejected", "rejected_dry_run"]);
    let limit_req = ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    vec![
        ("/", List(Box::new(N))),
        ("/9/", names()),
        ("/9/nginx", nginx),
        ("/9/processes", numbers(&["respawned"])),
        ("/9/connections", numbers(&["accepted", "dropped", "active", "idle"])),
        ("/9/slabs/", map(slab())),
        ("/9/slabs/app", slab()),
        ("/9/ssl", ssl()),
        ("/9/workers/", List(Box::new(worker()))),
        ("/9/workers/0", worker()),
        ("/9/license", Object(Vec::new())),
        ("/9/resolvers/", map(resolver)),
        ("/9/http/", names()),
        ("/9/http/requests", numbers(&["total", "current"])),
        ("/9/http/server_zones/", map(server_zone())),
        ("/9/http/server_zones/main", server_zone()),
        ("/9/http/location_zones/", map(location_zone())),
        ("/9/http/location_zones/place", location_zone()),
        ("/9/http/caches/", map(cache())),
        ("/9/http/caches/c", cache()),
        ("/9/http/limit_conns/", map(limit_conn())),
        ("/9/http/limit_conns/lc", limit_conn()),
        ("/9/http/limit_reqs/", map(numbers(&limit_req))),
        ("/9/http/limit_reqs/lr", numbers(&limit_req)),
        ("/9/http/upstreams/", map(upstream())),
        ("/9/http/upstreams/app", upstream()),
        ("/9/http/upstreams/app/servers/", List(Box::new(settings(true)))),
        ("/9/http/upstreams/app/servers/1", settings(true)),
        ("/9/http/keyvals/", Object(Vec::new())),
        ("/9/stream/", names()),
        ("/9/stream/server_zones/", map(stream_zone())),
        ("/9/stream/limit_conns/", map(limit_conn())),
        ("/9/stream/upstreams/", map(stream_upstream())),
        ("/9/stream/upstreams/sapp/servers/", List(Box::new(settings(false)))),
        ("/9/stream/keyvals/", Object(Vec::new())),
        ("/9/stream/zone_sync/", Object(Vec::new())),
    ]
}

fn look(weir: &Weir, path: &str) -> Json {
    let response = weir.get(&format!("/api{path}"));
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    assert_eq!(response.header("Content-Type"), Some("application/json"), "{path}");
    Json::parse(&response.text())
}

/// Asks with a body, or without one where it is empty.
pub fn ask(weir: &Weir, line: &str, fields: &str, body: &str) -> (u16, String) {
    let (mut c, len) = (weir.connect(), body.len());
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {len}\r\n") };
    c.send(format!("{line} HTTP/1.1\r\nHost: me:1\r\n{length}{fields}\r\n{body}"));
    let response = c.response_to(line.split(' ').next().unwrap());
    (response.status, response.text())
}

fn whole_config(port: u16) -> String {
    format!(
        "worker_processes 2; events {{}} http {{
         resolver 127.0.0.1:1 status_zone=names;
         limit_req_zone $binary_remote_addr zone=lr:64k rate=1000r/s;
         limit_conn_zone $binary_remote_addr zone=lc:64k;
         proxy_cache_path cache keys_zone=c:1m max_size=10m;
         upstream app {{ zone app 64k; server 127.0.0.1:{port}; server 127.0.0.1:1 backup; queue 5; }}
         upstream own {{ server 127.0.0.1:{port}; keepalive 2; }}
         server {{ listen 127.0.0.1:%PORT0%; server_name main api.example *.wild.example;
             location / {{ status_zone place; return 200 x; location /in {{ return 204; }} }}
             location /app {{ limit_req zone=lr burst=9; limit_conn lc 9; proxy_pass http://app; }}
             location /own {{ proxy_pass http://own; proxy_cache c; proxy_cache_valid 1m; }}
             location /closed {{ return 444; }}
             location /api {{ api write=on; }}
             location /look {{ api; }} }}
         server {{ listen 127.0.0.1:%PORT1%; status_zone $arg_z; return 200 x; }} }}
         stream {{ limit_conn_zone $remote_addr zone=slc:64k;
         upstream sapp {{ zone sapp 64k; server 127.0.0.1:{port}; }}
         server {{ listen 127.0.0.1:%PORT2%; limit_conn slc 5; proxy_pass sapp; }} }}"
    )
}

#[test]
fn every_path_has_the_shape_of_version_9() {
    each_driver(|driver| {
        let b = Backend::start();
        let weir = Site::new(built_binary(), driver).config(&whole_config(b.port)).start();
        for path in ["/", "/in", "/app", "/nothing"] {
            weir.get(path);
        }
        // A response is kept behind its client's back.
        wait_until("a hit", || {
            weir.get("/own");
            look(&weir, "/9/http/caches/c").number("hit.responses") > 0
        });
        assert!(weir.raw("GET /closed HTTP/1.1\r\nHost: main\r\n\r\n").is_empty());
        for (path, shape) in paths() {
            shape.check(&look(&weir, path), path);
            // A path without its slash, and without the version, is the same.
            shape.check(&look(&weir, path.trim_end_matches('/')), path);
        }
        // A request is over a moment after its client has the answer.
        let look_at_main = || look(&weir, "/9/http/server_zones/main");
        wait_until("one request under way", || look_at_main().number("processing") == 1);
        let main = look_at_main();
        assert_eq!(main.number("responses.codes.204"), 1);
        assert_eq!((main.number("responses.codes.444"), main.number("discarded")), (1, 1));
        assert_eq!(main.number("responses.4xx"), 0);
        let place = look(&weir, "/9/http/location_zones/place");
        assert_eq!((place.number("requests"), place.number("responses.2xx")), (3, 3));
        let app = look(&weir, "/9/http/upstreams/app");
        assert_eq!((app.number("peers.0.requests"), app.number("peers.1.requests")), (1, 0));
        assert_eq!(app.number("peers.0.responses.codes.200"), 1);
        assert!(app.number("peers.0.received") > 0 && app.number("peers.0.sent") > 0);
        let own = look(&weir, "/9/http/upstreams/own");
        let cache = look(&weir, "/9/http/caches/c");
        assert_eq!(own.number("peers.0.requests"), cache.number("miss.responses"));
        assert!(cache.number("hit.bytes") > 0);
        for limit in ["limit_conns/lc", "limit_reqs/lr"] {
            assert_eq!(look(&weir, &format!("/9/http/{limit}")).number("passed"), 1);
        }
    });
}

#[test]
fn fields_are_chosen() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    assert_eq!(look(&weir, "/9/nginx?fields=pid,generation").names(), ["generation", "pid"]);
    let zones = look(&weir, "/9/http/upstreams?fields=zone");
    assert_eq!(zones.at("app").names(), ["zone"]);
    let peers = look(&weir, "/9/http/upstreams/app?fields=peers");
    assert_eq!(peers.names(), ["peers"]);
    let names = look(&weir, "/9/http/upstreams?fields=");
    let text = |name: &str| Json::Text(name.to_owned());
    assert_eq!(names, Json::List(vec![text("app"), text("own")]));
}

#[test]
fn counters_begin_at_zero_again() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    for path in ["/", "/app", "/own", "/own"] {
        weir.get(path);
    }
    for (path, member, least) in [
        ("connections", "accepted", 1),
        ("http/requests", "total", 1),
        ("http/location_zones/place", "requests", 0),
        ("http/server_zones/main", "responses.2xx", 1),
        ("http/caches/c", "hit.responses", 0),
        ("http/limit_reqs/lr", "passed", 0),
        ("http/upstreams/app", "peers.0.requests", 0),
        ("processes", "respawned", 0),
    ] {
        let before = look(&weir, &format!("/9/{path}")).number(member);
        let (status, text) = ask(&weir, &format!("DELETE /api/9/{path}"), "", "");
        assert_eq!((status, text.as_str()), (204, ""), "{path}");
        let after = look(&weir, &format!("/9/{path}")).number(member);
        assert!(after <= least + 1 && (after < before || before == 0), "{path}: {before} {after}");
    }
}

#[test]
fn wrong_requests_have_the_errors_of_version_9() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    let servers = "/api/9/http/upstreams/app/servers";
    let one = "{\"server\":\"127.0.0.1:9\"}";
    for (line, fields, body, status, code) in [
        ("GET /api/9/none", "", "", 404, "PathNotFound"),
        ("GET /api/10/nginx", "", "", 404, "UnknownVersion"),
        ("GET /api/0/nginx", "", "", 404, "UnknownVersion"),
        ("GET /api/9/http/server_zones/none", "", "", 404, "ServerZoneNotFound"),
        ("GET /api/9/http/location_zones/none", "", "", 404, "LocationZoneNotFound"),
        ("GET /api/9/http/caches/none", "", "", 404, "CacheNotFound"),
        ("GET /api/9/http/limit_reqs/none", "", "", 404, "LimitReqNotFound"),
        ("GET /api/9/http/limit_conns/none", "", "", 404, "LimitConnNotFound"),
        ("GET /api/9/http/upstreams/none", "", "", 404, "UpstreamNotFound"),
        ("GET /api/9/http/keyvals/none", "", "", 404, "KeyvalNotFound"),
        ("GET /api/9/slabs/none", "", "", 404, "SlabNotFound"),
        ("GET /api/9/resolvers/none", "", "", 404, "ResolverZoneNotFound"),
        ("GET /api/9/workers/99", "", "", 404, "WorkerNotFound"),
        ("GET /api/9/http/upstreams/app/servers/x", "", "", 400, "UpstreamBadServerId"),
        ("GET /api/9/http/upstreams/app/servers/99", "", "", 404, "UpstreamServerNotFound"),
        ("PUT /api/9/nginx", "", "", 405, "MethodDisabled"),
        ("POST /api/9/nginx", "", "{}", 405, "MethodDisabled"),
        ("DELETE /api/9/nginx", "", "", 405, "MethodDisabled"),
        ("DELETE /look/9/connections", "", "", 405, "MethodDisabled"),
        ("POST /api/9/http/upstreams/own/servers", "", one, 400, "UpstreamStatic"),
        (&format!("POST {servers}"), "", "{", 415, "JsonError"),
        (&format!("POST {servers}"), "", "{}", 400, "UpstreamConfFormatError"),
        (&format!("POST {servers}"), "", "{\"server\":[]}", 400, "UpstreamConfFormatError"),
        (&format!("POST {servers}"), "", "{\"server\":\"x y\"}", 400, "UpstreamBadAddress"),
        (&format!("POST {servers}"), "Origin: http://evil.example\r\n", one, 403, "ForeignOrigin"),
        (&format!("POST {servers}"), "Origin: null\r\n", one, 403, "ForeignOrigin"),
        (&format!("POST {servers}"), "Sec-Fetch-Site: cross-site\r\n", one, 403, "ForeignOrigin"),
    ] {
        let (got, text) = ask(&weir, line, fields, body);
        assert_eq!(got, status, "{line} {body}: {text}");
        let error = Json::parse(&text);
        assert_eq!(error.number("error.status"), u64::from(status), "{text}");
        assert_eq!(*error.at("error.code"), Json::Text(code.to_owned()), "{line} {body}: {text}");
        assert_eq!(error.names(), ["error", "href", "request_id"]);
    }
    assert_eq!(ask(&weir, &format!("POST {servers}"), "Origin: http://me:1\r\n", one).0, 201);
}

/// A page of another site changes nothing by its visitor's browser, though it gets itself this
/// server's address by a name of its own (DNS rebinding).
#[test]
fn pages_of_other_sites_change_nothing() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    let one = "{\"server\":\"127.0.0.1:9\"}";
    for (host, fields, status) in [
        ("api.example", "Origin: http://api.example\r\n", 201),
        ("API.example:81", "Origin: http://api.example:81\r\n", 201),
        ("x.wild.example", "Referer: http://x.wild.example/dashboard?x\r\n", 201),
        ("127.0.0.1:1", "Origin: http://127.0.0.1:1\r\n", 201),
        ("[::1]", "Origin: http://[::1]\r\n", 201),
        ("a.localhost", "Origin: http://a.localhost\r\n", 201),
        ("evil.example", "", 201),
        ("evil.example", "Origin: http://evil.example\r\n", 403),
        ("evil.example:81", "Referer: http://evil.example:81/a\r\n", 403),
        ("api.example", "Referer: http://evil.example/http://api.example/\r\n", 403),
        ("api.example", "Origin: http://api.example\r\nReferer: http://evil.example/\r\n", 403),
        ("api.example", "Referer: nonsense\r\n", 403),
    ] {
        let (mut c, len) = (weir.connect(), one.len());
        let line = "POST /api/9/http/upstreams/app/servers HTTP/1.1";
        c.send(format!("{line}\r\nHost: {host}\r\nContent-Length: {len}\r\n{fields}\r\n{one}"));
        let response = c.response_to("POST");
        assert_eq!(response.status, status, "{host} {fields}: {}", response.text());
    }
    let change = "api: a change is refused: ";
    weir.wait_for_log("error.log", &format!("{change}the request comes from a page of another"));
    weir.wait_for_log(
        "error.log",
        &format!("{change}no server has the name of the request's host"),
    );
}

#[test]
fn servers_of_stream_are_changed_too() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    let servers = "/api/9/stream/upstreams/sapp/servers";
    let (status, text) =
        ask(&weir, &format!("POST {servers}"), "", "{\"server\":\"127.0.0.1:9\",\"weight\":3}");
    assert_eq!(status, 201, "{text}");
    let id = Json::parse(&text).number("id");
    let one = format!("{servers}/{id}");
    // A client may send all that it knows.
    let (status, text) =
        ask(&weir, &format!("PATCH {one}"), "", "{\"server\":\"127.0.0.1:9\",\"down\":true}");
    assert_eq!((status, Json::parse(&text).at("down")), (200, &Json::Bool(true)), "{text}");
    assert_eq!(ask(&weir, &format!("PATCH {one}"), "", "{\"server\":\"127.0.0.1:8\"}").0, 400);
    assert_eq!(ask(&weir, &format!("DELETE {one}"), "", "").0, 200);
    assert_eq!(ask(&weir, &format!("GET {one}"), "", "").0, 404);
}

#[test]
fn zones_named_by_clients_have_any_bytes() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&whole_config(b.port)).start();
    let long = "x".repeat(1000);
    for name in ["a", "a", "q\"uo\\te", "%ff%00", "{}", &long, ""] {
        let mut c = testkit::Conn::tcp(weir.port(1));
        c.send(format!("GET /?z={name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(c.response().status, 200);
    }
    let zones = look(&weir, "/9/http/server_zones");
    assert_eq!(zones.at("a").number("requests"), 2);
    assert_eq!(zones.at("q\"uo\\te").number("requests"), 1);
    assert_eq!(zones.names().len(), 6, "{:?}", zones.names());
}

/// Requests that no worker lost agree with the access log; those of a lost worker count as lost.
#[test]
fn counters_are_exact_over_reloads_and_kills() {
    each_driver(|driver| {
        // It takes requests and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = format!(
            "worker_processes 2; events {{}} http {{ access_log logs/access.log;
             server {{ listen 127.0.0.1:%PORT0%; server_name watch; access_log off;
                 location /api {{ api; }} }}
             server {{ listen 127.0.0.1:%PORT1%; server_name main;
                 location / {{ return 200 x; }}
                 location /silent {{ proxy_pass http://127.0.0.1:{}; }} }} }}",
            silent.local_addr().unwrap().port()
        );
        let site = Site::new(built_binary(), driver).config(&config);
        let weir = site.allow("exited on signal 9").start();
        let connect = || testkit::Conn::tcp(weir.port(1));
        let get = || {
            let mut c = connect();
            c.send("GET / HTTP/1.1\r\nHost: main\r\n\r\n");
            assert_eq!(c.response().status, 200);
        };
        let mut hanging = connect();
        hanging.send("GET /silent HTTP/1.1\r\nHost: main\r\n\r\n");
        let (mut upstream, _) = silent.accept().unwrap();
        assert!(upstream.read(&mut [0; 1024]).unwrap() > 0);
        let old = weir.workers();
        (0..20).for_each(|_| get());
        weir.reload();
        (0..20).for_each(|_| get());
        // The line of a response is written behind it, and lost with its worker.
        let logged = || weir.log("access.log").lines().count() as u64;
        wait_until("the log is written", || logged() == 40);
        // Of those that leave, one still has the request.
        let left = || {
            let lives = |pid: &&u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
            old.iter().filter(lives).copied().collect::<Vec<_>>()
        };
        wait_until("one worker is left", || left().len() == 1);
        weir.signal_to(left()[0], "KILL");
        let lost = || look(&weir, "/9/weir/server_zones").number("main.lost");
        wait_until("the loss is known", || lost() == 1);
        let main = || look(&weir, "/9/http/server_zones/main");
        wait_until("all is over", || main().number("processing") == 0);
        assert_eq!(logged(), 40);
        assert_eq!((main().number("responses.total"), main().number("requests")), (40, 41));
        assert_eq!(look(&weir, "/9/nginx").number("generation"), 2);
    });
}

/// A thousand servers do not come in one piece, and a client that reads slowly gets them all.
#[test]
fn large_answers_come_in_pieces() {
    each_driver(|driver| {
        let servers: String =
            (0..1000).map(|i| format!("server 127.0.{}.{}:9;", i / 250, i % 250 + 1)).collect();
        let config = format!(
            "events {{}} http {{ upstream big {{ zone big 4m; {servers} }}
             server {{ listen 127.0.0.1:%PORT0%; location /api {{ api; }} }} }}"
        );
        let weir = Site::new(built_binary(), driver).config(&config).start();
        let mut never = weir.connect();
        never.send("GET /api/9/http/upstreams HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut c = weir.connect();
        c.send("GET /api/9/http/upstreams HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = String::from_utf8(c.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
        let mut text = Vec::new();
        loop {
            let chunk = c.read_chunk();
            if chunk.is_empty() {
                break;
            }
            text.extend(chunk);
        }
        let all = Json::parse(&String::from_utf8(text).unwrap());
        let Json::List(peers) = all.at("big.peers") else { panic!("{all:?}") };
        assert_eq!(peers.len(), 1000);
        let mut c = weir.connect();
        c.send("GET /api/9/weir/upstreams HTTP/1.0\r\n\r\n");
        let text = String::from_utf8(c.read_to_end()).unwrap();
        let times = Json::parse(text.split("\r\n\r\n").nth(1).unwrap());
        assert_eq!(times.at("big").names().len(), 1000);
        let settings = look(&weir, "/9/http/upstreams/big/servers");
        let Json::List(settings) = settings else { panic!("{settings:?}") };
        assert_eq!(settings.len(), 1000);
        drop(never);
    });
}
