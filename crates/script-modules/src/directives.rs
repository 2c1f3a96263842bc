//! The directives that scripts of all engines have.

use std::rc::Rc;

use base::json::Object;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive, directive, join};
use conf::value::{msec, number, set_flag, set_once, size};
use conf::{ConfError, Node, Word};
use engine::tls_files::Named;
use engine::{Cx, Session};

use ::script::Facts;

use crate::code::{self, note_variable};
use crate::fetch::Proxy;
use crate::function::Function;
use crate::periodic::js_periodic;
use crate::settings::{Draft, Main, Settings};
use crate::shared::js_shared_dict_zone;

/// The scripts of an engine.
pub trait Scripts<S: Session>: 'static {
    /// The value of a variable of `js_set`; none where the function fails.
    fn evaluate(s: &mut S, function: &Function) -> Option<Bytes>;
}

/// The number of the directives.
pub const COUNT: usize = 27;

/// The directives: most hold at `levels`, `js_periodic` in `places`.
pub const fn directives<S: Session, T: Scripts<S>>(
    levels: Contexts,
    places: Contexts,
) -> [Directive<Cx<S>>; COUNT] {
    join(&[
        &modules::<S>(levels),
        &limits::<S>(levels),
        &values::<S, T>(levels, places),
        &fetching::<S>(levels),
        &keeping::<S>(levels),
        &tls::<S>(levels),
    ])
}

/// Where functions come from.
const fn modules<S: Session>(levels: Contexts) -> [Directive<Cx<S>>; 4] {
    [
        directive(
            "js_import",
            levels,
            Args::T13,
            "",
            "A module of JavaScript, by whose name directives reach its functions: [NAME from] \
             FILE.",
            js_import,
        ),
        directive(
            "js_path",
            levels,
            Args::T1,
            "",
            "A folder in which modules are looked for.",
            |cx, n| {
                let path = cx.env.conf_path(&n.args[0].text);
                own(cx).paths.push(path);
                Ok(())
            },
        ),
        directive(
            "js_preload_object",
            levels,
            Args::T13,
            "",
            "A global constant of all scripts, read from a file of JSON: [NAME from] FILE.",
            js_preload_object,
        ),
        directive(
            "js_engine",
            levels,
            Args::T1,
            "qjs",
            "Accepted for compatibility: QuickJS runs all scripts, also with \"njs\".",
            js_engine,
        ),
    ]
}

/// Engines: how many, and what they may use.
const fn limits<S: Session>(levels: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "js_context_reuse",
            levels,
            Args::T1,
            "128",
            "The number of idle engines that a worker keeps for these imports.",
            |cx, n| {
                set_once(&mut cx.loc::<Settings>().reuse, n, |n| {
                    number(n, 0).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
                })
            },
        ),
        directive(
            "js_context_reuse_max_size",
            levels,
            Args::T1,
            "4m",
            "The memory beyond which an idle engine is not used again; checked once in 2,048 \
             requests.",
            |cx, n| set_once(&mut cx.loc::<Settings>().reuse_max_size, n, |n| size(n, 0)),
        ),
        directive(
            "js_time_limit",
            levels,
            Args::T1,
            "100ms",
            "The processor time that a script may take before it returns or waits; then it is \
             ended.",
            |cx, n| set_once(&mut cx.loc::<Settings>().time_limit_ms, n, |n| msec(n, 0)),
        ),
        directive(
            "js_cpu_limit",
            levels,
            Args::T1,
            "1s",
            if S::HAS_HEADS {
                "The processor time that the scripts of a request may take in all; subrequests, \
                 and the request after an internal redirect, count anew."
            } else {
                "The processor time that the functions of a session's phases may take in all; \
                 for a filter it counts anew with each piece."
            },
            |cx, n| set_once(&mut cx.loc::<Settings>().cpu_limit_ms, n, |n| msec(n, 0)),
        ),
        directive(
            "js_memory_limit",
            levels,
            Args::T1,
            "16m",
            "The memory of an engine; a script that needs more gets an exception.",
            |cx, n| set_once(&mut cx.loc::<Settings>().memory_limit, n, |n| size(n, 0)),
        ),
    ]
}

