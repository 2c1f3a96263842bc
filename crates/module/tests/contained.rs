//! Modules that misbehave: what it costs, and what the log says.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use weir_module::filter::{Body, BodySource, NextPiece};
use weir_module::prelude::*;
use weir_module::testing::serve;

static MODULE: Module = Module {
    name: "wild",
    variables: &[VarDef::new("held", |_, out| {
        hold();
        out.extend_from_slice(b"held");
        true
    })],
    install: Some(install),
    ..Module::EMPTY
};

fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    p.content.push(Box::new(Wild));
    p.header_filters.push(Box::new(|r: &mut Request| {
        if r.target.uri.starts_with(b"/filter") {
            r.out.body_changes();
            r.out.filters.push(Box::new(Holds));
        }
        Verdict::Next
    }));
    Ok(())
}

/// Longer than what is logged, and short enough for a test.
fn hold() {
    std::thread::sleep(Duration::from_millis(130));
}

struct Holds;

impl BodyFilter for Holds {
    fn filter(&mut self, _: &mut Request, Piece { input, out, .. }: Piece<'_>) -> FilterStep {
        hold();
        out.append(input);
        FilterStep::Go
    }
}

struct Source(bool);

impl BodySource for Source {
    fn next<'a>(&'a mut self, _: &'a mut Request) -> NextPiece<'a> {
        Box::pin(async move {
            if std::mem::replace(&mut self.0, true) {
                return Ok(None);
            }
            hold();
            let mut chain = Chain::new();
            chain.write(b"piece");
            Ok(Some(chain))
        })
    }
}

struct Wild;

impl PhaseHandler for Wild {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let text = Bytes::from_static(b"text/plain");
        match &r.target.uri[..] {
            b"/panic" => panic!("as asked"),
            b"/held" => hold(),
            b"/later" => {
                return Step::Wait(Box::pin(async move {
                    weir_module::timer::sleep(5).await;
                    hold();
                    r.respond(200, text, Bytes::from_static(b"later"));
                    Verdict::Done
                }));
            }
            b"/long" => {
                // Waiting is not holding.
                return Step::Wait(Box::pin(async {
                    weir_module::timer::sleep(150).await;
                    Verdict::Status(204)
                }));
            }
            b"/source" => {
                r.out.status = 200;
                r.out.body = Body::Stream(Box::new(Source(false)));
                return Step::Now(Verdict::Done);
            }
            b"/pool" => {
                return Step::Wait(Box::pin(async {
                    match run_blocking(|| panic!("in the pool")).await {
                        Ok(()) => Verdict::Status(200),
                        Err(_) => Verdict::Status(503),
                    }
                }));
            }
            _ => {}
        }
        r.respond(200, text, Bytes::from_static(b"fine"));
        Step::Now(Verdict::Done)
    }
}

const HELD: &str = "ms by module wild";

#[test]
fn who_holds_the_loop_is_named() {
    for path in ["/held", "/later", "/source", "/filter", "/variable"] {
        let server = "location / { } location /variable { return 200 $held; }";
        let ran = serve(&MODULE, server, &[path]);
        assert_eq!(ran.answers[0].status, 200, "{path}");
        let lines: Vec<_> = ran.log.lines().filter(|l| l.contains(HELD)).collect();
        assert_eq!(lines.len(), 1, "{path}: {}", ran.log);
        assert!(lines[0].contains("[warn]"), "{}", lines[0]);
        let (_, held) = lines[0].split_once("event loop was held for ").unwrap();
        // For longer on a machine that has other work.
        let ms: u64 = held.split(' ').next().unwrap().parse().unwrap();
        assert!(ms >= 130, "{held}");
    }
}

#[test]
fn waiting_is_not_holding() {
    let ran = serve(&MODULE, "location / { }", &["/long", "/"]);
    assert_eq!((ran.answers[0].status, ran.answers[1].status), (204, 200));
    assert!(!ran.log.contains(HELD), "{}", ran.log);
}

#[test]
fn a_panic_costs_one_connection() {
    let ran = serve(&MODULE, "location / { }", &["/panic", "/pool", "/"]);
    let statuses: Vec<_> = ran.answers.iter().map(|a| a.status).collect();
    assert_eq!(statuses, [0, 503, 200]);
    assert!(ran.log.contains("[alert]") && ran.log.contains("as asked"), "{}", ran.log);
    assert!(ran.log.contains("in the pool"), "{}", ran.log);
}
