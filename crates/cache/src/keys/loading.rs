//! The loader's state: whether all files of the folder are known.

use std::sync::atomic::Ordering;

use super::{Keys, Word};

impl Keys {
    /// Whether all files are known.
    pub(crate) fn is_warm(&self) -> bool {
        self.get(Word::Warm) != 0
    }

    /// Whether they are being found out.
    pub(crate) fn is_loading(&self) -> bool {
        self.get(Word::Loading) != 0
    }

    /// Files that the loader has met so far.
    pub fn loaded(&self) -> u64 {
        self.get(Word::Loaded)
    }

    /// Begins to load for the process `pid`; false where another does so, or did.
    pub(crate) fn begin_loading(&self, pid: u32) -> bool {
        let word = self.word(Word::Loading);
        !self.is_warm()
            && word.compare_exchange(0, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Loading ended; `whole`: all files were met.
    pub(crate) fn end_loading(&self, whole: bool) {
        if whole {
            self.word(Word::Warm).store(1, Ordering::Release);
        }
        self.word(Word::Loading).store(0, Ordering::Release);
    }
}
