//! The settings of the outermost level, defaults filled in.

use std::path::PathBuf;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, os_error};
use bytes::Bytes;
use conf::ConfError;
use event::DriverKind;
use net::Origin;

use crate::events::EventsBlock;
use crate::flags::{LOCK_PATH, PID_PATH};
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
    /// The file that names the master.
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
    /// Their current folder.
    pub working_directory: Option<Bytes>,
    /// Variables of the environment: `NAME` to keep, `NAME=VALUE` to set.
    pub env: Vec<Bytes>,
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
            None if os::process::geteuid().is_root() => Some(nobody()?),
            given => given,
        };
        let full = |path: Option<Bytes>, default: &str| match path {
            Some(path) => paths.full(&path),
            None => paths.full(default.as_bytes()),
        };
        let settings = Settings {
            daemon: draft.daemon.unwrap_or(true),
            master_process: draft.master_process.unwrap_or(true),
            pid: full(draft.pid, PID_PATH),
            lock_file: full(draft.lock_file, LOCK_PATH),
            user,
            worker_processes,
            affinity: draft.affinity,
            priority: draft.priority.unwrap_or(0),
            rlimit_nofile: draft.rlimit_nofile,
            rlimit_core: draft.rlimit_core,
            shutdown_timeout_ms: draft.shutdown_timeout_ms.filter(|ms| *ms > 0),
            working_directory: draft.working_directory,
            env: draft.env,
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

    /// The name that the pid file has while a new binary is tried: nginx's.
    pub fn old_pid(&self) -> PathBuf {
        let mut path = self.pid.clone().into_os_string();
        path.push(".oldbin");
        path.into()
    }

    /// The processors of the worker with that number; `None` when it may run on any.
    pub fn cpus_of(&self, worker: usize) -> Option<Vec<usize>> {
        match self.affinity.as_ref()? {
            Affinity::Auto(cpus) if cpus.is_empty() => None,
            Affinity::Auto(cpus) => Some(vec![cpus[worker % cpus.len()]]),
            Affinity::Masks(masks) => masks.get(worker).or(masks.last()).cloned(),
        }
    }

    /// Warns when there will be fewer descriptors than connections.
    pub fn check_descriptors(&self, log: &Log) {
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

/// nginx's default for workers of a master that is root.
fn nobody() -> Result<Account, ConfError> {
    let failed = |call: &str, e: Option<std::io::Error>| {
        let reason = e.map(|e| format!(" {}", os_error(&e))).unwrap_or_default();
        ConfError::new(format!("{call}(\"nobody\") failed{reason}"))
    };
    let user = os::privilege::user(b"nobody").map_err(|e| failed("getpwnam", Some(e)))?;
    let user = user.ok_or_else(|| failed("getpwnam", None))?;
    // The group is called one or the other, depending on the distribution.
    for name in [&b"nobody"[..], b"nogroup"] {
        if let Some(gid) = os::privilege::group(name).map_err(|e| failed("getgrnam", Some(e)))? {
            return Ok(Account { name: user.name, uid: user.uid, gid });
        }
    }
    Err(failed("getgrnam", None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Typed;
    use crate::main_block::tests::read;

    fn settings(text: &str) -> Result<Settings, String> {
        let (log, _lines) = base::log::capture(Level::Info);
        let paths = Paths::new(&Typed::default());
        Settings::new(read(text)?, &paths, &log).map_err(|e| e.to_string())
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
