//! Memory with secrets.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// Bytes that are wiped at their end: all at once, where [`zeroize::Zeroizing`] goes through a
/// vector byte by byte. They have to stay where they are: memory that a vector leaves when it grows
/// is not wiped.
pub struct Wiped(Vec<u8>);

impl Wiped {
    /// Wipes the bytes, and gives their memory to others.
    pub fn emptied(&mut self) -> Vec<u8> {
        self.0[..].zeroize();
        self.0.clear();
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Wiped {
        Wiped(bytes)
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0[..].zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_given_to_others_has_no_bytes() {
        let mut secret = Wiped::from(b"a secret".to_vec());
        let at = secret.as_ptr();
        let mut memory = secret.emptied();
        assert!(secret.is_empty() && memory.is_empty());
        assert_eq!((memory.as_ptr(), memory.capacity()), (at, 8));
        memory.resize(8, 1);
        assert_eq!(memory, [1; 8]);
    }
}
