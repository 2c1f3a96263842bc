//! `/weir/v1/overview`: the hour of history that the server keeps, and what is new since an answer.

use testkit::{Driver, Json, Scripted, Site, Weir, built_binary, each_driver, wait_until};

fn site(driver: Driver, more: &str) -> Site {
    let config = format!(
        "worker_processes 2; events {{}} http {{ {more}
         server {{ listen 127.0.0.1:%PORT0%; server_name main;
             location /api {{ api; }} location / {{ return 200 x; }} }} }}"
    );
    Site::new(built_binary(), driver).config(&config)
}

fn overview(weir: &Weir, arguments: &str) -> Json {
    let answer = weir.get(&format!("/api/weir/v1/overview?{arguments}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    Json::parse(&answer.text())
}

fn text(json: &Json, path: &str) -> String {
    match json.at(path) {
        Json::Text(text) => text.clone(),
        other => panic!("{path}: {other:?}"),
    }
}

fn list<'a>(json: &'a Json, path: &str) -> &'a [Json] {
    match json.at(path) {
        Json::List(all) => all,
        other => panic!("{path}: {other:?}"),
    }
}

fn events(json: &Json) -> Vec<String> {
    list(json, "events").iter().map(|event| text(event, "text")).collect()
}

#[test]
fn events_of_the_server_are_on_the_time_axis() {
    each_driver(|driver| {
        let allowed = site(driver, "").allow("exited on signal 9").allow("unknown directive");
        let mut weir = allowed.start();
        wait_until("the start", || events(&overview(&weir, "")) == ["the server started"]);
        let before = overview(&weir, "");
        assert_eq!(*before.at("server.complete"), Json::Bool(true));
        assert_eq!(before.number("server.format"), 1);
        weir.reload();
        let since = format!("since={}", text(&before, "server.token"));
        wait_until("the reload", || events(&overview(&weir, &since)) == ["configuration 2 serves"]);
        let after = overview(&weir, &since);
        assert_eq!(*after.at("server.complete"), Json::Bool(false));
        assert_eq!(after.number("server.generation"), 2);
        let since = format!("since={}", text(&after, "server.token"));
        assert!(events(&overview(&weir, &since)).is_empty());
        wait_until("the old workers are gone", || weir.workers().len() == 2);
        // New connections may go to the dead worker's ring for a moment: this one is another's.
        let mut kept = weir.connect();
        let mut ask = |path: &str| {
            kept.send(format!("GET /api/9/{path} HTTP/1.1\r\nHost: main\r\n\r\n"));
            Json::parse(&kept.response().text())
        };
        let serves = ask("nginx").number("pid");
        let other = |pid: &u32| u64::from(*pid) != serves;
        let killed = weir.workers().into_iter().find(other).unwrap();
        weir.signal_to(killed, "KILL");
        let text = format!("worker process {killed} was killed by signal 9");
        let path = format!("weir/v1/overview?{since}");
        wait_until("the death", || events(&ask(&path)).contains(&text));
        weir.set_config("events { no_such_thing; }");
        weir.signal("HUP");
        let text = "the new configuration was refused".to_owned();
        wait_until("the refusal", || events(&ask(&path)).contains(&text));
        // A token of another server is answered with everything.
        let other = ask("weir/v1/overview?since=1.2.3.4");
        assert_eq!(*other.at("server.complete"), Json::Bool(true));
        assert!(events(&other).len() >= 4);
    });
}

#[test]
fn a_step_has_the_growth_of_all_counters() {
    let ok = Scripted::start(|mut stream, _| {
        use std::io::Write;
        if testkit::read_until(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n")).is_some() {
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let port = ok.port;
    let more = format!(
        "upstream app {{ zone app 64k; server 127.0.0.1:{port}; }}
         server {{ listen 127.0.0.1:%PORT1%; server_name other; location / {{ proxy_pass http://app; }}
             location /bad {{ return 503; }} }}"
    );
    let weir = site(Driver::usual(), &more).start();
    let other = |path: &str| {
        let mut c = testkit::Conn::tcp(weir.port(1));
        c.send(format!("GET {path} HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n"));
        c.response().status
    };
    (0..5).for_each(|_| assert_eq!(other("/"), 200));
    (0..3).for_each(|_| assert_eq!(other("/bad"), 503));
    let wanted = "kinds=total,server,upstream,peer";
    wait_until("the first step", || !list(&overview(&weir, wanted), "steps.ends").is_empty());
    let answer = overview(&weir, wanted);
    let of = |kind: &str, name: &str, value: &str| -> u64 {
        let all = list(&answer, "series").iter();
        let mut found =
            all.filter(|series| text(series, "kind") == kind && text(series, "name") == name);
        let values = list(found.next().unwrap(), value);
        values.iter().map(|n| if let Json::Number(n) = n { *n as u64 } else { 0 }).sum()
    };
    let peer = format!("127.0.0.1:{port}");
    assert_eq!((of("server", "other", "done"), of("server", "other", "errors_5xx")), (8, 3));
    assert_eq!((of("upstream", "app", "done"), of("peer", &peer, "done")), (5, 5));
    assert!(of("total", "", "done") > 8);
    assert_eq!(of("total", "", "heat"), of("total", "", "done"));
    let upstream = &list(&answer, "upstreams")[0];
    let Json::List(values) = &list(upstream, "peers")[0] else { panic!("{upstream:?}") };
    let column = |name: &str| {
        let mut columns = list(&answer, "server.peer_columns").iter();
        &values[columns.position(|column| *column == Json::Text(name.to_owned())).unwrap()]
    };
    assert_eq!((column("server"), column("done")), (&Json::Text(peer), &Json::Number(5.0)));
    let Json::Number(row) = column("row") else { panic!("{values:?}") };
    let histogram = overview(&weir, &format!("kinds=none&heat={row}"));
    assert_eq!(list(&histogram, "series").len(), 1);
    assert_eq!(list(&list(&histogram, "series")[0], "heat").len() % 10, 0);
    assert!(text(upstream, "at").ends_with("weir.conf:1"));
    // A later answer has nothing of it again.
    let since = format!("{wanted}&since={}", text(&answer, "server.token"));
    assert!(list(&overview(&weir, &since), "steps.ends").len() <= 1);
    let caches = overview(&weir, "parts=caches,slabs,nothing&slow=5");
    assert_eq!(caches.at("slabs").names(), ["app"]);
    assert!(list(&caches, "slow_requests").is_empty() && caches.at("caches").names().is_empty());
}
