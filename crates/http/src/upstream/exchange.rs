//! One request's way through the servers of an upstream.

use std::io;
use std::rc::Rc;

use base::future::{boxed, rarely};
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::task::foreseen;
use event::{Deadline, Side};
use mem::{Buf, Chain, Page};
use net::Transport;
use os::SockAddr;
use proto::h1::Method;

use super::balance::{Outcome, RoundRobin, Way};
use super::conf::{Conf, next};
use super::group::Group;
use super::headers::{self, Accepted};
use super::keeping::{self, Keeping};
use super::lease::Lease;
use super::peer::{Peer, Spec};
use super::pool::{Pool, UpConn};
use super::request_body::RequestBody;
use super::source::{First, Remainder, Source};
use super::state::{Attempt, State};
use super::store::{InFile, Storing};
use super::wire::{Either, client_end, either, either_if};
use super::{HeadStep, Progress, Protocol, Sink};
use crate::cache::{self, Begin, Fill, Plan, Reader, Status};
use crate::module::Verdict;
use crate::output::Body;
use crate::request::Request;

/// Where a request goes.
pub enum Target {
    /// To a server of a group.
    Group(Rc<Group>),
    /// To one address, found at run time.
    Addr(SockAddr),
    /// To a host and port that a variable named: the location's resolver finds its addresses.
    Name(Bytes, u16),
}

/// A request to pass on.
pub struct Job {
    /// The settings of the location.
    pub conf: Rc<Conf>,
    /// Where to.
    pub target: Target,
    /// In which language.
    pub protocol: Box<dyn Protocol>,
}

/// Why an attempt ended without a response to pass on.
pub(super) enum Stop {
    /// Another server may be asked: a bit of [`next`].
    Next(u64),
    /// Answer with this status.
    Status(u16),
    /// The client is gone.
    ClientGone,
    /// The client's body cannot be read: end like this.
    Verdict(Verdict),
    /// What a cache keeps is served instead, with that status.
    Kept(Status),
}

/// What goes back where when an exchange is over.
pub(crate) struct Link {
    pub conn: Option<UpConn>,
    pub addr: SockAddr,
    pub pool: Option<Rc<Pool>>,
    pub tag: usize,
    pub lease: Lease,
}

impl Link {
    /// The exchange ended well: the connection is kept where that is possible.
    pub fn finish(&mut self, reusable: bool, gate: &event::Gate) {
        self.lease.done(Outcome::Ok);
        let conn = self.conn.take();
        if let (Some(conn), Some(pool), true) = (conn, &self.pool, reusable) {
            pool.put(conn, &self.addr, self.tag, gate);
        }
    }
}

struct Exchange {
    conf: Rc<Conf>,
    protocol: Box<dyn Protocol>,
    pool: Option<Rc<Pool>>,
    lease: Option<Lease>,
    group: Option<Rc<Group>>,
    /// What stands for the servers in logs while none is chosen, where there is no group.
    name: Bytes,
    tries: u32,
    start_ms: u64,
    /// Something of the request went to a server.
    sent: bool,
    /// The attempt uses a connection that was kept from an earlier request.
    cached: bool,
    /// Bytes of interim responses so far.
    interim: usize,
    /// Early hints wait for being sent to the client.
    hints: bool,
    body: RequestBody,
}

/// How many bytes of interim responses may come before the one that counts.
const INTERIM_MAX: usize = 1 << 20;

/// A response whose head is in the request's state.
struct Answer {
    /// What was read behind the head.
    rest: Bytes,
    conn: UpConn,
    addr: SockAddr,
    /// The server took what was sent so far.
    takes: bool,
    /// What is to be sent at once.
    out: Chain,
}

