//! Accepting where descriptors run out again and again, on the simulated clock.

use std::cell::Cell;
use std::rc::Rc;

use event::sim::{Faults, Plan};
use event::testing::{connect, listen};
use event::{DriverKind, Loop, Options};

#[test]
fn no_pause_is_long_and_no_turn_is_idle() {
    for plan in [Plan::new(7, FAULTS), Plan::new(8, FAULTS).completing()] {
        let options = Options { driver: DriverKind::Sim(plan), ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        event_loop.block_on(check()).expect("the loop runs");
    }
}

/// Each fifth connection finds no descriptor.
const FAULTS: Faults = Faults { starved: 200, ..Faults::NONE };

async fn check() {
    let (listener, addr) = listen().expect("a listener");
    let count = 100;
    let served = Rc::new(Cell::new(0));
    let seen = served.clone();
    event::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            // Kept open: no close ends the pause.
            kept.push(accepted);
            seen.set(seen.get() + 1);
        }
    });
    let (mut longest, mut last) = (0, base::time::now_ms());
    let turns = event::stats().turns;
    let mut clients = Vec::new();
    for n in 0..count {
        clients.push(connect(&addr).await.expect("connected"));
        while served.get() <= n {
            event::sleep(1).await;
        }
        longest = longest.max(base::time::now_ms() - last);
        last = base::time::now_ms();
    }
    // Two faults in a row are two pauses.
    assert!(longest > 0 && longest <= 5 * 55, "{longest} ms");
    let turns = event::stats().turns - turns;
    assert!(turns < 20 * count as u64 + 60 * count as u64 / 4, "{turns} turns");
}
