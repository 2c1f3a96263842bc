//! JavaScript that takes long, in several requests at once: others are served between them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_until};

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
        location /body { js_body_filter t.body; alias html/a.txt; }
    }";

fn start(driver: Driver) -> Weir {
    let site = Site::new(built_binary(), driver)
        .file("html/a.txt", "small\n")
        .file("conf/t.js", SCRIPT)
        .http(CONF);
    // Workers of a server that root starts are another user.
    fs::set_permissions(site.prefix().join("html"), Permissions::from_mode(0o777)).unwrap();
    site.start()
}

/// Sends requests for a path, and then one that needs no script, while the worker is held, so that
/// all are ready at once. Returns the paths in the order in which they were served.
fn served(weir: &Weir, name: &str, lines_before: usize) -> Vec<String> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut all: Vec<_> = (0..6).map(|_| weir.connect()).collect();
    // The server has accepted all connections before.
    for conn in &mut all {
        conn.send(get("/quick"));
        assert_eq!(conn.response().body, b"quick");
    }
    all[0].send(get(&format!("/holds?file={name}")));
    let held = weir.prefix().join(format!("html/{name}.held"));
    wait_until("the worker is held", || held.exists());
    for conn in &mut all[1..5] {
        conn.send(get(&format!("/{name}")));
    }
    all[5].send(get("/quick"));
    weir.write(&format!("html/{name}"), "");
    for conn in &mut all {
        assert_eq!(conn.response().status, 200);
    }
    let lines = weir.wait_for_lines("path.log", lines_before + 12);
    lines.lines().skip(lines_before + 6).map(str::to_owned).collect()
}

#[test]
fn others_are_served_between_scripts_that_take_long() {
    each_driver(|driver| {
        let weir = start(driver);
        for (round, name) in ["content", "access", "header", "body"].into_iter().enumerate() {
            let served = served(&weir, name, 12 * round);
            let quick = served.iter().position(|path| path == "/quick").unwrap();
            let before = served[..quick].iter().filter(|path| *path != "/holds").count();
            assert!(before <= 1, "{name}: {served:?}");
        }
    });
}
