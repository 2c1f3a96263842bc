//! An exchange: proxies one request, over as many servers as needed.

mod connect;
mod converse;
mod ntlm;
mod response;
mod retry;
mod server;
mod tunnel;

pub use tunnel::websocket_accept;

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
use mem::Chain;
use upstream::Target;
use upstream::balance::{AnyPicker, RoundRobin};
use upstream::lease::Lease;
use upstream::peer::{Peer, ServerSpec};
use upstream::pool::{Owner, Pool, Use};
use upstream::servers::Servers;
use upstream::wire::Wire;

use crate::Protocol;
use crate::caching::{self, Begin, decisions};
use crate::conf::{Conf, next};
use crate::failure::{Stop, client_gone};
use crate::request_body::RequestBody;
use connect::Terms;
use server::Bound;

/// A request to be proxied.
pub struct Job {
    /// The settings of the location.
    pub conf: Rc<Conf>,
    /// The destination.
    pub target: Target,
    /// Writes the request and reads the response.
    pub protocol: Box<dyn Protocol>,
    /// The server name for TLS; `None` for plaintext.
    pub tls: Option<Bytes>,
}

struct Exchange {
    conf: Rc<Conf>,
    protocol: Box<dyn Protocol>,
    pool: Option<Rc<Pool>>,
    lease: Option<Lease>,
    target: Target,
    tries: u32,
    start_ms: u64,
    /// Part of the request was sent to a server.
    sent: bool,
    /// The attempt uses a kept connection.
    cached: bool,
    /// How many times servers refused the request (RFC 9113 section 8.7).
    refusals: u32,
    /// The size of the interim responses so far, in bytes.
    interim: usize,
    /// Early hints are queued for the client.
    hints: bool,
    /// The attempt's stream will carry another protocol, so the client's side stays open.
    connects: bool,
    body: RequestBody,
    /// The server name from the address, if the connection uses TLS.
    tls: Option<Box<Bytes>>,
    /// The TLS parameters of the attempt.
    terms: Option<Box<Terms>>,
    /// The client's connection, if it has connections to servers of its own (`ntlm`).
    owner: Option<Rc<Owner>>,
    /// Our own end of connections, if variables give its address.
    bound: Option<Box<Bound>>,
}

/// Received response headers.
struct Answered {
    /// The text of the fields.
    text: Bytes,
    /// The bytes after the headers.
    rest: Bytes,
    /// Sending has not failed so far.
    takes: bool,
}

/// A response whose headers are in the request's state.
struct Answer {
    /// The bytes that were read after the headers.
    rest: Bytes,
    wire: Wire,
    peer: Rc<Peer>,
    /// Sending has not failed so far.
    takes: bool,
    /// Bytes of the request that are ready to be sent.
    out: Chain,
}

