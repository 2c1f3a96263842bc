//! Responses that a client does not read. It may have as many streams open as it was told, and to
//! the client a stream is open until its end has arrived: one that asks for more while the ends of
//! so many are on their way does not read, and each of its requests would fill memory, the kernel's
//! or ours, and the log.
//!
//! A request arrives together with the acknowledgement of all that had arrived when it was sent, so
//! bytes that are not acknowledged by then were unknown to the client. Those that the client's
//! kernel holds for it cannot be seen from here: they are a part of its receive buffer.
//!
//! ```text
//!  bytes of the connection:   ──────── mark ─────────────▶ written
//!  ends of streams:           marked ends │ ends since
//! ```
//!
//! Until the mark is acknowledged, no later end is. So one kernel call serves many streams.

/// Streams that a client may take to be open before it knows the limit, as most do.
const STREAMS_MIN: u32 = 128;

/// Late resets that count, for each stream that may be open.
const LATE_MAX: u32 = 8;

/// How far a connection's bytes have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Bytes given to the kernel.
    pub written: u64,
    /// Bytes that the client has acknowledged.
    pub acked: u64,
}

/// The account of a connection.
pub struct Unread {
    /// Streams that may be open at once.
    streams: u32,
    /// The connection's bytes when the mark was set.
    mark: u64,
    /// The ends of streams by then.
    ends: u64,
    /// Streams reset since then whose ends were in flight: to the client they are over.
    late: u32,
    /// Requests that came since in spite of all.
    excess: u32,
}

impl Unread {
    /// The account of a connection that may have `streams` open at once.
    pub fn new(streams: u32) -> Unread {
        Unread { streams: streams.max(STREAMS_MIN), mark: 0, ends: 0, late: 0, excess: 0 }
    }

    /// Whether a request is one too many, after so many `ends` of streams since the connection's
    /// beginning. `look` asks the kernel; where that does not tell, none is.
    #[inline]
    pub fn is_excess(&mut self, ends: u64, look: impl FnOnce() -> Option<Sent>) -> bool {
        ends > self.ends + u64::from(self.streams) + u64::from(self.late)
            && self.looks(ends, look())
    }

    #[cold]
    fn looks(&mut self, ends: u64, sent: Option<Sent>) -> bool {
        match sent {
            Some(sent) if sent.acked < self.mark => return true,
            Some(sent) => self.mark = sent.written,
            None => {}
        }
        (self.ends, self.late, self.excess) = (ends, 0, 0);
        false
    }

    /// The client has reset a stream that was over.
    pub fn reset_late(&mut self) {
        self.late = (self.late + 1).min(self.streams.saturating_mul(LATE_MAX));
    }

    /// A request was one too many: says whether there were so many that it is no mistake.
    pub fn refused(&mut self) -> bool {
        self.excess += 1;
        self.excess > self.streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(written: u64, acked: u64) -> Option<Sent> {
        Some(Sent { written, acked })
    }

    fn not_asked() -> Option<Sent> {
        panic!("the kernel is asked once for many streams")
    }

    #[test]
    fn ends_that_the_client_has_not_got_count() {
        let mut unread = Unread::new(100);
        assert!(!unread.is_excess(128, not_asked));
        assert!(!unread.is_excess(129, || sent(10_000, 4_000)), "the first look sets the mark");
        assert!(!unread.is_excess(129 + 128, not_asked));
        assert!(unread.is_excess(129 + 129, || sent(20_000, 9_999)));
        assert!(unread.is_excess(129 + 129, || sent(20_000, 9_999)), "it stays so");
        assert!(!unread.is_excess(129 + 129, || sent(20_000, 10_000)), "until the mark has come");
        assert!(!unread.is_excess(129 + 129 + 128, not_asked));
    }

    #[test]
    fn resets_of_streams_that_were_over_make_room() {
        let mut unread = Unread::new(128);
        assert!(!unread.is_excess(129, || sent(10_000, 0)));
        (0..100).for_each(|_| unread.reset_late());
        assert!(!unread.is_excess(129 + 228, not_asked));
        assert!(unread.is_excess(129 + 229, || sent(20_000, 0)));
        (0..10_000).for_each(|_| unread.reset_late());
        assert!(unread.is_excess(129 + 9 * 128 + 1, || sent(20_000, 0)), "for some");
    }

    #[test]
    fn a_client_that_goes_on_is_no_mistake() {
        let mut unread = Unread::new(128);
        assert!((0..128).all(|_| !unread.refused()) && unread.refused());
        assert!(!unread.is_excess(129, || sent(10_000, 0)));
        assert!(!unread.refused(), "it has read meanwhile");
    }

    #[test]
    fn nothing_is_refused_where_the_kernel_does_not_tell() {
        let mut unread = Unread::new(1);
        assert!((0..10_000).all(|ends| !unread.is_excess(ends, || None)));
    }
}
