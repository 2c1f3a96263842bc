//! Request bodies through the whole engine: real sockets, and simulated ones that split and delay.

#![allow(clippy::unwrap_used)]

extern crate weir_http as http;

mod engine;

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, Node};
use engine::{Client, exchange};
use event::testing::until;
use http::core_directives::{HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::output::Body;
use http::request::Request;
use mem::Chain;

/// Answers with the part of the body it got.
static ECHO: Module = Module {
    name: "echo",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<EchoConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] =
    &[directive("echo", HSLI, Args::T1, "-", "whole, pieces or none", echo)];

static MODULES: &[&Module] = &[&http::core_directives::MODULE, &ECHO];

fn served_on_each_driver<T: AsyncFn(engine::Served) + Copy + 'static>(test: T) {
    engine::on_each_driver(CONF, MODULES, test);
}
#[derive(Clone, Copy, PartialEq)]
enum How {
    Whole,
    Pieces,
    None,
    /// A large answer without a look at the body.
    Flood,
}

#[derive(Default)]
struct EchoConf(Option<How>);

impl Conf for EchoConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.0 = self.0.or(prev.0);
        Ok(())
    }
}

fn echo(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    cx.loc::<EchoConf>().0 = Some(match n.args[0].bytes() {
        b"whole" => How::Whole,
        b"pieces" => How::Pieces,
        b"flood" => How::Flood,
        _ => How::None,
    });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(how) = l.conf::<EchoConf>().0 {
        p.content_handler = Some(Box::new(how));
    }
    Ok(())
}

impl PhaseHandler for How {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Wait(Box::pin(async move {
            let done = match self {
                How::Whole => whole(r).await,
                How::Pieces => pieces(r).await,
                How::Flood => {
                    r.respond(200, "text/plain".into(), Bytes::from(vec![b'y'; FLOOD]));
                    Ok(())
                }
                How::None => {
                    r.respond(200, "text/plain".into(), "unread".into());
                    Ok(())
                }
            };
            done.map_or_else(|v| v, |()| Verdict::Done)
        }))
    }
}

/// More than sockets hold.
const FLOOD: usize = 100_000;

async fn whole(r: &mut Request) -> Result<(), Verdict> {
    r.read_body().await?;
    let mut told = vec![format!("len={}", r.body.len()), format!("wire={}", r.body.received())];
    if let Some(file) = r.body.file_path() {
        told.push(format!("file={}", file.display()));
    }
    if let Some(bytes) = r.body_bytes() {
        told.push(format!("memory={}", bytes.len()));
    }
    // Asking twice gives the same twice.
    drop(r.body_chain());
    let chain = r.body_chain();
    told.push(format!("pieces={}", chain.iter().count()));
    r.out.status = 200;
    r.out.content_length = Some(chain.len());
    r.out.add("X-Body", Bytes::from(told.join(" ")));
    r.out.body = Body::Chain(chain);
    Ok(())
}

async fn pieces(r: &mut Request) -> Result<(), Verdict> {
    let mut chain = Chain::new();
    while let Some(page) = r.next_body_piece().await? {
        assert!(!page.is_empty());
        chain.write(&page);
    }
    r.out.status = 200;
    r.out.content_length = Some(chain.len());
    r.out.body = Body::Chain(chain);
    Ok(())
}

const CONF: &str = "server {
    listen 127.0.0.1:1;
    client_body_temp_path temp 1;
    client_header_buffer_size 1k;
    location /whole { echo whole; client_body_buffer_size 2k; }
    location /written { echo whole; client_body_buffer_size 2k; aio_write on; }
    location /single { echo whole; client_body_in_single_buffer on; }
    location /kept { echo whole; client_body_in_file_only on; }
    location /clean { echo whole; client_body_in_file_only clean; }
    location /pieces { echo pieces; }
    location /none { echo none; }
    location /flood { echo flood; }
    location /small { echo whole; client_max_body_size 8; error_page 413 /none; }
    location /patient { echo whole; client_body_timeout 50ms; }
}";

fn sized(path: &str, body: &str, more: &str) -> String {
    let len = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n{more}\r\n{body}")
}

fn chunked(path: &str, chunks: &[&str], more: &str) -> String {
    let mut text =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{more}\r\n");
    for chunk in chunks {
        text.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    }
    text.push_str("0\r\n\r\n");
    text
}

const CLOSE: &str = "Connection: close\r\n";

