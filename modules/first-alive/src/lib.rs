//! An example of a balancing method: `first_alive;` sends each request to the first server of the
//! list that lives, so that the order is that of preference: a main site, a second, a third.
#![forbid(unsafe_code)]

use std::rc::Rc;

use weir_module::config::UPSTREAM;
use weir_module::prelude::*;
use weir_module::timer::unix_secs;
use weir_module::upstream::{
    Balancer, Block, Client, ExchangeTimes, Peer, Picker, Round, ServerOutcome, Servers,
};

/// The module's table.
pub static MODULE: Module = Module {
    name: "first_alive",
    directives: &[directive(
        "first_alive",
        UPSTREAM,
        Args::NONE,
        "",
        "Requests go to the first server that lives, in the order in which they are written.",
        |cx, n| {
            let make = |servers: &Rc<Servers>| Box::new(FirstAlive(servers.clone())) as Box<_>;
            cx.loc::<Block>().set_method(n, true, Box::new(make));
            Ok(())
        },
    )],
    ..Module::EMPTY
};

struct FirstAlive(Rc<Servers>);

impl Balancer for FirstAlive {
    fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
        Box::new(Choosing(Round::new(&self.0)))
    }
}

/// One request's way down the list.
struct Choosing(Round);

impl Choosing {
    fn first(&mut self) -> Option<Rc<Peer>> {
        let now = unix_secs().cast_signed();
        let first = (0..self.0.list().len()).find(|&i| self.0.may_ask(i, now))?;
        Some(self.0.take(first, now))
    }
}

impl Picker for Choosing {
    fn tries(&self) -> u32 {
        self.0.tries()
    }

    fn next(&mut self, _: Option<&[u8]>) -> Option<Rc<Peer>> {
        // The workers share the state of the servers: the choice is made under its lock.
        let servers = self.0.servers();
        let _lock = self.0.lock_to_choose(&servers);
        self.first().or_else(|| if self.0.to_backup() { self.first() } else { None })
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, _: ExchangeTimes) -> bool {
        self.0.done(peer, outcome)
    }

    fn is_single(&self) -> bool {
        self.0.is_single()
    }
}
