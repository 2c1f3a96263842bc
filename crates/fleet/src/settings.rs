//! `shared_state URL [prefix=NAME] [interval=TIME] [timeout=TIME] [sentinel=NAME|cluster] …`

use std::path::PathBuf;

use conf::{ConfError, Node, Word, value, warn};

/// The address of an engine, or of a sentinel, or of a node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// How the engine is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It is the one address.
    Single,
    /// The addresses are sentinels, which know the primary of that name.
    Sentinel(String),
    /// The addresses are nodes of a cluster.
    Cluster,
}

/// `shared_state`.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The addresses, one or more.
    pub addresses: Vec<Address>,
    /// How the engine is found.
    pub mode: Mode,
    /// TLS (`rediss:`).
    pub tls: bool,
    /// The name in the engine's access list; empty for its default user.
    pub user: String,
    /// The password in the URL; empty for none.
    pub password: String,
    /// `password_file=`
    pub password_file: Option<PathBuf>,
    /// `ca=`: certificates that sign the engine's; without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// `certificate=` and `key=`: what this server shows.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The number of the database.
    pub database: i64,
    /// The begin of all keys.
    pub prefix: String,
    /// Milliseconds between rounds.
    pub interval_ms: u64,
    /// Milliseconds after which a silent engine is away.
    pub timeout_ms: u64,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

/// The prefix where none is given.
pub const PREFIX: &str = "weir";

const INTERVAL_MS: u64 = 100;
const TIMEOUT_MS: u64 = 1_000;
/// Less would keep an engine and a processor busy with rounds.
const INTERVAL_MIN_MS: u64 = 10;
const INTERVAL_MAX_MS: u64 = 10_000;

fn invalid(word: &Word, what: &str) -> ConfError {
    // The word may hold a password.
    ConfError::at(word, format!("invalid {what} in \"shared_state\""))
}

impl Settings {
    /// Reads the directive. Paths of files stay as written.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(n: &Node) -> Result<Settings, ConfError> {
        let url = n.arg(0)?;
        let mut settings = parse_url(url)?;
        let (mut certificate, mut key) = (None, None);
        for word in &n.args[1..] {
            let text = word.lossy();
            let (name, value) = text.split_once('=').unwrap_or((&*text, ""));
            let path = || match value {
                "" => Err(invalid(word, name)),
                path => Ok(PathBuf::from(path)),
            };
            let time = |least: u64, most: u64| {
                let ms = value::parse_msec(value.as_bytes());
                ms.filter(|ms| (least..=most).contains(ms)).ok_or_else(|| invalid(word, name))
            };
            match name {
                "prefix" => settings.prefix = prefix(word, value)?,
                "interval" => settings.interval_ms = time(INTERVAL_MIN_MS, INTERVAL_MAX_MS)?,
                "timeout" => settings.timeout_ms = time(1, 60_000)?,
                "sentinel" if !value.is_empty() && settings.mode == Mode::Single => {
                    settings.mode = Mode::Sentinel(value.to_owned());
                }
                "cluster" if text == "cluster" && settings.mode == Mode::Single => {
                    settings.mode = Mode::Cluster;
                }
                "password_file" => settings.password_file = Some(path()?),
                "ca" => settings.ca = Some(path()?),
                "certificate" => certificate = Some(path()?),
                "key" => key = Some(path()?),
                _ => {
                    // Not all of it: there may be a password in it.
                    let shown = text.split(['=', ':']).next().unwrap_or_default();
                    return Err(ConfError::at(word, format!("invalid parameter \"{shown}\"")));
                }
            }
        }
        settings.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let m = "\"certificate\" and \"key\" of \"shared_state\" belong together";
                return Err(ConfError::at(url, m));
            }
        };
        settings.check(url)?;
        Ok(settings)
    }

    fn check(&self, url: &Word) -> Result<(), ConfError> {
        let fail = |m: &str| Err(ConfError::at(url, m));
        if self.addresses.len() > 1 && self.mode == Mode::Single {
            let m = "several addresses in \"shared_state\" need \"sentinel=NAME\" or \"cluster\"";
            return fail(m);
        }
        let is_unix = self.addresses.iter().any(|address| matches!(address, Address::Unix(_)));
        if is_unix && self.mode != Mode::Single {
            return fail("sentinels and clusters have no unix sockets");
        }
        if self.mode == Mode::Cluster && self.database != 0 {
            return fail("a cluster has the database 0 alone");
        }
        if !self.tls && (self.ca.is_some() || self.identity.is_some()) {
            return fail("\"ca\", \"certificate\" and \"key\" of \"shared_state\" need rediss://");
        }
        if !self.password.is_empty() && self.password_file.is_some() {
            return fail("\"shared_state\" has a password in its URL and a \"password_file\"");
        }
        if !self.password.is_empty() && is_readable_by_all(url) {
            let file = url.pos.file.display();
            let told = format!("all users may read \"{file}\" with its password");
            warn(url, format!("{told}: use \"password_file=\""));
        }
        Ok(())
    }

    /// Makes paths of files absolute.
    pub fn resolve(&mut self, path: impl Fn(&[u8]) -> PathBuf) {
        use std::os::unix::ffi::OsStrExt;
        let identity = self.identity.iter_mut().flat_map(|(a, b)| [a, b]);
        for file in self.password_file.iter_mut().chain(&mut self.ca).chain(identity) {
            *file = path(file.as_os_str().as_bytes());
        }
    }

    /// The engine for messages: without name and password.
    pub fn shown(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let all: Vec<_> = self
            .addresses
            .iter()
            .map(|address| match address {
                Address::Unix(path) => format!("unix:{}", path.display()),
                Address::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
                Address::Tcp(host, port) => format!("{host}:{port}"),
            })
            .collect();
        match &self.addresses[..] {
            [Address::Unix(_)] => all.concat(),
            _ => format!("{scheme}://{}", all.join(",")),
        }
    }
}

