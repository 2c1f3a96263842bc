//! The number of a pool's threads that compute. The machine's scheduler decides that as well, so
//! these tests are a program of their own, which is best run alone.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use event::testing::compute;
use event::{Loop, Options, Pool, pool};

fn on_epoll<T: 'static>(body: impl Future<Output = T> + 'static) -> T {
    Loop::new(Options::default()).unwrap().block_on(body).unwrap()
}

#[test]
fn tasks_that_compute_have_no_more_threads_than_processors() {
    on_epoll(async {
        pool::set_workers(usize::MAX);
        let pool = Pool::new("p", 16, 1000);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..400)
            .map(|_| {
                let (running, most) = (running.clone(), most.clone());
                pool.run(move || {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    compute(Duration::from_micros(20));
                    running.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // A preempted thread may look as if it waited, once in a while.
        let most = most.load(Ordering::SeqCst);
        assert!(most <= 6, "{most} at once");
    });
}

/// The threads that run short tasks of a pool of sixteen.
async fn threads_of_short_tasks() -> usize {
    thread_local! {
        static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    }
    pool::set_workers(usize::MAX);
    let pool = Pool::new("p", 16, 1000);
    let threads = Arc::new(AtomicUsize::new(0));
    // All of them start, as tasks wait.
    let wait = || std::thread::sleep(Duration::from_millis(5));
    let mut tasks: Vec<_> = (0..200).map(|_| pool.run(wait)).collect();
    for n in 0..600 {
        let threads = threads.clone();
        tasks.push(pool.run(move || {
            // It takes some tasks until it is known that they do not wait.
            if n >= 300 && !IS_COUNTED.replace(true) {
                threads.fetch_add(1, Ordering::SeqCst);
            }
            compute(Duration::from_micros(200));
        }));
        // Tasks come while the threads give way.
        std::thread::yield_now();
    }
    for task in tasks {
        task.await.unwrap();
    }
    threads.load(Ordering::SeqCst)
}

#[test]
fn threads_that_give_way_are_not_replaced() {
    // On one processor, each would give way to all others, and the loop to all of them.
    let mut one = rustix::thread::CpuSet::new();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    // Where other processes take the processor, threads wait for locks of each other's.
    let counts: Vec<usize> = (0..8).map(|_| on_epoll(threads_of_short_tasks())).collect();
    assert!(counts.iter().any(|count| *count <= 6), "{counts:?} threads");
}
