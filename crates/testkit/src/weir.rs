//! The server, running on a [`Site`].

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::group::{Group, adopt_orphans, pidfd, wait_for_one};
use crate::notices::{Missing, Notices, is_readable, wait_readable};
use crate::{Conn, Driver, PATIENCE, Response, Site, procfs, wait_for};

/// A running server. Dropping it stops it and checks for alerts, panics and processes.
pub struct Weir {
    pub(crate) site: Site,
    server: Server,
}

/// The processes of one start.
struct Server {
    /// The master leads the group.
    group: Group,
    /// The master's pidfd, readable once it has ended.
    ended: OwnedFd,
    /// Behind locks, so that a test can share the server with its threads.
    master: Mutex<Master>,
    notices: Mutex<Notices>,
}

/// The master, and its exit status once it was waited for.
struct Master {
    child: Child,
    status: Option<ExitStatus>,
}

/// A lock that a failed test thread has held is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn start(site: &Site) -> Server {
        adopt_orphans();
        let notices = Notices::new();
        let output = fs::File::create(site.prefix().join("logs/stderr.txt"))
            .expect("create the file for the server's output");
        let copy = output.try_clone().expect("share the file for the server's output");
        let mut command = site.command();
        command
            .args(["-g", &site.foreground])
            .args(&site.arguments)
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(output)
            .env("NOTIFY_SOCKET", notices.address())
            .process_group(0);
        let child = wait_for("a child of another thread to let go of the program's file", || {
            match command.spawn() {
                // A script that was written a moment ago: a child of another thread has the
                // descriptor until it is another program.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
                spawned => Some(spawned),
            }
        })
        .unwrap_or_else(|e| panic!("cannot start {}: {e}", site.binary.display()));
        Server {
            group: Group::of(child.id()),
            // It is not reaped yet, so that its id is its own.
            ended: pidfd(child.id()).expect("the pidfd of a child"),
            master: Mutex::new(Master { child, status: None }),
            notices: Mutex::new(notices),
        }
    }
}

impl Weir {
    pub(crate) fn start(site: Site) -> Self {
        let server = Server::start(&site);
        let weir = Self { site, server };
        weir.wait_until_up();
        weir
    }

    /// Stops the server and starts it again on the same site.
    pub fn restart(&mut self) {
        self.signal("TERM");
        self.start_again();
    }

    /// Kills all of the server's processes, as a power failure does.
    pub fn crash(&mut self) {
        let until = Instant::now() + PATIENCE;
        self.server.group.members().into_iter().for_each(|pid| signal(pid, "KILL"));
        self.wait_for_end();
        // A worker may have been started after the look.
        self.server.group.members().into_iter().for_each(|pid| signal(pid, "KILL"));
        assert!(self.server.group.wait_until_empty(until), "processes live on after SIGKILL");
    }

    /// Starts the server again after its end.
    pub fn start_again(&mut self) {
        self.wait_for_end();
        self.server = Server::start(&self.site);
        self.wait_until_up();
    }

    /// Waits until the server reports that all of its workers serve. Every server that a site
    /// starts does, whatever program it is in.
    fn wait_until_up(&self) {
        let ready = lock(&self.server.notices).wait_until_ready(self.server.ended.as_fd());
        match ready {
            Ok(()) => {}
            Err(Missing::Ended) => {
                let status = self.wait_for_status();
                panic!("the server ended at once ({status}):\n{}", self.all_output());
            }
            Err(Missing::Late) => panic!("it does not serve yet:\n{}", self.all_output()),
        }
    }

    /// The driver under test.
    pub fn driver(&self) -> Driver {
        self.site.driver
    }

    /// The folder it runs in.
    pub fn prefix(&self) -> &Path {
        self.site.prefix()
    }

    /// The number behind `%PORTn%`, which the configuration must name.
    pub fn port(&self, n: usize) -> u16 {
        let port = self.site.ports.get(n);
        port.unwrap_or_else(|| panic!("no %PORT{n}% in the configuration")).number()
    }

