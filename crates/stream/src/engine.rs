//! The `stream` block as an engine of the server: its sockets and its lifecycle in a worker.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use common_modules::passing;
use engine::life::Accepting;
use engine::{Engine, Seat};
use event::{Accepted, Listener, TaskId};
use net::{Kind, ListenSpec};

use crate::accept::accept;
use crate::proxy::moved;
use crate::server::StreamMain;
use crate::udp::endpoint::Endpoint;
use crate::udp::table::Table;

/// The engine of one loaded `stream` block.
pub struct StreamEngine {
    main: Rc<StreamMain>,
    accepting: Accepting,
    /// The indexes of the TCP listeners among all listeners.
    streams: RefCell<Rc<[usize]>>,
    /// The relayed UDP sessions; unset without UDP sockets.
    table: OnceCell<Rc<Table>>,
    /// The UDP sockets, over which sessions send to their clients until they end.
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    /// The tasks that read the UDP sockets.
    receiving: RefCell<Vec<TaskId>>,
}

impl StreamEngine {
    /// The engine of a loaded block.
    pub fn new(main: Rc<StreamMain>) -> StreamEngine {
        StreamEngine {
            main,
            accepting: Accepting::default(),
            streams: RefCell::new(Rc::new([])),
            table: OnceCell::new(),
            endpoints: RefCell::default(),
            receiving: RefCell::default(),
        }
    }
}

impl Engine for StreamEngine {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn listeners(&self) -> Vec<ListenSpec> {
        self.main.listens.iter().map(|l| l.spec.clone()).collect()
    }

    fn start(&self, seat: &Seat, listeners: Vec<Listener>) -> io::Result<()> {
        self.main.stats.use_slot(seat.slot);
        self.main.metrics.use_slot(seat.slot);
        let _ = self.main.seat.set(seat.clone());
        self.main.life.set_moves(seat.moves.as_ref());
        if let Some(moves) = &seat.moves {
            moved::register(&self.main, moves);
        }
        let (mut streams, mut numbers) = (Vec::new(), Vec::new());
        for (i, (listener, listen)) in listeners.into_iter().zip(&self.main.listens).enumerate() {
            if listen.spec.kind == Kind::Stream {
                streams.push(listener);
                numbers.push(i);
                continue;
            }
            self.receive_from(i, listener.fd().try_clone_to_owned()?)?;
        }
        let numbers: Rc<[usize]> = numbers.into();
        *self.streams.borrow_mut() = numbers.clone();
        let main = self.main.clone();
        passing::register(&main, main.listens.iter().map(|l| &l.spec));
        self.accepting.begin(streams, move |i, a| accept(&main, numbers[i], a.sock, a.addr));
        self.main.starts.iter().try_for_each(|start| start(&self.main, seat))
    }

    fn receive_from(&self, listener: usize, socket: OwnedFd) -> io::Result<()> {
        let table = self.table.get_or_init(|| Table::start(&self.main));
        let alone = self.main.seat.get().map(|seat| seat.alone.clone()).unwrap_or_default();
        let (endpoint, task) = Endpoint::start(&self.main, table, listener, socket, alone)?;
        self.endpoints.borrow_mut().push(endpoint);
        self.receiving.borrow_mut().push(task);
        Ok(())
    }

    fn take(&self, listener: usize, a: Accepted) {
        accept(&self.main, listener, a.sock, a.addr);
    }

    fn quit(&self) {
        let numbers = self.streams.borrow().clone();
        self.accepting.end(|i, a| accept(&self.main, numbers[i], a.sock, a.addr));
        self.receiving.take().into_iter().for_each(event::task::cancel);
        self.endpoints.borrow().iter().for_each(Endpoint::leave);
        self.main.life.gate.close();
    }

    fn idle(&self) -> bool {
        self.main.life.active() == 0
    }

    fn force(&self) {
        self.main.life.give_up();
    }

    fn worker_died(&self, slot: usize) {
        self.main.stats.worker_died(slot);
    }
}
