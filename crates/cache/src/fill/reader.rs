//! One client's way through a response that is being filled in.

use std::rc::Rc;

use mem::Chain;

use super::Fill;

/// A reader of the body. While there is one, bytes that it has not read stay in memory or in the
/// file.
pub struct FillReader {
    fill: Rc<Fill>,
    slot: usize,
    pos: u64,
    most: u64,
}

/// The next piece of a body.
pub enum FillPiece {
    /// Bytes; `last`: the body ends with them.
    Bytes {
        /// The bytes.
        chain: Chain,
        /// Nothing follows.
        last: bool,
    },
    /// The body has ended.
    End,
    /// The body broke off.
    Broken,
    /// Nothing has come yet: see [`FillReader::changed`].
    Pending,
}

impl FillReader {
    /// A reader at the beginning of the body, which takes about `most` bytes at a time.
    pub fn new(fill: Rc<Fill>, most: u64) -> FillReader {
        let mut state = fill.state.borrow_mut();
        let free = state.readers.iter().position(Option::is_none);
        let slot = free.unwrap_or(state.readers.len());
        match free {
            Some(slot) => state.readers[slot] = Some(0),
            None => state.readers.push(Some(0)),
        }
        drop(state);
        FillReader { fill, slot, pos: 0, most: most.max(1) }
    }

    /// The response.
    pub fn fill(&self) -> &Rc<Fill> {
        &self.fill
    }

    /// The next piece of the body.
    pub fn piece(&mut self) -> FillPiece {
        let state = self.fill.state.borrow();
        let chain = state.take(self.pos, self.most, self.fill.body_start.get());
        let last = state.ended && self.pos + chain.len() == state.total;
        let broken = state.broken;
        drop(state);
        if !chain.is_empty() {
            self.pos += chain.len();
            self.fill.state.borrow_mut().readers[self.slot] = Some(self.pos);
            self.fill.taken.notify_all();
            return FillPiece::Bytes { chain, last };
        }
        match (last, broken) {
            (true, _) => FillPiece::End,
            (false, true) => FillPiece::Broken,
            (false, false) => FillPiece::Pending,
        }
    }

    /// Waits until something was received, or the fill is over.
    pub async fn changed(&self) {
        self.fill.moved.notified().await;
    }

    /// Whether there is something for this reader.
    pub fn is_ready(&self) -> bool {
        let state = self.fill.state.borrow();
        state.total > self.pos || state.ended || state.broken
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        if let Some(pos) = self.fill.state.borrow_mut().readers.get_mut(self.slot) {
            *pos = None;
        }
        self.fill.taken.notify_all();
    }
}
