//! The state directory of an issuer (`state_path`): nginx-acme's files, and additional ones of
//! ours.
//!
//! | file | content | format |
//! | --- | --- | --- |
//! | `account.key`, `account.url` | the account key in PEM, the account URL | nginx-acme |
//! | `ORDER.crt`, `ORDER.key` | a chain and its key in PEM | nginx-acme |
//! | `ORDER.next.key`, `ORDER.next.crt` | the same of the order in progress | us |
//! | `ORDER.state`, `ISSUER.account.state` | state and back-off in JSON | us |
//! | `account.print`, `account.next.key` | thumbprint of the account key; the next key | us |
//! | `ORDER.challenges` | challenge responses in progress, for other hosts | us |
//! | `.ISSUER.lock` | the lock of the host that leads | us |
//!
//! A file is written under a temporary name, synced and renamed, so that a crash leaves either
//! version. If the directory cannot be written, new content is kept in memory: the server keeps
//! working, but loses that content when it exits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Weak;

use base::log;
use base::log::{Level, Log, os_error};
use pki::pem::{Secret, read_secret};
use tls::ConfigError;
use tls::certified::Certified;

use crate::shared::Shared;

/// A certificate chain and its private key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub chain: Vec<u8>,
    pub private: Secret,
}

impl Pair {
    /// Checks that the key belongs to the certificate.
    ///
    /// # Errors
    /// It does not, or one of them cannot be parsed.
    pub fn check(&self) -> Result<(), ConfigError> {
        Certified::from_pem(&self.chain, &self.private).map(drop)
    }
}

/// The state directory of one issuer; without a path, everything is kept in memory.
pub(crate) struct Folder {
    path: Option<PathBuf>,
    issuer: String,
    log: Log,
    /// Files that are not on disk.
    memory: RefCell<HashMap<String, Secret>>,
    /// The last write has failed.
    failing: Cell<bool>,
    /// The same folder on the engine of `shared_state`, and the names of files that were changed
    /// here and not sent.
    shared: RefCell<Weak<Shared>>,
    changed: RefCell<BTreeSet<String>>,
}

impl Folder {
    pub fn new(path: Option<&Path>, issuer: &str, log: &Log) -> Folder {
        Folder {
            path: path.map(Path::to_owned),
            issuer: issuer.to_owned(),
            log: log.clone(),
            memory: RefCell::default(),
            failing: Cell::new(false),
            shared: RefCell::default(),
            changed: RefCell::default(),
        }
    }

    /// From now on, changes are kept for the engine.
    pub fn share(&self, shared: Weak<Shared>) {
        *self.shared.borrow_mut() = shared;
    }

    /// Waits until other servers have all changes, and this one is known to lead. Never ends if it
    /// does not: its work is broken off then. At once without `sync`.
    pub async fn settle(&self) {
        let shared = self.shared.borrow().upgrade();
        if let Some(shared) = shared {
            shared.settle().await;
        }
    }

    /// Waits until other servers show the challenge responses in the folder.
    pub async fn spread(&self) {
        let shared = self.shared.borrow().upgrade();
        if let Some(shared) = shared {
            shared.spread().await;
        }
    }

    /// Takes the names of files that were changed.
    pub fn take_changed(&self) -> BTreeSet<String> {
        self.changed.take()
    }

    /// The files are to be sent.
    pub fn put_changed(&self, names: impl IntoIterator<Item = String>) {
        self.changed.borrow_mut().extend(names);
    }

    /// Whether a change was not sent.
    pub fn is_changed(&self) -> bool {
        !self.changed.borrow().is_empty()
    }

    /// Whether a file has that content; `None`: there is none.
    pub fn has(&self, name: &str, text: Option<&[u8]>) -> bool {
        self.read(name).as_deref().map(Vec::as_slice) == text
    }

    /// Takes over a file of another server; `None`: it is gone.
    pub fn apply(&self, name: &str, text: Option<&[u8]>) {
        if !self.has(name, text) {
            match text {
                Some(text) => self.put(name, text),
                None => self.erase(name),
            }
        }
        self.changed.borrow_mut().remove(name);
    }

    fn note(&self, name: &str) {
        // What operators and this server alone know by: `account.rollover`, hidden files.
        let is_own = name.starts_with('.') || name.ends_with(".rollover");
        if self.shared.borrow().strong_count() > 0 && !is_own {
            self.changed.borrow_mut().insert(name.to_owned());
        }
    }

