//! Keys of sessions in the NSS key log format, for Wireshark and its like. For debugging only: a
//! line of it opens the connection that it is of.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes a line, with its line feed.
type Write = Box<dyn Fn(&[u8])>;

thread_local! {
    /// The logs of this thread. Sessions may move to other threads, a log's writer cannot: there
    /// the session has no log.
    static WRITERS: RefCell<HashMap<u64, Write>> = RefCell::default();
}

/// A key log; clones are the same one.
#[derive(Clone, Debug)]
pub struct KeyLog(Arc<Registered>);

/// The number of a writer, which goes with it.
#[derive(Debug)]
struct Registered(u64);

impl KeyLog {
    /// A log whose lines `write` takes, for sessions that this thread drives.
    pub fn new(write: impl Fn(&[u8]) + 'static) -> KeyLog {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        WRITERS.with_borrow_mut(|writers| writers.insert(number, Box::new(write)));
        KeyLog(Arc::new(Registered(number)))
    }

    /// The same for the library.
    pub(crate) fn rustls(self) -> Arc<dyn rustls::KeyLog> {
        Arc::new(self)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // The thread may be at its end, or another one.
        let _ = WRITERS.try_with(|writers| writers.borrow_mut().remove(&self.0));
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8], line: &mut Vec<u8>| base::ascii::write_hex(line, bytes);
        let mut line =
            Vec::with_capacity(label.len() + 3 + 2 * (client_random.len() + secret.len()));
        line.extend_from_slice(label.as_bytes());
        line.push(b' ');
        hex(client_random, &mut line);
        line.push(b' ');
        hex(secret, &mut line);
        line.push(b'\n');
        WRITERS.with_borrow(|writers| {
            if let Some(write) = writers.get(&self.0.0) {
                write(&line);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::KeyLog as _;
    use std::rc::Rc;

    #[test]
    fn lines_are_of_the_nss_format_and_go_to_their_own_log() {
        let lines: [Rc<RefCell<Vec<u8>>>; 2] = Default::default();
        let logs = lines
            .clone()
            .map(|lines| KeyLog::new(move |line| lines.borrow_mut().extend_from_slice(line)));
        logs[0].log("CLIENT_RANDOM", &[0, 0xab], &[1, 2, 0xff]);
        logs[1].clone().log("EXPORTER_SECRET", &[], &[]);
        assert_eq!(*lines[0].borrow(), b"CLIENT_RANDOM 00ab 0102ff\n");
        assert_eq!(*lines[1].borrow(), b"EXPORTER_SECRET  \n");
        // A writer goes with the last clone of its log.
        assert_eq!(Rc::strong_count(&lines[0]), 2);
        drop(logs);
        assert_eq!(Rc::strong_count(&lines[0]), 1);
    }

    #[test]
    fn on_another_thread_nothing_is_written() {
        let log = KeyLog::new(|_| panic!("written"));
        std::thread::spawn(move || log.log("CLIENT_RANDOM", &[0], &[1])).join().unwrap();
    }
}
