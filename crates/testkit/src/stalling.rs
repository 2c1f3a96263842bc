//! A file system that stalls on demand: a tiny FUSE server in the test's own process.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use os::errno::{EDQUOT, EINTR, EIO, EISDIR, ENOENT, ENOSPC, ENOSYS, ENOTDIR, ENOTEMPTY};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A folder whose files and folders are in memory, and slow on demand: while it [stalls], every
/// request of the kernel to it waits. The kernel may cache pages of files and nothing else. All
/// users have all permissions in it.
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
}

struct State {
    stalled: bool,
    /// Questions that wait for the end of the stall.
    waiting: usize,
    /// The next write to a file with such a name waits as if there were a stall.
    to_hold: Option<fn(&[u8]) -> bool>,
    /// A write waits so.
    held: bool,
    /// Reads beyond this offset fail with an input/output error.
    broken_from: usize,
    /// Writes answer with this error.
    write_error: Option<i32>,
    failing: Failing,
    /// By number, from 1; removed ones stay for open descriptors.
    nodes: Vec<Node>,
}

/// Questions of every kind that fail by chance.
#[derive(Default)]
struct Failing {
    seed: u64,
    per_mille: u64,
    asked: u64,
}

impl Failing {
    /// The error with which the next question of a kind fails, if it does.
    fn next(&mut self, opcode: u32) -> Option<i32> {
        if self.per_mille == 0 || !op::can_fail(opcode) {
            return None;
        }
        self.asked += 1;
        let mut z = (self.seed ^ (self.asked << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 32;
        let writes = matches!(opcode, op::WRITE | op::CREATE | op::MKDIR);
        let errors = if writes { [EIO, ENOSPC, EDQUOT] } else { [EIO; 3] };
        (z % 1000 < self.per_mille).then(|| errors[(z >> 20) as usize % 3])
    }
}

struct Node {
    is_dir: bool,
    content: Vec<u8>,
    /// The reported length, where that is not its content's.
    cut: Option<u64>,
    names: BTreeMap<Vec<u8>, u64>,
}

impl Node {
    fn file(content: Vec<u8>) -> Node {
        Node { is_dir: false, content, cut: None, names: BTreeMap::new() }
    }

    fn folder() -> Node {
        Node { is_dir: true, ..Node::file(Vec::new()) }
    }

    fn len(&self) -> u64 {
        self.cut.unwrap_or(self.content.len() as u64)
    }
}

impl StallingFolder {
    /// [`StallingFolder::mount`]; `None`, said on standard error, where that is not allowed.
    pub fn try_mount(path: &Path, files: Vec<(String, Vec<u8>)>) -> Option<StallingFolder> {
        let mounted = StallingFolder::mount(path, files);
        let skip = |e| eprintln!("SKIPPED: no file system can be mounted here: {e}");
        mounted.map_err(skip).ok()
    }

    /// Mounts a folder with these files at `path`, which is made.
    ///
    /// # Errors
    /// Where this machine or user may not mount: the test cannot run then, and reports that.
    pub fn mount(path: &Path, files: Vec<(String, Vec<u8>)>) -> io::Result<StallingFolder> {
        std::fs::create_dir_all(path)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("weir-test", path, "fuse", flags, Some(options.as_c_str()))?;
        let mut state = State {
            stalled: false,
            waiting: 0,
            to_hold: None,
            held: false,
            broken_from: usize::MAX,
            write_error: None,
            failing: Failing::default(),
            nodes: vec![Node::folder()],
        };
        for (name, content) in files {
            state.add(ROOT, name.as_bytes(), Node::file(content));
        }
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_server = shared.clone();
        let server = std::thread::spawn(move || serve(device, &of_server));
        Ok(StallingFolder { path: path.to_owned(), shared, server: Some(server) })
    }

    /// From now on nothing is answered.
    pub fn stall(&self) {
        self.set(|state| state.stalled = true);
    }

    /// The next write to a file with a name that `is_it` takes waits; everything else is answered.
    pub fn hold_write(&self, is_it: fn(&[u8]) -> bool) {
        self.set(|state| state.to_hold = Some(is_it));
    }

    /// Whether a write waits for that reason.
    pub fn holds_write(&self) -> bool {
        self.shared.lock().held
    }

    /// Everything is answered again.
    pub fn go_on(&self) {
        self.set(|state| (state.stalled, state.to_hold, state.held) = (false, None, false));
    }

    /// Reads fail, or work again.
    pub fn break_reads(&self, broken: bool) {
        self.break_reads_beyond(if broken { 0 } else { usize::MAX });
    }

    /// Reads beyond the first `len` bytes of any file fail.
    pub fn break_reads_beyond(&self, len: usize) {
        self.set(|state| state.broken_from = len);
    }

    /// Writes fail with an error of the system's, or work again.
    pub fn break_writes(&self, error: Option<i32>) {
        self.set(|state| state.write_error = error);
    }

    /// Requests of every kind fail from now on, `per_mille` of a thousand, chosen by `seed`.
    pub fn fail_some(&self, seed: u64, per_mille: u64) {
        self.set(|state| state.failing = Failing { seed, per_mille, asked: 0 });
    }

    /// The names of all files below a folder. Does not go through the kernel.
    pub fn files(&self, path: &str) -> Vec<String> {
        let mut state = self.shared.lock();
        let mut found = Vec::new();
        let mut left: Vec<(String, u64)> =
            state.find(path).map(|ino| (path.to_owned(), ino)).into_iter().collect();
        while let Some((path, ino)) = left.pop() {
            let node = state.node(ino);
            if !node.is_dir {
                found.push(path);
                continue;
            }
            for (name, ino) in &node.names {
                left.push((format!("{path}/{}", String::from_utf8_lossy(name)), *ino));
            }
        }
        found
    }

    /// Makes a file with its folders. Does not go through the kernel.
    pub fn add(&self, path: &str, content: &[u8]) {
        self.set(|state| {
            let (mut folder, mut names) = (ROOT, path.split('/').peekable());
            while let Some(name) = names.next() {
                let name = name.as_bytes();
                if names.peek().is_none() {
                    state.add(folder, name, Node::file(content.to_vec()));
                    return;
                }
                folder = match state.node(folder).names.get(name) {
                    Some(&ino) => ino,
                    None => state.add(folder, name, Node::folder()),
                };
            }
        });
    }

    /// Gives a file another length; its kernel pages may still be the old ones.
    pub fn cut(&self, name: &str, len: u64) {
        self.set(|state| {
            let ino = state.find(name).expect("a file of this folder");
            state.node(ino).cut = Some(len);
        });
    }

    /// The content of a file, by its path below the folder; `None` where there is none. Bypasses
    /// the kernel.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let mut state = self.shared.lock();
        let ino = state.find(path)?;
        Some(state.node(ino).content.clone())
    }

    /// Whether a file or folder is there. Does not go through the kernel.
    pub fn has(&self, path: &str) -> bool {
        self.shared.lock().find(path).is_some()
    }

    /// The number of requests that wait for the end of the stall.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

impl Drop for StallingFolder {
    fn drop(&mut self) {
        self.go_on();
        // Its end is forced: a mount lives on for every process with a file there, and in each
        // mount namespace that was made meanwhile (by any program, as a copy of ours), maybe for
        // hours.
        let _ = unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::FORCE);
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            let _ = server.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::StallingFolder;

    #[test]
    fn a_copy_of_the_mount_does_not_keep_it() {
        let path = std::env::temp_dir().join(format!("weir-testkit-fuse-{}", std::process::id()));
        let files = vec![("file".to_owned(), b"text".to_vec())];
        let folder = match StallingFolder::mount(&path, files) {
            Ok(folder) => folder,
            Err(e) => return eprintln!("SKIPPED: no file system can be mounted here: {e}"),
        };
        assert_eq!(std::fs::read(path.join("file")).unwrap(), b"text");
        // It writes a line when it has its copy, and ends with its input.
        let mut other = Command::new("unshare")
            .args(["--mount", "sh", "-c", "echo; read x"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 1];
        let mut output = other.stdout.take().unwrap();
        std::io::Read::read_exact(&mut output, &mut line).unwrap();
        drop(folder);
        assert!(!path.join("file").exists());
        drop(other.stdin.take());
        other.wait().unwrap();
        std::fs::remove_dir(&path).unwrap();
    }
}

const ROOT: u64 = 1;
const BLOCK: u32 = 4096;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the server does not panic")
    }
}

impl State {
    fn node(&mut self, ino: u64) -> &mut Node {
        &mut self.nodes[ino as usize - 1]
    }

