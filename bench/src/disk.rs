//! File systems of our own, of a size that loads choose: ext4 in a file, mounted through a loop
//! device.
//!
//! They are mounted in a namespace of this process ([`enter`]): whatever becomes of it, they are
//! gone with it. The file has no name any more once it is mounted, and the loop device goes with
//! the mount.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;

/// Set in the process that is in a namespace of its own.
const INSIDE: &str = "WEIR_BENCH_MOUNTS";

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
}

impl Disk {
    /// An ext4 of so many bytes, empty, at `folder`, which is made.
    ///
    /// # Errors
    /// What the tools said.
    pub fn new(folder: &Path, bytes: u64) -> Outcome<Disk> {
        let image = folder.with_extension("image");
        let made = fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .and_then(|()| fs::create_dir_all(folder));
        made.map_err(|e| format!("{}: {e}", image.display()))?;
        // No blocks for root: the server may be root.
        let mut mkfs = Command::new("mkfs.ext4");
        let mut mount = Command::new("mount");
        mkfs.args(["-q", "-F", "-m", "0"]).arg(&image);
        mount.args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(folder);
        let done = run(&mut mkfs).and_then(|()| run(&mut mount));
        let _ = fs::remove_file(&image);
        done?;
        Ok(Disk { folder: folder.to_path_buf() })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes in use, and bytes that are free.
    pub fn space(&self) -> (u64, u64) {
        match rustix::fs::statvfs(&self.folder) {
            Ok(s) => ((s.f_blocks - s.f_bfree) * s.f_frsize, s.f_bavail * s.f_frsize),
            Err(_) => (0, 0),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let umount = |how: &str| run(Command::new("umount").arg(how).arg(&self.folder)).is_ok();
        // Who has a file open there ends in a moment; the mount is out of sight at any rate.
        if !umount("--no-canonicalize") && !umount("--lazy") {
            println!("{} is still mounted", self.folder.display());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

fn run(command: &mut Command) -> Outcome {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
