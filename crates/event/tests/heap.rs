//! The heap behind a pool's threads. Alone in its process, whose memory it looks at.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use event::{Loop, Options, Pool, Sock, sleep};

const THREADS: usize = 16;

/// The pause between looks at the memory, and the most looks once the threads have ended: the loop
/// looks each second.
const PAUSE: Duration = Duration::from_millis(50);
const LOOKS_MAX: usize = 1200;

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

/// The threads of the pool.
fn pool_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read(task.unwrap().path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name == b"pool p\n")).count()
}

/// Waits until less than so much memory is dirty; returns how much is, in KB. Gives up long after
/// the threads have ended and the loop has looked at its memory.
fn await_return(most_kb: usize) -> usize {
    let mut looks = 0;
    loop {
        let dirty = dirty_kb();
        looks += usize::from(pool_threads() <= 1);
        if dirty < most_kb || looks > LOOKS_MAX {
            return dirty;
        }
        std::thread::sleep(PAUSE);
    }
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
        // The first looks at unused memory are over, and the threads are idle still, unless the
        // machine took ten seconds for these three.
        sleep(3000).await;
        let kept = dirty_kb();
        let shows_all = pool_threads() < THREADS || kept > before + 2000;
        assert!(shows_all, "threads keep nothing, {kept} KB: the test shows nothing");
        // Another thread looks, because nothing else may wake the loop.
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let watcher = std::thread::spawn(move || {
            let after = await_return(before + 1000);
            drop(theirs);
            after
        });
        Sock::from_fd(ours.into()).closed_by_peer().await.unwrap();
        let after = watcher.join().unwrap();
        assert!(after < before + 1000, "{before} KB before, and {after} KB behind the threads");
    });
    done.unwrap();
}