    fn add(&mut self, folder: u64, name: &[u8], node: Node) -> u64 {
        self.nodes.push(node);
        let ino = self.nodes.len() as u64;
        self.node(folder).names.insert(name.to_vec(), ino);
        ino
    }

    /// Whether a write to a file is the one that is to wait.
    fn is_to_be_held(&self, ino: u64) -> bool {
        let mut names = self.nodes.iter().flat_map(|node| &node.names);
        self.to_hold.is_some_and(|is_it| names.any(|(name, of)| *of == ino && is_it(name)))
    }

    fn find(&mut self, path: &str) -> Option<u64> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |ino, name| self.node(ino).names.get(name.as_bytes()).copied())
    }

    /// `struct fuse_attr`.
    fn attr(&mut self, ino: u64, out: &mut Vec<u8>) {
        let node = self.node(ino);
        let (mode, size) = match node.is_dir {
            true => (0o040_777u32, 0),
            false => (0o100_666, node.len()),
        };
        for n in [ino, size, size.div_ceil(512)] {
            out.extend_from_slice(&n.to_ne_bytes());
        }
        // Times: long ago, so that read data is trusted at once.
        for _ in 0..3 {
            out.extend_from_slice(&1_600_000_000u64.to_ne_bytes());
        }
        out.extend_from_slice(&[0; 12]);
        for n in [mode, 1, 0, 0, 0, BLOCK, 0] {
            out.extend_from_slice(&n.to_ne_bytes());
        }
    }

    /// `struct fuse_entry_out`: name and attributes are valid for no time.
    fn entry(&mut self, ino: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&ino.to_ne_bytes());
        out.extend_from_slice(&[0; 32]);
        self.attr(ino, out);
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), i32> {
        let ino = self.node(from.0).names.remove(from.1).ok_or(ENOENT)?;
        self.node(to.0).names.insert(to.1.to_vec(), ino);
        Ok(())
    }

    fn remove(&mut self, folder: u64, name: &[u8], is_dir: bool) -> Result<(), i32> {
        let ino = self.node(folder).names.get(name).copied().ok_or(ENOENT)?;
        let node = self.node(ino);
        match (node.is_dir, is_dir) {
            (true, false) => return Err(EISDIR),
            (false, true) => return Err(ENOTDIR),
            (true, true) if !node.names.is_empty() => return Err(ENOTEMPTY),
            _ => {}
        }
        self.node(folder).names.remove(name);
        Ok(())
    }

    fn write(&mut self, ino: u64, pos: usize, data: &[u8]) {
        let content = &mut self.node(ino).content;
        if content.len() < pos + data.len() {
            content.resize(pos + data.len(), 0);
        }
        content[pos..pos + data.len()].copy_from_slice(data);
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
            Err(e) if matches!(e.raw_os_error(), Some(ENOENT | EINTR)) => continue,
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
            wait_while_stalled(&shared, &question);
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
            // The process that asked may be gone.
            let _ = (&*device).write(&out);
        });
    }
}

