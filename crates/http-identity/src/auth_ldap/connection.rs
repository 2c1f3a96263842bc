//! A connection to a server, and the operations over it, one at a time.

use std::fmt;
use std::io;

use base::log::{lossy, os_error};
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Sock};
use mem::{Buf, Chain};
use net::Transport;
use os::SockAddr;
use proto::ldap::request::{self, Search};
use proto::ldap::response::{self, code};
use proto::ldap::{DISCONNECTION, Filter, Operation, Outcome, Parsed, Scope};
use upstream::ssl::NoSession;

use super::server::{Security, Server};

/// Room for one receive, bytes.
const RECV_SIZE: usize = 4096;

/// Entries that a search for one may find. More than one is no answer, so no more are kept.
const FOUND_MAX: u32 = 2;

/// References that a response may have.
const REFERENCES_MAX: usize = 100;

/// Bytes of a server's words in the log.
const WORDS_MAX: usize = 200;

/// The reason why a server gave no answer. Fit for the log.
#[derive(Debug)]
pub(super) struct Failure {
    text: String,
    /// The server closed the connection.
    pub is_closed: bool,
    /// The server cannot be reached, or is too slow: others are asked before it for a while.
    pub is_down: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    /// A failure of the connection.
    fn down(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), is_closed: false, is_down: true }
    }

    /// Of the server's answer, or of this server's state.
    pub(super) fn other(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), is_closed: false, is_down: false }
    }

    fn closed() -> Failure {
        Failure { is_closed: true, ..Failure::down("the server closed the connection") }
    }

    fn of_io(call: &str, e: &io::Error) -> Failure {
        if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
            return Failure::down("timed out");
        }
        let is_closed = matches!(
            e.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
        );
        Failure { is_closed, ..Failure::down(format!("{call} failed {}", os_error(e))) }
    }

    /// A result that says that the server is at fault.
    fn of_result(what: &str, result: &Done) -> Failure {
        Failure::other(format!("{what} failed ({result})"))
    }
}

/// The end of an operation.
pub(super) struct Done {
    pub code: u32,
    name: &'static str,
    is_of_server: bool,
    /// The server's words.
    words: String,
}

impl Done {
    fn of(outcome: Outcome<'_>) -> Done {
        let words = &outcome.text[..outcome.text.len().min(WORDS_MAX)];
        Done {
            code: outcome.code,
            name: outcome.name(),
            is_of_server: outcome.is_of_server(),
            words: lossy(words).into_owned(),
        }
    }

    /// The code alone: a server's words about a password might contain it.
    pub(super) fn code_and_name(&self) -> String {
        format!("{}: {}", self.code, self.name)
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.name)?;
        if self.words.is_empty() { Ok(()) } else { write!(f, ", \"{}\"", self.words) }
    }
}

/// The result of a search for one entry.
pub(super) enum Found {
    /// The name of the only entry.
    One(Vec<u8>),
    None,
    /// More entries than one.
    Many,
    /// No entry here, but servers that may have it.
    Elsewhere,
}

/// The identity that a connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Identity {
    /// None, as new connections.
    Anonymous,
    /// `binddn`
    Searcher,
    /// That of a user, or unknown.
    Other,
}

pub(super) struct Connection {
    transport: Transport,
    /// The bytes received that no operation has taken.
    input: Vec<u8>,
    last_id: u32,
    identity: Identity,
    /// An operation was begun and has not ended: the connection is of no use for others.
    is_busy: bool,
    /// When it was used last.
    used_ms: u64,
}

impl Server {
    /// Connects, with TLS if it has any.
    ///
    /// # Errors
    /// No address of the server can be used.
    pub(super) async fn connect(&self, until: Deadline) -> Result<Connection, Failure> {
        let deadline = Deadline::in_ms(self.timeouts.connect).or(until);
        let addresses = self.lookup.find(&self.target, deadline).await;
        let mut last = Failure::down("the host has no address");
        for address in addresses.map_err(|e| Failure::down(e.to_string()))? {
            match self.connect_to(&address, deadline).await {
                Ok(connection) => return Ok(connection),
                Err(e) => last = Failure { text: format!("{e} ({address})"), ..e },
            }
        }
        // A new connection that the server closes is no old one that it had closed before.
        Err(Failure { is_closed: false, ..last })
    }

