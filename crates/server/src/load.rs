//! Loading a configuration: read, apply, open files, bind sockets. On any error nothing has
//! changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, Sink};
use bytes::Bytes;
use conf::collect::{self, Errors};
use conf::environment::Environment;
use conf::parse::{self, Options};
use conf::table::Contexts;
use conf::{ConfError, Node, SourceFile};
use engine::logs::{LogFile, LogFiles};
use engine::stats::Stats;
use engine::tls_objects::TlsObjects;
use engine::{Engine, Help, Helper, LoadEnv, Metrics, Places, Seat};
use fleet::Fleet;
use net::listeners::OpenEnv;
use net::{Inherited, Listeners};
use shm::Zones;

use crate::directives::TABLE;
use crate::engines::{self, Lasting};
use crate::layout::ERROR_LOG_PATH;
use crate::main_block::MainBlock;
use crate::paint;
use crate::paths::Paths;
use crate::pidfile;
use crate::settings::Settings;
use crate::startlog::Console;
use crate::verdict::Reasons;

/// The purpose of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// `-t`, `-T`.
    Test,
    /// To serve.
    Start,
    /// To serve in the place of the one that runs.
    Reload,
}

/// A configuration that was read and understood, with nothing opened yet.
pub struct Parsed {
    /// The outermost level.
    pub settings: Settings,
    /// The engines that the configuration has blocks for.
    pub engines: Vec<Rc<dyn Engine>>,
    /// Its shared zones.
    zones: Rc<Zones>,
    /// Its counters by zone.
    metrics: Rc<Metrics>,
    /// What it shares with other servers.
    fleet: Rc<Fleet>,
    /// The log files that are open, for rotation.
    pub logs: Rc<LogFiles>,
    /// Where its error log's lines go.
    sinks: Vec<Rc<dyn Sink>>,
    error_log_file: Rc<LogFile>,
    /// Its text, for `-T`.
    pub files: Vec<SourceFile>,
}

/// A configuration that is ready to serve.
pub struct Cycle {
    /// The outermost level.
    pub settings: Settings,
    /// The engines.
    pub engines: Vec<Rc<dyn Engine>>,
    /// Its shared zones, mapped.
    pub zones: Rc<Zones>,
    /// Its counters by zone.
    pub metrics: Rc<Metrics>,
    /// What it shares with other servers.
    pub fleet: Rc<Fleet>,
    /// The contents of the files that `shared_state` names, in the process that needs them.
    secrets: RefCell<fleet_link::Secrets>,
    /// Its log files, open.
    pub logs: Rc<LogFiles>,
    /// The counters of all workers.
    pub stats: Rc<Stats>,
    /// Its text.
    pub files: Vec<SourceFile>,
    /// Its error log.
    pub log: Log,
    /// The error log's first file.
    error_log_file: Rc<LogFile>,
    /// The error log's sinks once the start is over.
    sinks: Vec<Rc<dyn Sink>>,
    /// Its sockets, bound, in the order of the engines and of their listeners. Taken out when
    /// accepting ends: a socket closes with its last descriptor.
    pub listeners: RefCell<Listeners>,
}

/// Loading failed; the reason has been logged.
#[derive(Debug)]
pub struct Refused;

/// The values that engines borrow for loading, besides the outermost level.
struct Lent<'a> {
    sinks: &'a [Rc<dyn Sink>],
    zones: &'a Rc<Zones>,
    metrics: &'a Rc<Metrics>,
    fleet: &'a Rc<Fleet>,
    places: Rc<Places>,
}

/// The part of loading that is independent of the configuration.
pub struct Loader {
    /// Where things are.
    pub paths: Paths,
    /// `-g`
    pub directives: Option<Vec<u8>>,
    /// Values that outlive configurations.
    pub lasting: Lasting,
    /// The messages of a reload.
    pub reasons: Rc<Reasons>,
    /// Texts of files that an editor has not written yet, by device and inode.
    pub unsaved: HashMap<(u64, u64), Bytes>,
    /// Reports all errors of a configuration, where the others would be found one by one. A server
    /// that starts or reloads has no use for them.
    pub all_errors: bool,
}

impl Loader {
    /// A loader by the command line; `directives` are those of `-g`.
    pub fn new(paths: Paths, directives: Option<Vec<u8>>, lasting: Lasting) -> Loader {
        let unsaved = HashMap::new();
        Loader { paths, directives, lasting, reasons: Rc::default(), unsaved, all_errors: false }
    }

    /// Reads the configuration, opens nothing, and returns its errors. Warnings are logged.
    pub fn check(&self, log: &Log) -> Vec<ConfError> {
        log::set_default(log.clone());
        let read = || self.try_parse(Rc::new(Zones::default()), log, &mut Vec::new(), || {});
        collect::all(read).map_or_else(|errors| errors.list, |_| Vec::new())
    }

