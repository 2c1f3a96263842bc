//! One scenario: a server, its upstream, and clients, all on the loop of a simulation. Each client
//! has files of its own and keeps account of what they may hold.

mod asking;
mod client;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use engine::logs::LogFiles;
use event::pool::{Pool, Pools};
use event::testing::listen;
use http::engine::HttpEngine;
use os::SockAddr;
use testkit::{Folder, StallingFolder};

use crate::simulation::{self, Chance, Clients};

const CLIENTS: u64 = 8;

/// The length of the upstream's answer, which is too large for its socket's buffer.
const BIG: usize = 60_000;

/// The course of the server's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All clients are done before it leaves.
    Idle,
    /// It leaves while they work.
    Quit,
    /// Another one takes its place while they work.
    Replace,
    /// Its loop goes while they work.
    Stop,
}

/// The faults of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// Connections hold, and clients stay to the end.
    pub steady: bool,
    /// Pools refuse tasks.
    pub refusing: bool,
    /// Questions to the disk that fail, in a thousand.
    pub failing: u64,
    pub ending: Ending,
}

impl World {
    /// Whether work that is begun ends well.
    fn is_sound(self) -> bool {
        !self.refusing && self.failing == 0
    }
}

/// Contents that a file may have at the end; `None`: it is not there.
type May = Vec<Option<Vec<u8>>>;

/// The folder of a scenario. It is removed when no thread has a file in it open any more.
pub struct Place {
    dir: Folder,
    disk: Option<StallingFolder>,
    /// By path below the folder of data.
    files: Vec<(String, Vec<u8>)>,
}

pub struct Scenario {
    place: Arc<Place>,
    seed: u64,
    world: World,
    /// By path below the folder of data.
    may: RefCell<BTreeMap<String, May>>,
    /// Requests by number, with the status of those that were answered.
    asked: RefCell<HashMap<u64, Option<u16>>>,
    leaving: Cell<bool>,
}

/// Bytes by which a place in a body is told from most others. The body is made of a period of them,
/// because to compute each byte of the millions would take a third of the test's time.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    const PERIOD: u64 = 3 * 251;
    let period: Vec<u8> = (0..PERIOD).map(|i| ((i / 3 + seed) % 251) as u8).collect();
    let mut bytes = period.repeat(len.div_ceil(period.len()));
    bytes.truncate(len);
    bytes
}

impl Place {
    /// Makes the files. `None` where a disk that fails cannot be had on this machine.
    pub fn prepare(name: &str, fails: bool) -> Option<Place> {
        let dir = Folder::new(name);
        for folder in ["logs", "data", "near"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let mut files = vec![
            ("small.txt".to_owned(), b"a small file".to_vec()),
            ("large.bin".to_owned(), pattern(100_000, 9)),
        ];
        for client in 0..CLIENTS {
            files.push((format!("dav/{client}/a"), pattern(5_000, client)));
            files.push((format!("dav/{client}/tree/x"), pattern(300, client)));
            files.push((format!("dav/{client}/tree/deep/y"), pattern(20_000, client)));
        }
        let disk = match fails.then(|| StallingFolder::mount(&dir.join("data"), Vec::new())) {
            None => None,
            Some(Ok(folder)) => Some(folder),
            Some(Err(e)) => {
                eprintln!("SKIPPED: no file system can be mounted here: {e}");
                return None;
            }
        };
        for (path, content) in &files {
            match &disk {
                Some(disk) => disk.add(path, content),
                None => {
                    let path = dir.join("data").join(path);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, content).unwrap();
                }
            }
        }
        Some(Place { dir, disk, files })
    }

    /// The content of a file; bypasses the failing disk.
    fn content(&self, path: &str) -> Option<Vec<u8>> {
        match &self.disk {
            Some(disk) => disk.content(path),
            None => std::fs::read(self.dir.join("data").join(path)).ok(),
        }
    }