    /// Whether files are persistent.
    pub fn is_kept(&self) -> bool {
        self.path.is_some() && !self.failing.get()
    }

    /// Creates the directory if it is missing, and logs a warning if others can list it.
    pub fn prepare(&self) {
        let Some(path) = &self.path else { return };
        let made = DirBuilder::new().mode(0o700).create(path);
        if let Err(e) = made
            && e.kind() != io::ErrorKind::AlreadyExists
        {
            let (path, e) = (path.display(), os_error(&e));
            log!(self.log, Level::Error, None, "acme: mkdir() \"{path}\" failed {e}");
        }
        let mode = std::fs::metadata(path).map_or(0o700, |meta| meta.permissions().mode());
        if mode & 0o077 != 0 {
            let (path, mode) = (path.display(), mode & 0o777);
            let m = format_args!("acme: folder \"{path}\" of keys has mode {mode:o}");
            log!(self.log, Level::Warn, None, "{m}, others may list it");
        }
    }

    /// Tries to become the leader, the one host that orders certificates for a shared directory.
    /// Returns the lock, to be held while leading; `None` if another process has it. Without a
    /// directory there is no other host, so the lock is empty.
    ///
    /// # Errors
    /// The lock file cannot be opened or locked.
    pub fn lock(&self) -> io::Result<Option<Option<OwnedFd>>> {
        let Some(path) = &self.path else { return Ok(Some(None)) };
        let fd = os::append::open(&path.join(format!(".{}.lock", self.issuer)), 0o600)?;
        match os::file::try_lock(&fd) {
            Ok(()) => Ok(Some(Some(fd))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a process on this host holds the lock, according to the kernel; for example the acme
    /// process of the previous configuration while it exits.
    pub(crate) fn is_locked_here(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let Some(path) = &self.path else { return false };
        let meta = std::fs::metadata(path.join(format!(".{}.lock", self.issuer)));
        let Ok(inode) = meta.map(|meta| format!(":{} ", meta.ino())) else { return false };
        // A line looks like `1: FLOCK  ADVISORY  WRITE 708 00:13:4711 0 EOF`.
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        locks.lines().any(|line| line.contains("FLOCK") && line.contains(&inode))
    }

    /// Reads a file; `None` if it does not exist or cannot be read.
    pub fn read(&self, name: &str) -> Option<Secret> {
        if let Some(text) = self.memory.borrow().get(name) {
            return Some(text.clone());
        }
        let path = self.path.as_ref()?.join(name);
        match File::open(&path).and_then(read_secret) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                self.tell("open()", &path, &e);
                None
            }
        }
    }

    /// The last change of a file, in seconds since 1970; `None` if it is not on the disk.
    pub fn changed_at(&self, name: &str) -> Option<i64> {
        use std::os::unix::fs::MetadataExt;
        let path = self.path.as_ref()?.join(name);
        Some(std::fs::metadata(path).ok()?.mtime())
    }

    /// Writes a file atomically. If that fails, keeps it in memory.
    pub fn write(&self, name: &str, text: &[u8]) {
        self.note(name);
        self.put(name, text);
    }

    fn put(&self, name: &str, text: &[u8]) {
        let Some(folder) = &self.path else {
            self.memory.borrow_mut().insert(name.to_owned(), Secret::new(text.to_vec()));
            return;
        };
        match write_whole(folder, name, text) {
            Ok(()) => {
                self.memory.borrow_mut().remove(name);
                if self.failing.replace(false) {
                    let path = folder.display();
                    log!(self.log, Level::Notice, None, "acme: \"{path}\" can be written again");
                }
            }
            Err(e) => {
                self.tell("writing", &folder.join(name), &e);
                self.memory.borrow_mut().insert(name.to_owned(), Secret::new(text.to_vec()));
            }
        }
    }

    /// Tries to write the files that are only in memory, for example after the disk was full.
    pub fn flush(&self) {
        let Some(folder) = &self.path else { return };
        let kept = |end: &str| {
            let memory = self.memory.borrow();
            let found = memory.keys().find(|name| name.ends_with(end)).cloned();
            found.and_then(|name| Some((name.strip_suffix(end)?.to_owned(), memory[&name].clone())))
        };
        // A new pair is installed in the usual order, next to the old one, so that a crash leaves a
        // matching pair.
        while let Some((id, chain)) = kept(".next.crt") {
            let Some(private) = self.read(&format!("{id}.key")) else { break };
            let done = write_whole(folder, &format!("{id}.next.key"), &private);
            if done.and_then(|()| write_whole(folder, &format!("{id}.next.crt"), &chain)).is_err() {
                return;
            }
            let settled = self.read(&format!("{id}.state")).unwrap_or_default();
            for end in ["next.crt", "next.key", "crt", "key"] {
                self.memory.borrow_mut().remove(&format!("{id}.{end}"));
            }
            self.finish_install(&id, &settled);
        }
        self.flush_as_is();
    }

    /// The same for what came from another server: as it came, without a step of an installation.
    /// Nothing is to be sent for it.
    pub fn flush_as_is(&self) {
        let mut kept: Vec<_> =
            self.memory.borrow().iter().map(|(name, text)| (name.clone(), text.clone())).collect();
        // A new pair comes first: with it, a crash in between leaves a pair.
        kept.sort_by_key(|(name, _)| !name.contains(".next."));
        for (name, text) in kept {
            self.put(&name, &text);
            if !self.is_kept() {
                return;
            }
        }
    }

    /// Whether the disk has everything; without a path, there is nothing that it could lack.
    pub fn is_whole(&self) -> bool {
        self.path.is_none() || self.memory.borrow().is_empty()
    }

    /// Removes a file, if there is one.
    pub fn remove(&self, name: &str) {
        self.note(name);
        self.erase(name);
    }

    fn erase(&self, name: &str) {
        self.memory.borrow_mut().remove(name);
        let Some(folder) = &self.path else { return };
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => self.tell("unlink()", &path, &e),
            _ => {}
        }
    }

