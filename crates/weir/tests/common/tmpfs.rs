//! A file system of a megabyte, for tests of full disks. Mounting needs root; without it, the tests
//! say so and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The mounted file system, gone with the test.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts it on a folder, which is made; `None` where this machine or user may not mount.
    pub fn mount(path: &Path) -> Option<Tmpfs> {
        std::fs::create_dir_all(path).unwrap();
        let done = mount(&["-t", "tmpfs", "-o", "size=1m,mode=777", "none"], path);
        if !done {
            eprintln!("SKIPPED: no file system can be mounted here");
        }
        done.then(|| Tmpfs(path.to_owned()))
    }

    /// Mounts it again with another option, for example `ro`.
    #[allow(dead_code, reason = "each program uses a part")]
    pub fn set(&self, option: &str) {
        assert!(mount(&["-o", &format!("remount,{option}")], &self.0), "{option}");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &[&str], path: &Path) -> bool {
    Command::new("mount").args(options).arg(path).status().is_ok_and(|s| s.success())
}
