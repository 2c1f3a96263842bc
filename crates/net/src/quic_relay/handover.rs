//! The connections of an old binary, for a new one: the key of their ids, and the relays of the
//! processes that have them.
//!
//! The variable is `HALF;KEY;SLOT=FD;…`: the old binary's half, the number of a pipe with the key,
//! and the relays. The key itself is in no environment.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::Elder;
use crate::quic_id::{Key, PLACES_MAX};

/// The name of the variable.
pub const VAR: &str = "WEIR_QUIC";

/// See the module.
#[derive(Debug)]
pub struct Handover {
    /// The key of all ids.
    pub key: Key,
    /// The old binary's half.
    pub half: bool,
    /// Its processes.
    pub elders: Vec<Elder>,
}

impl Handover {
    /// Takes over what a predecessor named; nothing where that cannot be read.
    pub fn from_binary(value: &str) -> Option<Handover> {
        let mut parts = value.split(';').filter(|part| !part.is_empty());
        let half = match parts.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let key = read_key(&os::fd::adopt(parts.next()?.parse().ok()?).ok()?)?;
        let elders = parts.filter_map(|part| {
            let (slot, fd) = part.split_once('=')?;
            let slot = slot.parse().ok().filter(|slot| usize::from(*slot) < PLACES_MAX)?;
            let fd = os::fd::adopt(fd.parse().ok()?).ok()?;
            Some(Elder { slot, half, fd })
        });
        Some(Handover { key, half, elders: elders.collect() })
    }

    /// Makes the variable's value, and lets the descriptors live on in the program that this
    /// process, a child forked for it, becomes.
    ///
    /// # Errors
    /// The system's.
    pub fn for_new_binary<'a>(
        key: &Key,
        half: bool,
        relays: impl Iterator<Item = (u16, &'a OwnedFd)>,
    ) -> io::Result<String> {
        let (reads, writes) = os::fd::pipe()?;
        os::file::write(&writes, key.secret())?;
        os::fd::set_cloexec(&reads, false)?;
        // It stays open until this process is another program.
        let reads = std::os::fd::IntoRawFd::into_raw_fd(reads);
        let mut value = format!("{};{reads};", u8::from(half));
        for (slot, fd) in relays {
            os::fd::set_cloexec(fd, false)?;
            let _ = write!(value, "{slot}={};", fd.as_raw_fd());
        }
        Ok(value)
    }
}

fn read_key(fd: &OwnedFd) -> Option<Key> {
    let mut secret = [0; Key::LEN];
    // It was written at once.
    let n = os::fd::read(fd, &mut secret).ok()?;
    (n == secret.len()).then(|| Key::new(&secret))
}
