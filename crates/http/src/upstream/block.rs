//! What stands in an `upstream` block, and how it is read.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::{self, set_msec, set_num};
use conf::{ConfError, Node, Word};
use net::resolver::Resolver;

use super::balance::Balancer;
use super::lease::Affinity;
use super::peer::{Spec, down};
use super::servers::Servers;
use super::url;
use crate::core_directives::directive;
use crate::cx::Cx;
use crate::module::Conf;
use crate::upstream::Upstreams;

pub(super) static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "upstream",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "A group of servers that requests are passed to by its name.",
        super::group::upstream,
    ),
    directive(
        "server",
        C::UPSTREAM,
        Args::ONE_MORE,
        "",
        "A server of the group, with its weight and limits.",
        server,
    ),
    directive(
        "zone",
        C::UPSTREAM,
        Args::T12,
        "",
        "The memory in which all workers share what they know of the group's servers.",
        super::zone::directive,
    ),
    directive(
        "resolver",
        C::UPSTREAM,
        Args::ONE_MORE,
        "",
        "The name servers for names of servers that are looked up at run time.",
        |cx, n| {
            if cx.loc::<Block>().resolver.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            let resolver = super::resolving::parse(cx, n)?;
            cx.loc::<Block>().resolver = Some(resolver);
            Ok(())
        },
    ),
    directive(
        "resolver_timeout",
        C::UPSTREAM,
        Args::T1,
        "30s",
        "How long looking up a name may take.",
        |cx, n| set_msec(&mut cx.loc::<Block>().resolver_timeout, n),
    ),
    directive(
        "state",
        C::UPSTREAM,
        Args::T1,
        "",
        "The file that keeps the servers of the group as the API changed them, for the next start.",
        super::saved::directive,
    ),
    directive(
        "queue",
        C::UPSTREAM,
        Args::T12,
        "",
        "How many requests may wait until a server has room for them, and how long.",
        queue,
    ),
    directive(
        "keepalive",
        C::UPSTREAM,
        Args::T12,
        "32 local",
        "How many idle connections a worker keeps to servers of the group; 0: none, shared: \
         for all workers.",
        keepalive,
    ),
    directive(
        "keepalive_requests",
        C::UPSTREAM,
        Args::T1,
        "1000",
        "How many requests a connection to a server may carry.",
        |cx, n| set_num(&mut cx.loc::<Block>().requests, n),
    ),
    directive(
        "keepalive_time",
        C::UPSTREAM,
        Args::T1,
        "1h",
        "How old a connection to a server may become.",
        |cx, n| set_msec(&mut cx.loc::<Block>().time, n),
    ),
    directive(
        "keepalive_timeout",
        C::UPSTREAM,
        Args::T1,
        "60s",
        "How long an idle connection to a server is kept.",
        |cx, n| set_msec(&mut cx.loc::<Block>().timeout, n),
    ),
];

/// One `server` line.
pub(crate) struct Line {
    /// One for each address; none where the name is looked up at run time.
    pub specs: Vec<Spec>,
    /// What is looked up at run time.
    pub template: Option<Template>,
}

/// A `server … resolve` line: what servers that the name leads to are like.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The name.
    pub host: Bytes,
    /// `service=`; empty where addresses are looked up.
    pub service: Bytes,
    /// The port, but for services.
    pub port: u16,
    /// A weight was written.
    pub weighted: bool,
    /// Settings; the address is of no meaning.
    pub spec: Spec,
}

/// Who may use an idle connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The location that made it, in the same worker (`local`).
    Location,
    /// The worker that made it.
    Worker,
    /// Any worker (`shared`).
    All,
}

/// Makes a method's balancer over the servers of the group.
pub type Make = Box<dyn FnOnce(&Rc<Servers>) -> Box<dyn Balancer>>;

/// Makes what binds clients to the servers of the group.
pub type Bind = Box<dyn FnOnce(&Rc<Servers>) -> Rc<dyn Affinity>>;

/// What an `upstream` block sets.
#[derive(Default)]
pub struct Block {
    pub(crate) lines: Vec<Line>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) zone: Option<(Bytes, Word)>,
    pub(crate) resolver: Option<Rc<Resolver>>,
    pub(crate) resolver_timeout: Option<u64>,
    pub(crate) queue: Option<(usize, u64)>,
    pub(crate) keepalive: Option<(usize, Kept)>,
    pub(crate) requests: Option<u64>,
    pub(crate) time: Option<u64>,
    pub(crate) timeout: Option<u64>,
    pub(crate) method: Option<Make>,
    pub(crate) affinity: Option<Bind>,
    pub(crate) no_backup: bool,
}

impl Conf for Block {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

impl Block {
    /// Chooses the balancing method. `backup` says whether it knows backup servers, and weights
    /// that grow slowly.
    pub fn set_method(&mut self, n: &Node, backup: bool, make: Make) {
        if self.method.replace(make).is_some() {
            conf::warn(&n.name, "load balancing method redefined");
        }
        self.no_backup = !backup;
    }

    /// Binds clients to servers.
    pub fn set_affinity(&mut self, bind: Bind) {
        self.affinity = Some(bind);
    }

    /// Whether clients are bound to servers already.
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some()
    }
}

impl Upstreams {
    /// The name of the `upstream` block that is being read.
    pub fn block_name(&self) -> Bytes {
        self.reading.clone()
    }
}

