//! Growth of start and reload with the configuration.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server, Setup, block_name};
use crate::{Outcome, proc};

const SIZES: &[usize] = &[1, 1_000, 10_000];

/// Starts and reloads every real server with each size, interleaved.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let rounds = options.rounds.min(3);
    let mut rows = vec![row(["server", "blocks", "start ms", "reload ms", "RSS MB", "PSS MB"])];
    for &blocks in SIZES {
        let kinds: Vec<Kind> = options.servers.iter().copied().filter(|k| k.is_real()).collect();
        let mut figures: Vec<[Vec<f64>; 4]> = kinds.iter().map(|_| Default::default()).collect();
        for _ in 0..rounds {
            for (kind, figures) in kinds.iter().zip(&mut figures) {
                for (series, value) in figures.iter_mut().zip(once(options, *kind, blocks)?) {
                    series.push(value);
                }
            }
        }
        for (kind, [start, reload, rss, pss]) in kinds.iter().zip(&figures) {
            rows.push(row([
                kind.name(),
                &blocks.to_string(),
                &format!("{:.1}", median(start)),
                &format!("{:.1}", median(reload)),
                &report::megabytes(median(rss)),
                &report::megabytes(median(pss)),
            ]));
        }
    }
    report::table(&rows);
    Ok(())
}

/// Start, reload (both to the first answer of the last block in its new form) and memory.
fn once(options: &Options, kind: Kind, blocks: usize) -> Outcome<[f64; 4]> {
    let setup = Setup { blocks, connections: 1024, ..Setup::default() };
    let (mut server, start) = Server::start(options, kind, &setup)?;
    let next = Setup { generation: 2, ..setup };
    server.reconfigure(&next)?;
    let began = Instant::now();
    server.signal(Signal::HUP);
    server.wait_for_answer(&block_name(blocks), next.generation, Duration::from_micros(500))?;
    let reload = began.elapsed();
    std::thread::sleep(Duration::from_millis(300));
    let memory = proc::memory(&server.pids());
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    Ok([ms(start), ms(reload), memory.rss as f64, memory.pss as f64])
}
