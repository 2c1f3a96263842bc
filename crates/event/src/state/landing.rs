//! The end of an operation that the driver had: its result goes to the slot that waits for it.

use std::io;

use super::Core;
use super::flights::{Flight, FlightOp, Flights};
use super::socks::{SockKey, bits, out};

impl Core {
    /// The driver is done with the operation of `slot` and with its memory.
    pub(crate) fn land(&mut self, slot: u32, result: io::Result<usize>) {
        let Some(flight) = self.flights.get(slot) else { return };
        if let FlightOp::Post { .. } = flight.op {
            return self.land_post(slot, result);
        }
        if let Some(entry) = self.socks.get(flight.sock) {
            entry.flights = entry.flights.saturating_sub(1);
            if let (FlightOp::Recv { page }, Ok(count)) = (&flight.op, &result) {
                // Here and not when the task runs: a report that comes after this one counts.
                match count {
                    0 => entry.bits |= bits::PEER_CLOSED,
                    _ if page.spare() > 0 && entry.bits & bits::PEER_CLOSED == 0 => {
                        entry.bits &= !bits::READ;
                    }
                    _ => (),
                }
            }
        }
        flight.result = Some(result);
        if self.slots.land(&mut self.tasks, slot) {
            self.flights.discard(slot);
        }
    }

    /// Lands a posted send: it continues, or is over and makes room for the next, or broke its
    /// connection.
    pub(crate) fn land_post(&mut self, slot: u32, result: io::Result<usize>) {
        let Some(Flight { op: FlightOp::Post { sent, len, fd, .. }, sock, .. }) =
            self.flights.get(slot)
        else {
            return;
        };
        let (key, fd) = (*sock, *fd);
        *sent += result.as_ref().map_or(0, |&sent| sent as u32);
        let whole = *sent >= *len;
        let mut ready = bits::WRITE;
        // The socket may have closed behind its last send.
        if let Some(entry) = self.socks.get(key) {
            match &result {
                Ok(1..) if !whole => return self.flights.short.push(slot),
                // The peer sends no more: then the kernel does not wait for long.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.flights.full.push(slot);
                }
                _ => (),
            }
            entry.flights = entry.flights.saturating_sub(1);
            if !whole {
                entry.out |= out::BROKEN;
                ready |= bits::READ | bits::PEER_CLOSED;
            } else if entry.out & out::LAST != 0 {
                self.flights.ended.push((key, fd));
            }
            entry.out &= !(out::POSTED | out::LAST);
            self.apply(key, ready);
        }
        self.flights.posted -= 1;
        if self.slots.land(&mut self.tasks, slot) {
            self.flights.discard(slot);
        }
    }

    /// A socket that was watched has room.
    pub(crate) fn room_for_posts(&mut self, key: SockKey) {
        let Flights { list, blocked, short, .. } = &mut self.flights;
        let sock = |slot: u32| list.get(slot as usize).and_then(Option::as_ref).map(|f| f.sock);
        short.extend(blocked.extract_if(.., |slot| sock(*slot) == Some(key)));
    }
}
