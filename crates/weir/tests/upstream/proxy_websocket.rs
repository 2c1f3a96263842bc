//! WebSocket to servers over HTTP/2, by extended CONNECT (RFC 8441).

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use testkit::h2::{Came, Client, Frame, Peer, Reply, Request, block, kind, scripted, setting};
use testkit::{Conn, Driver, Scripted, Site, Weir, built_binary, each_driver, pattern, wait_for};

/// The key of RFC 6455 section 1.3, and the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const OFFER: &[(u16, u32)] = &[(setting::ENABLE_CONNECT_PROTOCOL, 1)];

fn site(driver: Driver, port: u16) -> Weir {
    let text = format!(
        "log_format up '$upstream_status|$status|$body_bytes_sent';
         upstream u {{ server 127.0.0.1:{port}; }}
         server {{
             listen 127.0.0.1:%PORT0%;
             http2 on;
             access_log logs/up.log up;
             proxy_http_version 2;
             proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection upgrade;
             proxy_read_timeout 20s;
             location / {{ proxy_pass http://u; }}
         }}"
    );
    Site::new(built_binary(), driver).http(&text).start()
}

fn ask(weir: &Weir, path: &str) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\n\
         Sec-WebSocket-Key: {KEY}\r\n\r\n"
    ));
    conn
}

fn head(conn: &mut Conn) -> String {
    String::from_utf8(conn.read_until(b"\r\n\r\n")).unwrap().to_ascii_lowercase()
}

/// Accepts each request for another protocol, says `hi`, and sends back what comes; `bye` ends it.
/// Requests are noted as they came, and how they ended.
fn echo(stream: TcpStream, seen: &Mutex<Vec<Request>>, ends: &Mutex<Vec<String>>) {
    let mut peer = Peer::accept(stream, OFFER);
    loop {
        match peer.came() {
            Came::Head(request) => {
                let fields = block(&[(":status", "200"), ("sec-websocket-protocol", "chat")]);
                peer.send(&[
                    Frame::headers(request.stream, fields, false),
                    Frame::data(request.stream, "hi", false),
                ]);
                seen.lock().unwrap().push(request);
            }
            Came::Frame(frame) if frame.kind == kind::DATA => {
                let bytes = frame.payload.clone();
                peer.send(&[
                    Frame::window_update(0, bytes.len() as u32),
                    Frame::window_update(frame.stream, bytes.len() as u32),
                    Frame::data(frame.stream, &bytes, bytes == b"bye"),
                ]);
            }
            Came::Whole(request) => {
                ends.lock().unwrap().push(format!("{} ended", request.path()));
                peer.send(&[Frame::data(request.stream, "", true)]);
            }
            Came::Frame(frame) if frame.kind == kind::RST_STREAM => {
                ends.lock().unwrap().push(format!("{} reset", frame.stream));
            }
            Came::Frame(_) => {}
            Came::End => return,
        }
    }
}

