//! The master's answers to `weir top`, `weir tail` and `weir debug`.
//!
//! The master reads or writes shared memory and answers at once. Rates and judgements are computed
//! by the command (`weir top`); the dashboard's script judges by the same rules.

use base::log;
use base::log::Level;
use engine::metrics::functions::FunctionCounts;
use engine::metrics::{Kind, Reading, word};
use net::Cidr;
use upstream::api;
use upstream::directives::AllGroups;
use upstream::peer::Peer;

use crate::control::{Answer, Status};
use crate::master::Master;

/// Appends a line of fields with tabs between them. Bytes that would end a field, and others that
/// are no text, are replaced.
fn line(out: &mut Vec<u8>, fields: &[&dyn std::fmt::Display]) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b'\t');
        }
        let text = field.to_string().replace(|c: char| c.is_control(), "?");
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'\n');
}

/// `top`: the counters as they are now. The body has lines `worker`, with process, open and idle
/// connections, requests under way, requests, longest turn and silence of the loop in
/// milliseconds; and lines `server`, with engine, upstream, address, state, exchanges under way,
/// ended, and failed or answered with 5xx, the sum of their times in microseconds, and the
/// histogram of these; and lines `function`, with engine, directive and name of a function of
/// scripts, its calls, failures, and processor time in microseconds.
pub fn top(master: &Master) -> Answer {
    let lasting = &master.loader.lasting;
    let metrics = &master.cycle.metrics;
    let mut answer = Answer::new(Status::Ok)
        .field("version", crate::VERSION)
        .field("generation", master.generation())
        .field("workers", master.worker_count())
        .field("counted", if metrics.is_on() { "yes" } else { "no" })
        .field("dropped", lasting.stats.work().dropped)
        .field("respawned", lasting.stats.respawned())
        .field("slow", lasting.stats.flight.next())
        .field("shared_state", shared_state(master));
    let out = &mut answer.body;
    let now_ms = engine::beat::now_ms();
    for worker in lasting.stats.workers() {
        let beat = lasting.beats.last(worker.slot);
        let silent_ms = beat.map_or(0, |beat| now_ms.saturating_sub(beat.at_ms));
        line(
            out,
            &[
                &"worker",
                &worker.pid,
                &worker.active,
                &worker.waiting,
                &worker.writing,
                &worker.requests,
                &worker.longest_turn_ms,
                &silent_ms,
            ],
        );
    }
    for part in metrics.parts::<AllGroups>() {
        let engine = if part.kind == Kind::HttpPeer { "http" } else { "stream" };
        for group in part.groups() {
            let name = String::from_utf8_lossy(&group.shown()).into_owned();
            let lists = group.servers.lists();
            let shared = group.servers.is_shared();
            lists.all().for_each(|peer| server(out, engine, &name, peer, shared));
        }
    }
    for of in metrics.parts::<FunctionCounts>() {
        let sums = of.sums();
        let FunctionCounts { engine, directive, function, .. } = &*of;
        let fields: &[&dyn std::fmt::Display] =
            &[&"function", engine, directive, function, &sums.calls, &sums.failures, &sums.usec];
        line(out, fields);
    }
    answer
}

/// The state of `shared_state` in a few words; empty without one.
fn shared_state(master: &Master) -> String {
    let fleet = &master.cycle.fleet;
    if fleet.settings().is_none() {
        return String::new();
    }
    let now_ms = base::time::exact_ms();
    let fleet::Snapshot { state, state_ms, lag_ms, peers, reason, .. } =
        fleet.status().snapshot(now_ms);
    match state {
        fleet::State::Joined => {
            format!("joined, {peers} servers, lag {} ms", lag_ms.unwrap_or_default())
        }
        fleet::State::Away => format!("away for {} s: {reason}", state_ms / 1000),
        _ => state.name().to_owned(),
    }
}

fn server(out: &mut Vec<u8>, engine: &str, group: &str, peer: &Peer, shared: bool) {
    let reading: Reading = peer.reading();
    // Without a zone, each worker has a state of its own.
    let state = if shared { api::state(peer) } else { "-" };
    let buckets: Vec<String> = reading.buckets().map(|n| n.to_string()).collect();
    line(
        out,
        &[
            &"server",
            &engine,
            &group,
            &String::from_utf8_lossy(&peer.name),
            &state,
            &peer.active(&reading),
            &reading.get(word::ANSWERING),
            &reading.get(word::DONE),
            // A failed exchange counts as answered with 502 or 504.
            &reading.get(word::FAILS).max(reading.class(5)),
            &reading.get(word::HEADERS),
            &reading.get(word::HEADER_US),
            &buckets.join(","),
        ],
    );
}

/// `slow SINCE LAST json|text`: the records of the flight recorder from number SINCE on, LAST of
/// them at most, a line each. The field `next` has the number for the next question.
pub fn slow(master: &Master, arguments: &str) -> Answer {
    let recorder = &master.loader.lasting.stats.flight;
    let words: Vec<&str> = arguments.split(' ').collect();
    let (since, last, json) = match words[..] {
        [since, last, format @ ("json" | "text")] => {
            (since.parse().ok(), last.parse().ok(), format == "json")
        }
        _ => (None, None, false),
    };
    let (Some(since), Some(last)) = (since, last) else {
        return Answer::refused("slow needs a number, a count, and \"json\" or \"text\"");
    };
    let kept = recorder.numbers();
    let first = kept.start.max(since).max(kept.end.saturating_sub(last));
    let mut answer = Answer::new(Status::Ok).field("next", kept.end);
    for number in first..kept.end {
        let out = &mut answer.body;
        recorder.show(number, |record| match json {
            true => {
                base::json::Object::write(out, |o| record.json(o, number));
                out.push(b'\n');
            }
            false => out.extend_from_slice(format!("{}\n", record.line()).as_bytes()),
        });
    }
    answer
}

/// The longest time that connections are logged in full: a day.
const DEBUG_MS_MAX: u64 = 86_400_000;

/// `debug RANGE MILLISECONDS`: has every line about clients of a range logged for so long.
pub fn debug(master: &Master, arguments: &str) -> Answer {
    let Some((range, ms)) = arguments.split_once(' ') else {
        return Answer::refused("debug needs a range of addresses and a time");
    };
    let Some((range, _)) = Cidr::parse(range.as_bytes()) else {
        return Answer::refused(&format!("invalid network \"{range}\""));
    };
    let Some(ms) = ms.parse().ok().filter(|ms| *ms <= DEBUG_MS_MAX) else {
        return Answer::refused(&format!("invalid time \"{ms}\": a day at most"));
    };
    if !master.loader.lasting.stats.live_debug.set(range, ms) {
        let max = engine::live_debug::RANGES_MAX;
        return Answer::refused(&format!("there are {max} ranges already, which is the most"));
    }
    let log = &master.cycle.log;
    match ms {
        0 => log!(log, Level::Notice, None, "connections of {range} are logged as usual again"),
        _ => {
            log!(log, Level::Notice, None, "connections of {range} are logged in full for {ms} ms")
        }
    }
    Answer::new(Status::Ok).field("range", range)
}
