//! Files whose content the kernel makes when they are read: those of procfs and sysfs. Their size
//! is 0 or a page, whatever they hold.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

use crate::file::{self, FileMeta};

/// Folders with file systems of that kind.
const FOLDERS: [&str; 4] = ["/proc", "/sys", "/sys/fs/cgroup", "/sys/kernel/debug"];

/// The size that sysfs reports for each file.
const PAGE: u64 = 4096;

/// Whether the size of a file says nothing of its content. Asks the system once in the life of the
/// process.
pub fn is_generated(meta: &FileMeta) -> bool {
    static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
    if !meta.is_file() || !matches!(meta.size, 0 | PAGE) {
        return false;
    }
    let devices = DEVICES.get_or_init(|| {
        // A folder that is a part of the root's file system has nothing mounted on it.
        let device = |folder: &str| file::stat(Path::new(folder)).ok().map(|meta| meta.dev);
        let root = device("/");
        let all = FOLDERS.iter().filter_map(|folder| device(folder));
        all.filter(|device| Some(*device) != root).collect()
    });
    devices.contains(&meta.dev)
}

/// Reads such a file to its end. One whose reader would have to wait for more ends there.
///
/// # Errors
/// The system's, and `FileTooLarge` above `max` bytes.
pub fn read(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let mut content = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        match rustix::io::read(&fd, &mut part[..]) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(content),
            Ok(n) if content.len() + n > max => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(n) => {
                crate::memory::reserve(&mut content, n)?;
                content.extend_from_slice(&part[..n]);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_told_from_empty_ones() {
        let meta = |path: &str| file::stat(Path::new(path)).unwrap();
        assert!(is_generated(&meta("/proc/self/status")) && !is_generated(&meta("/proc")));
        let empty = std::env::temp_dir().join(format!("weir-os-empty-{}", std::process::id()));
        std::fs::write(&empty, "").unwrap();
        assert!(!is_generated(&meta(empty.to_str().unwrap())));
        std::fs::remove_file(&empty).unwrap();
        let status = read(Path::new("/proc/self/status"), 1 << 20).unwrap();
        assert!(status.starts_with(b"Name:\t") && status.ends_with(b"\n"));
        let e = read(Path::new("/proc/self/status"), 10).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::FileTooLarge);
    }
}
