//! In workers: certificates for handshakes, and the answers to challenges.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use base::json::Object;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use common_modules::ssl::{Known, Ordered, Secured};
use conf::ConfError;
use engine::Seat;
use http::module::{LocView, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::server::{HttpMain, Server};
use http::vars::VarDef;
use proto::acme::Identifier;
use proto::h1::Method;

use crate::directives::{Acme, Wanted};
use crate::issuer::Order;
use crate::zone::{Answer, Shared, Shown, View};

/// The variables of a server's certificate.
pub(crate) static VARIABLES: &[VarDef] = &[
    VarDef::new("acme_certificate", |r, out| {
        with_certificate(r, |shown| {
            out.extend_from_slice(b"data:");
            out.extend_from_slice(&shown.chain);
        })
    }),
    VarDef::new("acme_certificate_key", |r, out| {
        with_certificate(r, |shown| {
            out.extend_from_slice(b"data:");
            out.extend_from_slice(&shown.private);
        })
    }),
];

/// The view that a request has taken: a certificate and its key are of one moment, or they may not
/// match.
#[derive(Default)]
struct Seen(Option<Rc<View>>);

/// Calls `with` for the certificate of the request's server. False, and a warning, where it has
/// none yet.
fn with_certificate(r: &mut Request, with: impl FnOnce(&Shown)) -> bool {
    let order = r.server.root.confs.get::<Wanted>().and_then(|wanted| wanted.order.clone());
    let acme = r.main.confs.get::<Acme>();
    let (Some(order), Some(shared)) = (order, acme.and_then(|acme| acme.shared.clone())) else {
        return false;
    };
    let view = r.ctx_mut::<Seen>().0.get_or_insert_with(|| shared.view()).clone();
    let shown = view.certificates.iter().find(|shown| shown.key == order.key);
    if let Some(shown) = shown.filter(|shown| !shown.chain.is_empty()) {
        with(shown);
        return true;
    }
    if let Some(shown) = stand_in(r, &order, &view) {
        with(shown);
        return true;
    }
    let state = shown.map_or("the acme process has not told of it yet", |shown| &shown.state);
    if is_time_to_warn(&order.key) {
        let key = &order.key;
        let m = format_args!("acme: no certificate \"{key}\" yet, handshakes fail: {state}");
        r.log(Level::Warn, m);
    }
    false
}

/// A certificate of other names that covers the one that the client asks for, until the order has
/// its own: a server that gets a further name serves the others meanwhile. The one that holds
/// longest.
fn stand_in<'a>(r: &Request, order: &Order, view: &'a View) -> Option<&'a Shown> {
    let asked = r.established().and_then(|session| session.server_name.as_deref());
    let asked = asked.and_then(|name| Identifier::parse(&name.to_ascii_lowercase()).ok());
    // A client that names none gets one of any.
    let names = asked.unwrap_or_else(|| order.names.clone());
    let covering = view.certificates.iter().filter(|shown| shown.covers(order, &names));
    covering.max_by_key(|shown| shown.until)
}

/// The pause between two warnings of the same certificate, milliseconds.
const WARN_MS: u64 = 60_000;

thread_local! {
    /// When this worker warned last, by certificate.
    static WARNED: RefCell<HashMap<String, u64>> = RefCell::default();
}

fn is_time_to_warn(key: &str) -> bool {
    WARNED.with_borrow_mut(|warned| {
        let now = now_ms();
        match warned.get(key) {
            Some(at) if now.saturating_sub(*at) < WARN_MS => false,
            _ => {
                warned.insert(key.to_owned(), now);
                true
            }
        }
    })
}

/// The certificates in the status, with the seconds since 1970 of their ends and renewals.
pub(crate) fn status(main: &HttpMain, o: &mut Object<'_>) {
    let Some(shared) = main.confs.get::<Acme>().and_then(|acme| acme.shared.as_ref()) else {
        return;
    };
    let second = |at: i64| u64::try_from(at).unwrap_or(0);
    let view = shared.view();
    o.list("certificates", view.certificates.iter().filter(|s| !s.is_stand_in), |o, shown| {
        o.text("order", shown.key.as_bytes());
        o.flag("issued", !shown.chain.is_empty());
        o.number("expires", second(shown.until));
        o.number("renewal", second(shown.renewal));
        o.text("state", shown.state.as_bytes());
        o.number("failures", second(shown.failures));
    });
}

