//! The table of directives.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::value::{msec, number, set_flag, set_once, size};
use conf::{ConfError, Node, Word};
use engine::settings::{ConfType, Scope};
use engine::tls_files::Named;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline};

use ::script::Facts;

use crate::fetch::Proxy;
use crate::periodic::{self, js_periodic};
use crate::settings::{Content, Main, Periodics, PieceType, Settings};
use crate::shared::js_shared_dict_zone;
use crate::{access, code, content, filters, variables};

/// The module's table.
pub static MODULE: Module = Module {
    name: "js",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Settings>(Scope::Location),
        ConfType::of::<Content>(Scope::Location),
        ConfType::of::<Periodics>(Scope::Location),
        ConfType::of::<Main>(Scope::Main),
    ],
    init: Some(init),
    install: Some(install),
    start: Some(start),
    ..Module::EMPTY
};

/// Where handlers and filters stand.
const PLACES: Contexts = Contexts::LOCATION.or(Contexts::IF_LOCATION).or(Contexts::LIMIT_EXCEPT);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "js_import",
        HSL,
        Args::T13,
        "",
        "A module of JavaScript, by whose name directives reach its functions: [NAME from] FILE.",
        js_import,
    ),
    directive(
        "js_path",
        HSL,
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
        HSL,
        Args::T13,
        "",
        "A global constant of all scripts, read from a file of JSON: [NAME from] FILE.",
        js_preload_object,
    ),
    directive(
        "js_engine",
        HSL,
        Args::T1,
        "qjs",
        "Accepted for compatibility: QuickJS runs all scripts, also with \"njs\".",
        js_engine,
    ),
    directive(
        "js_context_reuse",
        HSL,
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
        "js_time_limit",
        HSL,
        Args::T1,
        "100ms",
        "The processor time that a script may take before it returns or waits; then it is ended.",
        |cx, n| set_once(&mut cx.loc::<Settings>().time_limit_ms, n, |n| msec(n, 0)),
    ),
    directive(
        "js_cpu_limit",
        HSL,
        Args::T1,
        "1s",
        "The processor time that the scripts of a request may take in all; subrequests, and the \
         request after an internal redirect, count anew.",
        |cx, n| set_once(&mut cx.loc::<Settings>().cpu_limit_ms, n, |n| msec(n, 0)),
    ),
    directive(
        "js_memory_limit",
        HSL,
        Args::T1,
        "16m",
        "The memory of an engine; a script that needs more gets an exception.",
        |cx, n| set_once(&mut cx.loc::<Settings>().memory_limit, n, |n| size(n, 0)),
    ),
    directive(
        "js_context_reuse_max_size",
        HSL,
        Args::T1,
        "4m",
        "The memory beyond which an idle engine is not used again; checked once in 256 requests.",
        |cx, n| set_once(&mut cx.loc::<Settings>().reuse_max_size, n, |n| size(n, 0)),
    ),
    directive(
        "js_shared_dict_zone",
        Contexts::HTTP,
        Args::ONE_MORE,
        "",
        "A dictionary that all workers share: zone=NAME:SIZE [timeout=TIME] [type=string|number] \
         [evict] [state=FILE].",
        js_shared_dict_zone,
    ),
    directive(
        "js_fetch_buffer_size",
        HSL,
        Args::T1,
        "16k",
        "The longest header section of a response to ngx.fetch().",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.buffer_size, n, |n| size(n, 0)),
    ),
    directive(
        "js_fetch_max_response_buffer_size",
        HSL,
        Args::T1,
        "1m",
        "The longest body of a response to ngx.fetch().",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.max_response, n, |n| size(n, 0)),
    ),
    directive(
        "js_fetch_timeout",
        HSL,
        Args::T1,
        "60s",
        "The time limit of ngx.fetch() for connecting, and between two reads or writes.",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.timeout_ms, n, |n| msec(n, 0)),
    ),
    directive(
        "js_fetch_protocols",
        HSL,
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
        HSL,
        Args::T1,
        "DEFAULT",
        "The ciphers of ngx.fetch(), in OpenSSL's format.",
        |cx, n| {
            set_once(&mut cx.loc::<Settings>().fetch.ssl.ciphers, n, engine::tls_settings::ciphers)
        },
    ),
    directive(
        "js_fetch_verify",
        HSL,
        Args::FLAG,
        "on",
        "Verifies the certificates of servers that ngx.fetch() asks.",
        |cx, n| set_flag(&mut cx.loc::<Settings>().fetch.ssl.verify, n),
    ),
    directive(
        "js_fetch_verify_depth",
        HSL,
        Args::T1,
        "100",
        "The most certificates between a server's and a trusted one.",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.ssl.depth, n, |n| number(n, 0)),
    ),
    directive(
        "js_fetch_trusted_certificate",
        HSL,
        Args::T1,
        "",
        "CA certificates for verifying servers of ngx.fetch(); without it, those of the system.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            set_once(&mut cx.loc::<Settings>().fetch.ssl.trusted, n, |_| Ok(named))
        },
    ),
    directive(
        "js_fetch_proxy",
        HSL,
        Args::T1,
        "",
        "A forward proxy for ngx.fetch(): http://[USER:PASSWORD@]HOST:PORT; empty: none.",
        js_fetch_proxy,
    ),
    directive(
        "js_fetch_keepalive",
        HSL,
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
        HSL,
        Args::T1,
        "1000",
        "The number of requests after which a connection of ngx.fetch() is closed.",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.keepalive_requests, n, |n| number(n, 0)),
    ),
    directive(
        "js_fetch_keepalive_time",
        HSL,
        Args::T1,
        "1h",
        "The age after which a connection of ngx.fetch() is not used again.",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.keepalive_time_ms, n, |n| msec(n, 0)),
    ),
    directive(
        "js_fetch_keepalive_timeout",
        HSL,
        Args::T1,
        "60s",
        "The time after which an idle connection of ngx.fetch() is closed.",
        |cx, n| set_once(&mut cx.loc::<Settings>().fetch.keepalive_timeout_ms, n, |n| msec(n, 0)),
    ),
    directive(
        "js_set",
        HSL,
        Args::T23,
        "",
        "A variable that a function computes: $VARIABLE MODULE.FUNCTION [nocache].",
        js_set,
    ),
    directive(
        "js_var",
        HSL,
        Args::T12,
        "",
        "A variable that scripts assign to, with its first value: $VARIABLE [VALUE].",
        js_var,
    ),
    directive(
        "js_access",
        PLACES,
        Args::T1,
        "",
        "A function that allows or denies access: MODULE.FUNCTION.",
        |cx, n| set_function(&mut cx.loc::<Settings>().access, n),
    ),
    directive(
        "js_content",
        PLACES,
        Args::T1,
        "",
        "A function that answers requests: MODULE.FUNCTION.",
        |cx, n| set_function(&mut cx.loc::<Content>().0, n),
    ),
    directive(
        "js_header_filter",
        PLACES,
        Args::T1,
        "",
        "A function that changes the headers of responses: MODULE.FUNCTION.",
        |cx, n| set_function(&mut cx.loc::<Settings>().header_filter, n),
    ),
    directive(
        "js_periodic",
        Contexts::LOCATION,
        Args::ONE_MORE,
        "",
        "A function that runs at intervals: MODULE.FUNCTION [interval=TIME] [jitter=TIME] \
         [worker_affinity=all|MASK].",
        js_periodic,
    ),
    directive(
        "js_body_filter",
        PLACES,
        Args::T12,
        "",
        "A function that changes the bodies of responses: MODULE.FUNCTION \
         [buffer_type=string|buffer].",
        js_body_filter,
    ),
];

