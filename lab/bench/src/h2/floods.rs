//! Attacks over HTTP/2.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use bare::attacks::h2::{ATTACKS, Attack, Attacker};
use testkit::h2::kind;
use testkit::h2::scan::{self as client, Scan};

use super::prompt_setup;
use crate::floods::{self, Felt, Flood};
use crate::helper::Helper;
use crate::options::Options;
use crate::report;
use crate::server::{Kind, Setup};
use crate::tls::Certificate;
use crate::{Outcome, proc, proxied};

/// Between two connections of the attacker.
const BREAK: Duration = Duration::from_millis(10);

/// Runs every attack.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let (certificate, backend) = (Certificate::new(false)?, proxied::files(options)?);
    floods::run(options, &Http2 { certificate, backend })
}

struct Http2 {
    certificate: Certificate,
    backend: Helper,
}

impl Flood for Http2 {
    type Attack = Attack;
    const ATTACKS: &'static [Attack] = ATTACKS;
    const SENT: &'static str = "sent MB";
    type Client = Client;

    fn name(attack: &Attack) -> &'static str {
        attack.name
    }

    fn setup(&self, kind: Kind) -> Outcome<(Setup, u16)> {
        let (mut setup, ports) = prompt_setup(kind, &self.certificate, self.backend.port)?;
        setup.fill.retain(|(name, _)| !["%LOG_LEVEL%", "%SEND_TIMEOUT%"].contains(name));
        setup.fill.push(("%LOG_LEVEL%", "info".to_string()));
        // Attacks that hold streams and do nothing more are ended by this alone.
        setup.fill.push(("%SEND_TIMEOUT%", "1s".to_string()));
        Ok((setup, ports.clear))
    }

    fn assail(port: u16, attack: &Attack, until: Instant, counted: &mpsc::Receiver<()>) -> Felt {
        let mut felt = Felt::default();
        let mut sent = 0;
        while Instant::now() < until {
            let began = Instant::now();
            let Ok(mut attacker) = Attacker::new(port, attack, until) else {
                std::thread::sleep(BREAK);
                continue;
            };
            felt.connections += 1;
            let told = Mutex::new(None);
            let mut ended = false;
            let Ok(mut reading) = attacker.socket().try_clone() else { break };
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    if attack.reads {
                        proc::be_nice();
                        read(&mut reading, until, &told, began);
                    }
                });
                ended = attacker.run(attack) && Instant::now() < until;
                if Instant::now() >= until {
                    let _ = counted.recv();
                }
                if ended || Instant::now() >= until {
                    let _ = attacker.socket().shutdown(std::net::Shutdown::Write);
                }
                let _ = reader.join();
            });
            sent += attacker.sent;
            let after = began.elapsed();
            if !attack.reads {
                // The part that it has never read tells why.
                read(&mut reading, Instant::now() + Duration::from_millis(50), &told, began);
            }
            let told = told.into_inner().unwrap_or_default();
            let told_to_go = told.as_ref().filter(|(how, _)| how.starts_with("GOAWAY"));
            felt.end = felt.end.or(match (ended, attack.reads) {
                (_, true) => told.or(ended.then(|| ("closed".to_string(), after))),
                (true, false) => {
                    Some((told_to_go.map_or("closed", |(how, _)| how).to_string(), after))
                }
                // The server has ended it, and goes on taking what comes; or nothing of that end
                // reaches a client that reads nothing.
                (false, false) => told.as_ref().map(|(how, _)| (format!("{how}, unseen"), after)),
            });
            std::thread::sleep(BREAK.saturating_sub(began.elapsed()));
        }
        felt.sent = report::megabytes(sent as f64);
        felt
    }
}

/// A well-behaved client.
struct Client {
    stream: TcpStream,
    scan: Scan,
    /// The number of its next request.
    id: u32,
}

impl floods::Client for Client {
    fn connect(port: u16) -> Option<Client> {
        let mut stream = client::connect(port).ok()?;
        stream.write_all(&client::start(&[])).ok()?;
        Some(Client { stream, scan: Scan::default(), id: 1 })
    }

    fn ask(&mut self) -> bool {
        let answer = client::ask(&mut self.stream, &mut self.scan, self.id, "/1k.txt");
        self.id += 2;
        answer.is_ok_and(|length| length == 1024)
    }
}

/// Reads to the end of the connection or of the time, and tells the first sign of the end.
fn read(
    socket: &mut TcpStream,
    until: Instant,
    told: &Mutex<Option<(String, Duration)>>,
    began: Instant,
) {
    let mut scan = Scan::default();
    let mut buffer = vec![0; 65_536];
    // The end of the attack is the attacker's own.
    let tell = |how: String| {
        if let (true, Ok(mut told)) = (Instant::now() < until, told.lock()) {
            told.get_or_insert((how, began.elapsed()));
        }
    };
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    while Instant::now() < until {
        match socket.read(&mut buffer) {
            Ok(0) => {
                tell("closed".to_string());
                let _ = socket.shutdown(std::net::Shutdown::Both);
                return;
            }
            Ok(length) => scan.feed(&buffer[..length], |frame| {
                if frame.kind == kind::GOAWAY {
                    tell(format!("GOAWAY {}", name(frame.number(4))));
                }
            }),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                tell("reset".to_string());
                return;
            }
        }
    }
}

/// An error code's name, in short.
fn name(code: u32) -> String {
    let names = [
        "NO_ERROR",
        "PROTOCOL",
        "INTERNAL",
        "FLOW_CONTROL",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION",
        "CONNECT",
        "CALM",
    ];
    names.get(code as usize).map_or_else(|| code.to_string(), ToString::to_string)
}
