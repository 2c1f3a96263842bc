//! A connection to the engine: one address, the primary that sentinels know, or a cluster.

use std::io;
use std::path::Path;
use std::time::Duration;

use fleet::{Address, Answer, Call, Failure, Mode, Settings, scripts};
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{
    ClientTlsConfig, Cmd, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike,
    IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
    TlsCertificates, TlsMode, Value,
};

#[path = "sentinel.rs"]
mod sentinel;

/// The contents of the files that `shared_state` names. Read while the process has the privileges
/// of the master.
#[derive(Clone, Default)]
pub struct Secrets {
    password: Option<String>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Secrets {
    /// Reads the files.
    ///
    /// # Errors
    /// The first one that cannot be read, with the reason.
    pub fn read(settings: &Settings) -> Result<Secrets, String> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|e| {
                let e = base::log::os_error(&e);
                format!("open() \"{}\" failed {e}", path.display())
            })
        };
        let password = match &settings.password_file {
            None => None,
            Some(path) => {
                let text = String::from_utf8(read(path)?);
                let text = text.map_err(|_| format!("\"{}\" holds no text", path.display()))?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
        let ca = settings.ca.as_deref().map(read).transpose()?;
        let identity = match &settings.identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Secrets { password, ca, identity })
    }
}

enum Kind {
    One(Box<Connection>),
    Cluster(Box<ClusterConnection>),
}

/// A connection.
pub(crate) struct Link {
    kind: Kind,
    /// The names and SHA-1 sums of scripts.
    shas: Vec<(&'static str, String)>,
}

fn failure(e: &RedisError) -> Failure {
    let text = e.to_string();
    let reason = match (e.is_timeout(), e.is_connection_refusal()) {
        (true, _) => "timed out".to_owned(),
        (_, true) => "connection refused".to_owned(),
        _ => text,
    };
    Failure { reason, reconnect: true }
}

impl Link {
    /// Connects, and logs in.
    pub fn connect(settings: &Settings, secrets: &Secrets) -> Result<Link, Failure> {
        let kind = connect(settings, secrets).map_err(|e| failure(&e))?;
        let shas = scripts::ALL.iter().map(|script| (script.name, script.sha())).collect();
        Ok(Link { kind, shas })
    }

    /// Runs calls; their answers in the same order.
    pub fn exchange(&mut self, calls: &[Call]) -> Result<Vec<Answer>, Failure> {
        let commands: Vec<_> = calls.iter().map(|call| self.command(call, false)).collect();
        let mut answers = self.run(&commands).map_err(|e| failure(&e))?;
        // A script that the engine does not have yet is sent whole, and known from then on.
        let is_unknown =
            |answer: &Answer| matches!(answer, Answer::Error(text) if text.starts_with("NOSCRIPT"));
        let unknown: Vec<_> = (0..answers.len()).filter(|i| is_unknown(&answers[*i])).collect();
        if !unknown.is_empty() {
            let commands: Vec<_> = unknown.iter().map(|i| self.command(&calls[*i], true)).collect();
            let again = self.run(&commands).map_err(|e| failure(&e))?;
            for (i, answer) in unknown.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
        Ok(answers)
    }

    fn command(&self, call: &Call, is_whole: bool) -> Cmd {
        let sha = self.shas.iter().find(|(name, _)| *name == call.script.name);
        let mut command = match sha.filter(|_| !is_whole) {
            Some((_, sha)) => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(sha);
                command
            }
            None => {
                let mut command = redis::cmd("EVAL");
                command.arg(call.script.text);
                command
            }
        };
        command.arg(call.keys.len());
        for text in call.keys.iter().chain(&call.args) {
            command.arg(&text[..]);
        }
        command
    }

    fn run(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Answer>> {
        match &mut self.kind {
            Kind::One(connection) => pipelined(connection, commands),
            Kind::Cluster(connection) => {
                let one = |command: &Cmd| match connection.req_command(command) {
                    Ok(value) => Ok(answer(value)),
                    Err(e) => error(e),
                };
                commands.iter().map(one).collect()
            }
        }
    }
}

/// An error of the engine as an answer; one of the connection as what it is.
fn error(e: RedisError) -> RedisResult<Answer> {
    match e.code() {
        Some(code) if !e.is_io_error() => {
            let detail = e.detail().unwrap_or_default();
            Ok(Answer::Error(format!("{code} {detail}")))
        }
        _ => Err(e),
    }
}

fn answer(value: Value) -> Answer {
    match value {
        Value::Int(n) => Answer::Int(n),
        Value::BulkString(bytes) => Answer::Bytes(bytes),
        Value::SimpleString(text) => Answer::Bytes(text.into_bytes()),
        Value::Array(list) | Value::Set(list) => {
            Answer::List(list.into_iter().map(answer).collect())
        }
        Value::ServerError(e) => {
            Answer::Error(format!("{} {}", e.code(), e.details().unwrap_or_default()))
        }
        // Scripts return nothing else.
        _ => Answer::Nil,
    }
}

/// The library name, with which operators find the connection in `CLIENT LIST`, and its version.
const LIBRARY: (&str, &str) = ("weir", env!("CARGO_PKG_VERSION"));

fn account(settings: &Settings, secrets: &Secrets) -> RedisConnectionInfo {
    let mut account = RedisConnectionInfo::default()
        .set_db(settings.database)
        .set_protocol(ProtocolVersion::RESP2);
    if !settings.user.is_empty() {
        account = account.set_username(&settings.user);
    }
    if let Some(password) = password(settings, secrets) {
        account = account.set_password(password);
    }
    account
}

fn password<'a>(settings: &'a Settings, secrets: &'a Secrets) -> Option<&'a str> {
    let own = Some(&*settings.password).filter(|password| !password.is_empty());
    own.or(secrets.password.as_deref())
}

fn certificates(secrets: &Secrets) -> TlsCertificates {
    let client_tls = secrets.identity.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone(),
        client_key: key.clone(),
    });
    TlsCertificates { client_tls, root_cert: secrets.ca.clone() }
}

