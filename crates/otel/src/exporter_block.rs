//! `otel_exporter`: the collector and the batching of spans.

use std::path::PathBuf;
use std::rc::Rc;

use crate::otlp::HTTP_PATH;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::{set_msec, set_once, set_size};
use conf::{ConfError, Node, Word};
use engine::tls_files::Named;
use http::core_directives::directive;
use http::cx::{Block, Cx};
use http::module::Conf;
use upstream::ssl::{Fixed, SslDraft};
use upstream::url;

use crate::Otel;
use crate::batches::Limits;
use crate::collector::{Protocol, Target};

pub(crate) const ENDPOINT: Directive<Cx> = directive(
    "endpoint",
    C::OTEL_EXPORTER,
    Args::T1,
    "",
    "The collector: [http[s]://]HOST:PORT for OTLP/gRPC, with a path for OTLP/HTTP.",
    |cx, n| set_once(&mut draft(cx).endpoint, n, |n| Ok(n.arg(0)?.clone())),
);

pub(crate) const TRUSTED_CERTIFICATE: Directive<Cx> = directive(
    "trusted_certificate",
    C::OTEL_EXPORTER,
    Args::T1,
    "the system's",
    "CA certificates for verifying an https:// collector.",
    |cx, n| {
        let named = Named::of(cx, n)?;
        let path = cx.env.conf_path(n.arg(0)?.bytes());
        set_once(&mut draft(cx).trusted, n, |n| readable(n, named, path))
    },
);

pub const HEADER: Directive<Cx> = directive(
    "header",
    C::OTEL_EXPORTER,
    Args::T2,
    "",
    "Adds a header field to requests to the collector.",
    header,
);

pub(crate) const INTERVAL: Directive<Cx> = directive(
    "interval",
    C::OTEL_EXPORTER,
    Args::T1,
    "5s",
    "The maximum time between two exports.",
    |cx, n| set_msec(&mut draft(cx).interval, n),
);

pub(crate) const BATCH_SIZE: Directive<Cx> = directive(
    "batch_size",
    C::OTEL_EXPORTER,
    Args::T1,
    "512",
    "The maximum number of spans in one batch.",
    |cx, n| set_size(&mut draft(cx).size, n),
);

pub(crate) const BATCH_COUNT: Directive<Cx> = directive(
    "batch_count",
    C::OTEL_EXPORTER,
    Args::T1,
    "4",
    "The maximum number of pending batches per worker; spans beyond are dropped.",
    |cx, n| set_size(&mut draft(cx).count, n),
);

/// The directives of the block.
#[derive(Default)]
pub struct Draft {
    endpoint: Option<Word>,
    trusted: Option<Named>,
    headers: Vec<(Bytes, Bytes)>,
    interval: Option<u64>,
    size: Option<usize>,
    count: Option<usize>,
}

impl Conf for Draft {}

/// The configured exporter.
pub struct Exporter {
    pub target: Rc<Target>,
    pub limits: Limits,
}

fn draft(cx: &mut Cx) -> &mut Draft {
    cx.loc::<Draft>()
}

fn readable(n: &Node, named: Named, path: PathBuf) -> Result<Named, ConfError> {
    // Only checks that the file is readable: verification reads it again, and a plaintext collector
    // does not need it.
    match std::fs::read(&path) {
        Ok(_) => Ok(named),
        Err(e) => {
            let (path, e) = (path.display(), base::log::os_error(&e));
            Err(ConfError::at(n.arg(0)?, format!("failed to open \"{path}\" {e}")))
        }
    }
}

fn header(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    // gRPC requires lower-case field names.
    let (name, value) = (n.arg(0)?.bytes().to_ascii_lowercase(), n.arg(1)?.text.clone());
    let of_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(b);
    if name.is_empty() || !name.iter().all(of_name) {
        return Err(ConfError::directive(n, "has invalid header name"));
    }
    if !value.iter().all(|b| (0x20..0x7f).contains(b)) {
        return Err(ConfError::directive(n, "has invalid header value"));
    }
    draft(cx).headers.push((name.into(), value));
    Ok(())
}

