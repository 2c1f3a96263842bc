//! Accepting where descriptors run out again and again, on the simulated clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event::sim::{Faults, Plan};
use event::testing::{connect, listen};
use event::{DriverKind, Loop, Options};

#[test]
fn no_pause_is_long_and_no_turn_is_idle() {
    run(|| pauses(None));
}

#[test]
fn a_close_ends_a_pause() {
    run(|| pauses(Some(5)));
}

fn run<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
    for plan in [Plan::new(7, FAULTS), Plan::new(8, FAULTS).completing()] {
        let options = Options { driver: DriverKind::Sim(plan), ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        event_loop.block_on(test()).expect("the loop runs");
    }
}

/// Each fifth connection finds no descriptor.
const FAULTS: Faults = Faults { starved: 200, ..Faults::NONE };

/// With `close_after`, a connection is closed whenever none was accepted for so many milliseconds:
/// accepting goes on with that, and not at the end of the pause.
async fn pauses(close_after: Option<u64>) {
    let (listener, addr) = listen().expect("a listener");
    let count = 100;
    let served = Rc::new(Cell::new(0));
    let seen = served.clone();
    let kept = Rc::new(RefCell::new(Vec::new()));
    let open = kept.clone();
    event::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            open.borrow_mut().push(accepted);
            seen.set(seen.get() + 1);
        }
    });
    if let Some(ms) = close_after {
        let served = served.clone();
        event::spawn(async move {
            loop {
                let before = served.get();
                event::sleep(ms).await;
                let closed = if served.get() == before { kept.borrow_mut().pop() } else { None };
                drop(closed);
            }
        });
    }
    let (mut longest, mut last) = (0, base::time::now_ms());
    let turns = event::stats().turns;
    let mut clients = Vec::new();
    for n in 0..count {
        clients.push(connect(&addr).await.expect("connected"));
        while served.get() <= n {
            event::sleep(1).await;
        }
        // The first ones leave none to close.
        if n >= 10 {
            longest = longest.max(base::time::now_ms() - last);
        }
        last = base::time::now_ms();
    }
    // Faults in a row are as many pauses.
    let pause = close_after.map_or(15, |ms| 2 * ms);
    assert!(longest > 0 && longest <= 5 * pause, "{longest} ms");
    let turns = event::stats().turns - turns;
    // A close wakes the loop as well.
    let limit = if close_after.is_some() { 60 } else { 35 };
    assert!(turns < limit * count as u64, "{turns} turns");
}
