//! Mail servers that remember what they were told.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use testkit::Scripted;

/// A mail server that answers line by line, and remembers what it was told.
pub struct MailServer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    heard: Arc<Mutex<Vec<String>>>,
    _server: Scripted,
}

impl MailServer {
    /// `answer` gets each line; `None` ends the connection.
    pub fn start(
        greeting: &'static str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> MailServer {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let lines = heard.clone();
        let server = Scripted::start(move |mut client, _| {
            let _ = client.write_all(greeting.as_bytes());
            while let Some(line) = line(&mut client) {
                lines.lock().unwrap().push(line.clone());
                match answer(&line) {
                    Some(text) => client.write_all(text.as_bytes()).unwrap_or_default(),
                    None => return,
                }
            }
        });
        MailServer { port: server.port, heard, _server: server }
    }

    /// The lines so far.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub fn imap() -> MailServer {
        MailServer::start("* OK ready\r\n", |line| {
            let tag = line.split(' ').next().unwrap_or_default();
            Some(match line {
                l if l.ends_with('}') => "+ go on\r\n".to_owned(),
                l if l.contains("LOGOUT") => return None,
                l if l.contains("NOOP") => format!("{tag} OK noop of the server\r\n"),
                "wrong" => "a1 NO the mail server says no\r\n".to_owned(),
                "untagged" => "* CAPABILITY X\r\na1 OK in\r\n".to_owned(),
                _ => "a1 OK logged in\r\n".to_owned(),
            })
        })
    }

    pub fn pop3() -> MailServer {
        MailServer::start("+OK ready <1@host>\r\n", |line| {
            Some(match line {
                "QUIT" => return None,
                "PASS wrong" => "-ERR the mail server says no\r\n".to_owned(),
                line => format!("+OK {line}\r\n"),
            })
        })
    }

    pub fn smtp() -> MailServer {
        MailServer::start("220-several\r\n220 ready\r\n", |line| {
            Some(match line {
                "QUIT" => return None,
                l if l.starts_with("EHLO") => "250-hello\r\n250 XCLIENT\r\n".to_owned(),
                l if l.starts_with("XCLIENT") => "220 again\r\n".to_owned(),
                l if l.starts_with("AUTH") => "235 in\r\n".to_owned(),
                l if l.starts_with("RCPT TO:<no@") => "550 nobody\r\n".to_owned(),
                line => format!("250 {line}\r\n"),
            })
        })
    }
}

/// A line without its end; none at the end of the stream.
fn line(client: &mut TcpStream) -> Option<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while client.read(&mut byte).ok()? == 1 {
        match byte[0] {
            b'\n' => return Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
            byte => line.push(byte),
        }
    }
    None
}
