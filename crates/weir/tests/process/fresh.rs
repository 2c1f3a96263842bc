//! The server on a machine that knows nothing of it: a root folder with the binary, its libraries
//! and a configuration, and without the built-in prefix, accounts, `/proc` and `/dev`.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{BINARY, is_root, outcome};
use testkit::{Conn, Driver, Folder, Port, each_driver, signal, wait_for, wait_until};

/// The user to run as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Nobody,
}

/// Such a root folder; removed at the end.
struct Machine {
    root: Folder,
    port: Port,
    driver: Driver,
}

impl Machine {
    /// `None` where the test may not change its root folder.
    fn new(name: &str, driver: Driver) -> Option<Machine> {
        let root = Folder::new(&format!("{name}-{}", driver.name()));
        let machine = Machine { root, port: Port::reserve(), driver };
        for folder in ["etc", "var", "run", "usr/local"] {
            machine.folder(folder, 0o755);
        }
        if fs::hard_link(BINARY, machine.path("weir")).is_err() {
            testkit::copy_program(Path::new(BINARY), &machine.path("weir"));
        }
        let libraries = Command::new("ldd").arg(BINARY).output().expect("ldd runs");
        let text = String::from_utf8_lossy(&libraries.stdout).into_owned();
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = machine.path(library);
            fs::create_dir_all(to.parent().expect("it has a folder")).expect("make it");
            testkit::copy_program(Path::new(library), &to);
        }
        if !is_root() {
            // Of the user namespace that the test makes; without it the server takes its root for
            // the machine's.
            machine.folder("proc/self", 0o755);
            for map in ["uid_map", "gid_map"] {
                fs::write(machine.path("proc/self").join(map), "0 1000 1\n").expect("write");
            }
        }
        let can = machine.command(User::Root).arg("-v").output();
        can.is_ok_and(|output| output.status.success()).then_some(machine)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn folder(&self, path: &str, mode: u32) {
        fs::create_dir_all(self.path(path)).expect("make a folder");
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("chmod");
    }

    /// A configuration that says nothing of places.
    fn configure(&self, path: &str, main: &str) {
        let (port, driver) = (self.port.number(), self.driver.name());
        let text = format!(
            "{main}\nevents {{ use {driver}; }}\nhttp {{ server {{ listen 127.0.0.1:{port};\n\
             location = / {{ return 200 ok; }}\n\
             location /body {{ client_body_in_file_only clean; proxy_pass http://127.0.0.1:1; }}\n\
             }} }}\n"
        );
        fs::write(self.path(path), text).expect("write the configuration");
    }

    fn command(&self, user: User) -> Command {
        let mut command = match (is_root(), user) {
            (true, _) => Command::new("chroot"),
            (false, _) => Command::new("unshare"),
        };
        if !is_root() {
            command.args(["-r", "chroot"]);
        }
        if user == User::Nobody {
            command.arg("--userspec=65534:65534");
        }
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg(self.root.path()).arg("/weir");
        command
    }

    fn run(&self, user: User, args: &[&str]) -> Output {
        self.command(user).args(args).output().expect("run weir")
    }

    fn start(&self, user: User, args: &[&str]) -> Running {
        let child = self.command(user).args(args).stderr(Stdio::piped()).spawn();
        let mut running = Running { child: child.expect("start weir") };
        wait_for("the server to listen", || {
            let ended = running.child.try_wait().expect("ask for its end");
            assert!(ended.is_none(), "it ended: {}", running.said());
            TcpStream::connect(("127.0.0.1", self.port.number())).ok()
        });
        running
    }

    fn request(&self, head: &str) -> testkit::Response {
        let mut conn = Conn::tcp(self.port.number());
        conn.send(head);
        conn.response()
    }

    fn is_served(&self) {
        let r = self.request("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!((r.status, r.text().as_str()), (200, "ok"));
    }

    /// The status of a request whose body goes to a file, and then to nobody.
    fn body_status(&self) -> u16 {
        let head = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n";
        self.request(&format!("{head}\r\nabc")).status
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        let mut all = BTreeSet::new();
        let mut folders = vec![self.root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("read a folder").flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
                let path = entry.path();
                all.insert(path.strip_prefix(self.root.path()).expect("below the root").to_owned());
            }
        }
        all
    }

    /// What a test of the configuration says when all is well, and only that.
    fn tests_well(&self, user: User, args: &[&str], file: &str) {
        let before = self.files();
        let output = outcome(&self.run(user, args));
        let expected = format!(
            "weir: the configuration file {file} syntax is ok\n\
             weir: configuration file {file} test is successful\n"
        );
        assert_eq!(output, (Some(0), expected));
        assert_eq!(self.files(), before, "a test makes nothing");
    }
}

/// A server in the foreground.
struct Running {
    child: Child,
}

impl Running {
    fn said(&mut self) -> String {
        let stderr = self.child.stderr.take().expect("it is piped");
        std::io::read_to_string(stderr).unwrap_or_default()
    }

