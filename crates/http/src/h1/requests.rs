//! Request after request out of the page that was received.

use std::rc::Rc;

use base::future::rarely;
use http_wire::h1::{HeadParser, Step};

use super::close::close_or_linger;
use super::connection::After;
use super::{body, drain, output, read_head, refused, stream};
use crate::channel::conn::Conn;
use crate::channel::{Answer, SendFailed};
use crate::request::Request;
use engine::stats::{Field, Gauge};

/// Answers requests until the page is empty or the connection is to end; `state` counts it among
/// those that read or write.
pub(super) async fn batch<A: Answer>(c: &Rc<Conn>, r: &mut Request, state: &Gauge<'_>) -> After {
    let mut parser = HeadParser::new();
    let limits = c.server().core.head_limits();
    let mut deadline = None;
    loop {
        match read_head::parse(c, &mut parser, r, &limits) {
            Step::Done { len } => {
                stream(r).head_len = len;
                deadline = None;
                state.becomes(Field::Writing);
                let after = one::<A>(c, r).await;
                state.becomes(Field::Reading);
                if let Some(after) = after {
                    return after;
                }
                parser = HeadParser::new();
                r.reset();
                // A head that cannot be read is for no location, least of all the one before it.
                r.server.clone_from(c.server());
                r.loc = r.server.root.clone();
                stream(r).pipelined = true;
            }
            Step::More => {
                if output::flush(r).await.is_err() {
                    return After::Close;
                }
                if stream(r).input.is_empty() {
                    return After::Keep(r.loc.core.keepalive_timeout);
                }
                let taken = parser.taken();
                if !rarely(refused::receive::<A>(c, r, taken, &mut deadline)).await {
                    return After::Close;
                }
            }
            Step::Bad(e) => return rarely(refused::refuse::<A>(c, r, e)).await,
        }
    }
}

/// Answers one request, its head parsed. `None`: the next may follow.
async fn one<A: Answer>(c: &Conn, r: &mut Request) -> Option<After> {
    let keepalive = r.head.wants_keep_alive() && !is_last(c, r) && !c.is_unwanted();
    let lingering = r.head.has_body();
    let body = body::Incoming::new(&r.head);
    let s = stream(r);
    (s.keepalive, s.lingering, s.body) = (keepalive, lingering, body);
    let sent = A::answer(r).await;
    after(c, r, sent).await
}

/// Whether the connection ends with its worker, which leaves.
pub(super) fn is_last(c: &Conn, r: &Request) -> bool {
    r.main.life.is_leaving() && !c.may_move(r.main.life.moves())
}

/// Decides the fate of the connection behind a response. `None`: the next request may follow.
pub(super) async fn after(
    c: &Conn,
    r: &mut Request,
    sent: Result<(), SendFailed>,
) -> Option<After> {
    if sent.is_err() {
        // A body that ends with the connection seems whole unless the end is a fault. What has not
        // begun on its way is no part of one, and answers before it arrive.
        let cut = r.account.bytes_sent > 0 && !stream(r).chunked && r.out.content_length.is_none();
        return Some(if cut { After::Reset } else { After::Close });
    }
    let s = stream(r);
    if s.keepalive && !s.body.is_finished() && rarely(drain::discard_rest(c, r)).await.is_err() {
        return Some(After::Close);
    }
    let s = stream(r);
    if !s.keepalive {
        return Some(close_or_linger(c, r));
    }
    let used = s.used();
    s.input.consume(used);
    if s.input.is_empty() {
        if output::flush(r).await.is_err() {
            return Some(After::Close);
        }
        return Some(After::Keep(r.loc.core.keepalive_timeout));
    }
    r.account.start();
    None
}
