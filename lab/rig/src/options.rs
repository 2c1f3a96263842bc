//! The command line.

use std::path::PathBuf;

use crate::server::Kind;

/// The text of `--help`, before the list of loads.
pub const USAGE: &str = "\
usage: cargo xtask bench [LOAD...] [OPTIONS]

  --rounds N        rounds of each server, interleaved (5)
  --seconds S       length of a round (4), of mixed, stream-mixed and soak (60), of
                    tunnels-reload (20)
  --cache-files N   of the loads that begin with a full cache (1000000)
  --kills N         of the load with kills of a cache (200)
  --storm-seconds S length of a storm (60)
  --servers A,B     of nginx, weir, weir-uring, floor (all but weir-uring)
  --nginx PATH      (/usr/sbin/nginx)
  --njs PATH        of the js load: an nginx with njs and QuickJS built in (none)
  --weir PATH       (target/release/weir)
  --user NAME       the workers' user (nobody, where root runs this): files are root's, readable
                    by all; with root, workers own their files
  --connections N   of the idle load, and of moves with --kind (10000)
  --kind NAME       of the moves load: tls-ws, tcp-ws, stream-tls or h2, many of one kind (all, few)
  --reloads N       of the moves load (5)
  --upgrades N      of the binary, in the moves load (2)
  --requests N      connections of the differential load (2000)
  --soak-requests N of the limit-soak and counts loads (10000000)
  --leak-requests N of each path of the leaks load (1000000), of heavy ones a tenth
  --tagged-requests N of the tagged load (100000)
  --datagrams N     of the stream-many load (10000000)
  --stream-connections N
                    of the stream-many load (1000000)
  --seed N          what its requests are drawn with (1)
  --only N          one of them alone; of the leaks load, one path by its number, of accept one
                    policy, of cold-disk one row, of strain one part, of memory-short one limit, of
                    stream-many one server, of shared-faults one fault (from 0)
  --clients N       of the mixed and stream-mixed loads (32)
  --driver NAME     weir's event method in the mixed, stream-mixed, stream-many, differential and
                    moves loads
  --reload-every S  in the mixed and stream-mixed loads (5), 0 for never
  --kill-workers    in the mixed, stream-mixed and soak loads: every 7 seconds, one
  --pace N          requests a second of the soak load, all clients together (500)
  --report FILE     where the soak load writes its page; a line a sample goes to FILE.tsv

loads (without a name, those that take less than a minute):";

/// The options of the command line.
#[derive(Clone)]
pub struct Options {
    /// Names of loads; none means the usual ones.
    pub loads: Vec<String>,
    /// Rounds of each server.
    pub rounds: usize,
    /// Length of a round.
    pub seconds: u32,
    /// Files of the loads that begin with a full cache.
    pub cache_files: usize,
    /// Kills of a cache's processes.
    pub kills: u32,
    /// Length of a storm.
    pub storm_seconds: u32,
    /// The servers to compare, the reference first.
    pub servers: Vec<Kind>,
    /// nginx's binary.
    pub nginx: PathBuf,
    /// An nginx with njs and QuickJS.
    pub njs: Option<PathBuf>,
    /// Weir's binary.
    pub weir: PathBuf,
    /// The bare responder's binary: beside this one.
    pub floor: PathBuf,
    /// The workers' user, where this runs as root.
    pub user: String,
    /// Idle connections to hold.
    pub connections: usize,
    /// The only kind of connections in the load that moves them.
    pub kind: Option<String>,
    /// Reloads of the same load.
    pub reloads: usize,
    /// Its upgrades of the binary.
    pub upgrades: usize,
    /// Cases of the differential load.
    pub requests: usize,
    /// Requests of the soak.
    pub soak_requests: u64,
    /// Requests of each path of the load that looks for leaks.
    pub leak_requests: u64,
    /// Requests of the tagged load.
    pub tagged_requests: u64,
    /// Datagrams of the load with many of them.
    pub datagrams: u64,
    /// Connections of the same load.
    pub stream_connections: u64,
    /// The seed of random choices.
    pub seed: u64,
    /// One of them alone.
    pub only: Option<usize>,
    /// Clients of the mixed load.
    pub clients: usize,
    /// Weir's event method in the mixed load.
    pub driver: Option<String>,
    /// Seconds between reloads in the mixed load.
    pub reload_every: u64,
    /// Whether the mixed load kills workers.
    pub kill_workers: bool,
    /// Requests a second of the soak.
    pub pace: u64,
    /// Where the soak writes its report.
    pub report: Option<PathBuf>,
    seconds_given: bool,
}

