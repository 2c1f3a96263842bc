//! The proxy: forwards a session's bytes or datagrams to a server.
//!
//! ```text
//!  target ─▶ picker ─▶ server ─▶ connect ─▶ (TLS) ─▶ relay ─▶ end
//!                        ▲            │ failed
//!                        └────────────┘ while others may be tried
//! ```
//!
//! It takes servers from the crate `upstream` by a `Lease`, as HTTP does, and opens a new
//! connection for each session. Bytes that the client has sent so far are read before it connects,
//! and leave together with the end of the handshake.
//!
//! **An idle session is small**: some 0.8 KB over TCP and 0.5 KB over UDP
//! (`stream-modules/tests/idle_memory.rs` holds the limits). An idle relay holds no buffer and
//! waits for both sockets with one wait and one timer. The state of what precedes the relay
//! (phases, choosing a server, connecting, TLS), and of a session that is held up, is in boxes that
//! are freed when that part has ended.
//!
//! The relay's byte counts reach the session however the relay ends.

pub mod conf;
mod connect;
pub(crate) mod datagrams;
pub mod directives;
pub mod exchanges;
mod filtered;
mod filtered_datagrams;
mod header;
pub mod health;
pub(crate) mod moved;
mod relay;

use std::rc::Rc;

use ::conf::ConfError;
use ::conf::template::Template;
use base::future::{boxed, rarely};
use base::log::{Level, lossy};
use base::time::now_ms;
use bytes::Bytes;
use engine::Client;
use mem::Chain;
use net::Transport;
use upstream::balance::{AnyPicker, RoundRobin, ServerOutcome};
use upstream::lease::{Lease, Occupied};
use upstream::peer::{Peer, ServerSpec};
use upstream::resolver::Resolving;
use upstream::servers::Servers;
use upstream::socket::SocketConf;
use upstream::{Group, NoPort, Target, Upstreams, url};

use self::conf::{Pass, ProxyConf};
use crate::module::{BytesFilter, Content, Pipeline, Served, View};
use crate::phases::status;
use crate::session::StreamSession;

/// `proxy_pass` of a server.
pub struct Proxy {
    conf: Rc<ProxyConf>,
    to: Destination,
}

/// The argument of `proxy_pass`.
enum Destination {
    Group(Rc<Group>, Bytes),
    Template(Template, Rc<Upstreams>),
}

pub(crate) fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if view.info.content != "proxy_pass" {
        return Ok(());
    }
    let (pass, all) = (view.conf::<Pass>(), view.conf::<Upstreams>());
    let group = pass.group.and_then(|group| all.group(group));
    let to = match (group, &pass.address) {
        (Some(group), _) => Destination::Group(group, pass.host.clone()),
        (None, Some(template)) => Destination::Template(template.clone(), all),
        (None, None) => return Ok(()),
    };
    let conf = ProxyConf::new(view.confs)?;
    if let Destination::Group(group, host) = &to {
        health::install(view, group, host, &conf)?;
    }
    let proxy = Rc::new(Proxy { conf, to });
    p.datagrams = Some(proxy.clone());
    p.content = Some(Box::new(proxy));
    Ok(())
}

impl Content for Rc<Proxy> {
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a> {
        boxed(|| self.run(s))
    }
}

/// A session that another process has begun.
pub(crate) struct Resumed {
    /// The connection to its server.
    server: Transport,
    rest: relay::Rest,
    /// The group that the server was of.
    group: Bytes,
    /// Its place among the server's sessions, if the configuration has that server.
    place: Option<Occupied>,
}

/// The servers to try for a session, and the remaining attempts.
struct Choice {
    lease: Lease,
    others: Others,
}

/// State for choosing another server.
struct Others {
    /// The name for the log while no server is chosen.
    name: Bytes,
    /// The server name for TLS.
    host: Bytes,
    /// The socket settings with our own address, if variables give one for all servers.
    bound: Option<Box<SocketConf>>,
    tries: u32,
    start_ms: u64,
}

/// A session that is connected to a server.
struct Connected {
    server: relay::Server,
    lease: Lease,
}

/// How to continue after a failed attempt.
enum Stop {
    /// Try another server.
    Next,
    /// The session ends with this status.
    Status(u16),
}

impl Proxy {
    /// Serves a TCP session. Not an `async fn`, because that would store its arguments twice in a
    /// future that lives as long as the session.
    fn run<'a>(&'a self, s: &'a mut StreamSession) -> impl Future<Output = u16> + use<'a> {
        s.is_proxied = true;
        async move {
            if s.is_udp() {
                return boxed(|| self.run_filtered_datagrams(s)).await;
            }
            let Connected { server, mut lease } = match boxed(|| self.connected(s)).await {
                Ok(connected) => connected,
                Err(status) => return status,
            };
            if s.server.pipeline.filter.is_some() {
                let (end, ended) = boxed(|| filtered::run(s, &self.conf, server)).await;
                finish(s, &mut lease, end);
                return ended.unwrap_or(status::OK);
            }
            let end = relay::run(s, &self.conf, self.group_name(), server).await;
            finish(s, &mut lease, end);
            status::OK
        }
    }

    /// Serves a session that another process has begun.
    pub(crate) async fn resume(&self, s: &mut StreamSession, resumed: Resumed) -> u16 {
        let Resumed { server: sock, rest, group, place } = resumed;
        s.is_proxied = true;
        let (first, rest) = (Chain::new(), Some(Box::new(rest)));
        let server = relay::Server { sock, first, nodelay: false, rest };
        relay::run(s, &self.conf, &group, server).await;
        s.exchanges.over();
        drop(place);
        status::OK
    }

