//! From the command line to a running server, in nginx's order of steps, because scripts rely on
//! it.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, os_error};
use net::Inherited;
use net::inherit::{MANAGED_VAR, NGINX_VAR};
use net::moves::{self, Channel};
use net::quic_relay::{Handover, VAR};
use os::process::Fork;
use shm::ShmLock;

use crate::engines::Lasting;
use crate::environ::Environ;
use crate::load::{Cycle, Loader, Parsed, Purpose, Refused};
use crate::master::{End, Master};
use crate::paths::Paths;
use crate::systemd::Notify;
use crate::typed::Typed;
use crate::upgrade::Upgrade;
use crate::{added, pidfile, signals, single, startlog, worker};

/// Performs the actions of the switches, but for those that print texts.
pub fn run(typed: &Typed, args: Vec<OsString>, environ: Environ) -> ExitCode {
    run_on(Vec::new(), typed, args, environ)
}

/// The same of a program that has opened listening sockets already: addresses of the configuration
/// that are theirs take them, so that nobody else gets such an address meanwhile.
pub fn run_on(
    opened: Vec<OwnedFd>,
    typed: &Typed,
    args: Vec<OsString>,
    environ: Environ,
) -> ExitCode {
    let paths = Paths::new(typed, &environ);
    let log = startlog::open(&paths, if typed.test { Level::Info } else { Level::Notice });
    log::set_default(log.clone());
    let lasting = match Lasting::new() {
        Ok(lasting) => lasting,
        Err(e) => {
            log!(log, Level::Emerg, None, "mmap() failed {}", os_error(&e));
            return ExitCode::FAILURE;
        }
    };
    let mut loader = Loader::new(paths, typed.directives.clone(), lasting);
    loader.all_errors = typed.test;
    let done = if typed.test {
        test(typed, &loader, &log)
    } else if let Some(signal) = typed.signal {
        loader
            .parse(None, &log, || {})
            .and_then(|p| signals::send(&log, &p.settings.pid, signal).then_some(()).ok_or(Refused))
    } else {
        return serve(loader, &log, args, environ, opened);
    };
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// `-t`, `-T`.
fn test(typed: &Typed, loader: &Loader, log: &Log) -> Result<(), Refused> {
    let conf_file = loader.paths.conf_file.display();
    let say = |text: &str| {
        if !typed.quiet {
            eprintln!("weir: {text}");
        }
    };
    let tested = loader
        .parse(None, log, || say(&format!("the configuration file {conf_file} syntax is ok")))
        .and_then(|parsed| {
            let files = parsed.files.clone();
            let mut none = Inherited::default();
            loader.open(parsed, Purpose::Test, None, &mut none, log).map(|_| files)
        });
    let Ok(files) = tested else {
        eprintln!("weir: configuration file {conf_file} test failed");
        return Err(Refused);
    };
    say(&format!("configuration file {conf_file} test is successful"));
    if typed.dump {
        let secrets = added::secrets();
        let mut out = io::stdout().lock();
        for file in files {
            let name = file.path.as_os_str().as_bytes();
            let shown = conf::redact::redact(&file.bytes, &secrets);
            let parts = [b"# configuration file ", name, b":\n", &shown, b"\n"];
            if out.write_all(&parts.concat()).is_err() {
                // The reader has closed its end.
                break;
            }
        }
    }
    Ok(())
}

/// The sockets that are open already: a predecessor's, or systemd's.
fn inherited(environ: &Environ, log: &Log) -> Inherited {
    let text = |name: &str| environ.get(name.as_bytes()).map(String::from_utf8_lossy);
    if let Some(value) = text(NGINX_VAR) {
        let mut inherited = Inherited::from_binary(&value, log);
        inherited.note_managed(&text(MANAGED_VAR).unwrap_or_default());
        inherited.quic = text(VAR).and_then(|value| Handover::from_binary(&value));
        return inherited;
    }
    match (text("LISTEN_FDS"), text("LISTEN_PID")) {
        (Some(fds), Some(pid)) => Inherited::from_systemd(&fds, &pid, std::process::id(), log),
        _ => Inherited::default(),
    }
}

fn serve(
    loader: Loader,
    log: &Log,
    args: Vec<OsString>,
    environ: Environ,
    opened: Vec<OwnedFd>,
) -> ExitCode {
    os::memory::keep_reserve();
    let mut inherited = inherited(&environ, log);
    opened.into_iter().for_each(|socket| inherited.add_own(socket, log));
    let is_successor = inherited.from_predecessor();
    let predecessor =
        os::process::getppid().map(|pid| pid.as_raw_nonzero().get()).filter(|_| is_successor);
    let loaded = loader
        .parse(None, log, || {})
        .and_then(|parsed: Parsed| loader.open(parsed, Purpose::Start, None, &mut inherited, log));
    let Ok(mut cycle) = loaded else { return ExitCode::FAILURE };
    inherited.close_rest(&cycle.log);
    let quic = inherited.quic.take();
    let moves = environ.get(moves::VAR.as_bytes()).filter(|_| is_successor);
    let moves = moves.and_then(|value| Channel::from_binary(&String::from_utf8_lossy(value)));
    drop(inherited);
    tell_system(&cycle.log);
    let Ok((daemonized, lock)) = settle(&cycle, is_successor) else {
        cycle.listeners.take().abandon();
        return ExitCode::FAILURE;
    };
    cycle.leave_terminal();
    log_panics();
    let notify = Notify::new(&environ);
    if !cycle.settings.master_process {
        return exit(single::run(cycle, loader, notify, &lock));
    }
    os::title::set(&master_title(&args));
    let upgrade = Upgrade {
        args: args.into_iter().map(OsString::into_vec).collect(),
        folder: std::env::current_dir().unwrap_or_default(),
        predecessor,
        quic,
        moves,
    };
    let mut master = Master::new(cycle, loader, environ, upgrade, notify, lock, daemonized);
    match master.run() {
        End::Stopped => ExitCode::SUCCESS,
        End::Failed => ExitCode::FAILURE,
        End::Worker(place) => {
            let beats = master.loader.lasting.beats;
            let (cycle, environ, lock, daemonized) = master.into_worker();
            let code = worker::run(cycle, place, &environ, &lock, beats, daemonized);
            // At once: nothing of the master's is this process's to clean up.
            os::process::exit_now(code)
        }
    }
}

/// Goes to the background if configured, and writes the pid file. Returns whether the process is in
/// the background, and the lock under which workers accept.
fn settle(cycle: &Cycle, is_successor: bool) -> Result<(bool, Rc<ShmLock>), Refused> {
    let log = &cycle.log;
    let mut parent = None;
    if !is_successor && cycle.settings.daemon {
        parent = Some(daemonize(log)?);
    }
    // From here on signals are taken where the code waits for them.
    signals::set().block();
    let lock = ShmLock::new().map_err(|e| {
        log!(log, Level::Emerg, None, "mmap() failed {}", os_error(&e));
        Refused
    })?;
    pidfile::write(&cycle.settings.pid).map_err(|e| {
        log!(log, Level::Emerg, None, "{e}");
        Refused
    })?;
    if let Some(mut parent) = parent {
        // Until now errors had a terminal to go to.
        os::fd::null_stdio().map_err(|e| {
            log!(log, Level::Emerg, None, "dup2(\"/dev/null\") failed {}", os_error(&e));
            pidfile::remove(&cycle.settings.pid, log);
            Refused
        })?;
        // The parent may be gone.
        let _ = parent.write_all(b"1");
    }
    Ok((is_successor || cycle.settings.daemon, Rc::new(lock)))
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn master_title(args: &[OsString]) -> String {
    let words = args.iter().map(|arg| arg.to_string_lossy());
    words.fold("weir: master process".to_owned(), |title, word| title + " " + &word)
}

/// Logs the system that the server runs on.
fn tell_system(log: &Log) {
    log!(log, Level::Notice, None, "weir/{}", crate::VERSION);
    let (system, release) = os::process::system();
    log!(log, Level::Notice, None, "OS: {system} {release}");
    let (soft, hard) = os::limits::get_both(os::limits::Limit::NoFile);
    log!(log, Level::Notice, None, "getrlimit(RLIMIT_NOFILE): {soft}:{hard}");
}

/// Goes to the background. The first process waits until the other one, which continues here, has
/// written to the returned pipe: then the server runs and has its pid file. If it ends before that,
/// the exit status shows it.
fn daemonize(log: &Log) -> Result<PipeWriter, Refused> {
    let fail = |what: &str, e: io::Error| {
        log!(log, Level::Emerg, None, "{what} failed {}", os_error(&e));
        Refused
    };
    let (mut theirs, ours) = io::pipe().map_err(|e| fail("pipe()", e))?;
    match os::process::fork() {
        Ok(Fork::Parent(_)) => {
            drop(ours);
            let runs = matches!(theirs.read(&mut [0]), Ok(1));
            os::process::exit_now(i32::from(!runs));
        }
        Ok(Fork::Child) => drop(theirs),
        Err(e) => return Err(fail("fork()", e)),
    }
    log::set_ids(std::process::id(), std::process::id());
    os::process::new_session().map_err(|e| fail("setsid()", e))?;
    os::process::umask(0);
    Ok(ours)
}

/// A panic is a fault of ours: it goes to the error log.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        log!(log::default(), Level::Alert, None, "panicked: {info}");
    }));
}
