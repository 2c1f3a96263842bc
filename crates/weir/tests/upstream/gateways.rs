//! FastCGI, uwsgi, SCGI and memcached, with the servers that people use and with some that lie.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::{Peer, Scripted, Site, Weir, built_binary, each_driver, read_until, refused};

fn site(driver: testkit::Driver, http: &str) -> Weir {
    Site::new(built_binary(), driver).file("html/a.txt", "from the file").http(http).start()
}

const PHP: &str = "<?php
header('X-Script: ' . $_SERVER['SCRIPT_NAME']);
header('X-Info: ' . ($_SERVER['PATH_INFO'] ?? ''));
parse_str($_SERVER['QUERY_STRING'], $q);
if (isset($q['status'])) { http_response_code((int) $q['status']); }
if (isset($q['say'])) { error_log($q['say']); }
if (isset($q['to'])) { header('Location: ' . $q['to']); }
if (isset($q['big'])) { for ($i = 0; $i < (int) $q['big']; $i++) { echo str_repeat(chr(97 + $i % 26), 1024); } exit; }
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['HTTP_HOST'] ?? '-', ' ', $_SERVER['HTTP_X_MANY'] ?? '-',
     ' ', $_SERVER['EMPTY'] ?? 'left out', ' ', strlen(file_get_contents('php://input'));
";

#[test]
fn php() {
    let php = Peer::php(&[("index.php", PHP)]);
    each_driver(|driver| {
        let root = php.folder().display();
        let weir = site(
            driver,
            &format!(
                "upstream php {{ server 127.0.0.1:{}; }}
                 fastcgi_param REQUEST_METHOD $request_method;
                 fastcgi_param QUERY_STRING $query_string;
                 fastcgi_param CONTENT_LENGTH $content_length;
                 fastcgi_param CONTENT_TYPE $content_type;
                 fastcgi_param SCRIPT_FILENAME {root}$fastcgi_script_name;
                 fastcgi_param SCRIPT_NAME $fastcgi_script_name;
                 fastcgi_param PATH_INFO $fastcgi_path_info;
                 fastcgi_param EMPTY $arg_none if_not_empty;
                 fastcgi_index index.php;
                 fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     location / {{ fastcgi_pass php; fastcgi_keep_conn on; }}
                     location /now/ {{ fastcgi_pass php; fastcgi_request_buffering off;
                                       fastcgi_buffering off; rewrite ^/now(.*) $1 break; }}
                     location /caught/ {{ fastcgi_pass php; fastcgi_catch_stderr 'very bad';
                                          rewrite ^/caught(.*) $1 break; }}
                     location /own/ {{ fastcgi_pass $arg_at; fastcgi_intercept_errors on;
                                       error_page 404 = /a.txt; rewrite ^/own(.*) $1 break; }}
                     location = /a.txt {{ root html; }}
                 }}",
                php.port()
            ),
        );
        let r = weir.get("/");
        assert_eq!((r.status, r.header("X-Script")), (200, Some("/index.php")), "{}", r.text());
        assert!(r.header("Server").is_some() && r.header("X-Powered-By").is_some());
        assert_eq!(r.text(), "GET localhost - left out 0");
        let r = weir.request("GET", "/index.php/in/fo?x", "X-Many: 1\r\nx-many: 2\r\n");
        assert_eq!(
            (r.header("X-Script"), r.header("X-Info")),
            (Some("/index.php"), Some("/in/fo"))
        );
        assert!(r.text().contains(" 1, 2 "), "{}", r.text());
        assert_eq!(weir.get("/?status=404").status, 404);
        assert_eq!(weir.get("/?to=/x").status, 302);
        assert_eq!(weir.request("HEAD", "/", "").body, b"");
        let big = weir.get("/?big=3000").body;
        assert_eq!((big.len(), big[1024 * 27]), (3000 << 10, b'b'));
        for path in ["/", "/now/"] {
            for len in [0, 5, 40_000, 300_000] {
                let body = "b".repeat(len);
                let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
                let got = weir.raw(format!("{head}Content-Length: {len}\r\n\r\n{body}"));
                let got = String::from_utf8_lossy(&got).into_owned();
                assert!(got.contains(&format!("POST h - left out {len}")), "{path} {len} {got}");
            }
        }
        assert_eq!(weir.get("/?say=not+so+bad").status, 200);
        weir.wait_for_log("error.log", "FastCGI sent in stderr: \"PHP message: not so bad\" while");
        assert_eq!(weir.get("/caught/?say=oh%2C+very+bad").status, 502);
        let at = format!("/own/?at=127.0.0.1:{}&status=404", php.port());
        assert_eq!(weir.get(&at).text(), "from the file");
        assert_eq!(weir.get("/own/?at=nobody").status, 500);
        weir.wait_for_log("error.log", "no port in upstream \"nobody\"");
    });
}