#[test]
fn messages_go_both_ways_over_a_shared_connection() {
    each_driver(|driver| {
        let (seen, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let origin = Scripted::start({
            let (seen, ends) = (seen.clone(), ends.clone());
            move |stream, _| echo(stream, &seen, &ends)
        });
        let weir = site(driver, origin.port);
        let mut first = ask(&weir, "/first");
        let answer = head(&mut first);
        assert!(answer.starts_with("http/1.1 101 switching protocols\r\n"), "{answer}");
        let accept = format!("sec-websocket-accept: {}\r\n", ACCEPT.to_ascii_lowercase());
        for line in [
            "upgrade: websocket\r\n",
            "connection: upgrade\r\n",
            "sec-websocket-protocol: chat\r\n",
            &accept,
        ] {
            assert!(answer.contains(line), "{line} in {answer}");
        }
        assert_eq!(first.read_exact(2), b"hi");
        // More than a window of the stream and of the connection, both ways at once.
        let mut second = ask(&weir, "/second");
        head(&mut second);
        assert_eq!(second.read_exact(2), b"hi");
        let long = pattern(700_000, 1);
        for part in long.chunks(50_000) {
            second.send(part);
            first.send("ping");
            assert_eq!(first.read_exact(4), b"ping");
            assert_eq!(second.read_exact(part.len()), part);
        }
        // The server ends one, the client the other.
        second.send("bye");
        assert_eq!(second.read_to_end(), b"bye");
        first.finish_sending();
        assert_eq!(first.read_to_end(), b"");
        wait_for("the end of the stream", || {
            ends.lock().unwrap().iter().any(|end| end == "/first ended").then_some(())
        });
        let seen = seen.lock().unwrap();
        assert_eq!(origin.connections(), 1);
        for (request, path) in seen.iter().zip(["/first", "/second"]) {
            let field = |name| request.field(name);
            assert_eq!(field(":method"), Some("CONNECT"));
            assert_eq!(field(":protocol"), Some("websocket"));
            assert_eq!((field(":path"), field(":scheme")), (Some(path), Some("http")));
            assert_eq!(field("sec-websocket-version"), Some("13"));
            for gone in ["sec-websocket-key", "upgrade", "connection", "content-length"] {
                assert_eq!(field(gone), None, "{gone}");
            }
        }
        assert_eq!(weir.wait_for_lines("up.log", 2), "200|101|700005\n200|101|58\n");
    });
}

#[test]
fn a_server_may_refuse() {
    each_driver(|driver| {
        let origin = scripted(OFFER, |peer, came, _| match came {
            // The end of a request with a body follows.
            Came::Head(request) if request.field(":protocol").is_none() => {}
            Came::Head(request) => {
                let mut reply = Reply::of("not here");
                reply.fields[0].1 = "403".to_owned();
                peer.reply(request.stream, &reply);
            }
            Came::Whole(request) => peer.reply(request.stream, &Reply::of("plain")),
            _ => {}
        });
        let weir = site(driver, origin.port);
        let mut conn = ask(&weir, "/chat");
        let response = conn.response();
        assert_eq!((response.status, response.text()), (403, "not here".to_owned()));
        // The client's connection goes on, and so does the server's.
        conn.send("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(conn.response().text(), "plain");
        // A request with a body is no opening handshake.
        conn.send(
            "GET /body HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
             Content-Length: 3\r\n\r\nabc",
        );
        assert_eq!(conn.response().text(), "plain");
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_server_that_does_not_offer_it_is_asked_without_an_upgrade() {
    each_driver(|driver| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let origin = testkit::h2::origin(move |request, _| {
            let protocol = request.field(":protocol").is_some();
            let method = request.field(":method").unwrap_or_default().to_owned();
            seen.lock().unwrap().push((method, protocol));
            let mut reply = Reply::of("no upgrade");
            reply.fields[0].1 = "426".to_owned();
            reply
        });
        let weir = site(driver, origin.port);
        let mut conn = ask(&weir, "/chat");
        assert_eq!(conn.response().status, 426);
        assert_eq!(*asked.lock().unwrap(), [("GET".to_owned(), false)]);
        weir.wait_for_log("error.log", "upstream does not take WebSocket over HTTP/2");
    });
}

#[test]
fn a_stream_that_breaks_off_ends_the_clients_side() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, number| {
            let mut peer = Peer::accept(stream, OFFER);
            loop {
                match peer.came() {
                    Came::Head(request) => {
                        let fields = block(&[(":status", "200")]);
                        peer.send(&[Frame::headers(request.stream, fields, false)]);
                    }
                    Came::Frame(frame) if frame.kind == kind::DATA && number == 1 => {
                        peer.send(&[Frame::reset(frame.stream, 2)]);
                    }
                    // The whole connection goes.
                    Came::Frame(frame) if frame.kind == kind::DATA => return,
                    Came::Whole(request) => peer.reply(request.stream, &Reply::of("plain")),
                    Came::End => return,
                    _ => {}
                }
            }
        });
        let weir = site(driver, origin.port);
        for _ in 0..2 {
            let mut conn = ask(&weir, "/chat");
            head(&mut conn);
            conn.send("ping");
            assert_eq!(conn.read_to_end(), b"");
        }
        assert_eq!(weir.get("/").text(), "plain");
    });
}

#[test]
fn clients_of_http_2_reach_servers_of_http_1_over_two_servers() {
    each_driver(|driver| {
        let behind = Scripted::start(|mut stream, _| {
            use std::io::{Read, Write};
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            let asked = String::from_utf8(asked).unwrap();
            let key = asked.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
            let accept = testkit::websocket_accept(key.unwrap());
            let lines = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\nhi"
            );
            stream.write_all(lines.as_bytes()).unwrap();
            let mut said = [0; 4];
            while stream.read_exact(&mut said).is_ok() {
                stream.write_all(&said).unwrap();
            }
        });
        let text = format!(
            "proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection upgrade;
             server {{
                 listen 127.0.0.1:%PORT0%; http2 on;
                 location / {{ proxy_pass http://127.0.0.1:%PORT1%; proxy_http_version 2; }}
             }}
             server {{
                 listen 127.0.0.1:%PORT1%; http2 on;
                 location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1; }}
             }}",
            behind.port
        );
        let weir = Site::new(built_binary(), driver).http(&text).start();
        let mut old = ask(&weir, "/chat");
        assert!(head(&mut old).contains(&ACCEPT.to_ascii_lowercase()));
        old.send("ping");
        assert_eq!(old.read_exact(6), b"hiping");

        let mut new = Client::tcp(weir.port(0));
        let stream = new.websocket("/chat");
        let answer = new.response_head(stream);
        assert_eq!((answer.status, answer.header("sec-websocket-accept")), (200, None));
        new.data(stream, b"pong", false);
        new.wait_for_body(stream, b"hipong");
        new.data(stream, b"", true);
        assert!(new.response(stream).is_over());
    });
}
