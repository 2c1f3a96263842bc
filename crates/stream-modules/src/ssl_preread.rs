//! `ssl_preread`: the facts of a client's hello, whose TLS is passed through.

use common_modules::connection_vars::write_some;
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Directive};
use conf::value::set_flag;
use engine::Session;
use proto::tls_hello::{self, ClientHello, LooseHello, Verdict as Parsed};
use std::cell::OnceCell;
use stream::module::SS;
use stream::module::{Preread, VarDef};
use stream::{Cx, Module, Pipeline, StreamSession, View};

/// The module's table.
pub static MODULE: Module = Module {
    variables: VARIABLES,
    ..Module::of::<PrereadConf>("ssl_preread", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "ssl_preread",
    SS,
    Args::FLAG,
    "off",
    "Reads the ClientHello in the preread phase, without terminating TLS.",
    |cx, n| set_flag(&mut cx.loc::<PrereadConf>().on, n),
)];

static VARIABLES: &[VarDef] = &[
    VarDef::new("ssl_preread_protocol", |s, out| {
        let seen = s.shared::<Seen>();
        write_some(out, seen.0.get().map(|facts| facts.protocol.as_bytes()))
    }),
    VarDef::new("ssl_preread_server_name", |s, out| {
        let seen = s.shared::<Seen>();
        write_some(out, seen.0.get().map(|facts| &facts.server_name[..]))
    }),
    VarDef::new("ssl_preread_alpn_protocols", |s, out| {
        let seen = s.shared::<Seen>();
        write_some(out, seen.0.get().map(|facts| &facts.alpn[..]))
    }),
];

engine::settings! {
    struct PrereadConf {
        on: Option<bool>,
    }
}

/// The facts of a session's hello, once it was seen.
#[derive(Default)]
struct Seen(OnceCell<Facts>);

#[derive(Default, PartialEq, Eq, Debug)]
struct Facts {
    protocol: &'static str,
    server_name: Vec<u8>,
    /// Names with commas between them.
    alpn: Vec<u8>,
}

impl Facts {
    fn of(hello: &ClientHello<'_>) -> Facts {
        Facts {
            protocol: version_name(hello.version_max().unwrap_or_else(|| {
                // Drafts of TLS 1.3 had numbers of their own.
                let is_draft = hello.supported_versions().any(|version| version >> 8 == 0x7f);
                if is_draft { 0x0304 } else { hello.legacy_version() }
            })),
            server_name: hello.server_name().unwrap_or_default().to_ascii_lowercase(),
            alpn: joined(hello.alpn()),
        }
    }

    fn of_loose(hello: &LooseHello) -> Facts {
        Facts {
            protocol: version_name(hello.version),
            server_name: hello.server_name.to_ascii_lowercase(),
            alpn: joined(hello.alpn.iter().map(|name| &name[..])),
        }
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names {
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(name);
    }
    out
}

fn version_name(version: u16) -> &'static str {
    match version {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "",
    }
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if view.conf::<PrereadConf>().on == Some(true) {
        p.preread.push(Box::new(look));
    }
    Ok(())
}

fn look(s: &mut StreamSession, bytes: &[u8]) -> Preread {
    if s.is_udp() {
        return Preread::Done;
    }
    let facts = match tls_hello::parse(bytes) {
        Parsed::Incomplete { .. } => return Preread::More,
        Parsed::Hello(hello) => Facts::of(&hello),
        // Whatever else it is, it is passed on.
        Parsed::NotTls | Parsed::Malformed(_) => match tls_hello::loose(bytes) {
            Some(hello) => Facts::of_loose(&hello),
            None => return Preread::Done,
        },
    };
    s.choose_server(&facts.server_name);
    let _ = s.shared::<Seen>().0.set(facts);
    Preread::Done
}
