//! The counters of a server at a moment, as the master tells them.

use std::time::Instant;

use engine::metrics::word::BUCKETS;
use server::control::Answer;

/// The counters at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The moment.
    pub(crate) at: Instant,
    /// The server's version.
    pub(crate) version: String,
    /// The number of its configuration.
    pub(crate) generation: u64,
    /// Servers of upstreams are counted.
    pub(crate) is_counted: bool,
    /// Lines that the logs lost.
    pub(crate) dropped: u64,
    /// Processes that took the place of others.
    pub(crate) respawned: u64,
    /// Slow and failed requests.
    pub(crate) slow: u64,
    /// The state of `shared_state` in words; empty without one.
    pub(crate) shared_state: String,
    pub(crate) workers: Vec<Worker>,
    /// The servers of upstreams.
    pub(crate) servers: Vec<Server>,
    /// The functions of scripts.
    pub(crate) functions: Vec<Function>,
}

/// A function of scripts that a directive names.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    /// `http` or `stream`.
    pub(crate) engine: String,
    /// The directive.
    pub(crate) directive: String,
    /// Its name.
    pub(crate) name: String,
    /// Its calls.
    pub(crate) calls: u64,
    /// Of these, failed.
    pub(crate) failures: u64,
    /// Processor time, microseconds.
    pub(crate) usec: u64,
}

impl Function {
    /// A name that no other one has.
    pub(crate) fn key(&self) -> (&str, &str, &str) {
        (&self.engine, &self.directive, &self.name)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Worker {
    /// Its process.
    pub(crate) pid: u64,
    /// Its open connections.
    pub(crate) open: u64,
    /// The connections without a request.
    pub(crate) idle: u64,
    /// Requests under way.
    pub(crate) under_way: u64,
    /// Requests so far.
    pub(crate) requests: u64,
    /// The longest turn of its loop, milliseconds.
    pub(crate) longest_ms: u64,
    /// The time since its loop turned last.
    pub(crate) silent_ms: u64,
}

/// A worker that is silent for so long stands still, milliseconds.
const STILL_MS: u64 = 1_500;

impl Worker {
    /// Its loop does not turn.
    pub(crate) fn is_still(&self) -> bool {
        self.silent_ms > STILL_MS
    }
}

/// A server of an upstream.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// `http` or `stream`.
    pub(crate) engine: String,
    /// The upstream.
    pub(crate) group: String,
    pub(crate) address: String,
    /// Its state in nginx's words; `-` where each worker has one of its own.
    pub(crate) state: String,
    /// Exchanges under way.
    pub(crate) active: u64,
    /// The exchanges whose answer has begun.
    pub(crate) answering: u64,
    /// Exchanges that ended.
    pub(crate) done: u64,
    /// The ended exchanges that failed or were answered with 5xx.
    pub(crate) fails: u64,
    /// The ended exchanges that had an answer.
    pub(crate) heads: u64,
    /// The sum of the times until the heads of answers, microseconds.
    pub(crate) head_us: u64,
    /// The histogram of the whole times.
    pub(crate) times: Vec<u64>,
}

impl Server {
    /// A name that no other one has.
    pub(crate) fn key(&self) -> (&str, &str, &str) {
        (&self.engine, &self.group, &self.address)
    }
}

impl Sample {
    /// Reads an answer to the question `top`. Lines of kinds that are not known are left out.
    pub(crate) fn read(at: Instant, answer: &Answer) -> Sample {
        let (mut workers, mut servers, mut functions) = (Vec::new(), Vec::new(), Vec::new());
        for line in answer.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["worker", ref rest @ ..] => workers.extend(worker(rest)),
                ["server", ref rest @ ..] => servers.extend(server(rest)),
                ["function", ref rest @ ..] => functions.extend(function(rest)),
                _ => {}
            }
        }
        Sample {
            at,
            version: answer.get("version").unwrap_or_default().to_owned(),
            generation: answer.number("generation"),
            is_counted: answer.get("counted") == Some("yes"),
            dropped: answer.number("dropped"),
            respawned: answer.number("respawned"),
            slow: answer.number("slow"),
            shared_state: answer.get("shared_state").unwrap_or_default().to_owned(),
            workers,
            servers,
            functions,
        }
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.workers.iter().map(|worker| worker.requests).sum()
    }
}

fn worker(fields: &[&str]) -> Option<Worker> {
    let numbers: Option<Vec<u64>> = fields.iter().map(|field| field.parse().ok()).collect();
    let [pid, open, idle, under_way, requests, longest_ms, silent_ms] = numbers?[..] else {
        return None;
    };
    Some(Worker { pid, open, idle, under_way, requests, longest_ms, silent_ms })
}

fn function(fields: &[&str]) -> Option<Function> {
    let [engine, directive, name, calls, failures, usec] = fields[..] else { return None };
    let [engine, directive, name] = [engine, directive, name].map(str::to_owned);
    let [calls, failures, usec] = [calls, failures, usec].map(|n| n.parse().ok());
    Some(Function { engine, directive, name, calls: calls?, failures: failures?, usec: usec? })
}

fn server(fields: &[&str]) -> Option<Server> {
    let [engine, group, address, state, ref numbers @ .., times] = fields[..] else { return None };
    let numbers: Option<Vec<u64>> = numbers.iter().map(|field| field.parse().ok()).collect();
    let [active, answering, done, fails, heads, head_us] = numbers?[..] else { return None };
    let times: Option<Vec<u64>> = times.split(',').map(|n| n.parse().ok()).collect();
    let times = times.filter(|times| times.len() == BUCKETS)?;
    Some(Server {
        engine: engine.to_owned(),
        group: group.to_owned(),
        address: address.to_owned(),
        state: state.to_owned(),
        active,
        answering,
        done,
        fails,
        heads,
        head_us,
        times,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let mut answer = Answer::new(server::control::Status::Ok)
            .field("version", "1.0")
            .field("generation", 3)
            .field("counted", "yes");
        let times = ["0"; BUCKETS].join(",");
        let text = format!(
            "worker\t7\t5\t4\t1\t100\t12\t30\nserver\thttp\tapp\t10.0.0.1:80\tup\t2\t1\t9\t1\t8\t\
             900\t{times}\nserver\thttp\tapp\tx\tup\t2\t1\t9\t1\t8\t900\t1,2\n\
             worker\t7\t5\nlater\tx\nfunction\thttp\tjs_set\tmain.f\t9\t2\t700\n"
        );
        answer.body = text.into_bytes();
        let sample = Sample::read(Instant::now(), &answer);
        assert_eq!((sample.generation, sample.is_counted, sample.requests()), (3, true, 100));
        assert_eq!((sample.workers.len(), sample.servers.len()), (1, 1));
        let server = &sample.servers[0];
        assert_eq!((server.key(), server.head_us), (("http", "app", "10.0.0.1:80"), 900));
        assert_eq!((server.active, server.answering, server.heads), (2, 1, 8));
        let function = &sample.functions[0];
        assert_eq!(function.key(), ("http", "js_set", "main.f"));
        assert_eq!((function.calls, function.failures, function.usec), (9, 2, 700));
    }
}
