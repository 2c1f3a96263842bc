//! A request from its head to its log lines, whatever protocol brought it.

mod subrequest;

use std::future::Future;

use base::future::rarely;
use base::log::Level;

pub(crate) use subrequest::run as run_subrequest;

use crate::channel::{self, Answer, SendFailed};
use crate::output::{Body, Tunnel};
use crate::phases::{self, Outcome};
use crate::request::Request;
use crate::send::{self, Begun, Filtered};
use crate::status_line::CLIENT_CLOSED;
use crate::target;
use crate::{flight, metering};
use engine::beat::{self, Doing};
use engine::life::Main;
use engine::stats::Field;

/// The HTTP engine, as protocols see it.
pub(crate) struct Answerer;

impl Answer for Answerer {
    async fn answer(r: &mut Request) -> Result<(), SendFailed> {
        count(r);
        r.target.method = r.head.method;
        r.flags.valid_location = true;
        // An absolute target without a path is passed on with one.
        r.flags.valid_unparsed_uri = r.unparsed_uri().first() == Some(&b'/');
        r.body.begin(&r.head);
        if r.logs(Level::Debug) {
            let line = base::log::lossy(r.request_line()).into_owned();
            r.log(Level::Debug, format_args!("http request line: \"{line}\""));
        }
        let prepared = target::prepare(r);
        metering::begin(r);
        let outcome = match prepared {
            Ok(()) => phases::run(r).await,
            Err(status) => {
                without_uri(r);
                rarely(phases::refuse(r, status)).await
            }
        };
        end(r, outcome).await
    }

    async fn resume(r: &mut Request, tunnel: Box<dyn Tunnel>) -> Result<(), SendFailed> {
        r.flags.unlogged = true;
        beat::serves(r.c().number, &r.c().peer, Doing::Response);
        metering::begin(r);
        tunnel.run(r).await;
        r.flags.complete = true;
        log_phase(r).await;
        Ok(())
    }

    fn prepare_refused(r: &mut Request, whole: bool) -> Result<(), u16> {
        target::prepare_refused(r, whole)
    }

    async fn refuse(r: &mut Request, status: u16) -> Result<(), SendFailed> {
        count(r);
        metering::begin(r);
        without_uri(r);
        let outcome = phases::refuse(r, status).await;
        end(r, outcome).await
    }

    async fn given_up(r: &mut Request) {
        count(r);
        r.target.method = r.head.method;
        // Its line is that of the server it asked for, as far as that is known.
        let _ = target::prepare_refused(r, true);
        metering::begin(r);
        r.flags.err_status = CLIENT_CLOSED;
        without_uri(r);
        log_phase(r).await;
    }

    async fn log(r: &mut Request) {
        log_phase(r).await;
    }
}

fn count(r: &mut Request) {
    let requests = &r.c().requests;
    requests.set(requests.get() + 1);
    r.flags.unlogged = true;
    r.main.stats.add(Field::Requests, 1);
    beat::serves(r.c().number, &r.c().peer, Doing::Head);
    if r.account.start_ms == 0 {
        r.account.start();
    }
    r.account.times.head_us = r.account.elapsed_us();
    let live_debug = &r.main.stats.live_debug;
    if live_debug.is_used() {
        let c = r.c();
        c.debug.set(r.main.debugs(&c.peer));
    }
}

/// Gives a request that is refused before it has a path one that error pages can start from.
fn without_uri(r: &mut Request) {
    if r.target.uri.is_empty() {
        r.target.uri.push(b'/');
        r.flags.without_uri = true;
    }
}

/// Sends the response and logs.
async fn end(r: &mut Request, mut outcome: Outcome) -> Result<(), SendFailed> {
    r.account.times.ready_us = r.account.elapsed_us();
    if outcome == Outcome::Respond && !is_body_settled(r) && !drop_body(r) {
        outcome = rarely(phases::refuse(r, 400)).await;
    }
    if outcome == Outcome::Respond && feigns_switch(r) {
        outcome = rarely(without_switch(r)).await;
    }
    beat::does(Doing::Response);
    if outcome == Outcome::Respond {
        match send::filters(r) {
            Filtered::Whole => {}
            now => outcome = rarely(send::settle_filtered(r, now)).await,
        }
    }
    if outcome == Outcome::Close {
        // Responses to earlier requests go out all the same.
        let _ = channel::flush(r).await;
        r.flags.err_status = if r.flags.err_status == 0 { 444 } else { r.flags.err_status };
        log_phase(r).await;
        return Err(SendFailed);
    }
    let more = r.client.channel.is_followed();
    let mut sent = match is_body_settled(r) {
        true => match send::begin(r, more) {
            Begun::Whole => Ok(()),
            left => send::rest(r, left, more).await,
        },
        false => rarely(respond_and_drain(r, more)).await,
    };
    if r.flags.unreadable
        && sent.is_err()
        && let Some(instead) = rarely(send::instead(r)).await
    {
        sent = instead;
    }
    r.flags.complete = sent.is_ok();
    if sent.is_err() {
        rarely(send::what_is_left(r)).await;
    }
    if r.flags.moved {
        // What modules began for the request in this process ends here, too.
        r.call_endings();
        return sent;
    }
    if !r.loc.core.post_action.is_empty() && !r.is_traced() {
        rarely(post_action(r)).await;
    }
    if logs(r) {
        log_handlers(r).await;
    }
    sent
}

