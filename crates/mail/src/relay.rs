//! The relay of a session whose client is logged in: bytes go both ways until a side ends.

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use engine::Client;
use event::Deadline;
use mem::Chain;
use net::Transport;
use net::relay::Flow;
use net::relay::wait::{Event, Times, held};

use crate::dialogue::LoggedIn;
use crate::session::MailSession;

/// A direction.
type Way<'a> = Flow<'a, Transport, Transport>;

/// Relays until the end.
///
/// An idle session keeps this future and little else. It is a block within a function, as an
/// `async fn` has its arguments twice.
pub(crate) fn run<'a>(
    s: &'a mut MailSession,
    logged_in: LoggedIn,
) -> impl Future<Output = ()> + use<'a> {
    let LoggedIn { server, first, pending } = logged_in;
    async move {
        let Some(client) = s.take_sock() else { return };
        s.now("proxying");
        let chain = |bytes: Vec<u8>| {
            let mut chain = Chain::new();
            if !bytes.is_empty() {
                chain.push_bytes(bytes.into());
            }
            chain
        };
        let mut up: Way<'_> = Flow::new(&client, &server, chain(pending));
        let mut down: Way<'_> = Flow::new(&server, &client, chain(first));
        let timeout = s.server.proxy.timeout;
        let mut last = Event::Both;
        let broken = 'relay: loop {
            if let Err(e) = turn(&mut up, &mut down, last) {
                break Some(e);
            }
            if up.is_done() || down.is_done() || up.ended && down.ended {
                break None;
            }
            if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
                event::task::yield_now().await;
                last = Event::Both;
                continue;
            }
            let look = now_ms().saturating_add(timeout);
            last = loop {
                let event = match up.wants_read() && down.wants_read() {
                    true => {
                        Event::of_idle(server.either_readable(&client, Deadline::at(look)).await)
                    }
                    false => {
                        let times = Times { client: Times::NEVER, server: Times::NEVER, look };
                        boxed(|| held(&up, &down, times)).await
                    }
                };
                match event {
                    Event::Look if now_ms() >= look => {
                        let m = format_args!("client timed out (110: Connection timed out)");
                        s.log(Level::Info, m);
                        break 'relay None;
                    }
                    Event::Look => {}
                    Event::Displaced => {
                        s.tell_displaced();
                        break 'relay None;
                    }
                    event => break event,
                }
            };
        };
        drop((up, down));
        s.now("");
        if let Some(e) = broken {
            s.log_os(Level::Info, format_args!("send()"), &e);
        }
        s.log(Level::Info, format_args!("proxied session done"));
        s.now("proxying");
        s.put_sock(client);
    }
}

/// Moves what can be moved without a wait, in the direction of the last event; in both at first.
fn turn(up: &mut Way<'_>, down: &mut Way<'_>, last: Event) -> std::io::Result<()> {
    if last != Event::Up {
        down.go()?;
    }
    if last != Event::Down {
        up.go()?;
    }
    Ok(())
}
