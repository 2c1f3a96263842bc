//! Behaviour of the simulation alone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use event::sim::{self, Faults, Plan};
use event::testing::{connect, listen};
use event::{Deadline, Sock};
use mem::Chain;

/// One exchange of a few requests and responses; every error ends it.
async fn converse(sock: Sock, first: bool, trace: Rc<RefCell<Vec<(u64, usize)>>>) -> Option<()> {
    for turn in 0..10u8 {
        if (turn % 2 == 0) == first {
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from(vec![turn; 3000]));
            sock.send(&mut chain, Deadline::in_ms(5000)).await.ok()?;
            continue;
        }
        let mut got = 0;
        while got < 3000 {
            let page = sock.recv(1, Deadline::in_ms(5000)).await.ok()?;
            if page.is_empty() {
                return None;
            }
            got += page.len();
            trace.borrow_mut().push((base::time::now_ms(), page.len()));
        }
    }
    Some(())
}

/// Runs some conversations; returns the time and length of each receive, and the number that ended.
fn conversations(plan: Plan) -> (Vec<(u64, usize)>, u32) {
    let trace = Rc::new(RefCell::new(Vec::new()));
    let ended = Rc::new(Cell::new(0));
    let (into, count) = (trace.clone(), ended.clone());
    sim::run(plan, async move {
        let (listener, addr) = listen().expect("a listener");
        let trace = into.clone();
        let server = event::spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                let trace = trace.clone();
                event::spawn(async move {
                    let _ = converse(accepted.sock, false, trace).await;
                });
            }
        });
        for _ in 0..5 {
            let (trace, count, addr) = (into.clone(), count.clone(), addr.clone());
            event::spawn(async move {
                let Ok(sock) = connect(&addr).await else { return };
                if converse(sock, true, trace).await.is_some() {
                    count.set(count.get() + 1);
                }
            });
        }
        event::sleep(600_000).await;
        event::task::cancel(server);
        event::task::yield_now().await;
        event::sleep(1000).await;
        assert_eq!((event::stats().tasks, event::stats().waiting), (1, 0), "{plan:?}");
        assert_eq!(event::connections_in_use(), 0);
    })
    .expect("the simulation ends");
    (trace.take(), ended.get())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let plan = Plan::new(7, Faults::HOSTILE);
    let (first, _) = conversations(plan);
    assert_eq!(first, conversations(plan).0);
    assert_ne!(first, conversations(Plan { seed: 8, ..plan }).0);
}

#[test]
fn nothing_hangs_or_leaks_when_connections_break() {
    let ended: Vec<u32> =
        (0..60).map(|seed| conversations(Plan::new(seed, Faults::HOSTILE)).1).collect();
    // The faults do strike, and not always.
    assert!(ended.contains(&5) && ended.iter().any(|&ended| ended < 3), "{ended:?}");
}

#[test]
fn days_pass_in_no_time() {
    // Nobody would wait for the end of this test otherwise.
    let plan = Plan::new(1, Faults::NONE);
    let slept = sim::run(plan, async {
        let before = base::time::unix_secs();
        event::sleep(3 * 86_400_000).await;
        base::time::unix_secs() - before
    });
    assert_eq!(slept.expect("the simulation ends"), 3 * 86_400);
}

#[test]
fn waiting_for_what_cannot_come_is_an_error() {
    let plan = Plan::new(1, Faults::NONE);
    let error = sim::run(plan, std::future::pending::<()>()).expect_err("nothing can come");
    assert!(error.to_string().contains("cannot come"));
}

#[test]
fn other_threads_wake_a_simulation() {
    let plan = Plan::new(1, Faults::NONE);
    let loop_thread = os::thread::id();
    let woken = sim::run(plan, async move {
        let mut begun = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut begun, true) {
                return std::task::Poll::Ready(());
            }
            let waker = cx.waker().clone();
            std::thread::spawn(move || {
                while !os::thread::is_waiting(loop_thread) {
                    std::thread::yield_now();
                }
                waker.wake();
            });
            std::task::Poll::Pending
        })
        .await;
    });
    woken.expect("the simulation ends");
}
