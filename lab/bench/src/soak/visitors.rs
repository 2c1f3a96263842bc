//! Clients of the site: the mixed load over every way, and HTTP/1 over TLS.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, SupportedProtocolVersion, version};
use testkit::AnyCertificate;
use testkit::rng::Rng;

use super::tally::{Lane, PATIENCE, Tally};
use crate::Outcome;
use crate::client::{self, PLACES, Site, Watch};
use crate::h2::mixed::{Clients, begin_some};
use crate::http_client::{Client, status};

const OVER_TLS: usize = 4;
const VISITORS: usize = 3;
const CALLERS: usize = 2;

/// A configuration of TLS that takes any certificate and offers these protocols.
pub fn config(
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> Outcome<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| e.to_string())?;
    let verifier = Arc::new(AnyCertificate);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Starts the mixed load's clients over these ports in turn.
pub fn begin_mixed(
    count: usize,
    ports: &[(u16, &'static str)],
    site: &Arc<Site>,
    tally: &Arc<Tally>,
) -> Vec<JoinHandle<()>> {
    let one = |n: usize| {
        let (port, protocol) = ports[n % ports.len()];
        let lane = Lane::new(tally, protocol);
        let client = client::Client::new(n, port, Arc::clone(site), Arc::clone(&tally.stop));
        std::thread::spawn(move || client.run_watched(PATIENCE, &lane))
    };
    (0..count).map(one).collect()
}

/// Starts clients over HTTP/2: in the clear, over TLS, and those of calls.
pub fn begin_h2(
    clear: u16,
    tls: u16,
    calls: u16,
    site: &Arc<Site>,
    tally: &Arc<Tally>,
) -> Outcome<Vec<JoinHandle<()>>> {
    let over_tls = config(&[&version::TLS12, &version::TLS13], &[b"h2"])?;
    let kinds = [
        (VISITORS, clear, None, false, "HTTP/2"),
        (VISITORS, tls, Some(over_tls), false, "HTTP/2 over TLS"),
        (CALLERS, calls, None, true, "gRPC"),
    ];
    let mut threads = Vec::new();
    for (count, port, tls, calls, protocol) in kinds {
        let watch: Option<Arc<dyn Watch>> = Some(Arc::new(Lane::new(tally, protocol)));
        let clients = Clients { port, tls, calls, watch, patience: PATIENCE };
        for thread in begin_some(count, &clients, site, &tally.stop) {
            threads.push(std::thread::spawn(move || drop(thread.join())));
        }
    }
    Ok(threads)
}

/// Starts clients of HTTP/1 over TLS of both versions.
pub fn begin_tls(port: u16, site: &Arc<Site>, tally: &Arc<Tally>) -> Outcome<Vec<JoinHandle<()>>> {
    let configs = [config(&[&version::TLS12], &[])?, config(&[&version::TLS13], &[b"http/1.1"])?];
    let one = |n: usize| {
        let config = Arc::clone(&configs[n % configs.len()]);
        let (site, lane) = (Arc::clone(site), Lane::new(tally, "HTTP/1 over TLS"));
        std::thread::spawn(move || {
            let (mut rng, mut client) =
                (Rng::new(n as u64), Client::new(port, Some(config), PATIENCE));
            while !lane.tally.is_over() {
                visit(&mut client, &mut rng, &site, &lane);
            }
        })
    };
    Ok((0..OVER_TLS).map(one).collect())
}

/// A request for a file or a part of it; sometimes the connection is left before or behind it.
fn visit(client: &mut Client, rng: &mut Rng, site: &Site, lane: &Lane) {
    lane.pace();
    let since = Instant::now();
    match rng.below(20) {
        0 => client.leave(),
        1 => {
            // Goes away in the middle of a request.
            let Ok(mut stream) = client.connect() else { return };
            let sent = rng.below(30);
            let _ = stream.write_all(&b"GET /auto/middle.txt HTTP/1.1\r\nHost: a\r\n\r\n"[..sent]);
            let _ = stream.flush();
            return lane.given_up(since);
        }
        _ => {}
    }
    let place = PLACES[rng.below(PLACES.len())];
    let n = site.draw(&mut |limit| rng.below(limit));
    let (name, body) = &site.files()[n];
    let (mut fields, mut right, mut wanted) = (String::new(), 200, &body[..]);
    if rng.below(5) == 0 && !body.is_empty() {
        let from = rng.below(body.len());
        let to = from + 1 + rng.below(body.len() - from);
        (right, wanted) = (206, &body[from..to]);
        fields = format!("Range: bytes={from}-{}\r\n", to - 1);
    }
    client.pause = Duration::from_millis(if rng.below(10) == 0 { 5 } else { 0 });
    match client.get(&format!("/{place}/{name}"), &fields) {
        Ok(answer) if answer.status != right => {
            lane.fault(since, &format!("{place}: {}", status(&answer)));
        }
        Ok(answer) if answer.body != wanted => lane.fault(since, &format!("{place}: another body")),
        Ok(_) => lane.right(since, place),
        Err(lost) => lane.fault(since, &format!("{place}: {lost}")),
    }
}
