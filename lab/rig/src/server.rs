//! Starting and stopping the servers under comparison.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use crate::options::Options;
use crate::{Outcome, deploy, proc};

const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = include_str!("../../bench/configs/static.conf");
/// Two workers, and limits over both.
pub const LIMITS: &str = include_str!("../../bench/configs/limits.conf");
/// Filters of bodies.
pub const FILTERS: &str = include_str!("../../bench/configs/filters.conf");
/// A list of files as XML, made HTML by a stylesheet.
pub const XSLT: &str = include_str!("../../bench/configs/xslt.conf");
const LIST_XSL: &str = include_str!("../../bench/configs/list.xsl");
/// Text as people write it: this project's own.
const TEXTS: [&str; 4] = [
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../CONTRIBUTING.md"),
    include_str!("../../../docs/REWRITING.md"),
    include_str!("../../../docs/directives.md"),
];
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift
    ulimit -v "$SPACE_KB"; exec "$@""#;

/// The servers under comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stock nginx: the reference.
    Nginx,
    /// Ours.
    Weir,
    /// Ours with `use io_uring`; only by name.
    Uring,
    /// The bare responder.
    Floor,
}

impl Kind {
    /// The servers of a comparison by default, the reference first.
    pub const USUAL: &'static [Self] = &[Self::Nginx, Self::Weir, Self::Floor];
    const ALL: &'static [Self] = &[Self::Nginx, Self::Weir, Self::Uring, Self::Floor];

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Weir => "weir",
            Self::Uring => "weir-uring",
            Self::Floor => "floor",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Result<Self, String> {
        let kind = Self::ALL.iter().find(|kind| kind.name() == name);
        kind.copied().ok_or_else(|| format!("no server is called {name:?}"))
    }

    /// Its program.
    pub fn binary(self, options: &Options) -> &Path {
        match self {
            Self::Nginx => &options.nginx,
            Self::Weir | Self::Uring => &options.weir,
            Self::Floor => &options.floor,
        }
    }

    /// Whether it reads a configuration, serves files and reloads.
    pub fn is_real(self) -> bool {
        self != Self::Floor
    }
}

/// A load's part of the configuration.
#[derive(Clone)]
pub struct Setup {
    /// Whether `open_file_cache` is on.
    pub file_cache: bool,
    /// Whether there is an access log.
    pub logged: bool,
    /// More words of `listen`.
    pub listen: &'static str,
    /// `worker_connections`.
    pub connections: usize,
    /// More `server` blocks.
    pub blocks: usize,
    /// The body of `/return`; 0: it has none, and is there once it accepts connections.
    pub generation: u32,
    /// Go to the background, as a binary upgrade wants it.
    pub daemon: bool,
    /// The floor closes after each answer.
    pub close: bool,
    /// The floor answers all requests that wait when one comes for `/go`.
    pub holds: bool,
    /// The floor answers with this file.
    pub file: Option<&'static str>,
    /// The configuration, with names between percent signs.
    pub template: &'static str,
    /// The replacements of names in it, besides the usual ones.
    pub fill: Vec<(&'static str, String)>,
    /// The CPUs it runs on, as `taskset` wants them.
    pub cpus: &'static str,
    /// Control groups that it joins, by the file for that.
    pub groups: Vec<PathBuf>,
    /// A folder to serve, instead of one of its own with the usual files.
    pub root: Option<PathBuf>,
    /// The workers' user, where it is not the usual one.
    pub user: Option<&'static str>,
    /// Limit on the address space of each process, KB.
    pub address_space_kb: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            file_cache: false,
            logged: false,
            listen: "",
            connections: 12_288,
            blocks: 0,
            generation: 1,
            daemon: false,
            close: false,
            holds: false,
            file: None,
            template: CONFIG,
            fill: Vec::new(),
            cpus: "0",
            groups: Vec::new(),
            root: None,
            user: None,
            address_space_kb: None,
        }
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    /// The server.
    pub kind: Kind,
    /// Its port on 127.0.0.1.
    pub port: u16,
    prefix: PathBuf,
    child: Child,
    daemon: bool,
}

