//! The proxy: passes a session's bytes or datagrams to a server.
//!
//! ```text
//!  target ─▶ picker ─▶ server ─▶ connect ─▶ (TLS) ─▶ relay ─▶ end
//!                        ▲            │ failed
//!                        └────────────┘ while others may be tried
//! ```

pub mod conf;
mod connect;
mod datagrams;
pub mod directives;
pub mod exchanges;
mod header;
pub mod health;
mod relay;

use std::rc::Rc;

use ::conf::ConfError;
use ::conf::template::Template;
use base::future::{boxed, rarely};
use base::log::{Level, lossy};
use base::time::now_ms;
use bytes::Bytes;
use engine::Client;
use event::Fd;
use upstream::balance::{AnyPicker, RoundRobin, ServerOutcome};
use upstream::lease::Lease;
use upstream::peer::{Peer, ServerSpec};
use upstream::resolver::Resolving;
use upstream::servers::Servers;
use upstream::{Group, NoPort, Target, Upstreams, url};

use self::conf::{Pass, ProxyConf};
use self::datagrams::{Ended, Exchange, Pause};
use crate::module::{Content, Pipeline, Served, View};
use crate::phases::status;
use crate::session::StreamSession;

/// The proxy of a server.
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
    p.content = Some(Box::new(Proxy { conf, to }));
    Ok(())
}

impl Content for Proxy {
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a> {
        match s.is_udp() {
            false => boxed(|| self.run(s)),
            true => boxed(|| self.run_udp(s)),
        }
    }
}

/// The servers of a session, and the tries that are left.
struct Choice {
    lease: Lease,
    /// None once a server was found.
    others: Option<Box<Others>>,
}

/// What choosing another server takes.
#[derive(Default)]
struct Others {
    /// The name that logs show while no server is chosen.
    name: Bytes,
    /// The name of servers under TLS.
    host: Bytes,
    tries: u32,
    start_ms: u64,
}

/// A session that has its server.
struct Connected {
    server: relay::Server,
    lease: Lease,
}

/// The reason why an attempt failed.
enum Stop {
    /// Another server may be tried.
    Next,
    /// The session ends with this status.
    Status(u16),
}

impl Proxy {
    /// Serves a session over TCP; the future lasts as long, and has its arguments once.
    fn run<'a>(&'a self, s: &'a mut StreamSession) -> impl Future<Output = u16> + use<'a> {
        s.exchanges = Some(Box::default());
        async move {
            let Connected { server, mut lease } = match boxed(|| self.connected(s)).await {
                Ok(connected) => connected,
                Err(status) => return status,
            };
            let end = relay::run(s, &self.conf, server).await;
            finish(s, &mut lease, end);
            status::OK
        }
    }

    /// A connection to a server.
    async fn connected(&self, s: &mut StreamSession) -> Result<Connected, u16> {
        let mut choice = self.choose(s).await?;
        loop {
            let stop = match choice.take_next(s) {
                None => Stop::Status(status::BAD_GATEWAY),
                Some(peer) => match self.connect(s, &peer, choice.host()).await {
                    Ok(server) => {
                        choice.lease.connected();
                        return Ok(Connected { server, lease: choice.lease });
                    }
                    Err(stop) => stop,
                },
            };
            self.go_on(s, &mut choice, stop)?;
        }
    }

    /// Passes datagrams on, to the next server where one is away; as [`Proxy::run`].
    fn run_udp<'a>(&'a self, s: &'a mut StreamSession) -> impl Future<Output = u16> + use<'a> {
        s.exchanges = Some(Box::default());
        async move {
            let mut choice = match self.choose(s).await {
                Ok(choice) => choice,
                Err(status) => return status,
            };
            let Some(mut x) = Exchange::new(s, &self.conf) else { return status::INTERNAL };
            loop {
                // A value that is matched on lives on in the future as long as its arms wait.
                let server = match self.next_udp(x.s, &mut choice) {
                    Ok(server) => server,
                    Err(stop) => match self.go_on(x.s, &mut choice, stop) {
                        Ok(()) => continue,
                        Err(status) => return status,
                    },
                };
                x.begin();
                let ended = loop {
                    let pause = match x.turn(&server) {
                        Ok(pause) => pause,
                        Err(ended) => break ended,
                    };
                    if x.has_answer() {
                        choice.others = None;
                    }
                    match pause {
                        Pause::Busy => event::task::yield_now().await,
                        Pause::Rests => {
                            let woken = x.rest(&server).await;
                            x.woken(&woken);
                        }
                        Pause::Held => boxed(|| x.rest_held(&server)).await,
                    }
                };
                drop(server);
                if let Some(status) = self.after_udp(x.s, &mut choice, ended) {
                    return status;
                }
            }
        }
    }

