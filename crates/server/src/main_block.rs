//! The directives of the outermost level, as they were written.

use std::ffi::CString;
use std::rc::Rc;

use base::log::Sink;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::value::{self, set_enum, set_flag, set_msec, set_num, set_offset, set_once, set_str};
use conf::{ConfError, Node, Word};
use engine::logs::{LogFile, LogFiles};
use engine::overload::Limits;
use os::limits::CPUS_MAX;

use crate::added;
use crate::events::EventsBlock;
use crate::overload;

/// The reaction of `debug_points` to a fault that a process finds in itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugPoint {
    /// `stop`: the process waits for a debugger.
    Stop,
    /// `abort`: it ends with a core file.
    Abort,
}

/// `worker_cpu_affinity`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// `auto`: each worker one of these processors, in turn.
    Auto(Vec<usize>),
    /// A list of processors for each worker; the last one for all further workers.
    Masks(Vec<Vec<usize>>),
}

/// `user`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The name, for the list of its further groups.
    pub name: CString,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The directives of the outermost level.
pub struct MainBlock {
    pub(crate) logs: Rc<LogFiles>,
    pub(crate) error_logs: Vec<Rc<dyn Sink>>,
    /// The first of them that is a file (or standard error) and not syslog.
    pub(crate) error_log_file: Option<Rc<LogFile>>,
    pub(crate) daemon: Option<bool>,
    pub(crate) master_process: Option<bool>,
    pub(crate) pid: Option<Bytes>,
    pub(crate) lock_file: Option<Bytes>,
    pub(crate) user: Option<Account>,
    pub(crate) worker_processes: Option<usize>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) priority: Option<i32>,
    pub(crate) rlimit_nofile: Option<u64>,
    pub(crate) rlimit_core: Option<u64>,
    pub(crate) shutdown_timeout_ms: Option<u64>,
    /// 0: off.
    pub(crate) watchdog_ms: Option<u64>,
    pub(crate) overload: Option<Limits>,
    pub(crate) working_directory: Option<Bytes>,
    pub(crate) env: Vec<Bytes>,
    pub(crate) environment: Vec<Vec<u8>>,
    pub(crate) debug_points: Option<Option<DebugPoint>>,
    pub(crate) timer_resolution_ms: Option<u64>,
    pub(crate) log_queue_size: Option<usize>,
    pub(crate) pcre_jit: Option<bool>,
    pub(crate) tls_inheritable: Option<bool>,
    pub(crate) shared_state: Option<fleet::Settings>,
    pub(crate) events: Option<EventsBlock>,
    pub(crate) pools: Rc<event::Pools>,
    /// The names of the engines' blocks that were met.
    pub(crate) blocks: Vec<Bytes>,
}

impl MainBlock {
    /// Nothing said yet.
    pub fn new(logs: Rc<LogFiles>) -> MainBlock {
        MainBlock {
            logs,
            error_logs: Vec::new(),
            error_log_file: None,
            daemon: None,
            master_process: None,
            pid: None,
            lock_file: None,
            user: None,
            worker_processes: None,
            affinity: None,
            priority: None,
            rlimit_nofile: None,
            rlimit_core: None,
            shutdown_timeout_ms: None,
            watchdog_ms: None,
            overload: None,
            working_directory: None,
            env: Vec::new(),
            environment: Vec::new(),
            debug_points: None,
            timer_resolution_ms: None,
            log_queue_size: None,
            pcre_jit: None,
            tls_inheritable: None,
            shared_state: None,
            events: None,
            pools: Rc::default(),
            blocks: Vec::new(),
        }
    }
}

type D = Directive<MainBlock>;

const fn main(
    name: &'static str,
    args: Args,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut MainBlock, &Node) -> Result<(), ConfError>,
) -> D {
    Directive { name, contexts: Contexts::MAIN, args, default, doc, set }
}

