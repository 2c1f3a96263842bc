//! `keyval`: tables that workers share, changed by variables and by the API, and their state files.

use std::fs;

use testkit::{Driver, Json, Site, Weir, built_binary, each_driver, refused, wait_until};

use crate::api::ask;

const CONF: &str = "
    keyval $arg_k $text zone=text;
    keyval_zone zone=text:1m state=text.json;
    keyval_zone zone=timed:1m timeout=1h state=timed.json;
    keyval_zone zone=nets:1m type=ip;
    keyval_zone zone=paths:1m type=prefix timeout=1d;
    keyval_zone zone=small:32k;
    keyval_zone zone=evicts:32k full=evict;
    keyval $remote_addr $net zone=nets;
    keyval $arg_addr $of_addr zone=nets;
    keyval $uri $of_path zone=paths;
    keyval $arg_k $timed zone=timed;
    keyval \"$arg_k:$http_x\" $small zone=small;
    server {
        listen 127.0.0.1:%PORT0%;
        location / { return 200 \"$text|$timed|$net|$of_addr|$of_path|\"; }
        location /set { set $text $arg_v; return 200 $text; }
        location /small { set $small $arg_v; return 200 $small; }
        location /api { api write=on; }
        location /look { api; }
    }";

/// The workers must be able to write the state files: they stay who they are.
fn site(driver: Driver) -> Site {
    let user = if os::process::geteuid().is_root() { "user root;" } else { "" };
    Site::new(built_binary(), driver)
        .allow("exited on signal 9")
        .config(&format!("{user} worker_processes 2; events {{}} http {{ {CONF} }}"))
}

fn start(driver: Driver) -> Weir {
    site(driver).start()
}

fn text(weir: &Weir, path: &str) -> String {
    String::from_utf8(weir.get(path).body).unwrap()
}

fn api(weir: &Weir, method: &str, rest: &str, body: &str) -> (u16, String) {
    ask(weir, &format!("{method} /api/9/http/keyvals/{rest}"), "", body)
}

#[test]
fn values_are_found_set_and_changed() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/?k=a"), "|||||");
        assert_eq!(api(&weir, "POST", "text", "{\"a\":\"1\",\"b\":\"2\"}").0, 201);
        assert_eq!(text(&weir, "/?k=a"), "1|||||");
        assert_eq!(text(&weir, "/set?k=new&v=x%20y"), "x%20y");
        assert_eq!(text(&weir, "/?k=new"), "x%20y|||||");
        assert_eq!(api(&weir, "PATCH", "text", "{\"a\":\"\u{e9}\"}").0, 204);
        assert_eq!(api(&weir, "GET", "text?key=a", ""), (200, "{\"a\":\"\u{e9}\"}\n".to_owned()));
        assert_eq!(api(&weir, "PATCH", "text", "{\"b\":null}").0, 204);
        let all = Json::parse(&api(&weir, "GET", "text", "").1);
        assert_eq!(all.names(), ["a", "new"]);
        assert_eq!(
            api(&weir, "POST", "nets", "{\"127.0.0.0/8\":\"own\",\"10.0.0.0/8\":\"ten\"}").0,
            201
        );
        assert_eq!(api(&weir, "POST", "paths", "{\"/ab\":\"long\",\"/\":\"short\"}").0, 201);
        assert_eq!(text(&weir, "/abc?addr=10.9.8.7"), "||own|ten|long|");
        assert_eq!(text(&weir, "/a?addr=11.9.8.7"), "||own||short|");
        let zones = Json::parse(&api(&weir, "GET", "", "").1);
        assert_eq!(zones.names(), ["evicts", "nets", "paths", "small", "text", "timed"]);
        assert_eq!(zones.at("nets").names(), ["10.0.0.0/8", "127.0.0.0/8"]);
        assert!(zones.at("small").names().is_empty());
        let names = api(&weir, "GET", "?fields=", "").1;
        assert_eq!(names, "[\"text\",\"timed\",\"nets\",\"paths\",\"small\",\"evicts\"]\n");
        assert_eq!(api(&weir, "DELETE", "text", "").0, 204);
        assert_eq!(api(&weir, "GET", "text", "").1, "{}\n");
    });
}

#[test]
fn large_tables_are_shown_whole_and_emptied() {
    each_driver(|driver| {
        let weir = start(driver);
        let pairs: Vec<_> = (0..3000).map(|n| format!("\"key{n}\":\"v{n}\"")).collect();
        assert_eq!(api(&weir, "POST", "text", &format!("{{{}}}", pairs.join(","))).0, 201);
        let all = Json::parse(&api(&weir, "GET", "text", "").1);
        assert_eq!(all.names().len(), 3000);
        assert_eq!(*all.at("key2999"), Json::Text("v2999".to_owned()));
        assert_eq!(text(&weir, "/?k=key1234"), "v1234|||||");
        assert_eq!(api(&weir, "DELETE", "text", "").0, 204);
        assert_eq!(api(&weir, "GET", "text", "").1, "{}\n");
    });
}

