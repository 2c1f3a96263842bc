//! The server, running on a [`Site`].

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::listeners::listeners;
use crate::{Conn, Driver, PATIENCE, Response, Site, procfs, wait_for};

/// A running server. Dropping it stops it and checks for alerts, panics and processes.
pub struct Weir {
    site: Site,
    master: Child,
    /// The process group, the master's id: children stay in it unless they make their own.
    group: u32,
    stopped: Option<ExitStatus>,
}

impl Weir {
    pub(crate) fn start(site: Site) -> Self {
        let master = Self::spawn(&site);
        let group = master.id();
        let mut weir = Self { site, master, group, stopped: None };
        weir.wait_until_up();
        weir
    }

    fn spawn(site: &Site) -> Child {
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
            .process_group(0);
        wait_for("a child that another thread makes to let go of the program's file", || {
            match command.spawn() {
                // A script that was written a moment ago: a child of another thread has the
                // descriptor until it is another program.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
                spawned => Some(spawned),
            }
        })
        .unwrap_or_else(|e| panic!("cannot start {}: {e}", site.binary.display()))
    }

    /// Stops the server and starts it again on the same site.
    pub fn restart(&mut self) {
        self.signal("TERM");
        self.start_again();
    }

    /// Kills all of the server's processes, as a power failure does.
    pub fn crash(&mut self) {
        self.group().into_iter().for_each(|pid| signal(pid, "KILL"));
        self.wait_for_end();
        wait_for("the end of all processes", || self.group().is_empty().then_some(()));
    }

    /// Starts the server again after its end.
    pub fn start_again(&mut self) {
        self.wait_for_end();
        self.master = Self::spawn(&self.site);
        self.group = self.master.id();
        self.stopped = None;
        self.wait_until_up();
    }

