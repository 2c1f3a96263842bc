//! What is wrong with a zone's keys, or is not to be used any more.

use super::super::faults::Cause;
use super::{Count, Hash, Keys, Node, THERE};

/// Where the counters of faults begin, one for each cause.
const FAULTS: usize = 16;

impl Keys {
    /// The response of a key is not to be used any more, nor one that is on its way to be joined:
    /// its file is to be deleted. Whether there was one.
    pub fn invalidate(&self, hash: &Hash) -> bool {
        self.streams.hide(hash);
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return false };
        let Some(node) = t.value(entry) else { return false };
        self.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() });
        node.has(THERE)
    }

    /// A number that no other variants of any key have.
    pub fn new_family(&self) -> u64 {
        base::time::unix_ms() << 24 | u64::from(self.next_version() & 0xff_ffff)
    }

    /// Counts a fault, and its cause; what there was no room for is counted as that alone.
    pub fn count_fault(&self, cause: Cause) {
        if cause.is_wrong() {
            self.count(Count::Faults as usize);
            self.count(FAULTS + cause as usize);
        } else {
            self.count(Count::NoRoom as usize);
        }
    }

    /// Faults of a cause, over all processes.
    pub fn faults(&self, cause: Cause) -> u64 {
        self.counted(FAULTS + cause as usize)
    }
}
