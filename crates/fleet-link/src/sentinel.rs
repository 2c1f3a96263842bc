//! The primary that sentinels know. All of them are asked at once, each step has a limit, and a
//! thread that a name server or a silent host holds up is left behind: it hides none of the others.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fleet::{Address, Settings};
use redis::{
    Connection, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult, Value,
};

use super::{Secrets, account, address, certificates};

/// Threads that may wait for one host. More attempts leave it out.
const THREADS_MAX: usize = 8;

/// The limit of all steps, in limits of one: the sentinel's connection and answer, and the
/// primary's.
const STEPS: u32 = 3;

/// Threads that wait for a host.
static WAITING: Mutex<BTreeMap<(String, u16), usize>> = Mutex::new(BTreeMap::new());

/// A place among those of a host.
struct Place((String, u16));

impl Place {
    fn take(host: &str, port: u16) -> Option<Place> {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.entry((host.to_owned(), port)).or_default();
        if *count >= THREADS_MAX {
            return None;
        }
        *count += 1;
        Some(Place((host.to_owned(), port)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.0);
            }
        }
    }
}

/// The outcome of a thread.
enum Said {
    /// What a sentinel takes for the primary.
    Primary(Address),
    /// A connection to a primary.
    Connected(Box<Connection>),
    /// A sentinel, or what it takes for the primary, is of no use.
    Failed(RedisError),
}

/// Connects to the primary of that name.
pub(super) fn connect(
    settings: &Settings,
    secrets: &Secrets,
    name: &str,
) -> RedisResult<Connection> {
    let (sender, receiver) = channel();
    let mut asking = Asking { settings, secrets, sender, under_way: 0, failed: None };
    for to in &settings.addresses {
        let (own, name) = (Server::of(settings, secrets, to, Account::Sentinel), name.to_owned());
        asking.spawn(to, move || own.primary(&name));
    }
    asking.wait(&receiver)
}

struct Asking<'a> {
    settings: &'a Settings,
    secrets: &'a Secrets,
    sender: Sender<Said>,
    /// Threads whose outcome is not known.
    under_way: usize,
    /// The last fault.
    failed: Option<RedisError>,
}

impl Asking<'_> {
    fn spawn(&mut self, to: &Address, work: impl FnOnce() -> RedisResult<Said> + Send + 'static) {
        let Address::Tcp(host, port) = to else { return };
        let Some(place) = Place::take(host, *port) else {
            return self.failed = Some(io::Error::other("threads still wait for it").into());
        };
        let sender = self.sender.clone();
        let begun = std::thread::Builder::new().name("sentinel".to_owned()).spawn(move || {
            let _place = place;
            // Nobody hears it if another one was faster.
            let _ = sender.send(work().unwrap_or_else(Said::Failed));
        });
        match begun {
            Ok(_) => self.under_way += 1,
            Err(e) => self.failed = Some(e.into()),
        }
    }

    /// Waits for the first connection to a primary.
    fn wait(mut self, receiver: &Receiver<Said>) -> RedisResult<Connection> {
        let until = Instant::now() + limit(self.settings) * STEPS;
        let mut known: Vec<Address> = Vec::new();
        while self.under_way > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(said) = receiver.recv_timeout(left) else {
                return Err(self
                    .failed
                    .unwrap_or_else(|| io::Error::from(io::ErrorKind::TimedOut).into()));
            };
            self.under_way -= 1;
            match said {
                Said::Connected(connection) => return Ok(*connection),
                Said::Failed(e) => self.failed = Some(e),
                Said::Primary(at) if known.contains(&at) => {}
                Said::Primary(at) => {
                    let own = Server::of(self.settings, self.secrets, &at, Account::Primary);
                    self.spawn(&at, move || own.into_primary());
                    known.push(at);
                }
            }
        }
        Err(self.failed.unwrap_or_else(|| io::Error::other("no sentinel answers").into()))
    }
}

fn limit(settings: &Settings) -> Duration {
    Duration::from_millis(settings.timeout_ms)
}

enum Account {
    /// The account of `shared_state` is that of the primary: sentinels are asked without one.
    Sentinel,
    Primary,
}

/// A server to connect to.
struct Server {
    info: RedisResult<ConnectionInfo>,
    /// With TLS.
    secrets: Option<Secrets>,
    limit: Duration,
}

