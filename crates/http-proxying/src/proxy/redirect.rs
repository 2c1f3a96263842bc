//! `proxy_redirect`: a server's own addresses in `Location` and `Refresh` become ours. The same
//! rules change attributes of cookies.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node, Word};
use engine::regex::Regex;
use http::cx::Cx;
use http::request::Request;

use super::ProxyConf;
use super::pass::{Fixed, Pass};

/// What a value must be like.
#[derive(Clone)]
enum Pattern {
    /// The value begins with this text.
    Prefix(Template),
    /// The value is this domain; upper case and a dot at the front do not matter.
    Domain(Template),
    /// The value matches this expression.
    Regex(Rc<Regex>),
}

/// One rule.
#[derive(Clone)]
pub(crate) struct Rewrite {
    pattern: Pattern,
    replacement: Template,
}

/// `proxy_redirect` at one level.
#[derive(Clone)]
pub(crate) enum Redirects {
    Off,
    /// Rules, the first that fits is applied.
    List(Rc<Vec<Rewrite>>),
}

impl Redirects {
    pub fn rewrites(&self) -> &[Rewrite] {
        match self {
            Redirects::Off => &[],
            Redirects::List(l) => l,
        }
    }
}

impl Rewrite {
    /// `proxy_redirect default`: the URL of `proxy_pass` becomes the location's path; a URL without
    /// a path, with a `/` appended, becomes `/`.
    pub(super) fn default_of(f: &Fixed) -> Rewrite {
        let (pattern, replacement) = match f.vars.uri.is_empty() {
            false => (f.url.clone(), f.location.clone()),
            true => {
                let mut url = f.url.to_vec();
                url.push(b'/');
                (Bytes::from(url), Bytes::from_static(b"/"))
            }
        };
        Rewrite {
            pattern: Pattern::Prefix(Template::constant(pattern)),
            replacement: Template::constant(replacement),
        }
    }

    /// A rule with a prefix or, behind `~` or `~*`, a regular expression.
    pub fn parse(cx: &mut Cx, from: &Word, to: &Word) -> Result<Rewrite, ConfError> {
        let pattern = match from.bytes() {
            [b'~', b'*', rest @ ..] => regex(cx, from, rest, true)?,
            [b'~', rest @ ..] => regex(cx, from, rest, false)?,
            _ => Pattern::Prefix(cx.template(from)?),
        };
        Ok(Rewrite { pattern, replacement: cx.template(to)? })
    }

    /// A rule for domains: without the dot at the front, or a regular expression behind `~`.
    pub(crate) fn parse_domain(cx: &mut Cx, from: &Word, to: &Word) -> Result<Rewrite, ConfError> {
        let undotted = |w: &Word| {
            let mut w = w.clone();
            if w.bytes().first() == Some(&b'.') {
                w.text = w.text.slice(1..);
            }
            w
        };
        if let [b'~', rest @ ..] = from.bytes() {
            let pattern = regex(cx, from, rest, true)?;
            return Ok(Rewrite { pattern, replacement: cx.template(to)? });
        }
        let pattern = Pattern::Domain(cx.template(&undotted(from))?);
        Ok(Rewrite { pattern, replacement: cx.template(&undotted(to))? })
    }

    /// The new value, where the rule fits what stands in `value` from `skip` on.
    fn apply(&self, r: &mut Request, value: &[u8], skip: usize) -> Option<Bytes> {
        let rest = value.get(skip..)?;
        let span = match &self.pattern {
            Pattern::Prefix(t) => prefix(rest, &t.eval(r))?,
            Pattern::Domain(t) => domain(rest, &t.eval(r))?,
            Pattern::Regex(re) if re.exec(r, rest).unwrap_or(false) => 0..rest.len(),
            Pattern::Regex(_) => return None,
        };
        let mut new = value[..skip + span.start].to_vec();
        self.replacement.eval_into(r, &mut new);
        new.extend_from_slice(&rest[span.end..]);
        Some(Bytes::from(new))
    }
}

/// The range of a value that a prefix matches.
fn prefix(value: &[u8], prefix: &[u8]) -> Option<Range<usize>> {
    value.starts_with(prefix).then_some(0..prefix.len())
}

/// The range of a value that a domain matches: all of it, but for a dot at the front.
fn domain(value: &[u8], domain: &[u8]) -> Option<Range<usize>> {
    let dot = usize::from(value.first() == Some(&b'.'));
    value[dot..].eq_ignore_ascii_case(domain).then_some(dot..value.len())
}

/// Compiles a regular expression given behind a mark.
fn regex(cx: &mut Cx, at: &Word, pattern: &[u8], caseless: bool) -> Result<Pattern, ConfError> {
    let re = Regex::compile(at, pattern, caseless, &mut cx.vars)?;
    Ok(Pattern::Regex(Rc::new(re)))
}

/// The value after the first rule that fits; `None` where none does.
pub(super) fn rewrite(
    r: &mut Request,
    rules: &[Rewrite],
    value: &[u8],
    skip: usize,
) -> Option<Bytes> {
    rules.iter().find_map(|rule| rule.apply(r, value, skip))
}

pub(super) fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let first = n.arg(0)?;
    if matches!(cx.loc::<ProxyConf>().redirects, Some(Redirects::Off)) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let rule = match n.args.get(1) {
        Some(to) => Rewrite::parse(cx, first, to)?,
        None => match first.bytes() {
            b"off" => {
                let slot = &mut cx.loc::<ProxyConf>().redirects;
                if slot.is_some() {
                    return Err(ConfError::directive(n, "is duplicate"));
                }
                *slot = Some(Redirects::Off);
                return Ok(());
            }
            b"default" => default_rule(cx, first)?,
            _ => {
                let m = format!("invalid parameter \"{}\"", first.lossy());
                return Err(ConfError::at(first, m));
            }
        },
    };
    let slot = &mut cx.loc::<ProxyConf>().redirects;
    match slot {
        Some(Redirects::List(list)) => Rc::make_mut(list).push(rule),
        _ => *slot = Some(Redirects::List(Rc::new(vec![rule]))),
    }
    Ok(())
}

fn default_rule(cx: &mut Cx, at: &Word) -> Result<Rewrite, ConfError> {
    let pass = cx.peek_loc::<Pass>();
    if pass.is_some_and(|p| p.template.is_some()) {
        return Err(ConfError::at(
            at,
            "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with \
             variables",
        ));
    }
    match pass.and_then(|p| p.fixed.as_deref()) {
        Some(f) => Ok(Rewrite::default_of(f)),
        None => Err(ConfError::at(
            at,
            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rules_take() {
        assert_eq!(prefix(b"http://a/x", b"http://a/"), Some(0..9));
        assert_eq!(prefix(b"http://a", b"http://a/"), None);
        assert_eq!(prefix(b"HTTP://a/", b"http://a/"), None);
        assert_eq!(domain(b"Up.Example", b"up.example"), Some(0..10));
        assert_eq!(domain(b".up.example", b"up.example"), Some(1..11));
        assert_eq!(domain(b"x.up.example", b"up.example"), None);
        assert_eq!(domain(b"", b""), Some(0..0));
    }
}