    /// Renames a file.
    pub fn rename(&self, from: &str, to: &str) {
        if let Some(text) = self.read(from) {
            self.note(from);
            self.note(to);
            let in_memory = self.memory.borrow().contains_key(from);
            match &self.path {
                Some(folder) if !in_memory => {
                    let done = std::fs::rename(folder.join(from), folder.join(to));
                    match done.and_then(|()| sync_folder(folder)) {
                        Ok(()) => drop(self.memory.borrow_mut().remove(to)),
                        Err(e) => self.tell("rename()", &folder.join(from), &e),
                    }
                }
                _ => {
                    self.write(to, &text);
                    self.remove(from);
                }
            }
        }
    }

    /// Logs an error of the file system, once until writing succeeds again.
    fn tell(&self, what: &str, path: &Path, e: &io::Error) {
        if !self.failing.replace(true) {
            let (path, e) = (path.display(), os_error(e));
            let m = format_args!("acme: {what} \"{path}\" failed {e}");
            log!(self.log, Level::Error, None, "{m}; what is new is kept in memory alone");
        }
    }

    /// Removes temporary files of killed processes, because some of them contain keys.
    pub fn sweep(&self) {
        let Some(path) = &self.path else { return };
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        for name in names.filter(|name| is_unfinished(name)) {
            let _ = std::fs::remove_file(path.join(name));
        }
    }

