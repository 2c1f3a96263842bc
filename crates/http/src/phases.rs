//! A request's way through the phases.
//!
//! ```text
//!  post-read ─ server rewrite ─ find config ─ rewrite ─┐ uri changed (≤ 10 times)
//!       ▲              ▲             ▲─────────────────┤
//!       │              │ internal redirect             ▼
//!       │              └────────────── preaccess ─ access ─ precontent ─ content ─ response
//! ```

use std::rc::Rc;

use base::future::rarely;
use base::log::Level;
use bytes::Bytes;
use engine::beat::{self, Doing};
use engine::overload;

use crate::core_conf::Satisfy;
use crate::core_pages::special;
use crate::module::{Dry, PhaseHandler, Pipeline, Step, Verdict};
use crate::request::Request;
use crate::server::location::{self, Found, Location};
use crate::trace;

/// The phase at which processing begins or goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartPhase {
    PostRead,
    ServerRewrite,
    /// A named location: its own rewriting comes first.
    Rewrite,
    /// A part of a response that is made like the whole.
    Content,
    /// The response is prepared.
    Response,
}

/// The outcome of the phases for the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// `r.out` holds a response.
    Respond,
    /// Close without a word.
    Close,
}

type Handlers = fn(&Pipeline) -> &[Box<dyn PhaseHandler>];

/// Runs all phases until there is a response.
pub(crate) async fn run(r: &mut Request) -> Outcome {
    drive(r, StartPhase::PostRead).await
}

/// Runs the phases of a subrequest, which begins where an internal redirect does.
pub(crate) async fn run_inside(r: &mut Request) -> Outcome {
    r.leave_location();
    drive(r, StartPhase::ServerRewrite).await
}

/// Has a subrequest that is in its location already make its content.
pub(crate) async fn run_content(r: &mut Request) -> Outcome {
    drive(r, StartPhase::Content).await
}

/// Answers `status` as a handler's verdict would (for errors found outside the phases).
pub(crate) async fn refuse(r: &mut Request, status: u16) -> Outcome {
    go_on(r, Verdict::Status(status)).await
}

/// Goes on from a verdict.
pub(crate) async fn go_on(r: &mut Request, verdict: Verdict) -> Outcome {
    match settle(r, verdict) {
        Ok(from) => drive(r, from).await,
        Err(o) => o,
    }
}

async fn drive(r: &mut Request, mut from: StartPhase) -> Outcome {
    loop {
        let verdict = match from {
            StartPhase::Response => return Outcome::Respond,
            f => stretch(r, f).await,
        };
        match settle(r, verdict) {
            Ok(next) => from = next,
            Err(outcome) => return outcome,
        }
    }
}

/// From a verdict that ended a stretch of phases to where to go on.
fn settle(r: &mut Request, verdict: Verdict) -> Result<StartPhase, Outcome> {
    match verdict {
        Verdict::Done => Ok(StartPhase::Response),
        Verdict::Status(444) => {
            if let Some(stream) = r.client.channel.http1() {
                stream.timed_out = true;
            }
            Err(Outcome::Close)
        }
        Verdict::Close => Err(Outcome::Close),
        Verdict::Redirected if std::mem::take(&mut r.flags.named) => Ok(StartPhase::Rewrite),
        Verdict::Redirected => Ok(StartPhase::ServerRewrite),
        Verdict::Status(_) if r.stands_in() => Ok(StartPhase::Response),
        Verdict::Status(s) => {
            r.note(|_| trace::Step::Status(s));
            let next = special(r, s);
            match next {
                // An error page's target may not be found: the second status is answered plainly.
                Verdict::Status(s) => {
                    r.flags.error_page = true;
                    settle_plain(r, s)
                }
                v => settle(r, v),
            }
        }
        Verdict::Next | Verdict::Ok => settle(r, Verdict::Status(404)),
    }
}

fn settle_plain(r: &mut Request, status: u16) -> Result<StartPhase, Outcome> {
    crate::core_pages::builtin(r, status);
    Ok(StartPhase::Response)
}

/// Runs one phase's handlers, where there are any, and returns the verdict that ends the stretch.
macro_rules! phase {
    ($r:expr, $list:ident, $doing:ident) => {
        if !$r.loc.pipeline.$list.is_empty() {
            beat::does(Doing::$doing);
            match phase($r, |p| &p.$list).await {
                Verdict::Next | Verdict::Ok => {}
                v => return v,
            }
        }
    };
}

