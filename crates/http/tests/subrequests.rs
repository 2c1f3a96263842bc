//! Subrequests through the whole engine: real sockets, and simulated ones that split and delay.
//!
//! The module here makes pages of a small language: a page's text is its URI's argument, and in it
//! `(page)` stands for a subrequest, `[page]` for one that is waited for, `{page}` for one that is
//! kept in memory. A page is late by the milliseconds that its path names; `/held` is until the
//! test releases it.

#![allow(clippy::unwrap_used)]

extern crate weir_http as http;

#[allow(dead_code, reason = "each test file uses its part")]
mod engine;

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use conf::ConfError;
use engine::{Client, exchange};
use event::Notify;
use event::testing::{turns, until};
use http::module::{HeaderFilter, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::output::{Body, BodyFilter, BodySource, FilterStep, NextPiece, Piece, Until};
use http::request::Request;
use http::subrequest::{Handle, Subrequest, Use};
use mem::Chain;

static PAGES: Module = Module { name: "pages", install: Some(install), ..Module::EMPTY };

static MODULES: &[&Module] = &[&http::core_directives::MODULE, &PAGES];

fn served_on_each_driver<T: AsyncFn(engine::Served) + Copy + 'static>(test: T) {
    engine::on_each_driver(SERVER, MODULES, test);
}
fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    p.content.push(Box::new(Late));
    p.header_filters.push(Box::new(Parts));
    p.header_filters.push(Box::new(Codings));
    Ok(())
}

/// Answers with the arguments, after as many milliseconds as the path says, or when [`HELD`] is
/// notified; `/flood` is large.
struct Late;

impl PhaseHandler for Late {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Wait(Box::pin(async move {
            let digits = r.target.uri.iter().skip(1).take_while(|b| b.is_ascii_digit());
            let ms = digits.fold(0, |n, b| n * 10 + u64::from(b - b'0'));
            let is_held = r.target.uri[..] == *b"/held";
            if ms > 0 || is_held {
                RUNNING.set(RUNNING.get() + 1);
                MOST.set(MOST.get().max(RUNNING.get()));
                let running = Running;
                match is_held {
                    true => HELD.with(Rc::clone).notified().await,
                    false => event::sleep(ms).await,
                }
                drop(running);
            }
            r.out.status = 200;
            let text = Bytes::copy_from_slice(&r.target.args);
            match &r.target.uri[..] {
                b"/flood" => r.out.body = Body::Stream(Box::new(Flood { left: FLOOD })),
                b"/gone" => return Verdict::Close,
                b"/copied" => {
                    let uri = Bytes::from_static(b"/held");
                    let copy = Subrequest { take: Use::Head, ..Subrequest::new(uri, Bytes::new()) };
                    r.subrequest(copy).ok().unwrap().detach();
                    r.respond(200, Bytes::from_static(b"text/plain"), text);
                }
                b"/broken" => r.out.body = Body::Stream(Box::new(Flood { left: 0 })),
                _ => r.respond(200, Bytes::from_static(b"text/plain"), text),
            }
            r.out.content_length = None;
            Verdict::Done
        }))
    }
}

thread_local! {
    /// Pages that are late just now, and the most of them at the same time.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    /// Releases pages that are held.
    static HELD: Rc<Notify> = Rc::new(Notify::new());
    /// Bytes that floods gave out.
    static POURED: Cell<usize> = const { Cell::new(0) };
}

struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
    }
}

const FLOOD: usize = 1 << 20;

/// `~` many times; breaks where there is nothing to give from the start.
struct Flood {
    left: usize,
}

impl BodySource for Flood {
    fn next<'a>(&'a mut self, _: &'a mut Request) -> NextPiece<'a> {
        Box::pin(async move {
            match self.left {
                0 => Err(http::output::Broken),
                1 => Ok(None),
                _ => {
                    let n = 4096.min(self.left - 1);
                    self.left -= n;
                    POURED.set(POURED.get() + n);
                    let mut chain = Chain::new();
                    chain.push_bytes(Bytes::from(vec![b'~'; n]));
                    Ok(Some(chain))
                }
            }
        })
    }
}

struct Parts;

impl HeaderFilter for Parts {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        r.out.filters.push(Box::new(Page::default()));
        Verdict::Next
    }
}

#[derive(Default)]
struct Page {
    text: Vec<u8>,
    wait: Option<Until>,
    kept: Option<Handle>,
}