/// Whether a response says that another protocol follows it, and none does: a browser would report
/// a WebSocket as open that nobody serves.
#[inline]
fn feigns_switch(r: &Request) -> bool {
    let says_so = r.status() < if r.client.channel.is_tunnel() { 300 } else { 200 };
    says_so && !matches!(r.out.body, Body::Upgraded(_))
}

async fn without_switch(r: &mut Request) -> Outcome {
    let status = r.status();
    r.log(Level::Info, format_args!("response with status {status} opens no tunnel"));
    let outcome = phases::refuse(r, 502).await;
    // An error page may have the same status again.
    if feigns_switch(r) { Outcome::Close } else { outcome }
}

/// Whether nothing of the request's body is left to be dropped: it is here, or a handler takes it.
fn is_body_settled(r: &Request) -> bool {
    r.body_is_finished() || !r.body.is_untouched()
}

/// Gives up the body that no handler asked for. False: it is no body, and the response must say so.
fn drop_body(r: &mut Request) -> bool {
    r.body.give_up();
    channel::drop_buffered_body(r)
}

/// Sends the response while the body, which nobody wants, still comes: the client may not read
/// before it has sent all of it.
async fn respond_and_drain(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    let Some(mut drain) = channel::drain(r) else { return send::response(r, more).await };
    let sent = drain.beside(send::response(r, more)).await;
    drain.end(r);
    sent
}

/// `post_action`: the answered request goes through the phases once more, for its handlers' side
/// effects; nothing is sent. The location where it ends logs it.
async fn post_action(r: &mut Request) {
    let target = r.loc.core.post_action.clone();
    let (keepalive, err_status) = (r.keeps_connection(), r.flags.err_status);
    // The client need not wait for it.
    if channel::flush(r).await.is_err() {
        r.close_connection();
    }
    r.work.subrequests.queue.clear();
    r.out.filters.clear();
    r.flags.header_only = true;
    r.flags.post_action = true;
    let verdict = match target.first() {
        Some(b'/') => r.internal_redirect(&target, b""),
        _ => r.named_redirect(&target),
    };
    phases::go_on(r, verdict).await;
    if let Body::Stream(mut source) = std::mem::take(&mut r.out.body) {
        source.abandoned(r);
    }
    r.flags.err_status = err_status;
    if !keepalive {
        r.close_connection();
    }
}

/// Runs the log phase of the location that the request ended in.
pub(crate) async fn log_phase(r: &mut Request) {
    if logs(r) {
        log_handlers(r).await;
    }
}

/// Begins the log phase; says whether there are handlers of it.
fn logs(r: &mut Request) -> bool {
    if !std::mem::take(&mut r.flags.unlogged) && r.flags.moved {
        return false;
    }
    if !r.is_subrequest() {
        flight::end(r);
    }
    if r.account.counted.is_some() {
        metering::end(r);
    }
    let has_work = !r.loc.pipeline.log.is_empty() || !r.state.endings.is_empty();
    has_work && !r.is_traced()
}

async fn log_handlers(r: &mut Request) {
    beat::does(Doing::Log);
    let loc = r.loc.clone();
    for h in &loc.pipeline.log {
        if let crate::module::Step::Wait(f) = h.run(r) {
            f.await;
        }
    }
    r.call_endings();
    if !r.state.settling.is_empty() {
        // The request gives back its hold on things (its place among the connections of a client,
        // say): the client has its answer, and may come again.
        r.state.ctx.clear();
        r.work.subrequests.family = None;
        for wait in std::mem::take(&mut r.state.settling) {
            wait.await;
        }
    }
}

impl Request {
    /// Waits for `settled` when the log phase is over, before the connection may be closed.
    pub fn before_close(&mut self, settled: impl Future<Output = ()> + 'static) {
        self.state.settling.push(Box::pin(settled));
    }
}