pub(super) fn server(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    if cx.loc::<Block>().state.is_some() {
        return Err(ConfError::directive(n, "is incompatible with \"state\""));
    }
    let no_backup = cx.loc::<Block>().no_backup;
    let mut line = Reading::default();
    for w in &n.args[1..] {
        line.parameter(w, no_backup)?;
    }
    let in_upstream =
        |e: &str| ConfError::at(word, format!("{e} in upstream \"{}\"", word.lossy()));
    let url = url::parse(&word.text, 80, false).map_err(in_upstream)?;
    if !line.service.is_empty() {
        line.check_service(word, &url)?;
    }
    let spec = |addr| Spec { server: word.text.clone(), ..line.spec(addr) };
    let line = match url.addr {
        None if line.resolve => {
            let template = Template {
                host: url.host.clone(),
                service: line.service.clone(),
                port: url.port,
                weighted: line.weight.unwrap_or(1) != 1,
                spec: spec(super::resolving::nowhere(url.port)),
            };
            Line { specs: Vec::new(), template: Some(template) }
        }
        Some(addr) => Line { specs: vec![spec(addr)], template: None },
        None => {
            let addrs = url::resolve(&url.host, url.port);
            if addrs.is_empty() {
                return Err(in_upstream("host not found"));
            }
            Line { specs: addrs.into_iter().map(spec).collect(), template: None }
        }
    };
    cx.loc::<Block>().lines.push(line);
    Ok(())
}

/// The parameters of a `server` line.
#[derive(Default)]
struct Reading {
    weight: Option<i64>,
    max_conns: u64,
    max_fails: Option<u64>,
    fail_timeout: Option<i64>,
    slow_start: u64,
    backup: bool,
    down: u64,
    route: Bytes,
    resolve: bool,
    service: Bytes,
}

/// The longest route, in bytes: as long as the hash that stands for it where there is none.
pub const ROUTE_MAX: usize = 32;

impl Reading {
    fn spec(&self, addr: os::SockAddr) -> Spec {
        Spec {
            weight: self.weight.unwrap_or(1),
            max_conns: self.max_conns,
            max_fails: self.max_fails.unwrap_or(1),
            fail_timeout: self.fail_timeout.unwrap_or(10),
            slow_start: self.slow_start,
            backup: self.backup,
            down: self.down,
            route: self.route.clone(),
            ..Spec::new(addr)
        }
    }

    fn check_service(&self, word: &Word, url: &url::Url) -> Result<(), ConfError> {
        let why = match (self.resolve, url.no_port, &url.addr) {
            (false, ..) => "requires \"resolve\" parameter",
            (_, false, _) => "may not have port",
            (_, _, Some(_)) => "requires domain name",
            _ => return Ok(()),
        };
        let m = format!("service upstream \"{}\" {why}", word.lossy());
        Err(ConfError::at(word, m))
    }

    fn parameter(&mut self, w: &Word, no_backup: bool) -> Result<(), ConfError> {
        let invalid = || ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()));
        let text = w.bytes();
        let (name, value) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        let number = |v: &[u8]| {
            let n = base::ascii::parse_u64(v).filter(|n| *n <= u32::MAX.into());
            n.ok_or_else(invalid)
        };
        match (name, value) {
            (b"backup", None) | (b"slow_start", Some(_)) if no_backup => {
                let m = "balancing method does not support parameter";
                return Err(ConfError::at(w, format!("{m} \"{}\"", w.lossy())));
            }
            (b"weight", Some(v)) => match number(v)? {
                0 => return Err(invalid()),
                n => self.weight = Some(n as i64),
            },
            (b"max_conns", Some(v)) => self.max_conns = number(v)?,
            (b"max_fails", Some(v)) => self.max_fails = Some(number(v)?),
            (b"fail_timeout", Some(v)) => {
                self.fail_timeout = Some(value::parse_sec(v).ok_or_else(invalid)? as i64);
            }
            (b"slow_start", Some(v)) => {
                self.slow_start = value::parse_msec(v).ok_or_else(invalid)?;
            }
            (b"backup", None) => self.backup = true,
            (b"down", None) => self.down = down::DOWN,
            (b"drain", None) => self.down = down::DRAINING,
            (b"route", Some(b"")) => return Err(ConfError::at(w, "route is empty")),
            (b"route", Some(v)) if v.len() > ROUTE_MAX => {
                return Err(ConfError::at(w, format!("route is longer than {ROUTE_MAX}")));
            }
            (b"route", Some(v)) => self.route = w.text.slice_ref(v),
            (b"resolve", None) => self.resolve = true,
            (b"service", Some(b"")) => return Err(ConfError::at(w, "service is empty")),
            (b"service", Some(v)) => self.service = w.text.slice_ref(v),
            _ => return Err(invalid()),
        }
        Ok(())
    }
}

fn keepalive(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().keepalive.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let count = count(n, n.arg(0)?)?;
    let kept = match n.args.get(1) {
        None => Kept::Worker,
        Some(w) if w.bytes() == b"local" => Kept::Location,
        Some(w) if w.bytes() == b"shared" => Kept::All,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    cx.loc::<Block>().keepalive = Some((count, kept));
    Ok(())
}

fn count(n: &Node, w: &Word) -> Result<usize, ConfError> {
    let count = base::ascii::parse_u64(w.bytes()).and_then(|n| usize::try_from(n).ok());
    count.ok_or_else(|| {
        let m = format!("invalid value \"{}\" in \"{}\" directive", w.lossy(), n.name.lossy());
        ConfError::at(w, m)
    })
}

/// How long requests wait in a queue where nothing else is said.
const QUEUE_TIMEOUT_MS: u64 = 60_000;

fn queue(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().queue.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let max = count(n, n.arg(0)?)?;
    let timeout_ms = match n.args.get(1) {
        None => QUEUE_TIMEOUT_MS,
        Some(w) => {
            let value = w.bytes().strip_prefix(b"timeout=").and_then(value::parse_msec);
            value.ok_or_else(|| ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy())))?
        }
    };
    cx.loc::<Block>().queue = Some((max, timeout_ms));
    Ok(())
}
