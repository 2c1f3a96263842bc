//! Telephones: files read at 30 kB/s, with pauses of five seconds.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::tally::{Lane, PATIENCE, Tally};
use crate::client::{Site, Watch, connect};

const TELEPHONES: usize = 4;
/// A telephone's bytes at a time, and its rests: 30 kB/s on the average.
const MOUTHFUL: usize = 150_000;
const REST: Duration = Duration::from_secs(5);

/// Starts them.
pub fn begin(port: u16, site: &Arc<Site>, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let one = |n: usize| {
        let (site, lane) = (Arc::clone(site), Lane::new(tally, "telephones"));
        std::thread::spawn(move || {
            while !lane.tally.is_over() {
                let since = Instant::now();
                match read(port, n, &site, &lane.tally) {
                    Ok(true) => lane.right(since, "a file"),
                    Ok(false) => lane.given_up(since),
                    Err(what) => {
                        lane.fault(since, &what);
                        lane.tally.sleep(Duration::from_millis(100));
                    }
                }
            }
        })
    };
    (0..TELEPHONES).map(one).collect()
}

/// Reads a file; says whether all of it came before the end.
fn read(port: u16, n: usize, site: &Site, tally: &Tally) -> Result<bool, String> {
    let (name, body) = site.large(n);
    let place = ["auto", "copied", "proxied", "streamed"][n % 4];
    let failed = |e: &std::io::Error, otherwise: &str| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "stuck".to_string(),
        _ => otherwise.to_string(),
    };
    let mut stream = connect(port, PATIENCE).map_err(|e| failed(&e, "not connected"))?;
    let request = format!("GET /{place}/{name} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| failed(&e, "not sent"))?;
    let mut got = Vec::new();
    loop {
        let before = got.len();
        let read = (&mut stream).take(MOUTHFUL as u64).read_to_end(&mut got);
        read.map_err(|e| failed(&e, "cut"))?;
        let head = got.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let Some(at) = head else { return Err("closed unanswered".to_string()) };
        if !got.starts_with(b"HTTP/1.1 200 ") {
            let line = got.split(|b| *b == b'\r').next().unwrap_or_default();
            return Err(format!("{place}: {}", String::from_utf8_lossy(line)));
        }
        if !body.starts_with(&got[at..]) {
            return Err(format!("{place}: another body"));
        }
        if got.len() == before {
            let whole = got.len() - at == body.len();
            return if whole { Ok(true) } else { Err(format!("{place}: cut")) };
        }
        let rest = Instant::now() + REST;
        while Instant::now() < rest {
            if tally.is_over() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
