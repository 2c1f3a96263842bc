//! The settings of the outermost level, defaults filled in.

use std::path::PathBuf;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use bytes::Bytes;
use conf::ConfError;
use engine::overload::Limits;
use event::DriverKind;
use net::Origin;
use os::privilege::User;

use crate::events::EventsBlock;
use crate::layout::{LOCK_PATH, PID_PATH};
use crate::main_block::{Account, Affinity, DebugPoint, MainBlock};
use crate::paths::Paths;

/// nginx's `worker_connections`.
pub const CONNECTIONS: usize = 512;

/// Settings of the outermost level.
pub struct Settings {
    /// Go to the background.
    pub daemon: bool,
    /// Have a master and workers.
    pub master_process: bool,
    /// The file that names the master; empty if it has none.
    pub pid: PathBuf,
    /// Of no effect; compared over reloads as nginx does.
    pub lock_file: PathBuf,
    /// The user and group of workers; `None` when the master is not root.
    pub user: Option<Account>,
    /// The number of workers.
    pub worker_processes: usize,
    /// Their processors.
    pub affinity: Option<Affinity>,
    /// Their scheduling priority; 0 leaves it alone.
    pub priority: i32,
    /// Their limit of descriptors.
    pub rlimit_nofile: Option<u64>,
    /// Their limit of core files, bytes.
    pub rlimit_core: Option<u64>,
    /// The time that a leaving worker continues to serve; `None`: no limit.
    pub shutdown_timeout_ms: Option<u64>,
    /// The time after which a worker that stands still is killed; `None`: none is watched.
    pub watchdog_ms: Option<u64>,
    /// The shares of what they have that make them refuse connections.
    pub overload: Limits,
    /// Their current folder.
    pub working_directory: Option<Bytes>,
    /// Variables of the environment: `NAME` to keep, `NAME=VALUE` to set.
    pub env: Vec<Bytes>,
    /// The names of environment variables in the text of the configuration.
    pub environment: Vec<Vec<u8>>,
    /// The reaction to a fault.
    pub debug_points: Option<DebugPoint>,
    /// Interval between readings of the clock, ms; 0: after each wait.
    pub timer_resolution_ms: u64,
    /// The `events` block.
    pub events: Events,
    /// The pools of threads.
    pub pools: Rc<event::Pools>,
}

/// Settings of the `events` block.
pub struct Events {
    /// The method.
    pub driver: DriverKind,
    /// The most connections of a worker.
    pub connections: usize,
    /// Accept all that wait.
    pub multi_accept: bool,
    /// Accept one worker at a time.
    pub accept_mutex: bool,
    /// The pause of the other workers, ms.
    pub accept_mutex_delay_ms: u64,
    /// The most events of one call of epoll_wait.
    pub epoll_events: usize,
    /// A longer turn of the loop is logged, ms.
    pub stall_ms: u64,
    /// The most reads under way in a worker's ring.
    pub aio_requests: usize,
    /// Clients whose connections are logged in full.
    pub debug_connections: Rc<[Origin]>,
}

impl Events {
    fn new(draft: EventsBlock) -> Events {
        Events {
            driver: draft.driver.unwrap_or_default(),
            connections: draft.connections.unwrap_or(CONNECTIONS),
            multi_accept: draft.multi_accept.unwrap_or(false),
            accept_mutex: draft.accept_mutex.unwrap_or(false),
            accept_mutex_delay_ms: draft.accept_mutex_delay_ms.unwrap_or(500),
            epoll_events: draft.epoll_events.unwrap_or(event::EPOLL_EVENTS),
            stall_ms: draft.stall_ms.unwrap_or(event::STALL_MS),
            aio_requests: draft.aio_requests.unwrap_or(files::RING_READS),
            debug_connections: draft.debug_connections.into(),
        }
    }
}