/// Runs the phases from `from` until a verdict ends them.
async fn stretch(r: &mut Request, from: StartPhase) -> Verdict {
    if from == StartPhase::Content {
        return content(r).await;
    }
    if from == StartPhase::PostRead {
        phase!(r, post_read, PostRead);
    }
    if matches!(from, StartPhase::PostRead | StartPhase::ServerRewrite) {
        phase!(r, server_rewrite, ServerRewrite);
    }
    let mut find = from != StartPhase::Rewrite;
    loop {
        if find && let Err(v) = find_config(r) {
            return v;
        }
        find = true;
        phase!(r, rewrite, Rewrite);
        if !r.flags.uri_changed {
            break;
        }
        if let Err(v) = r.count_uri_change() {
            return v;
        }
        r.note_uri();
        r.leave_location();
    }
    if r.main.asks_real_root {
        rarely(crate::files::find_real_root(r)).await;
    }
    if r.c().is_surplus.get() && is_refused(r) {
        return refuse_surplus(r);
    }
    phase!(r, preaccess, Preaccess);
    // A client that may have the page may have its parts.
    if !r.loc.pipeline.access.is_empty() && !r.is_subrequest() {
        beat::does(Doing::Access);
        match access(r).await {
            Verdict::Next | Verdict::Ok => {}
            v => return v,
        }
    }
    phase!(r, precontent, Precontent);
    content(r).await
}

/// Whether a request of a connection that had no room is refused: unless there is room now, or it
/// asks how the server is.
#[cold]
fn is_refused(r: &Request) -> bool {
    let is_own = !r.is_subrequest() && !r.flags.internal && !r.is_traced();
    let refuses = overload::step() == overload::Step::Refuse && !r.loc.pipeline.answers_always;
    is_own && refuses && r.loc.core.overload_refuse
}

/// Refuses a request for want of room. An `error_page` may need what is wanting.
#[cold]
fn refuse_surplus(r: &mut Request) -> Verdict {
    let retry_s = overload::refused();
    crate::core_pages::builtin(r, 503);
    r.out.add("Retry-After", Bytes::from(retry_s.to_string()));
    Verdict::Done
}

/// One phase: handlers in order until one decides. The list is the one of the location at its
/// start: a handler that switches locations ends the phase or goes on with the old list, as in
/// nginx.
async fn phase(r: &mut Request, of: Handlers) -> Verdict {
    let loc = r.loc.clone();
    for h in of(&loc.pipeline) {
        if r.is_traced() && h.dry() == Dry::Skipped {
            continue;
        }
        match timed_step(h.as_ref(), r).await {
            Verdict::Next => {}
            v => return v,
        }
    }
    Verdict::Next
}

#[inline]
async fn step(h: &dyn PhaseHandler, r: &mut Request) -> Verdict {
    match h.run(r) {
        Step::Now(v) => v,
        Step::Wait(f) => event::task::foreseen(f).await,
    }
}

/// The same before the content, where waits are noted.
#[inline]
async fn timed_step(h: &dyn PhaseHandler, r: &mut Request) -> Verdict {
    let (began_us, verdict) = match h.run(r) {
        Step::Now(v) => return v,
        Step::Wait(f) => (base::time::now_us(), event::task::foreseen(f).await),
    };
    r.account.times.access_us += base::time::now_us().saturating_sub(began_us);
    verdict
}

async fn access(r: &mut Request) -> Verdict {
    let loc = r.loc.clone();
    let any = loc.core.satisfy == Satisfy::Any;
    r.flags.access_code = 0;
    for h in &loc.pipeline.access {
        if r.is_traced() && h.dry() == Dry::Skipped {
            continue;
        }
        match (timed_step(h.as_ref(), r).await, any) {
            (Verdict::Next, _) | (Verdict::Ok, false) => {}
            (Verdict::Ok, true) => {
                r.flags.access_code = 0;
                r.out.remove(b"WWW-Authenticate");
                return Verdict::Ok;
            }
            (Verdict::Status(s @ (401 | 403 | 407)), true) => {
                if !matches!(r.flags.access_code, 401 | 407) {
                    r.flags.access_code = s;
                }
            }
            (Verdict::Status(s @ (401 | 407)), false) => return delayed(r, s).await,
            (v, _) => return v,
        }
    }
    match std::mem::take(&mut r.flags.access_code) {
        0 => Verdict::Next,
        403 => {
            r.log(Level::Error, format_args!("access forbidden by rule"));
            Verdict::Status(403)
        }
        s => delayed(r, s).await,
    }
}