    /// All files below a folder of data.
    fn files_in(&self, folder: &str) -> Vec<String> {
        if let Some(disk) = &self.disk {
            return disk.files(folder);
        }
        let (mut found, mut left) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(path) = left.pop() {
            let at = self.dir.join("data").join(&path);
            match std::fs::read_dir(&at) {
                Ok(names) => left.extend(names.map(|name| {
                    format!("{path}/{}", name.unwrap().file_name().into_string().unwrap())
                })),
                Err(_) if at.exists() => found.push(path),
                Err(_) => {}
            }
        }
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Unmounted before its folder goes.
        self.disk = None;
    }
}

impl Scenario {
    pub fn new(place: &Arc<Place>, seed: u64, world: World) -> Scenario {
        let files = place.files.iter().cloned();
        let may = files.map(|(path, content)| (path, vec![Some(content)]));
        Scenario {
            place: place.clone(),
            seed,
            world,
            may: RefCell::new(may.collect()),
            asked: RefCell::default(),
            leaving: Cell::new(false),
        }
    }

    /// Looks at the files when nothing runs any more.
    pub fn check_disk(&self) -> Result<(), String> {
        for (path, may) in &*self.may.borrow() {
            let is = self.place.content(path);
            if !may.contains(&is) {
                let is = is.map(|content| content.len());
                let may: Vec<_> = may.iter().map(|m| m.as_ref().map(Vec::len)).collect();
                return Err(format!("{path} has {is:?} bytes, which is none of {may:?}"));
            }
        }
        // Files of a stopped worker stay, and files that a disk failed to delete.
        if !self.world.is_sound() || self.world.ending == Ending::Stop {
            return Ok(());
        }
        let may = self.may.borrow();
        let mut strays = self.place.files_in("dav");
        strays.retain(|path| !may.contains_key(path));
        for folder in ["bodies", "proxied"] {
            strays.extend(self.place.files_in(folder));
        }
        match strays.is_empty() {
            true => Ok(()),
            false => Err(format!("files are left: {strays:?}")),
        }
    }

    fn fails(&self) -> bool {
        !self.world.is_sound()
    }
}

