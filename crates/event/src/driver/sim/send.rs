//! Sends on the simulated network.

use std::io::{self, IoSlice};
use std::ops::Range;

use mem::{Chain, FileHandle, IOV_MAX};

use super::net::Net;
use crate::state::flights::TRUNCATED;
use crate::state::socks::SockKey;

/// Makes a simulated call for `range` of `chain`, for a flight.
pub(crate) fn simulate(
    net: &mut Net,
    key: SockKey,
    chain: &Chain,
    range: Range<usize>,
) -> io::Result<usize> {
    if let Some((file, pos, end)) = chain.front_file() {
        let part = read_file(file, pos, (end - pos).min(range.end as u64) as usize)?;
        return match part.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, TRUNCATED)),
            false => net.send(key, &[&part[..]]),
        };
    }
    let mut slices = [IoSlice::new(&[]); IOV_MAX];
    let (count, _) = chain.slices(&mut slices, range.end);
    let mut slices = &mut slices[..count];
    IoSlice::advance_slices(&mut slices, range.start);
    net.send(key, slices)
}

/// The bytes that sendfile(2) would read; a page of them is enough for a simulation.
fn read_file(file: &FileHandle, pos: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut part = vec![0; count.min(4096)];
    let read = rustix::io::pread(file, &mut part, pos)?;
    part.truncate(read);
    Ok(part)
}