    async fn connect_to(
        &self,
        address: &SockAddr,
        deadline: Deadline,
    ) -> Result<Connection, Failure> {
        let connect = |e: io::Error| Failure::of_io("connect()", &e);
        let fd = os::socket::socket(address, os::socket::Kind::Stream).map_err(connect)?;
        let sock = Sock::from_fd(fd);
        sock.connect(address, deadline).await.map_err(connect)?;
        let _ = os::socket::set_nodelay(sock.fd(), true);
        let mut connection = Connection::new(Transport::from(sock));
        let tls = match &self.security {
            Security::Plain => return Ok(connection),
            Security::Tls(tls) => tls,
            Security::StartTls(tls) => {
                connection.start_tls(deadline).await?;
                tls
            }
        };
        match tls.connect(connection.transport, address, deadline).await {
            Ok(transport) => Ok(Connection::new(transport)),
            Err(NoSession::TimedOut) => Err(Failure::down("the SSL handshake timed out")),
            Err(NoSession::Failed(_, m) | NoSession::NoCertificate(m)) => Err(Failure::down(m)),
        }
    }
}

impl Connection {
    fn new(transport: Transport) -> Connection {
        Connection {
            transport,
            input: Vec::new(),
            last_id: 0,
            identity: Identity::Anonymous,
            is_busy: false,
            used_ms: now_ms(),
        }
    }

