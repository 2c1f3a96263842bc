//! The directives of the proxy.

use ::conf::table::{Args, Contexts as C, Directive, join, named};
use ::conf::template::Template;
use ::conf::value::{self, set_flag, set_msec, set_num, set_once, set_size};
use ::conf::{ConfError, Node};
use bytes::Bytes;
use engine::min_rate::MinRate;
use engine::settings::{ConfType, Scope};
use upstream::socket::Bind;
use upstream::ssl::SslDraft;
use upstream::ssl_directives::{self, Place};
use upstream::{Upstreams, url};

use super::conf::{Pass, ProxyDraft, headers};
use crate::module::{Cx, Module};
use crate::module::{SS, set_content};
use crate::session::StreamSession;
use ::conf::table::directive;

/// The module's table.
pub static MODULE: Module = Module {
    name: "proxy",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<ProxyDraft>(Scope::Server), ConfType::of::<Pass>(Scope::Server)],
    install: Some(super::install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &join::<_, { OWN.len() + TLS.len() }>(&[OWN, TLS]);

/// Where the `proxy_ssl_…` directives store their values.
struct Servers;

impl Place<StreamSession> for Servers {
    fn draft(cx: &mut Cx) -> &mut SslDraft {
        &mut draft(cx).ssl
    }
}

const TLS: &[Directive<Cx>] = &named::<Cx, { ssl_directives::COUNT }>(
    &upstream::ssl_names!("proxy"),
    &[&ssl_directives::directives::<StreamSession, Servers>(SS)],
);

const OWN: &[Directive<Cx>] = &[
    directive("proxy_ssl", SS, Args::FLAG, "off", "Uses TLS to the upstream.", |cx, n| {
        set_flag(&mut draft(cx).ssl_on, n)
    }),
    directive(
        "proxy_ssl_alpn",
        SS,
        Args::ONE_MORE,
        "",
        "The protocols offered to the upstream by ALPN.",
        |cx, n| {
            if let Some(w) = n.args.iter().find(|w| !(1..=255).contains(&w.bytes().len())) {
                return Err(ConfError::at(w, "protocol too long"));
            }
            let names = n.args.iter().map(|w| cx.template(w)).collect::<Result<Vec<_>, _>>()?;
            set_once(&mut draft(cx).ssl_alpn, n, |_| Ok(names))
        },
    ),
    directive(
        "proxy_pass",
        C::STREAM_SERVER,
        Args::T1,
        "",
        "The upstream server or group to which sessions are proxied.",
        set_pass,
    ),
    directive(
        "proxy_bind",
        SS,
        Args::T12,
        "off",
        "The local address for upstream connections; `transparent` uses a client's address.",
        |cx, n| {
            let bind = Bind::parse(cx, n)?;
            set_once(&mut draft(cx).bind, n, |_| Ok(bind))
        },
    ),
    directive(
        "proxy_connect_timeout",
        SS,
        Args::T1,
        "60s",
        "The timeout for connecting to an upstream server.",
        |cx, n| set_msec(&mut draft(cx).connect_timeout, n),
    ),
    directive(
        "proxy_timeout",
        SS,
        Args::T1,
        "10m",
        "Closes a session after this time without data in either direction.",
        |cx, n| set_msec(&mut draft(cx).timeout, n),
    ),
    directive(
        "proxy_min_rate",
        SS,
        Args::T12,
        "off",
        "A session's minimum rate in bytes per second, and the maximum pause. Weir's own.",
        |cx, n| set_once(&mut draft(cx).min_rate, n, MinRate::parse),
    ),
    directive(
        "proxy_buffer_size",
        SS,
        Args::T1,
        "16k",
        "The buffer size for reading from the client and from the upstream.",
        set_buffer_size,
    ),
    directive(
        "proxy_downstream_buffer",
        SS,
        Args::T1,
        "16k",
        "The former name of proxy_buffer_size.",
        set_buffer_size,
    ),
    directive(
        "proxy_upstream_buffer",
        SS,
        Args::T1,
        "16k",
        "The former name of proxy_buffer_size.",
        set_buffer_size,
    ),
    directive(
        "proxy_upload_rate",
        SS,
        Args::T1,
        "0",
        "The rate limit for reading from the client, in bytes per second; 0 is no limit.",
        |cx, n| set_rate(cx, n, |draft| &mut draft.upload_rate),
    ),
    directive(
        "proxy_download_rate",
        SS,
        Args::T1,
        "0",
        "The rate limit for reading from the upstream, in bytes per second; 0 is no limit.",
        |cx, n| set_rate(cx, n, |draft| &mut draft.download_rate),
    ),
    directive(
        "proxy_bind_dynamic",
        SS,
        Args::FLAG,
        "off",
        "Evaluates the address of proxy_bind anew for each server that is tried.",
        |cx, n| set_flag(&mut draft(cx).bind_dynamic, n),
    ),
    directive(
        "proxy_session_drop",
        SS,
        Args::FLAG,
        "off",
        "Ends the sessions of a server that is removed from its group, down or unhealthy.",
        |cx, n| set_flag(&mut draft(cx).session_drop, n),
    ),
    directive(
        "proxy_half_close",
        SS,
        Args::FLAG,
        "off",
        "Keeps one direction of a TCP session open after the other one is closed.",
        |cx, n| set_flag(&mut draft(cx).half_close, n),
    ),
    directive(
        "proxy_next_upstream",
        SS,
        Args::FLAG,
        "on",
        "Tries the next server if a connection cannot be established.",
        |cx, n| set_flag(&mut draft(cx).next_upstream, n),
    ),
    directive(
        "proxy_next_upstream_tries",
        SS,
        Args::T1,
        "0",
        "The maximum number of servers to try; 0 is no limit.",
        |cx, n| set_num(&mut draft(cx).next_upstream_tries, n),
    ),
    directive(
        "proxy_next_upstream_timeout",
        SS,
        Args::T1,
        "0",
        "The time limit for trying further servers; 0 is no limit.",
        |cx, n| set_msec(&mut draft(cx).next_upstream_timeout, n),
    ),
    directive(
        "proxy_protocol",
        SS,
        Args::T12,
        "off",
        "Sends a PROXY protocol header to the upstream: on (version 1), or v2 (binary); over UDP \
         with the first datagram, or each one (`every_datagram`).",
        |cx, n| set_once(&mut draft(cx).protocol, n, headers),
    ),
    directive(
        "proxy_requests",
        SS,
        Args::T1,
        "0",
        "The number of client datagrams per UDP session; the next one starts another session.",
        |cx, n| set_num(&mut draft(cx).requests, n),
    ),
    directive(
        "proxy_responses",
        SS,
        Args::T1,
        "",
        "The number of datagrams expected in reply to one client datagram; then the session ends.",
        |cx, n| set_num(&mut draft(cx).responses, n),
    ),
    directive(
        "proxy_socket_keepalive",
        SS,
        Args::FLAG,
        "off",
        "Enables TCP keepalive (SO_KEEPALIVE) on upstream connections.",
        |cx, n| set_flag(&mut draft(cx).keepalive, n),
    ),
    directive(
        "proxy_socket_rcvbuf",
        SS,
        Args::T1,
        "",
        "The socket receive buffer of upstream connections (SO_RCVBUF).",
        |cx, n| set_size(&mut draft(cx).rcvbuf, n),
    ),
    directive(
        "proxy_socket_sndbuf",
        SS,
        Args::T1,
        "",
        "The socket send buffer of upstream connections (SO_SNDBUF).",
        |cx, n| set_size(&mut draft(cx).sndbuf, n),
    ),
];

fn draft(cx: &mut Cx) -> &mut ProxyDraft {
    cx.loc::<ProxyDraft>()
}

fn set_buffer_size(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_size(&mut draft(cx).buffer_size, n)
}

fn set_rate(
    cx: &mut Cx,
    n: &Node,
    slot: fn(&mut ProxyDraft) -> &mut Option<Option<Template>>,
) -> Result<(), ConfError> {
    let template = cx.template(n.arg(0)?)?;
    let is_off = template.as_const().is_some() && value::size(n, 0)? == 0;
    set_once(slot(draft(cx)), n, |_| Ok((!is_off).then_some(template)))
}

fn set_pass(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_content(cx, n, "proxy_pass")?;
    let word = n.arg(0)?;
    let template = cx.template(word)?;
    let pass = match template.as_const() {
        None => Pass { address: Some(template), ..Pass::default() },
        Some(text) => {
            let url = url::parse(&Bytes::copy_from_slice(text), 0, false).map_err(|e| {
                ConfError::at(word, format!("{e} in upstream \"{}\"", word.lossy()))
            })?;
            let host = url.host.clone();
            let group = Some(cx.main::<Upstreams>().refer(url, word));
            Pass { group, address: None, host }
        }
    };
    *cx.loc::<Pass>() = pass;
    Ok(())
}
