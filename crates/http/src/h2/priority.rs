//! The priorities that clients and responses ask for: the parameters of RFC 9218, and the
//! dependencies of RFC 7540 for clients that know nothing else.

use http_wire::h2::read::{Dependency, Fault};
use http_wire::h2::tree::Tree;
use http_wire::priority::Parameters;

use super::mux::{Entry, Half, State};
use super::receive::protocol;

/// The urgency of a response about which nothing is said.
const URGENCY: u8 = 3;

/// Streams that may have a priority before they are opened, however many may be open.
const EARLY_MAX: usize = 256;

/// The priority of a response (RFC 9218 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Priority {
    client: Parameters,
    /// The response's own; it overrides the client's (RFC 9218 section 8).
    response: Parameters,
}

impl Priority {
    pub fn urgency(self) -> u8 {
        self.response.or(self.client).urgency.unwrap_or(URGENCY)
    }

    /// Whether the response is of use in parts, if that is known.
    pub fn incremental(self) -> Option<bool> {
        self.response.or(self.client).incremental
    }
}

/// A client's parameters; those that it does not name have their defaults (RFC 9218 section 4).
fn complete(given: Parameters) -> Parameters {
    given.or(Parameters { urgency: Some(URGENCY), incremental: Some(false) })
}

/// The priority that HEADERS which open a stream ask for.
pub(super) struct Asked {
    pub field: Option<Parameters>,
    pub dependency: Option<Dependency>,
    pub is_tunnel: bool,
}

impl State {
    /// A stream was opened.
    pub fn opened(&mut self, i: usize, asked: &Asked, max_streams: u32) {
        let id = self.streams[i].id;
        let client = &mut self.streams[i].priority.client;
        // A tunnel has no end that could be waited for (RFC 9218 section 11).
        client.incremental = asked.is_tunnel.then_some(true);
        let client = *client;
        if let Some(given) = self.early(id).or(asked.field) {
            self.streams[i].priority.client = complete(given.or(client));
            self.signalled();
        }
        self.place(i, asked.dependency, max_streams);
    }

    /// The response's own `Priority` field.
    pub fn responds(&mut self, i: usize, response: Parameters) {
        let client = self.streams[i].priority.client;
        self.schedule.is_ranked = true;
        self.set_priority(i, Priority { client, response });
    }

    /// A PRIORITY_UPDATE frame (RFC 9218 section 7.1). `last_id` is the newest stream.
    ///
    /// # Errors
    /// It ends the connection: a stream that we have never pushed, or too many not opened yet.
    pub fn priority_update(
        &mut self,
        id: u32,
        value: &[u8],
        last_id: u32,
        max_streams: u32,
    ) -> Result<(), Fault> {
        if id.is_multiple_of(2) {
            return protocol("PRIORITY_UPDATE frame with incorrect identifier");
        }
        let Some(given) = Parameters::parse(value) else { return Ok(()) };
        self.signalled();
        if id > last_id {
            return self.keep_early(id, given, max_streams);
        }
        if let Some(i) = self.find(id) {
            let response = self.streams[i].priority.response;
            self.set_priority(i, Priority { client: complete(given), response });
        }
        Ok(())
    }

    /// Keeps the priority of a stream that is not open yet.
    fn keep_early(&mut self, id: u32, given: Parameters, max_streams: u32) -> Result<(), Fault> {
        if let Some(kept) = self.early.iter_mut().find(|kept| kept.0 == id) {
            kept.1 = given;
            return Ok(());
        }
        let active = self.streams.iter().filter(|entry| entry.is_active()).count();
        if self.early.len() + active >= max_streams as usize {
            return protocol("PRIORITY_UPDATE frames for too many streams");
        }
        if self.early.len() == EARLY_MAX {
            self.early.remove(0);
        }
        self.early.push((id, given));
        Ok(())
    }

    /// The priority that came before the stream. Streams before it will never be opened.
    fn early(&mut self, id: u32) -> Option<Parameters> {
        if self.early.is_empty() {
            return None;
        }
        let given = self.early.iter().find(|kept| kept.0 == id).map(|kept| kept.1);
        self.early.retain(|kept| kept.0 > id);
        given
    }

    /// Changes the priority of a stream.
    fn set_priority(&mut self, i: usize, priority: Priority) {
        let entry = &mut self.streams[i];
        if entry.priority == priority {
            return;
        }
        let scheduled = entry.scheduled;
        self.schedule.forget(i, entry);
        entry.priority = priority;
        if scheduled {
            self.schedule.add(i, entry);
        }
    }

    /// The client uses the priorities of RFC 9218.
    fn signalled(&mut self) {
        if !self.schedule.signalled {
            self.schedule.signalled = true;
            self.schedule.is_ranked = true;
            self.fell();
        }
    }

    /// A stream was opened; its HEADERS may say what it depends on.
    fn place(&mut self, i: usize, dependency: Option<Dependency>, max_streams: u32) {
        let entry = &mut self.streams[i];
        let id = entry.id;
        if let Some(tree) = &mut self.schedule.tree {
            entry.place = tree.open(id, i as u32, None);
            if entry.place.is_none() {
                return self.fell();
            }
        }
        if let Some(dependency) = dependency {
            self.prioritize(id, dependency, max_streams);
        }
    }

    /// The client says what a stream depends on, be it open or not.
    pub fn prioritize(&mut self, id: u32, dependency: Dependency, max_streams: u32) {
        if self.schedule.tree.is_none() {
            self.plant(max_streams);
        }
        if let Some(tree) = &mut self.schedule.tree {
            tree.prioritize(id, dependency);
        }
    }

    /// The order becomes that of a tree, unless the client knows a newer one.
    #[cold]
    fn plant(&mut self, max_streams: u32) {
        if self.schedule.treeless || self.schedule.signalled || self.peer.no_tree {
            return;
        }
        let mut tree = Tree::new(max_streams as usize);
        let open = self.streams.iter_mut().enumerate().filter(|(_, entry)| entry.id != 0);
        for (i, entry) in open {
            entry.place = tree.open(entry.id, i as u32, None);
            let Some(place) = entry.place else { return self.fell() };
            tree.set_ready(place, entry.scheduled);
        }
        self.schedule.use_tree(tree);
    }

    /// There is no tree any more, and never will be: the client uses something newer, says that it
    /// does not use one, or has too many streams.
    #[cold]
    pub fn fell(&mut self) {
        self.schedule.treeless = true;
        if self.schedule.tree.take().is_none() {
            return;
        }
        for (i, entry) in self.streams.iter_mut().enumerate() {
            entry.place = None;
            if entry.scheduled {
                self.schedule.insert(i as u32, entry);
            }
        }
    }
}

impl Entry {
    /// Whether the stream is open on either side, as the client sees it.
    fn is_active(&self) -> bool {
        self.id != 0 && !self.reset && (self.local, self.remote) != (Half::Ended, Half::Ended)
    }
}
