//! Idle sessions of `mail`, for the load that measures their memory.

use std::io::{BufRead, BufReader, Error, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use crate::Outcome;
use crate::idle::Held;
use crate::server::{Setup, free_port};

const CONFIG: &str = include_str!("../configs/mail.conf");

/// A mail server of POP3 that lets everybody in, one after another.
pub struct Idle {
    backend: u16,
}

impl Idle {
    /// Starts it; it lives as long as the process.
    pub fn new() -> Outcome<Idle> {
        let bind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = bind.map_err(|e| format!("a mail server: {e}"))?;
        let backend = listener.local_addr().map_err(|e| e.to_string())?.port();
        std::thread::spawn(move || {
            let mut logged_in = Vec::new();
            for stream in listener.incoming().flatten() {
                // A server that is stopped in between ends the session.
                logged_in.extend(let_in(stream).ok());
            }
        });
        Ok(Idle { backend })
    }

    /// A server's setup. A session is two connections, and two more while it logs in.
    pub fn setup(&self, sessions: usize) -> Outcome<Setup> {
        let fill = vec![
            ("%AUTH_PORT%", free_port()?.to_string()),
            ("%MAIL_BACKEND%", self.backend.to_string()),
        ];
        // A tenth more: from 95 % on weir makes room.
        let connections = sessions * 22 / 10 + 10;
        Ok(Setup { template: CONFIG, generation: 0, fill, connections, ..Setup::default() })
    }

    /// A session that is logged in.
    pub fn one(&self, port: u16) -> Result<Held> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), &stream);
        good(&mut reader)?;
        for command in ["USER me\r\n", "PASS secret\r\n"] {
            writer.write_all(command.as_bytes())?;
            good(&mut reader)?;
        }
        drop(reader);
        Ok(Held::Tcp(stream))
    }
}

/// Reads an answer, which has to be a good one.
fn good(reader: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.starts_with("+OK") { Ok(()) } else { Err(Error::other(format!("answered {line:?}"))) }
}

/// The login of a session; gives its connection.
fn let_in(stream: TcpStream) -> Result<TcpStream> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), &stream);
    writer.write_all(b"+OK\r\n")?;
    for _ in 0..2 {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        writer.write_all(b"+OK\r\n")?;
    }
    drop(reader);
    Ok(stream)
}