/// The file's mode lets others read it; a file that cannot be looked at does not.
fn is_readable_by_all(word: &Word) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(&*word.pos.file).is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
}

fn prefix(word: &Word, text: &str) -> Result<String, ConfError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(is_fine) {
        return Err(invalid(word, "prefix"));
    }
    Ok(text.to_owned())
}

/// `redis://[USER][:PASSWORD]@HOST[:PORT][,HOST[:PORT]]…[/DATABASE]`, the same with `rediss:`, or
/// `unix:PATH`.
fn parse_url(word: &Word) -> Result<Settings, ConfError> {
    let bad = || invalid(word, "URL");
    let text = std::str::from_utf8(word.bytes()).map_err(|_| bad())?;
    let mut settings = Settings {
        addresses: Vec::new(),
        mode: Mode::Single,
        tls: false,
        user: String::new(),
        password: String::new(),
        password_file: None,
        ca: None,
        identity: None,
        database: 0,
        prefix: PREFIX.to_owned(),
        interval_ms: INTERVAL_MS,
        timeout_ms: TIMEOUT_MS,
    };
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return Err(bad());
        }
        settings.addresses.push(Address::Unix(path.into()));
        return Ok(settings);
    }
    let rest = if let Some(rest) = text.strip_prefix("redis://") {
        rest
    } else {
        settings.tls = true;
        text.strip_prefix("rediss://").ok_or_else(bad)?
    };
    let (rest, database) = match rest.rsplit_once('/') {
        Some((rest, database)) => (rest, database),
        None => (rest, ""),
    };
    if !database.is_empty() {
        let number = base::ascii::parse_u64(database.as_bytes()).filter(|n| *n < 1 << 20);
        settings.database = number.ok_or_else(bad)?.cast_signed();
    }
    let hosts = match rest.rsplit_once('@') {
        Some((account, hosts)) => {
            let (user, password) = account.split_once(':').unwrap_or((account, ""));
            settings.user = decoded(user).ok_or_else(bad)?;
            settings.password = decoded(password).ok_or_else(bad)?;
            hosts
        }
        None => rest,
    };
    for host in hosts.split(',') {
        settings.addresses.push(address(host).ok_or_else(bad)?);
    }
    Ok(settings)
}

fn address(text: &str) -> Option<Address> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
        (host, port)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        None => 6379,
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
    };
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (!host.is_empty() && host.chars().all(is_fine)).then(|| Address::Tcp(host.to_owned(), port))
}

/// A text with `%XX` decoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        let options = conf::parse::Options::default();
        let text = format!("shared_state {text};").into_bytes().into();
        let tree = conf::parse::parse_bytes(std::path::Path::new("f"), text, &options);
        Settings::parse(&tree.unwrap().nodes[0]).map_err(|e| e.to_string())
    }

    #[test]
    fn addresses_and_accounts() {
        let s = parse("redis://10.0.0.1").unwrap();
        assert_eq!(s.addresses, [Address::Tcp("10.0.0.1".into(), 6379)]);
        assert_eq!((s.prefix.as_str(), s.interval_ms, s.timeout_ms), ("weir", 100, 1000));
        let s = parse("rediss://web:p%40ss@h1:7000,[::1]:7001 cluster prefix=shop").unwrap();
        let second = Address::Tcp("::1".into(), 7001);
        assert_eq!(s.addresses, [Address::Tcp("h1".into(), 7000), second]);
        assert_eq!((s.user.as_str(), s.password.as_str(), s.tls), ("web", "p@ss", true));
        assert_eq!((s.mode.clone(), s.prefix.as_str()), (Mode::Cluster, "shop"));
        assert_eq!(s.shown(), "rediss://h1:7000,[::1]:7001");
        assert_eq!(format!("{s:?}"), s.shown(), "no password in messages");
        let s = parse("redis://:x@a,b/3 sentinel=mymaster interval=50ms timeout=2s").unwrap();
        assert_eq!((s.mode, s.database), (Mode::Sentinel("mymaster".into()), 3));
        assert_eq!((s.interval_ms, s.timeout_ms), (50, 2000));
        let s = parse("unix:/run/redis.sock").unwrap();
        assert_eq!(s.shown(), "unix:/run/redis.sock");
    }

    #[test]
    fn errors_name_no_password() {
        for (text, message) in [
            ("http://x", "invalid URL in \"shared_state\" in f:1"),
            ("redis://a:secret@", "invalid URL in \"shared_state\" in f:1"),
            ("redis://h:0", "invalid URL in \"shared_state\" in f:1"),
            ("redis://h/x", "invalid URL in \"shared_state\" in f:1"),
            ("unix:run", "invalid URL in \"shared_state\" in f:1"),
            ("redis://h prefix=", "invalid prefix in \"shared_state\" in f:1"),
            ("redis://h \"prefix=a b\"", "invalid prefix in \"shared_state\" in f:1"),
            ("redis://h interval=1ms", "invalid interval in \"shared_state\" in f:1"),
            ("redis://h nonsense", "invalid parameter \"nonsense\" in f:1"),
            (
                "redis://a,b",
                "several addresses in \"shared_state\" need \"sentinel=NAME\" or \"cluster\" \
                 in f:1",
            ),
            ("redis://a/2 cluster", "a cluster has the database 0 alone in f:1"),
            (
                "redis://a ca=x",
                "\"ca\", \"certificate\" and \"key\" of \"shared_state\" need rediss:// in f:1",
            ),
            (
                "rediss://a key=x",
                "\"certificate\" and \"key\" of \"shared_state\" belong together in f:1",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), message, "{text}");
        }
    }
}
