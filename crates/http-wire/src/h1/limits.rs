//! The limits of a head's size, counted in nginx's buffers.
//!
//! nginx reads a head into one buffer of `client_header_buffer_size`; a line that does not fit
//! moves to a buffer of the `large_client_header_buffers`, and no line spans two. Weir keeps the
//! head in one piece, but counts as if it packed lines the same way, so that the same heads are
//! refused.

/// Limits of a request head, from the server's directives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `client_header_buffer_size`, bytes.
    pub header_buffer: u32,
    /// `large_client_header_buffers` size, bytes: no line may be longer (unless the first buffer
    /// is larger).
    pub large_size: u32,
    /// `large_client_header_buffers` number.
    pub large_number: u32,
    /// `max_headers`: field lines at most, dropped ones not counted.
    pub max_headers: u32,
    /// `ignore_invalid_headers`: says which fields are dropped.
    pub ignore_invalid: bool,
    /// `underscores_in_headers`: which names are invalid.
    pub underscores: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

impl Limits {
    /// nginx's defaults: 1k, 4 × 8k, 1000 fields.
    pub const DEFAULT: Limits = Limits {
        header_buffer: 1024,
        large_size: 8192,
        large_number: 4,
        max_headers: 1000,
        ignore_invalid: true,
        underscores: false,
    };

    /// Bytes that a head can take at most.
    pub fn max_total(&self) -> u64 {
        self.header_buffer as u64 + self.large_size as u64 * self.large_number as u64
    }
}

/// The packing of lines into buffers, counted only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packing {
    /// Bytes left in the current buffer.
    left: u32,
    /// Large buffers taken.
    used: u32,
}

impl Packing {
    pub(super) fn new(limits: &Limits) -> Packing {
        Packing { left: limits.header_buffer, used: 0 }
    }

    /// The longest line that can be stored now, its line end included.
    #[inline]
    pub(super) fn capacity(&self, limits: &Limits) -> usize {
        if self.left >= limits.large_size || self.used >= limits.large_number {
            self.left as usize
        } else {
            limits.large_size as usize
        }
    }

    /// Stores a line of `len` bytes, which is at most `capacity`.
    #[inline]
    pub(super) fn store(&mut self, len: usize, limits: &Limits) {
        if len <= self.left as usize {
            self.left -= len as u32;
        } else {
            self.used += 1;
            self.left = limits.large_size.saturating_sub(len as u32);
        }
    }

    /// Counts the empty lines before a request; when they fill the buffer, it starts again.
    pub(super) fn skip(&mut self, len: usize, limits: &Limits) {
        let size = (limits.header_buffer as usize).max(1);
        self.left = limits.header_buffer - (len % size).min(limits.header_buffer as usize) as u32;
    }
}
