//! Connections without a socket count, and make room for others.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use event::sim::{Faults, Plan};
use event::testing::{drivers, pair, turns, until};
use event::{Call, Deadline, DriverKind, Loop, Options, Rest, Socketless, Standing};

type Calls = Rc<RefCell<Vec<(u8, Option<Call>)>>>;

/// Runs `body` on a loop of eight connections, on every driver.
fn each_small_loop<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in drivers() {
        let ran = Loop::new(Options { driver, connections: 8, ..Options::default() })
            .and_then(|mut event_loop| event_loop.block_on(body()));
        assert!(ran.is_ok(), "on {driver:?}: {ran:?}");
    }
}

fn ip(n: u8) -> Option<IpAddr> {
    Some(IpAddr::from([10, 0, 0, n]))
}

/// A connection of client `client`, with the number `n` in its calls. As its owner would, it closes
/// when it is asked to.
fn open(n: u8, client: u8, calls: &Calls) -> Rc<Socketless> {
    let c = Rc::new(Socketless::new(ip(client)));
    let (own, calls) = (c.clone(), calls.clone());
    event::spawn(async move {
        loop {
            let call = own.called().await;
            calls.borrow_mut().push((n, call));
            match call {
                Some(Call::Due) => {}
                Some(_) => own.close(),
                None => return,
            }
        }
    });
    c
}

#[test]
fn the_one_that_is_parked_makes_room() {
    each_small_loop(|| async {
        let calls = Calls::default();
        let all: Vec<_> = (0..7).map(|n| open(n, n, &calls)).collect();
        turns(4).await;
        assert_eq!((event::connections_in_use(), event::has_room(1)), (7, true));
        // Those that are busy stay.
        assert!(!event::has_room(2));
        all[5].stands(Rest::Idle, Deadline::NEVER);
        all[3].stands(Rest::Idle, Deadline::NEVER);
        all[3].stands(Rest::Busy, Deadline::NEVER);
        assert_eq!(event::room().parked, 1);
        assert!(event::has_room(2), "one is asked to close");
        turns(4).await;
        assert_eq!(*calls.borrow(), [(5, Some(Call::Reclaimed)), (5, None)]);
        assert_eq!((event::connections_in_use(), event::room().parked), (6, 0));
        // Connections with a socket ask for room as well.
        all[1].stands(Rest::Owes, Deadline::NEVER);
        let _pair = pair().unwrap();
        turns(4).await;
        assert_eq!(calls.borrow()[2..], [(1, Some(Call::Reclaimed)), (1, None)]);
        assert_eq!(event::connections_in_use(), 7);
        drop(all);
    });
}

#[test]
fn the_client_with_the_most_loses_first() {
    each_small_loop(|| async {
        let calls = Calls::default();
        let all: Vec<_> = (0..7).map(|n| open(n, u8::from(n > 1), &calls)).collect();
        turns(4).await;
        assert_eq!(all[0].standing(3), Standing::Light);
        assert_eq!(all[6].standing(3), Standing::Heavy(5));
        assert!(event::displace(3), "a busy one");
        turns(4).await;
        let displaced = calls.borrow().first().copied();
        assert!(matches!(displaced, Some((2.., Some(Call::Displaced)))), "{displaced:?}");
        assert_eq!(event::connections_in_use(), 6);
        // The first that is parked is another client's.
        all.iter().for_each(|c| c.stands(Rest::Idle, Deadline::NEVER));
        assert!(event::has_room(3));
        turns(4).await;
        let reclaimed = calls.borrow().get(2).copied();
        assert!(matches!(reclaimed, Some((2.., Some(Call::Reclaimed)))), "{reclaimed:?}");
        // It moves, and is another client's then.
        all[0].set_client([10, 0, 0, 1].into());
        assert_eq!(all[0].standing(3), Standing::Heavy(4));
    });
}

/// On the simulated clock, because deadlines are the subject: a busy machine is late for them.
#[test]
fn deadlines_pass_once_and_may_be_put_off() {
    let calm = Plan::new(0, Faults::NONE);
    for driver in [calm, calm.completing()].map(DriverKind::Sim) {
        let options = Options { driver, connections: 8, ..Options::default() };
        let mut event_loop = Loop::new(options).unwrap();
        event_loop.block_on(put_off()).unwrap();
    }
}

async fn put_off() {
    let calls = Calls::default();
    let c = open(1, 1, &calls);
    turns(4).await;
    c.stands(Rest::Owes, Deadline::in_ms(20));
    c.stands(Rest::Owes, Deadline::in_ms(60));
    event::sleep(59).await;
    assert!(calls.borrow().is_empty());
    event::sleep(2).await;
    assert_eq!(*calls.borrow(), [(1, Some(Call::Due))]);
    event::sleep(1000).await;
    assert_eq!(calls.borrow().len(), 1);
    c.stands(Rest::Owes, Deadline::in_ms(20));
    event::sleep(21).await;
    assert_eq!(calls.borrow().len(), 2);
    c.close();
    turns(4).await;
    assert_eq!(calls.borrow().last(), Some(&(1, None)));
    assert_eq!(event::connections_in_use(), 0);
}

/// The same on every driver, as far as it does not depend on the length of delays.
#[test]
fn deadlines_pass_on_every_driver() {
    each_small_loop(|| async {
        let calls = Calls::default();
        let c = open(1, 1, &calls);
        turns(4).await;
        c.stands(Rest::Owes, Deadline::in_ms(1));
        c.stands(Rest::Owes, Deadline::in_ms(100_000));
        turns(8).await;
        event::sleep(2).await;
        assert!(calls.borrow().is_empty(), "it was put off");
        c.stands(Rest::Owes, Deadline::in_ms(20));
        until(|| !calls.borrow().is_empty()).await;
        assert_eq!(*calls.borrow(), [(1, Some(Call::Due))]);
        c.close();
        turns(4).await;
        assert_eq!(calls.borrow().last(), Some(&(1, None)));
    });
}
