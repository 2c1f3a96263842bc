//! Flow control (RFC 9113 section 5.2).

/// The window of streams and connections before anything is said about it, bytes.
pub const INITIAL: u32 = 65_535;

/// The largest window, bytes.
pub const MAX: u32 = (1 << 31) - 1;

/// The bytes that may still be sent, or still be received. A change of the initial size can make it
/// negative (RFC 9113 section 6.9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(i32);

/// The window would exceed [`MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

impl Default for Window {
    /// The protocol's first one.
    fn default() -> Window {
        Window::new(INITIAL)
    }
}

impl Window {
    /// A window of `size` bytes, at most [`MAX`].
    pub const fn new(size: u32) -> Window {
        Window(if size > MAX { MAX as i32 } else { size as i32 })
    }

    /// A window that was described with [`Window::size`].
    pub const fn resumed(size: i32) -> Window {
        Window(size)
    }

    /// Its size; fewer than no bytes if it was made smaller than what is on the way.
    pub const fn size(self) -> i32 {
        self.0
    }

    /// The bytes that fit now.
    #[inline]
    pub fn left(self) -> usize {
        self.0.max(0) as usize
    }

    /// Takes `n` bytes; false where fewer fit, and nothing is taken.
    #[inline]
    pub fn take(&mut self, n: usize) -> bool {
        if n > self.left() {
            return false;
        }
        self.0 -= n as i32;
        true
    }

    /// Adds the increment of a WINDOW_UPDATE.
    ///
    /// # Errors
    /// A flow-control error of the peer.
    #[inline]
    pub fn add(&mut self, n: u32) -> Result<(), Overflow> {
        self.shift(i64::from(n))
    }

    /// The initial size changed from `old` to `new`.
    ///
    /// # Errors
    /// A flow-control error of the peer.
    pub fn resize(&mut self, old: u32, new: u32) -> Result<(), Overflow> {
        self.shift(i64::from(new) - i64::from(old))
    }

    fn shift(&mut self, by: i64) -> Result<(), Overflow> {
        let new = i64::from(self.0) + by;
        if new > i64::from(MAX) {
            return Err(Overflow);
        }
        self.0 = i32::try_from(new).map_err(|_| Overflow)?;
        Ok(())
    }
}
