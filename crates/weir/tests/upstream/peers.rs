//! Servers that people have, behind ours: stock nginx and Node.

use testkit::{Conn, Peer, Response, Site, Weir, built_binary, each_driver};

const NGINX: &str = "
daemon off; master_process off; pid %DIR%/nginx.pid; error_log %DIR%/error.log;
worker_rlimit_nofile 1024;
events { worker_connections 256; }
http {
    access_log off; client_body_temp_path %DIR%/body; proxy_temp_path %DIR%/proxy;
    fastcgi_temp_path %DIR%/f; uwsgi_temp_path %DIR%/u; scgi_temp_path %DIR%/s;
    types { text/plain txt; }
    keepalive_requests 10;
    server {
        listen 127.0.0.1:%PORT%;
        root %DIR%;
        add_header X-Connection $connection;
        location / { }
        location /packed/ { alias %DIR%/; gzip on; gzip_types text/plain; gzip_min_length 1; }
        location /moved { return 301 http://$host:$server_port/text.txt; }
        location /gone { return 410 'no more'; }
        location /slow { alias %DIR%/text.txt; limit_rate 400k; }
        location /close { return 444; }
        location /echo { client_max_body_size 1k; return 200 '$request_method $content_length'; }
    }
}
";

fn text() -> String {
    (0..20_000).map(|n| format!("line {n}\n")).collect()
}

/// The facts of a response that have to be the same directly and through weir.
fn facts(r: &Response) -> (u16, Vec<(String, String)>, usize) {
    let ours = ["date", "server", "connection", "x-connection", "transfer-encoding", "keep-alive"];
    let own = |n: &str| ours.iter().any(|o| n.eq_ignore_ascii_case(o));
    let mut fields: Vec<_> = r.headers.iter().filter(|(n, _)| !own(n)).cloned().collect();
    fields.sort();
    (r.status, fields, r.body.len())
}

fn ask(port: u16, request: &str, method: &str) -> Response {
    let mut c = Conn::tcp(port);
    c.send(request);
    c.response_to(method)
}

fn site(driver: testkit::Driver, peer: &Peer) -> Weir {
    Site::new(built_binary(), driver)
        .http(&format!(
            "upstream behind {{ server 127.0.0.1:{}; keepalive 4; }}
             map $http_upgrade $up {{ default upgrade; '' ''; }}
             server {{ listen 127.0.0.1:%PORT0%;
                 proxy_set_header Host $http_host; proxy_set_header Connection $up;
                 proxy_set_header Upgrade $http_upgrade;
                 location / {{ proxy_pass http://behind; proxy_redirect off; early_hints 1;
                     proxy_pass_trailers on; }}
                 location /now/ {{ proxy_pass http://behind/; proxy_buffering off;
                     proxy_request_buffering off; proxy_redirect off; }} }}",
            peer.port()
        ))
        .start()
}

#[test]
fn nginx() {
    let files = [("nginx.conf", NGINX), ("text.txt", &*text()), ("small.txt", "small")];
    let peer = Peer::start("nginx", "nginx-light", &files, &["-c", "%DIR%/nginx.conf"]);
    let asks = [
        ("GET", "/small.txt", ""),
        ("HEAD", "/text.txt", ""),
        ("GET", "/text.txt", ""),
        ("GET", "/text.txt", "Range: bytes=100-199,1000-1099\r\n"),
        ("GET", "/text.txt", "Range: bytes=-5\r\n"),
        ("GET", "/text.txt", "Range: bytes=900000-\r\n"),
        ("GET", "/text.txt", "If-None-Match: \"none\"\r\n"),
        ("GET", "/text.txt", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"),
        ("GET", "/packed/text.txt", "Accept-Encoding: gzip\r\n"),
        ("GET", "/moved", ""),
        ("GET", "/gone", ""),
        ("GET", "/none", ""),
        ("GET", "/slow", ""),
        ("GET", "/echo", "Content-Length: 0\r\n"),
        ("DELETE", "/small.txt", ""),
        ("GET", "/a/%2e%2e/small.txt?a=b&c", ""),
    ];
    each_driver(|driver| {
        let weir = site(driver, &peer);
        for (method, path, fields) in asks {
            let request = |path: &str| {
                let end = "Host: h.example:1\r\nConnection: close\r\n";
                format!("{method} {path} HTTP/1.1\r\n{end}{fields}\r\n")
            };
            let direct = ask(peer.port(), &request(path), method);
            for place in ["", "/now"] {
                let through = ask(weir.port(0), &request(&format!("{place}{path}")), method);
                let of_range = direct.header("Content-Type").unwrap_or_default();
                if of_range.starts_with("multipart/byteranges") {
                    // Each has a boundary of its own.
                    assert_eq!((through.status, through.body.len()), (206, direct.body.len()));
                    continue;
                }
                assert_eq!(facts(&through), facts(&direct), "{method} {place}{path} {fields}");
                let same = direct.body == through.body;
                assert!(same, "{method} {place}{path}: another body");
            }
        }
        // A body that it does not want: it answers and closes before all came.
        let body = "x".repeat(2_000_000);
        for place in ["", "/now"] {
            let mut c = weir.connect();
            let len = body.len().min(900_000);
            c.send(format!(
                "POST {place}/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"
            ));
            let _ = c.try_send(&body[..len]);
            assert_eq!(c.response().status, 413, "{place}");
        }
        // It closes each connection after ten requests: nobody notices.
        let mut seen = std::collections::HashSet::new();
        for _ in 0..35 {
            let r = weir.get("/small.txt");
            assert_eq!((r.status, r.text().as_str()), (200, "small"));
            seen.insert(r.header("X-Connection").unwrap_or_default().to_owned());
        }
        assert!((4..=8).contains(&seen.len()), "{seen:?}");
        assert_eq!(weir.get("/close").status, 502);
    });
}

const NODE: &str = "
const http = require('http');
const waiting = {};
const server = http.createServer((q, s) => {
  const path = q.url.split('?')[0];
  if (path === '/echo') {
    s.writeHead(200, { 'X-Method': q.method, 'X-Length': q.headers['content-length'] || 'chunked' });
    q.pipe(s);
  } else if (path === '/trailers') {
    s.writeHead(200, { Trailer: 'X-Sum' });
    s.write('one ');
    setTimeout(() => { s.addTrailers({ 'X-Sum': '42' }); s.end('two'); }, 20);
  } else if (path === '/hints') {
    s.writeEarlyHints({ link: '</style.css>; rel=preload' });
    setTimeout(() => s.end('after hints'), 20);
  } else if (path === '/stream') {
    let n = 0;
    const more = () => (n++ < 50 ? (s.write('part ' + n + '\\n'), setImmediate(more)) : s.end());
    more();
  } else if (path === '/breaks') {
    s.writeHead(200); s.write('half'); setTimeout(() => q.socket.destroy(), 20);
  } else if (path === '/events') {
    s.writeHead(200, { 'Content-Type': 'text/event-stream' });
    s.write('data: first\\n\\n');
    waiting[q.url.split('?')[1]] = s;
  } else if (path === '/go') {
    waiting[q.url.split('?')[1]].end('data: last\\n\\n');
    s.end();
  } else {
    s.setHeader('Set-Cookie', ['a=1', 'b=2']);
    s.end(JSON.stringify({ url: q.url, host: q.headers.host, agent: q.headers['user-agent'] }));
  }
});
server.on('upgrade', (q, socket, head) => {
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: upper\\r\\nConnection: Upgrade\\r\\n\\r\\n');
  socket.on('data', (d) => socket.write(d.toString().toUpperCase()));
  socket.on('end', () => socket.end());
});
server.keepAliveTimeout = 500;
server.listen(%PORT%, '127.0.0.1');
";

#[test]
fn node() {
    let peer = Peer::start("node", "nodejs", &[("server.js", NODE)], &["%DIR%/server.js"]);
    each_driver(|driver| {
        let weir = site(driver, &peer);
        let r = weir.request("GET", "/a%20b?c", "User-Agent: x\r\n");
        assert_eq!(r.text(), "{\"url\":\"/a%20b?c\",\"host\":\"localhost\",\"agent\":\"x\"}");
        assert_eq!(r.all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
        // Bodies of both kinds, read before and passed on as they come.
        let body = "0123456789abcdef".repeat(40_000);
        for place in ["", "/now"] {
            for chunked in [false, true] {
                let mut c = weir.connect();
                let framing = match chunked {
                    true => "Transfer-Encoding: chunked".to_owned(),
                    false => format!("Content-Length: {}", body.len()),
                };
                c.send(format!(
                    "PUT {place}/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n"
                ));
                let sending = std::thread::scope(|scope| {
                    // It echoes the first part before it has all of it.
                    let (first, rest) = body.split_at(body.len() / 3);
                    for part in [first, rest] {
                        // It echoes the part that it has meanwhile.
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        match chunked {
                            true => c.send(format!("{:x}\r\n{part}\r\n", part.len())),
                            false => c.send(part),
                        }
                    }
                    if chunked {
                        c.send("0\r\n\r\n");
                    }
                    scope.spawn(|| ()).join().is_ok()
                });
                let r = c.response();
                assert!(sending && r.header("X-Method") == Some("PUT"));
                assert!(r.text() == body, "{place} {chunked}: {} bytes", r.body.len());
            }
        }
        let raw = weir.raw("GET /trailers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let raw = String::from_utf8_lossy(&raw).into_owned();
        assert!(raw.ends_with("\r\n0\r\nX-Sum: 42\r\n\r\n"), "{raw}");
        let raw = weir.raw("GET /hints HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let raw = String::from_utf8_lossy(&raw).into_owned();
        assert!(raw.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{raw}");
        assert!(raw.contains("</style.css>; rel=preload") && raw.contains("after hints"), "{raw}");
        let want: String = (1..=50).map(|n| format!("part {n}\n")).collect();
        assert_eq!(weir.get("/stream").text(), want);
        assert_eq!(weir.get("/now/stream").text(), want);
        // An event comes when it is sent, not when there are more.
        let mut c = weir.connect();
        let name = driver.name();
        c.send(format!("GET /now/events?{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        c.read_until(b"data: first\n\n");
        assert_eq!(weir.get(&format!("/go?{name}")).status, 200);
        c.read_until(b"data: last\n\n");
        // Half an answer does not pass for one.
        let raw = weir.raw("GET /breaks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(!raw.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&raw));
        let mut c = weir.connect();
        c.send("GET /up HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: upper\r\n\r\n");
        assert!(c.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
        c.send("hello");
        assert_eq!(c.read_exact(5), b"HELLO");
        c.finish_sending();
        assert!(c.is_closed());
        // It closes idle connections by and by: requests at that time are answered all the same.
        for pause in [0, 450, 499, 500, 501, 520] {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            assert_eq!(weir.get("/x").status, 200, "after {pause} ms");
        }
    });
}