#[test]
fn wrong_changes_are_refused_and_change_nothing() {
    let weir = start(Driver::usual());
    assert_eq!(api(&weir, "POST", "text", "{\"a\":\"1\"}").0, 201);
    let expire = "{\"b\":{\"value\":\"x\",\"expire\":1000}}";
    for (method, zone, body, status, code) in [
        ("POST", "text", "{", 415, "JsonError"),
        ("POST", "text", "[]", 415, "JsonError"),
        ("POST", "text", "{\"b\":\"1\",\"b\":\"2\"}", 415, "JsonError"),
        ("POST", "text", "{}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"b\":true}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"b\":null}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"b\":{\"value\":1}}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"b\":{\"value\":\"1\",\"x\":1}}", 400, "KeyvalFormatError"),
        ("POST", "text", expire, 400, "KeyvalFormatError"),
        ("POST", "timed", "{\"b\":{\"value\":\"x\",\"expire\":-1}}", 400, "KeyvalFormatError"),
        ("POST", "timed", "{\"b\":{\"value\":\"x\",\"expire\":\"1\"}}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"b\":\"1\",\"c\":\"2\"}", 400, "KeyvalFormatError"),
        ("POST", "text", "{\"a\":\"2\"}", 409, "KeyvalKeyExists"),
        ("POST", "nets", "{\"10.0.0.0/99\":\"2\"}", 400, "KeyvalFormatError"),
        ("PATCH", "text", "{\"a\":\"1\",\"b\":\"2\"}", 400, "KeyvalFormatError"),
        ("PATCH", "text", "{\"b\":\"1\"}", 404, "KeyvalKeyNotFound"),
        ("PATCH", "text", "{\"b\":null}", 404, "KeyvalKeyNotFound"),
        ("PATCH", "none", "{\"b\":null}", 404, "KeyvalNotFound"),
        ("GET", "text?key=b", "", 404, "KeyvalKeyNotFound"),
        ("PUT", "text", "{\"a\":\"2\"}", 405, "MethodDisabled"),
    ] {
        let (got, said) = api(&weir, method, zone, body);
        assert_eq!(got, status, "{method} {zone} {body}: {said}");
        let error = Json::parse(&said);
        assert_eq!(*error.at("error.code"), Json::Text(code.to_owned()), "{body}: {said}");
    }
    let look = ask(&weir, "DELETE /look/9/http/keyvals/text", "", "");
    assert_eq!(look.0, 405);
    assert_eq!(api(&weir, "GET", "text", "").1, "{\"a\":\"1\"}\n");
    // A number is its text, as in NGINX Plus.
    assert_eq!(api(&weir, "PATCH", "text", "{\"a\":-1.5}").0, 204);
    assert_eq!(api(&weir, "GET", "text", "").1, "{\"a\":\"-1.5\"}\n");
    assert_eq!(api(&weir, "POST", "timed", expire).0, 201);
    assert_eq!(api(&weir, "PATCH", "timed", "{\"b\":{\"expire\":1}}").0, 204);
    wait_until("the end of its time", || text(&weir, "/?k=b") == "|||||");
    assert_eq!(api(&weir, "POST", "timed", expire).0, 201);
}

#[test]
fn a_full_zone_refuses_or_evicts_as_configured() {
    each_driver(|driver| {
        let weir = start(driver);
        let value = "v".repeat(2000);
        let filled = |zone: &str| {
            let add = |n: u32| api(&weir, "POST", zone, &format!("{{\"k{n}\":\"{value}\"}}"));
            (0..40).map(|n| add(n).0).find(|status| *status != 201)
        };
        assert_eq!((filled("small"), filled("evicts")), (Some(507), None));
        assert_eq!(api(&weir, "GET", "evicts?key=k39", "").0, 200);
        assert_eq!(api(&weir, "GET", "evicts?key=k0", "").0, 404);
        weir.get(&format!("/small?k=x&v={value}"));
        let line = weir.wait_for_log("error.log", "keyval zone \"small\"");
        assert!(line.contains("a pair is not stored: the zone is full"), "{line}");
    });
}