/// What scripts share, and what they give to the configuration.
const fn values<S: Session, T: Scripts<S>>(
    levels: Contexts,
    places: Contexts,
) -> [Directive<Cx<S>>; 4] {
    [
        directive(
            "js_set",
            levels,
            Args::T23,
            "",
            "A variable that a function computes: $VARIABLE MODULE.FUNCTION [nocache].",
            js_set::<S, T>,
        ),
        directive(
            "js_var",
            levels,
            Args::T12,
            "",
            "A variable that scripts assign to, with its first value: $VARIABLE [VALUE].",
            js_var,
        ),
        directive(
            "js_shared_dict_zone",
            S::BLOCK,
            Args::ONE_MORE,
            "",
            "A dictionary that all workers share: zone=NAME:SIZE [timeout=TIME] \
             [type=string|number] \
             [evict] [state=FILE].",
            js_shared_dict_zone,
        ),
        directive(
            "js_periodic",
            places,
            Args::ONE_MORE,
            "",
            "A function that runs at intervals: MODULE.FUNCTION [interval=TIME] [jitter=TIME] \
             [worker_affinity=all|MASK].",
            js_periodic,
        ),
    ]
}

/// `ngx.fetch`
const fn fetching<S: Session>(levels: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "js_fetch_buffer_size",
            levels,
            Args::T1,
            "16k",
            "The longest header section of a response to ngx.fetch().",
            |cx, n| set_once(&mut cx.loc::<Settings>().fetch.buffer_size, n, |n| size(n, 0)),
        ),
        directive(
            "js_fetch_max_response_buffer_size",
            levels,
            Args::T1,
            "1m",
            "The longest body of a response to ngx.fetch().",
            |cx, n| set_once(&mut cx.loc::<Settings>().fetch.max_response, n, |n| size(n, 0)),
        ),
        directive(
            "js_fetch_limit",
            levels,
            Args::T1,
            "64",
            "The number of requests that a script may have in flight by ngx.fetch(); more are \
             rejected.",
            |cx, n| {
                set_once(&mut cx.loc::<Settings>().fetch.limit, n, |n| {
                    number(n, 0).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
                })
            },
        ),
        directive(
            "js_fetch_timeout",
            levels,
            Args::T1,
            "60s",
            "The time limit of ngx.fetch() for connecting, and between two reads or writes.",
            |cx, n| set_once(&mut cx.loc::<Settings>().fetch.timeout_ms, n, |n| msec(n, 0)),
        ),
        directive(
            "js_fetch_proxy",
            levels,
            Args::T1,
            "",
            "A forward proxy for ngx.fetch(): http://[USER:PASSWORD@]HOST:PORT; empty: none.",
            js_fetch_proxy,
        ),
    ]
}

/// Connections that `ngx.fetch` keeps.
const fn keeping<S: Session>(levels: Contexts) -> [Directive<Cx<S>>; 4] {
    [
        directive(
            "js_fetch_keepalive",
            levels,
            Args::T1,
            "0",
            "The number of idle connections to servers that a worker keeps for ngx.fetch().",
            |cx, n| {
                set_once(&mut cx.loc::<Settings>().fetch.keepalive, n, |n| {
                    number(n, 0).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
                })
            },
        ),
        directive(
            "js_fetch_keepalive_requests",
            levels,
            Args::T1,
            "1000",
            "The number of requests after which a connection of ngx.fetch() is closed.",
            |cx, n| {
                set_once(&mut cx.loc::<Settings>().fetch.keepalive_requests, n, |n| number(n, 0))
            },
        ),
        directive(
            "js_fetch_keepalive_time",
            levels,
            Args::T1,
            "1h",
            "The age after which a connection of ngx.fetch() is not used again.",
            |cx, n| set_once(&mut cx.loc::<Settings>().fetch.keepalive_time_ms, n, |n| msec(n, 0)),
        ),
        directive(
            "js_fetch_keepalive_timeout",
            levels,
            Args::T1,
            "60s",
            "The time after which an idle connection of ngx.fetch() is closed.",
            |cx, n| {
                set_once(&mut cx.loc::<Settings>().fetch.keepalive_timeout_ms, n, |n| msec(n, 0))
            },
        ),
    ]
}

