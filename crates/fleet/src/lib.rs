//! `shared_state`: limits and tables that several servers share through Redis or Valkey (the
//! *engine*). Sans-IO: the crate decides what to send and what an answer means; the crate
//! `fleet-link` has the connection, in a process of its own.
//!
//! ```text
//!  workers ──▶ zones in shared memory ◀──▶ parts ◀──▶ node ◀──▶ link ◀──▶ engine
//!              (decide at once)            └── shared state process ──┘
//! ```
//!
//! - **Workers never wait for the engine.** They decide by the zones in shared memory, and note
//!   there which entries they changed.
//! - **A round each interval.** The process collects the changes of all [`Part`]s, sends them as
//!   calls of scripts ([`Call`]) in one batch, and gives each part its answers ([`Node`]).
//! - **The engine's clock alone counts.** A node measures how far its monotonic clock is from the
//!   engine's. So the nodes' times of day may differ by minutes.
//! - **Away means local.** If the engine does not answer, limits hold for each node alone and
//!   tables keep what they have. One log line says so, another one that it is back.
//!
//! [`model`] is the engine in memory, for simulations of many nodes with delay, loss and partition.
#![forbid(unsafe_code)]

mod call;
mod clock;
pub mod folder;
pub mod limits;
pub mod model;
mod node;
pub mod purges;
mod record;
pub mod scripts;
mod settings;
mod status;
pub mod strict;
mod touched;

use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;

pub use call::{Answer, Call, Script};
pub use node::{Failure, Node, Part, PartError, Round};
pub use record::{Pull, PulledRecord, Pushed, pull, pushed};
pub use settings::{Address, Mode, Settings};
pub use status::{Counter, Snapshot, State, Status};
pub use touched::Touched;

use crate::strict::{Questions, StrictZone};

/// What a configuration shares with other servers, and with which engine: lent to zones while they
/// are loaded.
pub struct Fleet {
    settings: Option<Settings>,
    status: Rc<Status>,
    parts: RefCell<Vec<Rc<dyn Part>>>,
    /// The zones whose limits are strict, and the questions of workers for them.
    strict: RefCell<Vec<StrictZone>>,
    questions: LastingQuestions,
}

/// The questions of workers about strict limits, of all configurations: workers of the one before
/// ask, too, while they finish. The memory is made for the first zone that is strict.
pub type LastingQuestions = Rc<OnceCell<Rc<Questions>>>;

impl Fleet {
    /// The fleet of a configuration; `settings` are those of `shared_state`, if there is one.
    pub fn new(
        settings: Option<Settings>,
        status: Rc<Status>,
        questions: LastingQuestions,
    ) -> Fleet {
        let (parts, strict) = Default::default();
        Fleet { settings, status, parts, strict, questions }
    }

    /// `shared_state`, if the configuration has it.
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// The state of the connection and its counters, in shared memory.
    pub fn status(&self) -> &Rc<Status> {
        &self.status
    }

    /// Adds a zone that is shared.
    pub fn add(&self, part: Rc<dyn Part>) {
        self.parts.borrow_mut().push(part);
    }

    /// The zones that are shared.
    pub fn parts(&self) -> Vec<Rc<dyn Part>> {
        self.parts.borrow().clone()
    }

    /// Adds a zone whose limit is strict; its number, and the questions.
    ///
    /// # Errors
    /// The system's, when there is no memory.
    pub fn add_strict(&self, zone: StrictZone) -> io::Result<(u64, Rc<Questions>)> {
        if self.questions.get().is_none() {
            let _ = self.questions.set(Rc::new(Questions::new()?));
        }
        let number = zone.number();
        self.strict.borrow_mut().push(zone);
        let questions = self.questions.get().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((number, questions.clone()))
    }

    /// The zones whose limits are strict, and the questions; `None` if there is none.
    pub fn strict(&self) -> Option<(Vec<StrictZone>, Rc<Questions>)> {
        let zones = Some(self.strict.borrow().clone()).filter(|zones| !zones.is_empty())?;
        Some((zones, self.questions.get()?.clone()))
    }

    /// In the master: this configuration runs from now on.
    pub fn begins(&self) {
        let has_strict = !self.strict.borrow().is_empty();
        self.questions.get().into_iter().for_each(|questions| questions.set_answered(has_strict));
    }

    /// In the master: a process that exchanges with the engine is dead.
    pub fn process_died(&self) {
        self.questions.get().into_iter().for_each(|questions| questions.answerer_died());
    }

    /// In the master: a worker is dead.
    pub fn died(&self, slot: usize) {
        self.questions.get().into_iter().for_each(|questions| questions.died(slot));
    }

    /// Whether there is work for the process: an engine, and something to share.
    pub fn has_work(&self) -> bool {
        let has_zones = !self.parts.borrow().is_empty() || !self.strict.borrow().is_empty();
        self.settings.is_some() && has_zones
    }

    /// Checks that a directive may share a zone.
    ///
    /// # Errors
    /// There is no `shared_state`.
    pub fn check(&self, word: &conf::Word) -> Result<(), conf::ConfError> {
        if self.settings.is_some() {
            return Ok(());
        }
        let m = "\"sync\" needs the directive \"shared_state\" at the outermost level, for example \
                 \"shared_state redis://127.0.0.1:6379 prefix=shop;\"";
        Err(conf::ConfError::at(word, m))
    }
}

impl Default for Fleet {
    /// A fleet without an engine.
    fn default() -> Fleet {
        Fleet::new(None, Rc::default(), Rc::default())
    }
}
