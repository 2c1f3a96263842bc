//! Files that a script has open.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};

/// Files that a script has opened, by the numbers that it knows.
#[derive(Default)]
pub struct OpenFiles(HashMap<i32, Rc<File>>);

/// How many files a script may have open: descriptors are the worker's, and clients need them.
const OPEN_FILES_MAX: usize = 64;

impl OpenFiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no more can be opened.
    pub fn is_full(&self) -> bool {
        self.0.len() >= OPEN_FILES_MAX
    }

    /// Adds a file, and returns its number. The second value is alive while the file is open.
    pub fn add(&mut self, file: File) -> (i32, Weak<File>) {
        // The number is free while the file is open.
        let number = file.as_raw_fd();
        let file = Rc::new(file);
        let weak = Rc::downgrade(&file);
        self.0.insert(number, file);
        (number, weak)
    }

    /// The file of a number.
    pub fn get(&self, number: i32) -> Option<Rc<File>> {
        self.0.get(&number).cloned()
    }

    /// Forgets a file; it is closed when nobody uses it any more.
    pub fn remove(&mut self, number: i32) -> Option<Rc<File>> {
        self.0.remove(&number)
    }
}
