//! A folder with a configuration, ready to be served.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Driver, Folder, PATIENCE, Port, Weir, bind_datagrams};

/// Where a test's server lives: a prefix of its own with `conf`, `logs` and `html`.
///
/// Texts given as configuration may hold `%PORT0%` to `%PORT9%` (free ports, the same number each
/// time), `%PREFIX%` (the folder) and `%DRIVER%`.
pub struct Site {
    pub(crate) binary: PathBuf,
    pub(crate) driver: Driver,
    pub(crate) prefix: Folder,
    pub(crate) ports: Vec<Port>,
    pub(crate) arguments: Vec<String>,
    pub(crate) allowed: Vec<String>,
    /// Whether its one process serves: with `master_process off`.
    pub(crate) is_without_master: bool,
    /// The argument of `-g`: the foreground, and settings that the configuration lacks.
    pub(crate) foreground: String,
    configured: bool,
}

/// The folder of a site with those that every site has.
fn prefix() -> Folder {
    let folder = Folder::new("test");
    for below in ["conf", "logs", "html"] {
        fs::create_dir(folder.join(below)).expect("create a folder of the site's");
    }
    // Workers may run as another user.
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("open the test's folder to the workers");
    folder
}

impl Site {
    /// A site for a binary: `env!("CARGO_BIN_EXE_weir")` in tests of the binary's own crate.
    pub fn new(binary: impl Into<PathBuf>, driver: Driver) -> Self {
        Self {
            binary: binary.into(),
            driver,
            prefix: prefix(),
            ports: Vec::new(),
            arguments: Vec::new(),
            allowed: Vec::new(),
            is_without_master: false,
            foreground: String::new(),
            configured: false,
        }
    }

    /// Starts another program in the binary's place, such as a script that runs it.
    pub fn with_binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = binary.into();
        self
    }

    /// Writes a file of the site's, with its folders.
    pub fn file(self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.write(path, bytes.as_ref());
        self
    }

    /// Sets the configuration, whole: an `events` block without `use` gets the driver, a missing
    /// one is added; without its own `pid` and `error_log` it gets `logs/weir.pid` and
    /// `logs/error.log` at level `info`.
    pub fn config(mut self, text: &str) -> Self {
        self.set_config(text);
        self.configured = true;
        self
    }

    /// Sets a configuration with one worker around the contents of an `http` block.
    pub fn http(self, contents: &str) -> Self {
        let log = "access_log logs/access.log;";
        let http = format!("http {{\n{log}\n{contents}\n}}\n");
        self.config(&format!("worker_processes 1;\nevents {{}}\n{http}"))
    }

    /// Sets a configuration with one worker around the contents of a `stream` block.
    pub fn stream(self, contents: &str) -> Self {
        self.config(&format!("worker_processes 1;\nevents {{}}\nstream {{\n{contents}\n}}\n"))
    }

    /// Adds an argument to the command line.
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(self.expand(argument));
        self
    }

    /// Lets lines of the error log that hold this text be alerts or worse; a `*` in it stands for
    /// anything.
    pub fn allow(mut self, text: &str) -> Self {
        self.allowed.push(text.to_string());
        self
    }

    /// The folder.
    pub fn prefix(&self) -> &Path {
        self.prefix.path()
    }

    /// The number behind `%PORTn%`.
    pub fn port(&mut self, n: usize) -> u16 {
        while self.ports.len() <= n {
            self.ports.push(Port::reserve());
        }
        self.ports[n].number()
    }

    /// The same of a port that the configuration names.
    pub(crate) fn known_port(&self, n: usize) -> u16 {
        self.ports[n].number()
    }

    /// A receiver of datagrams (a syslog server, say) at the port that `%PORTn%` stands for.
    pub fn datagrams(&mut self, n: usize) -> UdpSocket {
        let socket = bind_datagrams(self.port(n));
        socket.set_read_timeout(Some(PATIENCE)).unwrap_or_else(|e| panic!("no time limit: {e}"));
        socket
    }

    /// Runs the binary on this site with these arguments alone (`-t`, say) and waits for its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command()
            .args(arguments)
            .output()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", self.binary.display()))
    }

    /// Checks that `-t` refuses the configuration with a message that has this text, and gives all
    /// of the message.
    #[track_caller]
    pub fn is_refused(&self, message: &str) -> String {
        let output = self.run(&["-t"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(message), "no \"{message}\" in {told}");
        told
    }

    /// Starts the server in the foreground and waits until all of its workers serve.
    pub fn start(self) -> Weir {
        assert!(self.configured, "a site needs config() or http() before start()");
        Weir::start(self)
    }

    /// The binary with its prefix, configuration and first error log.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("-p").arg(self.prefix()).args(["-c", "conf/weir.conf"]);
        command.args(["-e", "logs/error.log"]);
        command
    }

    pub(crate) fn set_config(&mut self, text: &str) {
        for n in (0..10).filter(|n| text.contains(&format!("%PORT{n}%"))) {
            self.port(n);
        }
        let text = with_driver(&self.expand(text));
        let text = text.replace("%DRIVER%", self.driver.name());
        self.is_without_master = is_without_master(&text);
        self.foreground = "daemon off;".to_string();
        for (name, value) in [("pid", "logs/weir.pid"), ("error_log", "logs/error.log info")] {
            if !has_directive(&text, name) {
                self.foreground.push_str(&format!(" {name} {value};"));
            }
        }
        self.write("conf/weir.conf", text.as_bytes());
    }

    fn expand(&self, text: &str) -> String {
        let mut text = text.replace("%PREFIX%", &self.prefix().to_string_lossy());
        for (n, port) in self.ports.iter().enumerate() {
            text = text.replace(&format!("%PORT{n}%"), &port.number().to_string());
        }
        text
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.prefix().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("create a folder of the test's");
        }
        fs::write(&path, bytes).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
    }
}

/// Whether a directive of that name stands anywhere in the text.
fn has_directive(text: &str, name: &str) -> bool {
    argument(text, name).is_some()
}

/// The first argument of the first directive of that name, empty where it has none.
fn argument<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split([';', '{', '}']).find_map(|directive| {
        let mut words = directive.split_whitespace();
        (words.next() == Some(name)).then(|| words.next().unwrap_or_default())
    })
}

fn is_without_master(text: &str) -> bool {
    argument(text, "master_process") == Some("off")
}

/// Puts `use %DRIVER%;` into the events block, unless it chooses for itself.
fn with_driver(text: &str) -> String {
    if has_directive(text, "use") {
        return text.to_string();
    }
    match text.find("events").and_then(|at| text[at..].find('{').map(|brace| at + brace + 1)) {
        Some(inside) => format!("{} use %DRIVER%; {}", &text[..inside], &text[inside..]),
        None => format!("events {{ use %DRIVER%; }}\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_driver;

    #[test]
    fn the_driver_is_put_where_it_belongs() {
        assert_eq!(with_driver("events { x; }"), "events { use %DRIVER%;  x; }");
        assert_eq!(with_driver("http {}"), "events { use %DRIVER%; }\nhttp {}");
        assert_eq!(with_driver("events { use poll; }"), "events { use poll; }");
    }
}
