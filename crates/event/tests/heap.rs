//! The heap behind a pool's threads. Alone in its process, whose memory it looks at.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

use std::sync::{Arc, Barrier};

use event::{Loop, Options, Pool, sleep};

const THREADS: usize = 16;

/// Private memory of this process that was written, KB.
fn dirty_kb() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Private_Dirty:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Blocks of all the sizes that the C library keeps for a thread which frees them.
fn blocks() -> Vec<Box<[u8]>> {
    (24..1024).step_by(16).flat_map(|size| (0..7).map(move |_| vec![1; size].into())).collect()
}

#[test]
fn memory_that_threads_keep_goes_back_when_they_have_ended() {
    os::memory::keep_reserve();
    let mut event_loop = Loop::new(Options::default()).unwrap();
    let done = event_loop.block_on(async {
        let pool = Pool::new("p", THREADS, 100);
        let all = Arc::new(Barrier::new(THREADS));
        let before = dirty_kb();
        let mut pins = Vec::new();
        let tasks: Vec<_> = (0..THREADS)
            .map(|_| {
                let (all, blocks) = (all.clone(), blocks());
                // The free memory before it stays in the middle of the heap.
                pins.push(vec![1_u8; 5000]);
                pool.run(move || {
                    all.wait();
                    drop(blocks);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // The first looks at unused memory are over, and the threads are idle still.
        sleep(3000).await;
        assert!(dirty_kb() > before + 2000, "threads keep nothing: the test shows nothing");
        // Nothing else wakes the loop, and this wake is looked at a second later.
        sleep(12_000).await;
        let after = dirty_kb();
        assert!(after < before + 1000, "{before} KB before, and {after} KB behind the threads");
    });
    done.unwrap();
}
