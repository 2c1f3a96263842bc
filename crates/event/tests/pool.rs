//! Pools of threads, on every driver.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use base::log::{self, Level};
use event::testing::{each_driver, until};
use event::{Either, Loop, Options, Pool, TaskError, pool, race, run_blocking, sleep};

/// Counts how many of it live.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn new(count: &Arc<AtomicUsize>) -> Held {
        count.fetch_add(1, Ordering::SeqCst);
        Held(count.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps tasks waiting until it is opened; for real threads only.
#[derive(Clone, Default)]
struct Brake(Arc<(Mutex<bool>, Condvar)>);

impl Brake {
    fn wait(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

fn on_epoll<T: 'static>(body: impl Future<Output = T> + 'static) -> T {
    Loop::new(Options::default()).unwrap().block_on(body).unwrap()
}

#[test]
fn values_come_back() {
    each_driver(|| async {
        let pool = Pool::new("p", 3, 1000);
        let sum = Rc::new(Cell::new(0));
        for n in 0..200u64 {
            let (task, sum) = (pool.run(move || n * 2), sum.clone());
            event::spawn(async move {
                let value = task.await.unwrap();
                sum.set(sum.get() + value);
            });
        }
        let of_all = sum.clone();
        until(move || of_all.get() == 199 * 200).await;
        let counters = pool.counters();
        assert_eq!((counters.done, counters.queued, counters.running), (200, 0, 0));
        assert_eq!(run_blocking(|| "text".to_owned()).await.unwrap(), "text");
        assert!(pool::all_idle());
    });
}

#[test]
fn short_tasks_and_long_ones_take_turns() {
    on_epoll(async {
        let pool = Pool::new("p", 1, 100);
        let (brake, order) = (Brake::default(), Arc::new(Mutex::new(Vec::new())));
        let of_first = brake.clone();
        let first = pool.run(move || of_first.wait());
        until({
            let pool = pool.clone();
            move || pool.counters().running == 1
        })
        .await;
        let note = |name: &'static str| {
            let order = order.clone();
            move || order.lock().unwrap().push(name)
        };
        let mut tasks: Vec<_> = ["L1", "L2", "L3"].map(|name| pool.run(note(name))).into();
        tasks.extend(["s1", "s2"].map(|name| pool.run_short(note(name))));
        assert_eq!(pool.counters().queued, 5);
        brake.open();
        first.await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.lock().unwrap().concat(), "L1s1L2s2L3");
    });
}

#[test]
fn a_panic_is_the_task_s_own() {
    each_driver(|| async {
        let (log, lines) = log::capture(Level::Alert);
        log::set_default(log);
        let pool = Pool::new("p", 1, 10);
        let before = pool.run(|| 1);
        let bad = pool.run(|| -> u32 { panic!("no such luck") });
        let after = pool.run(|| 2);
        assert_eq!(bad.await, Err(TaskError::Panicked("no such luck".into())));
        assert_eq!((before.await, after.await), (Ok(1), Ok(2)));
        let text = lines.take();
        assert!(text.contains("no such luck"), "{text}");
    });
}

#[test]
fn what_a_panic_carries_is_dropped() {
    each_driver(|| async {
        let pool = Pool::new("p", 1, 10);
        let count = Arc::new(AtomicUsize::new(0));
        let held = Held::new(&count);
        let bad = pool.run(move || -> u32 { std::panic::panic_any(held) });
        assert_eq!(bad.await, Err(TaskError::Panicked("of unknown kind".into())));
        until(|| count.load(Ordering::SeqCst) == 0).await;
    });
}