const PYTHON: &str = "
def application(environ, start):
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    query = environ.get('QUERY_STRING', '')
    status = query[7:] + ' Chosen' if query.startswith('status=') else '200 OK'
    start(status, [('Content-Type', 'text/plain'), ('X-App', environ.get('PATH_INFO', ''))])
    yield ('%s %s %s %d' % (environ['REQUEST_METHOD'], environ.get('HTTP_HOST'),
                            environ.get('HTTP_COOKIE', '-'), len(body))).encode()
    if query.startswith('big='):
        for i in range(int(query[4:])):
            yield b'x' * 1024
";

#[test]
fn uwsgi_and_scgi() {
    let peers = [
        ("uwsgi", Peer::uwsgi("--uwsgi-socket", PYTHON)),
        ("scgi", Peer::uwsgi("--scgi-socket", PYTHON)),
    ];
    for (name, peer) in &peers {
        each_driver(|driver| {
            let params = [
                "REQUEST_METHOD $request_method",
                "QUERY_STRING $query_string",
                "PATH_INFO $document_uri",
                "REQUEST_URI $request_uri",
                "SERVER_NAME $server_name",
                "SERVER_PORT $server_port",
                "SERVER_PROTOCOL $server_protocol",
                "SCGI 1",
            ];
            let mut params: Vec<_> = params.map(|p| format!("{name}_param {p};")).to_vec();
            if *name == "uwsgi" {
                params.push("uwsgi_param CONTENT_LENGTH $content_length;".to_owned());
            }
            let weir = site(
                driver,
                &format!(
                    "{} server {{ listen 127.0.0.1:%PORT0%;
                         location / {{ {name}_pass 127.0.0.1:{}; }}
                         location /now/ {{ {name}_pass {name}://127.0.0.1:{1};
                                           {name}_buffering off; {name}_request_buffering off; }} }}",
                    params.join("\n"),
                    peer.port()
                ),
            );
            let r = weir.request("GET", "/x/y", "Cookie: a=1\r\nCookie: b=2\r\n");
            assert_eq!((r.status, r.header("X-App")), (200, Some("/x/y")), "{name} {}", r.text());
            assert_eq!(r.text(), "GET localhost a=1; b=2 0");
            assert_eq!(weir.get("/?status=418").status, 418);
            for path in ["/", "/now/"] {
                assert_eq!(weir.get(&format!("{path}?big=2000")).body.len() >> 10, 2000);
                for len in [5, 300_000] {
                    let body = "b".repeat(len);
                    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
                    let got = weir.raw(format!("{head}Content-Length: {len}\r\n\r\n{body}"));
                    let got = String::from_utf8_lossy(&got).into_owned();
                    assert!(got.contains(&format!("POST h - {len}")), "{name} {path} {got}");
                }
            }
        });
    }
}

fn store(port: u16, key: &str, flags: u32, value: &[u8]) {
    let mut s = TcpStream::connect(("127.0.0.1", port)).expect("memcached listens");
    let line = format!("set {key} {flags} 0 {}\r\n", value.len());
    s.write_all(&[line.as_bytes(), value, b"\r\n"].concat()).expect("memcached takes it");
    let mut said = [0; 8];
    s.read_exact(&mut said).expect("memcached answers");
    assert_eq!(&said, b"STORED\r\n");
}

#[test]
fn memcached() {
    let memcached = Peer::memcached();
    let big: Vec<u8> = (0..500_000).map(|i| (i % 251) as u8).collect();
    store(memcached.port(), "/a.txt", 0, b"kept");
    store(memcached.port(), "/with%20space", 0, b"spaced");
    store(memcached.port(), "/empty", 0, b"");
    store(memcached.port(), "/packed", 2, b"gzipped bytes");
    store(memcached.port(), "/big", 0, &big);
    each_driver(|driver| {
        let weir = site(
            driver,
            &format!(
                "types {{ text/x-test txt; }}
                 upstream kept {{ server 127.0.0.1:{}; keepalive 1; }}
                 server {{ listen 127.0.0.1:%PORT0%;
                     location / {{ set $memcached_key $uri; memcached_pass kept;
                                   memcached_gzip_flag 2; error_page 404 = @miss; }}
                     location = /no-key {{ set $memcached_key ''; memcached_pass kept; }}
                     location @miss {{ return 200 missed; }} }}",
                memcached.port()
            ),
        );
        for _ in 0..3 {
            let r = weir.get("/a.txt");
            assert_eq!((r.status, r.text().as_str()), (200, "kept"));
            assert_eq!(r.header("Content-Type"), Some("text/x-test"));
            assert_eq!(weir.get("/nothing").text(), "missed");
        }
        assert_eq!(weir.get("/with%20space").text(), "spaced");
        assert_eq!(weir.get("/empty").text(), "");
        assert_eq!(weir.get("/packed").header("Content-Encoding"), Some("gzip"));
        assert!(weir.get("/big").body == big);
        let part = weir.request("GET", "/big", "Range: bytes=100-199\r\n");
        assert_eq!((part.status, &part.body[..]), (206, &big[100..200]));
        assert_eq!(weir.request("POST", "/a.txt", "").status, 405);
        assert_eq!(weir.get("/no-key").status, 500);
        weir.wait_for_log("error.log", "the \"$memcached_key\" variable is not set");
        weir.wait_for_log("error.log", "key: \"/nothing\" was not found by memcached");
    });
}

