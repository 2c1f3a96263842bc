//! Heads that are refused or stay incomplete.
//!
//! Such a request is answered and logged by the virtual server that its host chose, as far as a
//! host was read: `error_page`, `add_header … always` and logs are those of its site.

use std::io;
use std::rc::Rc;

use base::log::Level;
use engine::overload;
use event::{Deadline, Wake};
use http_wire::h1::{H1Error, Head, Method, Span, Stage, Version};

use super::connection::After;
use super::{requests, stream};
use crate::channel::Answer;
use crate::channel::conn::Conn;
use crate::request::Request;

/// Reads more of a head, of which `taken` bytes were whole lines. Returns false at the end of the
/// connection; the request is then logged with its status, unless the connection was closed to free
/// resources.
pub(super) async fn receive<A: Answer>(
    c: &Rc<Conn>,
    r: &mut Request,
    taken: usize,
    deadline: &mut Option<Deadline>,
) -> bool {
    let ms = c.head_timeout();
    let until = *deadline.get_or_insert_with(|| Deadline::in_ms(ms));
    let e = match receive_rest(c, r, until).await {
        Ok(n) if n > 0 => return true,
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => return false,
        Err(e) => Some(e),
    };
    let stage = if taken > 0 { Stage::Headers } else { Stage::RequestLine };
    prepare::<A>(r, stage, taken, false);
    let action = action(r, stage);
    let status = match e {
        None => {
            let m = "client prematurely closed connection while";
            r.log(Level::Info, format_args!("{m} {action}"));
            400
        }
        Some(e) if e.kind() == io::ErrorKind::TimedOut => {
            stream(r).timed_out = true;
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
    r.flags.err_status = status;
    r.close_connection();
    A::log(r).await;
    false
}

/// More of a head that has begun. A client that dawdles over it counts as parked: when the worker's
/// connections are all taken, such clients make room, the one that was silent longest first.
async fn receive_rest(c: &Conn, r: &mut Request, until: Deadline) -> io::Result<usize> {
    // There may be thousands of them.
    stream(r).input.narrow();
    match c.sock().owed_or(&r.main.life.gate, until).await? {
        Wake::Ready => {}
        Wake::Gate => c.sock().readable(until).await?,
        Wake::Reclaim => {
            if overload::is_told(c.client_ip()) {
                let m = "closing a connection with an incomplete request to make room";
                r.log(Level::Info, format_args!("{m}"));
            }
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    stream(r).input.widen();
    c.sock().recv_into(&mut stream(r).input, until).await
}

/// Answers a head that was refused.
pub(super) async fn refuse<A: Answer>(c: &Conn, r: &mut Request, e: H1Error) -> After {
    let failed = prepare::<A>(r, e.stage, e.read as usize, e.is_of_whole_head());
    let text = e.message(r.head_bytes());
    let action = action(r, e.stage);
    r.log(Level::Info, format_args!("{text} while {action}"));
    if e.stage == Stage::RequestLine && c.may_be_http2() && names_no_http(r) {
        // It may as well be a broken preface of HTTP/2, whose client could not read an answer.
        return After::Close;
    }
    // The line may be in no state to name a version; the answer is one of HTTP/1.
    r.head.version = r.head.version.max(Version::HTTP_10);
    stream(r).lingering = true;
    let sent = A::refuse(r, failed.unwrap_or(e.status())).await;
    requests::after(c, r, sent).await.unwrap_or(After::Linger)
}

/// Whether the first line came whole, but is no request line of HTTP/1: its method is unknown, and
/// it names no version.
fn names_no_http(r: &Request) -> bool {
    let text = r.client.channel.head_text();
    let line = memchr::memchr(b'\n', text).and_then(|end| text.get(..end));
    r.head.method == Method::Other
        && line.is_some_and(|line| memchr::memmem::find(line, b"HTTP/").is_none())
}

/// Fills in the known part of a head when reading it ended in `stage`, behind `taken` bytes of
/// whole lines. Gives the status where that alone is a reason to refuse it.
fn prepare<A: Answer>(r: &mut Request, stage: Stage, taken: usize, whole: bool) -> Option<u16> {
    stream(r).head_len = taken;
    if stage == Stage::RequestLine {
        line_failed(&mut r.head, taken);
    }
    r.target.method = r.head.method;
    if stage == Stage::RequestLine {
        return None;
    }
    A::prepare_refused(r, whole).err()
}

/// Clears what is not known of a refused request line: always the target and the host. If the line
/// was not understood (`taken` is 0), also the protocol and the method; HEAD is kept, so that the
/// answer has no body.
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

fn action(r: &Request, stage: Stage) -> &'static str {
    match stage {
        Stage::RequestLine if r.client.channel.is_pipelined() => {
            "reading client pipelined request line"
        }
        stage => stage.action(),
    }
}