impl Server {
    /// Starts a server and waits until it answers. Gives the time that took, too: from
    /// the start of the program to the first answer of the last `server` block.
    pub fn start(options: &Options, kind: Kind, setup: &Setup) -> Outcome<(Self, Duration)> {
        let prefix = new_folder()?;
        let port = free_port()?;
        if setup.root.is_none() {
            write_files(&prefix)?;
        }
        if kind.is_real() {
            write_config(&prefix, kind, port, setup)?;
        }
        let began = Instant::now();
        let child = spawn(options, kind, &prefix, port, setup)?;
        let mut server = Self { kind, port, prefix, child, daemon: setup.daemon };
        let host = block_name(setup.blocks);
        server.wait_for_answer(&host, setup.generation, Duration::from_micros(500))?;
        Ok((server, began.elapsed()))
    }

    /// Kills the rest of it, and starts it again.
    pub fn start_again(&mut self, options: &Options, setup: &Setup) -> Outcome {
        let pids = self.all_pids();
        pids.iter().for_each(|&pid| proc::signal(pid, Signal::KILL));
        let _ = self.child.wait();
        let began = Instant::now();
        while pids.iter().any(|&pid| proc::is_running(pid)) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child = spawn(options, self.kind, &self.prefix, self.port, setup)?;
        self.wait_for_answer("localhost", setup.generation, Duration::from_millis(1))
    }

    /// Writes another configuration, for the next reload.
    pub fn reconfigure(&self, setup: &Setup) -> Outcome {
        write_config(&self.prefix, self.kind, self.port, setup)
    }

    /// Polls `/return` of that host until it gives the generation; the floor has none.
    pub fn wait_for_answer(&mut self, host: &str, generation: u32, pause: Duration) -> Outcome {
        let began = Instant::now();
        let wanted = format!("{generation}\n");
        loop {
            let is_there = match generation {
                0 => TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
                _ => get(self.port, host, "/return")
                    .is_ok_and(|body| !self.kind.is_real() || body.ends_with(&wanted)),
            };
            if is_there {
                return Ok(());
            }
            if !self.daemon && self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{} ended at once: {}", self.kind.name(), self.complaints()));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not answer: {}", self.kind.name(), self.complaints()));
            }
            std::thread::sleep(pause);
        }
    }

    /// The master's process id (the only one's, for the floor).
    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.prefix.join("server.pid")).unwrap_or_default();
        match text.trim().parse() {
            Ok(pid) if self.kind.is_real() => pid,
            _ => self.child.id(),
        }
    }

    /// Its own folder.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The folder of files that it serves, unless it was given another.
    pub fn root(&self) -> PathBuf {
        self.prefix.join("site")
    }

    /// The process ids of the whole tree.
    pub fn pids(&self) -> Vec<u32> {
        proc::tree(self.pid())
    }

    /// The tree, and processes that left it (an old master after an upgrade) but hold files of
    /// ours.
    pub fn all_pids(&self) -> Vec<u32> {
        let mut pids = self.pids();
        pids.extend(proc::holders(&self.prefix));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The worker's process id: the last of the tree.
    pub fn worker(&self) -> u32 {
        self.pids().last().copied().unwrap_or_else(|| self.child.id())
    }

    /// Sends a signal to the master.
    pub fn signal(&self, signal: Signal) {
        proc::signal(self.pid(), signal);
    }

    /// Its error log and output, shortened.
    pub fn complaints(&self) -> String {
        let mut text = String::new();
        for file in ["output.txt", "error.log"] {
            let bytes = fs::read(self.prefix.join(file)).unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&bytes[..bytes.len().min(600)]));
        }
        text
    }

    /// The lines of its error log that are alerts or worse.
    pub fn alerts(&self) -> usize {
        self.alerts_but("\0")
    }

    /// [`Server::alerts`] without those that contain a text.
    pub fn alerts_but(&self, expected: &str) -> usize {
        let log = fs::read(self.prefix.join("error.log")).unwrap_or_default();
        let bad = |l: &&str| {
            let alert = l.contains("[alert]") || l.contains("[emerg]") || l.contains("panic");
            alert && !l.contains(expected)
        };
        String::from_utf8_lossy(&log).lines().filter(bad).count()
    }

    fn stop(&mut self) {
        let pids = self.all_pids();
        proc::signal(self.pid(), Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) && pids.iter().any(|&p| proc::is_there(p)) {
            // Reaps the child, so that its entry goes.
            let _ = self.child.try_wait();
            std::thread::sleep(Duration::from_millis(5));
        }
        for &pid in pids.iter().filter(|&&pid| proc::is_there(pid)) {
            proc::signal(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.prefix);
    }
}