    /// Reads the configuration. `running` is the one it replaces: shared zones that both have are
    /// kept. `syntax_ok` is called when its text is parsed and before the settings are checked
    /// against each other and the system.
    pub fn parse(
        &self,
        running: Option<&Cycle>,
        log: &Log,
        syntax_ok: impl FnOnce(),
    ) -> Result<Parsed, Refused> {
        log::set_default(log.clone());
        let mut files = Vec::new();
        let zones =
            Rc::new(running.map_or_else(Zones::default, |cycle| Zones::after(&cycle.zones)));
        if !self.all_errors {
            let parsed = self.try_parse(zones, log, &mut files, syntax_ok);
            return parsed.map_err(|error| self.report(log, &error, &files));
        }
        let parsed = collect::all(|| self.try_parse(zones, log, &mut files, syntax_ok));
        parsed.map_err(|Errors { list, more }| {
            for error in &list {
                let Refused = self.report(log, error, &files);
            }
            if more > 0 {
                log!(log, Level::Emerg, None, "{more} more errors are not shown");
            }
            Refused
        })
    }

    fn try_parse(
        &self,
        zones: Rc<Zones>,
        log: &Log,
        files: &mut Vec<SourceFile>,
        syntax_ok: impl FnOnce(),
    ) -> Result<Parsed, ConfError> {
        let options = Options {
            conf_prefix: self.paths.conf_prefix.clone(),
            keep_broken: true,
            environment: Environment::Required,
            unsaved: self.unsaved.clone(),
            ..Options::default()
        };
        let places = Rc::new(self.paths.homes.engines());
        let logs = Rc::new(LogFiles::new(&self.paths.prefix).with_places(places.clone()));
        let mut draft = MainBlock::new(logs.clone());
        if let Some(text) = &self.directives {
            let tree = parse::parse_params(text, &options)?;
            draft.environment.extend(tree.environment);
            TABLE.apply(&mut draft, &tree.nodes, Contexts::MAIN)?;
        }
        let tree = parse::parse_file(&self.paths.conf_file, &options)?;
        *files = tree.files;
        draft.environment.extend(tree.environment);
        // Engines read their blocks when the whole outermost level is known. An error below one of
        // their blocks is reported before their own, and an error above it after: in the text's
        // order.
        let mut applied = Vec::new();
        let outcome = tree.nodes.iter().enumerate().try_for_each(|(at, node)| {
            let before = collect::count();
            collect::section(at);
            TABLE.apply_one(&mut draft, node, Contexts::MAIN)?;
            if collect::count() == before {
                applied.push((at, node));
            }
            Ok(())
        });
        let sinks = std::mem::take(&mut draft.error_logs);
        let (sinks, error_log_file) = self.sinks(sinks, &draft);
        let metrics = Rc::<Metrics>::default();
        let fleet = Rc::new(self.fleet(&draft)?);
        metrics.add_part(fleet.clone());
        let fleet_ = &fleet;
        let lent = Lent { sinks: &sinks, zones: &zones, metrics: &metrics, fleet: fleet_, places };
        let engines = self.engines(&applied, &draft, lent)?;
        outcome?;
        syntax_ok();
        let settings = Settings::new(draft, &self.paths, log)?;
        let files = std::mem::take(files);
        Ok(Parsed { settings, engines, zones, metrics, fleet, logs, sinks, error_log_file, files })
    }

    /// What the configuration shares with other servers: its zones add themselves.
    fn fleet(&self, draft: &MainBlock) -> Result<Fleet, ConfError> {
        let mut settings = draft.shared_state.clone();
        if let Some(settings) = &mut settings {
            settings.resolve(|path| self.paths.conf_prefix.join(OsStr::from_bytes(path)));
            fleet_link::Secrets::read(settings)
                .map_err(|e| ConfError::new(format!("\"shared_state\": {e}")))?;
        }
        let Lasting { shared_state, questions, .. } = &self.lasting;
        Ok(Fleet::new(settings, shared_state.clone(), questions.clone()))
    }

    /// Where the error log goes: to the default file when no file is named.
    fn sinks(
        &self,
        mut sinks: Vec<Rc<dyn Sink>>,
        draft: &MainBlock,
    ) -> (Vec<Rc<dyn Sink>>, Rc<LogFile>) {
        if let Some(file) = &draft.error_log_file {
            return (sinks, file.clone());
        }
        // Without a place below the prefix the default is standard error, which a server in the
        // background does not have.
        let background = draft.daemon.unwrap_or(true);
        let elsewhere = || draft.logs.default_path(ERROR_LOG_PATH.as_bytes());
        let path = match self.paths.error_log_is_known() || !background {
            true => self.paths.error_log.clone(),
            false => elsewhere().unwrap_or_default(),
        };
        let path = path.as_os_str().as_bytes();
        sinks.push(draft.logs.file_sink(path, Level::Error, 0));
        (sinks, draft.logs.open(path))
    }

