//! `headers`: fields added to responses and behind their bodies, and `expires`.

use std::rc::Rc;

use base::ascii::eq_ignore_case;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use http::core_directives::{HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module::of::<HeadersConf>("headers", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "expires",
        HSLI,
        Args::T12,
        "off",
        "Sets Expires and Cache-Control of responses: a lifetime, epoch, max or off.",
        expires,
    ),
    directive(
        "add_header",
        HSLI,
        Args::T23,
        "",
        "Adds a response header field on statuses 200 to 206 and 30x, or `always` on all; \
         Content-Length and Transfer-Encoding are left out.",
        |cx, n| {
            let line = line(cx, n)?;
            let conf = cx.loc::<HeadersConf>();
            conf.at.get_or_insert_with(|| n.name.clone());
            let lines = conf.headers.get_or_insert_default();
            if let Some(what) = FRAMING.iter().find(|f| eq_ignore_case(&line.name, f.as_bytes())) {
                // The directive stands here all the same: the enclosing level's do not hold.
                let m = format!("\"{what}\" is not added: the server frames its responses");
                conf::warn(&n.args[0], &m);
                return Ok(());
            }
            lines.push(line);
            Ok(())
        },
    ),
    directive(
        "add_trailer",
        HSLI,
        Args::T23,
        "",
        "Adds a trailer field after the response body.",
        |cx, n| {
            let line = line(cx, n)?;
            cx.loc::<HeadersConf>().trailers.get_or_insert_default().push(line);
            Ok(())
        },
    ),
    directive(
        "add_header_inherit",
        HSLI,
        Args::T1,
        "on",
        "Inherits add_header from the outer level: on (if this one has none), off, or merge.",
        |cx, n| value::set_enum(&mut cx.loc::<HeadersConf>().headers_inherit, n, INHERIT),
    ),
    directive(
        "add_trailer_inherit",
        HSLI,
        Args::T1,
        "on",
        "Inherits add_trailer from the outer level: on (if this one has none), off, or merge.",
        |cx, n| value::set_enum(&mut cx.loc::<HeadersConf>().trailers_inherit, n, INHERIT),
    ),
];

/// Fields that say where a body ends: with another one beside the server's, clients and proxies
/// find another end, or refuse the response.
const FRAMING: [&str; 2] = ["Content-Length", "Transfer-Encoding"];

const INHERIT: &[(&str, Inherit)] =
    &[("off", Inherit::Off), ("on", Inherit::On), ("merge", Inherit::Merge)];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inherit {
    Off,
    On,
    Merge,
}

/// The effect of adding a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddEffect {
    Add,
    LastModified,
    ETag,
}

/// One `add_header` or `add_trailer`.
struct Line {
    name: Bytes,
    value: Template,
    how: AddEffect,
    always: bool,
}

type Lines = Vec<Rc<Line>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expires {
    Off,
    Epoch,
    Max,
    /// Seconds from now; negative ones are past.
    Access(i64),
    /// Seconds from the response's last change.
    Modified(i64),
    /// The next time at which the local clock shows this number of seconds since midnight.
    Daily(i64),
}

/// `expires` as written.
#[derive(Clone)]
enum ExpiresRule {
    Fixed(Expires),
    /// A value with variables; `modified` stood before it.
    Evaluated(Template, bool),
}

#[derive(Default)]
struct HeadersConf {
    expires: Option<ExpiresRule>,
    headers: Option<Lines>,
    trailers: Option<Lines>,
    headers_inherit: Option<Inherit>,
    trailers_inherit: Option<Inherit>,
    /// The first `add_header` of this very level.
    at: Option<Word>,
}

impl Conf for HeadersConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        engine::inherit!(self, prev: expires headers_inherit trailers_inherit);
        self.warn_of_lost(prev);
        inherit(&mut self.headers, &prev.headers, self.headers_inherit);
        inherit(&mut self.trailers, &prev.trailers, self.trailers_inherit);
        Ok(())
    }
}

