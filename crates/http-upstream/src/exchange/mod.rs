//! One request's way through the servers of an upstream.

mod connect;
mod converse;
mod response;
mod retry;
mod tunnel;

use std::rc::Rc;

use base::future::{boxed, rarely};
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::task::foreseen;
use event::{Either, race_if};
use http::channel::ClientEnd;
use http::exchanges::{Attempt, Exchanges};
use http::module::Verdict;
use http::request::Request;
use mem::{Buf, Chain};
use os::SockAddr;
use upstream::balance::{AnyPicker, RoundRobin};
use upstream::lease::Lease;
use upstream::peer::{Peer, ServerSpec};
use upstream::pool::Pool;
use upstream::servers::Servers;
use upstream::wire::Wire;
use upstream::{Group, Target};

use crate::Protocol;
use crate::caching::{self, Begin, decisions};
use crate::conf::{Conf, next};
use crate::failure::{Stop, client_gone};
use crate::request_body::RequestBody;
use connect::Terms;

/// A request to pass on.
pub struct Job {
    /// The settings of the location.
    pub conf: Rc<Conf>,
    /// The destination.
    pub target: Target,
    /// The protocol.
    pub protocol: Box<dyn Protocol>,
    /// The name of the server, where it is spoken to under TLS.
    pub tls: Option<Bytes>,
}

struct Exchange {
    conf: Rc<Conf>,
    protocol: Box<dyn Protocol>,
    pool: Option<Rc<Pool>>,
    lease: Option<Lease>,
    group: Option<Rc<Group>>,
    /// The name that logs show while no server is chosen, without a group.
    name: Bytes,
    tries: u32,
    start_ms: u64,
    /// A part of the request went to a server.
    sent: bool,
    /// The attempt uses a connection that was kept from an earlier request.
    cached: bool,
    /// The request was refused so many times.
    refusals: u32,
    /// Bytes of interim responses so far.
    interim: usize,
    /// Early hints wait for being sent to the client.
    hints: bool,
    /// The attempt's stream is to carry another protocol: the client's side of it has no end yet.
    connects: bool,
    body: RequestBody,
    /// The name in the address, where the connection has TLS.
    tls: Option<Box<Bytes>>,
    /// The name and the certificate of the attempt's session.
    terms: Option<Box<Terms>>,
}

/// A head that was received.
struct Answered {
    /// The text of its fields.
    text: Bytes,
    /// The bytes behind it.
    rest: Bytes,
    /// The server took all that was sent so far.
    takes: bool,
}

/// A response whose head is in the request's state.
struct Answer {
    /// The bytes that were read behind the head.
    rest: Bytes,
    wire: Wire,
    addr: SockAddr,
    /// The server took all that was sent so far.
    takes: bool,
    /// More of the request, to be sent at once.
    out: Chain,
}

/// Passes a request on and prepares the response in `r.out`.
///
/// There is one such future for each request that waits for a server: parts that few of them need
/// (caches, names, queues, new connections) are boxed apart, so that the rest stays in the
/// processor's caches.
pub async fn run(r: &mut Request, job: Job) -> Verdict {
    if r.is_traced() {
        return crate::explained::passed(r, job);
    }
    let mut x = match prepare(r, job).await {
        Ok(x) => x,
        Err(verdict) => return verdict,
    };
    loop {
        let attempt = x.attempt(r).await;
        if attempt.is_ok() && r.upstream_mut().invalidates.is_some() {
            rarely(decisions::invalidate(r, x.protocol.as_ref())).await;
        }
        let stop = match attempt {
            Ok(answer) => match x.judge(r) {
                None => return x.accept(r, answer),
                Some(Stop::Stored(status)) => {
                    return rarely(x.answer_from_cache(r, answer, status)).await;
                }
                Some(stop) => {
                    x.keep_connection(r, answer);
                    stop
                }
            },
            Err(stop) => stop,
        };
        if let Some(verdict) = x.ended(r, stop) {
            return verdict;
        }
    }
}

/// Reads the client's body as far as that comes first, looks into the cache, and begins choosing.
async fn prepare(r: &mut Request, job: Job) -> Result<Exchange, Verdict> {
    let Job { conf, target, mut protocol, tls } = job;
    let body = RequestBody::read(r, &conf, protocol.as_mut()).await?;
    let scheme = protocol.scheme();
    let u = r.upstream_mut();
    u.scheme = scheme;
    u.forget_cache();
    if let Some(cache) = &conf.cache
        && let Begin::Verdict(v) =
            foreseen(boxed(|| caching::begin(r, cache, &conf, protocol.as_mut()))).await
    {
        return Err(v);
    }
    let u = r.upstream_mut();
    if !u.attempts.is_empty() {
        u.attempts.push(Attempt::default());
    }
    let (group, picker, name) = begin(r, &conf, target).await?;
    let pool = group.as_ref().and_then(|g| g.pool.clone());
    let mut tries = picker.tries();
    if conf.next_upstream_tries > 0 {
        tries = tries.min(u32::try_from(conf.next_upstream_tries).unwrap_or(u32::MAX));
    }
    let session = group.as_ref().and_then(|g| g.affinity.as_ref()).map(|a| a.begin(r));
    let lease = Some(Lease::new(picker, session));
    let start_ms = now_ms();
    Ok(Exchange {
        conf,
        protocol,
        pool,
        lease,
        group,
        name,
        tries,
        start_ms,
        sent: false,
        cached: false,
        refusals: 0,
        interim: 0,
        hints: false,
        connects: false,
        body,
        tls: tls.map(Box::new),
        terms: None,
    })
}

