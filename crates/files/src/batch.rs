//! Attributes that hold for several requests: for those that came with one read, and for those
//! whose first bytes the same turn of the loop has found. None of them was sent after another's
//! answer, so one look at a file is as new for all of them.
//!
//! A turn's look is later than the wait that has found the bytes. It is not for requests that may
//! have been sent after it: the first one of a new connection, which may have come while others of
//! the turn were answered, and one that was read together with others before it.

use std::cell::{Cell, RefCell};

use os::file::FileMeta;

use crate::file::OpenFile;

/// Paths that are remembered.
const PATHS_MAX: usize = 8;

/// The attributes that a batch of requests has asked for.
#[derive(Default)]
pub(crate) struct Batch {
    /// Requests that came with one read are being answered.
    is_open: Cell<bool>,
    /// The turn that asked, where none are.
    turn: Cell<Option<u64>>,
    known: RefCell<Paths>,
}

/// Paths, whose memory is kept from one batch to the next.
#[derive(Default)]
struct Paths {
    all: Vec<Known>,
    /// The first ones are those of this batch.
    len: usize,
}

struct Known {
    end: u64,
    path: Vec<u8>,
    meta: FileMeta,
    /// The file, where its contents are in memory and were found to be those of `meta`.
    file: Option<OpenFile>,
}

/// The last bytes of a path: most paths of a site begin with the same.
#[inline]
fn end_of(path: &[u8]) -> u64 {
    path.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Paths {
    #[inline]
    fn find(&mut self, path: &[u8]) -> Option<&mut Known> {
        let end = end_of(path);
        self.all.iter_mut().take(self.len).find(|known| known.end == end && known.path == path)
    }

    fn add(&mut self, path: &[u8], meta: &FileMeta) {
        if self.len == PATHS_MAX {
            return;
        }
        match self.all.get_mut(self.len) {
            Some(known) => {
                (known.end, known.meta) = (end_of(path), *meta);
                known.path.clear();
                known.path.extend_from_slice(path);
            }
            None => {
                let (end, path) = (end_of(path), path.to_vec());
                self.all.push(Known { end, path, meta: *meta, file: None });
            }
        }
        self.len += 1;
    }

    fn clear(&mut self) {
        self.all.iter_mut().take(self.len).for_each(|known| known.file = None);
        self.len = 0;
    }
}

impl Batch {
    /// Requests that came together are answered from here on, and none of them is waited for.
    pub fn begin(&self) {
        self.is_open.set(true);
        if self.turn.take().is_some() {
            self.known.borrow_mut().clear();
        }
    }

    /// The operations that follow came later, or wait.
    pub fn end(&self) {
        if self.is_open.replace(false) {
            self.known.borrow_mut().clear();
        }
    }

    /// The attributes of a path, where they were asked for already. `turn`: the present one, if it
    /// has found the request's first bytes.
    #[inline]
    pub fn get(&self, path: &[u8], turn: Option<u64>) -> Option<FileMeta> {
        if !self.is_open.get() && (turn.is_none() || turn != self.turn.get()) {
            return None;
        }
        self.known.borrow_mut().find(path).map(|known| known.meta)
    }

    /// The file that a path leads to, where one of the requests was answered with it.
    #[inline]
    pub fn file(&self, path: &[u8]) -> Option<OpenFile> {
        if !self.is_open.get() {
            return None;
        }
        self.known.borrow_mut().find(path).and_then(|known| known.file.clone())
    }

    /// Takes note of a file in memory, which has the attributes that were asked for.
    pub(crate) fn put_file(&self, path: &[u8], file: &OpenFile) {
        if !self.is_open.get() || file.content.is_none() {
            return;
        }
        if let Some(known) = self.known.borrow_mut().find(path) {
            known.file = Some(file.clone());
        }
    }

    /// The path leads to another file now.
    pub fn forget(&self, path: &[u8]) {
        let known = &mut *self.known.borrow_mut();
        if known.find(path).is_some() {
            known.clear();
        }
    }

    /// Takes note of attributes that were asked for just now; `turn` as in [`Batch::get`].
    pub fn put(&self, path: &[u8], meta: &FileMeta, turn: Option<u64>) {
        let known = &mut *self.known.borrow_mut();
        if !self.is_open.get() {
            if turn.is_none() {
                return;
            }
            if self.turn.replace(turn) != turn {
                known.clear();
            }
        }
        known.add(path, meta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_outside_a_batch() {
        let batch = Batch::default();
        let meta = os::file::stat(std::path::Path::new("/")).unwrap();
        batch.put(b"/a", &meta, None);
        assert!(batch.get(b"/a", None).is_none());
        batch.begin();
        assert!(batch.get(b"/a", None).is_none());
        batch.put(b"/a", &meta, None);
        assert!(batch.get(b"/a", None).is_some() && batch.get(b"/b", None).is_none());
        batch.end();
        batch.begin();
        assert!(batch.get(b"/a", None).is_none(), "the next batch looks anew");
    }

    #[test]
    fn a_turn_asks_once_for_its_own_requests() {
        let batch = Batch::default();
        let meta = os::file::stat(std::path::Path::new("/")).unwrap();
        batch.put(b"/a", &meta, Some(7));
        assert!(batch.get(b"/a", Some(7)).is_some());
        assert!(batch.get(b"/a", Some(8)).is_none(), "the next turn looks anew");
        assert!(batch.get(b"/a", None).is_none(), "the request may have come later");
        batch.put(b"/b", &meta, Some(8));
        assert!(batch.get(b"/b", Some(8)).is_some() && batch.get(b"/a", Some(8)).is_none());
        batch.begin();
        assert!(batch.get(b"/b", Some(8)).is_none(), "this read may be later than the look");
        batch.put(b"/c", &meta, Some(8));
        batch.end();
        assert!(batch.get(b"/c", Some(8)).is_none());
    }

    #[test]
    fn some_paths_of_a_batch_are_known() {
        let batch = Batch::default();
        let meta = os::file::stat(std::path::Path::new("/")).unwrap();
        let content = Some(bytes::Bytes::from_static(b"x"));
        let file = OpenFile { facts: crate::file::Facts::new(meta), fd: None, content };
        for folder in ["/one/", "/two/"] {
            batch.begin();
            let path = |n: usize| format!("{folder}{n}/index.html").into_bytes();
            for n in 0..PATHS_MAX + 2 {
                batch.put(&path(n), &meta, None);
                batch.put_file(&path(n), &file);
            }
            let is_known = |n: &usize| batch.get(&path(*n), None).is_some();
            assert_eq!((0..20).filter(is_known).count(), PATHS_MAX);
            assert!(batch.file(&path(1)).is_some() && batch.file(b"index.html").is_none());
            batch.forget(&path(1));
            assert!(!is_known(&1) && batch.file(&path(1)).is_none());
            batch.put(&path(1), &meta, None);
            assert!(is_known(&1) && batch.file(&path(1)).is_none(), "it is looked at anew");
            batch.end();
        }
        batch.begin();
        assert!(batch.get(b"/two/0/index.html", None).is_none());
    }
}
