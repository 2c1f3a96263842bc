//! Response heads as compressed fields.

use base::log::Level;
use http_wire::compression::FieldEncoder;
use http_wire::fields::LeftOut;
use http_wire::h1::write_value;

use super::Multiplexed;
use super::exchange::HeadState;
use crate::channel::head::{FieldSink, Name, settle_body};
use crate::output::Body;
use crate::request::Request;

/// Begins the response. Says whether a body follows.
pub(crate) fn start<S: Multiplexed>(r: &mut Request) -> bool {
    let has_body = settle_body(r);
    let is_upgraded = matches!(r.out.body, Body::Upgraded(_));
    r.flags.header_sent = true;
    let exchange = S::of(r).exchange();
    (exchange.is_upgraded, exchange.has_body) = (is_upgraded, has_body);
    exchange.head = HeadState::Begun;
    has_body
}

/// The status of the response: an upgrade of HTTP/1 succeeds with 101, one of HTTP/2 (RFC 8441) or
/// HTTP/3 (RFC 9220) with 200.
pub(crate) fn status<S: Multiplexed>(r: &mut Request) -> u16 {
    if S::of(r).exchange().is_upgraded { 200 } else { r.status() }
}

/// The lines of the response's own `Priority` field (RFC 9218 section 5).
pub(crate) fn priority(r: &Request) -> impl Iterator<Item = &[u8]> {
    let fields = r.out.headers.iter();
    let fields = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"priority"));
    fields.map(|(_, value)| &value[..])
}

/// Usual fields of responses that only HTTP/1 has (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
fn is_of_connection(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"sec-websocket-accept",
        b"transfer-encoding",
        b"upgrade",
    ];
    NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Logs the fields that a response goes without.
#[inline]
pub(crate) fn log_left_out(r: &Request, left_out: &LeftOut) {
    for line in left_out.lines() {
        r.log(Level::Error, format_args!("response header {line}"));
    }
}

/// Removes the trailers that clients would discard the response for, and logs them.
pub(crate) fn check_trailers(r: &mut Request) {
    let mut left_out = LeftOut::default();
    r.out.trailers.retain(|(name, value)| left_out.checks_raw(name, value));
    log_left_out(r, &left_out);
}

/// Fields for the encoder of a protocol.
pub(crate) struct Block<'a, E> {
    pub encoder: &'a mut E,
    pub out: &'a mut Vec<u8>,
    pub scratch: &'a mut Vec<u8>,
    pub left_out: LeftOut,
}

impl<E: FieldEncoder> FieldSink for Block<'_, E> {
    #[inline]
    fn made(&mut self, name: &'static Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        write(self.scratch);
        // A content type, for one, may be an upstream's.
        if self.left_out.checks(name.lower, self.scratch) {
            self.encoder.field(name.lower, self.scratch.trim_ascii(), self.out);
        }
    }

    fn given(&mut self, name: &[u8], value: &[u8]) {
        if is_of_connection(name) {
            return;
        }
        self.scratch.clear();
        // No value begins or ends with a space (RFC 9113 section 8.2.1).
        write_value(self.scratch, value.trim_ascii());
        if self.left_out.checks(name, self.scratch) {
            self.encoder.field(name, self.scratch, self.out);
        }
    }

    fn framing(&mut self, _: &Request) {}
}