/// The beginning of an exchange: the group, the picker of its servers, and, without a group, the
/// name that logs show while no server is chosen.
type Begun = (Option<Rc<Group>>, AnyPicker, Bytes);

async fn begin(r: &mut Request, conf: &Conf, target: Target) -> Result<Begun, Verdict> {
    let (name, specs) = match target {
        Target::Group(g) => {
            let picker = AnyPicker::begin(g.balancer.as_ref(), r);
            return Ok((Some(g), picker, Bytes::new()));
        }
        Target::Addr(a) => (Bytes::from(a.to_string()), vec![ServerSpec::new(a)]),
        Target::Name(host, port) => {
            let specs = rarely(connect::addresses(r, conf, &host, port)).await?;
            (host, specs)
        }
    };
    let servers = Servers::own(name.clone(), &specs);
    Ok((None, AnyPicker::begin(&RoundRobin(servers), r), name))
}

impl Exchange {
    /// One server: connect, send, read the head.
    async fn attempt(&mut self, r: &mut Request) -> Result<Answer, Stop> {
        let mut out = Chain::new();
        self.protocol.request(r, &mut out).map_err(Stop::Status)?;
        let mut peer = self.lease.as_mut().and_then(|l| l.take_next(r));
        if peer.is_none() && r.upstream_mut().is_first() {
            peer = rarely(self.queue(r)).await?;
        }
        let u = r.upstream_mut();
        u.forget_response();
        let upstream = || self.group.as_ref().map_or(&self.name, |g| &g.name);
        let name = peer.as_ref().map_or_else(upstream, |p| &p.name).clone();
        u.asking = true;
        u.last.clone_from(&peer);
        let row = peer.as_ref().and_then(|p| p.row());
        let (peer_name, start_ms) = (Some(name), now_ms());
        u.attempts.push(Attempt { peer: peer_name, start_ms, row, ..Attempt::default() });
        let Some(peer) = peer else {
            r.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
            return Err(Stop::Next(next::NO_LIVE));
        };
        self.cached = false;
        if self.tls.is_some() {
            self.terms = self.terms(r);
        }
        let mut wire = match self.kept_connection(&peer) {
            Some(wire) => wire,
            None => rarely(self.connect(r, &peer)).await?,
        };
        let a = r.upstream_mut().now();
        a.connect_ms = Some(now_ms().saturating_sub(a.start_ms));
        self.cached = wire.is_cached();
        if let Wire::Conn(conn) = &mut wire {
            conn.requests += 1;
        }
        let Answered { text, rest, takes } = if self.protocol.only_connects() {
            self.connected(r)
        } else {
            let list = self.protocol.is_stream().then(|| out.pop_front()).flatten();
            self.body.append_to(r, self.protocol.as_mut(), &mut out);
            // The part of a streamed body that goes out with the head is lost for another server.
            self.sent |= self.body.is_streamed();
            match wire.stream() {
                None => self.converse(r, &wire, &mut out).await?,
                Some(stream) => {
                    stream.end_at(self.protocol.until());
                    let list = list.as_ref().and_then(Buf::memory).unwrap_or_default();
                    self.connects = false;
                    match self.protocol.connect(list) {
                        None => {
                            let nothing = out.is_empty() && self.body.is_sent();
                            // gRPC has a stream of no messages end by a DATA frame.
                            let end = nothing && !r.body_ended_behind_head();
                            self.begin_stream(r, stream, list, end)?;
                        }
                        Some(connect) => {
                            rarely(self.begin_connect(r, stream, list, &connect)).await?;
                        }
                    }
                    self.converse_by_stream(r, &wire, &mut out).await?
                }
            }
        };
        let u = r.upstream_mut();
        u.text = text;
        let a = u.now();
        a.header_ms = Some(now_ms().saturating_sub(a.start_ms));
        Ok(Answer { rest, wire, addr: peer.spec.addr.clone(), takes, out })
    }

    /// No server can be asked: waits until one can, where the upstream has a queue.
    async fn queue(&mut self, r: &mut Request) -> Result<Option<Rc<Peer>>, Stop> {
        let Some(group) = self.group.clone() else { return Ok(None) };
        let Some(queue) = &group.queue else { return Ok(None) };
        let watch = self.client(r);
        let Some(lease) = &mut self.lease else { return Ok(None) };
        let waiting = queue.wait(r, group.balancer.as_ref(), &group.servers, lease);
        match race_if(waiting, watch.as_ref().map(ClientEnd::gone)).await {
            Either::First(peer) => Ok(peer),
            Either::Second(_) => Err(client_gone(r, "connecting to upstream")),
        }
    }

    /// Identifies the location for pools that do not share between locations.
    fn tag(&self) -> usize {
        let conf = Rc::as_ptr(&self.conf) as usize;
        conf ^ self.terms.as_ref().map_or(0, |terms| terms.hash())
    }

    /// The client's connection, where its end ends the exchange.
    fn client(&self, r: &Request) -> Option<ClientEnd> {
        // A response for a cache is of use to others.
        let kept = r.upstream().is_some_and(Exchanges::is_cacheable);
        if self.conf.ignore_client_abort || kept { None } else { r.watched() }
    }
}
