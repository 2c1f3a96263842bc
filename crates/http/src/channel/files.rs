//! Files in a request's output: the crate `files` says which part of them can be sent; the request
//! has the pool that waits for the rest, and the log.

use std::io;

use base::log::Level;
use event::Pool;
use files::{ReadSettings, SendReady, Sending, Step, file_error, front_file, of_file};
use mem::{Buf, Chain, FileHandle};

use super::SendFailed;
use crate::request::Request;

pub(crate) use files::{first_byte, is_of_file};

/// Sees to it that the front of the wire can be sent without waiting for a disk; says how much of
/// it, `limit` bytes at most.
pub(crate) async fn ready(r: &mut Request, limit: usize) -> io::Result<SendReady> {
    if r.loc.core.aio.is_off() {
        return Ok(SendReady::as_it_is(limit));
    }
    let mut sending = Sending::default();
    loop {
        let read = match sending.look(r.client.channel.output(), limit)? {
            Step::Send(ready) => return Ok(ready),
            Step::Read(read) => read,
        };
        let pool = match read.needs_pool(r.loc.core.aio.is_by_ring()) {
            true => Some(pool(r)?),
            false => None,
        };
        let align = r.loc.core.directio_alignment as usize;
        if let Some(ready) = read.run(r.client.channel.output(), pool, align).await? {
            return Ok(ready);
        }
    }
}

/// The location's settings for reading files.
pub(crate) fn settings(r: &Request) -> ReadSettings {
    let core = &r.loc.core;
    ReadSettings {
        aio_off: core.aio.is_off(),
        directio: core.directio.is_some(),
        align: core.directio_alignment as usize,
        front: 0,
    }
}

/// The next bytes of a file that does not go by sendfile, `len` at most and at least one: at once
/// if they are in memory, else from a thread.
pub(crate) async fn piece(
    r: &mut Request,
    file: &FileHandle,
    pos: u64,
    (front, len): (usize, usize),
) -> io::Result<Buf> {
    let settings = ReadSettings { front, ..settings(r) };
    files::piece(file, pos, len, settings, || pool_or_ring(r)).await
}

/// Takes the bytes in memory from the front of a chain, or a piece of the file that is in front.
pub async fn in_memory(r: &mut Request, chain: &mut Chain) -> Result<Chain, SendFailed> {
    let most = r.loc.core.output_buffers.1;
    in_pieces(r, chain, (0, most)).await
}

/// The same in pieces of files of `most` bytes at most, with room for `front` bytes before them.
pub(crate) async fn in_pieces(
    r: &mut Request,
    chain: &mut Chain,
    (front, most): (usize, usize),
) -> Result<Chain, SendFailed> {
    let mut taken = Chain::new();
    while let Some(buf) = chain.pop_front() {
        let Buf::File { file, pos, end } = buf else {
            taken.push(buf);
            continue;
        };
        if !taken.is_empty() {
            chain.push_front(Buf::File { file, pos, end });
            break;
        }
        let want = (end - pos).min(most as u64);
        if want == 0 {
            continue;
        }
        let read = match piece(r, &file, pos, (front, want as usize)).await {
            Ok(read) => read,
            Err(e) => {
                failed(r, &e, Some(&file));
                return Err(SendFailed);
            }
        };
        let pos = pos + read.len();
        taken.push(read);
        if pos < end {
            chain.push_front(Buf::File { file, pos, end });
        }
        break;
    }
    Ok(taken)
}

/// The pool that reads; `None` where the ring does.
pub(crate) fn pool_or_ring(r: &mut Request) -> io::Result<Option<Pool>> {
    match r.loc.core.aio.is_by_ring() {
        true => Ok(None),
        false => pool(r).map(Some),
    }
}

fn pool(r: &mut Request) -> io::Result<Pool> {
    let pool = match r.pool() {
        Ok(Some(pool)) => pool,
        // Not asked for where `aio` is off; then the default one does no harm.
        Ok(None) => event::pool::default(),
        Err(no_pool) => return Err(of_file(no_pool.into())),
    };
    r.debug(format_args!("thread pool \"{}\": read", pool.name()));
    Ok(pool)
}

/// Logs that a file could not be read to its end: the one given, or the first on the wire.
#[cold]
pub(crate) fn failed(r: &mut Request, e: &io::Error, file: Option<&FileHandle>) {
    let call = if file_error(e).is_some() || file.is_some() { "pread()" } else { "sendfile()" };
    let e = file_error(e).unwrap_or(e);
    let front = front_file(r.client.channel.queued());
    // Answers to pipelined requests stand before this response on the wire.
    let is_of_this = |before: u64| r.client.channel.queued().len() - before <= r.account.bytes_sent;
    let of_front = front.as_ref().is_some_and(|front| is_of_this(front.before));
    r.flags.unreadable = file.is_some() || of_front;
    let file = file.cloned().or(front.map(|front| front.file));
    let path = file.and_then(|file| os::probe::path_of(&file).ok()).unwrap_or_default();
    let path = path.display();
    match e.kind() {
        io::ErrorKind::UnexpectedEof => r.log(Level::Alert, format_args!("{e}: \"{path}\"")),
        _ => r.log_os(Level::Crit, format_args!("{call} \"{path}\""), e),
    }
}
