//! Handles a response after its headers: retries, forwards, stores or redirects it, or turns it
//! into a tunnel.

use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use cache::{CacheStatus, Fill, Plan};
use http::module::Verdict;
use http::output::Body;
use http::request::Request;
use http_wire::h1::ResponseHead;
use mem::Buf;
use upstream::Target;
use upstream::lease::Lease;
use upstream::wire::Wire;

use super::{Answer, Exchange};
use crate::caching::FillBody;
use crate::caching::decisions::{self, Cacheability};
use crate::conf::{Conf, next};
use crate::failure::Stop;
use crate::first::First;
use crate::headers::{self, Accepted};
use crate::link::Link;
use crate::source::{Remainder, Source};
use crate::store::{InFile, Storing};
use crate::tunnel::Tunnel;
use crate::{Progress, Sink};

impl Exchange {
    /// Whether to retry a status on another server, or to answer it by `error_page`.
    pub(super) fn judge(&mut self, r: &mut Request) -> Option<Stop> {
        let status = r.upstream_mut().head.status;
        if status < 300 {
            return None;
        }
        let bit = next::of_status(status);
        if bit != 0 && self.tries > 1 && self.may_retry(r, bit) {
            return Some(Stop::Next(bit));
        }
        if let Some(stop) = decisions::instead(r, status, bit) {
            return Some(stop);
        }
        headers::intercepted(r, &self.conf, status).then(|| {
            decisions::keep_error(r, status, &self.conf, true);
            Stop::Status(status)
        })
    }

    /// The response is discarded: keeps its connection if it has arrived completely.
    pub(super) fn keep_connection(&mut self, r: &mut Request, answer: Answer) {
        let sent_all = answer.takes && answer.out.is_empty() && self.body.is_sent();
        let (Some(pool), true) = (&self.pool, sent_all) else { return };
        let Wire::Conn(conn) = answer.wire else { return };
        let mut progress = self.protocol.begin_body(&r.upstream_mut().head);
        let mut sink = Sink::default();
        if progress == Progress::More && !answer.rest.is_empty() {
            let body = self.protocol.body(Buf::Mem(answer.rest), &mut sink);
            progress = body.unwrap_or(Progress::More);
        } else if !answer.rest.is_empty() {
            return;
        }
        if progress == Progress::Done && self.protocol.reusable() && sink.warning.is_none() {
            let gate = &r.main.life.gate;
            pool.put(conn, &answer.peer.spec.addr, self.connection_use(), gate);
        }
    }

    /// Serves a stored response instead of this one.
    pub(super) async fn answer_from_cache(
        mut self,
        r: &mut Request,
        answer: Answer,
        status: CacheStatus,
    ) -> Verdict {
        let text = r.upstream_mut().text.clone();
        self.keep_connection(r, answer);
        let head = r.upstream_mut().head.clone();
        let a = r.upstream_mut().now();
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        if status == CacheStatus::Revalidated {
            self.lease = None;
            let (conf, protocol) = (self.conf.clone(), self.protocol.as_ref());
            return decisions::revalidated(r, &head, &text, &conf, protocol).await;
        }
        self.serve_stored(r, status).unwrap_or(Verdict::Status(500))
    }

    /// Forwards a response: its headers to `r.out`, its body as it arrives.
    pub(super) fn accept(mut self, r: &mut Request, answer: Answer) -> Verdict {
        let sent_all = answer.takes && answer.out.is_empty() && self.body.is_sent();
        let head = r.upstream_mut().head.clone();
        let (accepted, cacheability) = self.copy_head(r, &head);
        let progress = self.protocol.begin_body(&head);
        // A cache fill only reads from the server, so it could not send the rest of a request body.
        let fills = sent_all && matches!(accepted, Accepted::Response { buffering: true });
        let plan = match cacheability {
            Some(cacheability) if fills && !cacheability.is_unwanted(r) => {
                cacheability.plan(r, &self.conf, &head).map(Box::new)
            }
            Some(cacheability) => {
                cacheability.pass_by();
                None
            }
            None => None,
        };
        let Some(lease) = self.lease.take() else { return Verdict::Status(500) };
        let (mut link, mut left) = self.link(r, lease, answer);
        match accepted {
            Accepted::Redirect => {
                let over = progress == Progress::Done && left.rest.is_empty();
                link.finish(over && self.protocol.reusable() && sent_all, &r.main.life.gate);
                redirect(r)
            }
            Accepted::Upgrade => self.upgrade(r, link, left.rest),
            Accepted::Response { buffering } => {
                r.out.flush = !buffering;
                let to = self.destination(r, plan, buffering);
                let first = self.first(r, &link, &mut left, progress);
                if first.is_whole() && matches!(to, Destination::Client) {
                    let protocol = self.protocol.as_mut();
                    let body = first.whole(r, &self.conf, protocol, &mut link, sent_all);
                    r.out.body = Body::Chain(body);
                    return Verdict::Done;
                }
                self.pass_body(r, link, left, first, to, buffering)
            }
        }
    }