    /// The names of files that end with `end`, without hidden ones.
    pub fn list(&self, end: &str) -> Vec<String> {
        let Some(path) = &self.path else { return Vec::new() };
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.ends_with(end) && !name.starts_with('.')).collect()
    }

    /// The certificate of an order; `None` if it is missing or its key does not match.
    pub fn pair(&self, id: &str) -> Option<Pair> {
        let chain = self.read(&format!("{id}.crt"))?.to_vec();
        let private = self.read(&format!("{id}.key"))?;
        let pair = Pair { chain, private };
        match pair.check() {
            Ok(()) => Some(pair),
            Err(e) => {
                let (issuer, log) = (&self.issuer, &self.log);
                log!(log, Level::Warn, None, "acme: certificate \"{issuer}/{id}\": {e}");
                None
            }
        }
    }

    /// The private key of the order in progress.
    pub fn next_key(&self, id: &str) -> Option<Secret> {
        self.read(&format!("{id}.next.key"))
    }

    /// Stores the private key of the order in progress.
    pub(crate) fn keep_next_key(&self, id: &str, text: &[u8]) {
        self.write(&format!("{id}.next.key"), text);
    }

    /// Installs a new chain and the key of its order. `settled` is the state file after the order.
    pub fn install(&self, id: &str, chain: &[u8], settled: &[u8]) {
        self.write(&format!("{id}.next.crt"), chain);
        self.finish_install(id, settled);
    }

    /// Completes an installation, also one that a crash interrupted. Once `.next.crt` is written
    /// the new pair is complete, so each step can be repeated. Renaming that file is the last step:
    /// after it nothing refers to the order any more.
    pub(crate) fn finish_install(&self, id: &str, settled: &[u8]) {
        let (next_chain, next_key) = (format!("{id}.next.crt"), format!("{id}.next.key"));
        let Some(chain) = self.read(&next_chain) else { return };
        let key = self.next_key(id).or_else(|| self.read(&format!("{id}.key")));
        let pair = key.map(|private| Pair { chain: chain.to_vec(), private });
        let Some(pair) = pair.filter(|pair| pair.check().is_ok()) else {
            // The chain belongs to another order than the key.
            self.remove(&next_chain);
            return;
        };
        let mut memory = self.memory.borrow_mut();
        if self.path.is_some() && [&next_chain, &next_key].iter().any(|f| memory.contains_key(*f)) {
            // The disk is full: it keeps the old pair and the order as they are; the new ones are
            // used from memory.
            memory.insert(next_chain, chain.clone());
            memory.insert(format!("{id}.crt"), chain);
            memory.insert(format!("{id}.key"), pair.private);
            memory.insert(format!("{id}.state"), Secret::new(settled.to_vec()));
            return;
        }
        drop(memory);
        self.rename(&next_key, &format!("{id}.key"));
        self.write(&format!("{id}.state"), settled);
        self.rename(&next_chain, &format!("{id}.crt"));
    }
}

