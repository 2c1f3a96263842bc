//! FastCGI: a responder here, over connections that are kept and ones that are not, and its
//! clients.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bare::fastcgi;
use testkit::rng::Rng;

use super::behind::{content, digest};
use super::tally::{Lane, PATIENCE, Tally};
use crate::Outcome;
use crate::client::Watch;
use crate::http_client::{Client, status};

const CLIENTS: usize = 2;
const LONGEST: usize = 200_000;

/// Starts the responder; gives its port. `/bytes/NUMBER/LENGTH` is content, everything else is
/// answered with the digest of the request's body.
pub fn responder() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The server may be gone.
                let _ = fastcgi::serve(stream, answer);
            });
        }
    });
    Ok(port)
}

fn answer(uri: &str, body: &[u8]) -> Vec<u8> {
    let mut parts = uri.rsplit('/').map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(len)), Some(Ok(number))) => content(number, len as usize),
        _ => digest(body).into_bytes(),
    }
}

/// Starts the clients.
pub fn begin(port: u16, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let one = |n: usize| {
        let lane = Lane::new(tally, "FastCGI");
        std::thread::spawn(move || {
            let (mut rng, mut client) =
                (Rng::new(n as u64 + 91), Client::new(port, None, PATIENCE));
            while !lane.tally.is_over() {
                lane.pace();
                ask(&mut client, &mut rng, ["fastcgi", "fastcgi-kept"][n % 2], &lane);
            }
        })
    };
    (0..CLIENTS).map(one).collect()
}

fn ask(client: &mut Client, rng: &mut Rng, place: &str, lane: &Lane) {
    let longest = [100, 20_000, LONGEST][rng.below(3)];
    let (number, len) = (rng.below(1 << 30) as u64, rng.below(longest));
    let bytes = content(number, len);
    let since = Instant::now();
    let (answer, right) = if rng.percent(30) {
        let head = format!(
            "POST /{place}/digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n"
        );
        (client.ask(&[head.as_bytes(), &bytes].concat()), digest(&bytes).into_bytes())
    } else {
        (client.get(&format!("/{place}/bytes/{number}/{len}"), ""), bytes)
    };
    match answer {
        Ok(answer) if answer.status != 200 => {
            lane.fault(since, &format!("{place}: {}", status(&answer)));
        }
        Ok(answer) if answer.body != right => lane.fault(since, &format!("{place}: another body")),
        Ok(_) => lane.right(since, place),
        Err(lost) => lane.fault(since, &format!("{place}: {lost}")),
    }
}
