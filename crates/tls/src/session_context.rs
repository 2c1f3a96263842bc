//! The owner of a session: the settings that decided whom server and client saw.

use std::fmt;

use aws_lc_rs::digest;

/// The "session id context": a hash of the settings that a session rests on, such as certificates,
/// verification of clients and the authorities trusted for it. A session is resumed only where the
/// context is the same. Without this a client that was verified for one virtual server, or not at
/// all, could enter another by resuming (CVE-2025-23419).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionContext([u8; SessionContext::LEN]);

impl SessionContext {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// The context of settings, each as bytes, in an order that is always the same. Their lengths
    /// count, so that no two lists read alike.
    pub fn new<'a>(settings: impl IntoIterator<Item = &'a [u8]>) -> SessionContext {
        let mut hash = digest::Context::new(&digest::SHA256);
        for setting in settings {
            hash.update(&(setting.len() as u64).to_be_bytes());
            hash.update(setting);
        }
        let mut bytes = [0; SessionContext::LEN];
        bytes.copy_from_slice(hash.finish().as_ref());
        SessionContext(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; SessionContext::LEN] {
        &self.0
    }
}

impl fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionContext(")?;
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_read_alike() {
        let of = |parts: &[&'static str]| SessionContext::new(parts.iter().map(|p| p.as_bytes()));
        assert_eq!(of(&["cert", "on"]), of(&["cert", "on"]));
        let lists: &[&[&'static str]] =
            &[&[], &[""], &["certon"], &["cert", "on"], &["cer", "ton"], &["on", "cert"]];
        for (n, list) in lists.iter().enumerate() {
            assert!(lists[..n].iter().all(|other| of(other) != of(list)), "{list:?}");
        }
    }
}