/// The directives of the outermost level, the engines' blocks apart.
pub static DIRECTIVES: &[D] = &[
    main("daemon", Args::FLAG, "on", "Runs the server in the background.", |d, n| {
        set_flag(&mut d.daemon, n)
    }),
    main(
        "debug_points",
        Args::T1,
        "",
        "On an internal error, stops or aborts the process, for a debugger.",
        |d, n| {
            let values = [("stop", Some(DebugPoint::Stop)), ("abort", Some(DebugPoint::Abort))];
            set_enum(&mut d.debug_points, n, &values)
        },
    ),
    main(
        "env",
        Args::T1,
        "TZ",
        "Passes an environment variable on to the workers, or sets it (NAME=VALUE).",
        |d, n| {
            d.env.push(n.arg(0)?.text.clone());
            Ok(())
        },
    ),
    main(
        "error_log",
        Args::ONE_MORE,
        "logs/error.log error",
        "The error log: a file, stderr or syslog, then the level, `json`, `rate=N/s`.",
        error_log,
    ),
    main(
        "load_module",
        Args::T1,
        "",
        "Loads nothing; warns if the module is not built into this binary (see `weir build`).",
        |d, n| added::load_module(n, !d.blocks.is_empty() || d.events.is_some()),
    ),
    main(
        "lock_file",
        Args::T1,
        "logs/nginx.lock",
        "Accepted without effect, as in nginx on Linux: locks need no file.",
        |d, n| set_str(&mut d.lock_file, n),
    ),
    main(
        "log_queue_size",
        Args::T1,
        "16m",
        "The maximum number of queued bytes per log; further lines are dropped. Weir's own.",
        log_queue_size,
    ),
    main(
        "master_process",
        Args::FLAG,
        "on",
        "Runs a master process with workers; `off` serves from a single process.",
        |d, n| set_flag(&mut d.master_process, n),
    ),
    main(
        "pcre_jit",
        Args::FLAG,
        "off",
        "Accepted without effect: regular expressions run in linear time, without a JIT.",
        |d, n| set_flag(&mut d.pcre_jit, n),
    ),
    main(
        "ssl_object_cache_inheritable",
        Args::FLAG,
        "on",
        "On reload, reuses certificates and keys whose files have not changed.",
        |d, n| set_flag(&mut d.tls_inheritable, n),
    ),
    main("ssl_engine", Args::T1, "", "Rejected: the crypto library has no engines.", |_, n| {
        let m =
            format!("\"ssl_engine\" cannot be had: there is no engine \"{}\"", n.arg(0)?.lossy());
        Err(ConfError::at(n.arg(0)?, m))
    }),
    main(
        "js_load_http_native_module",
        Args::T13,
        "",
        "Rejected: scripts load no machine code; write a module in Rust (`weir build`).",
        |_, n| {
            let m = "\"js_load_http_native_module\" is not supported: scripts load no machine \
                     code; a module in Rust can be built in (weir build)";
            Err(ConfError::at(n.arg(0)?, m))
        },
    ),
    main(
        "js_load_stream_native_module",
        Args::T13,
        "",
        "Rejected, as js_load_http_native_module is.",
        |_, n| {
            let m = "\"js_load_stream_native_module\" is not supported: scripts load no machine \
                     code";
            Err(ConfError::at(n.arg(0)?, m))
        },
    ),
    main(
        "quic_bpf",
        Args::FLAG,
        "off",
        "Accepted without effect: datagrams are routed to their connections without BPF maps.",
        |_, n| set_flag(&mut None, n),
    ),
    main("pid", Args::T1, "logs/nginx.pid", "The file with the master's process id.", |d, n| {
        set_str(&mut d.pid, n)
    }),
    main(
        "shared_state",
        Args::ONE_MORE,
        "",
        "The Redis or Valkey through which servers share zones (`sync`): URL [prefix=] \
         [interval=] [timeout=] [sentinel=|cluster] [password_file=] [ca=] [certificate= key=]. \
         Weir's own.",
        |d, n| value::set_once(&mut d.shared_state, n, fleet::Settings::parse),
    ),
    main(
        "thread_pool",
        Args::T23,
        "default threads=32 max_queue=65536",
        "A thread pool of each worker for blocking work, and the maximum length of its queue.",
        thread_pool,
    ),
    main(
        "timer_resolution",
        Args::T1,
        "",
        "Updates the cached time at this interval rather than after each wait for events.",
        |d, n| set_msec(&mut d.timer_resolution_ms, n),
    ),
    main(
        "user",
        Args::T12,
        "nobody nobody",
        "The user and group of the workers, if the master runs as root.",
        user,
    ),
    main(
        "worker_cpu_affinity",
        Args::ONE_MORE,
        "",
        "Binds workers to CPUs: a bit mask per worker, or auto.",
        affinity,
    ),
    main(
        "worker_priority",
        Args::T1,
        "0",
        "The scheduling priority of workers (a nice value). An old worker has a lower one while \
         its connections move.",
        priority,
    ),
    main(
        "worker_overload",
        Args::ONE_MORE,
        "memory=95% descriptors=95% connections=95% client=10% latency=off retry=2s",
        "The utilization thresholds above which new connections are refused. Weir's own.",
        overload::directive,
    ),
    main(
        "worker_processes",
        Args::T1,
        "1",
        "The number of workers; `auto` is the number of CPUs that the server can use.",
        |d, n| set_once(&mut d.worker_processes, n, worker_processes),
    ),
    main(
        "worker_rlimit_core",
        Args::T1,
        "",
        "The maximum size of a worker's core file (RLIMIT_CORE).",
        |d, n| set_offset(&mut d.rlimit_core, n),
    ),
    main(
        "worker_rlimit_nofile",
        Args::T1,
        "",
        "The maximum number of open files of a worker (RLIMIT_NOFILE).",
        |d, n| set_num(&mut d.rlimit_nofile, n),
    ),
    main(
        "worker_shutdown_timeout",
        Args::T1,
        "",
        "On graceful shutdown, closes remaining connections after this time.",
        |d, n| set_msec(&mut d.shutdown_timeout_ms, n),
    ),
    main(
        "worker_watchdog",
        Args::T1,
        "30s",
        "Kills a worker whose event loop has been stuck for this long. Weir's own.",
        worker_watchdog,
    ),
    main(
        "working_directory",
        Args::T1,
        "",
        "The working directory of workers, where core files are written.",
        |d, n| set_str(&mut d.working_directory, n),
    ),
];