/// The imports of this very level.
fn own(cx: &mut Cx) -> &mut crate::settings::Draft {
    let prefix = cx.env.conf_prefix.clone();
    let own = &mut cx.loc::<Settings>().own;
    own.prefix = prefix;
    own
}

fn set_function(field: &mut Option<(Bytes, Word)>, n: &Node) -> Result<(), ConfError> {
    set_once(field, n, |n| Ok((n.args[0].text.clone(), n.args[0].clone())))
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

fn js_import(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (name, path) = named_path(n, ".js", "export")?;
    // Without one, requests over HTTPS fail unless a directive names a file.
    let system = Named::of_system(cx, path, "js_import", "js_fetch_trusted_certificate").ok();
    cx.loc::<Settings>().fetch.system = system;
    own(cx).imports.push((name, path.lossy().into_owned(), path.clone()));
    Ok(())
}

fn js_preload_object(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
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

fn js_engine(_: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = &n.args[0];
    if word.text.eq_ignore_ascii_case(b"njs") {
        conf::warn(word, "the engine \"njs\" is not built in: QuickJS runs the scripts");
    } else if !word.text.eq_ignore_ascii_case(b"qjs") {
        return Err(ConfError::at(word, format!("invalid value \"{}\"", word.lossy())));
    }
    Ok(())
}

fn js_fetch_proxy(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = &n.args[0];
    let template = cx.template(word)?;
    if let Some(text) = template.as_const() {
        Proxy::parse(text).map_err(|m| ConfError::at(word, m))?;
    }
    set_once(&mut cx.loc::<Settings>().fetch.proxy, n, |_| Ok(template))
}

fn js_set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (variable, function) = (&n.args[0], n.args[1].text.clone());
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
    let value = Rc::new(move |r: &mut http::Request| variables::evaluate(r, &by));
    cx.vars.define_value(variable, is_volatile, value)?;
    let set = &mut cx.main::<Main>().set;
    match set.iter().find(|(known, _)| *known == name) {
        Some((_, other)) if *other != function => {
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

fn js_var(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let template = n.args.get(1).map(|word| cx.template(word)).transpose()?;
    let value = Rc::new(move |r: &mut http::Request| {
        Some(template.as_ref().map_or_else(Bytes::new, |template| r.eval(template)))
    });
    cx.vars.define_value(&n.args[0], false, value)?;
    let name = n.args[0].lossy().trim_start_matches('$').to_ascii_lowercase();
    let vars = &mut cx.main::<Main>().vars;
    if !vars.contains(&name) {
        vars.push(name);
    }
    Ok(())
}

fn js_body_filter(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let piece = match n.args.get(1) {
        None => PieceType::Text,
        Some(word) => match word.bytes().strip_prefix(b"buffer_type=") {
            Some(b"string") => PieceType::Text,
            Some(b"buffer") => PieceType::Buffer,
            Some(other) => {
                let other = base::log::lossy(other);
                let m = format!(
                    "invalid buffer_type value \"{other}\", it must be \"string\" or \"buffer\""
                );
                return Err(ConfError::at(word, m));
            }
            None => {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
        },
    };
    set_once(&mut cx.loc::<Settings>().body_filter, n, |n| {
        Ok((n.args[0].text.clone(), piece, n.args[0].clone()))
    })
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<Settings>();
    let content = l.conf::<Content>();
    let content = content.0.as_ref().filter(|_| l.set_here_or_around::<Content>());
    let has_code = conf.code()?.is_some();
    if has_code {
        conf.make_fetcher()?;
    }
    let needs = |directive: &str, (function, word): (&Bytes, &Word)| {
        let function = base::log::lossy(function);
        let m = format!(
            "no imports defined for \"{directive}\" \"{function}\", use \"js_import\" directive"
        );
        if has_code { Ok(()) } else { Err(ConfError::at(word, m)) }
    };
    if let Some((function, word)) = &conf.access {
        needs("js_access", (function, word))?;
        p.access.push(Box::new(access::Handler::new(function, conf.clone())));
    }
    if let Some((function, word)) = content {
        needs("js_content", (function, word))?;
        p.content_handler = Some(Box::new(content::Handler::new(function, conf.clone())));
    }
    if let Some((function, word)) = &conf.header_filter {
        needs("js_header_filter", (function, word))?;
    }
    if let Some((function, _, word)) = &conf.body_filter {
        needs("js_body_filter", (function, word))?;
    }
    if l.set_here::<Periodics>() && !has_code {
        let periodic = l.conf::<Periodics>();
        let function = periodic.0.first().map(|p| base::log::lossy(&p.function).into_owned());
        let function = function.unwrap_or_default();
        let m = "no imports defined for \"js_periodic\"";
        return Err(ConfError::new(format!("{m} \"{function}\", use \"js_import\" directive")));
    }
    if conf.header_filter.is_some() || conf.body_filter.is_some() {
        p.header_filters.push(Box::new(filters::Filter::new(conf.clone())));
    }
    Ok(())
}

/// Notes what `ngx` says about the server.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let folder = |path: &std::path::Path| {
        let text = text(path);
        if text.ends_with('/') { text } else { text + "/" }
    };
    let facts = Facts {
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

fn start(main: &Rc<http::HttpMain>, seat: &engine::Seat) -> std::io::Result<()> {
    let facts = main.confs.listed::<Main>().facts.clone();
    let worker_id = u32::try_from(seat.index).unwrap_or(u32::MAX);
    code::set_facts(Facts { worker_id, ..facts });
    periodic::start(main, seat.index);
    Ok(())
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
