//! `shared_state`: servers that share limits and tables through a Redis of the system's package,
//! and what they do without it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use testkit::{Driver, Peer, Port, Site, Weir, each_driver, signal, wait_until};

use crate::common::BINARY;

/// A Redis on a port that stays the same when it is started again.
struct Redis {
    peer: Option<Peer>,
    port: u16,
    more: String,
    /// Nobody else gets the port.
    #[allow(dead_code, reason = "held while the engine may listen there")]
    reserved: Port,
}

impl Redis {
    fn start(more: &str) -> Redis {
        let mut redis = Redis::absent();
        redis.more = more.to_owned();
        redis.begin();
        redis
    }

    /// A port at which nothing listens.
    fn absent() -> Redis {
        let reserved = Port::reserve();
        Redis { peer: None, port: reserved.number(), reserved, more: String::new() }
    }

    fn begin(&mut self) {
        let (port, more) = (self.port, self.more.replace("%AT%", &self.port.to_string()));
        let conf = format!(
            "bind 127.0.0.1\nport {port}\nsave \"\"\nappendonly no\ndir %DIR%\n\
             repl-diskless-sync-delay 0\n{more}\n"
        );
        let arguments = ["%DIR%/redis.conf"];
        let files = [("redis.conf", &*conf)];
        let peer = Peer::start_at("redis-server", "redis-server", &files, &arguments, Some(port));
        self.peer = Some(peer);
    }

    fn signal(&self, name: &str) {
        signal(self.peer.as_ref().unwrap().pid(), name);
    }

    fn end(&mut self) {
        self.peer = None;
    }

    /// Runs a command; the first line of the answer.
    fn run(&self, command: &str) -> String {
        run(self.port, command)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if self.peer.is_some() {
            // A stopped one would not hear that it is to end.
            self.signal("CONT");
        }
    }
}

