//! `rewrite`: `rewrite`, `return`, `set`, `if`, `break`.
//!
//! The directives of a server or location are one program, in the order in which they stand there;
//! an `if` block's are part of it, skipped where the condition fails. What else stands in an `if`
//! block of a location is configuration, and the request enters it, for what comes after the
//! program.

mod condition;
mod replace;
mod run;
mod value;

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::{Template, VarId};
use conf::{ConfError, Node, value as conf_value};
use http::core_directives::{REWRITE, directive};
use http::cx::{Cx, LocationCx};
use http::module::{Conf, LocView, Module, Pipeline};
use http::server::location::LocKind;

use condition::Test;
use replace::Rewrite;
use value::Value;

/// The module's table.
pub static MODULE: Module = Module::of::<RewriteConf>("rewrite", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "rewrite",
        REWRITE,
        Args::T23,
        "",
        "Rewrites or redirects URIs that match a regular expression.",
        |cx, n| {
            let rewrite = Rewrite::parse(cx, n)?;
            push(cx, Op::Rewrite(Box::new(rewrite)))
        },
    ),
    directive(
        "return",
        REWRITE,
        Args::T12,
        "",
        "Ends processing with a status, a text or a redirect.",
        return_,
    ),
    directive(
        "break",
        REWRITE,
        Args::NONE,
        "",
        "Stops processing the rewrite directives of this server or location.",
        |cx, _| push(cx, Op::Break),
    ),
    directive(
        "if",
        C::SERVER.or(C::LOCATION),
        Args::BLOCK.or(Args::ONE_MORE),
        "",
        "Directives that apply to requests for which a condition holds.",
        if_,
    ),
    directive("set", REWRITE, Args::T2, "", "Sets a variable.", set),
    directive(
        "rewrite_log",
        REWRITE.or(C::HTTP),
        Args::FLAG,
        "off",
        "Logs rewrite processing to the error log, at level notice.",
        |cx, n| conf_value::set_flag(&mut cx.loc::<RewriteConf>().log, n),
    ),
];

/// One instruction.
enum Op {
    Set { var: VarId, value: Value },
    If(Box<If>),
    Rewrite(Box<Rewrite>),
    Return(Return),
    Break,
}

struct If {
    test: Test,
    /// The number of the block's instructions.
    len: usize,
    /// The block's other settings, by the number that the location knows them by.
    settings: Option<usize>,
    /// No request gets past the block.
    ends: bool,
}

enum Return {
    /// A status alone: answered by `error_page` or a built-in page. 408, 444 and 499 close the
    /// connection.
    Status(u16),
    /// 301, 302, 303, 307, 308.
    Redirect(u16, Template),
    Text(u16, Template),
}

#[derive(Default)]
struct RewriteConf {
    /// This level's own program, because programs are not inherited.
    program: Vec<Op>,
    log: Option<bool>,
}

impl Conf for RewriteConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        engine::inherit!(self, prev: log);
        Ok(())
    }
}

fn push(cx: &mut Cx, op: Op) -> Result<(), ConfError> {
    cx.loc::<RewriteConf>().program.push(op);
    Ok(())
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let var = cx.vars.define_stored(&n.args[0])?;
    let value = Value::parse(cx, &n.args[1])?;
    push(cx, Op::Set { var, value })
}

/// Says whether a replacement is an address, to which `rewrite` and `return` redirect.
fn is_address(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|s| text.starts_with(s))
}

fn return_(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let first = &n.args[0];
    let status = base::ascii::parse_u64(first.bytes()).filter(|s| *s <= 999);
    let (status, text) = match (status, n.args.get(1)) {
        (Some(s), text) => (s as u16, text),
        (None, None) if is_address(first.bytes()) => (302, Some(first)),
        _ => {
            let m = format!("invalid return code \"{}\"", first.lossy());
            return Err(ConfError::at(first, m));
        }
    };
    let what = match text {
        None if status >= 400 => Return::Status(status),
        None => Return::of(status, Template::constant(Bytes::new())),
        // An empty text is none.
        Some(w) if w.bytes().is_empty() && status >= 400 => Return::Status(status),
        Some(w) => Return::of(status, cx.template(w)?),
    };
    push(cx, Op::Return(what))
}

impl Return {
    fn of(status: u16, text: Template) -> Return {
        match status {
            301 | 302 | 303 | 307 | 308 => Return::Redirect(status, text),
            _ => Return::Text(status, text),
        }
    }
}

fn if_(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let in_location = cx.here() == C::LOCATION;
    let test = Test::parse(cx, n)?;
    let (block, settings) = cx.if_block::<RewriteConf>(n)?;
    // A server's settings are those of the location, which is not known yet.
    let settings = settings.filter(|_| in_location);
    let ends = block.program.iter().any(|op| match op {
        Op::Return(_) => true,
        Op::Rewrite(rewrite) => rewrite.always_ends(),
        _ => false,
    });
    let new = If { test, len: block.program.len(), settings, ends };
    if let Some(index) = settings {
        if ends {
            cx.if_ends(index);
        }
        let outer = &cx.loc::<RewriteConf>().program;
        warn_of_lost(n, &new, &block.program, outer);
    }
    let program = &mut cx.loc::<RewriteConf>().program;
    program.push(Op::If(Box::new(new)));
    program.extend(block.program);
    Ok(())
}

/// Tells of settings in `if` blocks that certainly, or as soon as two conditions hold, do nothing.
fn warn_of_lost(n: &Node, new: &If, inner: &[Op], outer: &[Op]) {
    let leaves = |op: &Op| matches!(op, Op::Rewrite(rewrite) if rewrite.always_leaves());
    if inner.iter().any(leaves) {
        let m = "settings in this \"if\" are lost: its \"rewrite\" always leaves the location";
        conf::warn(&n.name, m);
    }
    let rivals = |op: &Op| match op {
        Op::If(old) => old.settings.is_some() && !old.ends && !old.test.excludes(&new.test),
        _ => false,
    };
    if !new.ends && outer.iter().any(rivals) {
        let m = "if this \"if\" and an earlier one both match, only the settings of this one apply";
        conf::warn(&n.name, m);
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<RewriteConf>();
    if !l.set_here::<RewriteConf>() || conf.program.is_empty() {
        return Ok(());
    }
    let phase = match l.info.kind {
        LocKind::Server => &mut p.server_rewrite,
        // Their programs are the location's.
        LocKind::If | LocKind::LimitExcept => return Ok(()),
        _ => &mut p.rewrite,
    };
    match &conf.program[..] {
        [Op::Return(Return::Text(status, text)), ..] if text.as_const().is_some() => {
            let (status, text) = (*status, text.as_const().cloned().unwrap_or_default());
            phase.push(Box::new(run::constant(status, text)));
        }
        _ => phase.push(Box::new(run::Program { conf: Rc::clone(&conf) })),
    }
    Ok(())
}
