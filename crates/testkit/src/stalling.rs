//! A file system that stalls when it is told to: a tiny FUSE server in the test's own process.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// One folder of files that are read from memory, slowly when asked to: while it [stalls], every
/// question of the kernel to it waits. It keeps nothing in the kernel's caches longer than a
/// question takes, apart from the pages of files.
///
/// The test itself must not touch a stalled folder: it would wait as well.
///
/// [stalls]: StallingFolder::stall
pub struct StallingFolder {
    path: PathBuf,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    files: Vec<(String, Vec<u8>)>,
}

#[derive(Default)]
struct State {
    stalled: bool,
    /// Questions that wait for the end of the stall.
    waiting: usize,
    /// Reads answer with an input/output error.
    broken: bool,
    /// Lengths that files have now, where they are not those of their contents.
    cut: HashMap<u64, u64>,
}

impl StallingFolder {
    /// Mounts a folder with these files at `path`, which is made.
    ///
    /// # Errors
    /// Where this machine or user may not mount: the test cannot run then, and says so.
    pub fn mount(path: &Path, files: Vec<(String, Vec<u8>)>) -> io::Result<StallingFolder> {
        std::fs::create_dir_all(path)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("weir-test", path, "fuse", flags, Some(options.as_c_str()))?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), files });
        let of_server = shared.clone();
        let server = std::thread::spawn(move || serve(device, &of_server));
        Ok(StallingFolder { path: path.to_owned(), shared, server: Some(server) })
    }

    /// From now on nothing is answered.
    pub fn stall(&self) {
        self.set(|state| state.stalled = true);
    }

    /// Everything is answered again.
    pub fn go_on(&self) {
        self.set(|state| state.stalled = false);
    }

    /// Reads fail, or work again.
    pub fn break_reads(&self, broken: bool) {
        self.set(|state| state.broken = broken);
    }

    /// Gives a file another length; its kernel pages may still be the old ones.
    pub fn cut(&self, name: &str, len: u64) {
        let ino = self.shared.ino(name.as_bytes()).expect("a file of this folder");
        self.set(|state| {
            state.cut.insert(ino, len);
        });
    }

    /// How many questions wait for the end of the stall.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().expect("the server does not panic").waiting
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().expect("the server does not panic"));
        self.shared.changed.notify_all();
    }
}

impl Drop for StallingFolder {
    fn drop(&mut self) {
        self.go_on();
        // Whoever still has a file there keeps the server going; a test that failed does not wait.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            let _ = server.join();
        }
    }
}

const ROOT: u64 = 1;
const BLOCK: u32 = 4096;

impl Shared {
    fn ino(&self, name: &[u8]) -> Option<u64> {
        let i = self.files.iter().position(|f| f.0.as_bytes() == name)?;
        Some(i as u64 + 2)
    }

    fn content(&self, ino: u64) -> Option<&[u8]> {
        let i = usize::try_from(ino).ok()?.checked_sub(2)?;
        self.files.get(i).map(|f| &*f.1)
    }

    fn len(&self, ino: u64) -> u64 {
        let state = self.state.lock().expect("nobody panics with it");
        let own = self.content(ino).map_or(0, |c| c.len() as u64);
        state.cut.get(&ino).copied().unwrap_or(own)
    }

    /// `struct fuse_attr`.
    fn attr(&self, ino: u64, out: &mut Vec<u8>) {
        let (mode, size) = match ino {
            ROOT => (0o040_755u32, 0),
            _ => (0o100_644, self.len(ino)),
        };
        for n in [ino, size, size.div_ceil(512)] {
            out.extend_from_slice(&n.to_ne_bytes());
        }
        // Times: long ago, so that what is read is trusted at once.
        for _ in 0..3 {
            out.extend_from_slice(&1_600_000_000u64.to_ne_bytes());
        }
        out.extend_from_slice(&[0; 12]);
        for n in [mode, 1, 0, 0, 0, BLOCK, 0] {
            out.extend_from_slice(&n.to_ne_bytes());
        }
    }
}

struct Question<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let low = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    low.map_or(0, u64::from_ne_bytes)
}