    /// The master's process id.
    pub fn pid(&self) -> u32 {
        self.server.group.id()
    }

    /// The workers' process ids; in a server without a master, its own.
    pub fn workers(&self) -> Vec<u32> {
        if self.site.is_without_master {
            return vec![self.pid()];
        }
        let is_worker = |pid: u32| procfs::command_line(pid).contains("worker process");
        self.server.group.members().into_iter().filter(|&pid| is_worker(pid)).collect()
    }

    /// Every process of the server's that runs, the master included.
    pub fn processes(&self) -> Vec<u32> {
        self.server.group.members()
    }

    /// The children of a process.
    pub fn children_of(&self, pid: u32) -> Vec<u32> {
        let runs = |pid: &u32| procfs::process(*pid).is_some_and(|process| !process.zombie);
        procfs::children(pid).into_iter().filter(runs).collect()
    }

    /// The number of a process's descriptors.
    pub fn open_descriptors(&self, pid: u32) -> usize {
        procfs::open_count(pid)
    }

    /// Connects to `%PORT0%`.
    pub fn connect(&self) -> Conn {
        Conn::tcp(self.port(0))
    }

    /// `GET` on a connection of its own.
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, "")
    }

    /// A request with extra header lines (each with its line break) on a connection of its own.
    pub fn request(&self, method: &str, path: &str, headers: &str) -> Response {
        let mut conn = self.connect();
        conn.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        ));
        conn.response_to(method)
    }

    /// Checks the statuses of requests by method and path.
    #[track_caller]
    pub fn answers_with(&self, statuses: &[(&str, &str, u16)]) {
        for &(method, path, status) in statuses {
            assert_eq!(self.request(method, path, "").status, status, "{method} {path}");
        }
    }

    /// Checks the bodies of responses by path; their status is 200.
    #[track_caller]
    pub fn gives(&self, bodies: &[(&str, &str)]) {
        for &(path, body) in bodies {
            let r = self.get(path);
            assert_eq!((r.status, r.text().as_str()), (200, body), "{path}");
        }
    }

    /// Sends bytes on a connection of its own and gives all that comes until the server closes.
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let mut conn = self.connect();
        conn.send(bytes);
        conn.read_to_end()
    }

    /// Sends a signal to the master, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        lock(&self.server.notices).discard();
        signal(self.pid(), name);
    }

    /// Sends a signal to any process of the server's.
    pub fn signal_to(&self, pid: u32, name: &str) {
        assert!(self.server.group.has(pid), "{pid} is no process of this server's");
        signal(pid, name);
    }

    /// Replaces the configuration (without telling the server).
    pub fn set_config(&mut self, text: &str) {
        self.site.set_config(text);
    }

    /// Writes a file of the site's.
    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        self.site.write(path, bytes.as_ref());
    }

    /// Reloads and waits until other workers have taken over; the old ones may still be leaving.
    pub fn reload(&self) {
        let before = self.workers();
        let notices = lock(&self.server.notices);
        notices.discard();
        let since_usec = os::clock::monotonic_usec();
        signal(self.pid(), "HUP");
        let reloaded = notices.wait_until_reloaded(self.server.ended.as_fd(), since_usec);
        drop(notices);
        if let Err(e) = reloaded {
            panic!("{e:?}: the reload has no result:\n{}", self.all_output());
        }
        let is_new = |pid: &u32| !before.contains(pid);
        assert!(self.workers().iter().any(is_new), "no new worker:\n{}", self.all_output());
    }

    /// The paths of all files below a folder of the site, in no order.
    pub fn files_below(&self, folder: &str) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders = vec![self.prefix().join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    _ => files.push(entry.path().to_string_lossy().into_owned()),
                }
            }
        }
        files
    }

    /// The same of a cache's folder, without the files of its index.
    pub fn cached_files(&self, folder: &str) -> Vec<String> {
        let mut files = self.files_below(folder);
        files.retain(|path| !path.contains("/.weir.index/"));
        files
    }

    /// Waits until none of these workers is left.
    pub fn wait_until_left(&self, workers: &[u32]) {
        let until = Instant::now() + PATIENCE;
        for &pid in workers {
            while self.server.group.has(pid) {
                assert!(Instant::now() < until, "the old worker {pid} does not leave");
                wait_for_one(&[pid], until);
            }
        }
    }

    /// Waits for the master's own end, after a signal.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        self.wait_for_status()
    }

    fn wait_for_status(&self) -> ExitStatus {
        let status = self.status_until(Instant::now() + PATIENCE);
        status.unwrap_or_else(|| panic!("waited {PATIENCE:?} for the server's end"))
    }

    /// The master's exit status, if it ends until then.
    fn status_until(&self, until: Instant) -> Option<ExitStatus> {
        while !is_readable(self.server.ended.as_fd()) && Instant::now() < until {
            wait_readable(&[self.server.ended.as_fd()], until);
        }
        let mut master = lock(&self.server.master);
        if master.status.is_none() && is_readable(self.server.ended.as_fd()) {
            master.status = Some(master.child.wait().expect("wait for the server"));
        }
        master.status
    }

    /// Ends the server with a signal and waits until nothing of it runs.
    pub(crate) fn stop(&self, name: &str) {
        signal(self.pid(), name);
        self.wait_for_status();
        let gone = self.server.group.wait_until_empty(Instant::now() + PATIENCE);
        assert!(gone, "processes {:?} live on after SIG{name}", self.server.group.members());
    }

    /// Kills the remaining processes and returns their ids.
    fn clear_away(&self) -> Vec<u32> {
        /// Workers may outlive their master by a moment.
        const MOMENT: Duration = Duration::from_secs(3);

        if lock(&self.server.master).status.is_none() {
            signal(self.pid(), "TERM");
        }
        if self.status_until(Instant::now() + PATIENCE).is_none() {
            let left = self.left_behind();
            left.iter().for_each(|&pid| signal(pid, "KILL"));
            self.status_until(Instant::now() + PATIENCE);
            return left;
        }
        let until = Instant::now() + MOMENT;
        self.server.group.wait_until_empty(until);
        let mut left = self.left_behind();
        while !left.is_empty() && Instant::now() < until {
            // A process that another thread starts holds our files until it runs its program.
            wait_for_one(&left, until.min(Instant::now() + Duration::from_millis(20)));
            left = self.left_behind();
        }
        left.iter().for_each(|&pid| signal(pid, "KILL"));
        left
    }

    /// Processes of the group, or with files of the prefix open (those that left the group).
    fn left_behind(&self) -> Vec<u32> {
        let mut left = self.server.group.members();
        left.extend(self.server.group.strays(self.prefix()));
        left.sort_unstable();
        left.dedup();
        left
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let left = self.clear_away();
        if std::thread::panicking() {
            let log = self.all_output();
            let from = log.len().saturating_sub(4000);
            let tail = String::from_utf8_lossy(&log.as_bytes()[from..]).into_owned();
            eprintln!("the server's log, at its end:\n{tail}");
            return;
        }
        assert!(left.is_empty(), "processes {left:?} outlived the server's stop");
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "the error log complains:\n{}", complaints.join("\n"));
    }
}

/// Sends a signal to a process that a test has started, by its name without `SIG`; one that is
/// gone is no fault.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let signal = match name {
        "ALRM" => Signal::ALARM,
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "IO" => Signal::IO,
        "KILL" => Signal::KILL,
        "QUIT" => Signal::QUIT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "WINCH" => Signal::WINCH,
        _ => panic!("no test sends SIG{name}"),
    };
    let pid = procfs::id(pid);
    match kill_process(pid, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(e) => panic!("SIG{name} to {pid:?}: {e}"),
    }
}
