//! Idle connections that move to another process (`net::moves`): what there is of one between two
//! frames, while no stream is open.

use std::rc::Rc;

use event::Deadline;
use http_wire::h2::frame::{FRAME_MAX, PREFACE};
use http_wire::h2::hpack::{Decoder, Encoder};
use http_wire::h2::reset_ids::ResetIds;
use http_wire::h2::settings::Settings;
use http_wire::h2::window::Window;
use mem::Page;
use net::moves::Turn;
use proto::handover::{Http2, Message, Refusal};

use super::{Receiver, TABLE_SIZE};
use crate::channel::conn::Conn;
use crate::channel::parting::{give, rest};
use crate::h2::mux::Mux;
use crate::http2_conf::CHUNK_MAX;

/// A connection that another process has had so far.
pub(crate) struct Resting {
    pub(in crate::h2) mux: Rc<Mux>,
    pub(in crate::h2) receiver: Receiver,
}

/// The parameters that the client was told: streams at once, first window, and longest frame.
fn announced(mux: &Mux, receiver: &Receiver) -> (u32, u32, u32) {
    (mux.conf.max_streams, mux.conf.preread, receiver.frame_max() as u32)
}

/// Offers the connection, which is closed at `until` if nothing comes, to other processes. Returns
/// the bytes that have arrived meanwhile, unless one serves it from here on.
pub(in crate::h2) async fn offer(
    mux: &Mux,
    receiver: &Receiver,
    turn: Turn,
    until: Deadline,
) -> Option<Page> {
    let (turn, resting) = match rest(&mux.c, turn).await {
        Ok(rests) => rests,
        Err(read) => return Some(read),
    };
    let rules = &receiver.rules;
    let (table_size, fields) = rules.decoder.table();
    let bits = mux.with(|state| state.reset_ids.bits());
    let message = mux.with(|state| {
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
        }))
    });
    let moved = give(&mux.c, turn, &message).await;
    drop(message);
    (!moved).then_some(resting.read)
}

impl Resting {
    /// The connection `c`, as another process has described it.
    ///
    /// # Errors
    /// The configuration has no HTTP/2 here, or other parameters than those that the client knows.
    pub(crate) fn of(c: &Rc<Conn>, of: &Http2<'_>) -> Result<Resting, Refusal> {
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
        Ok(Resting { mux, receiver })
    }
}