/// A record of FastCGI.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, len[0], len[1], 0, 0], content].concat()
}

/// The end of a request without a body: the empty record of its body.
fn asked(bytes: &[u8]) -> bool {
    bytes.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0])
}

fn uri(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split("URI/")
        .nth(1)
        .unwrap_or_default()
        .split(['\0', '\t', '\u{9}'])
        .next()
        .unwrap_or_default()
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || *c == '-')
        .collect()
}

/// The records that a faulty responder sends for a path.
fn lies(path: &str) -> Vec<Vec<u8>> {
    let head = b"Content-Type: text/plain\r\nContent-Length: 4\r\n\r\n";
    let end = record(3, &[0; 8]);
    let whole = |parts: &[&[u8]]| vec![[parts.concat(), end.clone()].concat()];
    match path {
        "good" => whole(&[&record(6, head), &record(6, b"body"), &record(6, b"")]),
        "bytewise" => {
            let all = whole(&[&record(6, head), &record(6, b"body"), &record(6, b"")]).concat();
            all.iter().map(|b| vec![*b]).collect()
        }
        "split" => {
            let records: Vec<u8> = head.iter().flat_map(|b| record(6, &[*b])).collect();
            whole(&[&records, &record(6, b"bo"), &record(7, b"aside"), &record(6, b"dy")])
        }
        "version" => vec![vec![2, 6, 0, 1]],
        "kind" => vec![vec![1, 9, 0, 1]],
        "number" => vec![vec![1, 6, 0, 2]],
        "no-head" => whole(&[&record(6, b"")]),
        "only-end" => vec![end],
        "bad-head" => whole(&[&record(6, b"a b: c\r\n\r\n")]),
        "bad-status" => whole(&[&record(6, b"Status: x\r\n\r\n")]),
        "half" => vec![record(6, head)[..20].to_vec()],
        "short" => whole(&[&record(6, head), &record(6, b"bo"), &record(6, b"")]),
        "long" => whole(&[&record(6, head), &record(6, b"body and more"), &record(6, b"")]),
        "twice" => {
            let one = whole(&[&record(6, head), &record(6, b"body"), &record(6, b"")]).concat();
            vec![[one.clone(), one].concat()]
        }
        "late-lie" => vec![[record(6, head), vec![7; 100]].concat()],
        "noise" => {
            let noise = record(7, &[b'n'; 60_000]);
            whole(&[&noise, &record(6, head), &record(6, b"body"), &record(6, b"")])
        }
        _ => Vec::new(),
    }
}

