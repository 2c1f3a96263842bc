//! Connections that move to another process (`net::moves`): what there is of one between two
//! frames, while no stream is open, or tunnels alone that rest.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use event::Deadline;
use http_wire::h1::FieldId;
use http_wire::h2::frame::{FRAME_MAX, PREFACE};
use http_wire::h2::hpack::{Decoder, Encoder};
use http_wire::h2::reset_ids::ResetIds;
use http_wire::h2::settings::Settings;
use http_wire::h2::window::Window;
use http_wire::priority::Parameters;
use mem::Page;
use net::moves::{Berth, Turn};
use net::relay::memory;
use net::wiped::Wiped;
use os::SockAddr;
use proto::handover::{self, Http2, Message, Refusal, Stream, Tunnel};

use super::{Receiver, TABLE_SIZE};
use crate::channel::conn::Conn;
use crate::channel::parting::{give, rest};
use crate::channel::streams::exchange::HeadState;
use crate::h2::mux::{Entry, Half, Key, Mux, RECEIVE_MAX, State};
use crate::h2::priority::Asked;
use crate::http2_conf::CHUNK_MAX;
use crate::output::Beginning;
use crate::request::Request;
use crate::server::HttpMain;

/// A connection that another process has had so far.
pub(crate) struct Resting {
    pub(in crate::h2) mux: Rc<Mux>,
    pub(in crate::h2) receiver: Receiver,
    pub(in crate::h2) tunnels: Vec<(Key, Box<Request>, Beginning)>,
}

/// Makes a new request the one that another process has described.
type Begun = fn(&mut Request, &handover::Request<'_>) -> Result<(), Refusal>;

/// The bytes of a stream that are copied for its description.
struct Copied {
    received: Wiped,
    queued: Wiped,
}

impl Copied {
    fn of(entry: &Entry) -> Copied {
        let received = entry.received.iter().map(|page| page.filled());
        let received = received.collect::<Vec<_>>().concat().into();
        Copied { received, queued: memory(&entry.queue) }
    }

    fn stream<'a>(&'a self, entry: &Entry, tunnel: &Tunnel<'a>) -> Stream<'a> {
        Stream {
            id: entry.id,
            is_ended: entry.has_body_ended(),
            send: entry.send.size(),
            receive: (entry.receive.left() as u32, entry.receive_size, entry.taken),
            received: &self.received,
            queued: &self.queued,
            framing: entry.framing,
            tunnel: tunnel.clone(),
        }
    }
}

/// The tunnel that a message describes, if it does.
fn tunnel_of(berth: &Berth) -> Option<Tunnel<'_>> {
    match Message::read(&berth.message) {
        Ok(Message::Tunnel(tunnel)) => Some(*tunnel),
        _ => None,
    }
}

/// The parameters that the client was told: streams at once, first window, and longest frame.
fn announced(mux: &Mux, receiver: &Receiver) -> (u32, u32, u32) {
    (mux.conf.max_streams, mux.conf.preread, receiver.frame_max() as u32)
}

/// Offers the connection, which is closed at `until` if nothing comes, to other processes, with the
/// tunnels on its streams. Returns the bytes that have arrived meanwhile, unless one serves it from
/// here on.
pub(in crate::h2) async fn offer(
    mux: &Mux,
    receiver: &Receiver,
    turn: Turn,
    until: Deadline,
    tunnels: &[Berth],
) -> Option<Page> {
    let (turn, resting) = match rest(&mux.c, turn).await {
        Ok(rests) => rests,
        Err(read) => return Some(read),
    };
    let rules = &receiver.rules;
    let (table_size, fields) = rules.decoder.table();
    let (bits, copied) = mux.with(|state| {
        let entry = |id: u32| state.find(id).and_then(|i| state.streams.get(i));
        let copied = tunnels.iter().filter_map(|berth| entry(berth.id).map(Copied::of));
        (state.reset_ids.bits(), copied.collect::<Vec<_>>())
    });
    let message = mux.with(|state| {
        let streams = tunnels.iter().zip(&copied).filter_map(|(berth, copied)| {
            let entry = state.streams.get(state.find(berth.id)?)?;
            Some(copied.stream(entry, &tunnel_of(berth)?))
        });
        let streams: Vec<_> = streams.collect();
        let peer = state.peer;
        let (size, next) = state.encoder.sizes();
        let schedule = &state.schedule;
        Message::Http2(Box::new(Http2 {
            idle: resting.idle(&mux.c, until),
            announced: announced(mux, receiver),
            tables: (peer.header_table, peer.max_streams),
            sizes: (peer.window, peer.frame_max),
            flags: (peer.connect_protocol, peer.no_tree),
            windows: (state.send.left() as u32, rules.receive.left() as u32),
            last_id: rules.last_id,
            encoder: (size as u32, next as u32),
            table_size: table_size as u32,
            fields,
            resets: (state.reset_ids.newest(), &bits),
            unreturned: state.unreturned,
            // A tree is not taken along: the client's dependencies are hints.
            priorities: (
                schedule.treeless || schedule.tree.is_some(),
                schedule.signalled,
                schedule.is_ranked,
            ),
            used: rules.waste.used(),
            streams,
        }))
    });
    let moved = give(&mux.c, turn, &message, tunnels).await;
    drop(message);
    (!moved).then_some(resting.read)
}