#[test]
fn tables_outlive_reloads_restarts_and_killed_workers() {
    each_driver(|driver| {
        let mut weir = start(driver);
        weir.get("/set?k=by%20variable&v=1");
        assert_eq!(api(&weir, "POST", "timed", "{\"session\":\"secret\"}").0, 201);
        assert_eq!(api(&weir, "POST", "paths", "{\"/\":\"root\"}").0, 201);
        let state = weir.prefix().join("timed.json");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
        let before = weir.workers();
        weir.reload();
        weir.wait_until_left(&before);
        assert_eq!(text(&weir, "/?k=session"), "|secret|||root|");
        // A worker that leaves writes what it has not written yet.
        let workers = weir.workers();
        weir.get("/set?k=leaving&v=yes");
        workers.iter().for_each(|worker| weir.signal_to(*worker, "QUIT"));
        weir.wait_until_left(&workers);
        let state = fs::read_to_string(weir.prefix().join("text.json")).unwrap();
        assert!(state.contains("leaving"), "{state}");
        wait_until("other workers", || weir.workers().len() == workers.len());
        let workers = weir.workers();
        weir.signal_to(workers[0], "KILL");
        weir.wait_until_left(&workers[..1]);
        assert_eq!(text(&weir, "/?k=session"), "|secret|||root|");
        // Also what a variable has set a moment ago.
        weir.get("/set?k=last&v=2");
        weir.restart();
        assert_eq!(text(&weir, "/?k=session"), "|secret||||");
        assert_eq!(text(&weir, "/?k=by%20variable"), "1|||||");
        assert_eq!(text(&weir, "/?k=last"), "2|||||");
        // Keys are compared in another way, so the memory is new.
        let conf = weir.prefix().join("conf/weir.conf");
        let changed = fs::read_to_string(&conf).unwrap().replace("text:1m", "text:1m type=prefix");
        fs::write(&conf, changed).unwrap();
        weir.reload();
        // Workers of before may take connections until they are told to leave.
        wait_until("the new memory", || text(&weir, "/?k=lastly") == "2|||||");
    });
}

#[test]
fn damaged_state_files_are_told_of_and_kept() {
    for damaged in ["{\"a\":\"1\"", "[1]", "{\"a\":1}", "", "{\"a\":{\"key\":\"base64\"}}", "\u{0}"]
    {
        let mut weir = site(Driver::usual()).file("text.json", damaged.as_bytes()).start();
        let line = weir.wait_for_log("error.log", "text.json");
        assert!(line.contains("the table starts empty"), "{line}");
        assert_eq!(api(&weir, "POST", "text", "{\"b\":\"2\"}").0, 201);
        let kept = fs::read_to_string(weir.prefix().join("text.json.damaged")).unwrap();
        assert_eq!(kept, damaged);
        weir.restart();
        assert_eq!(text(&weir, "/?k=b"), "2|||||");
    }
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "*",
        &[
            ("keyval_zone zone=a:1m; keyval_zone zone=a:1m;", "duplicate zone \"a\" in"),
            ("keyval_zone state=x;", "\"keyval_zone\" directive must have \"zone\" parameter in"),
            ("keyval_zone zone=a:1m timeout=x;", "invalid timeout \"timeout=x\" in"),
            ("keyval_zone zone=a:1m timeout=1s ttl=2s;", "has two timeouts in"),
            ("keyval_zone zone=a:1m type=net;", "invalid type \"type=net\" in"),
            ("keyval_zone zone=a:1m full=x;", "invalid parameter \"full=x\" in"),
            ("keyval_zone zone=a:1m state=;", "invalid state \"state=\" in"),
            ("keyval_zone zone=a:1m sync;", "\"sync\" needs the parameter \"timeout\" in"),
            ("keyval_zone zone=a:1k;", "zone \"zone=a:1k\" is too small in"),
            ("keyval $uri $x zone=a;", "zero size shared memory zone \"a\" in"),
            ("keyval $uri $x a;", "invalid parameter \"a\" in"),
            ("keyval_zone zone=a:1m; keyval $uri x zone=a;", "invalid variable name \"x\" in"),
            (
                "keyval_zone zone=a:1m; keyval $uri $host zone=a;",
                "the duplicate \"host\" variable in",
            ),
        ],
    );
}

#[test]
fn many_pairs_are_stored_over_several_turns_of_the_loop() {
    each_driver(|driver| {
        let conf =
            CONF.replace("location /look", "location /state { stub_status json; } location /look");
        let user = if os::process::geteuid().is_root() { "user root;" } else { "" };
        let weir = Site::new(built_binary(), driver)
            .config(&format!("{user} worker_processes 1; events {{}} http {{ {conf} }}"))
            .start();
        let turns = || Json::parse(&text(&weir, "/state")).number("loop.turns");
        let body = |count: usize| {
            let pairs: Vec<String> = (0..count).map(|n| format!("\"k{n}\":\"{n}\"")).collect();
            format!("{{{}}}", pairs.join(","))
        };
        let before = turns();
        assert_eq!(api(&weir, "POST", "timed", &body(4_000)).0, 201);
        // Both the checks and the stores pause after every 256 pairs; a body of this length takes
        // no more than a handful of turns otherwise.
        assert!(turns() - before >= 30, "{} turns", turns() - before);
        assert_eq!(text(&weir, "/?k=k3999"), "|3999||||");
        assert_eq!(api(&weir, "POST", "timed", &body(2)).0, 400, "the table is not empty");
        let broken = body(4_000).replace("\"3999\"}", "\"3999\"");
        assert_eq!(api(&weir, "POST", "timed", &broken).0, 415);
    });
}