/// The kernel's requests (`enum fuse_opcode`).
mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
    pub const RENAME2: u32 = 45;

    /// Whether the caller learns of an error: not for notifications.
    pub fn can_fail(opcode: u32) -> bool {
        !matches!(
            opcode,
            INIT | FORGET | BATCH_FORGET | INTERRUPT | STATFS | RELEASE | RELEASEDIR | FLUSH
        )
    }
}

fn wait_while_stalled(shared: &Shared, question: &Question<'_>) {
    let Question { opcode, node, .. } = *question;
    if matches!(opcode, op::INIT | op::FORGET | op::BATCH_FORGET | op::INTERRUPT) {
        return;
    }
    let mut state = shared.lock();
    let is_held = opcode == op::WRITE && state.is_to_be_held(node);
    if is_held {
        (state.to_hold, state.held) = (None, true);
    }
    state.waiting += 1;
    while state.stalled || is_held && state.held {
        state = shared.changed.wait(state).expect("nobody panics with it");
    }
    state.waiting -= 1;
}

/// The names in a question, each with its zero byte.
fn names(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&b| b == 0)
}

/// `None`: no answer. An error is a positive number.
fn answer(shared: &Shared, question: &Question<'_>) -> Option<Result<Vec<u8>, i32>> {
    let mut out = Vec::new();
    let state = &mut *shared.lock();
    let (node, body) = (question.node, question.body);
    if let Some(errno) = state.failing.next(question.opcode) {
        return Some(Err(errno));
    }
    match question.opcode {
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return None,
        op::INIT => {
            // Version 7.31 at most; several reads, and several names, at a time.
            const FUSE_ASYNC_READ: u32 = 1;
            const FUSE_BIG_WRITES: u32 = 1 << 5;
            const FUSE_PARALLEL_DIROPS: u32 = 1 << 18;
            let minor = u32_at(body, 4).min(31);
            let abilities = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS;
            for n in [7, minor, u32_at(body, 8), abilities] {
                out.extend_from_slice(&n.to_ne_bytes());
            }
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&(1u32 << 17).to_ne_bytes());
            out.extend_from_slice(&[0; 40]);
        }
        op::LOOKUP => {
            let name = names(body).next().unwrap_or_default();
            let Some(ino) = state.node(node).names.get(name).copied() else {
                return Some(Err(ENOENT));
            };
            state.entry(ino, &mut out);
        }
        op::GETATTR | op::SETATTR => {
            const FATTR_SIZE: u32 = 1 << 3;
            if question.opcode == op::SETATTR && u32_at(body, 0) & FATTR_SIZE != 0 {
                state.node(node).content.resize(u64_at(body, 16) as usize, 0);
            }
            out.extend_from_slice(&[0; 16]);
            state.attr(node, &mut out);
        }
        op::OPEN | op::OPENDIR => open_out(&mut out),
        op::READ | op::WRITE => return Some(move_bytes(state, question)),
        op::READDIR if u64_at(body, 8) == 0 => {
            let list = state.node(node).names.clone();
            for (i, (name, ino)) in list.into_iter().enumerate() {
                let (dt_dir, dt_reg) = (4u32, 8u32);
                let kind = if state.node(ino).is_dir { dt_dir } else { dt_reg };
                out.extend_from_slice(&ino.to_ne_bytes());
                out.extend_from_slice(&(i as u64 + 1).to_ne_bytes());
                out.extend_from_slice(&(name.len() as u32).to_ne_bytes());
                out.extend_from_slice(&kind.to_ne_bytes());
                out.extend_from_slice(&name);
                out.resize(out.len().next_multiple_of(8), 0);
            }
        }
        op::READDIR | op::RELEASE | op::RELEASEDIR | op::FLUSH | op::FSYNC => {}
        op::STATFS => out.extend_from_slice(&[0; 80]),
        _ => return Some(change(state, question)),
    }
    Some(Ok(out))
}

