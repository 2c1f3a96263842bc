//! One key: its forms in files, and the sealing of tickets with it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use base::log::os_error;
use zeroize::Zeroizing;

use crate::SessionContext;

/// Length of a key's name in bytes; tickets begin with it.
pub(super) const NAME_LEN: usize = 16;

/// Lengths of files: a name, and keys for AES-128 or AES-256 with HMAC keys of the same length.
const FILE_LENS: [usize; 2] = [48, 80];

const CREATED_LEN: usize = 8;
const SEALED_AT: usize = NAME_LEN + NONCE_LEN;

/// Why a file of `ssl_session_ticket_key` has no key. `Display` has nginx's words.
#[derive(Debug)]
pub enum BadKeyFile {
    /// A system call that failed.
    Failed(&'static str, PathBuf, io::Error),
    /// The file has neither 48 nor 80 bytes.
    Length(PathBuf),
    /// The file became shorter while it was read.
    Short {
        /// The file.
        path: PathBuf,
        /// The bytes that were read.
        read: usize,
        /// The bytes that it had before.
        len: usize,
    },
    /// The library makes no key of it.
    NoKey(PathBuf),
}

impl fmt::Display for BadKeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadKeyFile::Failed(call, path, e) => {
                write!(f, "{call} \"{}\" failed {}", path.display(), os_error(e))
            }
            BadKeyFile::Length(path) => {
                write!(f, "\"{}\" must be 48 or 80 bytes", path.display())
            }
            BadKeyFile::Short { path, read, len } => {
                let path = path.display();
                write!(f, "pread() \"{path}\" returned only {read} bytes instead of {len}")
            }
            BadKeyFile::NoKey(path) => write!(f, "\"{}\" gives no key", path.display()),
        }
    }
}

impl std::error::Error for BadKeyFile {}

/// A key that seals and opens tickets.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

impl TicketKey {
    /// The key of a file's content: 16 bytes of name, and 32 or 64 bytes of secrets. The secrets
    /// are those that nginx uses for AES-CBC and HMAC; here a key is derived from both together.
    /// `None` when the content has another length.
    pub fn from_bytes(content: &[u8]) -> Option<TicketKey> {
        if !FILE_LENS.contains(&content.len()) {
            return None;
        }
        let (name, secret) = content.split_first_chunk()?;
        TicketKey::derive(*name, secret)
    }

    /// Reads a file of `ssl_session_ticket_key`.
    ///
    /// # Errors
    /// The file cannot be read, or has not the length of a key.
    pub fn load(path: &Path) -> Result<TicketKey, BadKeyFile> {
        let failed = |call| move |e| BadKeyFile::Failed(call, path.to_owned(), e);
        let file = std::fs::File::open(path).map_err(failed("open()"))?;
        let len = file.metadata().map_err(failed("fstat()"))?.len();
        let len = FILE_LENS.into_iter().find(|known| *known as u64 == len);
        let Some(len) = len else {
            return Err(BadKeyFile::Length(path.to_owned()));
        };
        let mut content = Zeroizing::new([0; FILE_LENS[1]]);
        let read = os::file::read_at(&file, &mut content[..len], 0).map_err(failed("pread()"))?;
        if read != len {
            return Err(BadKeyFile::Short { path: path.to_owned(), read, len });
        }
        let key = TicketKey::from_bytes(&content[..len]);
        key.ok_or_else(|| BadKeyFile::NoKey(path.to_owned()))
    }

    /// The key derived from secret bytes. `None` if the library refuses, which it does not for
    /// these lengths.
    pub(super) fn derive(name: [u8; NAME_LEN], secret: &[u8]) -> Option<TicketKey> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir session tickets");
        let secret = salt.extract(secret);
        let key = secret.expand(&[b"AES-256-GCM-SIV"], &AES_256_GCM_SIV).ok()?;
        Some(TicketKey { name, key: LessSafeKey::new(UnboundKey::from(key)) })
    }

    /// The context that a ticket is bound to beside its content.
    fn bound_to(&self, context: &SessionContext) -> Aad<[u8; NAME_LEN + SessionContext::LEN]> {
        let mut bytes = [0; NAME_LEN + SessionContext::LEN];
        bytes[..NAME_LEN].copy_from_slice(&self.name);
        bytes[NAME_LEN..].copy_from_slice(context.bytes());
        Aad::from(bytes)
    }

    pub(super) fn seal(
        &self,
        context: &SessionContext,
        created: u64,
        session: &[u8],
    ) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let len = SEALED_AT + CREATED_LEN + session.len() + AES_256_GCM_SIV.tag_len();
        let mut ticket = Vec::with_capacity(len);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&created.to_be_bytes());
        ticket.extend_from_slice(session);
        let (nonce, bound) = (Nonce::assume_unique_for_key(nonce), self.bound_to(context));
        let sealed = &mut ticket[SEALED_AT..];
        let tag = self.key.seal_in_place_separate_tag(nonce, bound, sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// The time of creation and the session of a ticket of this key.
    pub(super) fn open(&self, context: &SessionContext, ticket: &[u8]) -> Option<(u64, Vec<u8>)> {
        let sealed = ticket.strip_prefix(&self.name)?;
        let (nonce, sealed) = sealed.split_first_chunk()?;
        let mut plain = sealed.to_vec();
        let (nonce, bound) = (Nonce::assume_unique_for_key(*nonce), self.bound_to(context));
        let opened = self.key.open_in_place(nonce, bound, &mut plain).ok()?;
        let len = opened.len();
        let created = u64::from_be_bytes(*opened.first_chunk()?);
        plain.truncate(len);
        plain.drain(..CREATED_LEN);
        Some((created, plain))
    }
}
