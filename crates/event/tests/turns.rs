//! Giving way to others.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use event::task::{gather, next_turn, turn_end, yield_now};
use event::testing::{compute, each_driver};

#[test]
fn a_task_that_waits_for_the_next_turn_lets_the_loop_look_at_its_sockets() {
    each_driver(|| async {
        let before = event::stats().turns;
        for _ in 0..8 {
            next_turn().await;
        }
        assert!(event::stats().turns - before >= 8);
        // Rounds are less than turns.
        let before = event::stats().turns;
        for _ in 0..8 {
            yield_now().await;
        }
        assert!(event::stats().turns - before < 8);
        // A task that ends before its turn comes is forgotten.
        let gone = event::spawn(async { next_turn().await });
        yield_now().await;
        event::task::cancel(gone);
        next_turn().await;
        next_turn().await;
        assert_eq!(event::stats().tasks, 1);
    });
}

#[test]
fn a_task_that_waits_for_a_turn_s_end_runs_behind_the_others() {
    each_driver(|| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let (last, others) = (order.clone(), order.clone());
        // A test that asked again and again would itself be polled in those turns.
        let ended = Rc::new(event::Notify::new());
        let end = ended.clone();
        event::spawn(async move {
            // Of the turn in which it began, which had the polls of others; then nobody else runs.
            let polls = turn_end().await;
            last.borrow_mut().push(("end", polls >= 3));
            let polls = turn_end().await;
            last.borrow_mut().push(("end", polls == 0));
            end.notify_one();
        });
        event::spawn(async move {
            for _ in 0..3 {
                others.borrow_mut().push(("other", true));
                yield_now().await;
            }
        });
        ended.notified().await;
        let expected = [("other", true); 3].into_iter().chain([("end", true); 2]);
        assert!(order.borrow().iter().copied().eq(expected), "{order:?}");
        // One that is cancelled is forgotten.
        let gone = event::spawn(async { _ = turn_end().await });
        yield_now().await;
        event::task::cancel(gone);
        next_turn().await;
        assert_eq!(event::stats().tasks, 1);
    });
}

#[test]
fn work_that_nobody_waits_for_has_a_part_of_each_turn_in_turns() {
    each_driver(|| async {
        // The number of the task, and the turn.
        let done = Rc::new(RefCell::new(Vec::<(usize, u64)>::new()));
        let (tasks, pieces) = (30, 4);
        let mut gone = Vec::new();
        for task in 0..tasks {
            let done = done.clone();
            event::spawn(async move {
                for _ in 0..pieces {
                    event::spare_time().await;
                    done.borrow_mut().push((task, event::stats().turns));
                    // Longer than a turn's part ever is.
                    compute(Duration::from_micros(400));
                }
            });
            // One that is forgotten while it waits, between any two.
            gone.push(event::spawn(event::spare_time()));
        }
        next_turn().await;
        gone.into_iter().for_each(event::task::cancel);
        while done.borrow().len() < tasks * pieces {
            next_turn().await;
        }
        let done = done.take();
        assert_eq!(done.len(), tasks * pieces);
        if event::driver_name() == "sim" {
            // Time does not pass in the simulation.
            return;
        }
        assert!(done.windows(2).all(|two| two[0].1 != two[1].1), "{done:?}");
        let mut counts = vec![0; tasks];
        for (task, _) in &done {
            counts[*task] += 1;
            // The first one begins before the others have come.
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 2, "{counts:?}");
        }
    });
}

/// Runs `tasks` tasks that are ready at once, each with a step before it waits for the others and
/// one behind. Gives the steps in order: the number of the step, and of the task.
async fn gathered(tasks: usize) -> Vec<(u8, usize)> {
    let steps = Rc::new(RefCell::new(Vec::new()));
    for task in 0..tasks {
        let steps = steps.clone();
        event::spawn(async move {
            steps.borrow_mut().push((1, task));
            gather().await;
            steps.borrow_mut().push((2, task));
        });
    }
    next_turn().await;
    next_turn().await;
    steps.take()
}

#[test]
fn tasks_that_are_ready_at_once_go_from_step_to_step_together() {
    each_driver(|| async {
        assert_eq!(gathered(1).await, [(1, 0), (2, 0)]);
        // A process that has to wait for its processor goes on without the others.
        let mut together = false;
        for _ in 0..100 {
            together |= gathered(3).await == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        }
        assert!(together);
        // Of many, some wait for each other; none waits for all.
        let steps = gathered(100).await;
        assert_eq!(steps.len(), 200);
        let mut waiting = 0usize;
        for (step, task) in &steps {
            waiting = if *step == 1 { waiting + 1 } else { waiting - 1 };
            assert!(waiting <= 32, "{task}");
        }
        for step in [1, 2] {
            let of_step = steps.iter().filter(|s| s.0 == step).map(|s| s.1);
            assert!(of_step.eq(0..100));
        }
    });
}