/// `struct fuse_open_out`: pages of files are kept over opens.
fn open_out(out: &mut Vec<u8>) {
    const FOPEN_KEEP_CACHE: u32 = 2;
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&FOPEN_KEEP_CACHE.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
}

fn move_bytes(state: &mut State, question: &Question<'_>) -> Result<Vec<u8>, i32> {
    let (node, body) = (question.node, question.body);
    let (pos, len) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
    if question.opcode == op::WRITE {
        if let Some(errno) = state.write_error {
            return Err(errno);
        }
        let data = body.get(40..40 + len).ok_or(EIO)?;
        state.write(node, pos, data);
        return Ok([(len as u32).to_ne_bytes(), [0; 4]].concat());
    }
    if pos + len > state.broken_from {
        return Err(EIO);
    }
    let node = state.node(node);
    let content = &node.content[..node.content.len().min(node.len() as usize)];
    let from = pos.min(content.len());
    Ok(content[from..(from + len).min(content.len())].to_vec())
}

/// Questions that change names.
fn change(state: &mut State, question: &Question<'_>) -> Result<Vec<u8>, i32> {
    let (node, body) = (question.node, question.body);
    // The bytes before the names, the same for each.
    let names_after = |len: usize| {
        let mut names = names(body.get(len..).unwrap_or_default());
        (names.next().unwrap_or_default(), names.next().unwrap_or_default())
    };
    let mut out = Vec::new();
    match question.opcode {
        op::CREATE => {
            let name = names_after(16).0;
            let ino = match state.node(node).names.get(name) {
                Some(&ino) => ino,
                None => state.add(node, name, Node::file(Vec::new())),
            };
            state.entry(ino, &mut out);
            open_out(&mut out);
        }
        op::MKDIR => {
            let ino = state.add(node, names_after(8).0, Node::folder());
            state.entry(ino, &mut out);
        }
        op::UNLINK => state.remove(node, names_after(0).0, false)?,
        op::RMDIR => state.remove(node, names_after(0).0, true)?,
        op::RENAME => {
            let (from, to) = names_after(8);
            state.rename((node, from), (u64_at(body, 0), to))?;
        }
        op::RENAME2 => {
            let (from, to) = names_after(16);
            state.rename((node, from), (u64_at(body, 0), to))?;
        }
        _ => return Err(ENOSYS),
    }
    Ok(out)
}
