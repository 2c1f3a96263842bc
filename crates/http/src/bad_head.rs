//! Heads that are refused, or that never come whole.
//!
//! Such a request is answered and logged by the virtual server that its host chose, as far as a
//! host was read: `error_page`, `add_header … always` and logs are those of its site.

use std::io;
use std::rc::Rc;

use base::log::Level;
use event::{Deadline, Wake};
use proto::h1::{H1Error, Head, Method, Span, Stage, Version};

use crate::conn::{After, Conn, end, log_phase, main_request};
use crate::phases;
use crate::request::Request;
use crate::target;

/// Reads more of a head, of which `taken` bytes were lines that are whole; false at the end of the
/// connection, which is then logged.
pub(crate) async fn receive(
    c: &Rc<Conn>,
    r: &mut Box<Request>,
    taken: usize,
    deadline: &mut Option<Deadline>,
) -> bool {
    let ms = c.listen.default.core.client_header_timeout;
    let until = *deadline.get_or_insert_with(|| Deadline::in_ms(ms));
    let e = match receive_rest(c, r, until).await {
        Ok(n) if n > 0 => return true,
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => return false,
        Err(e) => Some(e),
    };
    let stage = if taken > 0 { Stage::Headers } else { Stage::RequestLine };
    prepare(r, stage, taken, false);
    let action = action(r, stage);
    let status = match e {
        None => {
            let m = "client prematurely closed connection while";
            r.log(Level::Info, format_args!("{m} {action}"));
            400
        }
        Some(e) if e.kind() == io::ErrorKind::TimedOut => {
            r.timed_out = true;
            let m = "client timed out (110: Connection timed out) while";
            r.log(Level::Info, format_args!("{m} {action}"));
            408
        }
        Some(e) => {
            let os = base::log::os_error(&e);
            r.log(Level::Info, format_args!("recv() failed {os} while {action}"));
            400
        }
    };
    // It is logged with its status, not answered.
    r.err_status = status;
    r.flags.keepalive = false;
    log_phase(r).await;
    false
}

/// More of a head that has begun. A client that dawdles over it counts as parked: when the worker's
/// connections are all taken, such clients make room, the one that was silent longest first.
async fn receive_rest(c: &Conn, r: &mut Request, until: Deadline) -> io::Result<usize> {
    // There may be thousands of them.
    r.buf.narrow();
    match c.sock.readable_or(&r.main.gate, until).await? {
        Wake::Ready => {}
        Wake::Gate => c.sock.readable(until).await?,
        Wake::Reclaim => {
            r.log(
                Level::Info,
                format_args!("closing a connection without a whole request to make room"),
            );
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    r.buf.widen();
    c.sock.recv_into(&mut r.buf, until).await
}

/// Answers a head that was refused.
pub(crate) async fn refuse(c: &Rc<Conn>, r: &mut Box<Request>, e: H1Error) -> After {
    c.requests.set(c.requests.get() + 1);
    main_request(r);
    let failed = prepare(r, e.stage, e.read as usize, e.is_of_whole_head());
    let text = e.message(r.buf.filled());
    let action = action(r, e.stage);
    r.log(Level::Info, format_args!("{text} while {action}"));
    // The line may be in no state to name a version; the answer is one of HTTP/1.
    r.head.version = r.head.version.max(Version::HTTP_10);
    without_uri(r);
    r.flags.lingering = true;
    let outcome = phases::refuse(r, failed.unwrap_or(e.status())).await;
    end(c, r, outcome).await.unwrap_or(After::Linger)
}

/// Makes of a head what is known of it when reading it ended in `stage`, behind `taken` bytes of
/// whole lines. The status, where that alone is a reason to refuse it.
fn prepare(r: &mut Request, stage: Stage, taken: usize, whole: bool) -> Option<u16> {
    r.head_len = taken;
    if stage == Stage::RequestLine {
        line_failed(&mut r.head, taken);
    }
    r.method = r.head.method;
    if stage == Stage::RequestLine {
        return None;
    }
    target::prepare_refused(r, whole).err()
}

/// Of a request line that was not understood only its text is known, and that an answer to HEAD has
/// no body; of one that was, but whose target is no good, the rest is.
fn line_failed(head: &mut Head, taken: usize) {
    head.target = Span::default();
    head.host = None;
    if taken > 0 {
        return;
    }
    (head.method_name, head.protocol) = (Span::default(), Span::default());
    if head.method != Method::Head {
        head.method = Method::Other;
    }
}

/// Gives a request that is refused before it has a path one that error pages can start from.
pub(crate) fn without_uri(r: &mut Request) {
    if r.uri.is_empty() {
        r.uri.push(b'/');
        r.flags.without_uri = true;
    }
}

fn action(r: &Request, stage: Stage) -> &'static str {
    match stage {
        Stage::RequestLine if r.flags.pipelined => "reading client pipelined request line",
        stage => stage.action(),
    }
}
