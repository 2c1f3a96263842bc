//! A single health check: connects (with TLS if sessions use it), sends, and compares the response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::time::now_ms;
use event::{Deadline, Fd, Sock};
use mem::{Chain, Page};
use net::Transport;
use os::SockAddr;
use os::socket::Kind;
use upstream::health::{Checked, Failure, Probe};
use upstream::pool::UpConn;
use upstream::ssl::{self, NoSession};

use super::matching::Matching;

/// The number of times that a UDP check sends its datagram within its timeout, in case of loss.
const ASKS: u64 = 3;

/// How long a UDP check without an expected response waits for an ICMP error, in milliseconds.
const REFUSAL_MS: u64 = 1_000;

/// The datagram of UDP checks without `send`.
const DATAGRAM: &[u8] = b"weir health check";

/// The check of a server.
pub(super) struct StreamProbe {
    /// TCP or UDP.
    pub kind: Kind,
    /// What to send and to expect.
    pub matching: Rc<Matching>,
    /// TLS, if sessions use it.
    pub tls: Option<ssl::Fixed>,
    /// The PROXY protocol header without a client, if sessions start with one.
    pub header: Vec<u8>,
    /// `health_check_timeout`, milliseconds.
    pub timeout_ms: u64,
    /// The maximum number of response bytes to compare.
    pub answer_max: usize,
}

impl Probe for StreamProbe {
    fn ask<'a>(
        &'a self,
        addr: &'a SockAddr,
        _: Option<UpConn>,
    ) -> Pin<Box<dyn Future<Output = Checked> + 'a>> {
        Box::pin(async move {
            match self.kind {
                Kind::Stream => self.connect(addr).await.map(|()| None),
                Kind::Datagram => self.datagram(addr).await.map(|()| None),
            }
        })
    }
}

impl StreamProbe {
    async fn connect(&self, addr: &SockAddr) -> Result<(), Failure> {
        let until = Deadline::in_ms(self.timeout_ms);
        let fd = os::socket::socket(addr, Kind::Stream).map_err(|e| failed("socket", &e))?;
        let sock = Sock::from_fd(fd);
        sock.connect(addr, until).await.map_err(|e| failed("connect", &e))?;
        let (tls, mut first) = (&self.tls, self.header.clone());
        let sock: Transport = match tls {
            None => sock.into(),
            Some(tls) => {
                let mut header = Chain::new();
                header.push_bytes(std::mem::take(&mut first).into());
                sock.send(&mut header, until).await.map_err(|e| failed("send", &e))?;
                tls.connect(sock, addr, until).await.map_err(|e| match e {
                    NoSession::TimedOut => "the TLS handshake timed out".to_owned(),
                    NoSession::Failed(_, m) | NoSession::NoCertificate(m) => m,
                })?
            }
        };
        first.extend_from_slice(self.matching.send.as_deref().unwrap_or_default());
        if !first.is_empty() {
            let mut chain = Chain::new();
            chain.push_bytes(first.into());
            sock.send(&mut chain, until).await.map_err(|e| failed("send", &e))?;
        }
        let mut said = Page::new();
        while !self.matching.is_met(&said) {
            if said.len() >= self.answer_max {
                return Err("the answer does not match".to_owned());
            }
            match sock.recv_into(&mut said, until).await {
                Ok(0) => return Err("closed without the expected answer".to_owned()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut && !said.is_empty() => {
                    return Err("the answer does not match".to_owned());
                }
                Err(e) => return Err(failed("recv", &e)),
            }
        }
        Ok(())
    }

    async fn datagram(&self, addr: &SockAddr) -> Result<(), Failure> {
        let until = now_ms().saturating_add(self.timeout_ms);
        let fd = os::socket::socket(addr, Kind::Datagram).map_err(|e| failed("socket", &e))?;
        os::socket::connect(&fd, addr).map_err(|e| failed("connect", &e))?;
        let server = Fd::new(fd);
        let question = self.matching.send.as_deref().unwrap_or(DATAGRAM);
        let question = [&self.header[..], question].concat();
        let expects = self.matching.expects();
        let (asks, each) = match expects {
            true => (ASKS, self.timeout_ms.div_ceil(ASKS)),
            false => (1, self.timeout_ms.min(REFUSAL_MS)),
        };
        let mut said = false;
        for _ in 0..asks {
            os::datagram::send(server.fd(), &question, None, None, None)
                .map_err(|e| failed("send", &e))?;
            let ask_until = now_ms().saturating_add(each).min(until);
            while now_ms() < ask_until {
                match server.readable(Deadline::at(ask_until)).await {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::TimedOut => break,
                    Err(e) => return Err(failed("recv", &e)),
                }
                let mut answer = vec![0; self.answer_max];
                match os::datagram::recv(server.fd(), &mut answer) {
                    Ok(received) => {
                        said = true;
                        if self.matching.is_met(answer.get(..received.len).unwrap_or(&[])) {
                            return Ok(());
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(failed("recv", &e)),
                }
            }
        }
        match (expects, said) {
            (false, _) => Ok(()),
            (true, true) => Err("the answer does not match".to_owned()),
            (true, false) => Err("no answer".to_owned()),
        }
    }
}

fn failed(call: &str, e: &io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::TimedOut if e.raw_os_error().is_none() => format!("{call}() timed out"),
        _ => format!("{call}() failed {}", base::log::os_error(e)),
    }
}