fn address(settings: &Settings, address: &Address) -> ConnectionAddr {
    match address {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host, port) if settings.tls => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    }
}

fn info(settings: &Settings, secrets: &Secrets, to: &Address) -> RedisResult<ConnectionInfo> {
    let info = address(settings, to).into_connection_info()?;
    Ok(info.set_redis_settings(account(settings, secrets)))
}

fn set_limit(connection: &Connection, limit: Duration) -> RedisResult<()> {
    connection.set_read_timeout(Some(limit))?;
    connection.set_write_timeout(Some(limit))
}

/// Connects to a server, and logs in. `limit` is for the connection, the answer to the account, and
/// the answers to the rest together.
///
/// The crate would send database and library with the account. If no answer comes, it waits the
/// limit for each of them: an attempt at a silent engine would last for two or three limits, and
/// [`super::Caller::attempt`] has a number of attempts, so that it would pause for a limit or two
/// until one of them has ended, and find an engine that is back so much later.
fn open(
    to: ConnectionInfo,
    tls: Option<TlsCertificates>,
    limit: Duration,
) -> RedisResult<Connection> {
    let account = to.redis_settings().clone();
    let database = account.db();
    let to = to.set_redis_settings(account.set_db(0).set_skip_set_lib_name());
    let client = match tls {
        Some(certificates) => redis::Client::build_with_tls(to, certificates)?,
        None => redis::Client::open(to)?,
    };
    let mut connection = client.get_connection_with_timeout(limit)?;
    set_limit(&connection, limit)?;
    let mut commands = Vec::new();
    if database != 0 {
        commands.push(redis::cmd("SELECT").arg(database).take());
    }
    for (name, value) in [("LIB-NAME", LIBRARY.0), ("LIB-VER", LIBRARY.1)] {
        commands.push(redis::cmd("CLIENT").arg("SETINFO").arg(name).arg(value).take());
    }
    let answers = pipelined(&mut connection, &commands)?;
    // Older engines do not know SETINFO.
    match answers.into_iter().next() {
        Some(Answer::Error(text)) if database != 0 => {
            Err(io::Error::other(format!("database {database}: {text}")).into())
        }
        _ => Ok(connection),
    }
}

/// Sends commands at once; their answers. An error as soon as one does not come.
fn pipelined(connection: &mut Connection, commands: &[Cmd]) -> RedisResult<Vec<Answer>> {
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| command.write_packed_command(&mut bytes));
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    connection.send_packed_command(&bytes)?;
    let mut answers = Vec::with_capacity(commands.len());
    while answers.len() < commands.len() {
        match connection.recv_response() {
            Ok(Value::Push { .. }) => {}
            Ok(value) => answers.push(answer(value)),
            Err(e) => answers.push(error(e)?),
        }
    }
    Ok(answers)
}

fn connect(settings: &Settings, secrets: &Secrets) -> RedisResult<Kind> {
    let limit = Duration::from_millis(settings.timeout_ms);
    match &settings.mode {
        Mode::Single => {
            let info = info(settings, secrets, &settings.addresses[0])?;
            let tls = settings.tls.then(|| certificates(secrets));
            Ok(Kind::One(Box::new(open(info, tls, limit)?)))
        }
        Mode::Sentinel(name) => {
            Ok(Kind::One(Box::new(sentinel::connect(settings, secrets, name)?)))
        }
        Mode::Cluster => {
            let node = |to| {
                let info = info(settings, secrets, to)?;
                let named = info.redis_settings().clone().set_lib_name(LIBRARY.0, LIBRARY.1);
                Ok(info.set_redis_settings(named))
            };
            let nodes: RedisResult<Vec<_>> = settings.addresses.iter().map(node).collect();
            let mut builder = ClusterClient::builder(nodes?)
                .connection_timeout(limit)
                .response_timeout(limit)
                .retries(1)
                .use_protocol(ProtocolVersion::RESP2);
            if settings.tls {
                builder = builder.tls(TlsMode::Secure).certs(certificates(secrets));
            }
            let connection = builder.build()?.get_connection()?;
            connection.set_write_timeout(Some(limit))?;
            Ok(Kind::Cluster(Box::new(connection)))
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