/// Each question has a thread of its own, so that one that waits holds up no other.
fn serve(device: File, shared: &Arc<Shared>) {
    let device = Arc::new(device);
    let mut buf = vec![0; 1 << 20];
    loop {
        let n = match (&*device).read(&mut buf) {
            Ok(n) if n >= 40 => n,
            Err(e) if matches!(e.raw_os_error(), Some(2 | 4)) => continue,
            // Unmounted.
            _ => return,
        };
        let (device, shared, question) = (device.clone(), shared.clone(), buf[..n].to_vec());
        std::thread::spawn(move || {
            let question = Question {
                opcode: u32_at(&question, 4),
                unique: u64_at(&question, 8),
                node: u64_at(&question, 16),
                body: &question[40..],
            };
            wait_while_stalled(&shared, question.opcode);
            let Some(answer) = answer(&shared, &question) else { return };
            let (error, body) = match answer {
                Ok(body) => (0, body),
                Err(errno) => (-errno, Vec::new()),
            };
            let mut out = Vec::with_capacity(16 + body.len());
            out.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
            out.extend_from_slice(&error.to_ne_bytes());
            out.extend_from_slice(&question.unique.to_ne_bytes());
            out.extend_from_slice(&body);
            // The one who asked may have gone.
            let _ = (&*device).write(&out);
        });
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

fn wait_while_stalled(shared: &Shared, opcode: u32) {
    if matches!(opcode, INIT | FORGET | BATCH_FORGET | INTERRUPT) {
        return;
    }
    let mut state = shared.state.lock().expect("nobody panics with it");
    state.waiting += 1;
    while state.stalled {
        state = shared.changed.wait(state).expect("nobody panics with it");
    }
    state.waiting -= 1;
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

/// `None`: no answer is wanted. An error is a positive number.
fn answer(shared: &Shared, question: &Question<'_>) -> Option<Result<Vec<u8>, i32>> {
    let mut out = Vec::new();
    match question.opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        INIT => {
            // Version 7.31 at most; several reads, and several names, at a time.
            const FUSE_ASYNC_READ: u32 = 1;
            const FUSE_PARALLEL_DIROPS: u32 = 1 << 18;
            let minor = u32_at(question.body, 4).min(31);
            let abilities = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS;
            for n in [7, minor, u32_at(question.body, 8), abilities] {
                out.extend_from_slice(&n.to_ne_bytes());
            }
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&(1u32 << 17).to_ne_bytes());
            out.extend_from_slice(&[0; 40]);
        }
        LOOKUP => {
            let name = question.body.split(|&b| b == 0).next().unwrap_or_default();
            let Some(ino) = shared.ino(name) else { return Some(Err(ENOENT)) };
            // Neither the name nor the facts are good for any time.
            out.extend_from_slice(&ino.to_ne_bytes());
            out.extend_from_slice(&[0; 32]);
            shared.attr(ino, &mut out);
        }
        GETATTR => {
            out.extend_from_slice(&[0; 16]);
            shared.attr(question.node, &mut out);
        }
        OPEN | OPENDIR => {
            // Pages of files are kept over opens.
            const FOPEN_KEEP_CACHE: u32 = 2;
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(&FOPEN_KEEP_CACHE.to_ne_bytes());
            out.extend_from_slice(&[0; 4]);
        }
        READ => {
            if shared.state.lock().expect("nobody panics with it").broken {
                return Some(Err(EIO));
            }
            let content = shared.content(question.node).unwrap_or_default();
            let content = &content[..content.len().min(shared.len(question.node) as usize)];
            let from = (u64_at(question.body, 8) as usize).min(content.len());
            let len = u32_at(question.body, 16) as usize;
            out.extend_from_slice(&content[from..(from + len).min(content.len())]);
        }
        READDIR if u64_at(question.body, 8) == 0 => {
            for (i, (name, _)) in shared.files.iter().enumerate() {
                out.extend_from_slice(&(i as u64 + 2).to_ne_bytes());
                out.extend_from_slice(&(i as u64 + 1).to_ne_bytes());
                out.extend_from_slice(&(name.len() as u32).to_ne_bytes());
                out.extend_from_slice(&8u32.to_ne_bytes());
                out.extend_from_slice(name.as_bytes());
                out.resize(out.len().next_multiple_of(8), 0);
            }
        }
        READDIR | RELEASE | RELEASEDIR | FLUSH => {}
        STATFS => out.extend_from_slice(&[0; 80]),
        _ => return Some(Err(ENOSYS)),
    }
    Some(Ok(out))
}
