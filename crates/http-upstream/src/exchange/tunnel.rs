//! A request by which the client's connection becomes another protocol's, over a stream: an
//! extended CONNECT (RFC 8441) where the server takes such, the request as it is elsewhere.

use base::log::Level;
use bytes::Bytes;
use event::{Deadline, Either, race_if};
use http::channel::ClientEnd;
use http::request::Request;
use proto::fields::websocket;
use upstream::h2::Stream;

use super::Exchange;
use crate::failure::{Stop, client_gone, timed_out};

/// The words of log lines.
const DOING: &str = "reading settings of upstream";

impl Exchange {
    /// Begins the stream once the server's parameters are known: with `connect`, or with `list`
    /// where it does not take that.
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

    /// The final answer to it came: the tunnel stands, or it is a response like others. Gives the
    /// text of its fields.
    pub(super) fn answered_connect(&mut self, r: &mut Request, text: Bytes) -> Bytes {
        let mut head = std::mem::take(&mut r.upstream_mut().head);
        self.connects = websocket::is_accepted(head.status);
        let text = match self.connects {
            true => self.protocol.connected(r, &mut head, text),
            false => text,
        };
        r.upstream_mut().head = head;
        text
    }
}