/// The TLS of `ngx.fetch`.
const fn tls<S: Session>(levels: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "js_fetch_protocols",
            levels,
            Args::ONE_MORE,
            "TLSv1.2 TLSv1.3",
            "The TLS versions of ngx.fetch().",
            |cx, n| {
                set_once(
                    &mut cx.loc::<Settings>().fetch.ssl.protocols,
                    n,
                    engine::tls_settings::protocols,
                )
            },
        ),
        directive(
            "js_fetch_ciphers",
            levels,
            Args::T1,
            "DEFAULT",
            "The ciphers of ngx.fetch(), in OpenSSL's format.",
            |cx, n| {
                set_once(
                    &mut cx.loc::<Settings>().fetch.ssl.ciphers,
                    n,
                    engine::tls_settings::ciphers,
                )
            },
        ),
        directive(
            "js_fetch_verify",
            levels,
            Args::FLAG,
            "on",
            "Verifies the certificates of servers that ngx.fetch() asks.",
            |cx, n| set_flag(&mut cx.loc::<Settings>().fetch.ssl.verify, n),
        ),
        directive(
            "js_fetch_verify_depth",
            levels,
            Args::T1,
            "100",
            "The most certificates between a server's and a trusted one.",
            |cx, n| set_once(&mut cx.loc::<Settings>().fetch.ssl.depth, n, |n| number(n, 0)),
        ),
        directive(
            "js_fetch_trusted_certificate",
            levels,
            Args::T1,
            "",
            "CA certificates for verifying servers of ngx.fetch(); without it, those of the \
             system.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                set_once(&mut cx.loc::<Settings>().fetch.ssl.trusted, n, |_| Ok(named))
            },
        ),
    ]
}

/// The imports of this very level.
fn own<S: Session>(cx: &mut Cx<S>) -> &mut Draft {
    let prefix = cx.env.conf_prefix.clone();
    let own = &mut cx.loc::<Settings>().own;
    own.prefix = prefix;
    own
}

/// The name and the path of `NAME from FILE`, or of a file whose name ends in `ending`.
fn named_path<'n>(n: &'n Node, ending: &str, noun: &str) -> Result<(String, &'n Word), ConfError> {
    let (name, path) = match n.args.as_slice() {
        [name, from, path] if from.bytes() == b"from" => (name.lossy().into_owned(), path),
        [_, from, _] => {
            let m = format!("invalid parameter \"{}\"", from.lossy());
            return Err(ConfError::at(from, m));
        }
        args => {
            let path = &args[0];
            let text = path.lossy();
            let file = text.rsplit('/').next().unwrap_or_default();
            let Some(name) = file.strip_suffix(ending) else {
                let m = format!(
                    "cannot extract export name from file path \"{text}\", use extended \"from\" \
                     syntax"
                );
                return Err(ConfError::at(path, m));
            };
            (name.to_owned(), path)
        }
    };
    if let Some(m) = wrong_name(&name, noun) {
        return Err(ConfError::at(&n.args[0], m));
    }
    if path.bytes().contains(&b'\'') {
        let m = format!("invalid character \"'\" in file path \"{}\"", path.lossy());
        return Err(ConfError::at(path, m));
    }
    Ok((name, path))
}

/// What is wrong with the name of an import or of a global constant.
fn wrong_name(name: &str, noun: &str) -> Option<String> {
    let Some(first) = name.chars().next() else { return Some(format!("empty {noun} name")) };
    if !(first == '_' || first.is_ascii_alphabetic()) {
        return Some(format!("cannot start with \"{first}\" in {noun} name \"{name}\""));
    }
    let wrong = name.chars().find(|c| !(*c == '_' || c.is_ascii_alphanumeric()))?;
    Some(format!("invalid character \"{wrong}\" in {noun} name \"{name}\""))
}

fn js_import<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (name, path) = named_path(n, ".js", "export")?;
    // Without one, requests over HTTPS fail unless a directive names a file.
    let system = Named::of_system(cx, path, "js_import", "js_fetch_trusted_certificate").ok();
    cx.loc::<Settings>().fetch.system = system;
    own(cx).imports.push((name, path.lossy().into_owned(), path.clone()));
    Ok(())
}

fn js_preload_object<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (name, word) = named_path(n, ".json", "global")?;
    let path = cx.env.conf_path(&word.text);
    let text = std::fs::read(&path).map_err(|e| {
        let (path, e) = (path.display(), base::log::os_error(&e));
        ConfError::at(word, format!("open() \"{path}\" failed {e}"))
    })?;
    let text = String::from_utf8_lossy(&text).into_owned();
    own(cx).objects.push((name, text));
    Ok(())
}

fn js_engine<S: Session>(_: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let word = &n.args[0];
    if word.text.eq_ignore_ascii_case(b"njs") {
        conf::warn(word, "the engine \"njs\" is not built in: QuickJS runs the scripts");
    } else if !word.text.eq_ignore_ascii_case(b"qjs") {
        return Err(ConfError::at(word, format!("invalid value \"{}\"", word.lossy())));
    }
    Ok(())
}

fn js_fetch_proxy<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let word = &n.args[0];
    let template = cx.template(word)?;
    if let Some(text) = template.as_const() {
        Proxy::parse(text).map_err(|m| ConfError::at(word, m))?;
    }
    set_once(&mut cx.loc::<Settings>().fetch.proxy, n, |_| Ok(template))
}