pub fn otel_exporter(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.main::<Otel>().exporter.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let mut level = cx.block(n, C::OTEL_EXPORTER, Block::default())?;
    let draft = std::mem::take(level.get::<Draft>());
    let missing = || ConfError::at(&n.name, MISSING);
    let endpoint = draft.endpoint.clone().ok_or_else(missing)?;
    let limits = Limits {
        spans: draft.size.unwrap_or(512),
        batches: draft.count.unwrap_or(4),
        interval_ms: draft.interval.unwrap_or(5_000),
    };
    for (name, value) in [
        ("interval", limits.interval_ms),
        ("batch_size", limits.spans as u64),
        ("batch_count", limits.batches as u64),
    ] {
        if value == 0 {
            let m = format!("\"{name}\" of \"otel_exporter\" must not be 0");
            return Err(ConfError::at(&n.name, m));
        }
    }
    let target = Rc::new(target(cx, &endpoint, draft)?);
    cx.main::<Otel>().exporter = Some(Exporter { target, limits });
    Ok(())
}

const MISSING: &str = "\"otel_exporter\" requires \"endpoint\"";

/// The maximum number of intermediate certificates in a collector's chain.
const DEPTH: u64 = 9;

fn target(cx: &Cx, word: &Word, draft: Draft) -> Result<Target, ConfError> {
    let (is_secured, rest) = match strip(&word.text, b"https://") {
        Some(rest) => (true, rest),
        None => (false, strip(&word.text, b"http://").unwrap_or_else(|| word.text.clone())),
    };
    if rest.is_empty() {
        return Err(ConfError::at(word, MISSING));
    }
    let default_port = if is_secured { 443 } else { 4317 };
    let has_uri = !rest.starts_with(b"unix:");
    let url = url::parse(&rest, default_port, has_uri).map_err(|why| {
        let endpoint = word.lossy();
        ConfError::at(word, format!("{why} in \"endpoint\" \"{endpoint}\" of \"otel_exporter\""))
    })?;
    let protocol = match &url.uri[..] {
        b"" | b"/" => Protocol::Grpc,
        _ => Protocol::Http,
    };
    let path = match protocol {
        Protocol::Grpc => Bytes::new(),
        Protocol::Http if url.uri.starts_with(b"?") => [HTTP_PATH, &url.uri[..]].concat().into(),
        Protocol::Http => url.uri.clone(),
    };
    let authority = match url.addr.as_ref().is_some_and(|addr| addr.is_unix()) {
        true => Bytes::from_static(b"localhost"),
        false => rest.slice(..rest.len() - url.uri.len()),
    };
    let tls =
        if is_secured { Some(tls(cx, word, draft.trusted, &url.host, protocol)?) } else { None };
    Ok(Target {
        shown: word.lossy().into_owned(),
        host: url.host,
        port: url.port,
        addr: url.addr,
        authority,
        path,
        protocol,
        tls,
        headers: draft.headers,
    })
}

fn strip(text: &Bytes, scheme: &[u8]) -> Option<Bytes> {
    let is = base::ascii::starts_with_ignore_case(text, scheme);
    is.then(|| text.slice(scheme.len()..))
}

fn tls(
    cx: &Cx,
    word: &Word,
    trusted: Option<Named>,
    host: &Bytes,
    protocol: Protocol,
) -> Result<Fixed, ConfError> {
    let trusted = match trusted {
        Some(named) => named,
        None => Named::of_system(cx, word, "otel_exporter", "trusted_certificate")?,
    };
    let settings = SslDraft {
        verify: Some(true),
        depth: Some(DEPTH),
        trusted: Some(trusted),
        server_name: Some(true),
        ..SslDraft::default()
    };
    let alpn: &[&str] = match protocol {
        Protocol::Grpc => &["h2"],
        Protocol::Http => &["http/1.1"],
    };
    let tls = Rc::new(settings.finish("otel", alpn)?);
    Fixed::new(&tls, host).map_err(|_| ConfError::at(word, "TLS depends on a request"))
}
