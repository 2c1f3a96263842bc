//! Attacks over HTTP/3.

use std::sync::mpsc;
use std::time::Instant;

use bare::attacks::h3::{ATTACKS, Attack, Attacker};

use super::setup;
use crate::Outcome;
use crate::floods::{self, Felt, Flood};
use crate::helper::Helper;
use crate::options::Options;
use crate::server::{Kind, Setup, free_port, new_folder};
use crate::tls::Certificate;

/// Runs every attack.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let (certificate, backend) = (Certificate::new(false)?, free_port()?);
    let arguments = [backend.to_string(), "sink".to_string()];
    let _backend = Helper::start(1, &options.floor, &arguments, backend, new_folder()?)?;
    floods::run(options, &Http3 { certificate, backend })
}

struct Http3 {
    certificate: Certificate,
    /// The port of the server behind.
    backend: u16,
}

impl Flood for Http3 {
    type Attack = Attack;
    const ATTACKS: &'static [Attack] = ATTACKS;
    const SENT: &'static str = "batches";
    type Client = Client;

    fn name(attack: &Attack) -> &'static str {
        attack.name
    }

    fn setup(&self, kind: Kind) -> Outcome<(Setup, u16)> {
        let (mut setup, port) = setup(&self.certificate, self.backend, kind != Kind::Nginx)?;
        setup.fill.retain(|(name, _)| *name != "%LOG_LEVEL%");
        setup.fill.push(("%LOG_LEVEL%", "info".to_string()));
        Ok((setup, port))
    }

    fn assail(port: u16, attack: &Attack, until: Instant, counted: &mpsc::Receiver<()>) -> Felt {
        let mut felt = Felt::default();
        let mut batches = 0;
        while Instant::now() < until {
            let began = Instant::now();
            let mut attacker = Attacker::new(port, attack);
            felt.connections += 1;
            let end = attacker.run(attack, until);
            batches += attacker.batches;
            felt.end = felt.end.or(end.map(|how| (how, began.elapsed())));
            if Instant::now() >= until {
                let _ = counted.recv();
            }
        }
        felt.sent = batches.to_string();
        felt
    }
}

/// A well-behaved client.
struct Client(testkit::h3::Client);

impl floods::Client for Client {
    fn connect(port: u16) -> Option<Client> {
        Some(Client(testkit::h3::Client::connect(port, "localhost")))
    }

    fn ask(&mut self) -> bool {
        let response = self.0.get("/1k.txt");
        response.status == 200 && response.body.len() == 1024
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.quic().close(0x100);
    }
}
