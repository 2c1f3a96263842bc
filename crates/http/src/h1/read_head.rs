//! Reading a request's head: the limits on it, and a head that comes in pieces.

use std::rc::Rc;

use engine::names::ServerNames;
use http_wire::h1::{HeadParser, Limits, Step};

use super::stream;
use crate::channel::conn::Conn;
use crate::request::Request;
use crate::server::Server;
/// Reads on in the head. Once the host is known, its virtual server's limits hold, where servers of
/// the address differ in them.
#[inline]
pub(super) fn parse(c: &Conn, parser: &mut HeadParser, r: &mut Request, limits: &Limits) -> Step {
    let names = match &c.listen.names {
        Some(names) if c.listen.differ => names,
        _ => return parser.parse(r.client.channel.head_text(), limits, &mut r.head),
    };
    if names.has_regexes() {
        return parse_and_match(names, parser, r, limits);
    }
    parser.parse_with(r.client.channel.head_text(), limits, &mut r.head, |host, buf| {
        let name = host.name.of(buf).to_ascii_lowercase();
        names.find_text(&name).map(|s| s.core.head_limits())
    })
}

/// The same where names are regular expressions, which are matched on behalf of the request.
#[cold]
fn parse_and_match(
    names: &ServerNames<Rc<Server>>,
    parser: &mut HeadParser,
    r: &mut Request,
    limits: &Limits,
) -> Step {
    let (input, mut head) = (std::mem::take(&mut stream(r).input), std::mem::take(&mut r.head));
    let step = parser.parse_with(input.filled(), limits, &mut head, |host, buf| {
        let name = host.name.of(buf).to_ascii_lowercase();
        // If a match is given up here, the request is refused when its server is looked up again.
        let found = names.find(&name, r).ok().flatten();
        found.map(|s| s.core.head_limits())
    });
    (stream(r).input, r.head) = (input, head);
    step
}
