//! The cost of reports: weir with counters and their history, with an access log in JSON, with
//! metrics and traces by OTLP, and weir without.

use crate::options::Options;
use crate::proxied;
use crate::server::{Kind, Server, Setup};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../configs/reported.conf");

const PATH: &str = "/1k.txt";

/// The subject without reports.
const PLAIN: &str = "weir";

/// Subjects by their names, and what their `http` block has. The collector is a bare responder.
const SUBJECTS: [(&str, &str); 6] = [
    (PLAIN, "access_log off;"),
    (
        "history",
        "access_log off;
         server { listen unix:%PREFIX%/api.sock; location / { api; } }",
    ),
    ("log", "access_log %PREFIX%/access.log combined;"),
    ("log-json", "access_log %PREFIX%/access.log json;"),
    (
        "otlp-metrics",
        "access_log off; otel_exporter { endpoint http://%COLLECTOR%/v1/traces; }
         otel_metrics on interval=1s;",
    ),
    (
        "otlp-traces",
        "access_log off; otel_exporter { endpoint http://%COLLECTOR%/v1/traces; }
         otel_trace on;",
    ),
];

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let collector = proxied::floor(options)?;
    let address = format!("127.0.0.1:{}", collector.port);
    let mut subjects = Vec::new();
    for (name, reports) in SUBJECTS {
        // What is filled in is not searched for names again, but for those that stand behind.
        let fill = vec![("%REPORTS%", reports.to_owned()), ("%COLLECTOR%", address.clone())];
        let setup = Setup { template: CONFIG, generation: 1, fill, ..Setup::default() };
        let server = Server::start(options, Kind::Weir, &setup)?.0;
        let port = server.port;
        subjects.push(Subject::server_at(server, port).called(name));
    }
    subject::measure(options, &mut subjects, |port, seconds| {
        let (connections, pipeline, close, files) = (64, false, false, None);
        wrk::run(&wrk::Load { port, path: PATH, connections, seconds, pipeline, close, files })
    })?;
    subject::print(&subjects, "req");
    subject::print_ratios(&subjects, "req", PLAIN);
    Ok(())
}
