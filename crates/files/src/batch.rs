//! Attributes that are asked for while requests are answered that came with one read: none of them
//! was sent after another's answer, so one look at a file is as new for all of them.

use std::cell::{Cell, RefCell};

use os::file::FileMeta;

use crate::file::OpenFile;

/// Paths that are remembered.
const PATHS_MAX: usize = 8;

/// The attributes that a batch of requests has asked for.
#[derive(Default)]
pub(crate) struct Batch {
    is_open: Cell<bool>,
    known: RefCell<Vec<Known>>,
}

struct Known {
    path: Vec<u8>,
    meta: FileMeta,
    /// The file, where its contents are in memory and were found to be those of `meta`.
    file: Option<OpenFile>,
}

impl Batch {
    /// Requests that came together are answered from here on, and none of them is waited for.
    pub fn begin(&self) {
        self.is_open.set(true);
    }

    /// The operations that follow came later, or wait.
    pub fn end(&self) {
        if self.is_open.replace(false) {
            self.known.borrow_mut().clear();
        }
    }

    /// The attributes of a path, where they were asked for already.
    #[inline]
    pub fn get(&self, path: &[u8]) -> Option<FileMeta> {
        if !self.is_open.get() {
            return None;
        }
        let known = self.known.borrow();
        known.iter().find(|known| known.path == path).map(|known| known.meta)
    }

    /// The file that a path leads to, where one of the requests was answered with it.
    #[inline]
    pub fn file(&self, path: &[u8]) -> Option<OpenFile> {
        if !self.is_open.get() {
            return None;
        }
        let known = self.known.borrow();
        known.iter().find(|known| known.path == path).and_then(|known| known.file.clone())
    }

    /// Takes note of a file in memory, which has the attributes that were asked for.
    pub fn put_file(&self, path: &[u8], file: &OpenFile) {
        if !self.is_open.get() || file.content.is_none() {
            return;
        }
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.iter_mut().find(|known| known.path == path) {
            known.file = Some(file.clone());
        }
    }

    /// The path leads to another file now.
    pub fn forget(&self, path: &[u8]) {
        self.known.borrow_mut().retain(|known| known.path != path);
    }

    pub fn put(&self, path: &[u8], meta: &FileMeta) {
        if !self.is_open.get() {
            return;
        }
        let mut known = self.known.borrow_mut();
        if known.len() < PATHS_MAX {
            known.push(Known { path: path.to_vec(), meta: *meta, file: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_outside_a_batch() {
        let batch = Batch::default();
        let meta = os::file::stat(std::path::Path::new("/")).unwrap();
        batch.put(b"/a", &meta);
        assert!(batch.get(b"/a").is_none());
        batch.begin();
        assert!(batch.get(b"/a").is_none());
        batch.put(b"/a", &meta);
        assert!(batch.get(b"/a").is_some() && batch.get(b"/b").is_none());
        batch.end();
        batch.begin();
        assert!(batch.get(b"/a").is_none(), "the next batch looks anew");
    }
}