impl Settings {
    /// Fills in defaults and checks settings that depend on each other.
    pub fn new(draft: MainBlock, paths: &Paths, log: &Log) -> Result<Settings, ConfError> {
        let Some(events) = draft.events else {
            return Err(ConfError::new("no \"events\" section in configuration"));
        };
        let worker_processes = draft.worker_processes.unwrap_or(1);
        if let Some(Affinity::Masks(masks)) = &draft.affinity
            && masks.len() != 1
            && masks.len() != worker_processes
        {
            log!(
                log,
                Level::Warn,
                None,
                "the number of \"worker_processes\" is not equal to the number of \
                 \"worker_cpu_affinity\" masks, using last mask for remaining worker processes"
            );
        }
        if draft.pcre_jit == Some(true) {
            log!(
                log,
                Level::Warn,
                None,
                "\"pcre_jit\" has no effect: regular expressions do not use PCRE"
            );
        }
        let user = match draft.user {
            None if os::process::geteuid().is_root() => nobody(),
            given => given,
        };
        let settings = Settings {
            daemon: draft.daemon.unwrap_or(true),
            master_process: draft.master_process.unwrap_or(true),
            pid: full(paths, draft.pid.as_deref(), PID_PATH),
            lock_file: full(paths, draft.lock_file.as_deref(), LOCK_PATH),
            user,
            worker_processes,
            affinity: draft.affinity,
            priority: draft.priority.unwrap_or(0),
            rlimit_nofile: draft.rlimit_nofile,
            rlimit_core: draft.rlimit_core,
            shutdown_timeout_ms: draft.shutdown_timeout_ms.filter(|ms| *ms > 0),
            watchdog_ms: Some(draft.watchdog_ms.unwrap_or(30_000)).filter(|ms| *ms > 0),
            overload: draft.overload.unwrap_or(Limits::DEFAULT),
            working_directory: draft.working_directory,
            env: draft.env,
            environment: draft.environment,
            debug_points: draft.debug_points.flatten(),
            timer_resolution_ms: draft.timer_resolution_ms.unwrap_or(0),
            events: Events::new(events),
            pools: draft.pools,
        };
        Ok(settings)
    }

    /// The owner of the files that workers reopen; none unless the master is root.
    pub fn owner(&self) -> Option<u32> {
        self.user.as_ref().map(|user| user.uid)
    }

    /// Whether the configuration asks for core files of workers: their memory, with all keys, stays
    /// open to other processes of their user then.
    pub(crate) fn wants_core(&self) -> bool {
        self.rlimit_core.is_some_and(|bytes| bytes > 0)
            || self.working_directory.is_some()
            || self.debug_points == Some(DebugPoint::Abort)
    }

    /// The name that the pid file has while a new binary is tried: nginx's.
    pub(crate) fn old_pid(&self) -> PathBuf {
        let mut path = self.pid.clone().into_os_string();
        if !path.is_empty() {
            path.push(".oldbin");
        }
        path.into()
    }

    /// The processors of the worker with that number; `None` when it may run on any.
    pub(crate) fn cpus_of(&self, worker: usize) -> Option<Vec<usize>> {
        match self.affinity.as_ref()? {
            Affinity::Auto(cpus) if cpus.is_empty() => None,
            Affinity::Auto(cpus) => Some(vec![cpus[worker % cpus.len()]]),
            Affinity::Masks(masks) => masks.get(worker).or(masks.last()).cloned(),
        }
    }

    /// Warns when there will be fewer descriptors than connections.
    pub(crate) fn check_descriptors(&self, log: &Log) {
        let system = os::limits::get(os::limits::Limit::NoFile);
        let limit = self.rlimit_nofile.unwrap_or(system);
        let connections = self.events.connections;
        if connections as u64 > system && connections as u64 > limit {
            log!(
                log,
                Level::Warn,
                None,
                "{connections} worker_connections exceed open file resource limit: {limit}"
            );
        }
    }
}

/// A path of the main configuration, or the place of its default; empty without such a place. An
/// empty text (`pid "";`) is the default, as in nginx.
fn full(paths: &Paths, path: Option<&[u8]>, default: &str) -> PathBuf {
    match path.filter(|path| !path.is_empty()) {
        Some(path) => paths.full(path),
        None => paths.homes.run.path(&paths.prefix, default.as_bytes()).unwrap_or_default(),
    }
}

/// The pid file by the argument of `pid`, if there is one.
pub fn pid_file(paths: &Paths, path: Option<&[u8]>) -> PathBuf {
    full(paths, path, PID_PATH)
}