/// Passes a request on and prepares the response in `r.out`.
///
/// There is one such future for each request that waits for a server: what few of them need
/// (caches, names, queues, new connections) is boxed apart, so that the rest stays in the
/// processor's caches.
pub async fn run(r: &mut Request, job: Job) -> Verdict {
    let mut x = match prepare(r, job).await {
        Ok(x) => x,
        Err(verdict) => return verdict,
    };
    loop {
        let attempt = x.attempt(r).await;
        if attempt.is_ok() && r.upstream_mut().invalidates.is_some() {
            rarely(keeping::invalidate(r, x.protocol.as_ref())).await;
        }
        let stop = match attempt {
            Ok(answer) => match x.judge(r) {
                None => return x.accept(r, answer),
                Some(Stop::Kept(status)) => return rarely(x.kept(r, answer, status)).await,
                Some(stop) => {
                    x.keep(r, answer);
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
    let Job { conf, target, mut protocol } = job;
    let body = RequestBody::read(r, &conf, protocol.as_mut()).await?;
    let scheme = protocol.scheme();
    let u = r.upstream_mut();
    u.scheme = scheme;
    u.forget_cache();
    if let Some(cache) = &conf.cache
        && let Begin::Verdict(v) =
            foreseen(boxed(|| cache::begin(r, cache, &conf, protocol.as_mut()))).await
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
        interim: 0,
        hints: false,
        body,
    })
}

/// What an exchange begins with: its group, the way through its servers, and, without a group, what
/// stands for them in logs while none is chosen.
type Begun = (Option<Rc<Group>>, Way, Bytes);

async fn begin(r: &mut Request, conf: &Conf, target: Target) -> Result<Begun, Verdict> {
    let (name, specs) = match target {
        Target::Group(g) => {
            let picker = Way::begin(g.balancer.as_ref(), r);
            return Ok((Some(g), picker, Bytes::new()));
        }
        Target::Addr(a) => (Bytes::from(a.to_string()), vec![Spec::new(a)]),
        Target::Name(host, port) => {
            let specs = rarely(super::resolving::addresses(r, conf, &host, port)).await?;
            (host, specs)
        }
    };
    let servers = super::servers::Servers::own(name.clone(), &specs);
    Ok((None, Way::begin(&RoundRobin(servers), r), name))
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
        u.attempts.push(Attempt { peer: Some(name), start_ms: now_ms(), ..Attempt::default() });
        let Some(peer) = peer else {
            r.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
            return Err(Stop::Next(next::NO_LIVE));
        };
        self.cached = false;
        let mut conn = match self.kept_connection(&peer) {
            Some(conn) => conn,
            None => rarely(self.connect(r, &peer)).await?,
        };
        let a = r.upstream_mut().now();
        a.connect_ms = Some(now_ms().saturating_sub(a.start_ms));
        conn.requests += 1;
        self.cached = conn.cached;
        let (page, head_len, whole) = if self.protocol.only_connects() {
            (self.connected(r), 0, true)
        } else {
            self.body.append_to(r, self.protocol.as_mut(), &mut out);
            // What of a streamed body goes out with the head is not there for another server.
            self.sent |= self.body.is_streamed();
            self.converse(r, &conn, &mut out).await?
        };
        let mut rest = page.freeze();
        let head = rest.split_to(head_len);
        let text = self.protocol.text();
        let u = r.upstream_mut();
        u.text = text.unwrap_or(head);
        let a = u.now();
        a.header_ms = Some(now_ms().saturating_sub(a.start_ms));
        Ok(Answer { rest, conn, addr: peer.spec.addr.clone(), takes: whole, out })
    }

    /// No server can be asked: waits until one can, where the upstream has a queue.
    async fn queue(&mut self, r: &mut Request) -> Result<Option<Rc<Peer>>, Stop> {
        let Some(group) = self.group.clone() else { return Ok(None) };
        let Some(queue) = &group.queue else { return Ok(None) };
        let watch = self.client(r);
        let Some(lease) = &mut self.lease else { return Ok(None) };
        let waiting = queue.wait(r, &group, lease);
        match either_if(waiting, watch.as_deref().map(client_end)).await {
            Either::First(peer) => Ok(peer),
            Either::Second(_) => Err(client_gone(r, "connecting to upstream")),
        }
    }

    /// A connection stands, and that is all that was asked for.
    fn connected(&mut self, r: &mut Request) -> Page {
        let u = r.upstream_mut();
        self.protocol.head(b"", &mut u.head);
        let status = u.head.status;
        u.now().status = status;
        Page::new()
    }

    fn kept_connection(&self, peer: &Peer) -> Option<UpConn> {
        self.pool.as_ref()?.take(&peer.spec.addr, self.tag())
    }

    /// A new connection.
    async fn connect(&self, r: &mut Request, peer: &Peer) -> Result<UpConn, Stop> {
        let sock = super::socket::open(r, &self.conf, &peer.spec.addr)?;
        let watch = self.client(r);
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        let connecting = sock.connect(&peer.spec.addr, deadline);
        let gone = watch.as_deref().map(client_end);
        let done = match either_if(connecting, gone).await {
            Either::First(done) => done,
            Either::Second(_) => return Err(client_gone(r, "connecting to upstream")),
        };
        match done {
            Ok(()) => {
                Ok(UpConn { sock: sock.into(), requests: 0, start_ms: now_ms(), cached: false })
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() => {
                Err(timed_out(r, "connecting to upstream"))
            }
            Err(e) => {
                connect_failed(r, peer, &e);
                Err(Stop::Next(next::ERROR))
            }
        }
    }

    /// Identifies the location for pools that do not share between locations.
    fn tag(&self) -> usize {
        Rc::as_ptr(&self.conf) as usize
    }

    /// The client's connection, where its end ends the exchange.
    fn client(&self, r: &Request) -> Option<Rc<crate::conn::Conn>> {
        // What goes to a cache is of use to others.
        let kept = r.upstream().is_some_and(State::is_cacheable);
        if self.conf.ignore_client_abort || kept { None } else { r.watched().cloned() }
    }

    /// Sends the request and reads the response's head, both at once: a server may answer before it
    /// read all of a body. Gives the page, the head's length, and whether sending never failed.
    async fn converse(
        &mut self,
        r: &mut Request,
        conn: &UpConn,
        out: &mut Chain,
    ) -> Result<(Page, usize, bool), Stop> {
        let sock = &conn.sock;
        let watch = self.client(r);
        let mut page = Page::new();
        let mut broken = None;
        loop {
            if !out.is_empty() || sock.has_unsent() {
                match sock.try_send(out, None) {
                    Ok(n) => {
                        self.sent |= n > 0;
                        r.upstream_mut().now().sent += n as u64;
                    }
                    // The server may have answered before it closed: RFC 9112 section 9.5.
                    Err(e) => {
                        out.clear();
                        self.body.give_up();
                        broken = Some(e);
                    }
                }
            }
            match sock.try_recv_into(&mut page) {
                Ok(None) if broken.is_none() => {}
                Ok(Some(n)) if n > 0 => {
                    r.upstream_mut().now().received += n as u64;
                    let head = self.parse_head(r, &mut page)?;
                    if std::mem::take(&mut self.hints) {
                        let sent = rarely(crate::send::flush(r)).await;
                        sent.map_err(|_| Stop::ClientGone)?;
                    }
                    match head {
                        Some(len) => return Ok((page, len, broken.is_none())),
                        None => continue,
                    }
                }
                end => {
                    no_answer(r, broken, end.err());
                    return Err(Stop::Next(next::ERROR));
                }
            }
            self.wait(r, conn, out, watch.as_deref()).await?;
        }
    }

    /// Waits until something can be read, written, or the client is gone.
    async fn wait(
        &mut self,
        r: &mut Request,
        conn: &UpConn,
        out: &mut Chain,
        watch: Option<&crate::conn::Conn>,
    ) -> Result<(), Stop> {
        let sock = &conn.sock;
        let sent = out.is_empty() && !sock.has_unsent();
        if sent && !self.body.is_sent() {
            return rarely(self.body.more(r, sock, self.protocol.as_mut(), out)).await;
        }
        let (done, doing) = if sent {
            let until = Deadline::in_ms(self.conf.read_timeout);
            let client = watch.map(|client| &client.sock);
            let done = sock.readable_while(client, until).await;
            (done, "reading response header from upstream")
        } else {
            let until = Deadline::in_ms(self.conf.send_timeout);
            let done = rarely(readable_or_writable(sock, watch, until)).await;
            (done, "sending request to upstream")
        };
        match done {
            Ok(Side::This) => Ok(()),
            Ok(Side::Other) => Err(client_gone(r, doing)),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(timed_out(r, doing)),
            Err(e) => {
                log_io(r, "recv()", &e, "reading response header from upstream");
                Err(Stop::Next(next::ERROR))
            }
        }
    }

    /// Looks for a whole head at the start of the page.
    fn parse_head(&mut self, r: &mut Request, page: &mut Page) -> Result<Option<usize>, Stop> {
        loop {
            let u = r.upstream_mut();
            let step = self.protocol.head(page.filled(), &mut u.head);
            while let Some((level, m)) = self.protocol.complaint() {
                r.log(level, format_args!("{m} while reading response header from upstream"));
            }
            return match step {
                HeadStep::More if page.len() >= self.conf.buffer_size => Err(too_big(r)),
                HeadStep::More => Ok(None),
                HeadStep::Interim(len) => {
                    self.interim += len;
                    if self.interim > INTERIM_MAX {
                        return Err(too_big(r));
                    }
                    if r.upstream_mut().head.status == 103 {
                        self.pass_hints(r, page.filled());
                    }
                    page.consume(len);
                    r.upstream_mut().forget_response();
                    if page.is_empty() {
                        return Ok(None);
                    }
                    continue;
                }
                HeadStep::Done(len) if len > self.conf.buffer_size => Err(too_big(r)),
                HeadStep::Done(len) => {
                    let u = r.upstream_mut();
                    let status = u.head.status;
                    u.now().status = status;
                    Ok(Some(len))
                }
                HeadStep::NoHead(m) => {
                    let m = format_args!("{m} while reading response header from upstream");
                    r.log(Level::Error, m);
                    let u = r.upstream_mut();
                    u.head.clear();
                    u.head.status = 200;
                    u.now().status = 200;
                    // The answer has no head either.
                    r.head.version = proto::h1::Version::HTTP_09;
                    Ok(Some(0))
                }
                HeadStep::Bad(m) if m.is_empty() => Err(Stop::Next(next::INVALID_HEADER)),
                HeadStep::Bad(m) => {
                    let m = format_args!("{m} while reading response header from upstream");
                    r.log(Level::Error, m);
                    Err(Stop::Next(next::INVALID_HEADER))
                }
            };
        }
    }

    /// Writes early hints for the client, where it is to have them.
    #[cold]
    fn pass_hints(&mut self, r: &mut Request, text: &[u8]) {
        if self.interim > self.conf.buffer_size {
            r.log(Level::Info, format_args!("upstream sent too big early hints"));
            return;
        }
        if !crate::early_hints::wanted(r) {
            return;
        }
        let head = std::mem::take(&mut r.upstream_mut().head);
        let shown = head.fields.iter().filter(|f| !self.conf.hidden.has(f.id, f.name.of(text)));
        crate::early_hints::write(r, shown.map(|f| (f.name.of(text), f.value.of(text))));
        r.upstream_mut().head = head;
        self.hints = !r.wire.is_empty();
    }

    /// Whether a status is to be answered by another server, or by `error_page`.
    fn judge(&mut self, r: &mut Request) -> Option<Stop> {
        let status = r.upstream_mut().head.status;
        if status < 300 {
            return None;
        }
        let bit = next::of_status(status);
        if bit != 0 && self.tries > 1 && self.may_retry(r, bit) {
            return Some(Stop::Next(bit));
        }
        if let Some(stop) = keeping::instead(r, status, bit) {
            return Some(stop);
        }
        headers::intercepted(r, &self.conf, status).then(|| {
            keeping::keep_error(r, status, &self.conf, true);
            Stop::Status(status)
        })
    }

    /// The response is not passed on: its connection is kept where all of it is here.
    fn keep(&mut self, r: &mut Request, answer: Answer) {
        let sent_all = answer.takes && answer.out.is_empty() && self.body.is_sent();
        let (Some(pool), true) = (&self.pool, sent_all) else { return };
        let head = std::mem::take(&mut r.upstream_mut().head);
        let mut progress = self.protocol.begin_body(&head);
        r.upstream_mut().head = head;
        let mut sink = Sink::default();
        if progress == Progress::More && !answer.rest.is_empty() {
            let body = self.protocol.body(Buf::Mem(answer.rest), &mut sink);
            progress = body.unwrap_or(Progress::More);
        } else if !answer.rest.is_empty() {
            return;
        }
        if progress == Progress::Done && self.protocol.reusable() && sink.warning.is_none() {
            pool.put(answer.conn, &answer.addr, self.tag(), &r.main.gate);
        }
    }

    fn may_retry(&self, r: &Request, bit: u64) -> bool {
        let unsafe_method = matches!(r.method, Method::Post | Method::Lock | Method::Patch);
        let bits = if self.sent && unsafe_method { bit | next::NON_IDEMPOTENT } else { bit };
        let timeout = self.conf.next_upstream_timeout;
        self.conf.next_upstream & bits == bits
            && !(self.sent && self.body.is_streamed())
            && !(timeout > 0 && now_ms().saturating_sub(self.start_ms) >= timeout)
    }

    /// An attempt is over without a response: `None` where another server is to be tried.
    fn ended(&mut self, r: &mut Request, stop: Stop) -> Option<Verdict> {
        let a = r.upstream_mut().now();
        a.response_ms.get_or_insert(now_ms().saturating_sub(a.start_ms));
        match stop {
            Stop::ClientGone => {
                r.err_status = 499;
                r.upstream_mut().asking = false;
                Some(Verdict::Close)
            }
            Stop::Verdict(v) => {
                r.upstream_mut().asking = false;
                Some(v)
            }
            Stop::Kept(status) => self.serve_kept(r, status),
            Stop::Status(s) => {
                self.lease = None;
                r.upstream_mut().asking = false;
                Some(Verdict::Status(s))
            }
            Stop::Next(bit) => self.next(r, bit),
        }
    }

    fn next(&mut self, r: &mut Request, bit: u64) -> Option<Verdict> {
        let status = match bit {
            next::TIMEOUT | next::HTTP_504 => 504,
            next::HTTP_500 => 500,
            next::HTTP_503 => 503,
            next::HTTP_403 => 403,
            next::HTTP_404 => 404,
            next::HTTP_429 => 429,
            _ => 502,
        };
        r.upstream_mut().now().status = status;
        if bit != next::NO_LIVE
            && let Some(lease) = &mut self.lease
        {
            let outcome = match bit {
                next::HTTP_403 | next::HTTP_404 => Outcome::Next,
                _ => Outcome::Failed,
            };
            self.tries = match lease.is_single() {
                true => 0,
                false => self.tries.saturating_sub(1),
            };
            // A kept connection may have been closed as we wrote to it: that does not count.
            if self.cached && bit == next::ERROR {
                self.tries += 1;
            }
            if lease.done(outcome) {
                let m = "upstream server temporarily disabled while";
                let doing = match r.upstream_mut().now().connect_ms {
                    None => "connecting to upstream",
                    Some(_) => "reading response header from upstream",
                };
                r.log(Level::Warn, format_args!("{m} {doing}"));
            }
        }
        if bit == next::NO_LIVE || self.tries == 0 || !self.may_retry(r, bit) {
            if keeping::instead_of_failure(r, bit) {
                return self.serve_kept(r, Status::Stale);
            }
            if matches!(status, 502 | 504) {
                keeping::keep_error(r, status, &self.conf, false);
            }
            r.upstream_mut().asking = false;
            return Some(Verdict::Status(status));
        }
        None
    }

    /// Serves what a cache keeps although it is not fresh.
    fn serve_kept(&mut self, r: &mut Request, status: Status) -> Option<Verdict> {
        self.lease = None;
        let served = keeping::serve(r, status, &self.conf, self.protocol.as_ref());
        Some(served.map_or(Verdict::Status(500), |(_, _, verdict)| verdict))
    }

    /// The same instead of a response, whose head says why.
    async fn kept(mut self, r: &mut Request, answer: Answer, status: Status) -> Verdict {
        let text = r.upstream_mut().text.clone();
        self.keep(r, answer);
        let head = std::mem::take(&mut r.upstream_mut().head);
        let a = r.upstream_mut().now();
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        if status == Status::Revalidated {
            self.lease = None;
            let (conf, protocol) = (self.conf.clone(), self.protocol.as_ref());
            return keeping::revalidated(r, &head, &text, &conf, protocol).await;
        }
        self.serve_kept(r, status).unwrap_or(Verdict::Status(500))
    }

    /// A response to pass on: its head to `r.out`, its body as it stands.
    fn accept(mut self, r: &mut Request, answer: Answer) -> Verdict {
        let Answer { rest, conn, addr, takes, out } = answer;
        let sent_all = takes && out.is_empty() && self.body.is_sent();
        let head = std::mem::take(&mut r.upstream_mut().head);
        let keeping = Keeping::of(r, &self.conf, &head);
        let kept = keeping.as_ref().is_some_and(Keeping::may_be_kept);
        let accepted = headers::copy(r, &self.conf, &head, self.protocol.as_ref(), kept);
        // The answer to a redirect inside is another handler's, which has dates and tags of its
        // own.
        if let Some(keeping) = &keeping {
            keeping.forward(r);
        }
        r.out.unconditional = !kept && !matches!(accepted, Accepted::Redirect);
        let progress = self.protocol.begin_body(&head);
        let keep = matches!(accepted, Accepted::Response { buffering: true });
        // What fills a cache reads the server alone, and could not send it the rest of a body.
        let plan = keeping.filter(|_| keep && sent_all).and_then(|k| k.plan(r, &self.conf, &head));
        let has_end = !self.protocol.ends_with_connection();
        let plan = plan.map(|plan| Plan { has_end, ..plan });
        r.upstream_mut().head = head;
        let tag = self.tag();
        let Some(mut lease) = self.lease.take() else { return Verdict::Status(500) };
        lease.answered(r);
        let mut link = Link { conn: Some(conn), addr, pool: self.pool.take(), tag, lease };
        let buffering = match accepted {
            Accepted::Redirect => {
                let reusable = progress == Progress::Done && self.protocol.reusable() && sent_all;
                link.finish(reusable && rest.is_empty(), &r.main.gate);
                let a = r.upstream_mut().now();
                a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
                r.upstream_mut().asking = false;
                return headers::redirect(r);
            }
            Accepted::Upgrade if r.is_subrequest() => {
                r.log(Level::Error, format_args!("connection upgrade in subrequest"));
                return Verdict::Status(502);
            }
            Accepted::Upgrade => {
                r.out.body = Body::Upgraded(Box::new(super::tunnel::Tunnel::new(
                    link,
                    rest,
                    self.conf.clone(),
                )));
                return Verdict::Done;
            }
            Accepted::Response { buffering } => buffering,
        };
        r.out.flush = !buffering;
        let first = First::of(r, self.protocol.as_mut(), rest, progress);
        let also = match plan {
            Some(plan) => Also::Cache(Box::new(plan)),
            None => InFile::of(r, &self.conf, buffering).map_or(Also::Nowhere, Also::File),
        };
        if first.is_whole() && matches!(also, Also::Nowhere) {
            let protocol = self.protocol.as_mut();
            r.out.body = Body::Chain(first.whole(r, &self.conf, protocol, &mut link, sent_all));
            return Verdict::Done;
        }
        let left = Remainder { takes, out, body: self.body };
        let conf = self.conf.clone();
        let source = Source::new(r, self.conf, self.protocol, link, buffering, left, first);
        r.out.body = also.body(r, source, conf);
        Verdict::Done
    }
}

/// Where a response goes besides the client.
enum Also {
    Cache(Box<Plan>),
    File(InFile),
    Nowhere,
}

impl Also {
    fn body(self, r: &mut Request, source: Source, conf: Rc<Conf>) -> Body {
        match self {
            Also::Cache(plan) => {
                let mut reader = Reader::first(Fill::start(*plan, source), conf);
                match reader.whole(r) {
                    Some(chain) => Body::Chain(chain),
                    None => Body::Stream(Box::new(reader)),
                }
            }
            Also::File(file) => Body::Stream(Box::new(Storing::new(r, file, source))),
            Also::Nowhere => Body::Stream(Box::new(source)),
        }
    }
}

/// Whether an error of a socket is the network's doing: EPIPE, ECONNRESET, ETIMEDOUT and their
/// like.
fn by_network(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), None | Some(32 | 100 | 101 | 104 | 107 | 110..=113))
}