fn run(port: u16, command: &str) -> String {
    let mut to = TcpStream::connect(("127.0.0.1", port)).unwrap();
    to.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(to).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A server that shares a limit and a table.
fn node(driver: Driver, url: &str) -> Weir {
    let config = format!(
        "shared_state {url} prefix=test interval=20ms timeout=400ms;
         worker_processes 2;
         events {{}}
         http {{
             limit_req_zone $arg_k zone=z:1m rate=1r/m sync;
             limit_req_zone $arg_k zone=own:1m rate=1r/m;
             limit_req_zone $arg_k zone=login:1m rate=1r/m sync=strict on_error=deny wait=2s;
             limit_req_zone $arg_k zone=local:1m rate=1r/m sync=strict wait=10ms;
             keyval_zone zone=t:1m timeout=1h sync;
             keyval $arg_k $v zone=t;
             limit_req_status 429;
             server {{
                 listen 127.0.0.1:%PORT0%;
                 root html;
                 location /a.txt {{ limit_req zone=z burst=4 nodelay; }}
                 location /login.txt {{ limit_req zone=login; }}
                 location /local.txt {{ limit_req zone=local; }}
                 location /value {{ return 200 \"[$v]\"; }}
                 location /set {{ set $v $arg_v; return 200 \"[$v]\"; }}
                 location /status {{ stub_status json; }}
                 location /metrics {{ prometheus; }}
                 location /api {{ api write=on; }}
             }}
         }}"
    );
    Site::new(BINARY, driver)
        .file("html/a.txt", "hello")
        .file("html/login.txt", "hello")
        .file("html/local.txt", "hello")
        .config(&config)
        .allow("shared state process * exited on signal 9")
        .start()
}

fn url(redis: &Redis) -> String {
    format!("redis://127.0.0.1:{}", redis.port)
}

fn status(weir: &Weir) -> String {
    String::from_utf8(weir.get("/status").body).unwrap()
}

fn number(weir: &Weir, name: &str) -> u64 {
    let status = status(weir);
    let section = status.split("\"shared_state\":{").nth(1).expect("the section");
    let rest = section.split(&format!("\"{name}\":")).nth(1).expect("the number");
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

fn is(weir: &Weir, state: &str) -> bool {
    status(weir).contains(&format!("\"state\":\"{state}\""))
}

fn wait_for_state(weir: &Weir, state: &str) {
    wait_until(state, || is(weir, state));
}

/// Two whole rounds pass.
fn wait_for_rounds(weir: &Weir) {
    let before = number(weir, "rounds");
    wait_until("rounds", || number(weir, "rounds") >= before + 3);
}

/// Sends requests of a key until one is refused; the number of those that passed.
fn passed(weir: &Weir, key: &str) -> usize {
    let path = format!("/a.txt?k={key}");
    (0..)
        .take_while(|_| match weir.get(&path).status {
            200 => true,
            429 => false,
            other => panic!("status {other}"),
        })
        .count()
}

fn value(weir: &Weir, key: &str) -> String {
    String::from_utf8(weir.get(&format!("/value?k={key}")).body).unwrap()
}

fn wait_for_value(weir: &Weir, key: &str, expected: &str) {
    wait_until(&format!("{key} is {expected}"), || value(weir, key) == format!("[{expected}]"));
}

/// Lines of the log about the engine.
fn lines(weir: &Weir) -> Vec<String> {
    let log = std::fs::read_to_string(weir.prefix().join("logs/error.log")).unwrap();
    let all = log.lines().filter_map(|line| line.split_once("shared state: "));
    all.map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn servers_share_a_rate_and_a_table() {
    each_driver(|driver| {
        let redis = Redis::start("");
        let (one, two) = (node(driver, &url(&redis)), node(driver, &url(&redis)));
        wait_for_state(&one, "joined");
        wait_for_state(&two, "joined");
        // One request and four above the rate.
        assert_eq!(passed(&one, "a"), 5);
        wait_for_rounds(&one);
        // The other server does not know of them when it is asked first, and soon after does.
        assert_eq!(two.get("/a.txt?k=a").status, 200);
        wait_for_rounds(&two);
        assert_eq!(passed(&two, "a"), 0);
        assert_eq!(passed(&two, "b"), 5, "another key");
        one.get("/set?k=x&v=1");
        wait_for_value(&two, "x", "1");
        two.get("/set?k=x&v=2");
        two.get("/set?k=y&v=3");
        wait_for_value(&one, "x", "2");
        wait_for_value(&one, "y", "3");
        assert_eq!(one.request("DELETE", "/api/9/http/keyvals/t", "").status, 204);
        wait_for_value(&two, "x", "");
        wait_for_value(&two, "y", "");
        wait_until("both are known", || number(&one, "peers") == 2);
        let metrics = String::from_utf8(two.get("/metrics").body).unwrap();
        assert!(metrics.contains("\nweir_shared_state_joined 1\n"), "{metrics}");
        let shown = String::from_utf8(two.get("/api/9/weir/shared_state").body).unwrap();
        assert!(shown.contains("\"zones\":[{\"name\":\"t\"},{\"name\":\"z\"}]"), "{shown}");
    });
}

#[test]
fn a_strict_limit_lets_one_pass_of_all() {
    each_driver(|driver| {
        let redis = Redis::start("");
        let (one, two) = (node(driver, &url(&redis)), node(driver, &url(&redis)));
        wait_for_state(&one, "joined");
        wait_for_state(&two, "joined");
        assert_eq!((number(&one, "waits"), number(&two, "waits")), (0, 0));
        for key in ["a", "b"] {
            let path = format!("/login.txt?k={key}");
            let statuses = [&one, &two, &one, &two].map(|weir| weir.get(&path).status);
            assert_eq!(statuses, [200, 429, 429, 429], "{key}");
        }
        assert_eq!((number(&one, "waits"), number(&two, "waits")), (4, 4));
        // Nobody answers: one zone refuses, the other one has a local limit.
        redis.signal("STOP");
        let statuses = ["/login.txt?k=c", "/local.txt?k=c", "/local.txt?k=c"];
        let statuses = statuses.map(|path| one.get(path).status);
        assert_eq!(statuses, [429, 200, 429]);
        redis.signal("CONT");
    });
}

#[test]
fn a_server_starts_without_the_engine_and_joins_it_later() {
    let mut redis = Redis::absent();
    let weir = node(Driver::usual(), &url(&redis));
    wait_for_state(&weir, "away");
    assert_eq!(passed(&weir, "a"), 5, "the limit is local");
    weir.get("/set?k=x&v=early");
    redis.begin();
    wait_for_state(&weir, "joined");
    let other = node(Driver::usual(), &url(&redis));
    wait_for_value(&other, "x", "early");
    let lines = lines(&weir);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("is away: connection refused"), "{lines:?}");
    assert!(lines[1].contains("is back after"), "{lines:?}");
}

#[test]
fn each_fault_leaves_local_limits_and_costs_one_line() {
    let mut redis = Redis::start("");
    let (one, two) = (node(Driver::usual(), &url(&redis)), node(Driver::usual(), &url(&redis)));
    wait_for_state(&one, "joined");
    wait_for_state(&two, "joined");
    let mut count = lines(&one).len();
    let mut fault = |redis: &mut Redis, name: &str, end: &str| {
        wait_for_state(&one, "away");
        assert_eq!(passed(&one, name), 5, "{name}: the limit is local");
        assert_eq!(value(&one, "kept"), "[1]", "{name}");
        match end {
            "" => redis.begin(),
            "CONT" => redis.signal("CONT"),
            command => assert_eq!(redis.run(command), "+OK", "{name}"),
        }
        wait_for_state(&one, "joined");
        wait_for_state(&two, "joined");
        one.get(&format!("/set?k={name}&v=after"));
        wait_for_value(&two, name, "after");
        let lines = lines(&one);
        count += 2;
        assert_eq!(lines.len(), count, "{name}: {lines:?}");
    };
    one.get("/set?k=kept&v=1");
    wait_for_value(&two, "kept", "1");
    redis.signal("STOP");
    fault(&mut redis, "stopped", "CONT");
    redis.signal("KILL");
    redis.end();
    fault(&mut redis, "killed", "");
    assert_eq!(redis.run("CONFIG SET maxmemory 1"), "+OK");
    one.get("/set?k=memory&v=before");
    fault(&mut redis, "memory", "CONFIG SET maxmemory 0");
    let nowhere = Port::reserve();
    assert_eq!(redis.run(&format!("REPLICAOF 127.0.0.1 {}", nowhere.number())), "+OK");
    fault(&mut redis, "replica", "REPLICAOF NO ONE");
}

#[test]
fn an_emptied_engine_is_filled_again() {
    let redis = Redis::start("");
    let one = node(Driver::usual(), &url(&redis));
    one.get("/set?k=x&v=1");
    wait_for_state(&one, "joined");
    wait_for_rounds(&one);
    assert_eq!(redis.run("FLUSHALL"), "+OK");
    wait_for_rounds(&one);
    assert_eq!(passed(&one, "a"), 5);
    let two = node(Driver::usual(), &url(&redis));
    wait_for_value(&two, "x", "1");
}

#[test]
fn a_server_that_was_cut_off_agrees_again() {
    let redis = Redis::start("");
    let (one, two) = (node(Driver::usual(), &url(&redis)), node(Driver::usual(), &url(&redis)));
    one.get("/set?k=goes&v=1");
    one.get("/set?k=changes&v=1");
    wait_for_value(&two, "goes", "1");
    wait_for_value(&two, "changes", "1");
    let helper = helper(&two);
    signal(helper, "STOP");
    one.get("/set?k=changes&v=2");
    two.get("/set?k=own&v=3");
    let body = "{\"goes\":null}";
    let patch = format!(
        "PATCH /api/9/http/keyvals/t HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    assert!(one.raw(patch).starts_with(b"HTTP/1.1 204"));
    wait_for_rounds(&one);
    assert_eq!((value(&two, "goes"), value(&two, "changes")), ("[1]".into(), "[1]".into()));
    signal(helper, "CONT");
    wait_for_value(&two, "goes", "");
    wait_for_value(&two, "changes", "2");
    wait_for_value(&one, "own", "3");
}

/// The shared state process of a server.
fn helper(weir: &Weir) -> u32 {
    testkit::wait_for("the shared state process", || {
        weir.children_of(weir.pid()).into_iter().find(|pid| {
            let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            title.starts_with(b"weir: shared state process")
        })
    })
}

#[test]
fn the_process_is_started_again_and_follows_reloads() {
    let redis = Redis::start("");
    let mut weir = node(Driver::usual(), &url(&redis));
    wait_for_state(&weir, "joined");
    let first = helper(&weir);
    signal(first, "KILL");
    wait_until("another process", || helper(&weir) != first);
    weir.get("/set?k=x&v=1");
    wait_for_rounds(&weir);
    let second = helper(&weir);
    weir.reload();
    wait_until("another process", || helper(&weir) != second);
    assert_eq!(value(&weir, "x"), "[1]");
    wait_for_rounds(&weir);
    // Without the directive nothing may be shared.
    weir.set_config(
        "events {} http { server { listen 127.0.0.1:%PORT0%; location /status { stub_status json; } } }",
    );
    let old = helper(&weir);
    weir.reload();
    wait_until("no process", || !weir.children_of(weir.pid()).contains(&old));
    // A worker that leaves may still answer.
    wait_until("the new status", || status(&weir).contains("\"shared_state\":{}"));
}

#[test]
fn a_wrong_password_and_garbage_are_named() {
    let redis = Redis::start("requirepass right\n");
    let wrong = format!("redis://:wrong@127.0.0.1:{}", redis.port);
    let weir = node(Driver::usual(), &wrong);
    wait_for_state(&weir, "away");
    wait_until("the reason", || {
        lines(&weir).iter().any(|line| line.contains("authentication failed"))
    });
    assert!(lines(&weir).iter().all(|line| !line.contains("wrong@")));
    let weir = node(Driver::usual(), &format!("redis://:right@127.0.0.1:{}", redis.port));
    wait_for_state(&weir, "joined");
    // Something else than an engine listens.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut bytes = [0; 64];
            let _ = client.read(&mut bytes);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let weir = node(Driver::usual(), &format!("redis://127.0.0.1:{port}"));
    wait_for_state(&weir, "away");
    assert_eq!(passed(&weir, "a"), 5);
}

#[test]
fn accounts_and_password_files_work() {
    let redis = Redis::start(
        "user default off\nuser weir on >s3cret ~test:* +@read +@write +@scripting +time +client +ping\n",
    );
    let config = format!(
        "shared_state redis://weir@127.0.0.1:{} prefix=test interval=20ms password_file=password;
         events {{}}
         http {{ keyval_zone zone=t:1m timeout=1h sync;
             server {{ listen 127.0.0.1:%PORT0%; location /status {{ stub_status json; }} }} }}",
        redis.port
    );
    let site = Site::new(BINARY, Driver::usual()).file("conf/password", "s3cret\n");
    let weir = site.config(&config).start();
    wait_for_state(&weir, "joined");
    wait_for_rounds(&weir);
    let output = Site::new(BINARY, Driver::usual())
        .config(&config)
        .is_refused("\"shared_state\": open() \"");
    assert!(output.contains("conf/password\" failed"), "{output}");
}

/// A password in the address is in no dump, and in no message about the directive.
#[test]
fn passwords_are_not_shown() {
    let folder = testkit::Folder::new("passwords");
    let with = |args: &[&str], more: &str| {
        let text = format!("shared_state redis://weir:s3cret@127.0.0.1:1 {more};\nevents {{}}\n");
        let file = folder.write("weir.conf", &text);
        let mut command = std::process::Command::new(BINARY);
        let output = command.args(args).arg("-c").arg(file).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_fine, shown) = with(&["-T"], "");
    assert!(is_fine && shown.contains("shared_state") && !shown.contains("s3cret"), "{shown}");
    for more in ["redis://weir:s3cret@127.0.0.1:2", "password=s3cret"] {
        let (is_fine, shown) = with(&["-t"], more);
        assert!(!is_fine && shown.contains("invalid parameter"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn sentinels_name_the_new_primary() {
    let (mut first, second) = (Redis::start(""), Redis::start(""));
    assert_eq!(second.run(&format!("REPLICAOF 127.0.0.1 {}", first.port)), "+OK");
    wait_until("the replica", || {
        run_all(second.port, "INFO replication").contains("master_link_status:up")
    });
    let conf = format!(
        "bind 127.0.0.1\nport %PORT%\ndir %DIR%\nsentinel monitor main 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 1000\n",
        first.port
    );
    let arguments = ["%DIR%/sentinel.conf"];
    let files = [("sentinel.conf", &*conf)];
    let sentinel = Peer::start("redis-sentinel", "redis-sentinel", &files, &arguments);
    wait_until("the sentinel knows the replica", || {
        run_all(sentinel.port(), "INFO sentinel").contains("slaves=1")
    });
    // Another one is stopped: its kernel takes connections, and it never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|at| (at.port(), silent)).unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", silent.0, sentinel.port());
    let url = format!("redis://{hosts} sentinel=main");
    let (one, two) = (node(Driver::usual(), &url), node(Driver::usual(), &url));
    one.get("/set?k=x&v=1");
    wait_for_value(&two, "x", "1");
    first.signal("KILL");
    first.end();
    wait_for_state(&one, "away");
    assert_eq!(passed(&one, "a"), 5);
    wait_for_state(&one, "joined");
    wait_for_state(&two, "joined");
    one.get("/set?k=x&v=2");
    wait_for_value(&two, "x", "2");
}

/// Runs a command whose answer is a text of several lines.
fn run_all(port: u16, command: &str) -> String {
    let mut to = TcpStream::connect(("127.0.0.1", port)).unwrap();
    to.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(to);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let len = line.trim_end().trim_start_matches('$').parse().unwrap();
    let mut text = vec![0; len];
    reader.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_cluster_is_followed() {
    let bus = Port::reserve();
    let redis = Redis::start(&format!("cluster-enabled yes\ncluster-port {}\n", bus.number()));
    assert_eq!(redis.run("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
    wait_until("the cluster", || run_all(redis.port, "CLUSTER INFO").contains("cluster_state:ok"));
    let url = format!("redis://127.0.0.1:{} cluster", redis.port);
    let (one, two) = (node(Driver::usual(), &url), node(Driver::usual(), &url));
    wait_for_state(&one, "joined");
    one.get("/set?k=x&v=1");
    wait_for_value(&two, "x", "1");
    assert_eq!(passed(&one, "a"), 5);
    wait_for_rounds(&one);
    assert_eq!(two.get("/a.txt?k=a").status, 200);
    wait_for_rounds(&two);
    assert_eq!(passed(&two, "a"), 0);
}

#[test]
fn keys_of_another_program_are_left_alone() {
    let redis = Redis::start("");
    assert_eq!(redis.run("LPUSH test:{k:t}:d theirs"), ":1");
    let weir = node(Driver::usual(), &url(&redis));
    weir.get("/set?k=x&v=1");
    wait_until("the line", || {
        lines(&weir)
            .iter()
            .any(|line| line.contains("zone \"t\" with prefix \"test\" is not shared"))
    });
    assert_eq!(passed(&weir, "a"), 5);
    wait_for_rounds(&weir);
    assert_eq!(redis.run("LLEN test:{k:t}:d"), ":1");
    assert!(is(&weir, "joined"));
}

#[test]
fn what_cannot_work_is_refused() {
    let refused = |text: &str, message: &str| {
        Site::new(BINARY, Driver::usual()).config(text).is_refused(message);
    };
    let zone = |more: &str| {
        let of = "shared_state redis://a prefix=a; events {}";
        format!("{of} http {{ limit_req_zone $arg_k zone=z:1m rate=1r/s {more}; }}")
    };
    refused(&zone("on_error=open"), "\"on_error=open\" needs \"sync=strict\"");
    refused(&zone("sync sync=strict"), "exclude each other");
    refused(&zone("sync=strict on_error=x"), "invalid parameter \"on_error=x\"");
    refused(&zone("sync=strict wait=0"), "invalid wait \"wait=0\"");
    refused("events {} http { proxy_cache_path c keys_zone=c:1m sync; }", "\"sync\" needs");
    let needs = "\"sync\" needs the directive \"shared_state\"";
    refused("events {} http { limit_req_zone $arg_k zone=z:1m rate=1r/s sync; }", needs);
    refused("events {} http { keyval_zone zone=z:1m timeout=1h sync; }", needs);
    refused("events {} stream { keyval_zone zone=z:1m timeout=1h sync; }", needs);
    refused("shared_state redis://a; shared_state redis://b; events {}", "is duplicate");
    let told = "write `shared_state redis://HOST:6379 prefix=NAME;`";
    refused("events {} stream { server { zone_sync; } }", told);
}

#[test]
fn the_password_is_not_dumped() {
    let text = "shared_state redis://u:hunter2@127.0.0.1:1; events {}";
    let site = Site::new(BINARY, Driver::usual()).config(text);
    let output = site.run(&["-T"]);
    let all = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && all.contains("shared_state ***;"), "{all}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("hunter2") && told.contains("use \"password_file=\""), "{told}");
}

#[test]
fn tls_needs_the_right_authority_and_certificate() {
    let folder = testkit::Folder::new("certificates");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    testkit::openssl::openssl(
        &folder,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"),
    );
    for name in ["redis", "client"] {
        testkit::openssl::openssl(
            &folder,
            &format!(
                "req -x509 {key} -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem \
                 -subj /CN={name} -days 2 -addext subjectAltName=IP:127.0.0.1 \
                 -addext basicConstraints=critical,CA:FALSE"
            ),
        );
    }
    let dir = folder.display();
    let redis = Redis::start(&format!(
        "port 0\ntls-port %AT%\ntls-cert-file {dir}/redis.pem\ntls-key-file {dir}/redis.key\n\
         tls-ca-cert-file {dir}/ca.pem\ntls-auth-clients yes"
    ));
    let url = format!("rediss://127.0.0.1:{} ca={dir}/ca.pem", redis.port);
    let own = format!("{url} certificate={dir}/client.pem key={dir}/client.key");
    let (one, two) = (node(Driver::usual(), &own), node(Driver::usual(), &own));
    one.get("/set?k=x&v=1");
    wait_for_value(&two, "x", "1");
    let without = node(Driver::usual(), &url);
    wait_for_state(&without, "away");
    let unknown = format!("rediss://127.0.0.1:{} ca={dir}/client.pem", redis.port);
    let unknown = node(Driver::usual(), &unknown);
    wait_for_state(&unknown, "away");
    assert_eq!(passed(&unknown, "a"), 5);
}
