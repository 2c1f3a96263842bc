//! Sessions whose clients are logged in move to another process, and come from one: see
//! [`net::moves`]. The receiver's server is that of the listening address, if it speaks the same
//! protocol. Nobody is asked again who the client is.

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use bytes::Bytes;
use common_modules::moved::{self, Addresses, Texts};
use common_modules::ssl::Established;
use engine::Client;
use event::Sock;
use net::Transport;
use net::moves::{self, Kind, Moves, Ready, Stay, Taker, Turn};
use net::relay::Resting;
use net::transport::SealedCopy;
use proto::handover::{Mail, Message, Refusal};

use crate::accept;
use crate::relay::Relayed;
use crate::server::MailMain;
use crate::session::MailSession;

/// Offers a session that rests to other processes. Returns whether one serves it from here on.
pub(crate) async fn offer(
    s: &MailSession,
    turn: Turn,
    (client, server): (&Transport, &Transport),
    (up, down): (&Resting, &Resting),
    moved_ms: u64,
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
    let ends = (&s.listen.addr, &local, &s.peer);
    let texts = Texts::new(ends, s.real_peer(), s.proxy.as_deref());
    let (up, down) = (up.copy(), down.copy());
    let tls =
        (client_tls.as_ref().map(SealedCopy::sealed), s.tls().and_then(Established::described));
    let message = Message::Mail(Box::new(Mail {
        client: texts.client((s.number, now_ms(), 0, s.moved_in), s.proxy.as_deref(), tls),
        protocol: s.server.dialogue.protocol.name().as_bytes(),
        login: &s.login,
        upstream: s.upstream.as_deref(),
        is_starttls: s.is_starttls,
        server_tls: server_tls.as_ref().map(SealedCopy::sealed),
        up: up.way(false),
        down: down.way(false),
        silent_ms: now_ms().saturating_sub(moved_ms),
    }));
    match turn.offer(&message, &[client.descriptor(), server.descriptor()]).await {
        Ok(offered) => offered.give_up(),
        Err(()) => false,
    }
}

fn can_move(s: &MailSession) -> Result<(), Stay> {
    match s {
        s if !s.server.core.handover => Err(Stay::Off),
        // The limits of the engine before hold it, too.
        s if s.is_passed => Err(Stay::State),
        _ => Ok(()),
    }
}

/// Takes sessions into this worker's configuration.
struct Sessions(Weak<MailMain>);

/// Has this worker take sessions.
pub(crate) fn register(main: &Rc<MailMain>, moves: &Moves) {
    moves.take_by(Kind::Mail, Rc::new(Sessions(Rc::downgrade(main))));
}

impl Taker for Sessions {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let Message::Mail(mail) = message else { return Err(Refusal::Version) };
        let [client, server] = moves::ends(fds)?;
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let (address, Addresses { local, peer, real_peer }) =
            moved::address_of(&main.listens, &mail.client)?;
        let is_same = address.default.dialogue.protocol.name().as_bytes() == mail.protocol;
        if !is_same || address.ssl && mail.client.tls.is_none() {
            return Err(Refusal::Configuration);
        }
        if !address.default.core.handover {
            return Err(Refusal::Off);
        }
        let of_client = mail.client.tls.as_ref();
        let (client, client_session) = Transport::resumed(Sock::of_client(client), of_client)?;
        let of_server = mail.server_tls.as_ref();
        let (server, server_session) = Transport::resumed(Sock::of_server(server), of_server)?;
        let mut s = MailSession::new(&main, address, peer, Some(local), client);
        s.number = mail.client.number;
        s.moved_in = main.stats.run();
        s.login = Bytes::copy_from_slice(mail.login);
        s.upstream = mail.upstream.map(Bytes::copy_from_slice);
        s.is_starttls = mail.is_starttls;
        if let Some(real) = real_peer {
            s.set_real_peer(real);
        }
        s.proxy = match &mail.client.proxy {
            Some(header) => Some(moved::header(header).ok_or(Refusal::Other)?),
            None => None,
        };
        if let Some(handshake) = &mail.client.handshake
            && let Ok(tls) = Established::resumed(s.server.tls.clone(), handshake)
        {
            s.set_tls(Box::new(tls));
        }
        let relayed = Relayed {
            server,
            up: Resting::of(&mail.up, 0),
            down: Resting::of(&mail.down, 0),
            moved_ms: now_ms().saturating_sub(mail.silent_ms),
        };
        Ok(Box::new(move || {
            if let Some(client) = s.sock() {
                client.arrived(client_session);
                s.address().ip_addr().into_iter().for_each(|ip| client.set_client(ip));
            }
            relayed.server.arrived(server_session);
            accept::resume(s, relayed);
        }))
    }
}
