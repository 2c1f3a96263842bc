//! Setters of the directives of `upstream` blocks, for the tables of all engines. Those of
//! balancing methods stand with their method in [`crate::balance`].

use std::rc::{Rc, Weak};

use conf::table::{Args, Contexts, Directive, directive};
use conf::value::{set_msec, set_num};
use conf::{ConfError, Node};
use engine::metrics::Kind;
use engine::zones::{self, BadSize};
use engine::{Cx, Session};

use crate::block::Block;
use crate::group::Group;
use crate::resolver::{self, Resolving};
use crate::upstreams::Upstreams;

/// The groups of an engine, those of `upstream` blocks first, for those who show or change them.
pub struct AllGroups {
    /// The kind of counters of their servers.
    pub kind: Kind,
    /// The groups; weak, as their servers hold the counters that this is a part of.
    groups: Vec<Weak<Group>>,
}

impl AllGroups {
    /// The groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = Rc<Group>> {
        self.groups.iter().filter_map(Weak::upgrade)
    }
}

/// The user of the zones among all modules.
const ZONE_USER: &str = "upstream";

/// The block and the directives in it that every engine has, for its table.
pub const fn directives<S: Session>() -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "upstream",
            S::BLOCK,
            Args::BLOCK.or(Args::T1),
            "",
            "Defines a group of upstream servers.",
            upstream,
        ),
        directive(
            "server",
            S::UPSTREAM,
            Args::ONE_MORE,
            "",
            "A server of the group, with its weight, limits and flags.",
            server,
        ),
        directive(
            "zone",
            S::UPSTREAM,
            Args::T12,
            "",
            "The shared memory zone with the state of the group's servers, for all workers.",
            zone,
        ),
        directive(
            "resolver",
            S::UPSTREAM,
            Args::ONE_MORE,
            "",
            "The DNS servers for upstream server names with `resolve`.",
            resolver,
        ),
        directive(
            "resolver_timeout",
            S::UPSTREAM,
            Args::T1,
            "30s",
            "The timeout for resolving a name.",
            resolver_timeout,
        ),
    ]
}

/// `upstream NAME { … }`
///
/// # Errors
/// `duplicate upstream`, and what is wrong inside.
pub fn upstream<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?.clone();
    cx.main::<Upstreams>().begin_block(&name)?;
    let mut level = cx.block(n, S::UPSTREAM, S::Block::default())?;
    let block = std::mem::take(level.get::<Block>());
    cx.main::<Upstreams>().end_block(&n.name, name, block)
}

/// Makes the groups, once all directives were applied.
///
/// # Errors
/// The first error of a block, a reference or a zone; the system's.
pub fn make_groups<S: Session>(cx: &mut Cx<S>) -> Result<(), ConfError> {
    let around = cx.main::<Resolving>().lookup();
    let mut all = std::mem::take(cx.main::<Upstreams>());
    let kind = if S::BLOCK == Contexts::HTTP { Kind::HttpPeer } else { Kind::StreamPeer };
    all.make_groups(&cx.env, &around, kind)?;
    let groups = all.all().map(Rc::downgrade).collect();
    cx.env.metrics.add_part(Rc::new(AllGroups { kind, groups }));
    *cx.main::<Upstreams>() = all;
    Ok(())
}

/// `server ADDRESS [PARAMETER …]`
///
/// # Errors
/// The first error of the line.
pub fn server<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    cx.loc::<Block>().add_server(n)
}

/// `zone NAME [SIZE]`
///
/// # Errors
/// `invalid zone name`, `invalid zone size`, `is too small`; the zone is declared otherwise.
pub fn zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?;
    if name.bytes().is_empty() {
        return Err(ConfError::at(name, format!("invalid zone name \"{}\"", name.lossy())));
    }
    let bytes = match n.args.get(1) {
        None => None,
        Some(w) => Some(zones::size(w.bytes()).map_err(|bad| match bad {
            BadSize::Invalid => ConfError::at(w, format!("invalid zone size \"{}\"", w.lossy())),
            BadSize::TooSmall => {
                ConfError::at(name, format!("zone \"{}\" is too small", name.lossy()))
            }
        })?),
    };
    cx.declare_zone(name, name.bytes(), bytes, ZONE_USER)?;
    if let Some(bytes) = bytes {
        cx.main::<Upstreams>().set_zone_bytes(name.text.clone(), bytes);
    }
    cx.loc::<Block>().set_zone(name);
    Ok(())
}

/// `resolver ADDRESS …`
///
/// # Errors
/// `is duplicate`, and what is wrong with the parameters.
fn resolver<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().resolver.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let resolver = resolver::parse(cx, n)?;
    cx.loc::<Block>().resolver = Some(resolver);
    Ok(())
}

/// `resolver_timeout TIME`
///
/// # Errors
/// `is duplicate`, `invalid value`.
fn resolver_timeout<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    set_msec(&mut cx.loc::<Block>().resolver_timeout, n)
}

/// `state FILE`
///
/// # Errors
/// `is duplicate`, `is incompatible with`, and what is wrong with the file.
pub fn state<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let path = cx.env.conf_path(n.arg(0)?.bytes());
    cx.loc::<Block>().set_state(n, path)
}

/// `queue NUMBER [timeout=TIME]`
///
/// # Errors
/// `is duplicate`, `invalid value`, `invalid parameter`.
pub fn queue<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    cx.loc::<Block>().set_queue(n)
}

/// `ntlm`
///
/// # Errors
/// `is duplicate`.
pub fn ntlm<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    match std::mem::replace(&mut cx.loc::<Block>().ntlm, true) {
        true => Err(ConfError::directive(n, "is duplicate")),
        false => Ok(()),
    }
}

/// `keepalive NUMBER [local|shared]`
///
/// # Errors
/// `is duplicate`, `invalid value`, `invalid parameter`.
pub fn keepalive<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    cx.loc::<Block>().set_keepalive(n)
}

/// `keepalive_requests NUMBER`
///
/// # Errors
/// `is duplicate`, `invalid number`.
pub fn keepalive_requests<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    set_num(&mut cx.loc::<Block>().keepalive_requests, n)
}

/// `keepalive_time TIME`
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub fn keepalive_time<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    set_msec(&mut cx.loc::<Block>().keepalive_time, n)
}

/// `keepalive_timeout TIME`
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub fn keepalive_timeout<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    set_msec(&mut cx.loc::<Block>().keepalive_timeout, n)
}

/// `keepalive_streams NUMBER`
///
/// # Errors
/// `is duplicate`, `invalid number`, zero.
pub fn keepalive_streams<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let block = cx.loc::<Block>();
    set_num(&mut block.keepalive_streams, n)?;
    match block.keepalive_streams {
        Some(0) => Err(ConfError::at(n.arg(0)?, "value must be greater than 0")),
        _ => Ok(()),
    }
}
