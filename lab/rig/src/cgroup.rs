//! Control groups (version 1): processes with less memory and a slower disk than the machine's.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Outcome;

/// A group of one controller. Dropping it removes it; its processes have ended by then.
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// A new group of `controller` (`memory`, `blkio`) below the one at the root.
    ///
    /// # Errors
    /// No such controller (groups of version 2 alone, or not allowed), as a sentence.
    pub fn new(controller: &str, name: &str) -> Outcome<Self> {
        let mounts =
            fs::read_to_string("/proc/mounts").map_err(|e| format!("/proc/mounts: {e}"))?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind, how) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup" && how.split(',').any(|o| o == controller)).then_some(at)
        });
        let root = root.ok_or(format!("no cgroup (version 1) with {controller} is mounted"))?;
        let folder = Path::new(root).join(name);
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// As a sentence.
    pub fn set(&self, file: &str, value: &str) -> Outcome {
        let path = self.folder.join(file);
        fs::write(&path, value).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Reads one of its files; empty when it cannot.
    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }

    /// The file to which a process writes its id to join.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel lets go of a group a moment after its last process.
        for _ in 0..100 {
            match fs::remove_dir(&self.folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => return,
            }
        }
        println!("{} could not be removed", self.folder.display());
    }
}

/// The disk under a folder as `MAJOR:MINOR`: limits hold for whole disks, not for partitions.
///
/// # Errors
/// The folder lies on no disk (tmpfs, overlay), as a sentence.
pub fn disk_of(folder: &Path) -> Outcome<String> {
    let meta = fs::metadata(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let dev = meta.st_dev();
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let entry = PathBuf::from("/sys/dev/block").join(&number);
    let entry = fs::canonicalize(entry)
        .map_err(|_| format!("{} is on no disk; set TMPDIR to one that is", folder.display()))?;
    if !entry.join("partition").exists() {
        return Ok(number);
    }
    let disk = entry.parent().unwrap_or(&entry).join("dev");
    let text = fs::read_to_string(&disk).map_err(|e| format!("{}: {e}", disk.display()))?;
    Ok(text.trim().to_string())
}
