//! Giving way to others.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use event::task::{next_turn, turn_end, yield_now};
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
        event::spawn(async move {
            // Of the turn in which it began, which had the polls of others; then nobody else runs.
            let polls = turn_end().await;
            last.borrow_mut().push(("end", polls >= 3));
            let polls = turn_end().await;
            last.borrow_mut().push(("end", polls == 0));
        });
        event::spawn(async move {
            for _ in 0..3 {
                others.borrow_mut().push(("other", true));
                yield_now().await;
            }
        });
        event::sleep(20).await;
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
