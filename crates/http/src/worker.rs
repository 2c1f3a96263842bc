//! What a worker does with a compiled `http` block: accept on its sockets until told to leave.

use std::rc::Rc;

use base::log::Level;
use event::Listener;

use crate::conn::{self, NewConn};
use crate::server::HttpMain;

/// Starts accepting on the `listen`-th socket of `main`. Ends when the listener is closed.
pub async fn accept(main: Rc<HttpMain>, listen: usize, listener: Rc<Listener>) {
    loop {
        match listener.accept().await {
            Ok(a) => conn::accept(&main, listen, NewConn { sock: a.sock, peer: a.addr }),
            Err(e) => {
                let log = base::log::default();
                base::log!(log, Level::Alert, None, "accept() failed {}", base::log::os_error(&e));
                return;
            }
        }
    }
}

impl HttpMain {
    /// Begins to leave: kept connections are closed as they fall idle, and new responses say so.
    pub fn leave(&self) {
        self.gate.close();
    }

    /// Whether nothing is left to serve.
    pub fn is_idle(&self) -> bool {
        self.active() == 0
    }
}