#[test]
fn small_bodies_stay_in_memory() {
    served_on_each_driver(async |served| {
        let got = exchange(&served, &[sized("/whole", "0123456789", CLOSE).as_bytes()]).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        assert!(got.contains("X-Body: len=10 wire=10 memory=10 pieces=1\r\n"), "{got}");
        assert!(got.ends_with("\r\n\r\n0123456789"), "{got}");
        let text = chunked("/whole", &["01234", "5", "6789"], CLOSE);
        let got = exchange(&served, &[text.as_bytes()]).await;
        assert!(got.contains("X-Body: len=10 wire=30 memory=10 pieces=1\r\n"), "{got}");
        assert!(got.ends_with("\r\n\r\n0123456789"), "{got}");
        // No body at all, and an empty one.
        let got = exchange(&served, &[b"GET /whole HTTP/1.0\r\n\r\n"]).await;
        assert!(got.contains("X-Body: len=0 wire=0 pieces=0\r\n"), "{got}");
        let got = exchange(&served, &[sized("/whole", "", CLOSE).as_bytes()]).await;
        assert!(got.contains("X-Body: len=0 wire=0 memory=0 pieces=0\r\n"), "{got}");
    });
}

#[test]
fn large_bodies_go_to_files_without_names() {
    served_on_each_driver(async |served| {
        let body = "0123456789".repeat(5_000);
        let parts: Vec<&str> = (0..5).map(|i| &body[i * 10_000..(i + 1) * 10_000]).collect();
        for text in [
            sized("/whole", &body, CLOSE),
            chunked("/whole", &parts, CLOSE),
            sized("/written", &body, CLOSE),
            chunked("/written", &parts, CLOSE),
        ] {
            let (a, b) = text.as_bytes().split_at(20_000);
            let got = exchange(&served, &[a, b]).await;
            let (head, echoed) = got.split_once("\r\n\r\n").unwrap();
            let file = head.split_once("file=").unwrap().1.split(' ').next().unwrap();
            assert!(
                file.starts_with(served.folder.path().join("temp").to_str().unwrap()),
                "{file}"
            );
            assert!(!std::path::Path::new(file).exists(), "{file} still has its name");
            assert!(!head.contains("memory="), "{head}");
            assert!(echoed == body, "the body came back changed: {} bytes", echoed.len());
            let log = served.errors.take();
            let said = format!("a client request body is buffered to a temporary file {file}");
            assert!(log.contains("[warn]") && log.contains(&said), "{log}");
        }
    });
}

#[test]
fn whether_memory_is_enough_depends_on_what_shares_the_heads_buffer() {
    served_on_each_driver(async |served| {
        // The buffer is 2048 bytes, and a quarter more when that holds all of the rest.
        for (len, in_file) in [(2_048, false), (2_559, false), (4_000, true)] {
            let body = "x".repeat(len);
            let got = exchange(&served, &[sized("/whole", &body, CLOSE).as_bytes()]).await;
            assert_eq!(got.contains("file="), in_file, "{len} bytes");
        }
        let body = "x".repeat(5_120);
        let got = exchange(&served, &[chunked("/whole", &[&body], CLOSE).as_bytes()]).await;
        assert!(got.contains("file="), "{got}");
    });
}