    fn engines(
        &self,
        nodes: &[(usize, &Node)],
        draft: &MainBlock,
        lent: Lent,
    ) -> Result<Vec<Rc<dyn Engine>>, ConfError> {
        let Lent { sinks, zones, metrics, fleet, places } = lent;
        let events = draft.events.as_ref();
        let env = LoadEnv {
            prefix: self.paths.prefix.clone(),
            conf_prefix: self.paths.conf_prefix.clone(),
            conf_file: self.paths.conf_file.clone(),
            first_error_log: self.paths.error_log.clone(),
            places,
            logs: draft.logs.clone(),
            error_log: Log::new(sinks.to_vec()),
            workers: draft.worker_processes.unwrap_or(1),
            connections: events.and_then(|e| e.connections).unwrap_or(crate::settings::CONNECTIONS),
            stats: self.lasting.stats.clone(),
            metrics: metrics.clone(),
            pools: draft.pools.clone(),
            zones: zones.clone(),
            bells: self.lasting.bells.clone(),
            tls_objects: TlsObjects::of(zones, draft.tls_inheritable.unwrap_or(true)),
            fleet: fleet.clone(),
        };
        let mut built = Vec::new();
        for (at, node) in nodes {
            if let Some(entry) = engines::ALL.iter().find(|e| node.name == *e.name) {
                collect::section(*at);
                match (entry.build)(node, env.clone()) {
                    Ok(engine) => built.push(engine),
                    Err(error) => collect::keep_end(error)?,
                }
            }
        }
        collect::settle(0)?;
        env.logs.outbox().check()?;
        env.tls_objects.settle();
        env.metrics.settle(zones, env.slots()).map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::new(format!("memory for counters cannot be mapped {e}"))
        })?;
        Ok(built)
    }

    /// Opens the files and sockets of a configuration. `running` is the one it replaces.
    pub fn open(
        &self,
        parsed: Parsed,
        purpose: Purpose,
        running: Option<&Cycle>,
        inherited: &mut Inherited,
        log: &Log,
    ) -> Result<Cycle, Refused> {
        let Parsed { settings, engines, zones, metrics, fleet, logs, .. } = parsed;
        let Parsed { sinks, error_log_file, files, .. } = parsed;
        let say = |error: ConfError| self.report(log, &error, &[]);
        let test = purpose == Purpose::Test;
        let pid_place = &self.paths.homes.run;
        match (test, pid_place.holds(&settings.pid)) {
            (true, false) => pidfile::test(&settings.pid).map_err(say)?,
            (false, true) => pidfile::make_folder(pid_place).map_err(say)?,
            _ => {}
        }
        for engine in &engines {
            engine.create_paths(settings.owner(), test).map_err(say)?;
        }
        if test { logs.open_named() } else { logs.open_all() }.map_err(say)?;
        let mut told = sinks.clone();
        if purpose != Purpose::Start {
            told.push(self.reasons.clone());
        }
        if purpose != Purpose::Reload && !logs.uses_stderr() {
            told.push(Rc::new(Console));
        }
        let log = Log::new(told);
        log::set_default(log.clone());
        let specs: Vec<_> = engines.iter().flat_map(|e| e.listeners()).collect();
        let previous = running.map(|cycle| cycle.listeners.borrow().clone()).unwrap_or_default();
        if specs.is_empty() && !previous.is_empty() {
            let message = "the configuration no longer listens on any address, which would cut off \
                           every client: reload refused";
            return Err(self.report(&log, &ConfError::new(message), &[]));
        }
        let workers = if settings.master_process { settings.worker_processes } else { 1 };
        let env = OpenEnv { workers, test, log: &log };
        let refused = |_| refused(purpose, &settings.pid, &log);
        let listeners = Listeners::open(&specs, &previous, inherited, env).map_err(refused)?;
        let listeners = RefCell::new(listeners);
        let cycle = Cycle {
            settings,
            engines,
            zones,
            metrics,
            fleet,
            secrets: RefCell::default(),
            logs,
            stats: self.lasting.stats.clone(),
            files,
            log,
            error_log_file,
            sinks,
            listeners,
        };
        if let Some(running) = running
            && let Err(error) = pidfile::take_over(&running.settings.pid, &cycle.settings.pid)
        {
            let refused = self.report(&cycle.log, &error, &[]);
            cycle.listeners.take().abandon();
            return Err(refused);
        }
        if purpose != Purpose::Test {
            cycle.commit(running);
        }
        Ok(cycle)
    }

    /// Tells why a configuration is refused: in the log, and on a terminal with the line and a
    /// likely word.
    #[cold]
    fn report(&self, log: &Log, error: &ConfError, files: &[SourceFile]) -> Refused {
        self.report_one(log, error, files);
        if let Some(cause) = &error.cause {
            self.report_one(log, cause, files);
        }
        if self.paths.prefix_absent
            && error.message.contains(&format!("\"{}", self.paths.prefix.display()))
        {
            let prefix = self.paths.prefix.display();
            eprintln!(
                "weir: relative paths start from \"{prefix}\", which does not exist: -p names \
                 another folder, -c a file"
            );
        }
        Refused
    }

    fn report_one(&self, log: &Log, error: &ConfError, files: &[SourceFile]) {
        log!(log, Level::Emerg, None, "{error}");
        let text = error.render_terminal(files);
        let after_message = text.split_once('\n').map_or("", |(_, rest)| rest);
        // A master in the background has no terminal, whatever standard error was.
        if std::io::stderr().is_terminal() && !after_message.is_empty() {
            match paint::stderr() {
                true => eprint!("{}", paint::snippet(after_message)),
                false => eprint!("{after_message}"),
            }
        }
    }
}