fn js_set<S: Session, T: Scripts<S>>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (variable, function) = (&n.args[0], Function::of(cx, "js_set", &n.args[1])?);
    let is_volatile = match n.args.get(2) {
        None => false,
        Some(word) if word.bytes() == b"nocache" => true,
        Some(word) => {
            let m = format!("unrecognized flag \"{}\"", word.lossy());
            return Err(ConfError::at(word, m));
        }
    };
    let name = variable.text.clone();
    let by = function.clone();
    let value = Rc::new(move |s: &mut S| T::evaluate(s, &by));
    cx.vars.define_value(variable, is_volatile, value)?;
    note_variable(&function);
    let set = &mut cx.main::<Main>().set;
    match set.iter().find(|(known, _)| *known == name) {
        Some((_, other)) if other.name != function.name => {
            let name = variable.lossy();
            let name = name.strip_prefix('$').unwrap_or(&name);
            let m = format!("variable \"{name}\" is redeclared with different function name");
            Err(ConfError::at(variable, m))
        }
        Some(_) => Ok(()),
        None => {
            set.push((name, function));
            Ok(())
        }
    }
}

fn js_var<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let template = n.args.get(1).map(|word| cx.template(word)).transpose()?;
    let value = Rc::new(move |s: &mut S| {
        Some(template.as_ref().map_or_else(Bytes::new, |template| s.eval(template)))
    });
    cx.vars.define_value(&n.args[0], false, value)?;
    let name = n.args[0].lossy().trim_start_matches('$').to_ascii_lowercase();
    let vars = &mut cx.main::<Main>().vars;
    if !vars.contains(&name) {
        vars.push(name);
    }
    Ok(())
}

/// Notes what `ngx` and `process` say about the server; for a module's `init`.
///
/// # Errors
/// None.
pub fn init<S: Session>(cx: &mut Cx<S>) -> Result<(), ConfError> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let folder = |path: &std::path::Path| {
        let text = text(path);
        if text.ends_with('/') { text } else { text + "/" }
    };
    let facts = Facts {
        arguments: base::arguments().iter().map(|word| word.to_string_lossy().into()).collect(),
        prefix: folder(&cx.env.prefix),
        conf_prefix: folder(&cx.env.conf_prefix),
        conf_file_path: text(&cx.env.conf_file),
        error_log_path: text(&cx.env.first_error_log),
        version: base::NGINX_VERSION.to_owned(),
        version_number: number_of(base::NGINX_VERSION),
        ..Facts::default()
    };
    cx.main::<Main>().facts = facts;
    Ok(())
}

/// A version as one number: 1031005 for 1.31.5.
fn number_of(version: &str) -> u32 {
    version.split('.').fold(0, |number, part| number * 1000 + part.parse().unwrap_or(0))
}

/// Called in a worker, before it serves: sets what `ngx` says, and where its functions are counted.
pub fn begin(main: &Main, metrics: &engine::Metrics, seat: &engine::Seat) {
    let worker_id = u32::try_from(seat.index).unwrap_or(u32::MAX);
    code::set_facts(Facts { worker_id, ..main.facts.clone() });
    for counts in metrics.parts::<engine::metrics::functions::FunctionCounts>() {
        counts.use_slot(seat.slot);
    }
}

/// Writes the functions that directives name, with their counters, for a module's `status`.
pub fn status(metrics: &engine::Metrics, o: &mut Object<'_>) {
    let all = metrics.parts::<engine::metrics::functions::FunctionCounts>();
    o.list("functions", all.iter(), |o, of| {
        let sums = of.sums();
        o.text("engine", of.engine.as_bytes());
        o.text("directive", of.directive.as_bytes());
        o.text("function", of.function.as_bytes());
        o.number("calls", sums.calls);
        o.number("failures", sums.failures);
        o.number("cpu_us", sums.usec);
    });
}

#[cfg(test)]
mod tests {
    use super::{number_of, wrong_name};

    #[test]
    fn versions_are_one_number() {
        assert_eq!(number_of("1.31.5"), 1_031_005);
    }

    #[test]
    fn names_of_imports() {
        for name in ["a", "_x1", "Http"] {
            assert_eq!(wrong_name(name, "export"), None, "{name}");
        }
        assert_eq!(wrong_name("", "export").unwrap(), "empty export name");
        let m = "cannot start with \"1\" in export name \"1a\"";
        assert_eq!(wrong_name("1a", "export").unwrap(), m);
        let m = "invalid character \"-\" in export name \"a-b\"";
        assert_eq!(wrong_name("a-b", "export").unwrap(), m);
    }
}
