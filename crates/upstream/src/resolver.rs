//! `resolver`: the name servers of a level, and the counters of `status_zone=`.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts, Directive, directive};
use conf::value::set_msec;
use conf::{ConfError, Node, Word};
use engine::settings::Conf;
use engine::{Cx, Session};
use net::resolver::{Config, Resolver, Status};

use crate::names::Lookup;

engine::settings! {
    /// The name servers that hold in a location.
    #[derive(Clone)]
    pub struct Resolving {
        /// `resolver`
        pub resolver: Option<Rc<Resolver>>,
        timeout_ms: Option<u64>,
    }
}

/// The default of `resolver_timeout`.
const TIMEOUT_MS: u64 = 30_000;

impl Resolving {
    /// The means to look names up.
    pub fn lookup(&self) -> Lookup {
        let timeout_ms = self.timeout_ms.unwrap_or(TIMEOUT_MS);
        Lookup { resolver: self.resolver.clone(), timeout_ms }
    }
}

/// The counters of `status_zone=`, by name.
#[derive(Default)]
pub struct Statuses(pub Vec<(Bytes, Rc<Status>)>);

impl Conf for Statuses {}

/// A resolver's counters, for those who show them.
pub struct NamedStatus {
    /// The name in `status_zone=`.
    pub name: Bytes,
    /// The counters.
    pub status: Rc<Status>,
}

/// `resolver` and `resolver_timeout` outside of `upstream` blocks, for an engine's table.
pub const fn directives<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 2] {
    [
        directive(
            "resolver",
            contexts,
            Args::ONE_MORE,
            "",
            "The DNS servers for names that are resolved at run time.",
            set_resolver,
        ),
        directive(
            "resolver_timeout",
            contexts,
            Args::T1,
            "30s",
            "The timeout for resolving a name.",
            set_resolver_timeout,
        ),
    ]
}

/// `resolver`
///
/// # Errors
/// `is duplicate`, and what is wrong with the parameters.
fn set_resolver<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Resolving>().resolver.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let resolver = parse(cx, n)?;
    cx.loc::<Resolving>().resolver = Some(resolver);
    Ok(())
}

/// `resolver_timeout`
///
/// # Errors
/// `is duplicate`, `invalid value`.
fn set_resolver_timeout<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    set_msec(&mut cx.loc::<Resolving>().timeout_ms, n)
}

/// The parameters of `resolver`.
pub(crate) fn parse<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<Rc<Resolver>, ConfError> {
    let mut status = None;
    let mut words = Vec::new();
    for w in &n.args {
        match w.bytes().strip_prefix(b"status_zone=") {
            Some(b"") => {
                return Err(ConfError::at(w, format!("invalid parameter: {}", w.lossy())));
            }
            Some(name) => status = Some(counters(cx, w, name)?),
            None => words.push(w),
        }
    }
    let config = Config::parse(words.iter().map(|w| w.bytes())).map_err(|(i, e)| {
        let at = words.get(i).copied().unwrap_or(&n.name);
        ConfError::at(at, e.0)
    })?;
    Ok(Resolver::new(config, status))
}

fn counters<S: Session>(cx: &mut Cx<S>, w: &Word, name: &[u8]) -> Result<Rc<Status>, ConfError> {
    cx.declare_zone(w, name, Some(1), "resolver")?;
    let known = |s: &&(Bytes, Rc<Status>)| s.0 == name;
    if let Some((_, status)) = cx.main::<Statuses>().0.iter().find(known) {
        return Ok(status.clone());
    }
    let status = match cx.env.zones.kept::<Status>(name) {
        Some(kept) => kept,
        None => Rc::new(Status::new().map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(w, format!("mmap(MAP_ANON|MAP_SHARED) failed {e}"))
        })?),
    };
    cx.env.zones.put(name, status.clone());
    let name = Bytes::copy_from_slice(name);
    let part = NamedStatus { name: name.clone(), status: status.clone() };
    cx.env.metrics.add_part(Rc::new(part));
    cx.main::<Statuses>().0.push((name, status.clone()));
    Ok(status)
}
