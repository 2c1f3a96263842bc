//! Random bytes from the kernel, which cannot be predicted.

/// Fills `out` with random bytes.
///
/// # Panics
/// When the kernel has no randomness, which Linux always has once it runs.
pub fn fill(out: &mut [u8]) {
    let mut filled = 0;
    while filled < out.len() {
        let rest = &mut out[filled..];
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`, which is that long.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => filled += n,
            Err(_) => {
                let e = std::io::Error::last_os_error();
                assert!(e.kind() == std::io::ErrorKind::Interrupted, "getrandom() failed: {e}");
            }
        }
    }
}

/// A random number.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let (mut a, mut b) = ([0; 300], [0; 300]);
        fill(&mut a);
        fill(&mut b);
        assert_ne!(a, b);
        assert!(a[256..] != [0; 44]);
        assert_ne!(number(), number());
    }
}