/// `auth_delay`: refusals take the same time whatever their reason.
async fn delayed(r: &mut Request, status: u16) -> Verdict {
    let ms = r.loc.core.auth_delay;
    if ms > 0 {
        r.log(Level::Info, format_args!("delaying unauthorized request"));
        event::sleep(ms).await;
    }
    Verdict::Status(status)
}

async fn content(r: &mut Request) -> Verdict {
    beat::does(Doing::Content);
    let loc = r.loc.clone();
    if let Some(h) = &loc.pipeline.content_handler {
        if r.is_traced() && h.dry() != Dry::Looks {
            return r.end_explained(trace::Step::Content);
        }
        match step(h.as_ref(), r).await {
            // It declines: the general content handlers are asked.
            Verdict::Next => {}
            Verdict::Ok => return Verdict::Status(404),
            v => return v,
        }
    }
    for h in &loc.pipeline.content {
        if r.is_traced() && h.dry() != Dry::Looks {
            return r.end_explained(trace::Step::Content);
        }
        match step(h.as_ref(), r).await {
            Verdict::Next => {}
            v => return v,
        }
    }
    if r.target.uri.last() == Some(&b'/') {
        let path = r.map_path();
        let path = base::log::lossy(&path);
        r.log(Level::Error, format_args!("directory index of \"{path}\" is forbidden"));
        return Verdict::Status(403);
    }
    r.log(Level::Error, format_args!("no handler found"));
    Verdict::Status(404)
}

/// Finds the location for the URI and enters it.
fn find_config(r: &mut Request) -> Result<(), Verdict> {
    r.flags.uri_changed = false;
    let root = r.server.root.clone();
    let (target, slash) = match location::find(r, &root) {
        Found::None => (root, false),
        Found::Location(l) => (l, false),
        Found::AddSlash(l) => (l, true),
        Found::Failed => return Err(Verdict::Status(500)),
    };
    if !r.flags.internal && target.core.internal {
        r.enter(target);
        return Err(Verdict::Status(404));
    }
    r.enter(target);
    r.refuse_large_body()?;
    if slash {
        let mut to = Vec::with_capacity(r.loc.info.name.len() + r.target.args.len() + 1);
        http_wire::uri::escape(&r.loc.info.name, http_wire::uri::Escape::Uri, &mut to);
        if !r.target.args.is_empty() {
            to.push(b'?');
            to.extend_from_slice(&r.target.args);
        }
        r.out.location = Some(Bytes::from(to));
        return Err(Verdict::Status(301));
    }
    Ok(())
}

impl Request {
    /// Gives up a body that is said to be larger than the location lets it be.
    ///
    /// # Errors
    /// The status to answer with, which was logged.
    #[inline]
    pub fn refuse_large_body(&mut self) -> Result<(), Verdict> {
        let max = self.loc.core.client_max_body_size;
        if let Some(n) = self.head.content_length
            && max > 0
            && n > max
            && !self.body.is_unwanted()
        {
            self.log(
                Level::Error,
                format_args!("client intended to send too large body: {n} bytes"),
            );
            self.client.channel.forbid_continue();
            self.client.channel.set_lingering(true);
            self.body.give_up();
            return Err(Verdict::Status(413));
        }
        Ok(())
    }

    /// Enters a location, or a block of one. The debug log and explanations have it.
    pub fn enter(&mut self, target: Rc<Location>) {
        self.settle(target);
        self.debug(format_args!("using configuration \"{}\"", self.loc.info));
        self.note_entered();
    }

    /// Goes back to the server's own level, from where a location is searched again.
    fn leave_location(&mut self) {
        let root = self.server.root.clone();
        self.settle(root);
    }

