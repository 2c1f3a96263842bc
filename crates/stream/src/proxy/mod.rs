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

pub(crate) mod choice;
pub mod conf;
mod connect;
pub(crate) mod datagrams;
pub mod directives;
pub mod exchanges;
pub(crate) mod filtered;
mod filtered_datagrams;
mod header;
pub mod health;
pub(crate) mod moved;
mod offer;
mod relay;
pub(crate) mod resumed;
pub(crate) mod variables;

use std::rc::Rc;

use ::conf::ConfError;
use ::conf::template::Template;
use base::future::{boxed, rarely};
use base::log::{Level, lossy};
use bytes::Bytes;
use engine::Client;
use mem::Chain;
use upstream::balance::{AnyPicker, RoundRobin, ServerOutcome};
use upstream::lease::Lease;
use upstream::peer::ServerSpec;
use upstream::resolver::Resolving;
use upstream::servers::Servers;
use upstream::{Group, NoPort, Target, Upstreams, url};

use self::choice::{Choice, Others};
use self::conf::{Pass, ProxyConf};
use self::resumed::Resumed;
use crate::module::{Content, Pipeline, Served, View};
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
    async fn resume_session(&self, s: &mut StreamSession, resumed: Resumed) -> u16 {
        let Resumed { server: sock, rest, group, place } = resumed;
        s.is_proxied = true;
        let (first, rest) = (Chain::new(), Some(Box::new(rest)));
        let server = relay::Server { sock, first, nodelay: false, rest };
        relay::run(s, &self.conf, &group, server).await;
        s.exchanges.over();
        drop(place);
        status::OK
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

/// Ends the last attempt of a session.
fn finish(s: &mut StreamSession, lease: &mut Lease, outcome: ServerOutcome) {
    s.exchanges.over();
    if let Some(ms) = s.exchanges.first_byte_ms() {
        lease.first_byte(ms);
    }
    lease.done(outcome);
}
