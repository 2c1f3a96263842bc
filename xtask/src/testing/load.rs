//! A load beside the tests, which shows those that depend on an idle machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// One busy loop for each processor, until this is dropped.
pub struct Busy {
    ends: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts the loops.
    pub fn on_each_processor() -> Busy {
        let ends = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let ends = ends.clone();
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let loops = (0..processors).map(|_| spin()).collect();
        Busy { ends, loops }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for busy in self.loops.drain(..) {
            // A loop that does nothing cannot panic.
            let _ = busy.join();
        }
    }
}