fn log_queue_size(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    value::set_size(&mut draft.log_queue_size, node)?;
    if let Some(bytes) = draft.log_queue_size {
        draft.logs.set_queue_max(bytes);
    }
    Ok(())
}

fn error_log(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    draft.error_logs.push(draft.logs.error_log(node)?);
    let path = match node.arg(0)?.bytes() {
        text if text.starts_with(b"syslog:") || text.starts_with(b"otel:") => return Ok(()),
        b"stderr" => b"",
        path => path,
    };
    let logs = &draft.logs;
    draft.error_log_file.get_or_insert_with(|| logs.open(path));
    Ok(())
}

/// The limit of a pool's threads: far more than a worker can use, far fewer than break it.
const THREADS_MAX: u64 = 1 << 16;

fn thread_pool(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    let name = node.arg(0)?;
    let (mut threads, mut max_queue) = (None, event::pool::DEFAULT_QUEUE);
    for word in &node.args[1..] {
        let text = word.bytes();
        let number = |prefix: &str, text: &[u8]| {
            let n = base::ascii::parse_u64(text).and_then(|n| usize::try_from(n).ok());
            let what = prefix.trim_end_matches('=');
            let message = format!("invalid {what} value \"{}\"", word.lossy());
            n.ok_or_else(|| ConfError::at(word, message))
        };
        if let Some(text) = text.strip_prefix(b"threads=") {
            let n = number("threads=", text)?;
            if n == 0 || n as u64 > THREADS_MAX {
                let message = format!("invalid threads value \"{}\"", word.lossy());
                return Err(ConfError::at(word, message));
            }
            threads = Some(n);
        } else if let Some(text) = text.strip_prefix(b"max_queue=") {
            max_queue = number("max_queue=", text)?;
        } else {
            // nginx ignores it silently.
            conf::warn(word, format!("invalid parameter \"{}\", ignored", word.lossy()));
        }
    }
    let Some(threads) = threads else {
        let message = "\"thread_pool\" must have \"threads\" parameter";
        return Err(ConfError::at(&node.name, message));
    };
    let pool = event::Pool::new(&name.lossy(), threads, max_queue);
    draft
        .pools
        .add(pool)
        .map_err(|pool| ConfError::at(name, format!("duplicate thread pool \"{}\"", pool.name())))
}

fn worker_processes(node: &Node) -> Result<usize, ConfError> {
    let word = node.arg(0)?;
    if word.bytes() == b"auto" {
        return Ok(os::limits::cpus());
    }
    match base::ascii::parse_u64(word.bytes()) {
        // Each has a place of its own in shared memory, and a reload doubles them for a while.
        Some(n) if n <= (engine::SLOTS / 2) as u64 => Ok(n as usize),
        Some(_) => {
            let most = engine::SLOTS / 2;
            Err(ConfError::at(word, format!("\"worker_processes\" can be {most} at most")))
        }
        None => Err(ConfError::directive(node, "invalid value")),
    }
}

/// Less would kill workers that a busy machine does not let run.
const WATCHDOG_MIN_MS: u64 = 3_000;