impl Server {
    fn of(settings: &Settings, secrets: &Secrets, to: &Address, of: Account) -> Server {
        let account = match of {
            Account::Primary => account(settings, secrets),
            Account::Sentinel => {
                RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2)
            }
        };
        let info = address(settings, to).into_connection_info();
        Server {
            info: info.map(|info| info.set_redis_settings(account)),
            secrets: settings.tls.then(|| secrets.clone()),
            limit: limit(settings),
        }
    }

    fn connect(self) -> RedisResult<Connection> {
        super::open(self.info?, self.secrets.as_ref().map(certificates), self.limit)
    }

    /// Of a sentinel: the address of the primary.
    fn primary(self, name: &str) -> RedisResult<Said> {
        let mut connection = self.connect()?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        let at: Option<(String, u16)> = command.query(&mut connection)?;
        let unknown = || io::Error::other("a sentinel knows no primary of that name");
        let (host, port) = at.ok_or_else(unknown)?;
        Ok(Said::Primary(Address::Tcp(host, port)))
    }

    /// A connection, if this is a primary.
    fn into_primary(self) -> RedisResult<Said> {
        let mut connection = self.connect()?;
        let role: Value = redis::cmd("ROLE").query(&mut connection)?;
        let is_primary = match &role {
            Value::Array(list) => match list.first() {
                Some(Value::BulkString(role)) => role == b"master",
                _ => false,
            },
            _ => false,
        };
        match is_primary {
            true => Ok(Said::Connected(Box::new(connection))),
            false => Err(io::Error::other("what sentinels take for the primary is none").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Client;
    use testkit::{Peer, wait_until};

    use super::super::Link;
    use super::*;

    /// A server with that configuration.
    fn start(more: &str, arguments: &[&str]) -> Peer {
        let conf = format!("bind 127.0.0.1\nport %PORT%\ndir %DIR%\n{more}\n");
        let arguments = [&["%DIR%/redis.conf"], arguments].concat();
        Peer::start("redis-server", "redis-server", &[("redis.conf", &*conf)], &arguments)
    }

    fn ask(port: u16, words: &[&str]) -> Value {
        let client = Client::open(("127.0.0.1", port)).unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut client.get_connection().unwrap()).unwrap()
    }

    /// A stopped process that runs again when this is dropped: it would hear no other signal.
    struct Stopped(u32);

    impl Stopped {
        fn new(peer: &Peer) -> Stopped {
            testkit::signal(peer.pid(), "STOP");
            Stopped(peer.pid())
        }
    }

    impl Drop for Stopped {
        fn drop(&mut self) {
            testkit::signal(self.0, "CONT");
        }
    }

    fn settings(sentinels: &[(&str, u16)]) -> Settings {
        let mut settings = fleet::model::settings();
        settings.addresses =
            sentinels.iter().map(|(host, port)| Address::Tcp((*host).to_owned(), *port)).collect();
        settings.mode = fleet::Mode::Sentinel("one".to_owned());
        settings
    }

    /// The sentinel has not noticed that the primary hangs, and never does on its own.
    #[test]
    fn a_primary_that_hangs_keeps_nobody_away_after_the_failover() {
        let stores = "save \"\"\nappendonly no\nrepl-diskless-sync-delay 0";
        let primary = start(stores, &[]);
        let replica = start(&format!("{stores}\nreplicaof 127.0.0.1 {}", primary.port()), &[]);
        let watch = format!(
            "sentinel monitor one 127.0.0.1 {} 1\nsentinel down-after-milliseconds one 3600000",
            primary.port()
        );
        let sentinel = start(&watch, &["--sentinel"]);
        // Another one hangs; it is the first in the list.
        let silent = start("sentinel monitor one 127.0.0.1 1 1", &["--sentinel"]);
        let _silent = Stopped::new(&silent);
        let settings = settings(&[("127.0.0.1", silent.port()), ("localhost", sentinel.port())]);
        let attempt = || Link::connect(&settings, &Secrets::default()).map(drop);
        attempt().unwrap();
        wait_until("the sentinel knows the replica", || {
            let known = format!("{:?}", ask(sentinel.port(), &["SENTINEL", "replicas", "one"]));
            known.contains(&replica.port().to_string()) && known.contains("master-link-status")
        });
        let stopped = Stopped::new(&primary);
        let own = settings.clone();
        let ended = std::thread::spawn(move || {
            (0..2).map(|_| Link::connect(&own, &Secrets::default()).is_err()).collect::<Vec<_>>()
        });
        wait_until("attempts end", || ended.is_finished());
        assert_eq!(ended.join().unwrap(), [true, true]);
        ask(sentinel.port(), &["SENTINEL", "failover", "one"]);
        wait_until("the replica has taken over", || {
            format!("{:?}", ask(replica.port(), &["ROLE"])).contains("master")
        });
        wait_until("the server is back", || attempt().is_ok());
        drop(stopped);
    }

    #[test]
    fn a_host_has_a_number_of_threads() {
        let places: Vec<_> = (0..THREADS_MAX).map(|_| Place::take("held.example", 1)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(Place::take("held.example", 1).is_none());
        assert!(Place::take("held.example", 2).is_some(), "another one is free");
        drop(places);
        assert!(Place::take("held.example", 1).is_some());
        let waiting = WAITING.lock().unwrap();
        assert!(!waiting.keys().any(|(host, _)| host == "held.example"));
    }
}
