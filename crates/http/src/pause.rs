//! Holding a request back.

use base::log::Level;
use event::Either;

use crate::module::Verdict;
use crate::request::Request;

impl Request {
    /// Waits, but not longer than the client does.
    ///
    /// # Errors
    /// The verdict that ends the request (499 in logs), when the client has closed the connection.
    pub async fn pause(&mut self, ms: u64) -> Result<(), Verdict> {
        match event::race(self.client_gone(), event::sleep(ms)).await {
            Either::Second(()) => Ok(()),
            Either::First(_) => {
                self.log(Level::Info, format_args!("client prematurely closed connection"));
                self.flags.err_status = crate::status_line::CLIENT_CLOSED;
                Err(Verdict::Close)
            }
        }
    }
}
