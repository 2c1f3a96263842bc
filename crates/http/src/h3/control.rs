//! The streams of the connection itself: settings, the tables of fields, priorities, GOAWAY.

use std::collections::HashMap;

use http_wire::h3::control::{self, Event};
use http_wire::h3::settings::Settings;
use http_wire::h3::stream::{self, CLOSED, Kind, Opened};
use http_wire::h3::{Fault, Role, frame};
use http_wire::qpack;
use quic::{Read, StreamId};

use super::mux::Mux;
use super::receive;
use crate::http3_conf::BLOCKED_STREAMS;

/// Bytes that are asked of a stream at once.
const READ_MAX: usize = 16 << 10;

/// A stream that the client has opened for the connection.
enum Stream {
    /// Its type is not known yet.
    Unknown(stream::Reader),
    Control(Box<control::Reader>),
    /// Instructions for our table.
    Encoder,
    /// Answers to our instructions.
    Decoder,
}

/// The client's streams, and ours.
pub(super) struct Control {
    theirs: HashMap<StreamId, Stream, foldhash::fast::RandomState>,
    opened: Opened,
    /// Our control stream, and that of our decoder.
    control: Option<StreamId>,
    decoder: Option<StreamId>,
    /// Bytes for them that QUIC has not taken.
    control_out: Vec<u8>,
    decoder_out: Vec<u8>,
}

/// The result of a look at a stream.
#[derive(Default)]
pub(super) struct Brought {
    /// Frames, and the work that instructions make, as if each insertion were one.
    pub frames: u32,
    /// Entries were added: sections that wait for them may go on.
    pub has_entries: bool,
}

impl Control {
    /// The control streams before our settings are sent.
    pub fn new(section_max: usize) -> Control {
        let mut control_out = Vec::new();
        let settings = Settings {
            table_capacity: qpack::TABLE_CAPACITY as u64,
            blocked_streams: BLOCKED_STREAMS,
            section_max: Some(section_max as u64),
            connect_protocol: true,
        };
        settings.write_preface(&mut control_out);
        let mut decoder_out = Vec::new();
        stream::write_kind(&mut decoder_out, Kind::Decoder);
        Control {
            theirs: HashMap::default(),
            opened: Opened::new(Role::Server),
            control: None,
            decoder: None,
            control_out,
            decoder_out,
        }
    }

    /// The client has opened a stream.
    pub fn open(&mut self, id: StreamId) {
        self.theirs.insert(id, Stream::Unknown(stream::Reader::default()));
    }

    /// Takes what came on a stream.
    ///
    /// # Errors
    /// The connection ends.
    pub fn read(&mut self, mux: &Mux, id: StreamId) -> Result<Brought, Fault> {
        let mut brought = Brought::default();
        loop {
            match mux.quic().read(id, READ_MAX) {
                Read::Data(bytes) => self.take(mux, id, &bytes, &mut brought)?,
                Read::Nothing => return Ok(brought),
                Read::End | Read::Reset(_) | Read::Gone => {
                    return match self.theirs.remove(&id) {
                        None | Some(Stream::Unknown(_)) => Ok(brought),
                        Some(_) => Err(CLOSED),
                    };
                }
            }
        }
    }

    fn take(
        &mut self,
        mux: &Mux,
        id: StreamId,
        mut bytes: &[u8],
        brought: &mut Brought,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let Some(stream) = self.theirs.get_mut(&id) else { return Ok(()) };
            let used = match stream {
                Stream::Unknown(reader) => {
                    let (used, kind) = reader.next(bytes);
                    if let Some(number) = kind {
                        let known = match self.opened.open(number)? {
                            Kind::Control => {
                                Stream::Control(Box::new(control::Reader::new(Role::Server)))
                            }
                            Kind::Encoder => Stream::Encoder,
                            Kind::Decoder => Stream::Decoder,
                            Kind::Unknown => {
                                brought.frames += 1;
                                self.theirs.remove(&id);
                                let code = http_wire::h3::Code::StreamCreationError;
                                mux.quic().stop(id, code.number());
                                return Ok(());
                            }
                        };
                        self.theirs.insert(id, known);
                    }
                    used
                }
                Stream::Control(reader) => {
                    let (used, event) = reader.next(bytes)?;
                    brought.frames += 1;
                    match event {
                        // A client's settings do not matter: our encoder makes no entries.
                        Event::Settings(_) | Event::GoAway(_) | Event::Nothing => {}
                        Event::More => brought.frames -= 1,
                        Event::PriorityUpdate(id, value) => receive::update(mux, id, value),
                    }
                    used
                }
                Stream::Encoder => {
                    let copied = mux.with(|state| state.decoder.encoder_stream(bytes))?;
                    brought.has_entries = true;
                    // Not all instructions copy anything.
                    brought.frames += ((copied + bytes.len()) / 256) as u32;
                    bytes.len()
                }
                Stream::Decoder => {
                    mux.with(|state| state.encoder.decoder_stream(bytes))?;
                    bytes.len()
                }
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Requests on streams from this one on are not answered.
    pub fn goaway(&mut self, id: u64) {
        frame::write_goaway(&mut self.control_out, id);
    }

    /// Gives QUIC what there is to say.
    pub fn send(&mut self, mux: &Mux) {
        mux.with(|state| {
            if state.decoder.has_instructions() {
                state.decoder.write_instructions(&mut self.decoder_out);
            }
        });
        send(mux, &mut self.control, &mut self.control_out);
        if self.decoder.is_some() || self.decoder_out.len() > 1 {
            send(mux, &mut self.decoder, &mut self.decoder_out);
        }
    }
}

/// Writes bytes to a stream of ours, which is opened for the first of them.
fn send(mux: &Mux, stream: &mut Option<StreamId>, out: &mut Vec<u8>) {
    if out.is_empty() {
        return;
    }
    if stream.is_none() {
        *stream = mux.quic().open();
        if let Some(id) = *stream {
            // Before all responses.
            mux.quic().rank(id, i32::MAX);
        }
    }
    let Some(id) = *stream else { return };
    let mut bytes = [std::mem::take(out).into()];
    if let Ok(taken) = mux.quic().write(id, &mut bytes)
        && taken == 0
    {
        let [left] = bytes;
        out.extend_from_slice(&left);
    }
}
