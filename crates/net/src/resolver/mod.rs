//! A DNS client for names that are known only at run time, on the event loop.
//!
//! ```text
//!  addresses(name) ─▶ known? ─▶ the answer
//!                     asked for already? ─▶ wait with those who did
//!                     else a task asks for A and AAAA: server after server, CNAME after CNAME,
//!                     until there is an answer, or nobody waits any more
//! ```
//!
//! Answers are cached for their time to live, or for `valid=`. Negative answers are cached only for
//! the time they declare (RFC 2308).
//!
//! **Spoofing.** Each query has a source port and an id of its own, over connected sockets. Queries
//! to name servers beyond the loopback also mix upper and lower case at random; if an answer does
//! not keep the case, the query is repeated over TCP. Only records of the name's own CNAME chain
//! are taken from an answer.
//!
//! **No library.** The wire format is a small codec in `proto` and not `hickory-proto`: a stub
//! resolver needs four types of records and compression, some 200 fuzzed lines against some sixty
//! crates.

mod ask;
mod config;
mod failure;
mod service;
mod status;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use base::time::unix_secs;
use bytes::Bytes;
use event::{Deadline, Notify, TaskId};
use os::SockAddr;
use proto::dns::{Data, Record, Response, kind, name_of_address};

use ask::{Question, Silence, ask};

pub use config::{ConfigError, system_servers};
pub use failure::Failure;
pub use service::{Host, NoService, Services};
pub use status::{NAMES as STATUS_NAMES, Status};

/// Time of a name server before the next one is tried, milliseconds.
const RESEND_MS: u64 = 5_000;

/// Pause before unreachable servers are tried again, milliseconds.
const PAUSE_MS: u64 = 1_000;

/// CNAMEs that are followed.
const CHAIN_MAX: usize = 50;

/// Names in the cache.
const KNOWN_MAX: usize = 10_000;

/// Names under query at once.
const FLIGHTS_MAX: usize = 1_000;

/// Longest time that a refusal is believed, seconds.
const NEGATIVE_MAX: u64 = 60;

/// `resolver`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name servers, with ports.
    pub servers: Vec<SockAddr>,
    /// `valid=`, seconds: the time in the cache, whatever the answer's own.
    pub valid: Option<u64>,
    /// Whether addresses of IPv4 are asked for (`ipv4=`).
    pub ipv4: bool,
    /// Whether addresses of IPv6 are asked for (`ipv6=`).
    pub ipv6: bool,
}

/// The type of a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum QueryKind {
    /// Addresses.
    Host,
    /// The hosts of a service.
    Service,
    /// The name of an address.
    Name,
}

type Key = (Bytes, QueryKind);
type Answer = Result<Rc<Records>, Failure>;

/// The records of an answer.
struct Records {
    data: Vec<Data>,
    /// Until when they are good, seconds.
    valid: u64,
}

/// A query in progress.
struct Query {
    answer: RefCell<Option<Answer>>,
    done: Notify,
    waiting: Cell<usize>,
    task: Cell<Option<TaskId>>,
}

/// Addresses of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// IPv4 first; each time another one begins.
    pub list: Vec<IpAddr>,
    /// Until when they are good, seconds of the Unix epoch.
    pub valid: u64,
}

/// A DNS client with a cache, for names that are known only at run time.
pub struct Resolver {
    config: Config,
    status: Option<Rc<Status>>,
    known: RefCell<HashMap<Key, (Answer, u64)>>,
    flights: RefCell<HashMap<Key, Rc<Query>>>,
    /// The server that the next question begins with.
    next: Cell<usize>,
    turn: Cell<usize>,
    me: Weak<Resolver>,
}

impl Resolver {
    /// A client of these servers; `status` counts its queries and answers.
    pub fn new(config: Config, status: Option<Rc<Status>>) -> Rc<Resolver> {
        Rc::new_cyclic(|me| Resolver {
            config,
            status,
            known: RefCell::default(),
            flights: RefCell::default(),
            next: Cell::new(0),
            turn: Cell::new(0),
            me: me.clone(),
        })
    }

    /// The servers, lifetimes and families that it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The addresses of a host, waiting `timeout_ms` at most; 0 is no limit.
    ///
    /// # Errors
    /// The name servers' reason, or [`Failure::TimedOut`].
    pub async fn addresses(&self, name: &[u8], timeout_ms: u64) -> Result<Addresses, Failure> {
        within(timeout_ms, self.both(name)).await
    }

    /// The name of an address, waiting `timeout_ms` at most; 0 is no limit. Whoever has the address
    /// chose it: it is to be looked up in turn before it is believed.
    ///
    /// # Errors
    /// The name servers' reason, or [`Failure::TimedOut`].
    pub async fn name(&self, ip: IpAddr, timeout_ms: u64) -> Result<Bytes, Failure> {
        let name = Bytes::from(name_of_address(ip));
        let found = within(timeout_ms, self.lookup(&name, QueryKind::Name)).await?;
        let first = found.data.iter().find_map(|data| match data {
            Data::Ptr(name) => Some(canonical(name)),
            _ => None,
        });
        first.ok_or(Failure::NotFound)
    }