impl BodyFilter for Page {
    fn filter(&mut self, r: &mut Request, Piece { input, out, .. }: Piece<'_>) -> FilterStep {
        if let Some(until) = self.wait.take() {
            return FilterStep::Wait(until);
        }
        if let Some(handle) = self.kept.take() {
            out.append(&mut handle.body());
        }
        while let Some(piece) = input.pop_front() {
            self.text.extend_from_slice(piece.memory().unwrap());
        }
        let Some(at) = self.text.iter().position(|b| b"([{".contains(b)) else {
            out.write(&std::mem::take(&mut self.text));
            return FilterStep::Go;
        };
        let (open, close) = match self.text[at] {
            b'(' => (b'(', b')'),
            b'[' => (b'[', b']'),
            _ => (b'{', b'}'),
        };
        let mut depth = 0;
        let end = at
            + self.text[at..]
                .iter()
                .position(|b| {
                    depth += i32::from(b"([{".contains(b)) - i32::from(b")]}".contains(b));
                    depth == 0
                })
                .unwrap();
        assert_eq!(self.text[end], close);
        let target: Vec<u8> = self.text[at + 1..end].to_vec();
        out.write(&self.text[..at]);
        self.text.drain(..=end);
        let mut parts = target.splitn(2, |b| *b == b'?');
        let uri = Bytes::copy_from_slice(parts.next().unwrap());
        let args = Bytes::copy_from_slice(parts.next().unwrap_or_default());
        let mut ask = Subrequest::new(uri, args);
        if open == b'{' {
            ask.take = Use::Memory;
        }
        let Ok(handle) = r.subrequest(ask) else {
            out.write(b"!");
            return FilterStep::More;
        };
        match open {
            b'(' => FilterStep::Include(handle),
            b'[' => {
                self.wait = Some(Box::pin(handle.ended()));
                FilterStep::Include(handle)
            }
            _ => {
                let ended = Box::pin(handle.ended());
                self.kept = Some(handle);
                FilterStep::Wait(ended)
            }
        }
    }
}

/// Upper case, for the whole of a page of `/upper`.
struct Codings;

impl HeaderFilter for Codings {
    fn run(&self, r: &mut Request) -> Verdict {
        if r.target.uri == b"/upper" {
            r.out.filters.push(Box::new(Upper));
        }
        Verdict::Next
    }
}

struct Upper;

impl BodyFilter for Upper {
    fn is_coding(&self) -> bool {
        true
    }

    fn filter(&mut self, _: &mut Request, Piece { input, out, .. }: Piece<'_>) -> FilterStep {
        while let Some(piece) = input.pop_front() {
            out.write(&piece.memory().unwrap().to_ascii_uppercase());
        }
        FilterStep::Go
    }
}

const SERVER: &str = "server { keepalive_requests 1000; subrequest_output_buffer_size 1k; }";

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n")
}

#[test]
fn the_order_is_that_of_the_page_on_every_driver() {
    served_on_each_driver(async |served| {
        for (page, want) in [
            ("/?a(/?b)c(/?d)e", "abcde"),
            ("/?(/30?1)(/20?2)(/10?3)4", "1234"),
            ("/?<(/9?a(/20?b(/1?c)d)e)(/?f)>", "<abcdef>"),
            ("/?[/20?a[/10?b]c](/?d)[/5?e]f", "abcdef"),
            ("/?a{/5?b}c(/10?{/?d})e", "abcde"),
            ("/upper?a(/5?b(/upper?c))d", "ABCD"),
            ("/?(/?)(/9?)x", "x"),
            // No subrequest of one that is kept in memory.
            ("/?{/?a(/?b)}", "a!"),
        ] {
            let answer = exchange(&served, &[request(page).as_bytes()]).await;
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(body, want, "{page}");
        }
    });
}

#[test]
fn subrequests_run_side_by_side_but_not_without_limit() {
    served_on_each_driver(async |served| {
        MOST.set(0);
        let page = format!("/?{}", "(/20?x)".repeat(200));
        let answer = exchange(&served, &[request(&page).as_bytes()]).await;
        assert!(answer.ends_with(&format!("\r\n\r\n{}", "x".repeat(200))), "{answer}");
        assert!((16..=64).contains(&MOST.get()), "{} at the same time", MOST.get());
        assert_eq!(RUNNING.get(), 0);
        // Subrequests that the page waits for run one at a time.
        MOST.set(0);
        let answer = exchange(&served, &[request("/?[/5?x][/5?y][/5?z]").as_bytes()]).await;
        assert!(answer.ends_with("xyz") && MOST.get() == 1, "{answer}");
    });
}