#[test]
fn a_queue_that_is_full_refuses() {
    each_driver(|| async {
        let (log, lines) = log::capture(Level::Error);
        log::set_default(log);
        for (threads, max_queue) in [(1, 0), (2, 0), (2, 3)] {
            let brake = Brake::default();
            let pool = Pool::new("small", threads, max_queue);
            let run = || {
                let simulated = event::driver_name() == "sim";
                let brake = brake.clone();
                pool.run(move || {
                    if !simulated {
                        brake.wait()
                    }
                })
            };
            let tasks: Vec<_> = (0..threads + max_queue).map(|_| run()).collect();
            assert_eq!(run().await, Err(TaskError::QueueFull));
            assert_eq!(pool.detach(|| ()), Err(TaskError::QueueFull));
            let said = format!("thread pool \"small\" queue overflow: {max_queue} tasks waiting");
            let text = lines.take();
            assert!(text.contains(&said), "{text}");
            assert_eq!(pool.counters().refused, 2);
            brake.open();
            for task in tasks {
                assert_eq!(task.await, Ok(()));
            }
            assert_eq!(run().await, Ok(()), "there is room again");
        }
    });
}

#[test]
fn what_is_given_up_is_done_and_its_value_dropped() {
    each_driver(|| async {
        let (alive, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let pool = Pool::new("p", 2, 1000);
        for n in 0..60u64 {
            let (held, ran) = (Held::new(&alive), ran.clone());
            let task = pool.run(move || {
                ran.fetch_add(1, Ordering::SeqCst);
                held
            });
            match n % 4 {
                // At once; after a poll; after any time, the task's end included; not at all.
                0 => drop(task),
                1 => drop(race(task, std::future::ready(())).await),
                2 => drop(race(task, sleep(n)).await),
                _ => drop(task.await.unwrap()),
            }
        }
        let (of_wait, pool_of_wait) = (ran.clone(), pool.clone());
        until(move || {
            let counters = pool_of_wait.counters();
            of_wait.load(Ordering::SeqCst) == 60 && counters.queued + counters.running == 0
        })
        .await;
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn the_loop_goes_on_while_tasks_wait() {
    on_epoll(async {
        let brake = Brake::default();
        let pool = Pool::new("p", 2, 10);
        let tasks = [(); 4].map(|()| {
            let brake = brake.clone();
            pool.run(move || brake.wait())
        });
        until({
            let pool = pool.clone();
            move || pool.counters().running == 2
        })
        .await;
        // The timers and turns of the loop pass, though no task can end before the brake is opened.
        let turns = event::stats().turns;
        for _ in 0..20 {
            sleep(1).await;
        }
        assert!(event::stats().turns >= turns + 20, "{:?}", event::stats());
        let counters = pool.counters();
        assert_eq!((counters.running, counters.queued, counters.done), (2, 2, 0));
        assert!(!pool::all_idle());
        brake.open();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(pool.counters().longest_wait_us >= 10_000, "{:?}", pool.counters());
    });
}

#[test]
fn threads_come_as_they_are_needed_and_end_with_the_pool() {
    on_epoll(async {
        let named = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names = tasks.map(|t| std::fs::read(t.unwrap().path().join("comm")));
            names.filter(|n| n.as_ref().is_ok_and(|n| n == b"pool as-needed\n")).count()
        };
        let pool = Pool::new("as-needed", 8, 10);
        assert_eq!(named(), 0);
        for _ in 0..5 {
            pool.run(|| ()).await.unwrap();
        }
        assert_eq!(named(), 1);
        let brake = Brake::default();
        for _ in 0..12 {
            let brake = brake.clone();
            pool.detach(move || brake.wait()).unwrap();
        }
        // A thread gives itself its name.
        until(|| named() == 8).await;
        let done = Arc::new(AtomicBool::new(false));
        let last = done.clone();
        pool.detach(move || last.store(true, Ordering::SeqCst)).unwrap();
        drop(pool);
        brake.open();
        until(|| named() == 0).await;
        assert!(done.load(Ordering::SeqCst), "what was queued is done before the end");
    });
}

#[test]
fn a_task_that_computes_for_long_does_not_hold_up_all_others() {
    on_epoll(async {
        pool::set_workers(usize::MAX);
        let pool = Pool::new("p", 4, 1000);
        let done = Arc::new(AtomicBool::new(false));
        let of_first = done.clone();
        let first = pool.run(move || {
            while !of_first.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        pool.run(move || done.store(true, Ordering::SeqCst)).await.unwrap();
        first.await.unwrap();
    });
}

#[test]
fn threads_take_no_signals() {
    on_epoll(async {
        let pool = Pool::new("p", 1, 0);
        let status = pool.run(|| std::fs::read_to_string("/proc/thread-self/status"));
        let status = status.await.unwrap().unwrap();
        let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        for signal in [1, 2, 3, 10, 12, 15, 17, 28] {
            assert!(blocked & 1 << (signal - 1) != 0, "signal {signal} in {blocked:x}");
        }
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let own = own.lines().find_map(|l| l.strip_prefix("SigBlk:")).unwrap();
        assert_eq!(u64::from_str_radix(own.trim(), 16).unwrap() & 1 << 14, 0, "{own}");
    });
}

/// Has the loop wait for the end of a task that nobody awaits; returns the time it took on the
/// loop's clock. The task ends once the loop's thread waits.
fn wait_for_a_forgotten_task(event_loop: &mut Loop, pool: &Pool) -> u64 {
    let (own, loop_thread) = (pool.clone(), os::thread::id());
    let before_ms = base::time::now_ms();
    event_loop
        .block_on(async move {
            let task = move || {
                while !os::thread::is_waiting(loop_thread) {
                    std::thread::yield_now();
                }
            };
            own.detach(task).unwrap();
        })
        .unwrap();
    event_loop.run_until(pool::all_idle).unwrap();
    base::time::now_ms() - before_ms
}

#[test]
fn a_loop_that_waits_learns_of_forgotten_tasks() {
    let mut event_loop = Loop::new(Options::default()).unwrap();
    let pool = Pool::new("p", 1, 10);
    // Nothing else ends the wait before the look at unused memory, a second later. Most of the
    // rounds have to be shorter, because a busy machine may delay some.
    let quick = (0..9).filter(|_| wait_for_a_forgotten_task(&mut event_loop, &pool) < 1000).count();
    assert!(quick >= 5, "{quick} of 9");
    assert_eq!(pool.counters().done, 9);
}

#[test]
fn tasks_outlive_the_loop() {
    let (tell, told) = mpsc::channel();
    let brake = Brake::default();
    let of_task = brake.clone();
    on_epoll(async move {
        let pool = Pool::new("p", 1, 10);
        let task = pool.run(move || {
            of_task.wait();
            tell.send(()).unwrap();
            vec![1u8; 10]
        });
        // Given up by the end of the loop, in the middle of its work.
        event::spawn(async move { drop(task.await) });
        until(move || pool.counters().running == 1).await;
    });
    brake.open();
    told.recv().unwrap();
}

#[test]
fn simulated_tasks_end_in_every_order() {
    use event::sim::{self, Faults, Plan};
    let order = |seed| {
        sim::run(Plan::new(seed, Faults::ROUGH), async {
            let pool = Pool::new("p", 4, 100);
            let ended = Rc::new(RefCell::new(Vec::new()));
            for n in 0..8 {
                let (task, ended) = (pool.run(move || n), ended.clone());
                event::spawn(async move {
                    let value = task.await.unwrap();
                    ended.borrow_mut().push(value);
                });
            }
            let all = ended.clone();
            until(move || all.borrow().len() == 8).await;
            ended.take()
        })
        .unwrap()
    };
    assert_eq!(order(7), order(7), "a seed gives the same run again");
    assert!((0..20).any(|seed| order(seed) != order(7)));
}

#[test]
fn a_time_limit_on_a_task_costs_only_its_value() {
    each_driver(|| async {
        let pool = Pool::new("p", 1, 4);
        let (brake, is_simulated) = (Brake::default(), event::driver_name() == "sim");
        let of_task = brake.clone();
        let slow = pool.run(move || {
            // A simulated thread is the loop's own: it ends after a time of chance.
            if !is_simulated {
                of_task.wait();
            }
        });
        match race(slow, sleep(0)).await {
            Either::First(value) => {
                assert!(is_simulated, "the brake was not opened");
                value.unwrap();
            }
            Either::Second(()) => {}
        }
        brake.open();
        assert_eq!(pool.run(|| 5).await, Ok(5));
    });
}