fn worker_watchdog(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    if node.arg(0)?.bytes() == b"off" {
        return set_once(&mut draft.watchdog_ms, node, |_| Ok(0));
    }
    set_msec(&mut draft.watchdog_ms, node)?;
    match draft.watchdog_ms {
        Some(ms) if ms < WATCHDOG_MIN_MS => Err(ConfError::at(
            node.arg(0)?,
            "\"worker_watchdog\" must be 3 seconds or more, or off",
        )),
        _ => Ok(()),
    }
}

fn user(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    if draft.user.is_some() {
        return Err(ConfError::directive(node, "is duplicate"));
    }
    if !os::process::geteuid().is_root() {
        let message = "the \"user\" directive makes sense only if the master process runs with \
                       super-user privileges, ignored";
        conf::warn(&node.name, message);
        return Ok(());
    }
    let name = node.arg(0)?;
    let group = node.args.get(1).unwrap_or(name);
    let failed = |call: &str, word: &Word, e: Option<std::io::Error>| {
        let reason = e.map(|e| format!(" {}", base::log::os_error(&e))).unwrap_or_default();
        ConfError::at(word, format!("{call}(\"{}\") failed{reason}", word.lossy()))
    };
    let user = match os::privilege::user(name.bytes()) {
        Ok(Some(user)) => user,
        Ok(None) => return Err(failed("getpwnam", name, None)),
        Err(e) => return Err(failed("getpwnam", name, Some(e))),
    };
    let gid = match os::privilege::group(group.bytes()) {
        Ok(Some(gid)) => gid,
        Ok(None) => return Err(failed("getgrnam", group, None)),
        Err(e) => return Err(failed("getgrnam", group, Some(e))),
    };
    draft.user = Some(Account { name: user.name, uid: user.uid, gid });
    Ok(())
}

fn priority(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    set_once(&mut draft.priority, node, |node| {
        let text = node.arg(0)?.bytes();
        let (minus, digits) = match text.split_first() {
            Some((b'-', digits)) => (true, digits),
            Some((b'+', digits)) => (false, digits),
            _ => (false, text),
        };
        let n = base::ascii::parse_u64(digits).and_then(|n| i32::try_from(n).ok());
        let n = n.ok_or_else(|| ConfError::directive(node, "invalid number"))?;
        Ok(if minus { -n } else { n })
    })
}

fn affinity(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    set_once(&mut draft.affinity, node, |node| {
        if node.arg(0)?.bytes() != b"auto" {
            return node.args.iter().map(mask).collect::<Result<_, _>>().map(Affinity::Masks);
        }
        match node.args.get(1) {
            None => Ok(Affinity::Auto(os::limits::allowed_cpus())),
            Some(word) if node.args.len() == 2 => mask(word).map(Affinity::Auto),
            Some(_) => {
                let message = "invalid number of arguments in \"worker_cpu_affinity\" directive";
                Err(ConfError::at(&node.name, message))
            }
        }
    })
}

/// The processors of a bit mask, whose last digit is processor 0.
fn mask(word: &Word) -> Result<Vec<usize>, ConfError> {
    let text = word.bytes();
    if text.len() > CPUS_MAX {
        let message = format!("\"worker_cpu_affinity\" supports up to {CPUS_MAX} CPUs only");
        return Err(ConfError::at(word, message));
    }
    let mut cpus = Vec::new();
    for (cpu, &digit) in text.iter().rev().filter(|&&b| b != b' ').enumerate() {
        match digit {
            b'0' => {}
            b'1' => cpus.push(cpu),
            other => {
                let other = char::from(other);
                let message = format!("invalid character \"{other}\" in \"worker_cpu_affinity\"");
                return Err(ConfError::at(word, message));
            }
        }
    }
    Ok(cpus)
}