impl Cycle {
    /// Whether there is work for a helper.
    pub fn wants(&self, helper: Helper) -> bool {
        match helper {
            Helper::SharedState => self.fleet.has_work(),
            _ => self.engines.iter().any(|engine| engine.wants(helper)),
        }
    }

    /// In a helper, while it has the privileges of the master: reads what its user may not.
    pub fn prepare_help(&self, helper: Helper) {
        self.engines.iter().for_each(|engine| engine.prepare_help(helper));
        if helper == Helper::SharedState
            && let Some(settings) = self.fleet.settings()
        {
            match fleet_link::Secrets::read(settings) {
                Ok(secrets) => *self.secrets.borrow_mut() = secrets,
                Err(e) => log!(self.log, Level::Error, None, "\"shared_state\": {e}"),
            }
        }
    }

    /// In a helper: its work.
    pub fn help(&self, helper: Helper, seat: &Seat) -> Vec<Help> {
        let helps = self.engines.iter().filter(|engine| engine.wants(helper));
        let mut helps: Vec<_> = helps.filter_map(|engine| engine.help(helper, seat)).collect();
        if helper == Helper::SharedState {
            let secrets = self.secrets.take();
            helps.push(Box::pin(fleet_link::run(self.fleet.clone(), secrets, self.log.clone())));
        }
        helps
    }

    /// The last steps, which cannot fail.
    fn commit(&self, running: Option<&Cycle>) {
        self.zones.settle();
        self.fleet.begins();
        self.listeners.borrow_mut().configure(&self.log);
        if let Some(running) = running
            && running.settings.lock_file != self.settings.lock_file
        {
            let message = "\"lock_file\" could not be changed, ignored";
            log!(self.log, Level::Emerg, None, "{message}");
        }
        let driver = self.settings.events.driver.name();
        log!(self.log, Level::Notice, None, "using the \"{driver}\" event method");
        let probes = os::probe::Probes::here().describe();
        log!(self.log, Level::Notice, None, "asking the page cache first with {probes}");
        self.settings.check_descriptors(&self.log);
    }

    /// The start is over: messages no longer go to the terminal. Standard error becomes another
    /// name of the error log, unless a log goes to standard error itself.
    pub(crate) fn leave_terminal(&mut self) {
        self.log = Log::new(std::mem::take(&mut self.sinks));
        log::set_default(self.log.clone());
        self.redirect_stderr();
    }

    /// Opens the log files again (USR1).
    pub(crate) fn reopen_logs(&self, owner: Option<u32>) {
        log!(self.log, Level::Notice, None, "reopening logs");
        self.logs.reopen(owner, &self.log);
        self.redirect_stderr();
        self.engines.iter().for_each(|engine| engine.reopened());
    }

    fn redirect_stderr(&self) {
        if !self.logs.uses_stderr() {
            self.error_log_file.redirect_stderr();
        }
    }
}

/// Tells, after a start whose addresses are taken, of a server with the same pid file: it may be
/// the one that has them.
fn refused(purpose: Purpose, pid_file: &Path, log: &Log) -> Refused {
    let runs = |pid: &i32| {
        Path::new("/proc").join(pid.to_string()).exists()
            && crate::signals::other_program(*pid).is_none()
    };
    let pid = pidfile::read(pid_file).ok().filter(runs);
    if let Some(pid) = pid.filter(|_| purpose == Purpose::Start) {
        let server = format!("a server runs already, process {pid} of \"{}\"", pid_file.display());
        let advice =
            "\"weir reload\" has it take over this configuration, \"weir -s quit\" ends it";
        log!(log, Level::Emerg, None, "{server}: {advice}");
    }
    Refused
}