/// Proxies a request and prepares the response in `r.out`.
///
/// One such future exists for each request that waits for a server, so it is kept small: the
/// exchange is constructed in place, and rarely needed parts (caches, names, queues, new
/// connections) are boxed. Then it fits the CPU's caches, and stays below the size up to which
/// glibc's allocator serves recently freed blocks (1,032 bytes).
#[inline(always)]
pub fn run(r: &mut Request, job: Job) -> impl Future<Output = Verdict> {
    let Job { conf, target, protocol, tls } = job;
    let mut x = Exchange {
        conf,
        protocol,
        pool: None,
        lease: None,
        target,
        tries: 0,
        start_ms: 0,
        sent: false,
        cached: false,
        refusals: 0,
        interim: 0,
        hints: false,
        connects: false,
        body: RequestBody::None,
        tls: tls.map(Box::new),
        terms: None,
        owner: None,
        bound: None,
    };
    async move {
        if r.is_traced() {
            return crate::explained::passed(r, &x.conf, &x.target, x.protocol.as_mut());
        }
        if let Err(verdict) = x.prepare(r).await {
            return verdict;
        }
        let stored = loop {
            let stop = match x.attempt(r).await {
                Ok(answer) => match x.judge(r) {
                    None => return x.accept(r, answer),
                    Some(Stop::Stored(status)) => {
                        break rarely(x.answer_from_cache(r, answer, status));
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
        };
        stored.await
    }
}

impl Exchange {
    /// Reads the client's body as far as necessary, looks up the cache, and starts choosing
    /// servers.
    async fn prepare(&mut self, r: &mut Request) -> Result<(), Verdict> {
        self.body = RequestBody::read(r, &self.conf, self.protocol.as_mut()).await?;
        let u = r.upstream_mut();
        u.scheme = self.protocol.scheme();
        u.forget_cache();
        if let Some(cache) = &self.conf.cache {
            let protocol = self.protocol.as_mut();
            let looked = foreseen(boxed(|| caching::begin(r, cache, &self.conf, protocol)));
            if let Begin::Verdict(v) = looked.await {
                return Err(v);
            }
        }
        let u = r.upstream_mut();
        if !u.attempts.is_empty() {
            u.attempts.push(Attempt::default());
        }
        let (picker, binding) = match &self.target {
            Target::Group(group) => {
                self.pool.clone_from(&group.pool);
                let picker = AnyPicker::begin(group.balancer.as_ref(), r);
                let affinity = group.affinity.clone();
                let own = match group.ntlm {
                    true => self.own_server(r),
                    false => None,
                };
                (picker, affinity.map(|affinity| affinity.begin(r)).or(own))
            }
            Target::Addr(addr) => (self.own(r, &[ServerSpec::new(addr.clone())]), None),
            Target::Name(host, port) => {
                let found = rarely(connect::addresses(r, &self.conf, host, *port)).await?;
                (self.own(r, &found), None)
            }
        };
        let most = u32::try_from(self.conf.next_upstream_tries).unwrap_or(u32::MAX);
        self.tries = match most {
            0 => picker.tries(),
            _ if self.asks_again() => most,
            _ => picker.tries().min(most),
        };
        self.lease = Some(Lease::new(picker, binding));
        if !self.conf.bind_dynamic && self.conf.socket.varies() {
            self.bind(r);
        }
        self.start_ms = now_ms();
        Ok(())
    }

    /// Starts choosing among servers that belong to no group.
    fn own(&self, r: &mut Request, specs: &[ServerSpec]) -> AnyPicker {
        let servers = Servers::own(self.target.name(), specs);
        AnyPicker::begin(&RoundRobin(servers), r)
    }

    /// An attempt with one server: connects, sends, reads the headers.
    async fn attempt(&mut self, r: &mut Request) -> Result<Answer, Stop> {
        let mut out = Chain::new();
        if !self.conf.request_dynamic {
            self.protocol.request(r, &mut out).map_err(Stop::Status)?;
        }
        let mut peer = self.lease.as_mut().and_then(|l| l.take_next(r));
        if peer.is_none() && r.upstream_mut().is_first() {
            peer = rarely(self.queue(r)).await?;
        } else if peer.is_none() && self.asks_again() {
            peer = self.first_again(r);
        }
        let u = r.upstream_mut();
        u.forget_response();
        let name = peer.as_ref().map_or_else(|| self.target.name(), |peer| peer.name.clone());
        u.asking = true;
        u.last.clone_from(&peer);
        let row = peer.as_ref().and_then(|p| p.row());
        let (peer_name, start_ms) = (Some(name), now_ms());
        u.attempts.push(Attempt { peer: peer_name, start_ms, row, ..Attempt::default() });
        let Some(peer) = peer else {
            r.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
            return Err(Stop::Next(next::NO_LIVE));
        };
        if self.depends_on_server() {
            self.at_server(r, &mut out)?;
        }
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
            self.body.append_to(r, self.protocol.as_mut(), &mut out);
            // The part of a streamed body that is sent with the headers cannot be repeated to
            // another server.
            self.sent |= self.body.is_streamed();
            match wire.stream() {
                None => self.converse(r, &wire, &mut out).await?,
                Some(stream) => {
                    boxed(|| self.converse_by_stream(r, &wire, stream, &mut out)).await?
                }
            }
        };
        let u = r.upstream_mut();
        u.text = text;
        if u.head.status == 101 {
            rarely(async { self.check_switch(r) }).await?;
        }
        let a = r.upstream_mut().now();
        a.header_ms = Some(now_ms().saturating_sub(a.start_ms));
        if r.upstream_mut().invalidates.is_some() {
            rarely(decisions::invalidate(r, self.protocol.as_ref())).await;
        }
        Ok(Answer { rest, wire, peer, takes, out })
    }

    /// No server has a free slot: waits for one if the upstream has a queue.
    async fn queue(&mut self, r: &mut Request) -> Result<Option<Rc<Peer>>, Stop> {
        let Target::Group(group) = &self.target else { return Ok(None) };
        let group = group.clone();
        let Some(queue) = &group.queue else { return Ok(None) };
        let watch = self.client(r);
        let Some(lease) = &mut self.lease else { return Ok(None) };
        let waiting = queue.wait(r, group.balancer.as_ref(), &group.servers, lease);
        match race_if(waiting, watch.as_ref().map(ClientEnd::gone)).await {
            Either::First(peer) => Ok(peer),
            Either::Second(_) => Err(client_gone(r, "connecting to upstream")),
        }
    }

    /// Identifies the location in connection pools that are not shared between locations.
    fn tag(&self) -> usize {
        let conf = match self.conf.place {
            0 => Rc::as_ptr(&self.conf) as usize,
            place => place as usize,
        };
        let bound = self.bound.as_ref().map_or(0, |bound| bound.hash);
        conf ^ self.terms.as_ref().map_or(0, |terms| terms.hash()) ^ bound
    }

    /// Which exchanges a kept connection is for, this one among them.
    fn connection_use(&self) -> Use<'_> {
        Use { tag: self.tag(), apart: self.bound.is_some(), owner: self.owner.as_ref() }
    }

    /// The client's connection, if its end aborts the exchange.
    fn client(&self, r: &Request) -> Option<ClientEnd> {
        // A response for the cache is useful to others, so continue.
        let kept = r.upstream().is_some_and(Exchanges::is_cacheable);
        if self.conf.ignore_client_abort || kept { None } else { r.watched() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a future that a function returns.
    fn size<'a, F>(_: impl FnOnce(&'a mut Request, Job) -> F) -> usize {
        size_of::<F>()
    }

    /// Each request that waits for a server has one: growth shows in the time of all of them.
    #[test]
    fn the_future_of_an_exchange_is_small() {
        assert!(size(run) <= 640, "{} bytes", size(run));
    }
}