    async fn both(&self, name: &[u8]) -> Result<Addresses, Failure> {
        let found = self.lookup(&canonical(name), QueryKind::Host).await?;
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        let of = |pick: fn(&Data) -> Option<IpAddr>| {
            let mut list: Vec<IpAddr> = found.data.iter().filter_map(pick).collect();
            if !list.is_empty() {
                let by = turn % list.len();
                list.rotate_left(by);
            }
            list
        };
        let mut list = of(|d| if let Data::A(ip) = d { Some((*ip).into()) } else { None });
        list.extend(of(|d| if let Data::Aaaa(ip) = d { Some((*ip).into()) } else { None }));
        Ok(Addresses { list, valid: found.valid })
    }

    /// Records: cached, or queried.
    async fn lookup(&self, name: &Bytes, what: QueryKind) -> Answer {
        let key = (name.clone(), what);
        let now = unix_secs();
        if let Some((answer, until)) = self.known.borrow().get(&key)
            && *until > now
        {
            return answer.clone();
        }
        let Some(flight) = self.flight(&key) else { return Err(Failure::Server) };
        let _place = Waiter::new(self, &key, flight.clone());
        loop {
            if let Some(answer) = flight.answer.borrow().clone() {
                return answer;
            }
            flight.done.notified().await;
        }
    }

    /// The query for that key in progress, begun now if there is none; `None` when too many are.
    fn flight(&self, key: &Key) -> Option<Rc<Query>> {
        if let Some(flight) = self.flights.borrow().get(key) {
            return Some(flight.clone());
        }
        if self.flights.borrow().len() >= FLIGHTS_MAX {
            return None;
        }
        let flight = Rc::new(Query {
            answer: RefCell::new(None),
            done: Notify::new(),
            waiting: Cell::new(0),
            task: Cell::new(None),
        });
        self.flights.borrow_mut().insert(key.clone(), flight.clone());
        let (me, own, of) = (self.me.clone(), flight.clone(), key.clone());
        let task = event::spawn(async move {
            let Some(me) = me.upgrade() else { return };
            let (answer, until) = me.chase(&of).await;
            me.keep(of.clone(), &answer, until);
            me.flights.borrow_mut().remove(&of);
            *own.answer.borrow_mut() = Some(answer);
            own.done.notify_all();
        });
        flight.task.set(Some(task));
        Some(flight)
    }

    fn keep(&self, key: Key, answer: &Answer, until: u64) {
        let now = unix_secs();
        if until <= now {
            return;
        }
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, (answer.clone(), until));
    }

    /// Queries, and follows CNAMEs. Also returns the time until which the answer may be cached.
    async fn chase(&self, (name, what): &Key) -> (Answer, u64) {
        let mut name = name.clone();
        let mut ttl = u64::MAX;
        for _ in 0..=CHAIN_MAX {
            let answers = match self.ask_types(&name, *what).await {
                Ok(answers) => answers,
                Err(failure) => return (Err(failure), 0),
            };
            let now = unix_secs();
            let (mut data, mut end) = (Vec::new(), name.clone());
            for (kind, response) in &answers {
                if let Some(failure) = Failure::of_code(response.rcode) {
                    return (Err(failure), refusal_until(response, now));
                }
                let (of_kind, to, least) = collect(&response.answers, &name, *kind);
                data.extend(of_kind);
                ttl = ttl.min(least);
                // Where the types lead to different names, nginx goes where the last one leads.
                end = to;
            }
            if !data.is_empty() {
                let ttl = self.config.valid.unwrap_or(ttl.min(1 << 31));
                let valid = now.saturating_add(ttl);
                return (Ok(Rc::new(Records { data, valid })), valid);
            }
            if end == name {
                if *what == QueryKind::Name && answers.iter().any(|(_, r)| !r.answers.is_empty()) {
                    // An answer to another question does not say that there is no name.
                    return (Err(Failure::Format), 0);
                }
                let until = answers.iter().map(|(_, r)| refusal_until(r, now)).min();
                return (Err(Failure::NotFound), until.unwrap_or(0));
            }
            name = end;
        }
        (Err(Failure::NotFound), 0)
    }

    /// Queries all types at once.
    async fn ask_types(
        &self,
        name: &[u8],
        what: QueryKind,
    ) -> Result<Vec<(u16, Response)>, Failure> {
        let start = self.next.replace(self.next.get().wrapping_add(1));
        let ask = async |on: bool, kind: u16| match on {
            true => Some(self.ask_all(Question { name, kind }, start).await.map(|r| (kind, r))),
            false => None,
        };
        let answers = match what {
            QueryKind::Service => [ask(true, kind::SRV).await, None],
            QueryKind::Name => [ask(true, kind::PTR).await, None],
            QueryKind::Host => {
                let (v4, v6) = (ask(self.config.ipv4, kind::A), ask(self.config.ipv6, kind::AAAA));
                join(v4, v6).await.into()
            }
        };
        answers.into_iter().flatten().collect()
    }

    /// Asks server after server, from that number on, until one answers.
    async fn ask_all(&self, q: Question<'_>, start: usize) -> Result<Response, Failure> {
        let servers = &self.config.servers;
        let mut refused = None;
        for round in 0usize.. {
            let mut silent = 0;
            for n in 0..servers.len() {
                let at = start.wrapping_add(n) % servers.len();
                self.count(|s| s.asked(q.kind));
                let answer = ask(&servers[at], q, Deadline::in_ms(RESEND_MS)).await;
                match answer {
                    Ok(response) => {
                        self.count(|s| s.answered(response.rcode));
                        match Failure::of_code(response.rcode) {
                            // Another server may know better, unless the name does not exist.
                            Some(f) if f != Failure::NotFound => refused = Some(response),
                            _ => return Ok(response),
                        }
                    }
                    Err(Silence::BadName) => return Err(Failure::Format),
                    Err(Silence::Late) => self.count(Status::timed_out),
                    Err(Silence::Gone) => silent += 1,
                }
            }
            if let Some(response) = refused.take() {
                return Ok(response);
            }
            if silent > 0 {
                // No server is reachable: an immediate retry is useless.
                event::sleep(PAUSE_MS.min(RESEND_MS) << round.min(2)).await;
            }
        }
        Err(Failure::Server)
    }

    fn count(&self, count: impl FnOnce(&Status)) {
        if let Some(status) = &self.status {
            count(status);
        }
    }
}

