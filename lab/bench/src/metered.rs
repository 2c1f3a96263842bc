//! The cost of counting: weir with zones of servers and locations, the API and Prometheus, and
//! weir without.

use crate::options::Options;
use crate::proxied;
use crate::server::{Kind, Server, Setup};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../configs/metered.conf");

/// Subjects by their names.
const PLAIN: &str = "weir";
const METERED: &str = "metered";

/// Files, a backend, and a cache.
const PATHS: [&str; 3] = ["/1k.txt", "/passed/1k", "/kept/1k"];

/// Names between percent signs, and what stands there where everything is counted.
const COUNTS: [(&str, &str); 4] = [
    (
        "%COUNT_SERVER%",
        "status_zone site; location = /api { api; } location = /metrics { prometheus; }",
    ),
    ("%COUNT_FILES%", "status_zone files;"),
    ("%COUNT_PASSED%", "status_zone passed;"),
    ("%COUNT_KEPT%", "status_zone kept;"),
];

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let behind = proxied::floor(options)?;
    let server = |is_metered: bool| -> Outcome<Server> {
        let word = |text: &str| if is_metered { text.to_owned() } else { String::new() };
        let mut fill: Vec<_> = COUNTS.iter().map(|(name, text)| (*name, word(text))).collect();
        fill.push(("%BACKEND%", format!("127.0.0.1:{}", behind.port)));
        let setup = Setup { template: CONFIG, generation: 1, fill, ..Setup::default() };
        Ok(Server::start(options, Kind::Weir, &setup)?.0)
    };
    let (plain, metered) = (server(false)?, server(true)?);
    let ports = (plain.port, metered.port);
    let mut subjects = vec![
        Subject::server_at(plain, ports.0).called(PLAIN),
        Subject::server_at(metered, ports.1).called(METERED),
    ];
    for path in PATHS {
        println!("{path}:");
        subject::measure(options, &mut subjects, |port, seconds| {
            let (connections, pipeline, close, files) = (64, false, false, None);
            wrk::run(&wrk::Load { port, path, connections, seconds, pipeline, close, files })
        })?;
        subject::print(&subjects, "req");
        subject::print_ratios(&subjects, "req", PLAIN);
        subjects.iter_mut().for_each(Subject::forget);
    }
    Ok(())
}
