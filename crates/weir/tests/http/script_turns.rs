//! JavaScript that takes long, in several requests at once: others are served between them.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use testkit::{
    Conn, Driver, Scripted, Site, Weir, built_binary, each_driver, read_until, wait_until,
};

const SCRIPT: &str = r#"
import fs from 'fs';

// Makes a file, and holds the worker until another one is there.
function holds(r) {
    const file = `${ngx.prefix}html/${r.args.file}`;
    fs.writeFileSync(`${file}.held`, '');
    for (;;) {
        try { fs.accessSync(file); break; } catch {}
    }
    r.return(200);
}

function works() { for (let i = 0; i < 1_000_000; i++); }
function content(r) { works(); r.return(200, 'worked'); }
async function access() { await null; works(); }
function header() { works(); }
function body(r, data, flags) { works(); r.sendBuffer(data, flags); }

export default { holds, content, access, header, body };
"#;

const CONF: &str = "
    js_import t.js;
    js_time_limit 1h;
    js_cpu_limit 1h;
    log_format path $uri;
    server {
        listen 127.0.0.1:%PORT0%;
        access_log logs/path.log path;
        location /quick { return 200 quick; }
        location /holds { js_content t.holds; }
        location /content { js_content t.content; }
        location /access { js_access t.access; alias html/a.txt; }
        location /header { js_header_filter t.header; alias html/a.txt; }
        location /proxied { js_header_filter t.header; proxy_pass http://127.0.0.1:%UPSTREAM%; }
        location /body { js_body_filter t.body; alias html/a.txt; }
    }";

fn start(driver: Driver, upstream: u16) -> Weir {
    let site = Site::new(built_binary(), driver)
        .file("html/a.txt", "small\n")
        .file("conf/t.js", SCRIPT)
        .http(&CONF.replace("%UPSTREAM%", &upstream.to_string()));
    // Workers of a server that root starts are another user.
    fs::set_permissions(site.prefix().join("html"), Permissions::from_mode(0o777)).unwrap();
    site.start()
}

/// Sends requests for a path, and then one that needs no script, while the worker is held, so that
/// all are ready at once. Returns the paths in the order in which they were served.
fn served(weir: &Weir, name: &str, lines_before: usize) -> Vec<String> {
    let mut all = connections(weir);
    hold(weir, &mut all[0], name);
    for conn in &mut all[1..5] {
        conn.send(get(name));
    }
    all[5].send(get("quick"));
    release(weir, all, name, lines_before)
}

fn get(name: &str) -> String {
    format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Connections that the server has accepted.
fn connections(weir: &Weir) -> Vec<Conn> {
    let mut all: Vec<_> = (0..6).map(|_| weir.connect()).collect();
    for conn in &mut all {
        conn.send(get("quick"));
        assert_eq!(conn.response().body, b"quick");
    }
    all
}

fn hold(weir: &Weir, conn: &mut Conn, name: &str) {
    conn.send(get(&format!("holds?file={name}")));
    let held = weir.prefix().join(format!("html/{name}.held"));
    wait_until("the worker is held", || held.exists());
}

fn release(weir: &Weir, mut all: Vec<Conn>, name: &str, lines_before: usize) -> Vec<String> {
    weir.write(&format!("html/{name}"), "");
    for conn in &mut all {
        assert_eq!(conn.response().status, 200);
    }
    let lines = weir.wait_for_lines("path.log", lines_before + 12);
    lines.lines().skip(lines_before + 6).map(str::to_owned).collect()
}

/// How many that needed scripts were served before the one that needs none.
fn before_quick(served: &[String]) -> usize {
    let quick = served.iter().position(|path| path == "/quick").unwrap();
    served[..quick].iter().filter(|path| *path != "/holds").count()
}

#[test]
fn others_are_served_between_scripts_that_take_long() {
    each_driver(|driver| {
        let weir = start(driver, 1);
        for (round, name) in ["content", "access", "header", "body"].into_iter().enumerate() {
            let served = served(&weir, name, 12 * round);
            assert!(before_quick(&served) <= 1, "{name}: {served:?}");
        }
    });
}

/// The responses of an upstream come at once, long after the requests.
#[test]
fn header_filters_of_responses_that_come_together_wait() {
    each_driver(|driver| {
        let (asked, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let may_answer = Arc::new(Barrier::new(5));
        let counts = (asked.clone(), answered.clone(), may_answer.clone());
        let upstream = Scripted::start(move |mut stream, _| {
            let (asked, answered, may_answer) = &counts;
            if read_until(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n")).is_none() {
                return;
            }
            asked.fetch_add(1, Ordering::SeqCst);
            may_answer.wait();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
        });
        let weir = start(driver, upstream.port);
        let mut all = connections(&weir);
        for conn in &mut all[1..5] {
            conn.send(get("proxied"));
        }
        wait_until("the upstream is asked", || asked.load(Ordering::SeqCst) == 4);
        hold(&weir, &mut all[0], "proxied");
        may_answer.wait();
        wait_until("the upstream has answered", || answered.load(Ordering::SeqCst) == 4);
        all[5].send(get("quick"));
        let served = release(&weir, all, "proxied", 0);
        assert!(before_quick(&served) <= 1, "{served:?}");
    });
}
