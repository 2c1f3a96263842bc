//! Reading files, where the driver does that by itself.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use mem::FileHandle;

use super::wait::Wait;
use crate::runtime::inner::with;
use crate::state::flights::{FlightOp, Reading};

/// Pieces of a read: fewer than the system's limit.
const PIECES_MAX: usize = 64;

/// Whether this thread's loop reads files by itself: such reads then need no thread.
pub fn reads_files() -> bool {
    with(|inner| inner.driver.reads_files())
}

/// Reads from `file` at `pos` into `range` of `memory`, one call's worth; returns the memory and
/// the number of bytes. Only where [`reads_files`].
///
/// Dropping the future cancels the read; the memory is freed when the kernel is done with it.
///
/// # Errors
/// The system's; the memory is lost then.
pub fn read_file(
    file: FileHandle,
    memory: Vec<u8>,
    range: Range<usize>,
    pos: u64,
) -> impl Future<Output = io::Result<(Vec<u8>, usize)>> {
    let mut memory = memory;
    let to = &mut memory[range];
    let (to, len) = (to.as_mut_ptr(), u32::try_from(to.len()).unwrap_or(u32::MAX));
    let reading = Some(Reading { file, memory, to, len, pos, pieces: Vec::new() });
    ReadFile { reading, wait: Wait::new() }
}

/// Reads `len` bytes from `file` at `pos`, one call's worth, only to have them in the page cache:
/// all of them go to the same memory, each piece over the one before. Else as [`read_file`].
///
/// # Errors
/// The system's.
pub fn read_over(
    file: FileHandle,
    memory: Vec<u8>,
    len: usize,
    pos: u64,
) -> impl Future<Output = io::Result<(Vec<u8>, usize)>> {
    let mut memory = memory;
    let (size, to) = (memory.len().max(1), memory.as_mut_ptr());
    let starts = (0..len.min(size * PIECES_MAX)).step_by(size);
    let piece = |at| libc::iovec { iov_base: to.cast(), iov_len: size.min(len - at) };
    let pieces = if memory.is_empty() { Vec::new() } else { starts.map(piece).collect() };
    let reading = Some(Reading { file, memory, to, len: 0, pos, pieces });
    ReadFile { reading, wait: Wait::new() }
}

struct ReadFile {
    reading: Option<Reading>,
    wait: Wait,
}

impl Future for ReadFile {
    type Output = io::Result<(Vec<u8>, usize)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = with(|inner| match this.reading.take() {
            Some(reading) => {
                this.wait.fly(inner, cx, FlightOp::Read(Rc::new(reading)));
                Poll::Pending
            }
            None => this.wait.poll_landed(inner, cx),
        });
        polled.map(|(op, read)| {
            let read = read?;
            match op {
                Some(FlightOp::Read(reading)) => {
                    let reading = Rc::try_unwrap(reading)
                        .map_err(|_| io::Error::other("the driver still reads"))?;
                    Ok((reading.memory, read))
                }
                _ => Err(io::ErrorKind::NotConnected.into()),
            }
        })
    }
}