#[test]
fn long_steps_are_not_gathered() {
    each_driver(|| async {
        // Tasks that wait, and the most of them at once.
        let waiting = Rc::new(Cell::new((0, 0)));
        for _ in 0..10 {
            let waiting = waiting.clone();
            event::spawn(async move {
                compute(Duration::from_millis(1));
                let (now, most) = waiting.get();
                waiting.set((now + 1, most.max(now + 1)));
                gather().await;
                let (now, most) = waiting.get();
                waiting.set((now - 1, most));
            });
        }
        next_turn().await;
        next_turn().await;
        // The first waits while the second one comes; in a simulation computing takes no time.
        let began_us = base::time::exact_us();
        compute(Duration::from_millis(1));
        let takes_time = base::time::exact_us() > began_us;
        assert_eq!(waiting.get(), (0, if takes_time { 2 } else { 10 }));
    });
}

#[test]
fn a_task_that_is_alone_does_not_wait_for_others() {
    each_driver(|| async {
        next_turn().await;
        let before = event::stats().polls;
        for _ in 0..10 {
            gather().await;
        }
        next_turn().await;
        // One poll for the turn that began.
        assert!(event::stats().polls - before <= 1);
    });
}

#[test]
fn tasks_that_wait_for_each_other_again_and_again_let_the_loop_go_on() {
    each_driver(|| async {
        let rounds = Rc::new(RefCell::new(0));
        for _ in 0..2 {
            let rounds = rounds.clone();
            event::spawn(async move {
                loop {
                    gather().await;
                    *rounds.borrow_mut() += 1;
                    if *rounds.borrow() % 1000 == 0 {
                        yield_now().await;
                    }
                }
            });
        }
        // The turns go on though they never end.
        for _ in 0..3 {
            next_turn().await;
        }
        assert!(*rounds.borrow() > 1000);
    });
}

#[test]
fn a_task_that_panics_or_is_cancelled_keeps_none_of_those_beside_it() {
    each_driver(|| async {
        let done = Rc::new(RefCell::new(Vec::new()));
        let third = Rc::new(Cell::new(None));
        for task in 0..4 {
            let (done, cancelled) = (done.clone(), third.clone());
            let id = event::spawn(async move {
                gather().await;
                assert_ne!(task, 1, "meant to panic");
                done.borrow_mut().push(task);
                // The first cancels it, whether it waits already or has not begun.
                if task == 0 {
                    cancelled.take().into_iter().for_each(event::task::cancel);
                }
            });
            if task == 2 {
                third.set(Some(id));
            }
        }
        next_turn().await;
        next_turn().await;
        assert_eq!(done.take(), [0, 3]);
        assert_eq!(event::stats().tasks, 1);
    });
}

#[test]
fn a_future_with_a_waker_of_its_own_does_not_wait_for_others() {
    each_driver(|| async {
        let ready = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let ready = ready.clone();
            event::spawn(async move {
                let mut cx = Context::from_waker(Waker::noop());
                ready.set(ready.get() + i32::from(pin!(gather()).poll(&mut cx).is_ready()));
            });
        }
        next_turn().await;
        next_turn().await;
        assert_eq!(ready.get(), 3);
    });
}

/// The lines that a loop logs in whose turn a task takes 5 ms.
fn said_of_a_long_turn(options: event::Options) -> String {
    let (log, lines) = base::log::capture(base::log::Level::Warn);
    base::log::set_default(log);
    let mut event_loop = event::Loop::new(options).expect("a loop");
    let done = event_loop.block_on(async {
        next_turn().await;
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        next_turn().await;
        next_turn().await;
    });
    done.expect("its end");
    lines.take()
}

#[test]
fn a_turn_that_serves_nobody_else_for_long_is_logged() {
    let options = |stall_ms, timer_resolution_ms| event::Options {
        stall_ms,
        timer_resolution_ms,
        ..event::Options::default()
    };
    let told = said_of_a_long_turn(options(2, 0));
    assert!(told.contains("a turn of the event loop took"), "{told:?}");
    assert!(told.contains(" ms of it on a processor"), "{told:?}");
    assert_eq!(said_of_a_long_turn(options(60_000, 0)), "");
    // The clock of such a loop does not tell.
    assert_eq!(said_of_a_long_turn(options(2, 10)), "");
}
