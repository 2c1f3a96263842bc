//! `ntlm`: NTLM and Negotiate authenticate a connection and not a request. From the first request
//! with such credentials on, a client's connection has a connection to one server of its own.

use std::rc::Rc;

use base::ascii::eq_ignore_case;
use bytes::Bytes;
use engine::Client;
use http::request::Request;
use http_wire::h1::FieldId;
use upstream::balance::ServerOutcome;
use upstream::lease::Binding;
use upstream::peer::Peer;
use upstream::pool::Owner;

use super::Exchange;

impl Exchange {
    /// Finds whether the client's connection has servers' connections of its own, and the binding
    /// to its server if so. Streams of HTTP/2 to servers are never shared then.
    #[cold]
    pub(super) fn own_server(&mut self, r: &Request) -> Option<Box<dyn Binding>> {
        let owner = &r.c().owner;
        if is_signing_in(r) {
            owner.get_or_init(Rc::default);
        }
        let owner = owner.get()?.clone();
        if self.protocol.is_stream() {
            self.pool = None;
        }
        self.owner = Some(owner.clone());
        Some(Box::new(OwnServer(owner)))
    }
}

/// Whether the request has credentials that authenticate its connection.
fn is_signing_in(r: &Request) -> bool {
    let Some(value) = r.header(FieldId::Authorization) else { return false };
    let begins = |scheme: &[u8]| {
        value.get(..scheme.len()).is_some_and(|start| eq_ignore_case(start, scheme))
    };
    begins(b"NTLM") || begins(b"Negotiate")
}

/// The server of one client connection.
struct OwnServer(Rc<Owner>);

impl Binding for OwnServer {
    fn bound(&mut self) -> Option<Bytes> {
        self.0.server.borrow().clone()
    }

    fn chosen(&mut self, _: &mut dyn Client, peer: &Peer) {
        self.0.server.replace(Some(peer.sid.clone()));
    }

    fn answered(&mut self, _: &mut dyn Client, _: &Peer) -> Option<Bytes> {
        None
    }

    fn done(&mut self, _: &Peer, outcome: ServerOutcome) {
        if outcome == ServerOutcome::Failed {
            self.0.server.replace(None);
        }
    }
}
