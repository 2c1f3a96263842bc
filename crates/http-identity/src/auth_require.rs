//! `auth_require`: access where texts, mostly variables of other access modules, are set.

use std::rc::Rc;

use base::log::Level;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module::of::<RequireConf>("auth_require", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "auth_require",
    HSL.or(C::LIMIT_EXCEPT),
    Args::ONE_MORE,
    "off",
    "Denies access unless all values are neither empty nor \"0\": $VALUE … [error=STATUS] | off.",
    set,
)];

/// One `auth_require`.
struct Rule {
    values: Vec<Template>,
    status: u16,
}

engine::settings! {
    struct RequireConf {
        /// Empty with `off`.
        rules: Option<Rc<Vec<Rc<Rule>>>>,
    }
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if let [word] = &n.args[..]
        && word.bytes() == b"off"
    {
        if cx.loc::<RequireConf>().rules.replace(Rc::default()).is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        return Ok(());
    }
    let (mut values, mut status) = (Vec::new(), None);
    for word in &n.args {
        let Some(text) = word.bytes().strip_prefix(b"error=") else {
            values.push(cx.template(word)?);
            continue;
        };
        let code = base::ascii::parse_u64(text).filter(|code| (400..600).contains(code));
        let code = code.ok_or_else(|| {
            ConfError::at(word, format!("invalid error code \"{}\"", word.lossy()))
        })?;
        if status.replace(code as u16).is_some() {
            return Err(ConfError::at(word, "duplicate parameter \"error\""));
        }
    }
    if values.is_empty() {
        return Err(ConfError::directive(n, "has no values"));
    }
    let rules = &mut cx.loc::<RequireConf>().rules;
    if rules.as_ref().is_some_and(|rules| rules.is_empty()) {
        return Err(ConfError::directive(n, "cannot stand beside \"auth_require off\""));
    }
    let rule = Rc::new(Rule { values, status: status.unwrap_or(403) });
    Rc::make_mut(rules.get_or_insert_default()).push(rule);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<RequireConf>();
    if let Some(rules) = conf.rules.clone().filter(|rules| !rules.is_empty()) {
        p.access.push(Box::new(move |r: &mut Request| check(r, &rules)));
    }
    Ok(())
}

fn check(r: &mut Request, rules: &[Rc<Rule>]) -> Verdict {
    for rule in rules {
        let is_set = |value: &Template, r: &mut Request| {
            let value = value.eval(r);
            !value.is_empty() && value[..] != b"0"[..]
        };
        if !rule.values.iter().all(|value| is_set(value, r)) {
            r.log(Level::Error, format_args!("access forbidden by \"auth_require\""));
            return Verdict::Status(rule.status);
        }
    }
    Verdict::Ok
}
