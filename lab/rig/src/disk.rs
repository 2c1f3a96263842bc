//! File systems of our own, of a size that loads choose: ext4 in a file, mounted through a loop
//! device.
//!
//! They are mounted in a namespace of this process ([`enter`]), and vanish with it in any case. The
//! file is unlinked once it is mounted, and the loop device goes with the mount.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;

/// Set in the process that is in a namespace of its own.
const INSIDE: &str = "WEIR_BENCH_MOUNTS";

/// Loads that mount something.
pub const LOADS: &[&str] = &["cache-disk-full", "cache-zone-full", "three-disks", "soak"];

/// Waits until all that was written is on the file system of a folder.
///
/// # Errors
/// The system's, as a sentence.
pub fn sync(folder: &Path) -> Outcome {
    let opened = fs::File::open(folder);
    let synced = opened.and_then(|folder| rustix::fs::syncfs(folder).map_err(Into::into));
    synced.map_err(|e| format!("{}: {e}", folder.display()))
}

/// Starts this program over in a namespace of mounts, unless it is in one.
///
/// # Errors
/// It is not allowed (root is needed), or there is no `unshare`.
pub fn enter() -> Outcome {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    if !rustix::process::getuid().is_root() {
        return Err("file systems are mounted by root alone".to_string());
    }
    let program = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    let e = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {e}"))
}

/// A mounted file system; dropping it takes all of it away.
pub struct Disk {
    folder: PathBuf,
    /// Its loop device, `MAJOR:MINOR`.
    device: String,
}

/// Makes a disk slow as long as it lives, for all reads and writes, and lets writers wait for it
/// after a few megabytes.
pub struct Slow<'a>(&'a Disk);

impl Disk {
    /// An empty ext4 of `bytes` bytes at `folder`, which is made.
    ///
    /// # Errors
    /// Those of the tools.
    pub fn new(folder: &Path, bytes: u64) -> Outcome<Disk> {
        let image = folder.with_extension("image");
        let made = fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .and_then(|()| fs::create_dir_all(folder));
        made.map_err(|e| format!("{}: {e}", image.display()))?;
        // No blocks for root: the server may be root.
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0"]).arg(&image);
        let done = run(&mut mkfs).and_then(|_| mount(&image, folder));
        let _ = fs::remove_file(&image);
        Ok(Disk { folder: folder.to_path_buf(), device: done? })
    }

    /// Limits it to `bytes` bytes a second.
    ///
    /// # Errors
    /// Control groups of version 1 are not there.
    pub fn slow(&self, bytes: u64) -> Outcome<Slow<'_>> {
        let slow = Slow(self);
        slow.set(bytes, 1)?;
        Ok(slow)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until all that was written is on it.
    ///
    /// # Errors
    /// The system's, as a sentence.
    pub fn sync(&self) -> Outcome {
        sync(&self.folder)
    }

    /// Bytes in use, and bytes that are free.
    pub fn space(&self) -> (u64, u64) {
        match rustix::fs::statvfs(&self.folder) {
            Ok(s) => ((s.f_blocks - s.f_bfree) * s.f_frsize, s.f_bavail * s.f_frsize),
            Err(_) => (0, 0),
        }
    }
}

impl Slow<'_> {
    /// 0 is no limit.
    fn set(&self, bytes: u64, strict: u32) -> Outcome {
        let device = &self.0.device;
        let write =
            |path: String, value: &str| fs::write(&path, value).map_err(|e| format!("{path}: {e}"));
        // At the root: writeback runs in no group of a program's.
        for what in ["read", "write"] {
            let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{what}_bps_device");
            write(path, &format!("{device} {bytes}"))?;
        }
        let bdi = format!("/sys/class/bdi/{device}");
        write(format!("{bdi}/strict_limit"), &strict.to_string())?;
        write(format!("{bdi}/max_ratio"), if strict == 1 { "1" } else { "100" })
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        if let Err(message) = self.set(0, 0) {
            println!("still slow: {message}");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let umount = |how: &str| run(Command::new("umount").arg(how).arg(&self.folder)).is_ok();
        // A process with an open file there ends in a moment; the mount is out of sight in any
        // case.
        if !umount("--no-canonicalize") && !umount("--lazy") {
            println!("{} is still mounted", self.folder.display());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Mounts an image; gives the loop device, which goes with the mount.
fn mount(image: &Path, folder: &Path) -> Outcome<String> {
    // Bypasses the page cache: else pages dropped from the upper one are still in the lower one.
    let device = run(Command::new("losetup").args(["-f", "--show", "--direct-io=on"]).arg(image))?;
    let device = device.trim();
    let mounted = run(Command::new("mount").args(["-t", "ext4", device]).arg(folder));
    // Released with the last mount, or at once.
    let detached = run(Command::new("losetup").args(["-d", device]));
    mounted.and(detached)?;
    let name = device.trim_start_matches("/dev/");
    let path = format!("/sys/block/{name}/dev");
    let number = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(number.trim().to_string())
}

fn run(command: &mut Command) -> Outcome<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