    /// A socket connected to the next server.
    fn next_udp(&self, s: &mut StreamSession, choice: &mut Choice) -> Result<Fd, Stop> {
        let Some(peer) = choice.take_next(s) else { return Err(Stop::Status(status::BAD_GATEWAY)) };
        // Datagrams may come whenever they like.
        choice.lease.answering();
        self.connect_udp(s, &peer)
    }

    /// The exchange of datagrams with a server is over: the session's status, unless another server
    /// is tried.
    fn after_udp(&self, s: &mut StreamSession, choice: &mut Choice, ended: Ended) -> Option<u16> {
        match ended {
            Ended::Session(status, outcome) => {
                choice.lease.connected();
                finish(s, &mut choice.lease, outcome);
                return Some(status);
            }
            Ended::Away(e) => {
                let e = base::log::os_error(&e);
                s.log(Level::Error, format_args!("recv() failed {e} while proxying connection"));
            }
            Ended::Silent => {}
        }
        self.go_on(s, choice, Stop::Next).err()
    }

    /// An attempt is over: goes on to the next server, or ends the session with a status.
    fn go_on(&self, s: &mut StreamSession, choice: &mut Choice, stop: Stop) -> Result<(), u16> {
        if let Some(x) = &mut s.exchanges {
            x.over();
        }
        match stop {
            Stop::Status(status) => Err(status),
            Stop::Next if choice.may_go_on(s, &self.conf) => Ok(()),
            Stop::Next => Err(status::BAD_GATEWAY),
        }
    }

    /// Begins choosing servers.
    async fn choose(&self, s: &mut StreamSession) -> Result<Choice, u16> {
        match &self.to {
            Destination::Group(group, host) => Ok(self.choice(s, group, host.clone())),
            Destination::Template(template, all) => rarely(self.choose_by(s, template, all)).await,
        }
    }

    /// The choice among the servers of a group.
    fn choice(&self, s: &mut StreamSession, group: &Group, server_name: Bytes) -> Choice {
        let picker = AnyPicker::begin(group.balancer.as_ref(), s);
        Choice::new(picker, (group.name.clone(), server_name), &self.conf)
    }

    /// The same where the destination has variables.
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

/// The last exchange of a session is over.
fn finish(s: &mut StreamSession, lease: &mut Lease, outcome: ServerOutcome) {
    if let Some(x) = &mut s.exchanges {
        x.over();
        if let Some(ms) = x.first_byte_ms() {
            lease.first_byte(ms);
        }
    }
    lease.done(outcome);
}

impl Choice {
    fn new(picker: AnyPicker, (name, host): (Bytes, Bytes), conf: &ProxyConf) -> Choice {
        let mut tries = picker.tries();
        if conf.next_upstream_tries > 0 {
            tries = tries.min(u32::try_from(conf.next_upstream_tries).unwrap_or(u32::MAX));
        }
        let others = Others { name, host, tries, start_ms: now_ms() };
        Choice { lease: Lease::new(picker, None), others: Some(Box::new(others)) }
    }

    /// The name of servers under TLS.
    fn host(&self) -> &[u8] {
        self.others.as_ref().map_or(&[], |others| &others.host)
    }

    /// The next server; none where none is live, which is logged.
    fn take_next(&mut self, s: &mut StreamSession) -> Option<Rc<Peer>> {
        let peer = self.lease.take_next(s);
        let name = match (&peer, &self.others) {
            (Some(peer), _) => peer.name.clone(),
            (None, others) => others.as_ref().map(|o| o.name.clone()).unwrap_or_default(),
        };
        s.exchanges.get_or_insert_default().begin(name, peer.as_ref().and_then(|peer| peer.row()));
        if peer.is_none() {
            s.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
        peer
    }

    /// A server failed: whether another one is tried.
    fn may_go_on(&mut self, s: &StreamSession, conf: &ProxyConf) -> bool {
        let is_single = self.lease.is_single();
        if self.lease.done(ServerOutcome::Failed) {
            let m = "upstream server temporarily disabled while connecting to upstream";
            s.log(Level::Warn, format_args!("{m}"));
        }
        let timeout = conf.next_upstream_timeout;
        let Some(others) = &mut self.others else { return false };
        others.tries = if is_single { 0 } else { others.tries.saturating_sub(1) };
        let in_time = timeout == 0 || now_ms().saturating_sub(others.start_ms) < timeout;
        others.tries > 0 && conf.next_upstream && in_time
    }
}