    /// Whether another request can use it: nothing is in progress, and the server has neither
    /// closed it nor sent anything unasked.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_busy && self.input.is_empty() && self.transport.is_quiet()
    }

    pub(super) fn idle_ms(&self) -> u64 {
        now_ms().saturating_sub(self.used_ms)
    }

    /// Becomes the one that searches, if it is not.
    ///
    /// # Errors
    /// The server gave no answer, or refuses `binddn`.
    pub(super) async fn become_searcher(
        &mut self,
        server: &Server,
        until: Deadline,
    ) -> Result<(), Failure> {
        let wanted = match server.bind_dn.is_empty() {
            true => Identity::Anonymous,
            false => Identity::Searcher,
        };
        if self.identity == wanted {
            return Ok(());
        }
        let deadline = Deadline::in_ms(server.timeouts.bind).or(until);
        let done = self.bind(&server.bind_dn, &server.bind_password, deadline).await?;
        if done.code != code::SUCCESS {
            return Err(Failure::other(format!(
                "the bind as binddn failed ({})",
                done.code_and_name()
            )));
        }
        self.identity = wanted;
        Ok(())
    }

    /// A simple bind. An empty password is an error of the caller's.
    ///
    /// # Errors
    /// The server gave no answer.
    pub(super) async fn bind(
        &mut self,
        dn: &[u8],
        password: &[u8],
        deadline: Deadline,
    ) -> Result<Done, Failure> {
        let id = self.next_id();
        let message = request::bind(id, dn, password);
        let message = message.ok_or_else(|| Failure::other("a bind without a password"))?;
        self.identity = Identity::Other;
        let done = self
            .ask(id, message, deadline, |operation| match operation {
                Operation::Bind(outcome) => Some(Ok(Done::of(outcome))),
                _ => Some(Err(UNEXPECTED)),
            })
            .await?;
        if done.is_of_server {
            return Err(Failure::other(format!("the bind failed ({})", done.code_and_name())));
        }
        Ok(done)
    }

    /// Searches for one entry.
    ///
    /// # Errors
    /// The server gave no answer.
    pub(super) async fn find(
        &mut self,
        base: &[u8],
        scope: Scope,
        filter: &Filter,
        deadline: Deadline,
    ) -> Result<Found, Failure> {
        let id = self.next_id();
        let left_ms = deadline.at_ms().saturating_sub(now_ms());
        let time_s = u32::try_from(left_ms.div_ceil(1000)).unwrap_or(0);
        let search = Search { base, scope, size_max: FOUND_MAX, time_s, filter };
        let (mut names, mut references) = (Vec::new(), 0);
        let done = self
            .ask(id, request::search(id, search), deadline, |operation| match operation {
                Operation::Entry(name) if names.len() < FOUND_MAX as usize => {
                    names.push(name.to_vec());
                    None
                }
                Operation::Entry(_) => Some(Err("it sends more entries than were requested")),
                Operation::Reference if references < REFERENCES_MAX => {
                    references += 1;
                    None
                }
                Operation::Reference => Some(Err("it sends too many references")),
                Operation::SearchDone(outcome) => Some(Ok(Done::of(outcome))),
                Operation::Intermediate => None,
                _ => Some(Err(UNEXPECTED)),
            })
            .await?;
        match done.code {
            _ if names.len() > 1 => Ok(Found::Many),
            code::SUCCESS => Ok(match names.pop() {
                Some(name) => Found::One(name),
                None if references > 0 => Found::Elsewhere,
                None => Found::None,
            }),
            code::SIZE_LIMIT_EXCEEDED => Ok(Found::Many),
            // A variable may have made a name that is none.
            code::NO_SUCH_OBJECT | code::INVALID_DN_SYNTAX => Ok(Found::None),
            code::REFERRAL => Ok(Found::Elsewhere),
            _ => Err(Failure::of_result("the search", &done)),
        }
    }

    async fn start_tls(&mut self, deadline: Deadline) -> Result<(), Failure> {
        let id = self.next_id();
        let done = self
            .ask(id, request::start_tls(id), deadline, |operation| match operation {
                Operation::Extended(outcome, _) => Some(Ok(Done::of(outcome))),
                _ => Some(Err(UNEXPECTED)),
            })
            .await?;
        if done.code != code::SUCCESS {
            return Err(Failure::of_result("StartTLS", &done));
        }
        // Whoever is on the way could have put them there, to be read as if they came under TLS.
        if !self.input.is_empty() {
            return Err(Failure::down("the server sent plain text behind its answer to StartTLS"));
        }
        Ok(())
    }

    fn next_id(&mut self) -> u32 {
        self.last_id = if self.last_id >= i32::MAX.cast_unsigned() { 1 } else { self.last_id + 1 };
        self.last_id
    }

    /// Sends a message and reads responses to it until `take` has the result, or calls them
    /// invalid.
    async fn ask<T>(
        &mut self,
        id: u32,
        message: Vec<u8>,
        deadline: Deadline,
        mut take: impl FnMut(Operation<'_>) -> Option<Result<T, &'static str>>,
    ) -> Result<T, Failure> {
        self.is_busy = true;
        self.send(message, deadline).await?;
        loop {
            let (len, taken) = match response::parse(&self.input) {
                Parsed::Incomplete(_) => {
                    self.receive(deadline).await?;
                    continue;
                }
                Parsed::Malformed(why) => return Err(invalid(why)),
                Parsed::Message(len, message) => match (message.id, message.operation) {
                    (0, Operation::Extended(outcome, Some(DISCONNECTION))) => {
                        let done = Done::of(outcome);
                        let m = format!("the server closes the connection ({done})");
                        return Err(Failure { is_closed: true, ..Failure::down(m) });
                    }
                    (0, Operation::Extended(..)) => (len, None),
                    (found, operation) if found == id => (len, take(operation)),
                    _ => return Err(invalid("it responds to another request")),
                },
            };
            self.input.drain(..len);
            match taken {
                None => {}
                Some(Ok(result)) => {
                    self.is_busy = false;
                    self.used_ms = now_ms();
                    return Ok(result);
                }
                Some(Err(why)) => return Err(invalid(why)),
            }
        }
    }

    async fn send(&self, message: Vec<u8>, deadline: Deadline) -> Result<(), Failure> {
        let send = |e: io::Error| Failure::of_io("send()", &e);
        let mut out = Chain::new();
        out.push(Buf::Mem(Bytes::from(message)));
        while !out.is_empty() {
            self.transport.send_some(&mut out, None, deadline).await.map_err(send)?;
        }
        self.transport.flush(deadline).await.map_err(send)
    }

    async fn receive(&mut self, deadline: Deadline) -> Result<(), Failure> {
        let received = self.transport.recv(RECV_SIZE, deadline).await;
        let page = received.map_err(|e| Failure::of_io("recv()", &e))?;
        if page.is_empty() {
            return Err(Failure::closed());
        }
        self.input.extend_from_slice(page.filled());
        Ok(())
    }
}

const UNEXPECTED: &str = "it is no response to the request";

fn invalid(why: &str) -> Failure {
    Failure::down(format!("the server sent an invalid response: {why}"))
}
