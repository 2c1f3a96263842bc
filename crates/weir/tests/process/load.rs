//! Clients that ask while something happens to the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Clients that make a connection for each request, until they are stopped. They count failures.
pub struct Clients {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    pub fn start(port: u16, count: usize) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let (done, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let client = || {
            let (stop, done, failed) = (stop.clone(), done.clone(), failed.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match request(port) {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(e) => {
                            eprintln!("a request failed: {e}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            })
        };
        let threads = (0..count).map(|_| client()).collect();
        Clients { stop, done, failed, threads }
    }

    /// The number of requests that were answered so far.
    #[allow(dead_code)]
    pub fn answered(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// The number of answered requests; panics when one was not.
    pub fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(self.failed.load(Ordering::Relaxed), 0);
        self.done.load(Ordering::Relaxed)
    }
}

fn request(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    if text.starts_with(b"HTTP/1.1 200 ") && text.ends_with(b"\r\n\r\nhello") {
        Ok(())
    } else {
        Err(std::io::Error::other(String::from_utf8_lossy(&text).into_owned()))
    }
}
