//! A session as scripts see it.

use std::rc::Rc;

use bytes::Bytes;
use engine::Client;
use engine::vars::{NotAssigned, assign_named};
use script_modules::fetch;
use script_modules::settings::Main;
use script_modules::shared::Dicts;
use script_modules::text::log;
use stream::StreamSession;
use stream::module::{Piece, Way};

use ::script::host::fetch::{FetchHost, FetchRequest, Unsent};
use ::script::host::http::Refusal;
use ::script::host::shared::SharedHost;
use ::script::host::stream::{self as host, Form, Sending, SessionId, StreamHost};
use ::script::{Data, Host, Level, Ticket, TimerId};

use crate::script::{Script, settings, variable};

/// The memory that a piece takes beside its bytes: its place in the list, and what the allocator
/// adds.
const PIECE_BYTES: usize = 64;

/// A session, lent to its script for a call.
pub(crate) struct StreamCall<'a> {
    s: &'a mut StreamSession,
    script: &'a Rc<Script>,
    dicts: Option<Dicts>,
}

impl<'a> StreamCall<'a> {
    pub fn new(s: &'a mut StreamSession, script: &'a Rc<Script>) -> StreamCall<'a> {
        StreamCall { s, script, dicts: None }
    }
}

impl Host for StreamCall<'_> {
    fn log(&mut self, level: Level, text: &str) {
        log(self.s, level, text);
    }

    fn start_timer(&mut self, timer: TimerId, after_ms: u64) {
        self.script.job.ops.start_timer(timer, after_ms);
    }

    fn stop_timer(&mut self, timer: TimerId) {
        self.script.job.ops.stop_timer(timer);
    }

    fn stream(&mut self) -> Option<&mut dyn StreamHost> {
        Some(self)
    }

    fn fetch(&mut self) -> Option<&mut dyn FetchHost> {
        Some(self)
    }

    fn shared(&mut self) -> Option<&mut dyn SharedHost> {
        let dicts = self.dicts.get_or_insert_with(|| {
            let main = self.s.main.confs.listed::<Main>();
            Dicts(main.dicts.clone().into())
        });
        Some(dicts)
    }
}

impl FetchHost for StreamCall<'_> {
    fn fetch(&mut self, ticket: Ticket, request: FetchRequest) -> Result<(), Unsent> {
        let (here, gate) = (settings(self.s), self.s.main.life.gate.clone());
        fetch::start(self.s, &here, &self.script.job.ops, gate, (ticket, request))
    }
}

fn refuse<T>(message: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Type(message))
}

fn way(of: host::Way) -> Way {
    match of {
        host::Way::Up => Way::Up,
        host::Way::Down => Way::Down,
    }
}

impl StreamHost for StreamCall<'_> {
    fn session(&self) -> SessionId {
        self.script.id
    }

    fn is_periodic(&self) -> bool {
        self.script.is_periodic
    }

    fn remote_address(&mut self) -> Vec<u8> {
        self.s.address().host().to_string().into_bytes()
    }

    fn status(&mut self) -> u16 {
        self.s.status
    }

    fn variable(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        variable(self.s, name).map(|value| value.to_vec())
    }

    fn set_variable(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), Refusal> {
        match assign_named(self.s, name, value.into()) {
            Ok(()) => Ok(()),
            Err(NotAssigned::Unknown) => refuse("variable not found"),
            Err(NotAssigned::ReadOnly) => refuse("variable is not writable"),
        }
    }

    fn variable_names(&mut self) -> Vec<String> {
        self.s.main.confs.listed::<Main>().vars.clone()
    }

    fn log(&mut self, level: Level, text: &str) {
        log(self.s, level, text);
    }

    fn done(&mut self, code: i64) -> Result<(), Refusal> {
        if self.script.is_filtering.get() {
            return refuse("should not be called while filtering");
        }
        self.script.code.set(code);
        Ok(())
    }

    fn listen(&mut self, of: host::Way, form: Option<Form>) {
        let mut listens = self.script.listens.get();
        listens[way(of) as usize] = form;
        self.script.listens.set(listens);
    }

    fn send(&mut self, sending: Sending) -> Result<(), Refusal> {
        if !self.script.is_filtering.get() {
            return refuse("cannot send buffer in this handler");
        }
        let piece = self.script.piece.get();
        let Some(to) = sending.way.map(way).or(piece.map(|(way, _)| way)) else {
            return refuse("from_upstream flag is expected when called asynchronously");
        };
        let sent_bytes = self.script.sent_bytes.get() + PIECE_BYTES + sending.bytes.len();
        if sent_bytes > settings(self.s).limits().memory_bytes {
            return refuse("more data is sent than js_memory_limit allows");
        }
        self.script.sent_bytes.set(sent_bytes);
        // Nothing is known to follow what is sent between pieces, or with the last one.
        let flush = sending.flush.or(piece.map(|(_, flush)| flush)).unwrap_or(true);
        let flush = flush || sending.last == Some(true);
        let piece = Piece { bytes: Bytes::from(sending.bytes), flush };
        self.script.sent.borrow_mut().way(to).push(piece);
        Ok(())
    }

    fn set_return_value(&mut self, value: Data) {
        *self.script.return_value.borrow_mut() = Some(value);
    }
}
