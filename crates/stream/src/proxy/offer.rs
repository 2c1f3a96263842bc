//! Offering a TCP session that rests to other processes: see [`net::moves`].

use std::rc::Rc;

use base::time::now_ms;
use bytes::Bytes;
use common_modules::connection_vars::Connected;
use common_modules::moved::Texts;
use common_modules::ssl::Established;
use engine::vars;
use net::Transport;
use net::moves::{Stay, Turn};
use net::transport::SealedCopy;
use proto::handover::{self, Leased, Message};

use super::resumed::Rest;
use crate::session::StreamSession;

/// Offers a session that rests to other processes. Returns whether one serves it from here on.
pub(super) async fn offer(
    s: &mut StreamSession,
    turn: Turn,
    group: &Bytes,
    (client, server): (&Transport, &Transport),
    rest: &Rest,
) -> bool {
    let described = can_move(s).and_then(|()| {
        let local = client.local_addr().map_err(|_| Stay::State)?;
        Ok((local, client.copy_session()?, server.copy_session()?))
    });
    let (local, client_tls, server_tls) = match described {
        Ok(described) => described,
        Err(why) => {
            turn.stays(why);
            return false;
        }
    };
    let values = vars::carried(s);
    let ends = (&s.listen.addr, &local, &s.peer);
    let texts = Texts::new(ends, s.real_peer(), s.proxy_header());
    let (up, down) = (rest.up.copy(), rest.down.copy());
    let message = Message::Session(Box::new(handover::Session {
        client: texts.client(
            (s.number, s.start_ms, 0, s.moved_in()),
            s.proxy_header(),
            (
                client_tls.as_ref().map(SealedCopy::sealed),
                s.established().and_then(Established::described),
            ),
        ),
        server: (!Rc::ptr_eq(&s.server, &s.listen.default)).then_some(&s.server.name),
        values: values.iter().map(|(name, value)| (&name[..], value.as_deref())).collect(),
        bytes: (s.received.get(), s.sent.get()),
        attempts: s.exchanges.described(),
        leased: Leased { group, server: s.exchanges.peer().map_or(b"", |name| name) },
        server_tls: server_tls.as_ref().map(SealedCopy::sealed),
        up: up.way(rest.closed[0]),
        down: down.way(rest.closed[1]),
        silent_ms: now_ms().saturating_sub(rest.moved_ms),
    }));
    match turn.offer(&message, &[client.descriptor(), server.descriptor()]).await {
        Ok(offered) => offered.give_up(),
        Err(_) => false,
    }
}

fn can_move(s: &StreamSession) -> Result<(), Stay> {
    match s {
        s if !s.server.core.handover => Err(Stay::Off),
        // The limits of the engine before hold it, too.
        s if s.passes() > 0 => Err(Stay::State),
        _ => Ok(()),
    }
}
