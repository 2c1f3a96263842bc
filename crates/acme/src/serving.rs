//! The worker's side: certificates for handshakes, and responses to challenges.

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
use http_wire::h1::Method;
use proto::acme::Identifier;

use crate::directives::{Acme, Wanted};
use crate::issuer::Order;
use crate::zone::{Answer, Shared, Shown, View};

/// `$acme_certificate` and `$acme_certificate_key`.
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

/// The view that a request uses. Certificate and key are read from the same view, because they
/// would not match if a renewal happened in between.
#[derive(Default)]
struct Seen(Option<Rc<View>>);

/// Calls `with` with the certificate of the request's server, or with a stand-in. Returns false,
/// and logs a warning, if there is none yet.
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

/// Until an order has its own certificate, another one of the same issuer that covers the requested
/// name; of several, the one that expires last. With it, a server that gets an additional name
/// keeps serving the others.
fn stand_in<'a>(r: &Request, order: &Order, view: &'a View) -> Option<&'a Shown> {
    let asked = r.established().and_then(|session| session.server_name.as_deref());
    let asked = asked.and_then(|name| Identifier::parse(&name.to_ascii_lowercase()).ok());
    // Without SNI, any name of the order will do.
    let names = asked.unwrap_or_else(|| order.names.clone());
    let covering = view.certificates.iter().filter(|shown| shown.covers(order, &names));
    covering.max_by_key(|shown| shown.until)
}

/// The minimum time between two warnings about the same certificate, in milliseconds.
const WARN_MS: u64 = 60_000;

thread_local! {
    /// The time of this worker's last warning, by certificate.
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

/// The certificates for the status API; expiry and renewal are in seconds since 1970.
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

/// The certificates in the form in which the `ssl` module lists those of all servers.
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

/// The path prefix of http-01 challenges (RFC 8555 section 8.3).
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Installs the handler in the first phase (post-read), so that validation succeeds even if the
/// server redirects or rejects everything else.
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
        let Some(token) = r.target.uri.strip_prefix(PREFIX) else {
            return Step::Now(Verdict::Next);
        };
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

/// The response to a tls-alpn-01 challenge (which has a key) or an http-01 challenge.
fn find(shared: &Shared, name: &[u8], by_alpn: bool) -> Option<Answer> {
    let view = shared.view();
    let is_it = |answer: &&Answer| {
        answer.private.is_empty() != by_alpn
            && answer.name.as_bytes().eq_ignore_ascii_case(name)
            && (by_alpn || answer.name.as_bytes() == name)
    };
    view.answers.iter().find(is_it).cloned()
}

/// How long to wait for another host's challenge to appear, and the polling interval, in
/// milliseconds.
const WAIT_MS: u64 = 2_000;
const LOOK_MS: u64 = 50;

/// The maximum number of requests that wait, because anybody can request any token.
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

/// Waits for a response to a challenge that another host has started: the validator may reach this
/// host before the file does.
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

/// In a worker: registers the responses to tls-alpn-01 challenges, and the list of certificates for
/// the status.
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