#[test]
fn responders_that_lie() {
    each_driver(|driver| {
        let b = Scripted::start(|mut s, _| {
            while let Some(bytes) = read_until(&mut s, asked) {
                let path = uri(&bytes);
                for piece in lies(&path) {
                    if s.write_all(&piece).is_err() {
                        return;
                    }
                    if piece.len() == 1 {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                }
                if matches!(path.as_str(), "half" | "nothing") {
                    return;
                }
            }
        });
        let weir = site(
            driver,
            &format!(
                "upstream kept {{ server 127.0.0.1:{}; keepalive 4; }}
                 server {{ listen 127.0.0.1:%PORT0%; location / {{
                     fastcgi_pass kept; fastcgi_keep_conn on; fastcgi_read_timeout 2s;
                     fastcgi_param URI $uri; }} }}",
                b.port
            ),
        );
        let body = |path: &str| {
            let raw =
                weir.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            let text = String::from_utf8_lossy(&raw).into_owned();
            let (head, body) =
                text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text}"));
            (head[9..12].to_owned(), body.to_owned())
        };
        let ok = |text: &str| ("200".to_owned(), text.to_owned());
        let logged = |text: &str| weir.wait_for_log("error.log", text);
        for path in ["/good", "/bytewise", "/split", "/good", "/noise"] {
            assert_eq!(body(path), ok("body"), "{path}");
        }
        assert_eq!(b.connections(), 1, "kept from request to request");
        logged("FastCGI sent in stderr: \"aside\" while reading upstream");
        for (path, why) in [
            ("/version", "upstream sent unsupported FastCGI protocol version: 2"),
            ("/kind", "upstream sent invalid FastCGI record type: 9"),
            ("/number", "upstream sent unexpected FastCGI request id low byte: 2"),
            ("/no-head", "upstream prematurely closed FastCGI stdout"),
            ("/only-end", "upstream sent unexpected FastCGI record: 3"),
            ("/bad-head", "upstream sent invalid header: \"a\\x20...\""),
            ("/bad-status", "upstream sent invalid status \"x\""),
            ("/half", "upstream prematurely closed connection while reading response header"),
            ("/nothing", "upstream prematurely closed connection while reading response header"),
        ] {
            assert_eq!(body(path).0, "502", "{path}");
            logged(why);
            assert_eq!(body("/good"), ok("body"), "after {path}");
        }
        assert_eq!(body("/short"), ok("bo"));
        logged("upstream prematurely closed FastCGI stdout while reading upstream");
        assert_eq!(body("/long"), ok("body"));
        logged("upstream sent more data than specified in \"Content-Length\" header while reading");
        assert_eq!(body("/twice"), ok("body"));
        assert!(weir.raw("GET /late-lie HTTP/1.1\r\nHost: a\r\n\r\n").is_empty());
        logged("unsupported FastCGI protocol version: 7 while reading upstream");
        for _ in 0..3 {
            assert_eq!(body("/good"), ok("body"), "what came too much belongs to nobody");
        }
    });
}

#[test]
fn configurations() {
    refused(
        "server { listen 127.0.0.1:%PORT0%; location / { * } }",
        &[
            ("fastcgi_pass nowhere;", "no port in upstream \"nowhere\""),
            ("fastcgi_pass 127.0.0.1:0;", "invalid port in upstream \"127.0.0.1:0\""),
            ("fastcgi_param A b c;", "invalid parameter \"c\""),
            ("fastcgi_split_path_info ^(x)$;", "pattern \"^(x)$\" must have 2 captures"),
            ("fastcgi_buffers 1 4k; fastcgi_pass 127.0.0.1:1;", "at least 2 \"fastcgi_buffers\""),
            ("uwsgi_modifier1 256;", "value must be between 0 and 255"),
            (
                "uwsgi_pass suwsgi://127.0.0.1:1; uwsgi_ssl_verify on;",
                "no uwsgi_ssl_trusted_certificate for uwsgi_ssl_verify",
            ),
            ("memcached_next_upstream http_500;", "invalid value \"http_500\""),
            ("memcached_pass 127.0.0.1:1;", "unknown \"memcached_key\" variable"),
            (
                "scgi_pass 127.0.0.1:1; scgi_pass 127.0.0.1:1;",
                "\"scgi_pass\" directive is duplicate",
            ),
        ],
    );
}

/// Files of settings for servers are included before there is one.
#[test]
fn unknown_variables_in_fields_for_upstreams_need_a_server_to_be_refused() {
    let fields = [
        "proxy_set_header X $nope;",
        "grpc_set_header X a$nope;",
        "fastcgi_param X $nope if_not_empty;",
        "uwsgi_param X $nope; scgi_param X $nope;",
    ];
    let server = "server { listen 127.0.0.1:%PORT0%; }";
    let usual = || Site::new(built_binary(), testkit::Driver::usual());
    let unknown = "unknown \"nope\" variable";
    for field in fields {
        let out = usual().http(field).run(&["-t"]);
        assert!(out.status.success(), "{field}: {}", String::from_utf8_lossy(&out.stderr));
        usual().http(&format!("{field} {server}")).is_refused(unknown);
        // Other directives look their variables up in either case.
        usual().http(&format!("{field} log_format other $nope;")).is_refused(unknown);
        usual().http(&format!("log_format other $nope; {field}")).is_refused(unknown);
    }
    // One that is defined further down is known.
    let defined = format!("{} map $uri $nope {{ default x; }} {server}", fields.concat());
    assert!(usual().http(&defined).run(&["-t"]).status.success());
}

