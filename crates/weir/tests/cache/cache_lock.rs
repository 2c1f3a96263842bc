//! `proxy_cache_lock`: requests that wait for one another, and those that do not.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::origin::{Answer, Asked, Origin};
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_for};

/// Three workers with a cache in front of an origin. A request that is not woken fails: it would
/// wait for longer than the test's clients do.
fn start(driver: Driver, origin: &Origin, more: &str) -> Weir {
    let more = more.replace("%UP%", &format!("127.0.0.1:{}", origin.port));
    let text = format!(
        "worker_processes 3; events {{}}
         http {{
             proxy_cache_path cache levels=1:2 keys_zone=one:1m;
             proxy_cache_key $uri;
             proxy_cache_lock on;
             proxy_cache_lock_timeout 60s;
             proxy_cache_lock_age 60s;
             server {{ listen 127.0.0.1:%PORT0%; proxy_cache one; {more}
                 location / {{ proxy_pass http://127.0.0.1:{}; }} }}
         }}",
        origin.port
    );
    Site::new(built_binary(), driver).config(&text).start()
}

fn numbered(asked: &Asked) -> Answer {
    Answer::of(format!("{} {}", asked.method, asked.count))
}

/// The second response and those behind it come only when all other requests have reached the
/// origin: one that still waits for another holds up the test.
#[test]
fn nobody_waits_for_responses_that_are_not_stored() {
    const CROWD: usize = 20;
    each_driver(|driver| {
        let gates: Arc<Mutex<HashMap<String, Arc<Barrier>>>> = Arc::default();
        let origin = Origin::start(move |asked| {
            let mut answer = numbered(asked);
            let field = match asked.target.as_str() {
                "/cookie" => "Set-Cookie: a=b\r\n",
                "/vary" => "Vary: *\r\n",
                "/own" => "X-Own: 1\r\n",
                "/private" => "Cache-Control: private\r\n",
                _ => "",
            };
            answer.fields += field;
            if matches!(asked.target.as_str(), "/error" | "/no-time" | "/caught") {
                answer.fields.clear();
            }
            if matches!(asked.target.as_str(), "/error" | "/caught") {
                answer.status = 500;
            }
            match asked.count {
                1 => answer.delay = Duration::from_millis(300),
                _ => {
                    let mut gates = gates.lock().unwrap();
                    let gate = gates.entry(asked.target.clone());
                    let gate = gate.or_insert_with(|| Arc::new(Barrier::new(CROWD - 1))).clone();
                    drop(gates);
                    gate.wait();
                }
            }
            answer
        });
        let lock = "location /caught { proxy_pass http://%UP%; proxy_intercept_errors on;
                                       error_page 500 /50x.html; }
                    location /direct { proxy_pass http://%UP%; proxy_buffering off; }
                    location /50x.html { internal; return 500; }
                    location /own { proxy_pass http://%UP%;
                                    proxy_no_cache $upstream_http_x_own; }";
        let weir = start(driver, &origin, lock);
        for path in
            ["/cookie", "/vary", "/private", "/error", "/no-time", "/caught", "/direct", "/own"]
        {
            std::thread::scope(|scope| {
                let asks: Vec<_> = (0..CROWD).map(|_| scope.spawn(|| weir.get(path))).collect();
                let failed = matches!(path, "/error" | "/caught");
                for one in asks {
                    assert_eq!(one.join().unwrap().status, if failed { 500 } else { 200 });
                }
            });
            assert_eq!(origin.count(path), CROWD, "{path}");
        }
    });
}

/// Those of users who are logged in, for example, while all others get one that is stored.
#[test]
fn responses_that_bypass_the_cache_leave_the_lock_alone() {
    const CROWD: usize = 20;
    each_driver(|driver| {
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let origin = Origin::start(move |asked| {
            let mut answer = numbered(asked);
            match asked.field("Cookie") {
                Some(_) => answer.fields += "Set-Cookie: a=b\r\n",
                None => gate.lock().unwrap().recv().unwrap_or_default(),
            }
            answer
        });
        let more = "proxy_cache_bypass $http_cookie; location = /status { stub_status json; }";
        let weir = start(driver, &origin, more);
        let mut crowd: Vec<_> = (0..CROWD).map(|_| weir.connect()).collect();
        for (n, conn) in crowd.iter_mut().enumerate() {
            conn.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
            if n == 0 {
                wait_for("the one that asks", || (origin.count("/a") == 1).then_some(()));
                assert_eq!(weir.request("GET", "/a", "Cookie: a=b\r\n").text(), "GET 2");
            }
        }
        let waits = format!("\"waits\":{},", CROWD - 1);
        wait_for("the crowd", || weir.get("/status").text().contains(&waits).then_some(()));
        go.send(()).unwrap();
        for conn in &mut crowd {
            assert_eq!(conn.response().text(), "GET 1");
        }
        assert_eq!(origin.count("/a"), 2);
    });
}