impl Options {
    /// Reads the command line; the error is a sentence, empty for `--help`.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::usual()?;
        let mut asked = None;
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--") else {
                options.loads.push(arg);
                continue;
            };
            if name == "help" {
                return Err(String::new());
            }
            if name == "kill-workers" {
                options.kill_workers = true;
                continue;
            }
            let value = args.next().ok_or(format!("--{name} needs a value"))?;
            match name {
                "rounds" => options.rounds = number(name, &value)?,
                "seconds" => {
                    options.seconds = number(name, &value)?;
                    options.seconds_given = true;
                }
                "cache-files" => options.cache_files = number(name, &value)?,
                "kills" => options.kills = number(name, &value)?,
                "storm-seconds" => options.storm_seconds = number(name, &value)?,
                "connections" => options.connections = number(name, &value)?,
                "kind" => options.kind = Some(value),
                "reloads" => options.reloads = number(name, &value)?,
                "upgrades" => options.upgrades = number(name, &value)?,
                "requests" => options.requests = number(name, &value)?,
                "soak-requests" => options.soak_requests = number(name, &value)?,
                "leak-requests" => options.leak_requests = number(name, &value)?,
                "tagged-requests" => options.tagged_requests = number(name, &value)?,
                "datagrams" => options.datagrams = number(name, &value)?,
                "stream-connections" => options.stream_connections = number(name, &value)?,
                "seed" => options.seed = number(name, &value)?,
                "only" => options.only = Some(number(name, &value)?),
                "clients" => options.clients = number(name, &value)?,
                "reload-every" => options.reload_every = number(name, &value)?,
                "pace" => options.pace = number(name, &value)?,
                "report" => options.report = Some(PathBuf::from(value)),
                "driver" => options.driver = Some(value),
                "nginx" => options.nginx = PathBuf::from(value),
                "njs" => options.njs = Some(PathBuf::from(value)),
                "user" => options.user = value,
                "weir" => options.weir = PathBuf::from(value),
                "servers" => asked = Some(value),
                _ => return Err(format!("no option is called --{name}")),
            }
        }
        options.choose(asked)?;
        Ok(options)
    }

    /// Those of an empty command line.
    fn usual() -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
        Ok(Self {
            loads: Vec::new(),
            rounds: 5,
            seconds: 4,
            cache_files: 1_000_000,
            kills: 200,
            storm_seconds: 60,
            servers: Vec::new(),
            nginx: PathBuf::from("/usr/sbin/nginx"),
            njs: None,
            weir: here.with_file_name("weir"),
            floor: here.with_file_name("floor"),
            user: "nobody".to_string(),
            connections: 10_000,
            kind: None,
            reloads: 5,
            upgrades: 2,
            requests: 2_000,
            soak_requests: 10_000_000,
            leak_requests: 1_000_000,
            tagged_requests: 100_000,
            datagrams: 10_000_000,
            stream_connections: 1_000_000,
            seed: 1,
            only: None,
            clients: 32,
            driver: None,
            reload_every: 5,
            kill_workers: false,
            pace: 500,
            report: None,
            seconds_given: false,
        })
    }

    /// Takes the servers of these names, if they are there.
    fn choose(&mut self, asked: Option<String>) -> Result<(), String> {
        let wanted: Vec<Kind> = match asked {
            Some(names) => names.split(',').map(Kind::named).collect::<Result<_, _>>()?,
            None => Kind::USUAL.to_vec(),
        };
        for kind in wanted {
            let binary = kind.binary(self);
            if binary.exists() {
                self.servers.push(kind);
            } else {
                println!("{} is left out: no {}", kind.name(), binary.display());
            }
        }
        Ok(())
    }

    /// Length of the load with tunnels.
    pub fn tunnel_seconds(&self) -> u64 {
        if self.seconds_given { self.seconds.into() } else { 20 }
    }

    /// The length that was given, or that one.
    pub fn seconds_or(&self, usual: u64) -> u64 {
        if self.seconds_given { self.seconds.into() } else { usual }
    }

    /// Length of the mixed load.
    pub fn mixed_seconds(&self) -> u64 {
        if self.seconds_given { self.seconds.into() } else { 60 }
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("--{name} wants a number, not {value:?}"))
}