#[test]
fn a_part_whose_turn_has_not_come_waits_with_little_in_hand() {
    served_on_each_driver(async |served| {
        POURED.set(0);
        let mut client = Client::connect(&served).await;
        client.send(request("/?a(/held?b)(/flood)(/flood)c").as_bytes()).await;
        until(|| POURED.get() >= 128 << 10).await;
        // A flood that went on would pour in each of these.
        turns(40).await;
        let early = POURED.get();
        assert!((128 << 10..=160 << 10).contains(&early), "{early} bytes ahead of their turn");
        HELD.with(|held| held.notify_one());
        let answer = client.rest().await;
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(
            (body.len(), body.starts_with("ab~"), body.ends_with("~c")),
            (3 + 2 * (FLOOD - 1), true, true)
        );
    });
}

#[test]
fn parts_that_fail_end_the_page() {
    served_on_each_driver(async |served| {
        for (page, want) in [("/?a(/gone)b", "a"), ("/?a(/5?b)(/broken)c", "ab")] {
            let text = format!("GET {page} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = exchange(&served, &[text.as_bytes()]).await;
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let text: String = body.lines().skip(1).step_by(2).collect();
            assert_eq!(text, want, "{page}: {body:?}");
            assert!(!body.ends_with("0\r\n\r\n"), "{page}: {body:?}");
        }
        // More than fits in memory.
        let flooded = exchange(&served, &[b"GET /?a{/flood}b HTTP/1.1\r\nHost: a\r\n\r\n"]).await;
        assert_eq!(flooded, "");
        served.has_logged("too big subrequest response");
    });
}

#[test]
fn nothing_is_left_of_a_client_that_has_gone() {
    served_on_each_driver(async |served| {
        let mut client = Client::connect(&served).await;
        client.send(request("/?(/held?a)(/held?b(/9?c))[/held?d]").as_bytes()).await;
        until(|| RUNNING.get() == 3).await;
        drop(client);
        // Subrequests go with the request that made them. Nothing else would end these.
        until(|| RUNNING.get() == 0).await;
    });
}

#[test]
fn nesting_ends() {
    served_on_each_driver(async |served| {
        let deep = |n: usize| format!("/?{}x{}", "(/?".repeat(n), ")".repeat(n));
        let answer = exchange(&served, &[request(&deep(50)).as_bytes()]).await;
        assert!(answer.ends_with("\r\n\r\nx"), "{answer}");
        let answer = exchange(&served, &[request(&deep(51)).as_bytes()]).await;
        assert!(answer.ends_with("\r\n\r\n!"), "{answer}");
        served.has_logged("subrequests cycle while processing \"/\"");
    });
}

#[test]
fn kept_connections_go_on_behind_a_page_of_parts() {
    served_on_each_driver(async |served| {
        let mut client = Client::connect(&served).await;
        let one = "GET /?a(/10?b)c HTTP/1.1\r\nHost: a\r\n\r\n";
        let two = "GET /?d HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(format!("{one}{two}{one}").as_bytes()).await;
        for want in ["c\r\n0\r\n\r\n", "d\r\n0\r\n\r\n", "c\r\n0\r\n\r\n"] {
            assert!(client.until("\r\n0\r\n\r\n").await.ends_with(want));
        }
    });
}

#[test]
fn what_was_let_go_holds_nobody() {
    served_on_each_driver(async |served| {
        let mut client = Client::connect(&served).await;
        let next = "GET /?d HTTP/1.1\r\nHost: a\r\n\r\n";
        let copied = "GET /copied?c HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(format!("{copied}{next}").as_bytes()).await;
        assert!(client.until("\r\n0\r\n\r\n").await.ends_with("c\r\n0\r\n\r\n"));
        assert!(client.until("\r\n0\r\n\r\n").await.ends_with("d\r\n0\r\n\r\n"));
        // The client sees the end of its connection before the copy's.
        let answer = exchange(&served, &[request("/copied?e").as_bytes()]).await;
        assert!(answer.ends_with("\r\n\r\ne"), "{answer}");
        assert!(RUNNING.get() > 0, "the copies go on");
        drop(client);
        HELD.with(|held| held.notify_all());
        until(|| RUNNING.get() == 0).await;
    });
}