/// Fields that protect the client, and that nobody means to take away by adding another one.
const PROTECTIVE: [&str; 9] = [
    "Content-Security-Policy",
    "Cross-Origin-Embedder-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Permissions-Policy",
    "Referrer-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
];

impl HeadersConf {
    /// A level with `add_header` of its own has none of the enclosing one's, which few expect.
    fn warn_of_lost(&self, prev: &Self) {
        let (Some(at), Some(own), Some(outer)) = (&self.at, &self.headers, &prev.headers) else {
            return;
        };
        if self.headers_inherit.is_some() {
            return;
        }
        let is = |line: &Line, name: &str| eq_ignore_case(&line.name, name.as_bytes());
        let lost =
            |name: &&&str| outer.iter().any(|l| is(l, name)) && !own.iter().any(|l| is(l, name));
        let lost: Vec<&str> = PROTECTIVE.iter().filter(lost).copied().collect();
        if !lost.is_empty() {
            let m = "\"add_header\" here drops the fields of the enclosing level";
            let help = "repeat them, or set \"add_header_inherit merge\"";
            conf::warn(at, format_args!("{m}, {} among them: {help}", lost.join(", ")));
        }
    }
}

fn inherit(own: &mut Option<Lines>, prev: &Option<Lines>, how: Option<Inherit>) {
    match (own, prev, how.unwrap_or(Inherit::On)) {
        (_, _, Inherit::Off) | (_, None, _) | (Some(_), _, Inherit::On) => {}
        (own @ None, prev, _) => own.clone_from(prev),
        (Some(own), Some(prev), Inherit::Merge) => own.extend(prev.iter().cloned()),
    }
}

