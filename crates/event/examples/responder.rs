//! The cost of the loop alone: answers 1 KB to each request head, and knows no more of HTTP than
//! the empty line. `responder PORT [close] [io_uring|poll|select]`.

use std::io;

use event::{Deadline, Gate, ListenOpts, Listener, Loop, Options, Sock, Wake};
use mem::{Chain, Page};
use os::SockAddr;

const IDLE_MS: u64 = 65_000;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let port = args.next().unwrap_or_else(|| "8090".into());
    let rest: Vec<String> = args.collect();
    let close = rest.iter().any(|arg| arg == "close");
    let mut drivers = event::testing::real_drivers().into_iter();
    let driver = drivers.find(|driver| rest.iter().any(|arg| arg == driver.name()));
    let driver = driver.unwrap_or_default();
    let addr = SockAddr::parse(format!("127.0.0.1:{port}").as_bytes())
        .ok_or_else(|| io::Error::other("not a port"))?;
    let fd = os::socket::socket(&addr, os::socket::Kind::Stream)?;
    os::socket::set_reuseaddr(&fd, true)?;
    os::socket::bind(&fd, &addr)?;
    os::socket::listen(&fd, 511)?;
    let mut event_loop = Loop::new(Options { driver, connections: 20_000, ..Options::default() })?;
    let listener = Listener::new(fd, ListenOpts { exclusive: false, defer_under_load: false });
    let gate = Gate::new();
    event_loop.block_on(async move {
        loop {
            let accepted = listener.accept().await?;
            event::spawn(serve(accepted.sock, gate.clone(), close));
        }
    })?
}

async fn serve(sock: Sock, gate: Gate, close: bool) {
    // Every error ends the connection; there is no log.
    let _ = exchange(&sock, &gate, close).await;
}

async fn exchange(sock: &Sock, gate: &Gate, close: bool) -> io::Result<()> {
    let mut out = Chain::new();
    loop {
        let Some(mut page) = sock.try_recv()? else {
            match sock.readable_or(gate, Deadline::in_ms(IDLE_MS)).await? {
                Wake::Ready => continue,
                Wake::Gate | Wake::Reclaim => return Ok(()),
            }
        };
        if page.is_empty() {
            return Ok(());
        }
        while let Some(end) = head_end(&page) {
            page.consume(end);
            respond(&mut out, close);
        }
        if !page.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        drop(page);
        sock.send(&mut out, Deadline::in_ms(60_000)).await?;
        if close {
            return Ok(());
        }
    }
}

fn head_end(page: &Page) -> Option<usize> {
    page.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn respond(out: &mut Chain, close: bool) {
    let to = out.writer_for(2048);
    to.extend_from_slice(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n",
    );
    to.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    to.extend_from_slice(&[b'x'; 1024]);
}