const CONF: &str = "
    log_format n '$http_n $status'; access_log logs/access.log n;
    server {
        listen 127.0.0.1:1; root data; keepalive_requests 1000;
        client_body_timeout 20s; send_timeout 20s; proxy_read_timeout 200s; proxy_send_timeout 200s;
        client_body_temp_path %BODIES%; proxy_temp_path data/proxied;
        client_body_buffer_size 1k;
        location /dav/ { dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; }
        location /echo { proxy_pass http://%UPSTREAM%; }
        location /big { proxy_pass http://%UPSTREAM%; proxy_buffers 2 4k; proxy_buffer_size 4k;
                        proxy_busy_buffers_size 4k; }
        location /listed/ { alias data/; autoindex on; }
        location /held/ { alias data/; open_file_cache max=2 inactive=2s; open_file_cache_valid 1s;
                          open_file_cache_errors on; }
        location /tried/ { try_files /none$http_n /none/ /small.txt; }
        location /copied/ { alias data/; sendfile off; output_buffers 2 8k; }
        location /threads/ { alias data/; aio threads; sendfile_max_chunk 16k; }
    }";

/// A server, of which there may be several in a scenario.
struct Server {
    engine: HttpEngine,
    addr: SockAddr,
}

fn start(scenario: &Scenario, upstream: &SockAddr, logs: &Rc<LogFiles>) -> Server {
    // Half of the bodies come to their place by a rename, the others over another file system.
    let bodies = if scenario.seed.is_multiple_of(2) { "data/bodies" } else { "near/bodies" };
    let text = CONF.replace("%UPSTREAM%", &upstream.to_string()).replace("%BODIES%", bodies);
    let (listener, addr) = listen().expect("a listener");
    let pools = Pools::default();
    pools.add(Pool::new("default", 3, 1000)).unwrap();
    pools.install();
    let engine = simulation::serve(&scenario.place.dir, &text, listener, |env| {
        (env.logs, env.pools) = (logs.clone(), Rc::new(pools));
    });
    logs.open_all().unwrap();
    Server { engine, addr }
}

/// Plays a scenario to its end, and checks that nothing is left on the loop.
pub async fn play(scenario: Rc<Scenario>) {
    let mut chance = Chance::new(scenario.seed);
    if let Some(disk) = &scenario.place.disk {
        disk.fail_some(scenario.seed, scenario.world.failing);
    }
    let tasks_before = event::stats().tasks;
    let (upstream, answering) = asking::upstream();
    let logs = Rc::new(LogFiles::new(&scenario.place.dir));
    let server = Rc::new(RefCell::new(start(&scenario, &upstream, &logs)));
    let clients = Clients::start((0..CLIENTS).map(|number| {
        let (own, server) = (scenario.clone(), server.clone());
        async move { client::work(&own, number, move || server.borrow().addr.clone()).await }
    }));
    let old = disturb(&scenario, &mut chance, &server, &upstream, &logs).await;
    if scenario.world.ending == Ending::Stop {
        return;
    }
    clients.over().await;
    scenario.leaving.set(true);
    server.borrow().engine.quit();
    for server in &old {
        until(|| server.engine.idle()).await;
    }
    until(|| server.borrow().engine.idle()).await;
    event::task::cancel(answering);
    let servers = 1 + old.len();
    drop((old, server));
    // As a worker that leaves.
    let mut waited = 0;
    while !event::pool::all_idle() {
        event::sleep(100).await;
        waited += 100;
        assert!(waited < 10_000_000, "tasks are left in a pool");
    }
    logs.end();
    check_log(&scenario);
    // Objects kept for a while go. The log's writer stays as long as there is a log, and the
    // watchers of idle connections as long as their configuration.
    event::sleep(600_000).await;
    let tasks = event::stats().tasks - tasks_before;
    assert!(tasks <= 1 + servers, "{tasks} tasks are left of {servers} servers");
    assert_eq!((event::connections_in_use(), event::posted()), (0, 0), "connections, sends");
}

/// Waits until a server has finished all its work.
async fn until(idle: impl Fn() -> bool) {
    let mut waited = 0;
    while !idle() {
        event::sleep(100).await;
        waited += 100;
        assert!(waited < 10_000_000, "a request is stuck");
    }
}

/// The events meanwhile: logs are rotated, and the server leaves or is replaced. Returns the
/// servers replaced.
async fn disturb(
    scenario: &Scenario,
    chance: &mut Chance,
    server: &Rc<RefCell<Server>>,
    upstream: &SockAddr,
    logs: &Rc<LogFiles>,
) -> Vec<Server> {
    let mut old = Vec::new();
    for round in 0..3 {
        event::sleep(chance.below(20_000)).await;
        let log = scenario.place.dir.join("logs/access.log");
        // If it is missing, it has not been made again since the last time.
        let _ = std::fs::rename(&log, scenario.place.dir.join(format!("logs/access.{round}")));
        logs.reopen(None, &base::log::default());
        match scenario.world.ending {
            Ending::Replace => {
                let new = start(scenario, upstream, logs);
                let before = server.replace(new);
                before.engine.quit();
                old.push(before);
            }
            Ending::Quit if round == 1 => {
                scenario.leaving.set(true);
                server.borrow().engine.quit();
            }
            _ => {}
        }
    }
    old
}

/// Each answer has its line, and no request has two.
fn check_log(scenario: &Scenario) {
    let mut lines: HashMap<u64, Vec<u16>> = HashMap::new();
    for name in std::fs::read_dir(scenario.place.dir.join("logs")).unwrap() {
        let text = std::fs::read_to_string(name.unwrap().path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "half a line");
        for line in text.lines() {
            let (number, status) = line.split_once(' ').unwrap();
            // Requests of which no number came.
            let Ok(number) = number.parse() else { continue };
            lines.entry(number).or_default().push(status.parse().unwrap());
        }
    }
    for (number, status) in &*scenario.asked.borrow() {
        let told = lines.remove(number).unwrap_or_default();
        assert!(told.len() <= 1, "request {number} has lines {told:?}");
        if let Some(status) = status {
            assert_eq!(told, [*status], "request {number}");
        }
    }
    assert!(lines.is_empty(), "lines of nobody: {lines:?}");
}