    /// Copies the headers to `r.out`, and determines whether the response may be cached.
    fn copy_head(
        &self,
        r: &mut Request,
        head: &ResponseHead,
    ) -> (Accepted, Option<Box<Cacheability>>) {
        let cacheability = Cacheability::of(r, &self.conf, head);
        let stores = cacheability.as_ref().is_some_and(|cacheability| cacheability.may_be_kept());
        let accepted = headers::copy(r, &self.conf, head, self.protocol.as_ref(), stores);
        // An internal redirect is answered by another handler, with its own dates and tags.
        if let Some(cacheability) = &cacheability {
            cacheability.forward(r);
        }
        r.out.unconditional = !stores && !matches!(accepted, Accepted::Redirect);
        (accepted, cacheability)
    }

    // Inlined, because it would move large values on the path of every response.
    /// Keeps connection and server lease together until the end of the body.
    #[inline(always)]
    fn link(&mut self, r: &mut Request, mut lease: Lease, answer: Answer) -> (Link, Left) {
        if let Some(cookie) = lease.answered(r) {
            r.out.add("Set-Cookie", cookie);
        }
        let Answer { rest, wire, peer, takes, out } = answer;
        let (pool, tag, apart) = (self.pool.take(), self.tag(), self.bound.is_some());
        let owner = self.owner.take();
        (Link { wire: Some(wire), peer, pool, tag, apart, owner, lease }, Left { rest, takes, out })
    }

    fn upgrade(self, r: &mut Request, link: Link, rest: Bytes) -> Verdict {
        if r.is_subrequest() {
            r.log(Level::Error, format_args!("connection upgrade in subrequest"));
            return Verdict::Status(502);
        }
        let group = match &self.target {
            Target::Group(group) => group.name.clone(),
            Target::Addr(_) | Target::Name(..) => Bytes::new(),
        };
        r.out.body = Body::Upgraded(Box::new(Tunnel::new(link, rest, &self.conf, group)));
        Verdict::Done
    }

    /// Where the body goes.
    fn destination(
        &self,
        r: &mut Request,
        plan: Option<Box<Plan>>,
        buffering: bool,
    ) -> Destination {
        match plan {
            Some(mut plan) => {
                plan.has_end = !self.protocol.ends_with_connection();
                Destination::Cache(plan)
            }
            None => {
                InFile::of(r, &self.conf, buffering).map_or(Destination::Client, Destination::File)
            }
        }
    }

    /// The part of the body that came with the headers.
    fn first(
        &mut self,
        r: &mut Request,
        link: &Link,
        left: &mut Left,
        progress: Progress,
    ) -> First {
        let protocol = self.protocol.as_mut();
        match &link.wire {
            Some(wire @ Wire::Stream(_)) => First::of_stream(r, protocol, wire, progress),
            _ => First::of(r, protocol, std::mem::take(&mut left.rest), progress),
        }
    }

    /// Forwards a body of which more is to come, or that does not go to the client alone.
    fn pass_body(
        self,
        r: &mut Request,
        link: Link,
        left: Left,
        first: First,
        to: Destination,
        buffering: bool,
    ) -> Verdict {
        let left = Remainder { takes: left.takes, out: left.out, body: self.body };
        let conf = self.conf.clone();
        let source = Source::new(r, self.conf, self.protocol, link, buffering, left, first);
        r.out.body = to.body(r, source, conf);
        Verdict::Done
    }
}

/// The parts of a response that were not forwarded yet.
struct Left {
    /// The bytes that were read after the headers.
    rest: Bytes,
    /// The server accepts more of the request.
    takes: bool,
    /// More of the request, to be sent at once.
    out: mem::Chain,
}

/// Handles `X-Accel-Redirect`.
fn redirect(r: &mut Request) -> Verdict {
    let u = r.upstream_mut();
    let a = u.now();
    a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
    u.asking = false;
    headers::redirect(r)
}

/// The destination of a body.
enum Destination {
    /// A cache file, from which the client is served.
    Cache(Box<Plan>),
    /// A file of `*_store`, and the client.
    File(InFile),
    /// The client alone.
    Client,
}

impl Destination {
    fn body(self, r: &mut Request, source: Source, conf: Rc<Conf>) -> Body {
        match self {
            Destination::Cache(plan) => {
                let mut reader = FillBody::first(Fill::start(*plan, source), conf);
                match reader.whole(r) {
                    Some(chain) => Body::Chain(chain),
                    None => Body::Stream(Box::new(reader)),
                }
            }
            Destination::File(file) => Body::Stream(Box::new(Storing::new(r, file, source))),
            Destination::Client => Body::Stream(Box::new(source)),
        }
    }
}