    fn wait_until_up(&mut self) {
        let began = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = self.master.try_wait().expect("wait for the server") {
                self.stopped = Some(status);
                panic!("the server ended at once ({status}):\n{}", self.all_output());
            }
            if self.workers().len() >= self.site.workers && self.listens() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no listener yet:\n{}", self.all_output());
            // Many servers may be waited for at once: they need the cores to start.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Whether the server itself listens on all its ports. A listener of another process may be
    /// there for a moment: the one that found the port free lives on in a child that another thread
    /// of the test has forked, until that executes its program.
    fn listens(&self) -> bool {
        let ports = &self.site.listening;
        if ports.is_empty() {
            return true;
        }
        let listening = listeners();
        if !ports.iter().all(|port| listening.iter().any(|l| l.port == *port)) {
            return false;
        }
        let ours: Vec<u64> = self.group().into_iter().flat_map(procfs::sockets).collect();
        let is_ours =
            |port: u16| listening.iter().any(|l| l.port == port && ours.contains(&l.inode));
        ports.iter().all(|&port| is_ours(port))
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
        self.master.id()
    }

    /// The workers' process ids; in a server without a master, its own.
    pub fn workers(&self) -> Vec<u32> {
        if self.site.is_without_master {
            return vec![self.pid()];
        }
        let is_worker = |pid: u32| procfs::command_line(pid).contains("worker process");
        self.group().into_iter().filter(|&pid| is_worker(pid)).collect()
    }

    /// Every process of the server's that runs, the master included.
    pub fn processes(&self) -> Vec<u32> {
        self.group()
    }

    /// The children of a process.
    pub fn children_of(&self, pid: u32) -> Vec<u32> {
        let all = procfs::processes();
        all.into_iter().filter(|p| p.parent == pid && !p.zombie).map(|p| p.pid).collect()
    }

    /// The number of a process's descriptors.
    pub fn open_descriptors(&self, pid: u32) -> usize {
        procfs::open_count(pid)
    }

    fn group(&self) -> Vec<u32> {
        let all = procfs::processes();
        all.into_iter().filter(|p| p.group == self.group && !p.zombie).map(|p| p.pid).collect()
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
        signal(self.pid(), name);
    }

    /// Sends a signal to any process of the server's.
    pub fn signal_to(&self, pid: u32, name: &str) {
        assert!(self.group().contains(&pid), "{pid} is no process of this server's");
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
        self.signal("HUP");
        wait_for("new workers after HUP", || {
            let now = self.workers();
            now.iter().any(|pid| !before.contains(pid)).then_some(())
        });
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

    /// A log's text; empty while it does not exist.
    pub fn log(&self, name: &str) -> String {
        let bytes = fs::read(self.prefix().join("logs").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The error log, once nothing has come to it for a moment: threads write it, and a client can
    /// have its answer before.
    pub fn error_log(&self) -> String {
        self.settled_log("error.log")
    }

    /// The access log, as [`Weir::error_log`].
    pub fn access_log(&self) -> String {
        self.settled_log("access.log")
    }

    fn settled_log(&self, name: &str) -> String {
        /// Looks at which nothing is new: a thread may wait for a processor.
        const QUIET: usize = 3;

        let (mut text, mut same) = (self.log(name), 0);
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.log(name);
            same = if now == text { same + 1 } else { 0 };
            if same == QUIET {
                break;
            }
            text = now;
        }
        text
    }

    /// Waits until a log holds a line with the text, and gives that line.
    pub fn wait_for_log(&self, name: &str, text: &str) -> String {
        let what = format!("{text:?} in {name}");
        wait_for(&what, || {
            let log = self.log(name);
            // A line still being written has no break yet.
            let whole = &log[..log.rfind('\n').map_or(0, |at| at + 1)];
            whole.lines().find(|line| line.contains(text)).map(str::to_string)
        })
    }

    /// Waits until a log has so many lines and nothing comes to it for a moment; gives them.
    pub fn wait_for_lines(&self, name: &str, lines: usize) -> String {
        wait_for(&format!("{lines} lines in {name}"), || {
            let log = self.settled_log(name);
            (log.lines().count() == lines).then_some(log)
        })
    }

    /// Waits until none of these workers is left.
    pub fn wait_until_left(&self, workers: &[u32]) {
        wait_for("the end of the old workers", || {
            self.workers().iter().all(|pid| !workers.contains(pid)).then_some(())
        });
    }

    /// Waits for the master's own end, after a signal.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        if let Some(status) = self.stopped {
            return status;
        }
        let master = &mut self.master;
        let status = wait_for("the server's end", || master.try_wait().expect("wait for it"));
        self.stopped = Some(status);
        status
    }

    /// Kills the remaining processes and returns their ids.
    fn clear_away(&mut self) -> Vec<u32> {
        if self.stopped.is_none() {
            signal(self.pid(), "TERM");
            let began = Instant::now();
            while self.stopped.is_none() && began.elapsed() < PATIENCE {
                self.stopped = self.master.try_wait().ok().flatten();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        // Workers may outlive their master by a moment.
        let began = Instant::now();
        let mut left = self.left_behind();
        while !left.is_empty() && began.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(5));
            left = self.left_behind();
        }
        for &pid in &left {
            signal(pid, "KILL");
        }
        if self.stopped.is_none() {
            self.stopped = self.master.wait().ok();
        }
        left
    }

    /// Processes of the group, or with files of the prefix open (those that left the group).
    fn left_behind(&self) -> Vec<u32> {
        let (me, prefix) = (std::process::id(), self.prefix());
        procfs::processes()
            .into_iter()
            .filter(|p| !p.zombie && p.pid != me)
            .filter(|p| p.group == self.group || procfs::has_open_below(p.pid, prefix))
            .map(|p| p.pid)
            .collect()
    }

    /// Lines of the logs that no healthy server writes.
    fn complaints(&self) -> Vec<String> {
        let bad = |line: &str| {
            ["[alert]", "[emerg]", "panicked at"].iter().any(|word| line.contains(word))
        };
        let allowed = |line: &str| self.site.allowed.iter().any(|a| holds(line, a));
        self.all_output()
            .lines()
            .filter(|line| bad(line) && !allowed(line))
            .map(str::to_string)
            .collect()
    }

    fn all_output(&self) -> String {
        format!("{}{}", self.error_log(), self.log("stderr.txt"))
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

/// Whether a line holds the parts of a text between its `*`, one behind the other.
fn holds(line: &str, text: &str) -> bool {
    let mut parts = text.split('*');
    parts.try_fold(line, |rest, part| Some(rest.split_once(part)?.1)).is_some()
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
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    match kill_process(pid, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(e) => panic!("SIG{name} to {pid:?}: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn a_star_stands_for_anything() {
        let line = "[alert] 7#7: acme process 47 exited on signal 9";
        for text in ["acme process", "acme process * exited on signal 9", "*"] {
            assert!(holds(line, text), "{text}");
        }
        for text in ["worker process", "worker process * signal 9", "signal 9*acme process"] {
            assert!(!holds(line, text), "{text}");
        }
    }
}
