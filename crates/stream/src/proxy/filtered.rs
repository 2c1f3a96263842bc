//! The relay of a TCP session whose server has a filter of bytes ([`BytesFilter`]).
//!
//! ```text
//!  client ──▶ filter ──▶ server      the filter may also send on its own, both ways, after a wait;
//!  client ◀── filter ◀── server      what it sends is written before more is read
//! ```
//!
//! Times, rates and ends are those of a plain relay ([`super::relay`]). The PROXY protocol header
//! does not go through the filter. A session does not move to another process: the filter's state
//! could not go along.

use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::Either;
use mem::{Buf, Chain};
use net::relay::Flow;
use net::relay::wait::{Event, held};
use upstream::balance::ServerOutcome;

use super::conf::ProxyConf;
use super::relay::{self, End, Relay, Turn, rate, say};
use crate::module::{BytesFilter, Piece, Sent, Way};
use crate::session::StreamSession;

/// A filter does not go on by itself while so many of its bytes wait for a side that does not read,
/// and gets no more bytes of the other side.
const UNSENT_MAX: u64 = 1 << 20;

/// Relays through the filter of the session's server until the session ends; resolves to the
/// outcome for the server, and a status if the filter has ended it.
pub(super) async fn run(
    s: &mut StreamSession,
    conf: &ProxyConf,
    server: relay::Server,
) -> (ServerOutcome, Option<u16>) {
    let relay::Server { sock: server, first, nodelay, .. } = server;
    let Some(filter) = filter_of(s) else { return (ServerOutcome::Ok, None) };
    let Some(client) = s.take_sock() else { return (ServerOutcome::Ok, None) };
    if nodelay && let Err(e) = server.set_nodelay(true) {
        let e = base::log::os_error(&e);
        s.log(Level::Info, format_args!("setsockopt(TCP_NODELAY) failed {e}"));
    }
    let (upload, download) = (rate(s, &conf.upload_rate), rate(s, &conf.download_rate));
    let mut up = Flow::new(&client, &server, first).limited(upload, conf.buffer_size);
    let mut down = Flow::new(&server, &client, Chain::new()).limited(download, conf.buffer_size);
    let preread = std::mem::take(&mut s.preread).freeze();
    let relay = Relay::new(s, conf, base::time::now_ms());
    let mut filtered = Filtered { relay, filter };
    let end = match filtered.begin(preread, (&mut up, &mut down)) {
        Ok(()) => filtered.relayed(&mut up, &mut down).await,
        Err(end) => end,
    };
    let is_broken = filtered.relay.is_broken;
    drop(filtered);
    drop((up, down));
    say(s, &end);
    s.put_sock(client);
    let outcome = if is_broken { ServerOutcome::Failed } else { ServerOutcome::Ok };
    (outcome, if let End::Status(status) = end { Some(status) } else { None })
}

struct Filtered<'a> {
    relay: Relay<'a>,
    filter: Box<dyn BytesFilter>,
}

