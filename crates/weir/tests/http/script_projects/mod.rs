//! Public projects of njs scripts, unchanged, with their own tests where they have some.
//!
//! `WEIR_SCRIPT_PROJECTS` names a folder; each test is skipped without what it needs of it:
//!
//! | below the folder | what |
//! | --- | --- |
//! | `njs-examples`, `nginx-s3-gateway`, `nginx-openid-connect`, `nginx-saml` | the projects |
//! | `nginx-tests/lib` | the Perl library of nginx's tests, for `nginx-saml` |
//! | `s3rver/node_modules` | the npm packages `s3rver`, `aws4` and `aws-sign2` |
//!
//! `nginx-saml` wants Perl's `XML::LibXML`, `Crypt::OpenSSL::RSA`, `Crypt::OpenSSL::X509` and
//! `DateTime`.
//!
//! The first two listen at fixed ports and read `/etc/nginx`, so their tests run again in
//! namespaces of their own (`unshare`).

mod examples;
mod s3;
mod suites;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{Folder, built_binary, wait_until};

const PROJECTS: &str = "WEIR_SCRIPT_PROJECTS";

/// Set in a test that runs in namespaces of its own: the folder that is its `/etc` and `/var`.
const INSIDE: &str = "WEIR_SCRIPT_PROJECTS_INSIDE";

/// The folders of these names, or nothing, which is said.
fn projects<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let Some(folder) = std::env::var_os(PROJECTS).map(PathBuf::from) else {
        eprintln!("SKIPPED: {PROJECTS} names no folder");
        return None;
    };
    let paths = names.map(|name| folder.join(name));
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        eprintln!("SKIPPED: {} is missing", missing.display());
        return None;
    }
    Some(paths)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Files of the system that programs read.
const ETC: &[&str] = &["group", "hosts", "ld.so.cache", "nsswitch.conf", "passwd", "ssl"];

const SETUP: &str = "ip link set lo up
    mount --bind \"$WEIR_SCRIPT_PROJECTS_INSIDE/etc\" /etc
    mount --bind \"$WEIR_SCRIPT_PROJECTS_INSIDE/var\" /var
    exec \"$@\"";

/// Runs the test of that name again in a network of its own, with `/etc` and `/var` of its own,
/// where `inner` is called.
fn in_namespaces(test: &str, inner: impl Fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return inner();
    }
    let folder = Folder::new("projects");
    for name in ETC {
        let from = Path::new("/etc").join(name);
        let to = folder.join("etc");
        fs::create_dir_all(&to).unwrap();
        if from.exists() {
            run(Command::new("cp").arg("-aL").args([&from, &to]));
        }
    }
    // Users other than root do not exist in a namespace that an ordinary user makes.
    for (name, line) in [
        ("passwd", "nginx:x:0:0::/:/bin/false\n"),
        ("group", "nginx:x:0:\n"),
        ("hosts", "127.0.0.1 bucket-1.s3.test\n"),
    ] {
        let path = folder.join("etc").join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, text + line).unwrap();
    }
    for path in ["etc/nginx", "var/log/nginx", "var/cache/nginx", "var/run", "var/tmp"] {
        fs::create_dir_all(folder.join(path)).unwrap();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-ec", SETUP, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, folder.path());
    run(&mut command);
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// What a shell prints.
fn sh(text: &str, folder: &Path) -> String {
    let output = Command::new("bash").args(["-c", text]).current_dir(folder).output().unwrap();
    let mut all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.push_str(&String::from_utf8_lossy(&output.stderr));
    all
}

/// A server with a configuration as it stands.
struct Server {
    process: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it, and waits until it listens at the port. Its output and error log are one file.
    fn start(conf: &Path, env: &[(&str, &str)], folder: &Path, port: u16) -> Server {
        let log = folder.join("output.log");
        let output = fs::File::create(&log).unwrap();
        fs::create_dir_all(folder.join("logs")).unwrap();
        let mut command = Command::new(built_binary());
        command.arg("-p").arg(folder).arg("-c").arg(conf).arg("-e").arg(&log);
        command.args(["-g", "daemon off;"]).envs(env.iter().copied()).current_dir(folder);
        command.stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output);
        let mut server = Server { process: command.spawn().unwrap(), log };
        wait_until("the server listens", || {
            if let Some(status) = server.process.try_wait().unwrap() {
                panic!("{} {status}: {}", conf.display(), server.log());
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        testkit::signal(self.process.id(), "TERM");
        let _ = self.process.wait();
    }
}