/// Until when a refusal is believed.
fn refusal_until(response: &Response, now: u64) -> u64 {
    match response.negative_ttl {
        Some(ttl) if matches!(response.rcode, 0 | 3) => now + u64::from(ttl).min(NEGATIVE_MAX),
        _ => 0,
    }
}

/// The records of a type that belong to a name or to the end of its chain of CNAMEs; that end; and
/// the least time to live of the records used. Records of other names are ignored: they may be
/// forged.
fn collect(answers: &[Record], name: &Bytes, kind: u16) -> (Vec<Data>, Bytes, u64) {
    let mut chain = vec![name.clone()];
    let mut ttl = u64::MAX;
    for _ in 0..answers.len() {
        let end = chain[chain.len() - 1].clone();
        let next = answers.iter().find_map(|r| match &r.data {
            Data::Cname(to) if r.name.eq_ignore_ascii_case(&end) => Some((to, r.ttl)),
            _ => None,
        });
        let Some((to, of_cname)) = next else { break };
        let to = canonical(to);
        if chain.contains(&to) {
            break;
        }
        ttl = ttl.min(of_cname.into());
        chain.push(to);
    }
    let mut data = Vec::new();
    for r in answers {
        let fits = match r.data {
            Data::A(_) => kind == kind::A,
            Data::Aaaa(_) => kind == kind::AAAA,
            Data::Srv { .. } => kind == kind::SRV,
            Data::Ptr(_) => kind == kind::PTR,
            _ => false,
        };
        if fits && chain.iter().any(|n| r.name.eq_ignore_ascii_case(n)) {
            ttl = ttl.min(r.ttl.into());
            data.push(r.data.clone());
        }
    }
    (data, chain.pop().unwrap_or_default(), ttl)
}

/// The name as the cache's key: in lower case, without the dot at its end.
fn canonical(name: &[u8]) -> Bytes {
    let name = name.strip_suffix(b".").unwrap_or(name);
    Bytes::from(name.to_ascii_lowercase())
}

/// A waiter for a query's answer. The query is cancelled with the last one.
struct Waiter<'a> {
    resolver: &'a Resolver,
    key: &'a Key,
    flight: Rc<Query>,
}

impl<'a> Waiter<'a> {
    fn new(resolver: &'a Resolver, key: &'a Key, flight: Rc<Query>) -> Waiter<'a> {
        flight.waiting.set(flight.waiting.get() + 1);
        Waiter { resolver, key, flight }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let flight = &self.flight;
        flight.waiting.set(flight.waiting.get() - 1);
        if flight.waiting.get() > 0 || flight.answer.borrow().is_some() {
            return;
        }
        self.resolver.flights.borrow_mut().remove(self.key);
        if let Some(task) = flight.task.take() {
            event::task::cancel(task);
        }
    }
}

async fn within<T>(
    timeout_ms: u64,
    f: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if timeout_ms == 0 {
        return f.await;
    }
    event::timeout(timeout_ms, f).await.unwrap_or(Err(Failure::TimedOut))
}

/// Waits for both.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(move |cx| {
        if of_a.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            of_a = Some(v);
        }
        if of_b.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            of_b = Some(v);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests;
