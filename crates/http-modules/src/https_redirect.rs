//! `https_redirect`: plain requests are sent to the same place under TLS. Challenges of ACME are
//! answered before that.

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::set_once;
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;

/// The module's table.
pub static MODULE: Module = Module::of::<HttpsRedirect>("https_redirect", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "https_redirect",
    C::HTTP.or(C::SERVER),
    Args::T1,
    "off",
    "Redirects plain HTTP requests to HTTPS: on, off, or the HTTPS port.",
    |cx, n| set_once(&mut cx.loc::<HttpsRedirect>().0, n, port),
)];

engine::settings! {
    /// The port of redirects; 0 for none.
    struct HttpsRedirect(Option<u16>);
}

/// The port that URLs of `https` need not name.
const DEFAULT_PORT: u16 = 443;

fn port(n: &Node) -> Result<u16, ConfError> {
    let word = n.arg(0)?;
    match word.bytes() {
        b"on" => Ok(DEFAULT_PORT),
        b"off" => Ok(0),
        text => {
            let port = base::ascii::parse_u64(text).and_then(|port| u16::try_from(port).ok());
            port.filter(|port| *port > 0).ok_or_else(|| {
                let m =
                    format!("invalid value \"{}\", it is none of on, off and a port", word.lossy());
                ConfError::at(word, m)
            })
        }
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(port @ 1..) = l.conf::<HttpsRedirect>().0 {
        p.server_rewrite.push(Box::new(Redirect { port }));
    }
    Ok(())
}

struct Redirect {
    port: u16,
}

impl PhaseHandler for Redirect {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Now(if r.is_secured() { Verdict::Next } else { self.redirect(r) })
    }
}

impl Redirect {
    fn redirect(&self, r: &mut Request) -> Verdict {
        // A request of HTTP/1.0 without a name, to a server without one.
        let host: &[u8] = if r.target.host.is_empty() { &r.server.name } else { &r.target.host };
        if host.is_empty() {
            return Verdict::Status(400);
        }
        let mut to = [b"https://", host].concat();
        if self.port != DEFAULT_PORT {
            to.push(b':');
            base::ascii::write_u64(&mut to, self.port.into());
        }
        // `OPTIONS *` is for no place.
        match r.unparsed_uri() {
            uri if uri.starts_with(b"/") => to.extend_from_slice(uri),
            _ => to.push(b'/'),
        }
        r.out.location = Some(Bytes::from(to));
        // Other methods are to be kept, which clients do for 308 alone (RFC 9110 section 15.4.2).
        let is_read = r.method_is(&[Method::Get, Method::Head]);
        Verdict::Status(if is_read { 301 } else { 308 })
    }
}
