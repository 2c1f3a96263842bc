//! Giving way to others.

use event::task::{next_turn, yield_now};
use event::testing::each_driver;

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
