//! Folders for tests' files.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own among the system's temporary files. It goes when it is dropped, unless the
/// test fails.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one; `name` is a part of its name.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-{name}-{}-{n}", std::process::id()));
        // Process ids come again: a test that failed long ago may have left its folder.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("create the test's folder");
        Self(path)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, below folders that are made where they are missing. Gives its path.
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("create its folder");
        fs::write(&path, bytes).expect("write the test's file");
        path
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's folder is left for a look: {}", self.0.display());
        } else {
            // Left-overs in a temporary folder are no reason to fail.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