    /// `proxy_buffer_size`.
    fn buffer_size(&self) -> usize {
        self.conf.buffer_size
    }

    /// The name of its group; empty without one.
    fn group_name(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match &self.to {
            Destination::Group(group, _) => &group.name,
            Destination::Template(..) => &NONE,
        }
    }

    /// Connects to a server, and tries others after failures.
    async fn connected(&self, s: &mut StreamSession) -> Result<Connected, u16> {
        let mut choice = self.choose(s).await?;
        loop {
            let Choice { lease, others } = &mut choice;
            let stop = match others.take_next(lease, s) {
                None => Stop::Status(status::BAD_GATEWAY),
                Some(peer) => match self.connect(s, &peer, others).await {
                    Ok(server) => {
                        choice.lease.connected();
                        return Ok(Connected { server, lease: choice.lease });
                    }
                    Err(stop) => stop,
                },
            };
            self.go_on(s, lease, others, stop)?;
        }
    }

    /// Handles a failed attempt: continues with the next server, or ends the session with a status.
    fn go_on(
        &self,
        s: &mut StreamSession,
        lease: &mut Lease,
        others: &mut Others,
        stop: Stop,
    ) -> Result<(), u16> {
        s.exchanges.over();
        match stop {
            Stop::Status(status) => Err(status),
            Stop::Next if others.may_go_on(lease, s, &self.conf) => Ok(()),
            Stop::Next => Err(status::BAD_GATEWAY),
        }
    }

    /// Creates the choice of servers for a session.
    async fn choose(&self, s: &mut StreamSession) -> Result<Choice, u16> {
        let mut choice = match &self.to {
            Destination::Group(group, host) => self.choice(s, group, host.clone()),
            Destination::Template(template, all) => {
                rarely(self.choose_by(s, template, all)).await?
            }
        };
        if !self.conf.bind_dynamic && self.conf.socket.varies() {
            choice.others.bound = Some(Box::new(self.conf.socket.evaluated(s).0));
        }
        Ok(choice)
    }

    /// The choice of servers in a group.
    fn choice(&self, s: &mut StreamSession, group: &Group, server_name: Bytes) -> Choice {
        let picker = AnyPicker::begin(group.balancer.as_ref(), s);
        Choice::new(picker, (group.name.clone(), server_name), &self.conf)
    }

    /// The choice of servers for an address with variables, which may have to be resolved.
    async fn choose_by(
        &self,
        s: &mut StreamSession,
        template: &Template,
        all: &Upstreams,
    ) -> Result<Choice, u16> {
        let text = template.eval(s);
        let url = url::parse(&text, 0, false).map_err(|e| {
            s.log(Level::Error, format_args!("{e} in upstream \"{}\"", lossy(&text)));
            status::INTERNAL
        })?;
        let target = all.target(s, &url).map_err(|NoPort| status::INTERNAL)?;
        let server_name = url.host;
        let (name, specs) = match target {
            Target::Group(group) => return Ok(self.choice(s, &group, server_name)),
            Target::Addr(addr) => (Bytes::from(addr.to_string()), vec![ServerSpec::new(addr)]),
            Target::Name(host, port) => {
                let lookup = s.server.confs.get::<Resolving>().cloned().unwrap_or_default();
                let found = lookup.lookup().addresses(s, &host, port).await;
                (host, found.ok_or(status::INTERNAL)?)
            }
        };
        let servers = Servers::own(name.clone(), &specs);
        let picker = AnyPicker::begin(&RoundRobin(servers), s);
        Ok(Choice::new(picker, (name, server_name), &self.conf))
    }
}

/// The filter of a session, if its server has one.
pub(crate) fn filter_of(s: &mut StreamSession) -> Option<Box<dyn BytesFilter>> {
    s.server.pipeline.filter.as_ref()?;
    let server = s.server.clone();
    server.pipeline.filter.as_ref().map(|make| make(s))
}

/// Ends the last attempt of a session.
fn finish(s: &mut StreamSession, lease: &mut Lease, outcome: ServerOutcome) {
    s.exchanges.over();
    if let Some(ms) = s.exchanges.first_byte_ms() {
        lease.first_byte(ms);
    }
    lease.done(outcome);
}

impl Choice {
    fn new(picker: AnyPicker, (name, host): (Bytes, Bytes), conf: &ProxyConf) -> Choice {
        let mut tries = picker.tries();
        if conf.next_upstream_tries > 0 {
            tries = tries.min(u32::try_from(conf.next_upstream_tries).unwrap_or(u32::MAX));
        }
        let others = Others { name, host, bound: None, tries, start_ms: now_ms() };
        Choice { lease: Lease::new(picker, None), others }
    }
}

impl Others {
    /// The next server; `None`, which is logged, if none is available.
    fn take_next(&self, lease: &mut Lease, s: &mut StreamSession) -> Option<Rc<Peer>> {
        let peer = lease.take_next(s);
        s.exchanges.begin(peer.clone(), &self.name);
        if peer.is_none() {
            s.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
        peer
    }

    /// Whether to try another server after a failure.
    fn may_go_on(&mut self, lease: &mut Lease, s: &StreamSession, conf: &ProxyConf) -> bool {
        let is_single = lease.is_single();
        if lease.done(ServerOutcome::Failed) {
            let m = "upstream server temporarily disabled while connecting to upstream";
            s.log(Level::Warn, format_args!("{m}"));
        }
        let timeout = conf.next_upstream_timeout;
        self.tries = if is_single { 0 } else { self.tries.saturating_sub(1) };
        let in_time = timeout == 0 || now_ms().saturating_sub(self.start_ms) < timeout;
        self.tries > 0 && conf.next_upstream && in_time
    }
}
