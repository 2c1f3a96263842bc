//! The table of sets of descriptors: those that were reported, and the task that waits.

use super::slot::{SlotState, Slots};
use super::tasks::Tasks;

/// The state of a set in the loop.
#[derive(Default)]
pub(crate) struct Entry {
    /// The tags of members that were reported.
    pub(crate) ready: Vec<u32>,
    /// The slot of the task that waits, if there is one.
    pub(crate) slot: Option<u32>,
    is_taken: bool,
}

/// The sets of a loop.
#[derive(Default)]
pub(crate) struct Sets(pub(crate) Vec<Entry>);

impl Sets {
    pub(crate) fn take(&mut self) -> u32 {
        let free = self.0.iter().position(|entry| !entry.is_taken);
        let number = free.unwrap_or_else(|| {
            self.0.push(Entry::default());
            self.0.len() - 1
        });
        self.0[number] = Entry { is_taken: true, ..Entry::default() };
        number as u32
    }

    /// The member with this tag has something to read.
    pub(crate) fn report(&mut self, slots: &mut Slots, tasks: &mut Tasks, number: u32, tag: u32) {
        let Some(entry) = self.0.get_mut(number as usize).filter(|entry| entry.is_taken) else {
            return;
        };
        entry.ready.push(tag);
        if let Some(slot) = entry.slot.take() {
            slots.complete(tasks, slot, SlotState::Ready);
        }
    }
}