impl Filtered<'_> {
    /// Passes the bytes of the preread phase on.
    fn begin(
        &mut self,
        preread: Bytes,
        (up, down): (&mut relay::Way<'_>, &mut relay::Way<'_>),
    ) -> Result<(), End> {
        if preread.is_empty() {
            return Ok(());
        }
        let mut sent = Sent::default();
        let piece = Piece { bytes: preread, flush: true };
        let done = self.filter.filter(self.relay.s, Way::Up, piece, false, &mut sent);
        queue(&mut up.pending, sent.up);
        queue(&mut down.pending, sent.down);
        done.map_err(End::Status)
    }

    async fn relayed(&mut self, up: &mut relay::Way<'_>, down: &mut relay::Way<'_>) -> End {
        loop {
            match self.turn(up, down) {
                Err(end) => return end,
                Ok(Turn::Busy) => {
                    event::task::yield_now().await;
                    continue;
                }
                Ok(Turn::Waits) => {}
            }
            self.relay.last = loop {
                match self.event(up, down).await {
                    Ok(Event::Look) => {}
                    Ok(Event::Displaced) => return End::Displaced,
                    Ok(Event::Failed(kind)) => return End::Broken(kind.into()),
                    Ok(event) => break event,
                    Err(end) => return end,
                }
                if let Err(end) = self.relay.look() {
                    return end;
                }
            };
        }
    }

    /// Waits for a side, or for the filter.
    async fn event(
        &mut self,
        up: &mut relay::Way<'_>,
        down: &mut relay::Way<'_>,
    ) -> Result<Event, End> {
        let times = self.relay.times();
        let unsent = up.pending.len() + down.pending.len();
        if !self.filter.is_waiting() || unsent > UNSENT_MAX {
            return Ok(held(up, down, times).await);
        }
        let mut sent = Sent::default();
        let going_on = self.filter.go_on(self.relay.s, &mut sent);
        match event::race(held(up, down, times), going_on).await {
            Either::First(event) => return Ok(event),
            Either::Second(done) => done.map_err(End::Status)?,
        }
        // A timer that sends nothing does not make the session one that is in use.
        let is_idle = sent.is_empty() && self.filter.is_waiting();
        queue(&mut up.pending, sent.up);
        queue(&mut down.pending, sent.down);
        Ok(if is_idle { Event::Look } else { Event::Both })
    }

    /// Moves bytes in both directions as far as possible without waiting.
    fn turn(&mut self, up: &mut relay::Way<'_>, down: &mut relay::Way<'_>) -> Result<Turn, End> {
        self.relay.check_server()?;
        pause(up, down);
        if self.relay.last != Event::Up {
            self.go(Way::Down, down, up)?;
        }
        // A filter may answer a side by itself.
        if self.relay.last != Event::Down || up.has_unsent() {
            self.go(Way::Up, up, down).inspect_err(|end| {
                self.relay.is_broken |= matches!(end, End::Broken(_));
            })?;
        }
        if down.has_unsent() {
            self.go(Way::Down, down, up)?;
        }
        self.relay.is_broken |= down.broken.is_some();
        pause(up, down);
        let is_waiting = self.filter.is_waiting();
        self.relay.after(up, down, Some(is_waiting))
    }

    /// Moves bytes in one direction. What the filter sends the other way waits there.
    fn go(
        &mut self,
        way: Way,
        flow: &mut relay::Way<'_>,
        other: &mut relay::Way<'_>,
    ) -> Result<(), End> {
        let Filtered { relay, filter } = self;
        let (mut aside, unsent) = (Chain::new(), other.pending.len());
        let moved = flow.go_through(|came, last| {
            let mut sent = Sent::default();
            let piece = Piece { bytes: whole(came), flush: !last };
            let done = filter.filter(relay.s, way, piece, last, &mut sent);
            let (forward, back) = match way {
                Way::Up => (sent.up, sent.down),
                Way::Down => (sent.down, sent.up),
            };
            queue(&mut aside, back);
            done.map_err(End::Status)?;
            let mut chain = Chain::new();
            queue(&mut chain, forward);
            Ok::<_, End>((chain, unsent + aside.len() > UNSENT_MAX))
        });
        other.pending.append(&mut aside);
        let moved = moved?;
        match way {
            Way::Up => {
                relay.from_client += moved.read;
                relay.to_server += moved.written;
            }
            Way::Down => {
                if moved.read > 0 && relay.from_server == 0 {
                    relay.s.exchanges.first_byte_now();
                }
                relay.from_server += moved.read;
                relay.to_client += moved.written;
            }
        }
        Ok(())
    }
}

/// Has each side read only while the other one takes what the filter sends it.
fn pause(up: &mut relay::Way<'_>, down: &mut relay::Way<'_>) {
    up.paused = down.pending.len() > UNSENT_MAX;
    down.paused = up.pending.len() > UNSENT_MAX;
}

fn queue(chain: &mut Chain, pieces: Vec<Piece>) {
    for piece in pieces.into_iter().filter(|piece| !piece.bytes.is_empty()) {
        chain.push_bytes(piece.bytes);
    }
}

/// The bytes of a chain, which are memory alone.
fn whole(mut chain: Chain) -> Bytes {
    if chain.iter().nth(1).is_none() {
        return match chain.pop_front() {
            Some(Buf::Page(page)) => page.freeze(),
            Some(Buf::Mem(bytes)) => bytes,
            Some(Buf::File { .. }) | None => Bytes::new(),
        };
    }
    let mut all = Vec::with_capacity(usize::try_from(chain.len()).unwrap_or(0));
    chain.iter().filter_map(Buf::memory).for_each(|bytes| all.extend_from_slice(bytes));
    all.into()
}

/// The filter of a session, if its server has one.
pub(crate) fn filter_of(s: &mut StreamSession) -> Option<Box<dyn BytesFilter>> {
    s.server.pipeline.filter.as_ref()?;
    let server = s.server.clone();
    server.pipeline.filter.as_ref().map(|make| make(s))
}