/// Waits until the server takes or sends something, or until the client is gone.
async fn readable_or_writable(
    sock: &Transport,
    client: Option<&crate::conn::Conn>,
    until: Deadline,
) -> io::Result<Side> {
    let readable = sock.readable(Deadline::NEVER);
    let ready = either(sock.writable(until), readable);
    match either_if(ready, client.map(client_end)).await {
        Either::First(Either::First(done) | Either::Second(done)) => done.map(|()| Side::This),
        Either::Second(_) => Ok(Side::Other),
    }
}

#[cold]
fn connect_failed(r: &Request, peer: &Peer, e: &io::Error) {
    // What the system refuses at once is told with the address, as nginx does.
    let later =
        !peer.spec.addr.is_unix() && matches!(e.raw_os_error(), Some(104 | 110 | 111 | 113));
    let to = match later {
        true => String::new(),
        false => format!("to {} ", base::log::lossy(&peer.name)),
    };
    let busy = e.kind() == io::ErrorKind::WouldBlock;
    let level = if busy || by_network(e) { Level::Error } else { Level::Crit };
    let os = base::log::os_error(e);
    r.log(level, format_args!("connect() {to}failed {os} while connecting to upstream"));
}

#[cold]
pub(super) fn log_io(r: &Request, call: &str, e: &io::Error, doing: &str) {
    let os = base::log::os_error(e);
    let level = if by_network(e) { Level::Error } else { Level::Alert };
    r.log(level, format_args!("{call} failed {os} while {doing}"));
}

