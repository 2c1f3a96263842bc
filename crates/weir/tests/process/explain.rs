//! `weir explain`: the server's own decisions, and nothing is touched.

use std::process::{Command, Stdio};

use crate::common::{BINARY, site};
use testkit::{Weir, wait_for};

const HTTP: &str = r#"
    add_header X-A http;
    log_format f '$uri';
    access_log logs/access.log f;
    map $arg_m $mapped { default 0; yes 1; }
    upstream app { least_conn; server 127.0.0.1:1; server 127.0.0.1:2 weight=2; }
    proxy_cache_path %PREFIX%/cache keys_zone=k:1m;
    server { listen 127.0.0.1:%PORT0%; server_name other; location / { return 404; } }
    server {
        listen 127.0.0.1:%PORT0%;
        server_name a.example *.b.example;
        root html;
        rewrite ^/old/(.*)$ /new/$1;
        if ($arg_away) { return 302 /elsewhere; }
        error_page 404 /missing.html;
        location / { try_files $uri $uri/ =404; }
        location /new/ {
            add_header X-B loc;
            proxy_set_header Host $host;
            proxy_pass http://app/x/;
            proxy_cache k;
            if ($mapped) { set $y 1; expires 1h; }
            location /new/inner/ { proxy_pass http://app; }
        }
        location ~ \.php$ { fastcgi_pass 127.0.0.1:3; }
        location ~* \.(gif|JPG)$ { expires 1d; }
        location ^~ /static/ { expires 1d; }
        location = /static/exact { return 200 exact; }
        location /dir/ { proxy_pass http://app; }
        location /auth { auth_request /check; proxy_pass http://app; }
        location = /check { internal; return 204; }
        location /named { error_page 418 = @tea; return 418; }
        location @tea { return 200 tea; }
        location /post { limit_except GET { deny all; } return 200 post; }
        location /put { dav_methods PUT DELETE; }
        location /closed { deny 127.0.0.2; allow all; }
        location /break { rewrite ^ /a.txt break; }
        location /last { rewrite ^/last/(.*) /$1 last; }
        location /loop { rewrite ^ /loop last; }
        location /mirrored { mirror /check; return 200 x; }
    }
"#;

const URIS: &[&str] = &[
    "/",
    "/a.txt",
    "/a.txt?away=1",
    "/none",
    "/old/z?b=1",
    "/new/",
    "/new/a.php",
    "/new/inner/b",
    "/new/inner",
    "/new/?m=yes",
    "/x.php",
    "/x.PHP",
    "/a.gif",
    "/a.jpg?m=yes",
    "/static/x.php",
    "/static/exact",
    "/static/exact/",
    "/static",
    "/dir",
    "/dir/",
    "/dir/../a.txt",
    "/%61.txt",
    "/auth",
    "/check",
    "/named",
    "/named/x",
    "/post",
    "/put/x",
    "/closed",
    "/break/x",
    "/last/x.php",
    "/last/last/last/",
    "/loop",
    "/mirrored",
    "/missing.html",
    "//a.txt",
    "/new/..%2f",
    "/a%00b",
];

fn serving() -> Weir {
    let main = "pid logs/weir.pid; error_log logs/debug.log debug;";
    site(1, main, HTTP).file("html/index.html", "index").start()
}

fn explain(weir: &Weir, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(BINARY);
    command.arg("explain").args(words).arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    let output = command.output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&all).into_owned())
}

fn url(weir: &Weir, host: &str, uri: &str) -> String {
    format!("http://{host}:{}{uri}", weir.port(0))
}

/// The locations that the debug log says a request has entered, and whether it went to a server.
fn entered_by_log(log: &str) -> Vec<String> {
    let mark = "using configuration \"";
    let lines = log.lines().filter_map(|line| line.split_once(mark));
    lines.map(|(_, rest)| rest.trim_end_matches('"').to_owned()).collect()
}

/// The same of an explanation, by its JSON.
fn entered_by_explanation(json: &str) -> Vec<String> {
    let own = "{\"subrequest\":false,\"step\":\"entered\",\"kind\":\"";
    let subrequest = "{\"subrequest\":true,\"step\":\"entered\",\"kind\":\"";
    let steps = json.replace(subrequest, own);
    let entered = steps.split(own).skip(1).map(|step| {
        let (kind, rest) = step.split_once("\",\"name\":\"").unwrap();
        let name = rest.split("\",\"file\"").next().unwrap().replace("\\\\", "\\");
        let sign = match kind {
            "exact" => "=",
            "prefix-no-regex" => "^~",
            "regex" => "~",
            _ => "",
        };
        format!("{sign}{name}")
    });
    entered.collect()
}

#[test]
fn locations_are_those_of_the_debug_log() {
    let weir = serving();
    compare(&weir, "a.example", "GET", URIS);
    compare(&weir, "a.example", "POST", &["/post", "/", "/a.txt", "/new/", "/auth", "/old/x.php"]);
    compare(&weir, "nobody", "GET", &["/", "/a.txt", "/old/"]);
    compare(&weir, "x.b.example", "HEAD", &["/", "/new/inner"]);
}

/// Explains requests, makes them, and compares the locations they enter.
fn compare(weir: &Weir, host: &str, method: &str, uris: &[&str]) {
    for (n, uri) in uris.iter().enumerate() {
        let (code, json) = explain(weir, &[&url(weir, host, uri), "-X", method, "--json"]);
        assert_eq!(code, Some(0), "{host} {uri}: {json}");
        let before = weir.log("debug.log").len();
        let end = format!("/end/{host}/{method}/{n}");
        for (method, uri) in [(method, *uri), ("GET", &end)] {
            let mut conn = weir.connect();
            let fields = format!("Host: {host}:{}\r\nConnection: close\r\n", weir.port(0));
            conn.send(format!("{method} {uri} HTTP/1.1\r\n{fields}\r\n"));
            conn.read_to_end();
        }
        // The line of the next request is behind all of this one's.
        let end = format!("http request line: \"GET {end} HTTP/1.1\"");
        weir.wait_for_log("debug.log", &end);
        let log = weir.log("debug.log");
        let lines = log[before..].split(&end).next().unwrap();
        let (ours, logs) = (entered_by_explanation(&json), entered_by_log(lines));
        let stopped =
            ["passed", "content"].iter().any(|s| json.contains(&format!("\"step\":\"{s}\"")));
        let same = if stopped { logs.starts_with(&ours) } else { logs == ours };
        assert!(same, "{method} {host}{uri}: {ours:?}, but the log: {logs:?}");
    }
}

#[test]
fn the_way_of_a_request_is_told() {
    let weir = serving();
    let told = |uri: &str, more: &[&str]| {
        let url = url(&weir, "a.example", uri);
        let words: Vec<&str> = [&[url.as_str()], more].concat();
        let (code, text) = explain(&weir, &words);
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let text = told("/old/z?b=1", &["-H", "X-C: d"]);
    for part in [
        "its server_name matches \"a.example\"",
        "\"^/old/(.*)$\" matches \"/old/z\"",
        "location   location /new/ at ",
        "the longest prefix, and no regular expression matches",
        "location ~ \\.php$ at ",
        "upstream   http://app\n",
        "balancing: least_conn",
        "server 127.0.0.1:2 weight=2",
        "request    GET /x/z?b=1\n",
        "X-C: d\n",
        "cache      k, key \"http://app/x/z?b=1\"",
        "  add_header X-B loc; (",
        "      overrides add_header X-A http; (",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // A new URI is searched for at once: between two locations there is nothing.
    for uri in ["/last/a.txt", "/last/last/last/"] {
        let text = told(uri, &[]);
        assert!(text.contains("uri        /") && !text.contains("the server itself"), "{text}");
    }
    assert!(told("/named", &[]).contains("HTTP/1.1 200 OK"));
    assert!(told("/closed", &["--from", "127.0.0.2"]).contains("access forbidden by rule"));
    assert!(told("/closed", &["--from", "127.0.0.3"]).contains("status     404"));
    assert!(told("/auth", &[]).contains("| location = /check at "));
    let image = told("/a.gif", &[]);
    assert!(image.contains("location   location ~* \\.(gif|JPG)$ at "), "{image}");
    let passed = told("/x.php", &[]);
    assert!(passed.contains("upstream   fastcgi://127.0.0.1:3\n"), "{passed}");
    let other = explain(&weir, &[&url(&weir, "zzz", "/")]).1;
    assert!(other.contains("because no server_name matches \"zzz\""), "{other}");
    let (code, none) = explain(&weir, &["http://a.example:9/"]);
    assert_eq!(code, Some(2));
    assert!(none.contains("nothing listens for http on port 9; there is: 127.0.0.1:"), "{none}");
}

#[test]
fn nothing_is_touched() {
    let weir = serving();
    let before = (weir.files_below("html"), weir.files_below("cache"));
    let access = weir.log("access.log");
    for (method, uri) in
        [("PUT", "/put/new.txt"), ("DELETE", "/a.txt"), ("DELETE", "/put/../a.txt")]
    {
        let (code, text) = explain(&weir, &[&url(&weir, "a.example", uri), "-X", method]);
        assert_eq!(code, Some(0), "{text}");
    }
    let (code, text) = explain(&weir, &[&url(&weir, "a.example", "/put/x"), "-X", "PUT"]);
    assert!(code == Some(0) && text.contains("content    a handler of this location"), "{text}");
    assert_eq!((weir.files_below("html"), weir.files_below("cache")), before);
    assert_eq!(weir.log("access.log"), access);
    assert!(weir.prefix().join("html/a.txt").exists());
}

#[test]
fn the_end_of_a_large_answer_is_not_waited_for() {
    let http = "server { listen 127.0.0.1:%PORT0%; root html; location /slow/ { limit_rate 1k; } }";
    let large = vec![b'x'; 4 << 20];
    let weir = site(1, "error_log logs/error.log;", http)
        .file("html/large", &large)
        .file("html/slow/large", &large)
        .start();
    for uri in ["/large", "/slow/large"] {
        let mut command = Command::new(BINARY);
        command.args(["explain", &url(&weir, "a", uri)]).arg("-p").arg(weir.prefix());
        command.args(["-c", "conf/weir.conf"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait_for("the explanation's end", || child.try_wait().unwrap());
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        for part in ["HTTP/1.1 200 OK\n", "Content-Length: 4194304\n", "in effect\n"] {
            assert!(text.contains(part), "{uri}: {part:?} is not in\n{text}");
        }
    }
}

#[test]
fn scripts_are_not_run() {
    let script = "import fs from 'fs';\n\
         function mark(r) { fs.writeFileSync(r.variables.document_root + '/ran', ''); }\n\
         export default {mark};";
    let http = "js_import t.js;
         server { listen 127.0.0.1:%PORT0%; root html;
             location / { js_access t.mark; js_header_filter t.mark; try_files /a.txt =404; } }";
    let weir = site(1, "", http).file("conf/t.js", script).start();
    let (status, text) = explain(&weir, &[&url(&weir, "a", "/x")]);
    assert!(status == Some(0) && text.contains("HTTP/1.1 200 OK"), "{text}");
    assert!(!weir.prefix().join("html/ran").exists(), "{text}");
    // The server's own worker runs them; under root it may not write there.
    weir.get("/x");
    let log = weir.error_log();
    assert!(weir.prefix().join("html/ran").exists() || log.contains("at mark ("), "{log}");
}

#[test]
fn unix_sockets_are_named_by_to() {
    let http = "server { listen 127.0.0.1:%PORT0%; location / { return 204; } }
        server { listen unix:%PREFIX%/plain; location /a { return 200 $server_addr; } }
        server { listen unix:%PREFIX%/told proxy_protocol; real_ip_header proxy_protocol;
            set_real_ip_from unix:; location /b { return 200 $remote_addr; } }";
    let weir = site(1, "error_log logs/error.log;", http).start();
    let socket = |name: &str| format!("unix:{}/{name}", weir.prefix().display());
    for (uri, name, from) in [("/a", "plain", "127.0.0.1"), ("/b", "told", "192.0.2.7")] {
        let to = socket(name);
        let url = format!("http://x{uri}");
        let (code, text) = explain(&weir, &[&url, "--to", &to, "--from", from]);
        assert_eq!(code, Some(0), "{text}");
        for part in [format!("listen     {to}\n"), format!("location   location {uri} at ")] {
            assert!(text.contains(&part), "{part:?} is not in\n{text}");
        }
    }
    let (code, text) = explain(&weir, &["http://x/", "--to", "unix:/none"]);
    let none = "nothing listens for http at unix:/none; there is: 127.0.0.1:";
    assert!(code == Some(2) && text.contains(none), "{text}");
}

#[test]
fn files_that_were_looked_for_are_named() {
    let http = "server { listen 127.0.0.1:%PORT0%; root html; gzip_static on;
        location / { try_files $uri $uri/ =404; }
        location /plain { }
        location /other { alias %PREFIX%/html; }
        location /if { if (-f $document_root/a.txt) { return 204; } }
    }";
    let weir = site(1, "error_log logs/error.log;", http)
        .file("html/a.txt.gz", b"x")
        .file("html/folder/b.txt", b"b")
        .file("html/plain/index.html", b"i")
        .start();
    let html = weir.prefix().join("html");
    let html = html.display();
    let files = |uri: &str, headers: &[&str]| {
        let url = url(&weir, "a", uri);
        let (code, text) = explain(&weir, &[&[url.as_str()], headers].concat());
        assert_eq!(code, Some(0), "{text}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("file       "));
        lines.map(|line| line.replace(&format!("{html}/"), "")).collect::<Vec<_>>()
    };
    let gzip = ["-H", "Accept-Encoding: gzip"];
    assert_eq!(files("/a.txt", &gzip), ["try_files: a.txt exists", "gzip_static: a.txt.gz exists"]);
    let found = files("/plain/x.txt", &gzip);
    assert_eq!(found, ["gzip_static: plain/x.txt.gz is missing", "root: plain/x.txt is missing"]);
    assert_eq!(files("/none", &[]), ["try_files: none is missing", "try_files: none/ is missing"]);
    let found = files("/folder", &[]);
    assert_eq!(found[..2], ["try_files: folder is a folder", "try_files: folder/ is a folder"]);
    assert_eq!(files("/plain/", &[])[0], "index: plain/index.html exists");
    assert_eq!(files("/other/a.txt", &[]), ["alias: a.txt exists"]);
    assert_eq!(files("/if", &[]), ["if: a.txt exists"]);
    let inside = files("/plain/index.html/x", &[]);
    assert_eq!(inside, ["root: plain/index.html/x is missing: a part of the path is a file"]);
    let json = explain(&weir, &[&url(&weir, "a", "/none"), "--json"]).1;
    let step = format!(
        "\"step\":\"file\",\"directive\":\"try_files\",\"path\":\"{html}/none\",\
         \"found\":\"is missing\""
    );
    assert!(json.contains(&step), "{json}");
}

#[test]
fn a_line_of_the_log_is_explained() {
    let http = "log_format own '$remote_addr $host \"$request\" $status $http_x_a';
        access_log logs/access.log own;
        server { listen 127.0.0.1:%PORT0%; server_name other; return 403; }
        server { listen 127.0.0.1:%PORT0%; server_name a.example; root html; ssl_protocols TLSv1 TLSv1.2;
            location /p/ { proxy_pass http://127.0.0.1:1; }
            location /j { access_log logs/json.log json; return 204; } }";
    let weir = site(1, "error_log logs/error.log;", http).start();
    let mut conn = weir.connect();
    for uri in ["/p/x?y=1", "/j?z"] {
        conn.send(format!("GET {uri} HTTP/1.1\r\nHost: a.example\r\nX-A: b c\r\n\r\n"));
        conn.response();
    }
    let line = |log: &str| weir.wait_for_lines(log, 1).trim_end().to_owned();
    let (code, text) = explain(&weir, &["--log", &line("access.log")]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "GET http://a.example:",
        "/p/x?y=1\n",
        "logged     status 502, by the format \"own\"\n",
        "location   location /p/ at ",
        "x-a: b c\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // A warning of the configuration is told once.
    assert_eq!(text.matches("protocols not supported").count(), 1, "{text}");
    let (code, text) = explain(&weir, &["--log", &line("json.log")]);
    assert!(
        code == Some(0) && text.contains("logged     status 204, by the format \"json\""),
        "{text}"
    );
    let (_, json) = explain(&weir, &["--json", "--log", &line("access.log")]);
    assert!(json.contains("\"logged\":{\"format\":\"own\",\"status\":\"502\"}"), "{json}");
    // A line without a host: the default server, or the one that a URL names.
    let combined = "192.0.2.1 - - [x] \"POST /p/z HTTP/1.1\" 502 1 \"-\" \"curl/8\"";
    let (_, text) = explain(&weir, &["--log", combined]);
    assert!(
        text.contains("(the line names no host: ") && text.contains("status     403"),
        "{text}"
    );
    assert!(text.contains("client     192.0.2.1\n"), "{text}");
    let (_, text) = explain(&weir, &[&url(&weir, "a.example", "/"), "--log", combined]);
    assert!(
        text.contains("POST http://a.example:") && text.contains("user-agent: curl/8"),
        "{text}"
    );
    for (line, why) in [
        ("hello", "fits none of the log formats own, combined, json"),
        ("1.2.3.4 - - [x] \"OPTIONS * HTTP/1.1\" 200 1 \"-\" \"-\"", "requested by no URL"),
    ] {
        let (code, text) = explain(&weir, &["--log", line]);
        assert!(code == Some(2) && text.contains(why), "{text}");
    }
}
