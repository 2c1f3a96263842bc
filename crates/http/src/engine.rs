//! The `http` block as an engine of the server: its sockets, its life in a worker.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use common_modules::passing;
use conf::ConfError;
use engine::life::Accepting;
use engine::module::Helping;
use engine::{Engine, Help, Helper, Seat};
use event::{Accepted, Listener};
use net::{Kind, ListenSpec};

use quic::Endpoint;

use crate::accept::accept;
use crate::moves;
use crate::quic_listen;
use crate::request::Request;
use crate::server::HttpMain;

/// The engine of one loaded `http` block.
pub struct HttpEngine {
    main: Rc<HttpMain>,
    accepting: Accepting,
    /// The numbers among all listeners of those that accept connections.
    streams: RefCell<Rc<[usize]>>,
    /// The sockets of QUIC.
    endpoints: RefCell<Rc<[Rc<Endpoint>]>>,
}

impl HttpEngine {
    /// The engine of a loaded block.
    pub fn new(main: Rc<HttpMain>) -> HttpEngine {
        let (streams, endpoints) = (RefCell::new(Rc::from([])), RefCell::new(Rc::from([])));
        HttpEngine { main, accepting: Accepting::default(), streams, endpoints }
    }

    /// The work of a module in a process beside the workers.
    fn helping(&self, helper: Helper) -> Option<&'static Helping<Request>> {
        self.main.helps.iter().copied().find(|help| help.helper == helper)
    }

    /// The loaded block.
    pub fn main(&self) -> &Rc<HttpMain> {
        &self.main
    }
}

impl Drop for HttpEngine {
    fn drop(&mut self) {
        Request::forget_recycled();
    }
}

impl Engine for HttpEngine {
    fn name(&self) -> &'static str {
        "http"
    }

    fn listeners(&self) -> Vec<ListenSpec> {
        self.main.listens.iter().map(|l| l.spec.clone()).collect()
    }

    fn create_paths(&self, owner: Option<u32>, test: bool) -> Result<(), ConfError> {
        let place = &self.main.places.temp;
        self.main.temp_paths.iter().try_for_each(|temp| temp.create_in(place, owner, test))
    }

    fn start(&self, seat: &Seat, listeners: Vec<Listener>) -> io::Result<()> {
        self.main.stats.use_slot(seat.slot);
        self.main.metrics.use_slot(seat.slot);
        let _ = self.main.debug_from.set(seat.debug_connections.clone());
        self.main.life.set_moves(seat.moves.as_ref());
        moves::register(&self.main);
        mem::on_trim(Request::trim_recycled);
        let main = self.main.clone();
        passing::register(&main, main.listens.iter().map(|l| &l.spec));
        let numbered = listeners.into_iter().enumerate();
        let is_stream = |i: usize| main.listens.get(i).is_some_and(|l| l.spec.kind == Kind::Stream);
        let (streams, datagrams): (Vec<_>, Vec<_>) = numbered.partition(|(i, _)| is_stream(*i));
        if let Some(relay) = &seat.relay {
            let start = |(i, listener): (usize, Listener)| {
                let fd = listener.fd().try_clone_to_owned()?;
                Ok(quic_listen::start(&main, i, fd, relay, seat))
            };
            let endpoints = datagrams.into_iter().map(start).collect::<io::Result<Rc<[_]>>>()?;
            if let Some(inbox) = relay.take_inbox() {
                event::spawn(quic_listen::receive(inbox, endpoints.clone()));
            }
            self.endpoints.replace(endpoints);
        }
        let (numbers, streams): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
        let numbers: Rc<[usize]> = numbers.into();
        self.streams.replace(numbers.clone());
        self.accepting.begin(streams, move |i, a| accept(&main, numbers[i], a.sock, a.addr));
        let serving = Rc::downgrade(&self.main);
        engine::status::begin(&self.main.stats, &self.main.pools, move || {
            // One that leaves still works, until it has nothing to do.
            serving.upgrade().is_some_and(|main| !main.life.is_leaving() || main.life.active() > 0)
        });
        self.main.starts.iter().try_for_each(|start| start(&self.main, seat))
    }

    fn take(&self, listener: usize, a: Accepted) {
        accept(&self.main, listener, a.sock, a.addr);
    }

    fn quit(&self) {
        let numbers = self.streams.borrow().clone();
        self.accepting.end(|i, a| accept(&self.main, numbers[i], a.sock, a.addr));
        self.main.life.gate.close();
        self.endpoints.borrow().iter().for_each(|endpoint| endpoint.leave());
    }

    fn idle(&self) -> bool {
        self.main.life.active() == 0
    }

    fn force(&self) {
        self.main.life.give_up();
        self.endpoints.borrow().iter().for_each(|endpoint| endpoint.touch_all());
    }

    fn last_work(&self) -> Vec<Help> {
        self.main.life.last_work()
    }

    fn certificates(&self) -> Vec<(String, Option<i64>)> {
        let all = crate::ssl::certificates(&self.main).into_iter();
        all.filter(|known| known.is_issued()).map(|known| (known.name, known.until)).collect()
    }

    fn wants(&self, helper: Helper) -> bool {
        self.helping(helper).is_some_and(|help| (help.wants)(&self.main))
    }

    fn prepare_help(&self, helper: Helper) {
        if let Some(help) = self.helping(helper) {
            (help.prepare)(&self.main);
        }
    }

    fn help(&self, helper: Helper, seat: &Seat) -> Option<Help> {
        self.helping(helper).map(|help| (help.run)(&self.main, seat))
    }

    fn worker_died(&self, slot: usize) {
        self.main.stats.worker_died(slot);
    }
}