/// Records an engine's block; the engine reads it when the whole outermost level is known.
pub(crate) fn engine_block(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    if draft.blocks.contains(&node.name.text) {
        return Err(ConfError::directive(node, "is duplicate"));
    }
    draft.blocks.push(node.name.text.clone());
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::directives::TABLE;
    use std::path::Path;

    pub(crate) fn read(text: &str) -> Result<MainBlock, String> {
        let mut draft = MainBlock::new(Rc::new(LogFiles::new(Path::new("/"))));
        let options = conf::parse::Options::default();
        let text = Bytes::copy_from_slice(text.as_bytes());
        let tree =
            conf::parse::parse_bytes(Path::new("f"), text, &options).map_err(|e| e.to_string())?;
        TABLE.apply(&mut draft, &tree.nodes, Contexts::MAIN).map_err(|e| e.to_string())?;
        Ok(draft)
    }

    fn error(text: &str) -> String {
        read(text).map(|_| ()).unwrap_err()
    }

    #[test]
    fn thread_pools() {
        let d = read("thread_pool a threads=2; thread_pool b max_queue=0 threads=1;").unwrap();
        let of = |name: &str| d.pools.get(name.as_bytes()).map(|pool| format!("{pool:?}"));
        assert_eq!(of("a").unwrap(), "thread_pool a threads=2 max_queue=65536");
        assert_eq!(of("b").unwrap(), "thread_pool b threads=1 max_queue=0");
        assert_eq!(of("default").unwrap(), "thread_pool default threads=32 max_queue=65536");
        assert_eq!(of("c"), None);
        let d = read("thread_pool default threads=3 max_queue=4;").unwrap();
        assert_eq!(d.pools.get(b"default").unwrap().threads(), 3);
        for (text, message) in [
            ("thread_pool a threads=0;", "invalid threads value \"threads=0\" in f:1"),
            ("thread_pool a threads=x;", "invalid threads value \"threads=x\" in f:1"),
            ("thread_pool a threads=9999999;", "invalid threads value \"threads=9999999\" in f:1"),
            (
                "thread_pool a threads=1 max_queue=-1;",
                "invalid max_queue value \"max_queue=-1\" in f:1",
            ),
            (
                "thread_pool a max_queue=1;",
                "\"thread_pool\" must have \"threads\" parameter in f:1",
            ),
            (
                "thread_pool a threads=1;\nthread_pool a threads=1;",
                "duplicate thread pool \"a\" in f:2",
            ),
            ("thread_pool a;", "invalid number of arguments in \"thread_pool\" directive in f:1"),
        ] {
            assert_eq!(error(text), message);
        }
    }

    #[test]
    fn values() {
        let d = read(
            "daemon off; master_process off; pid a; worker_processes 3; worker_priority -5; \
             worker_rlimit_core 1g; worker_rlimit_nofile 99; worker_shutdown_timeout 10s; \
             working_directory /tmp; env A; env B=c; debug_points abort; timer_resolution 100ms;",
        )
        .unwrap();
        assert_eq!((d.daemon, d.master_process), (Some(false), Some(false)));
        assert_eq!((d.worker_processes, d.priority), (Some(3), Some(-5)));
        assert_eq!((d.rlimit_core, d.rlimit_nofile), (Some(1 << 30), Some(99)));
        assert_eq!((d.shutdown_timeout_ms, d.timer_resolution_ms), (Some(10_000), Some(100)));
        assert_eq!(d.env, ["A", "B=c"]);
        assert_eq!(d.debug_points, Some(Some(DebugPoint::Abort)));
        assert!(read("worker_processes auto;").unwrap().worker_processes > Some(0));
    }

    #[test]
    fn masks_of_processors() {
        let d = read("worker_cpu_affinity 0101 1000;").unwrap();
        assert_eq!(d.affinity, Some(Affinity::Masks(vec![vec![0, 2], vec![3]])));
        let d = read("worker_cpu_affinity auto \"1 1\";").unwrap();
        assert_eq!(d.affinity, Some(Affinity::Auto(vec![0, 1])));
        let d = read("worker_cpu_affinity auto;").unwrap();
        assert_eq!(d.affinity, Some(Affinity::Auto(os::limits::allowed_cpus())));
    }

    #[test]
    fn errors_in_nginx_s_words() {
        for (text, message) in [
            ("daemon on; daemon off;", "\"daemon\" directive is duplicate in f:1"),
            ("worker_processes x;", "\"worker_processes\" directive invalid value in f:1"),
            ("worker_processes 9999;", "\"worker_processes\" can be 512 at most in f:1"),
            ("worker_priority x;", "\"worker_priority\" directive invalid number in f:1"),
            (
                "worker_cpu_affinity 012;",
                "invalid character \"2\" in \"worker_cpu_affinity\" in f:1",
            ),
            (
                "worker_cpu_affinity auto 1 1;",
                "invalid number of arguments in \"worker_cpu_affinity\" directive in f:1",
            ),
            (
                "events {} load_module x.so;",
                "\"load_module\" directive is specified too late in f:1",
            ),
            ("error_log f x;", "invalid log level \"x\" in f:1"),
            ("error_log f format=xml;", "unknown log format \"xml\" in f:1"),
            ("http {} http {}", "\"http\" directive is duplicate in f:1"),
        ] {
            let said = error(text);
            assert_eq!(said, message);
        }
    }
}