    /// The one place where a request changes its location: `limit_except` and the settings that
    /// hold for the connection follow from it.
    fn settle(&mut self, target: Rc<Location>) {
        self.loc = target;
        if let Some((allowed, inner)) = &self.loc.limit_except {
            let name = self.method_name();
            if !allowed.iter().any(|m| m == name) {
                self.loc = inner.clone();
            }
        }
        let core = &self.loc.core;
        if self.keeps_connection() {
            let c = self.c();
            let over = core.keepalive_timeout == 0
                || c.requests.get() >= core.keepalive_requests
                || base::time::now_ms().saturating_sub(c.start_ms) > core.keepalive_time;
            if over || self.keepalive_disabled() {
                self.close_connection();
            }
        }
    }

    /// Enters an `if` block of the current location, by the number that the apply pass gave it.
    pub fn enter_if(&mut self, outer: &Rc<Location>, index: usize) {
        if let Some(inner) = outer.ifs.get(index) {
            self.enter(inner.clone());
        }
    }

    fn keepalive_disabled(&self) -> bool {
        let d = self.loc.core.keepalive_disable;
        let msie6 = d.msie6 && self.target.method == http_wire::h1::Method::Post;
        if !msie6 && !d.safari {
            return false;
        }
        let Some(ua) = self.header(http_wire::h1::FieldId::UserAgent) else { return false };
        let has = |s: &[u8]| memchr::memmem::find(ua, s).is_some();
        if msie6 && self.is_msie6() {
            return true;
        }
        d.safari && has(b"Mac OS X") && has(b"Safari/") && !has(b"Chrome/")
    }

    /// Counts one change of the URI; the verdict where it is one too many.
    pub(crate) fn count_uri_change(&mut self) -> Result<(), Verdict> {
        self.target.uri_changes = self.target.uri_changes.saturating_sub(1);
        if self.target.uri_changes > 0 {
            return Ok(());
        }
        let uri = base::log::lossy(&self.target.uri).into_owned();
        let m = "rewrite or internal redirection cycle while";
        self.log(Level::Error, format_args!("{m} processing \"{uri}\""));
        Err(Verdict::Status(500))
    }

    /// Goes to another URI inside the server; the phases begin anew at server rewriting.
    pub fn internal_redirect(&mut self, uri: &[u8], args: &[u8]) -> Verdict {
        self.target.uri_changes = self.target.uri_changes.saturating_sub(1);
        if self.target.uri_changes == 0 {
            let uri = base::log::lossy(uri).into_owned();
            let m = "rewrite or internal redirection cycle while";
            self.log(Level::Error, format_args!("{m} internally redirecting to \"{uri}\""));
            return Verdict::Status(500);
        }
        self.target.uri.clear();
        self.target.uri.extend_from_slice(uri);
        if args.is_empty() {
            self.target.args.clear();
        } else {
            self.target.args = args.to_vec();
        }
        self.state.ctx.clear();
        self.flags.internal = true;
        self.flags.uri_below_alias = false;
        self.flags.valid_location = true;
        self.flags.valid_unparsed_uri = false;
        self.flags.uri_changed = false;
        self.note_uri();
        self.leave_location();
        Verdict::Redirected
    }

    /// Goes to a named location; the phases go on at its rewriting, the URI stays.
    pub fn named_redirect(&mut self, name: &[u8]) -> Verdict {
        self.target.uri_changes = self.target.uri_changes.saturating_sub(1);
        let shown = || base::log::lossy(name).into_owned();
        if self.target.uri_changes == 0 {
            let m = "rewrite or internal redirection cycle while redirect to named location";
            self.log(Level::Error, format_args!("{m} \"{}\"", shown()));
            return Verdict::Status(500);
        }
        if self.target.uri.is_empty() || self.flags.without_uri && self.target.uri == b"/" {
            let m = "empty URI in redirect to named location";
            self.log(Level::Error, format_args!("{m} \"{}\"", shown()));
            return Verdict::Status(500);
        }
        let Some(target) = self.server.named.get(name).cloned() else {
            self.log(Level::Error, format_args!("could not find named location \"{}\"", shown()));
            return Verdict::Status(500);
        };
        self.flags.internal = true;
        self.flags.uri_below_alias = false;
        self.flags.uri_changed = false;
        self.flags.named = true;
        self.state.ctx.clear();
        self.enter(target);
        Verdict::Redirected
    }
}