/// `/FAULT-AT` in the bytes of a request, whichever the language: what is to go wrong, and behind
/// how many bytes of the answer.
fn fault(bytes: &[u8]) -> Option<(String, usize)> {
    let text = String::from_utf8_lossy(bytes);
    let names = ["/close-", "/reset-", "/stall-"];
    let (at, name) = names.iter().find_map(|name| Some((text.find(name)?, *name)))?;
    let digits = text[at + name.len()..].chars().take_while(char::is_ascii_digit);
    Some((name[1..6].to_owned(), digits.collect::<String>().parse().ok()?))
}

/// Whether all of a request without a body is there.
fn is_whole(language: &str, bytes: &[u8]) -> bool {
    match language {
        "fastcgi" => asked(bytes),
        "uwsgi" => match bytes {
            [_, low, high, _, rest @ ..] => {
                rest.len() >= usize::from(u16::from_le_bytes([*low, *high]))
            }
            _ => false,
        },
        "scgi" => bytes.ends_with(b","),
        _ => bytes.ends_with(b"\r\n"),
    }
}

/// A whole answer with the body `0123456789`, and how much of it is its head.
fn good(language: &str, path: &str) -> (Vec<u8>, usize) {
    let head = "Status: 200 OK\r\nContent-Length: 10\r\n\r\n";
    let body = "0123456789";
    match language {
        "fastcgi" => {
            let answer = record(6, format!("{head}{body}").as_bytes());
            ([answer, record(6, b""), record(3, &[0; 8])].concat(), 8 + head.len())
        }
        "memcached" => {
            let line = format!("VALUE {path} 0 10\r\n");
            (format!("{line}{body}\r\nEND\r\n").into_bytes(), line.len())
        }
        _ => (format!("{head}{body}").into_bytes(), head.len()),
    }
}

#[test]
fn gateways_that_break_off_anywhere() {
    each_driver(|driver| {
        for language in ["fastcgi", "uwsgi", "scgi", "memcached"] {
            let serve = move |errs: bool| {
                Scripted::start(move |mut s, _| {
                    while let Some(bytes) = read_until(&mut s, |b| is_whole(language, b)) {
                        let told = fault(&bytes);
                        let path = match &told {
                            Some((name, at)) => format!("/{name}-{at}"),
                            None => "/fine".to_owned(),
                        };
                        let (all, _) = good(language, &path);
                        let (name, at) = match told {
                            Some(told) if errs => told,
                            _ => (String::new(), all.len()),
                        };
                        if s.write_all(&all[..at]).is_err() {
                            return;
                        }
                        match name.as_str() {
                            "reset" => drop(os::socket::set_reset_on_close(&s)),
                            "stall" => std::thread::sleep(std::time::Duration::from_millis(900)),
                            "" if matches!(language, "fastcgi" | "memcached") => continue,
                            _ => {}
                        }
                        return;
                    }
                })
            };
            let (bad, fine) = (serve(true), serve(false));
            let keep = if language == "fastcgi" { "fastcgi_keep_conn on;" } else { "" };
            let more = match language {
                "memcached" => "set $memcached_key $uri;".to_owned(),
                _ => format!("{language}_param URI $uri; {keep}"),
            };
            let weir = site(
                driver,
                &format!(
                    "upstream pair {{ server 127.0.0.1:{} max_fails=0; keepalive 4;
                                      server 127.0.0.1:{} backup; }}
                     {language}_read_timeout 300ms;
                     server {{ listen 127.0.0.1:%PORT0%;
                               location / {{ {language}_pass pair; {more} }} }}",
                    bad.port, fine.port
                ),
            );
            for name in ["close", "reset", "stall"] {
                let (_, head) = good(language, &format!("/{name}-99"));
                let all = [0, 1, 9, head - 1, head, head + 1, head + 9];
                // A stall takes its time.
                let some = if name == "stall" { &all[3..6] } else { &all[..] };
                for at in some.iter().copied() {
                    // Over a new connection, and over a kept one.
                    assert_eq!(weir.get("/fine").text(), "0123456789", "{language}");
                    let path = format!("/{name}-{at}");
                    let head = good(language, &path).1;
                    let before = fine.connections();
                    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n");
                    let got = weir.raw(format!("{request}Connection: close\r\n\r\n"));
                    let got = String::from_utf8_lossy(&got).into_owned();
                    let whole = got.ends_with("\r\n\r\n0123456789");
                    // Half an answer is never passed off as one, and never asked for again.
                    assert_eq!(whole, at < head, "{language} {path}: {got}");
                    let again = fine.connections() > before;
                    assert!(at < head || !again, "{language} {path} was repeated");
                }
            }
        }
    });
}
