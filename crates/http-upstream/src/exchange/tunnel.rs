//! Protocol switches over an upstream stream: an extended CONNECT (RFC 8441) if the server supports
//! it, otherwise the plain request.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use event::{Deadline, Either, race_if};
use http::channel::ClientEnd;
use http::request::Request;
use http_wire::fields::websocket;
use http_wire::h1::{FieldId, Version};
use sha1::{Digest, Sha1};
use upstream::h2::Stream;

use super::Exchange;
use crate::conf::next;
use crate::failure::{Stop, client_gone, timed_out};

/// What log messages say is in progress.
const DOING: &str = "reading settings of upstream";

impl Exchange {
    /// Opens the stream once the server's SETTINGS have arrived: with `connect`, or with `list` if
    /// the server does not support extended CONNECT.
    pub(super) async fn begin_connect(
        &mut self,
        r: &mut Request,
        stream: &Stream,
        list: &[u8],
        connect: &[u8],
    ) -> Result<(), Stop> {
        let watch = self.client(r);
        let greeted = stream.takes_connect(Deadline::in_ms(self.conf.read_timeout));
        let takes =
            match race_if(std::pin::pin!(greeted), watch.as_ref().map(ClientEnd::gone)).await {
                Either::First(Ok(takes)) => takes,
                Either::First(Err(_)) => return Err(timed_out(r, DOING)),
                Either::Second(_) => return Err(client_gone(r, DOING)),
            };
        if takes {
            self.connects = true;
            return self.begin_stream(r, stream, connect, false);
        }
        let m =
            "upstream does not take WebSocket over HTTP/2 (RFC 8441), asking without an upgrade";
        r.log(Level::Warn, format_args!("{m}"));
        self.begin_stream(r, stream, list, self.body.is_sent())
    }

    /// Checks a response that switches protocols: the new protocol must be one that was requested
    /// of the server (RFC 9110 section 7.8), and by the client. Over a stream the WebSocket key is
    /// ours, so that we must check its response (RFC 6455 section 4.1).
    ///
    /// # Errors
    /// The switch is invalid.
    pub(super) fn check_switch(&self, r: &mut Request) -> Result<(), Stop> {
        let asked = match r.head.fields.has(FieldId::Upgrade) {
            true => self.protocol.asked_upgrade(r).unwrap_or_default(),
            false => Bytes::new(),
        };
        let is_stream = r.head.version >= Version::HTTP_20;
        let key = is_stream.then(|| websocket_accept(r));
        let u = r.upstream_mut();
        let value = |name: &[u8]| {
            let f = u.head.fields.iter().find(|f| f.name.of(&u.text).eq_ignore_ascii_case(name));
            f.map(|f| f.value.of(&u.text))
        };
        let protocol = value(b"upgrade");
        // If the server names no protocol, an HTTP/1 client notices that itself.
        let is_asked = match protocol {
            Some(protocol) => tokens(&asked).any(|own| own.eq_ignore_ascii_case(protocol)),
            None => !is_stream && !asked.is_empty(),
        };
        let fault = match key {
            _ if !is_asked => "a switch to a protocol that was not asked for",
            Some(key) if value(b"sec-websocket-accept") != Some(&key) => {
                "invalid \"Sec-WebSocket-Accept\""
            }
            _ => return Ok(()),
        };
        let m = format_args!("upstream sent {fault} while reading response header from upstream");
        r.log(Level::Error, m);
        Err(Stop::Next(next::INVALID_HEADER))
    }

    /// The final response to CONNECT has arrived: either the tunnel is established, or it is a
    /// normal response. Returns the text of its fields.
    pub(super) fn answered_connect(&mut self, r: &mut Request, text: Bytes) -> Bytes {
        let mut head = r.upstream_mut().head.clone();
        self.connects = websocket::is_accepted(head.status);
        let text = match self.connects {
            true => self.protocol.connected(r, Rc::make_mut(&mut head), text),
            false => text,
        };
        r.upstream_mut().head = head;
        text
    }
}

/// The elements of a comma-separated list.
fn tokens(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// `Sec-WebSocket-Accept` for a request's key (RFC 6455 section 4.2.2).
pub fn websocket_accept(r: &Request) -> Vec<u8> {
    let key = r.head.fields.get(FieldId::SecWebSocketKey).filter(|f| !f.dropped);
    accept(key.map_or(b"", |f| f.value.of(r.head_bytes())))
}

fn accept(key: &[u8]) -> Vec<u8> {
    const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = Sha1::new().chain_update(key).chain_update(SUFFIX).finalize();
    let mut text = Vec::new();
    base::base64::encode(&digest, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
