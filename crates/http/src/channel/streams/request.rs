//! Requests whose heads came as fields.

use base::log::Level;
use http_wire::fields::request::{Asked, NoHead, Refusal, as_upgrade};
use http_wire::h1::{Head, Method};

use crate::request::Request;

/// Says how the request of a head is refused, if it is. One that asks for WebSocket becomes what it
/// is over HTTP/1, an upgrade.
///
/// # Errors
/// The head is larger than any that is taken.
pub(crate) fn refusal(
    asked: Result<Asked, NoHead>,
    head: &mut Head,
    text: &mut Vec<u8>,
) -> Result<Option<Refusal>, &'static str> {
    match asked {
        Ok(Asked::Nothing) => Ok(None),
        Ok(Asked::WebSocket) => {
            as_upgrade(head, text, &websocket_key());
            Ok(None)
        }
        Ok(Asked::Unknown) => Ok(Some(Refusal {
            status: 501,
            text: "client asked for an unknown protocol".to_owned(),
        })),
        Err(NoHead::Refused(refusal)) => Ok(Some(refusal)),
        Err(NoHead::Excess(what)) => Err(what),
    }
}

/// A key for the opening handshake of WebSocket.
fn websocket_key() -> Vec<u8> {
    let mut bytes = [0; 16];
    os::random::fill(&mut bytes);
    let mut key = Vec::new();
    base::base64::encode(&bytes, &mut key);
    key
}

/// Whether the bytes behind the head are no body, but another protocol.
pub(crate) fn is_tunnel(head: &Head) -> bool {
    head.method == Method::Connect || head.connection.upgrade
}

/// Logs how a request is refused; gives the status to answer with.
pub(crate) fn refused(r: &mut Request, refusal: Refusal) -> u16 {
    r.target.method = r.head.method;
    let m = &refusal.text;
    r.log(Level::Info, format_args!("{m} while reading client request headers"));
    refusal.status
}
