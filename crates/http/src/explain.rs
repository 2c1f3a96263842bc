//! One request answered for its explanation (`weir explain`).
//!
//! With a [`Trace`] in its [`HttpMain`], the `http` block answers a request as always, by the same
//! code, and notes its decisions on the way. It stops where the content would be made by a handler
//! that is not known to be without effects ([`Dry`]), and where a server would be asked.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use event::Sock;
use os::SockAddr;

use crate::server::HttpMain;
pub use crate::trace::{Dry, Noted, Passed, Place, Step, Trace, Tried};

/// Serves one connection of a client under a trace, on a loop that runs. TLS is taken as done.
/// `listen` is the number of the socket among [`HttpMain::listens`], `local` the address that the
/// client connected to. None if this block has a trace already: it keeps state of its request.
pub fn begin(
    main: &Rc<HttpMain>,
    listen: usize,
    (fd, local, peer): (OwnedFd, SockAddr, SockAddr),
) -> Option<Rc<Trace>> {
    let trace = Rc::new(Trace::new(local));
    main.trace.set(trace.clone()).ok()?;
    crate::accept::accept(main, listen, Sock::from_fd(fd), peer);
    Some(trace)
}
