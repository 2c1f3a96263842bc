//! Compressors, which are large and dear to make, kept by each thread for the next response.
//!
//! Brotli's is made anew each time: the library has no way to begin another stream with one.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Idle compressors `C` of a thread, each for the settings `K` that it was made with. The one
/// that was used last is taken first, as it is the likeliest to be in the processor's caches.
pub struct Idle<K, C> {
    most: usize,
    /// The one that waits longest comes first.
    all: RefCell<Vec<(K, C)>>,
}

impl<K: PartialEq, C> Idle<K, C> {
    /// None yet, and never more than `most`.
    pub const fn new(most: usize) -> Idle<K, C> {
        Idle { most, all: RefCell::new(Vec::new()) }
    }

    fn get(&self, settings: &K) -> Option<C> {
        let mut all = self.all.borrow_mut();
        let at = all.iter().rposition(|(s, _)| s == settings)?;
        // The order of the others stays: it says how long they have waited.
        Some(all.remove(at).1)
    }

    /// Gives back the one for which there is no room any more.
    fn put(&self, settings: K, coder: C) -> Option<C> {
        let mut all = self.all.borrow_mut();
        all.push((settings, coder));
        (all.len() > self.most).then(|| all.remove(0).1)
    }
}

/// One that this thread keeps for these settings.
pub fn take<K: PartialEq, C>(idle: &'static LocalKey<Idle<K, C>>, settings: &K) -> Option<C> {
    idle.try_with(|idle| idle.get(settings)).ok().flatten()
}

/// Keeps one that can begin another stream. Where there are too many, others are wanted now than
/// those that wait longest, and these go; at the thread's end there is nobody to keep any for.
pub fn keep<K: PartialEq, C>(idle: &'static LocalKey<Idle<K, C>>, settings: K, coder: C) {
    // Dropped where nothing is borrowed.
    drop(idle.try_with(|idle| idle.put(settings, coder)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    thread_local! {
        static IDLE: Idle<u8, u32> = const { Idle::new(3) };
        static COUNTED: Idle<u8, Rc<()>> = const { Idle::new(1) };
    }

    #[test]
    fn one_is_for_its_settings_alone() {
        assert_eq!(take(&IDLE, &1), None);
        keep(&IDLE, 1, 10);
        assert_eq!(take(&IDLE, &2), None);
        assert_eq!((take(&IDLE, &1), take(&IDLE, &1)), (Some(10), None));
    }

    #[test]
    fn the_one_used_last_is_taken_first() {
        [(1, 10), (2, 20), (1, 11)].into_iter().for_each(|(k, c)| keep(&IDLE, k, c));
        assert_eq!((take(&IDLE, &1), take(&IDLE, &1)), (Some(11), Some(10)));
        assert_eq!(take(&IDLE, &2), Some(20));
    }

    #[test]
    fn the_one_that_waits_longest_goes() {
        [(1, 10), (2, 20), (3, 30)].into_iter().for_each(|(k, c)| keep(&IDLE, k, c));
        // One that worked meanwhile has not waited.
        keep(&IDLE, 1, take(&IDLE, &1).unwrap());
        keep(&IDLE, 4, 40);
        assert_eq!((take(&IDLE, &2), take(&IDLE, &1)), (None, Some(10)));
        assert_eq!((take(&IDLE, &3), take(&IDLE, &4)), (Some(30), Some(40)));
        let one = Rc::new(());
        (0..3).for_each(|k| keep(&COUNTED, k, one.clone()));
        assert_eq!(Rc::strong_count(&one), 2);
    }

    #[test]
    fn other_threads_have_their_own_and_the_end_of_one_is_no_place_to_keep_any() {
        struct Late(u32);
        impl Drop for Late {
            fn drop(&mut self) {
                // Whichever of the two goes first: neither panics.
                keep(&IDLE, 1, self.0);
                let _ = take(&IDLE, &1);
            }
        }
        thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });
        keep(&IDLE, 9, 90);
        let other = std::thread::spawn(|| {
            LATE.with_borrow_mut(|late| *late = Some(Late(1)));
            keep(&IDLE, 2, 20);
            take(&IDLE, &9)
        });
        assert_eq!(other.join().unwrap(), None);
        assert_eq!(take(&IDLE, &9), Some(90));
    }
}