/// Starts its program, whose configuration is written.
fn spawn(options: &Options, kind: Kind, prefix: &Path, port: u16, setup: &Setup) -> Outcome<Child> {
    let mut command = Command::new("sh");
    // The shell joins the groups, and the server takes its place.
    command.args(["-c", JOIN, "sh"]).args(&setup.groups).arg("--");
    let space = setup.address_space_kb.map_or_else(|| "unlimited".into(), |kb| kb.to_string());
    command.env("SPACE_KB", space);
    command.args(["taskset", "-c", setup.cpus]).arg(kind.binary(options));
    if kind.is_real() {
        let mode = if setup.daemon { "daemon on;" } else { "daemon off;" };
        command.arg("-p").arg(prefix).arg("-c").arg(prefix.join("server.conf"));
        command.arg("-e").arg(prefix.join("error.log")).args(["-g", mode]);
    } else {
        command.arg(port.to_string());
        if setup.close {
            command.arg("close");
        }
        if setup.holds {
            command.arg("hold");
        }
        if let Some(file) = setup.file {
            command.arg("file").arg(prefix.join("site").join(file));
        }
    }
    let output = fs::File::create(prefix.join("output.txt")).map_err(|e| e.to_string())?;
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn();
    spawned.map_err(|e| format!("sh: {e}"))
}

/// The name of the `server` block number `n`; 0 is the first one, which has none.
pub fn block_name(n: usize) -> String {
    if n == 0 { "localhost".to_string() } else { format!("site{n}.test") }
}

/// A `GET` on a connection of its own; gives the body.
pub fn get(port: u16, host: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // The floor keeps the connection, unless told otherwise: one read returns the whole answer.
    let mut buffer = [0; 4096];
    loop {
        let len = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..len]);
        if len == 0 || answer.windows(13).any(|w| w == b"Server: floor") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let split = text.split_once("\r\n\r\n").filter(|_| text.starts_with("HTTP/1.1 200"));
    let (_, body) = split.ok_or_else(|| std::io::Error::other("no answer"))?;
    Ok(body.to_string())
}

/// A folder of our own for scratch files.
pub fn new_folder() -> Outcome<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("weir-bench-{}-{number}", std::process::id()));
    fs::create_dir_all(path.join("site"))
        .and_then(|()| fs::create_dir(path.join("dav")))
        .and_then(|()| fs::create_dir(path.join("tmp")))
        .and_then(|()| fs::create_dir(path.join("logs")))
        .and_then(|()| deploy::give(&path.join("dav")))
        .and_then(|()| deploy::give(&path.join("tmp")))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// The files that the loads ask for.
pub fn write_files(prefix: &Path) -> Outcome {
    for (name, len) in [("1k.txt", 1 << 10), ("100k.bin", 100 << 10), ("1m.bin", 1 << 20)] {
        let bytes: Vec<u8> = b"0123456789abcdef".iter().copied().cycle().take(len).collect();
        write_old(&prefix.join("site").join(name), &bytes)?;
    }
    let text = TEXTS.concat().into_bytes();
    let text: Vec<u8> = text.iter().copied().cycle().take(100 << 10).collect();
    let list = (list(200), LIST_XSL.as_bytes().to_vec());
    let files = [
        ("text.html", text),
        ("1k.json", json(1 << 10)),
        ("list.xml", list.0),
        ("list.xsl", list.1),
    ];
    for (name, bytes) in files {
        write_old(&prefix.join("site").join(name), &bytes)?;
    }
    Ok(())
}

