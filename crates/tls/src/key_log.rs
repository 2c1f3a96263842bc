//! Keys of sessions in the NSS key log format, for Wireshark and its like. For debugging only: a
//! line of it opens the connection that it is of.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

/// Takes a line, with its line feed.
type Write = Box<dyn Fn(&[u8])>;

thread_local! {
    /// The logs of this thread. Sessions may move to other threads, a log's writer cannot: lines of
    /// there are gathered, or lost.
    static WRITERS: RefCell<HashMap<u64, Write>> = RefCell::default();
    /// The lines of the work that this thread does for another.
    static GATHERED: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Lines with the numbers of their logs.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(u64, Zeroizing<Vec<u8>>)>);

impl Lines {
    /// Writes them, on the thread of their logs.
    pub(crate) fn write(&self) {
        self.0.iter().for_each(|(number, line)| write(*number, line));
    }
}

/// Runs work for another thread, with the lines that this one has no logs for.
pub(crate) fn gather<T>(work: impl FnOnce() -> T) -> (T, Lines) {
    GATHERED.set(Some(Lines::default()));
    let done = work();
    (done, GATHERED.take().unwrap_or_default())
}

fn write(number: u64, line: &[u8]) {
    WRITERS.with_borrow(|writers| {
        if let Some(write) = writers.get(&number) {
            write(line);
        }
    });
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
        let len = label.len() + 3 + 2 * (client_random.len() + secret.len());
        let mut line = Zeroizing::new(Vec::with_capacity(len));
        line.extend_from_slice(label.as_bytes());
        line.push(b' ');
        hex(client_random, &mut line);
        line.push(b' ');
        hex(secret, &mut line);
        line.push(b'\n');
        GATHERED.with_borrow_mut(|gathered| match gathered {
            Some(lines) => lines.0.push((self.0.0, line)),
            None => write(self.0.0, &line),
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
    fn lines_of_another_thread_are_written_where_their_log_is() {
        let lines: Rc<RefCell<Vec<u8>>> = Rc::default();
        let own = lines.clone();
        let log = KeyLog::new(move |line| own.borrow_mut().extend_from_slice(line));
        let there = log.clone();
        let work = move || gather(|| there.log("CLIENT_RANDOM", &[0], &[1])).1;
        let gathered = std::thread::spawn(work).join().unwrap();
        assert!(lines.borrow().is_empty());
        gathered.write();
        assert_eq!(*lines.borrow(), b"CLIENT_RANDOM 00 01\n");
        // The thread's own log takes lines as before.
        log.log("CLIENT_RANDOM", &[2], &[3]);
        assert_eq!(*lines.borrow(), b"CLIENT_RANDOM 00 01\nCLIENT_RANDOM 02 03\n");
    }

    #[test]
    fn on_another_thread_nothing_is_written() {
        let log = KeyLog::new(|_| panic!("written"));
        std::thread::spawn(move || log.log("CLIENT_RANDOM", &[0], &[1])).join().unwrap();
    }
}