impl Resting {
    /// The connection `c`, as another process has described it; `servers` are those of its tunnels.
    ///
    /// # Errors
    /// The configuration has no HTTP/2 here, or other parameters than those that the client knows,
    /// or cannot serve one of the tunnels.
    pub(crate) fn of(
        (main, c): (&Rc<HttpMain>, &Rc<Conn>),
        of: &Http2<'_>,
        servers: Vec<OwnedFd>,
        begun: Begun,
    ) -> Result<Resting, Refusal> {
        let mux = Rc::new(Mux::new(c.clone(), c.server().http2));
        let mut receiver = Receiver::new(&mux);
        if !mux.conf.enabled || of.announced != announced(&mux, &receiver) {
            return Err(Refusal::Configuration);
        }
        receiver.preface = PREFACE.len();
        let rules = &mut receiver.rules;
        let fields = of.fields.iter().copied();
        rules.decoder = Decoder::resumed(TABLE_SIZE, of.table_size as usize, fields);
        rules.last_id = of.last_id;
        rules.receive = Window::new(of.windows.1);
        rules.waste.charge(of.used);
        mux.with(|state| {
            state.encoder = Encoder::resumed((of.encoder.0 as usize, of.encoder.1 as usize));
            state.peer = Settings {
                header_table: of.tables.0,
                max_streams: of.tables.1,
                window: of.sizes.0,
                frame_max: of.sizes.1.clamp(FRAME_MAX as u32, CHUNK_MAX as u32),
                connect_protocol: of.flags.0,
                no_tree: of.flags.1,
            };
            state.send = Window::new(of.windows.0);
            state.reset_ids = ResetIds::resumed(of.resets.0, of.resets.1);
            state.unreturned = of.unreturned;
            let schedule = &mut state.schedule;
            (schedule.treeless, schedule.signalled, schedule.is_ranked) = of.priorities;
        });
        let mut resting = Resting { mux, receiver, tunnels: Vec::new() };
        of.streams
            .iter()
            .zip(servers)
            .try_for_each(|(of, server)| resting.add(main, (of, server), begun))?;
        Ok(resting)
    }

    /// Adds a stream with its tunnel.
    fn add(
        &mut self,
        main: &Rc<HttpMain>,
        (of, server): (&Stream<'_>, OwnedFd),
        begun: Begun,
    ) -> Result<(), Refusal> {
        let mux = &self.mux;
        let known = self.receiver.rules.last_id;
        let is_new = mux.with(|state| state.find(of.id).is_none());
        let (_, size, taken) = of.receive;
        let fits = size <= RECEIVE_MAX.max(mux.conf.preread) && taken <= size;
        if !is_new || !fits || of.id > known || of.id.is_multiple_of(2) {
            return Err(Refusal::Other);
        }
        let begin = main.tunnels.get().ok_or(Refusal::Configuration)?;
        let mut r = Request::take_stream(mux.c.clone(), main);
        r.client.real_peer = of.tunnel.client.real_peer.and_then(SockAddr::parse);
        begun(&mut r, &of.tunnel.request)?;
        let beginning = begin(&mut r, &of.tunnel, server)?;
        let Request { head, client, loc, .. } = &mut *r;
        let s = client.channel.http2().ok_or(Refusal::Other)?;
        let head_size = s.exchange.head_size(head);
        let lines = head.fields.all(FieldId::Priority).map(|f| f.value.of(&s.exchange.text));
        let field = Parameters::of_lines(lines);
        let asked = Asked { field, dependency: None, is_tunnel: true };
        let key = mux.with(|state| {
            let key = state.resume(of, head_size, loc.http2_chunk);
            state.opened(key.slot as usize, &asked, mux.conf.max_streams);
            state.may_send(key.slot as usize);
            key
        });
        s.begin(mux.clone(), key);
        s.exchange.head_len = of.tunnel.request.head_len as usize;
        s.exchange.head = HeadState::Sent;
        (s.exchange.is_tunnel, s.exchange.is_upgraded, s.exchange.has_body) = (true, true, true);
        self.tunnels.push((key, r, beginning));
        Ok(())
    }
}

impl State {
    /// Opens a stream that another process has described.
    fn resume(&mut self, of: &Stream<'_>, head_size: usize, chunk: usize) -> Key {
        let remote = if of.is_ended { Half::Ended } else { Half::Open };
        let key = self.open(of.id, remote, of.receive.0);
        let entry = &mut self.streams[key.slot as usize];
        (entry.receive_size, entry.taken) = (of.receive.1, of.receive.2);
        entry.send = Window::resumed(of.send);
        (entry.chunk, entry.framing, entry.head_size) = (chunk, of.framing, head_size);
        if !of.received.is_empty() {
            entry.received.push_back(Page::copied(of.received));
            entry.body_held = of.received.len();
        }
        if !of.queued.is_empty() {
            entry.queue.write(of.queued);
            entry.queued = of.queued.len() as u64;
        }
        self.heads_held += head_size;
        self.held.add(head_size + of.received.len());
        key
    }
}