#[test]
fn files_are_kept_or_cleaned_as_asked() {
    served_on_each_driver(async |served| {
        for (path, kept) in [("/kept", true), ("/clean", false)] {
            let got = exchange(&served, &[sized(path, "0123456789", CLOSE).as_bytes()]).await;
            assert!(got.ends_with("\r\n\r\n0123456789"), "{got}");
            let file = got.split_once("file=").unwrap().1.split(' ').next().unwrap();
            let file = std::path::Path::new(file);
            // A thread removes it.
            until(|| kept || !file.exists()).await;
            assert_eq!(file.exists(), kept, "{path}");
            if kept {
                assert_eq!(std::fs::read(file).unwrap(), b"0123456789");
                let mode = file.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
            assert!(served.errors.take().contains("[notice]"));
            // An empty body has a file, too; no body has none.
            let got = exchange(&served, &[sized(path, "", CLOSE).as_bytes()]).await;
            assert!(got.contains("file="), "{got}");
            let none = format!("GET {path} HTTP/1.0\r\n\r\n");
            let got = exchange(&served, &[none.as_bytes()]).await;
            assert!(!got.contains("file="), "{got}");
        }
    });
}

#[test]
fn one_buffer_is_made_of_several_pieces() {
    served_on_each_driver(async |served| {
        let body = "0123456789".repeat(900);
        let text = sized("/single", &body, CLOSE);
        let (a, rest) = text.as_bytes().split_at(100);
        let (b, c) = rest.split_at(6_000);
        let got = exchange(&served, &[a, b, c]).await;
        assert!(got.contains("memory=9000 pieces=1\r\n"), "{}", &got[..300]);
        assert!(got.ends_with(&body));
    });
}

#[test]
fn what_follows_a_body_is_the_next_request() {
    served_on_each_driver(async |served| {
        let large = "0123456789".repeat(3_000);
        for path in ["/whole", "/pieces", "/none"] {
            let mut text = String::new();
            for body in ["first", &large, "third"] {
                text.push_str(&sized(path, body, ""));
                text.push_str(&chunked(path, &[body, "more"], ""));
            }
            text.push_str("GET /whole?last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let got = exchange(&served, &[text.as_bytes()]).await;
            assert_eq!(got.matches("HTTP/1.1 200 ").count(), 7, "{path}");
            if path != "/none" {
                for want in ["\r\n\r\nfirstHTTP", "\r\n\r\nfirstmoreHTTP", "\r\n\r\nthirdmoreHTTP"]
                {
                    assert!(got.contains(want), "{path}: no {want:?}");
                }
                assert!(got.contains(&format!("\r\n\r\n{large}moreHTTP")), "{path}");
            }
        }
    });
}

#[test]
fn a_client_that_sends_all_before_it_reads_is_served() {
    served_on_each_driver(async |served| {
        let body = "x".repeat(FLOOD);
        for text in [sized("/flood", &body, ""), chunked("/flood", &[&body, &body], "")] {
            let mut client = Client::connect(&served).await;
            client.send(text.as_bytes()).await;
            client.send(b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
            let got = client.rest().await;
            assert_eq!(got.matches("HTTP/1.1 200 ").count(), 2);
            assert!(got.contains(&"y".repeat(FLOOD)) && got.ends_with("unread"));
        }
    });
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    served_on_each_driver(async |served| {
        const EXPECT: &str = "Connection: close\r\nExpect: 100-Continue\r\n";
        for text in [sized("/whole", "hello", EXPECT), chunked("/pieces", &["hello"], EXPECT)] {
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let mut client = Client::connect(&served).await;
            client.send(format!("{head}\r\n\r\n").as_bytes()).await;
            assert_eq!(client.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
            client.send(body.as_bytes()).await;
            let got = client.rest().await;
            assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("hello"), "{got}");
        }
        // Nobody wants this one: its client is not asked for it, and cannot send anything else.
        let text = sized("/none", "hello", "Expect: 100-continue\r\n");
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let mut client = Client::connect(&served).await;
        client.send(format!("{head}\r\n\r\n").as_bytes()).await;
        let got = client.until("unread").await;
        assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("Connection: close"), "{got}");
        // A version that knows no 100 (RFC 9110 section 10.1.1) is not told.
        let text = sized("/whole", "", "Expect: 100-continue\r\n").replace("HTTP/1.1", "HTTP/1.0");
        let got = exchange(&served, &[text.as_bytes()]).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    });
}

#[test]
fn too_much_is_refused() {
    served_on_each_driver(async |served| {
        let got = exchange(&served, &[sized("/small", "12345678", CLOSE).as_bytes()]).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        let got = exchange(&served, &[sized("/small", "123456789", "").as_bytes()]).await;
        assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
        assert!(got.ends_with("unread"), "the error page answers: {got}");
        served.has_logged("client intended to send too large body: 9 bytes");
        let text = chunked("/small", &["1234", "56789"], "");
        let got = exchange(&served, &[text.as_bytes()]).await;
        assert!(got.starts_with("HTTP/1.1 413 ") && got.ends_with("unread"), "{got}");
        served.has_logged("client intended to send too large chunked body: 4+5 bytes");
    });
}

#[test]
fn broken_chunks_are_refused() {
    served_on_each_driver(async |served| {
        for path in ["/whole", "/pieces", "/none"] {
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
            let text = format!("{head}4\r\nSEE-THIS\r\n0\r\n\r\n");
            let got = exchange(&served, &[text.as_bytes()]).await;
            // A body that nobody reads may come only after its request was answered.
            let answered = path == "/none" && got.starts_with("HTTP/1.1 200 ");
            // Nobody lingers after a 400, as in nginx: bytes that come late, as in simulations,
            // reset the connection, and the answer may be lost.
            let lost = got.is_empty() && event::driver_name().starts_with("sim");
            assert!(lost || answered || got.starts_with("HTTP/1.1 400 "), "{path}: {got}");
            served.has_logged("client sent invalid chunked body");
        }
    });
}

#[test]
fn a_body_that_breaks_off_is_not_answered() {
    served_on_each_driver(async |served| {
        for path in ["/whole", "/pieces"] {
            let mut client = Client::connect(&served).await;
            let text = sized(path, "0123456789", "");
            client.send(&text.as_bytes()[..text.len() - 3]).await;
            client.finish();
            assert_eq!(client.rest().await, "", "{path}");
            served.has_logged("client prematurely closed connection");
        }
        let text = sized("/patient", "0123456789", "");
        let got = exchange(&served, &[&text.as_bytes()[..text.len() - 3]]).await;
        assert_eq!(got, "");
        served.has_logged("client timed out (110: Connection timed out) while reading");
    });
}