/// Writes a file under a temporary name, syncs it and renames it.
fn write_whole(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let path = folder.join(name);
    let beside = folder.join(OsStr::new(&format!(".{name}.{}", std::process::id())));
    let _ = std::fs::remove_file(&beside);
    let written = os::file::create_new(&beside, 0o600).and_then(|fd| {
        let mut file = File::from(fd);
        file.write_all(text)?;
        file.sync_all()
    });
    let done = written.and_then(|()| std::fs::rename(&beside, &path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done.and_then(|()| sync_folder(folder))
}

/// The suffixes of our files.
const ENDS: [&str; 6] = [".crt", ".key", ".state", ".challenges", ".url", ".print"];

/// Whether a name is a temporary name of [`write_whole`]: `.NAME.PID`.
fn is_unfinished(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once('.'));
    parts.is_some_and(|(name, pid)| {
        pid.bytes().all(|b| b.is_ascii_digit()) && ENDS.iter().any(|end| name.ends_with(end))
    })
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pki::issue::{Key, KeyKind};

    /// A folder that is not there yet, below one that goes with the test.
    pub(crate) struct Scratch(
        pub PathBuf,
        #[expect(dead_code, reason = "it is held")] testkit::Folder,
    );

    impl Scratch {
        pub fn new(name: &str) -> Scratch {
            let above = testkit::Folder::new(name);
            Scratch(above.join("acme"), above)
        }

        fn folder(&self) -> Folder {
            let (log, _lines) = log::capture(Level::Info);
            let folder = Folder::new(Some(&self.0), "test", &log);
            folder.prepare();
            folder
        }
    }

    fn pair() -> Pair {
        let key = Key::generate(KeyKind::Ecdsa(256)).unwrap();
        let name = proto::acme::Identifier::Dns("a.test".into());
        let chain = key.challenge_certificate(&name, "x").unwrap();
        Pair { chain, private: key.to_pem() }
    }

    #[test]
    fn files_are_whole_and_for_their_owner_alone() {
        let scratch = Scratch::new("files");
        let folder = scratch.folder();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&scratch.0), 0o700);
        assert!(folder.read("a.key").is_none());
        folder.write("a.key", b"one");
        folder.write("a.key", b"two");
        assert_eq!(folder.read("a.key").unwrap().as_slice(), b"two");
        assert_eq!(mode(&scratch.0.join("a.key")), 0o600);
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
        folder.remove("a.key");
        folder.remove("a.key");
        assert!(folder.read("a.key").is_none() && folder.is_kept());
    }

    #[test]
    fn what_was_left_unfinished_is_removed() {
        let scratch = Scratch::new("sweep");
        let folder = scratch.folder();
        let left = [".a.test-1f.state.123", ".a.next.key.7", ".account.url.1", ".a.challenges.9"];
        let others = [".one.lock", "a.crt", ".a.key.x", ".other.1", "a.state.1"];
        for name in left.iter().chain(&others) {
            std::fs::write(scratch.0.join(name), "x").unwrap();
        }
        folder.sweep();
        assert!(left.iter().all(|name| !scratch.0.join(name).exists()));
        assert!(others.iter().all(|name| scratch.0.join(name).exists()));
    }

    #[test]
    fn one_host_leads() {
        let scratch = Scratch::new("lock");
        let (first, second) = (scratch.folder(), scratch.folder());
        let lock = first.lock().unwrap().unwrap();
        assert!(second.lock().unwrap().is_none());
        drop(lock);
        assert!(second.lock().unwrap().is_some());
        let (log, _lines) = log::capture(Level::Info);
        assert!(Folder::new(None, "test", &log).lock().unwrap().is_some());
    }

    #[test]
    fn an_installation_ends_wherever_it_was_broken_off() {
        let scratch = Scratch::new("install");
        let (old, new) = (pair(), pair());
        for step in 0..4 {
            let folder = scratch.folder();
            folder.write("a.crt", &old.chain);
            folder.write("a.key", &old.private);
            folder.keep_next_key("a", &new.private);
            if step >= 1 {
                folder.write("a.next.crt", &new.chain);
            }
            if step >= 2 {
                folder.rename("a.next.key", "a.key");
            }
            if step >= 3 {
                folder.rename("a.next.crt", "a.crt");
            }
            let after = scratch.folder();
            after.finish_install("a", b"over");
            assert_eq!(after.read("a.state").is_some(), (1..=2).contains(&step));
            after.remove("a.state");
            let want = if step == 0 { &old } else { &new };
            assert_eq!(after.pair("a").as_ref(), Some(want), "step {step}");
            assert_eq!(after.read("a.next.crt"), None);
            after.remove("a.next.key");
        }
        // A chain of another key is nobody's.
        let folder = scratch.folder();
        folder.write("a.next.crt", &pair().chain);
        folder.finish_install("a", b"over");
        assert!(folder.read("a.state").is_none());
        assert_eq!(folder.pair("a"), Some(new));
        assert_eq!(folder.read("a.next.crt"), None);
    }

    #[test]
    fn what_cannot_be_written_is_kept_in_memory() {
        let scratch = Scratch::new("missing");
        let (log, lines) = log::capture(Level::Info);
        let folder = Folder::new(Some(&scratch.0.join("none/below")), "test", &log);
        folder.write("a.key", b"one");
        folder.write("b.key", b"two");
        assert_eq!(folder.read("a.key").unwrap().as_slice(), b"one");
        assert!(!folder.is_kept());
        assert_eq!(lines.take().lines().count(), 1);
        let new = pair();
        folder.keep_next_key("c", &new.private);
        folder.install("c", &new.chain, b"over");
        assert_eq!(folder.pair("c"), Some(new));
    }

    #[test]
    fn a_disk_without_room_keeps_the_pair_it_has() {
        let (old, new) = (pair(), pair());
        for full in ["a.next.crt", "a.next.key"] {
            let scratch = Scratch::new("full");
            let (log, lines) = log::capture(Level::Info);
            let folder = Folder::new(Some(&scratch.0), "test", &log);
            folder.prepare();
            folder.write("a.crt", &old.chain);
            folder.write("a.key", &old.private);
            folder.write("a.state", b"under way");
            // A folder in its place: nothing can be written there, not even by root.
            std::fs::create_dir(scratch.0.join(full)).unwrap();
            folder.keep_next_key("a", &new.private);
            folder.install("a", &new.chain, b"over");
            assert_eq!(folder.pair("a").as_ref(), Some(&new));
            assert_eq!(folder.read("a.state").unwrap().as_slice(), b"over");
            folder.flush();
            let crashed = scratch.folder();
            assert_eq!(crashed.pair("a").as_ref(), Some(&old), "{full}");
            assert_eq!(crashed.read("a.state").unwrap().as_slice(), b"under way");
            std::fs::remove_dir(scratch.0.join(full)).unwrap();
            folder.flush();
            assert!(folder.memory.borrow().is_empty());
            let after = scratch.folder();
            assert_eq!(after.pair("a").as_ref(), Some(&new), "{full}");
            assert_eq!(after.read("a.state").unwrap().as_slice(), b"over");
            assert!(after.read("a.next.crt").is_none() && after.next_key("a").is_none());
            let told = lines.take();
            assert_eq!(told.lines().count(), 2, "{told}");
        }
    }
}