/// A file that was changed a while ago: one that has just been changed may change again within the
/// same tick of its clock, and no server caches it.
fn write_old(path: &Path, bytes: &[u8]) -> Outcome {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = fs::File::create(path).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).map_err(failed)
}

/// A folder's list as `autoindex_format xml` gives it.
fn list(len: usize) -> Vec<u8> {
    let entry = |n: usize| {
        let (name, time) =
            (n * 7919 % 9973, format!("2026-01-{:02}T{:02}:00:00Z", n % 28 + 1, n % 24));
        match n % 10 {
            0 => format!("<directory mtime=\"{time}\">folder {name}</directory>\n"),
            _ => format!(
                "<file mtime=\"{time}\" size=\"{}\">file {name}.bin</file>\n",
                name * n * 97
            ),
        }
    };
    let entries: String = (0..len).map(entry).collect();
    format!("<?xml version=\"1.0\"?>\n<list>\n{entries}</list>\n").into_bytes()
}

/// A service's answer: a list of records.
fn json(len: usize) -> Vec<u8> {
    let record = |n: usize| {
        let (price, stock) = (n * 7919 % 9973, n * 31 % 97);
        format!("{{\"id\":{n},\"name\":\"item {price}\",\"price\":{price}.5,\"stock\":{stock}}},")
    };
    let records = (1..).flat_map(|n| record(n).into_bytes());
    std::iter::once(b'[').chain(records).take(len).collect()
}

/// Writes a server's configuration to its folder.
pub fn write_config(prefix: &Path, kind: Kind, port: u16, setup: &Setup) -> Outcome {
    let user = setup.user.map_or_else(deploy::user_line, deploy::line_of);
    let mut only_nginx = String::new();
    if kind == Kind::Nginx {
        for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            if setup.template.contains(&format!("{what}_temp_path")) {
                continue;
            }
            let folder = prefix.join("tmp").join(what);
            fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            only_nginx.push_str(&format!("{what}_temp_path {};\n", folder.display()));
        }
    }
    let cache = "open_file_cache max=1000 inactive=600s; open_file_cache_valid 600s;";
    let mut blocks = String::new();
    for n in 1..=setup.blocks {
        let (name, generation) = (block_name(n), setup.generation);
        blocks.push_str(&format!(
            "server {{ listen 127.0.0.1:{port}; server_name {name}; \
             location / {{ return 200 \"{name} {generation}\\n\"; }} }}\n"
        ));
    }
    let own = prefix.join("site");
    let root = setup.root.as_ref().unwrap_or(&own);
    let mut text = setup.template.to_string();
    for (name, value) in &setup.fill {
        text = text.replace(name, value);
    }
    let text = text
        .replace("%ONLY_NGINX%", &only_nginx)
        .replace("%USER%", &user)
        .replace("%USE%", if kind == Kind::Uring { "use io_uring;" } else { "" })
        .replace("%CONNECTIONS%", &setup.connections.to_string())
        .replace("%FILE_CACHE%", if setup.file_cache { cache } else { "" })
        .replace("%LISTEN%", setup.listen)
        .replace("%LOG%", if setup.logged { "%PREFIX%/access.log" } else { "off" })
        .replace("%GENERATION%", &setup.generation.to_string())
        .replace("%ROOT%", &root.to_string_lossy())
        .replace("%PREFIX%", &prefix.to_string_lossy())
        .replace("%PORT%", &port.to_string())
        .replace("%BLOCKS%", &blocks);
    // In one step, so that a reload never sees half a file.
    let (new, path) = (prefix.join("server.conf.new"), prefix.join("server.conf"));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// A free port.
pub fn free_port() -> Outcome<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|l| l.local_addr())
        .map(|a| a.port())
        .map_err(|e| format!("no free port: {e}"))
}