/// The id of the user and the group without rights, by the kernel's convention.
const OVERFLOW_ID: u32 = 65_534;

/// The default for workers of a master that is root: the account `nobody`, or without such an entry
/// (an image with nothing but the server has no list of users) the kernel's id for it. `None`
/// where a user namespace has no such user: its root is an account without rights outside.
fn nobody() -> Option<Account> {
    let user = os::privilege::user(b"nobody").ok().flatten();
    // The group is called one or the other, depending on the distribution.
    let group = |name: &[u8]| os::privilege::group(name).ok().flatten();
    let gid = group(b"nobody").or_else(|| group(b"nogroup"));
    let user = user.unwrap_or(User { name: c"nobody".into(), uid: OVERFLOW_ID, gid: OVERFLOW_ID });
    let account = Account { name: user.name, uid: user.uid, gid: gid.unwrap_or(user.gid) };
    let exists = |map: &str, id| {
        let text = std::fs::read_to_string(format!("/proc/self/{map}"));
        text.is_ok_and(|map| is_mapped(&map, id)).then_some(())
    };
    // Without /proc nothing is known of a namespace, and the account is taken.
    if !std::path::Path::new("/proc/self/uid_map").exists() {
        return Some(account);
    }
    exists("uid_map", account.uid).and(exists("gid_map", account.gid)).map(|()| account)
}

/// Whether a user namespace's map (user_namespaces(7)) has the id.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, len) = (numbers.next(), numbers.next(), numbers.next());
        let (first, len) = (first.unwrap_or(0), len.unwrap_or(0));
        (first..first.saturating_add(len)).contains(&u64::from(id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::main_block::tests::read;
    use crate::typed::Typed;

    fn settings(text: &str) -> Result<Settings, String> {
        let (log, _lines) = base::log::capture(Level::Info);
        let prefix = Some(b"/usr/local/weir".to_vec());
        let typed = Typed { prefix, ..Typed::default() };
        let paths = Paths::new(&typed, &crate::environ::Environ::capture());
        Settings::new(read(text)?, &paths, &log).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_path_is_the_default() {
        let s = settings("events {} pid \"\"; lock_file '';").unwrap();
        let default = settings("events {}").unwrap();
        assert_eq!((&s.pid, &s.lock_file), (&default.pid, &default.lock_file));
    }

    #[test]
    fn defaults_are_nginx_s() {
        let s = settings("events {}").unwrap();
        assert!(s.daemon && s.master_process);
        assert_eq!((s.worker_processes, s.events.connections), (1, 512));
        assert_eq!(s.pid.to_str(), Some("/usr/local/weir/logs/nginx.pid"));
        assert_eq!(s.old_pid().to_str(), Some("/usr/local/weir/logs/nginx.pid.oldbin"));
        assert_eq!((s.events.accept_mutex, s.events.accept_mutex_delay_ms), (false, 500));
        assert_eq!(s.shutdown_timeout_ms, None);
        assert_eq!(s.user.is_some(), os::process::geteuid().is_root());
    }

    #[test]
    fn events_are_needed() {
        assert_eq!(
            settings("daemon off;").map(|_| ()).unwrap_err(),
            "no \"events\" section in configuration"
        );
    }

    #[test]
    fn users_of_a_namespace() {
        assert!(is_mapped("         0          0 4294967295\n", OVERFLOW_ID));
        assert!(!is_mapped("         0       1000          1\n", OVERFLOW_ID));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", OVERFLOW_ID));
        assert!(!is_mapped("odd", 0) && !is_mapped("", 0));
    }

    #[test]
    fn processors_go_round() {
        let s = settings("events {} worker_cpu_affinity auto 1101; worker_processes 4;").unwrap();
        let of: Vec<_> = (0..4).map(|w| s.cpus_of(w).unwrap()).collect();
        assert_eq!(of, [[0], [2], [3], [0]]);
        let s = settings("events {} worker_cpu_affinity 01 10; worker_processes 3;").unwrap();
        assert_eq!(s.cpus_of(2), Some(vec![1]));
        assert_eq!(settings("events {}").unwrap().cpus_of(0), None);
        assert_eq!(settings("events {} worker_cpu_affinity auto 00;").unwrap().cpus_of(0), None);
    }
}