    /// Waits for the end, and gives what was written to standard error.
    fn end(mut self) -> String {
        let child = &mut self.child;
        let status = wait_for("the server's end", || child.try_wait().expect("ask for its end"));
        let said = self.said();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

fn each_machine(name: &str, test: impl Fn(Machine) + Sync) {
    each_driver(|driver| match Machine::new(name, driver) {
        Some(machine) => test(machine),
        None => eprintln!("not tried: this user may not change the root folder"),
    });
}

const CONF: &str = "/etc/site.conf";

#[test]
fn root_has_the_system_s_folders() {
    each_machine("root", |machine| {
        machine.configure(CONF, "daemon off;");
        machine.tests_well(User::Root, &["-t", "-c", CONF], CONF);
        let running = machine.start(User::Root, &["-c", CONF]);
        machine.is_served();
        assert_eq!(machine.body_status(), 502, "the body was written");
        for path in ["run/weir/nginx.pid", "var/log/weir/access.log"] {
            assert!(machine.path(path).is_file(), "{path}");
        }
        assert!(machine.path("var/lib/weir/client_body_temp").is_dir());
        assert!(!machine.path("usr/local/weir").exists());
        let quit = outcome(&machine.run(User::Root, &["-c", CONF, "-s", "quit"]));
        assert_eq!(quit, (Some(0), String::new()));
        let said = running.end();
        assert!(said.lines().all(|line| line.contains("connect() failed")), "{said}");
    });
}

#[test]
fn in_the_background_there_is_an_error_log() {
    each_machine("background", |machine| {
        // Going to the background takes /dev/null.
        machine.folder("dev", 0o755);
        fs::write(machine.path("dev/null"), "").expect("stand in for the device");
        machine.configure(CONF, "");
        let started = machine.command(User::Root).args(["-c", CONF]).stderr(Stdio::null()).status();
        assert!(started.expect("start weir").success());
        machine.is_served();
        assert_eq!(machine.body_status(), 502);
        let log = machine.path("var/log/weir/error.log");
        wait_until("the failure in the log", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("connect() failed"))
        });
        assert_eq!(outcome(&machine.run(User::Root, &["-c", CONF, "-s", "stop"])).0, Some(0));
        wait_until("the end", || !machine.path("run/weir/nginx.pid").exists());
    });
}

#[test]
fn others_have_a_folder_of_their_own() {
    each_machine("nobody", |machine| {
        if !is_root() {
            return;
        }
        machine.folder("tmp", 0o1777);
        machine.configure(CONF, "daemon off;");
        machine.tests_well(User::Nobody, &["-t", "-c", CONF], CONF);
        let running = machine.start(User::Nobody, &["-c", CONF]);
        machine.is_served();
        assert_eq!(machine.body_status(), 502, "the body was written");
        for path in ["nginx.pid", "access.log", "client_body_temp"] {
            assert!(machine.path("tmp/weir-65534").join(path).exists(), "{path}");
        }
        let quit = outcome(&machine.run(User::Nobody, &["-c", CONF, "-s", "quit"]));
        assert_eq!(quit, (Some(0), String::new()));
        running.end();
    });
}

#[test]
fn without_any_folder_it_serves_all_the_same() {
    each_machine("nowhere", |machine| {
        if !is_root() {
            return;
        }
        machine.configure(CONF, "daemon off;");
        machine.tests_well(User::Nobody, &["-t", "-c", CONF], CONF);
        let before = machine.files();
        let mut running = machine.start(User::Nobody, &["-c", CONF]);
        machine.is_served();
        assert_eq!(machine.body_status(), 500, "only what needs a file fails");
        assert_eq!(machine.files(), before);
        let (code, text) = outcome(&machine.run(User::Nobody, &["-c", CONF, "-s", "quit"]));
        assert_eq!(code, Some(1));
        assert!(text.contains("there is no pid file"), "{text}");
        signal(running.child.id(), "QUIT");
        let _ = running.child.wait();
    });
}

#[test]
fn a_prefix_of_root_serves_others_too() {
    each_machine("prefix", |machine| {
        if !is_root() {
            return;
        }
        machine.folder("tmp", 0o1777);
        machine.folder("usr/local/weir/conf", 0o755);
        machine.folder("usr/local/weir/logs", 0o755);
        let file = "/usr/local/weir/conf/nginx.conf";
        machine.configure(file, "daemon off;");
        machine.tests_well(User::Nobody, &["-t"], file);
        let running = machine.start(User::Nobody, &[]);
        machine.is_served();
        assert!(machine.path("tmp/weir-65534/nginx.pid").is_file());
        assert_eq!(outcome(&machine.run(User::Nobody, &["-s", "quit"])).0, Some(0));
        running.end();
        // For root the same prefix is nginx's.
        let running = machine.start(User::Root, &[]);
        machine.is_served();
        assert!(machine.path("usr/local/weir/logs/nginx.pid").is_file());
        assert!(machine.path("usr/local/weir/client_body_temp").is_dir());
        assert_eq!(outcome(&machine.run(User::Root, &["-s", "quit"])).0, Some(0));
        running.end();
    });
}

#[test]
fn a_path_that_is_written_fails_with_a_hint() {
    let Some(machine) = Machine::new("written", Driver::usual()) else { return };
    machine.configure(CONF, "daemon off; pid logs/own.pid;");
    let (code, text) = outcome(&machine.run(User::Root, &["-t", "-c", CONF]));
    assert_eq!(code, Some(1));
    let failed = "[emerg] open() \"/usr/local/weir/logs/own.pid\" failed (2: No such file";
    assert!(text.contains(failed), "{text}");
    assert!(text.contains("relative paths start from \"/usr/local/weir/\""), "{text}");
    // Files that include names start from the file's own folder.
    machine.configure("/etc/main.conf", "daemon off;");
    fs::write(machine.path("etc/site.conf"), "include main.conf;").expect("write a file");
    machine.tests_well(User::Root, &["-t", "-c", CONF], CONF);
}