/// The connection ended, or broke, before there was a response.
#[cold]
fn no_answer(r: &Request, sending: Option<io::Error>, receiving: Option<io::Error>) {
    match (sending, receiving) {
        (Some(e), _) => log_io(r, "writev()", &e, "sending request to upstream"),
        (None, Some(e)) => log_io(r, "recv()", &e, "reading response header from upstream"),
        (None, None) => {
            let m = "upstream prematurely closed connection while";
            r.log(Level::Error, format_args!("{m} reading response header from upstream"));
        }
    }
}

#[cold]
pub(super) fn timed_out(r: &Request, doing: &str) -> Stop {
    let m = "upstream timed out (110: Connection timed out) while";
    r.log(Level::Error, format_args!("{m} {doing}"));
    Stop::Next(next::TIMEOUT)
}

#[cold]
fn too_big(r: &Request) -> Stop {
    let m = "upstream sent too big header while reading response header from upstream";
    r.log(Level::Error, format_args!("{m}"));
    Stop::Next(next::INVALID_HEADER)
}

#[cold]
pub(super) fn client_gone(r: &Request, doing: &str) -> Stop {
    let m = "epoll_wait() reported that client prematurely closed connection, so upstream \
             connection is closed too";
    r.log(Level::Info, format_args!("{m} while {doing}"));
    Stop::ClientGone
}
