//! Requests whose server is a name, while the name server lies: through `server … resolve` they are
//! right unless it says that there is no address, which holds until a right answer can be had;
//! through a variable they may fail while none can be had. No lie may lead them to the decoy.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::rng::Rng;

use super::behind::{Behind, content};
use super::dns::NameServer;
use super::tally::{Lane, PATIENCE, Tally};
use crate::client::Watch;
use crate::http_client::{Client, status};

const CLIENTS: usize = 4;
/// The time for which an answer is kept, and that of a lookup that is under way: `valid` and
/// `resolver_timeout`, and as much again.
const KEPT: Duration = Duration::from_secs(6);

/// Starts the clients, and the lies.
pub fn begin(port: u16, names: &Arc<NameServer>, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let one = |n: usize| {
        let (names, lane) = (Arc::clone(names), Lane::new(tally, "names"));
        std::thread::spawn(move || {
            let (mut rng, mut client) =
                (Rng::new(n as u64 + 63), Client::new(port, None, PATIENCE));
            while !lane.tally.is_over() {
                lane.pace();
                ask(&mut client, &mut rng, n.is_multiple_of(2), &names, &lane);
            }
        })
    };
    let mut threads: Vec<_> = (0..CLIENTS).map(one).collect();
    threads.push(names.lie(tally));
    threads
}

fn ask(client: &mut Client, rng: &mut Rng, resolved: bool, names: &NameServer, lane: &Lane) {
    let place = if resolved { "resolved" } else { "variable" };
    let (number, len) = (rng.below(1 << 30) as u64, rng.below(3000));
    let since = Instant::now();
    match client.get(&format!("/{place}/bytes/{number}/{len}"), "") {
        Ok(answer) if answer.status == 200 && answer.body == content(number, len) => {
            lane.right(since, place);
        }
        Ok(answer) if answer.status == 200 => {
            lane.fault(since, &format!("{place}: another body"));
        }
        Ok(answer) => {
            let kept = KEPT + lane.tally.stalls.since(since);
            let lately = since.checked_sub(kept).unwrap_or(since);
            let excused = match resolved {
                true => names.may_be_denied(since, kept),
                false => names.was(lately, |manner| !manner.tells()),
            };
            let allowed = matches!(answer.status, 502 | 504) && excused;
            lane.fault_unless(allowed, since, &format!("{place}: {}", status(&answer)));
        }
        Err(lost) => lane.fault(since, &format!("{place}: {lost}")),
    }
}

/// The requests that reached the decoy.
pub fn check(decoy: &Behind, seen: &mut u64, tally: &Tally) {
    let now = decoy.requests.load(std::sync::atomic::Ordering::Relaxed);
    if now > *seen {
        tally.finding(format!("names: {} requests went where a lie pointed", now - *seen));
        *seen = now;
    }
}
