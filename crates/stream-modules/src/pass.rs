//! `pass`: gives a connection to another socket of the configuration, of any engine, as if its
//! client had connected there.

use base::future::boxed;
use base::log::{Level, lossy};
use bytes::Bytes;
use common_modules::passing::{self, PASSES_MAX};
use conf::table::{Args, Contexts as C, Directive, directive};
use conf::template::Template;
use conf::{ConfError, Node};
use engine::settings::Conf;
use engine::{Client, Session};
use os::SockAddr;
use stream::content::statuses;
use stream::module::{Content, Served, set_content};
use stream::{Cx, Module, Pipeline, StreamSession, View};
use upstream::url;

/// The module's table.
pub static MODULE: Module = Module::of::<Pass>("pass", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "pass",
    C::STREAM_SERVER,
    Args::T1,
    "",
    "Passes the connection directly to another listening socket, of `http`, `stream` or `mail`.",
    set_pass,
)];

#[derive(Default)]
struct Pass {
    to: Option<Template>,
}

impl Conf for Pass {}

fn set_pass(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_content(cx, n, "pass")?;
    cx.set_template(n, |conf: &mut Pass| &mut conf.to)?;
    if let Some(text) = cx.loc::<Pass>().to.as_ref().and_then(Template::as_const) {
        address(text).map_err(|why| {
            let text = lossy(text);
            ConfError::directive(n, format_args!("has {why} in \"{text}\""))
        })?;
    }
    Ok(())
}

/// The address of a connection's next socket; names are not looked up.
fn address(text: &Bytes) -> Result<SockAddr, &'static str> {
    let url = url::parse(text, 0, false)?;
    match url.addr {
        Some(addr) if addr.is_unix() || !url.no_port => Ok(addr),
        Some(_) => Err("no port"),
        None => Err("no addresses"),
    }
}

struct To(Template);

impl Content for To {
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a> {
        boxed(|| async { self.pass(s) })
    }
}

impl To {
    fn pass(&self, s: &mut StreamSession) -> u16 {
        let failed = |s: &StreamSession, m: std::fmt::Arguments<'_>| {
            s.log(Level::Error, format_args!("{m} while passing connection to port"));
            statuses::INTERNAL
        };
        if s.is_udp() {
            return failed(s, format_args!("cannot pass udp connection"));
        }
        let text = s.eval(&self.0);
        let addr = match address(&text) {
            Ok(addr) => addr,
            Err(why) => return failed(s, format_args!("{why} in pass \"{}\"", lossy(&text))),
        };
        s.debug(format_args!("stream pass addr: \"{addr}\""));
        if s.passes() >= PASSES_MAX {
            return failed(s, format_args!("stream pass cycle"));
        }
        let Some(recipient) = passing::to(&addr) else {
            failed(s, format_args!("port not found for \"{addr}\""));
            return statuses::OK;
        };
        if recipient.wants_tls() && s.established().is_some() {
            let m = format_args!("TLS with the client was ended here, and \"{addr}\" expects it");
            return failed(s, m);
        }
        if let Some(passed) = s.hand_over(addr) {
            recipient.take(passed);
        }
        statuses::OK
    }
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if view.info.content == "pass"
        && let Some(to) = &view.conf::<Pass>().to
    {
        p.content = Some(Box::new(To(to.clone())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers_with_a_port_or_paths() {
        let of = |text: &'static str| {
            address(&Bytes::from_static(text.as_bytes())).map(|addr| addr.to_string())
        };
        assert_eq!(of("127.0.0.1:80"), Ok("127.0.0.1:80".to_owned()));
        assert_eq!(of("[::1]:80"), Ok("[::1]:80".to_owned()));
        assert_eq!(of("unix:/a/b"), Ok("unix:/a/b".to_owned()));
        assert_eq!(of("127.0.0.1"), Err("no port"));
        assert_eq!(of("localhost:80"), Err("no addresses"));
        assert_eq!(of("127.0.0.1:x"), Err("invalid port"));
        assert_eq!(of("127.0.0.1:80/a"), Err("invalid host"));
    }
}
