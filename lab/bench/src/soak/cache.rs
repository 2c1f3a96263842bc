//! A cache whose answers have to be one fetch of their object, whole, that was fresh, or stale by
//! as little as `proxy_cache_use_stale` allows, when it was asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::rng::Rng;

use super::tally::{Lane, PATIENCE, Tally};
use crate::Outcome;
use crate::cache::origin::{Manner, Origin, is_body};
use crate::client::Watch;
use crate::http_client::{Answer, Client, status};

const CLIENTS: usize = 4;
const OBJECTS: usize = 80;
/// Seconds.
const MAX_AGE: u64 = 2;
/// `inactive` of the zones, seconds.
const INACTIVE: u64 = 10;
/// Rounding to seconds, twice.
const SLACK: u64 = 2;
/// An entry that was not used is taken out by a manager that sleeps, or is killed now and then.
const TAKEN_OUT: u64 = 60;

/// The making of objects.
pub const MANNER: Manner = Manner {
    delay: Duration::from_millis(1),
    piece: 40_000,
    pause: Duration::from_millis(2),
    max_age: MAX_AGE,
    chunked: true,
    len: |object, fetch| match (object * 7 + fetch) % 6 {
        0 | 1 => 500,
        2 | 3 => 5_000,
        4 => 60_000,
        _ => 300_000,
    },
};

/// The zones, by the first part of their paths.
const ZONES: [(&str, &str); 2] = [("kept", "cache"), ("small", "cache on the small disk")];

pub struct Shared {
    origin: Origin,
    /// The last fetch of each object that was purged for sure, by zone.
    purged: [Vec<AtomicU64>; 2],
}

impl Shared {
    pub fn new() -> Outcome<Arc<Self>> {
        let floors = || (0..OBJECTS).map(|_| AtomicU64::new(0)).collect();
        let origin = Origin::start(MANNER)?;
        Ok(Arc::new(Self { origin, purged: [floors(), floors()] }))
    }

    /// The origin's port.
    pub fn port(&self) -> u16 {
        self.origin.port
    }
}

/// Starts clients, and one that purges.
pub fn begin(port: u16, shared: &Arc<Shared>, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for n in 0..CLIENTS {
        let (zone, shared) = (n % 2, Arc::clone(shared));
        let lane = Lane::new(tally, ZONES[zone].1);
        threads.push(std::thread::spawn(move || {
            let (mut rng, mut client) = (Rng::new(n as u64 + 5), Client::new(port, None, PATIENCE));
            while !lane.tally.is_over() {
                ask(&mut client, &mut rng, zone, &shared, &lane);
            }
        }));
    }
    let (shared, lane) = (Arc::clone(shared), Lane::new(tally, "purges"));
    threads.push(std::thread::spawn(move || {
        let (mut rng, mut client) = (Rng::new(9), Client::new(port, None, PATIENCE));
        while !lane.tally.is_over() {
            lane.tally.sleep(Duration::from_millis(rng.below(2000) as u64));
            purge(&mut client, &mut rng, &shared, &lane);
        }
    }));
    threads
}

fn ask(client: &mut Client, rng: &mut Rng, zone: usize, shared: &Shared, lane: &Lane) {
    lane.pace();
    // Some are asked for often, and most now and then.
    let most = [3, 20, OBJECTS][rng.below(3)];
    let object = rng.below(most);
    let floor = shared.purged[zone][object].load(Ordering::SeqCst);
    let (since, asked_ms) = (Instant::now(), shared.origin.seen.now_ms());
    match client.get(&format!("/{}/{object}", ZONES[zone].0), "") {
        Ok(answer) if answer.status != 200 => lane.fault(since, &status(&answer)),
        Ok(answer) => match fault(object as u64, floor, asked_ms, &answer, lane, since) {
            None => lane.right(since, answer.field("X-Cache").unwrap_or("no cache")),
            Some(what) => lane.fault(since, &what),
        },
        Err(lost) => lane.fault(since, &lost.to_string()),
    }
}

/// What is wrong with an answer.
fn fault(
    object: u64,
    floor: u64,
    asked_ms: u64,
    answer: &Answer,
    lane: &Lane,
    since: Instant,
) -> Option<String> {
    let number = |name: &str| answer.field(name).and_then(|v| v.parse::<u64>().ok());
    let cache = answer.field("X-Cache").unwrap_or("no cache");
    let (Some(fetch), Some(len), Some(made_ms)) =
        (number("X-Fetch"), number("X-Length"), number("X-Time"))
    else {
        return Some(format!("wrong head, {cache}"));
    };
    if !is_body(object, fetch, &answer.body, len as usize) {
        return Some(format!("another body, {cache}"));
    }
    if fetch <= floor {
        return Some(format!("wrong: it was purged, {cache}"));
    }
    let most = match cache {
        "HIT" => MAX_AGE + SLACK,
        "STALE" | "UPDATING" => MAX_AGE + INACTIVE + TAKEN_OUT,
        _ => 0,
    };
    let stalls =
        lane.tally.stalls.since(since.checked_sub(Duration::from_secs(10)).unwrap_or(since));
    let age_ms = asked_ms.saturating_sub(made_ms);
    let most_ms = most * 1000 + stalls.as_millis() as u64;
    // An answer that is passed on may be the one to another client's request: those wait for it.
    let most_ms = if most == 0 { 5000 + most_ms } else { most_ms };
    (age_ms > most_ms).then(|| format!("wrong age, {cache}: {} s", age_ms / 1000))
}

/// Purges one object, or those whose numbers begin with a digit.
fn purge(client: &mut Client, rng: &mut Rng, shared: &Shared, lane: &Lane) {
    lane.pace();
    let (zone, n) = (rng.below(2), rng.below(OBJECTS));
    let first = (n % 10).to_string();
    let whole = rng.percent(30);
    let path = if whole { format!("{first}*") } else { n.to_string() };
    let before = shared.origin.seen.fetches.load(Ordering::SeqCst);
    let since = Instant::now();
    match client.get(&format!("/{}/{path}", ZONES[zone].0), "X-Purge: 1\r\n") {
        Ok(answer) if answer.status == 200 && answer.body.starts_with(b"{\"purged\":") => {
            lane.right(since, "a purge");
            let is_of = |o: &usize| if whole { o.to_string().starts_with(&first) } else { *o == n };
            for object in (0..OBJECTS).filter(is_of) {
                shared.purged[zone][object].fetch_max(before, Ordering::SeqCst);
            }
        }
        // Nothing of that key is kept.
        Ok(answer) if answer.status == 404 => lane.right(since, "no purge"),
        Ok(answer) => lane.fault(since, &status(&answer)),
        Err(lost) => lane.fault(since, &lost.to_string()),
    }
}