/// The certificates as the `ssl` module shows those of all servers.
fn ordered(servers: &[(Rc<Order>, Bytes)], shared: &Shared) -> Vec<Known> {
    let view = shared.view();
    let known = |shown: &Shown| Known {
        name: shown.key.clone(),
        servers: servers
            .iter()
            .filter(|(order, _)| order.key == shown.key)
            .map(|(_, name)| name.clone())
            .collect(),
        until: (shown.until != 0).then_some(shown.until),
        order: Some(Ordered {
            is_issued: !shown.chain.is_empty(),
            renewal: (shown.renewal != 0).then_some(shown.renewal),
            state: shown.state.clone(),
            failures: u64::try_from(shown.failures).unwrap_or(0),
        }),
    };
    view.certificates.iter().filter(|shown| !shown.is_stand_in).map(known).collect()
}

/// The folder of challenges by HTTP (RFC 8555 section 8.3).
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Challenges are answered before anything else: whatever a server redirects or refuses, its
/// validator comes through.
pub(crate) fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(shared) = &l.conf::<Acme>().shared {
        p.post_read.push(Box::new(Challenges { shared: shared.clone() }));
    }
    Ok(())
}

struct Challenges {
    shared: Rc<Shared>,
}

impl PhaseHandler for Challenges {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some(token) = r.uri.strip_prefix(PREFIX) else { return Step::Now(Verdict::Next) };
        if !r.method_is(&[Method::Get, Method::Head]) || token.is_empty() {
            return Step::Now(Verdict::Next);
        }
        if let Some(answer) = find(&self.shared, token, false) {
            return Step::Now(respond(r, answer.text));
        }
        let token = token.to_vec();
        Step::Wait(Box::pin(async move {
            match on_its_way(&self.shared, &token, false).await {
                Some(answer) => respond(r, answer.text),
                None => Verdict::Next,
            }
        }))
    }
}

fn respond(r: &mut Request, text: Vec<u8>) -> Verdict {
    r.respond(200, Bytes::from_static(b"text/plain"), Bytes::from(text));
    r.close_connection();
    Verdict::Done
}

/// The answer to a challenge by ALPN (which has a key) or by HTTP.
fn find(shared: &Shared, name: &[u8], by_alpn: bool) -> Option<Answer> {
    let view = shared.view();
    let is_it = |answer: &&Answer| {
        answer.private.is_empty() != by_alpn
            && answer.name.as_bytes().eq_ignore_ascii_case(name)
            && (by_alpn || answer.name.as_bytes() == name)
    };
    view.answers.iter().find(is_it).cloned()
}

/// Time for which a challenge of another host is waited for, and between two looks, milliseconds.
const WAIT_MS: u64 = 2_000;
const LOOK_MS: u64 = 50;

/// Requests that wait at the same time: anybody may ask for any challenge.
const WAITERS_MAX: usize = 64;

thread_local! {
    static WAITERS: Cell<usize> = const { Cell::new(0) };
}

struct Waiter;

impl Waiter {
    fn new() -> Option<Waiter> {
        let waiters = WAITERS.get();
        (waiters < WAITERS_MAX).then(|| {
            WAITERS.set(waiters + 1);
            Waiter
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITERS.set(WAITERS.get() - 1);
    }
}

/// Waits for a challenge that another host has begun: the validator may come here before the file.
async fn on_its_way(shared: &Shared, name: &[u8], by_alpn: bool) -> Option<Answer> {
    if !shared.view().follows {
        return None;
    }
    let _waiter = Waiter::new()?;
    for _ in 0..WAIT_MS / LOOK_MS {
        event::sleep(LOOK_MS).await;
        if let Some(answer) = find(shared, name, by_alpn) {
            return Some(answer);
        }
    }
    None
}

/// In a worker: answers challenges by ALPN, and tells of its certificates.
pub(crate) fn start(main: &Rc<HttpMain>, _: &Seat) -> io::Result<()> {
    let Some(shared) = main.confs.get::<Acme>().and_then(|acme| acme.shared.clone()) else {
        return Ok(());
    };
    let of = |server: &Rc<Server>| {
        let order = server.root.confs.get::<Wanted>()?.order.clone()?;
        Some((order, server.name.clone()))
    };
    let servers: Vec<_> = main.servers.iter().filter_map(of).collect();
    let of_status = shared.clone();
    let _ = main.tls_ordered.set(Box::new(move || ordered(&servers, &of_status)));
    let _ = main.tls_challenges.set(Box::new(move |name| {
        let (shared, name) = (shared.clone(), name.to_vec());
        Box::pin(async move {
            let found = match find(&shared, &name, true) {
                Some(found) => Some(found),
                None => on_its_way(&shared, &name, true).await,
            };
            found.map(|answer| (answer.text, answer.private))
        })
    }));
    Ok(())
}
