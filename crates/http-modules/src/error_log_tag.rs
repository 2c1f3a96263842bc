//! `error_log_tag`: fields of the operator's own in the error log's lines about requests.
//!
//! A line is written in the middle of anything, where variables cannot be computed. So tags are
//! computed ahead: when the server is known, and again in the location, after rewriting.

use std::rc::Rc;

use base::log::{MEMBERS, Tags};
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module {
    name: "error_log_tag",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<TagConf>(Scope::Location), ConfType::of::<Used>(Scope::Main)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "error_log_tag",
    HSL,
    Args::T2,
    "",
    "Adds a field to the error log's lines about requests: a name, and a value with variables.",
    set,
)];

/// A name and its value.
type Tag = (Rc<str>, Template);

engine::settings! {
    /// The tags of a level: a level with any replaces those of outer levels.
    struct TagConf(Option<Rc<Vec<Tag>>>);
}

/// Whether some level has tags. Then each level sets its own, in the place of those of the location
/// that a request came from.
#[derive(Default)]
struct Used(bool);

impl Conf for Used {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let name = word.lossy().into_owned();
    if name.is_empty() {
        return Err(ConfError::at(word, "the name of a tag is empty"));
    }
    if MEMBERS.contains(&&*name) {
        return Err(ConfError::at(word, format!("\"{name}\" is a field of every log line")));
    }
    let value = cx.template(n.arg(1)?)?;
    cx.main::<Used>().0 = true;
    let list = cx.loc::<TagConf>().0.get_or_insert_default();
    if list.iter().any(|(known, _)| **known == *name) {
        return Err(ConfError::at(word, format!("duplicate tag \"{name}\"")));
    }
    // The list is not shared before the levels are merged.
    let list = Rc::get_mut(list).ok_or_else(|| ConfError::directive(n, "is late"))?;
    list.push((name.into(), value));
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.conf::<Used>().0 {
        let tags = l.conf::<TagConf>().0.clone().unwrap_or_default();
        let again = tags.clone();
        p.server_rewrite.push(Box::new(move |r: &mut Request| compute(r, &tags)));
        p.preaccess.push(Box::new(move |r: &mut Request| compute(r, &again)));
    }
    Ok(())
}

/// Computes the tags of a client's request, which its subrequests share.
fn compute(r: &mut Request, tags: &[Tag]) -> Verdict {
    if !r.is_subrequest() {
        let value = |(name, value): &Tag| (name.clone(), r.eval(value).to_vec());
        let computed = tags.iter().map(value).collect();
        r.shared::<Tags>().set(computed);
    }
    Verdict::Next
}
