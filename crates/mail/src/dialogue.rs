//! The dialogue with a client: from the greeting until it is logged in, or gone.

use std::io;

use base::log::Level;
use base::time::unix_secs;
use bytes::Bytes;
use common_modules::ssl::NoEntry;
use engine::Client;
use event::Deadline;
use mail_proto::{Action, Credentials, Dialogue, IMPROPER_PIPELINING, Note, Protocol};
use mem::Page;

use crate::auth_http::{self, Answer};
use crate::client::{LoggedIn, Over, gone, internal_error, send};
use crate::session::MailSession;
use crate::ssl::{self, Refused};
use crate::{client_host, proxy};

/// The dialogue, with the bytes of the client that it has no room for yet.
struct Talk {
    dialogue: Dialogue,
    unfed: Page,
}

/// The end of a stretch of the dialogue.
enum Next {
    /// The client wants TLS.
    StartTls,
    /// The client told who it is.
    Ask(Box<Credentials>),
}

/// Talks with a client until it is logged in.
///
/// # Errors
/// The session is over, for a reason that the log, or the client, has been told.
pub(crate) async fn run(s: &mut MailSession) -> Result<LoggedIn, Over> {
    let until = Deadline::in_ms(s.server.core.timeout);
    if s.listen.ssl && s.tls().is_none() {
        shake(s, until).await?;
    }
    s.now("sending client greeting line");
    let server = s.server.clone();
    if server.dialogue.protocol == Protocol::Smtp {
        let host = Box::pin(client_host::find(s)).await;
        s.host = Some(host);
    }
    let mut talk =
        Talk { dialogue: Dialogue::new(server.dialogue.clone(), salt(s)), unfed: Page::new() };
    if s.tls().is_some() {
        talk.dialogue.now_tls();
    }
    if server.greeting_delay > 0 {
        wait_silently(s, server.greeting_delay).await?;
    }
    let mut until = Deadline::in_ms(server.core.timeout);
    send(s, talk.dialogue.greeting(), until).await?;
    loop {
        s.now("in auth state");
        match talk.stretch(s, until).await? {
            Next::StartTls => {
                if !talk.pending().is_empty() {
                    let m = "client sent plaintext behind its command to begin TLS";
                    s.log(Level::Info, format_args!("{m}"));
                    return Err(Over);
                }
                s.is_starttls = true;
                let sock = s.take_sock().ok_or(Over)?;
                s.put_sock(sock.expect_tls());
                shake(s, until).await?;
                talk.dialogue.now_tls();
            }
            Next::Ask(credentials) => {
                s.login = credentials.login.clone();
                match Box::pin(auth_http::ask(s, *credentials)).await {
                    Answer::Go(to) => {
                        let pending = talk.pending();
                        return Box::pin(proxy::log_in(s, *to, pending)).await;
                    }
                    Answer::Failed => return Err(internal_error(s).await),
                    Answer::Refused { text, is_last } => {
                        until = Deadline::in_ms(server.core.timeout);
                        s.now("in auth state");
                        send(s, text, until).await?;
                        if is_last {
                            return Err(Over);
                        }
                        talk.dialogue.go_on();
                    }
                }
            }
        }
    }
}

/// The words of challenges of APOP and CRAM-MD5 (RFC 1939 section 7, RFC 2195): they are not
/// repeated.
fn salt(s: &MailSession) -> Bytes {
    let (number, name) = (os::random::number(), base::log::lossy(&s.server.core.server_name));
    format!("<{number}.{}@{name}>", unix_secs()).into()
}

/// TLS with the client; one whose certificate is not wanted is told so.
async fn shake(s: &mut MailSession, until: Deadline) -> Result<(), Over> {
    match ssl::accept(s, until).await {
        Ok(()) => Ok(()),
        Err(Refused::NoSession) => Err(Over),
        Err(Refused::Certificate(why)) => {
            let protocol = s.server.dialogue.protocol;
            let text = match why {
                NoEntry::Missing => protocol.no_certificate(),
                NoEntry::Bad(..) | NoEntry::Status(_) => protocol.certificate_error(),
            };
            send(s, Bytes::from_static(text), until).await?;
            Err(Over)
        }
    }
}

/// `smtp_greeting_delay`: a client that speaks before it is greeted is refused.
async fn wait_silently(s: &mut MailSession, ms: u64) -> Result<(), Over> {
    s.now("in delay pipelining state");
    let Some(sock) = s.sock() else { return Err(Over) };
    let mut page = Page::new();
    match sock.recv_into(&mut page, Deadline::in_ms(ms)).await {
        Err(e) if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() => Ok(()),
        Err(e) => Err(gone(s, &e, "recv()")),
        Ok(0) => Err(Over),
        Ok(_) => {
            let said =
                page.filled().iter().map(|b| if matches!(b, b'\r' | b'\n') { b'_' } else { *b });
            let said: Vec<u8> = said.collect();
            let said = base::log::lossy(&said);
            s.log(Level::Info, format_args!("client was rejected before greeting: \"{said}\""));
            let until = Deadline::in_ms(s.server.core.timeout);
            send(s, Bytes::from_static(IMPROPER_PIPELINING), until).await?;
            Err(Over)
        }
    }
}

impl Talk {
    /// Goes on until the client wants more than words.
    async fn stretch(&mut self, s: &mut MailSession, until: Deadline) -> Result<Next, Over> {
        loop {
            match self.dialogue.step() {
                Action::More => self.receive(s, until).await?,
                Action::Reply { text, note } => {
                    self.tell(s, note);
                    send(s, text, until).await?;
                }
                Action::Quit { text, note } => {
                    self.tell(s, note);
                    send(s, text, until).await?;
                    return Err(Over);
                }
                Action::StartTls { text } => {
                    send(s, text, until).await?;
                    return Ok(Next::StartTls);
                }
                Action::Ask(credentials) => return Ok(Next::Ask(Box::new(credentials))),
            }
        }
    }

    /// Feeds the dialogue, from the client if nothing is left of it.
    async fn receive(&mut self, s: &MailSession, until: Deadline) -> Result<(), Over> {
        if self.unfed.is_empty() {
            let Some(sock) = s.sock() else { return Err(Over) };
            match sock.recv_into(&mut self.unfed, until).await {
                Ok(0) => return Err(Over),
                Ok(_) => {}
                Err(e) => return Err(gone(s, &e, "recv()")),
            }
        }
        let n = self.dialogue.room().min(self.unfed.len());
        self.dialogue.feed(&self.unfed[..n]);
        self.unfed.consume(n);
        if self.unfed.is_empty() {
            // An idle client has no page.
            self.unfed = Page::new();
        }
        Ok(())
    }

    /// The bytes of the client that nothing was made of yet.
    fn pending(&mut self) -> Vec<u8> {
        let mut pending = self.dialogue.take_pending();
        pending.extend_from_slice(&std::mem::take(&mut self.unfed));
        pending
    }

    fn tell(&self, s: &mut MailSession, note: Option<Note>) {
        if let Some(note) = note {
            s.log(Level::Info, format_args!("{note}"));
        }
        let login = self.dialogue.login();
        if login != &s.login[..] {
            s.login = Bytes::copy_from_slice(login);
        }
    }
}