fn line(cx: &mut Cx, n: &Node) -> Result<Rc<Line>, ConfError> {
    let always = match n.args.get(2) {
        None => false,
        Some(w) if w.bytes() == b"always" => true,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    let name = n.args[0].text.clone();
    let how = match name.to_ascii_lowercase().as_slice() {
        b"last-modified" => AddEffect::LastModified,
        b"etag" => AddEffect::ETag,
        _ => AddEffect::Add,
    };
    Ok(Rc::new(Line { name, value: cx.template(&n.args[1])?, how, always }))
}

fn expires(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<HeadersConf>().expires.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let modified = n.args.len() == 2;
    if modified && n.args[0].bytes() != b"modified" {
        return Err(ConfError::directive(n, "invalid value"));
    }
    let word = &n.args[n.args.len() - 1];
    let template = cx.template(word)?;
    let rule = match template.as_const() {
        Some(text) => match parse_expires(text, modified) {
            Ok(e) => ExpiresRule::Fixed(e),
            Err(m) => return Err(ConfError::directive(n, m)),
        },
        None => ExpiresRule::Evaluated(template, modified),
    };
    cx.loc::<HeadersConf>().expires = Some(rule);
    Ok(())
}

fn parse_expires(text: &[u8], modified: bool) -> Result<Expires, &'static str> {
    const DAY: i64 = 24 * 60 * 60;
    match text {
        b"epoch" if !modified => return Ok(Expires::Epoch),
        b"max" if !modified => return Ok(Expires::Max),
        b"off" if !modified => return Ok(Expires::Off),
        _ => {}
    }
    let (sign, time) = match text {
        [sign @ (b'@' | b'+' | b'-'), time @ ..] => (*sign, time),
        _ => (b'+', text),
    };
    if sign == b'@' && modified {
        return Err("daily time cannot be used with \"modified\" parameter");
    }
    let secs = value::parse_sec(time).and_then(|s| i64::try_from(s).ok()).ok_or("invalid value")?;
    match sign {
        b'@' if secs > DAY => Err("daily time value must be less than 24 hours"),
        b'@' => Ok(Expires::Daily(secs)),
        _ => {
            let secs = if sign == b'-' { -secs } else { secs };
            Ok(if modified { Expires::Modified(secs) } else { Expires::Access(secs) })
        }
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<HeadersConf>();
    // A block without directives of this module shares the values of the block around it; with
    // `off` it has none.
    let here = l.set_here::<HeadersConf>();
    let lines = |lines: &Option<Lines>, inherit: Option<Inherit>| match (lines, inherit) {
        (Some(_), Some(Inherit::Off)) if !here => Lines::new(),
        (Some(lines), _) => lines.clone(),
        (None, _) => Lines::new(),
    };
    let filter = Filter {
        expires: conf.expires.clone().filter(|e| !matches!(e, ExpiresRule::Fixed(Expires::Off))),
        headers: lines(&conf.headers, conf.headers_inherit),
        trailers: lines(&conf.trailers, conf.trailers_inherit).into(),
    };
    if filter.expires.is_some() || !filter.headers.is_empty() || !filter.trailers.is_empty() {
        p.header_filters.push(Box::new(filter));
    }
    Ok(())
}

struct Filter {
    expires: Option<ExpiresRule>,
    headers: Lines,
    trailers: Rc<[Rc<Line>]>,
}

/// The statuses whose responses get fields that are not for all.
fn is_good(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

impl HeaderFilter for Filter {
    fn run(&self, r: &mut Request) -> Verdict {
        let good = is_good(r.status());
        if let Some(rule) = &self.expires
            && good
        {
            apply_expires(r, rule);
        }
        for line in self.headers.iter().filter(|l| good || l.always) {
            let value = r.eval(&line.value);
            add(r, line, value);
        }
        if self.trailers.iter().any(|l| good || l.always) {
            r.out.expect_trailers = true;
            r.out.filters.push(Box::new(Trailers { lines: self.trailers.clone(), good }));
        }
        Verdict::Next
    }
}

fn add(r: &mut Request, line: &Line, value: Bytes) {
    match line.how {
        AddEffect::Add => {
            if !value.is_empty() {
                r.out.headers.push((line.name.clone(), value));
            }
        }
        AddEffect::ETag => {
            r.out.remove(b"ETag");
            r.out.etag = (!value.is_empty()).then_some(value);
        }
        AddEffect::LastModified => {
            r.out.remove(b"Last-Modified");
            // As it was written, if it is a date in another form or none at all.
            r.out.last_modified_given = true;
            r.out.last_modified = base::time::parse_http_date(&value);
            r.out.last_modified_written = None;
            if r.out.last_modified.is_some() {
                r.out.last_modified_written = Some(value);
            } else if !value.is_empty() {
                r.out.headers.push((line.name.clone(), value));
            }
        }
    }
}

/// `more_clear_headers Expires`: [`expires`] leaves that field out, as in nginx with that module.
#[derive(Default)]
pub(crate) struct WithoutExpires(pub bool);

fn replace_expires(r: &mut Request, value: Bytes) {
    if !r.ctx::<WithoutExpires>().is_some_and(|without| without.0) {
        replace(r, "Expires", value);
    }
}

fn apply_expires(r: &mut Request, rule: &ExpiresRule) {
    let expires = match rule {
        ExpiresRule::Fixed(e) => *e,
        ExpiresRule::Evaluated(t, modified) => match parse_expires(&r.eval(t), *modified) {
            Ok(e) => e,
            Err(_) => return,
        },
    };
    let now = base::time::unix_secs() as i64;
    let (at, age) = match expires {
        Expires::Off => return,
        Expires::Epoch => {
            replace_expires(r, Bytes::from_static(b"Thu, 01 Jan 1970 00:00:01 GMT"));
            return replace(r, "Cache-Control", Bytes::from_static(b"no-cache"));
        }
        Expires::Max => {
            replace_expires(r, Bytes::from_static(b"Thu, 31 Dec 2037 23:55:55 GMT"));
            // Ten years.
            return replace(r, "Cache-Control", Bytes::from_static(b"max-age=315360000"));
        }
        Expires::Access(0) | Expires::Modified(0) => (now, 0),
        Expires::Daily(secs) => {
            let at = base::time::next_time_of_day(now, secs);
            (at, at - now)
        }
        Expires::Access(secs) => (now + secs, secs),
        Expires::Modified(secs) => match r.out.last_modified {
            Some(t) if secs < 0 => (t + secs, -1),
            Some(t) => (t + secs, t + secs - now),
            None => (now + secs, secs),
        },
    };
    replace_expires(r, Bytes::copy_from_slice(&base::time::format_http_date(at)));
    let control = match u64::try_from(age) {
        Err(_) => Bytes::from_static(b"no-cache"),
        Ok(age) => {
            let mut text = b"max-age=".to_vec();
            base::ascii::write_u64(&mut text, age);
            Bytes::from(text)
        }
    };
    replace(r, "Cache-Control", control);
}

/// Gives the first field of a name another value and removes those behind it; adds it if there is
/// none.
fn replace(r: &mut Request, name: &'static str, value: Bytes) {
    let is = |field: &Bytes| eq_ignore_case(field, name.as_bytes());
    let Some(first) = r.out.headers.iter().position(|(n, _)| is(n)) else {
        return r.out.add(name, value);
    };
    r.out.headers[first].1 = value;
    r.out.remove_if(|at, n| at > first && eq_ignore_case(n, name.as_bytes()));
}

/// Evaluates the trailers when the body has gone through, since it may be what they tell of.
struct Trailers {
    lines: Rc<[Rc<Line>]>,
    good: bool,
}

impl BodyFilter for Trailers {
    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        out.append(input);
        if last {
            for line in self.lines.iter().filter(|l| self.good || l.always) {
                let value = r.eval(&line.value);
                if !value.is_empty() {
                    r.out.trailers.push((line.name.clone(), value));
                }
            }
        }
        FilterStep::Go
    }

    fn takes_files(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_expires() {
        let of = |text: &str, modified| parse_expires(text.as_bytes(), modified);
        for (text, want) in [
            ("epoch", Ok(Expires::Epoch)),
            ("max", Ok(Expires::Max)),
            ("off", Ok(Expires::Off)),
            ("2048", Ok(Expires::Access(2048))),
            ("+1h", Ok(Expires::Access(3600))),
            ("-1d", Ok(Expires::Access(-86_400))),
            ("@15h30m", Ok(Expires::Daily(55_800))),
            ("@24h", Ok(Expires::Daily(86_400))),
            ("@25h", Err("daily time value must be less than 24 hours")),
            ("", Err("invalid value")),
            ("-", Err("invalid value")),
            ("soon", Err("invalid value")),
        ] {
            assert_eq!(of(text, false), want, "{text}");
        }
        assert_eq!(of("24h", true), Ok(Expires::Modified(86_400)));
        assert_eq!(of("epoch", true), Err("invalid value"));
        let daily = "daily time cannot be used with \"modified\" parameter";
        assert_eq!(of("@1h", true), Err(daily));
    }

    #[test]
    fn lines_are_inherited_as_told() {
        let lines = |names: &[&'static str]| -> Option<Lines> {
            let line = |name: &&'static str| {
                let value = Template::constant(Bytes::from_static(b"v"));
                Rc::new(Line {
                    name: Bytes::from_static(name.as_bytes()),
                    value,
                    how: AddEffect::Add,
                    always: false,
                })
            };
            (!names.is_empty()).then(|| names.iter().map(line).collect())
        };
        let merged = |own: &[&'static str], how| {
            let mut own = lines(own);
            inherit(&mut own, &lines(&["p"]), how);
            own.unwrap_or_default().iter().map(|l| l.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(merged(&[], None), ["p"]);
        assert_eq!(merged(&["a"], None), ["a"]);
        assert_eq!(merged(&["a"], Some(Inherit::Merge)), ["a", "p"]);
        assert_eq!(merged(&[], Some(Inherit::Merge)), ["p"]);
        assert_eq!(merged(&[], Some(Inherit::Off)), Vec::<Bytes>::new());
        assert_eq!(merged(&["a"], Some(Inherit::Off)), ["a"]);
    }
}
