//! The question of a health check, and the judgement of its answer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use ::upstream::health::{Checked, Failure, Probe};
use ::upstream::http_client::{Client, Error, Message, Timeout};
use ::upstream::pool::UpConn;
use ::upstream::ssl;
use http_upstream::conf::Conf as UpConf;
use os::SockAddr;

use super::http2;
use super::matching::Matching;

/// The longest head, and the longest body, of a response that is read whole, bytes.
pub(super) const ANSWER_MAX: usize = 256 << 10;

/// The question of a check.
pub(super) enum Question {
    /// A connection, and its TLS session, is all that is asked for.
    Connect,
    /// A request over HTTP/1.
    Http1(Message),
    /// One over HTTP/2.
    Http2(http2::Question),
}

/// The question, and the judgement of the answer.
pub(super) struct HttpProbe {
    question: Question,
    matching: Rc<Matching>,
    /// TLS, where the servers are spoken to under it.
    tls: Option<ssl::Fixed>,
    client: Client,
}

impl Probe for HttpProbe {
    fn ask<'a>(
        &'a self,
        addr: &'a SockAddr,
        kept: Option<UpConn>,
    ) -> Pin<Box<dyn Future<Output = Checked> + 'a>> {
        Box::pin(self.check(addr, kept))
    }
}

impl HttpProbe {
    pub fn new(
        question: Question,
        matching: Rc<Matching>,
        tls: Option<ssl::Fixed>,
        conf: &UpConf,
    ) -> HttpProbe {
        let client = Client {
            connect_ms: conf.connect_timeout,
            timeout: Timeout::Exchange(conf.read_timeout),
            head_max: ANSWER_MAX,
            body_max: matching.wants_body().then_some(ANSWER_MAX),
        };
        HttpProbe { question, matching, tls, client }
    }

    async fn check(&self, addr: &SockAddr, kept: Option<UpConn>) -> Checked {
        // The server may have closed a connection that was kept: then a new one decides.
        if let (Question::Http1(message), Some(kept)) = (&self.question, kept)
            && let Ok(kept) = self.converse(kept, message).await
        {
            return Ok(kept);
        }
        let conn = match &self.tls {
            None => self.client.connect(addr).await,
            Some(tls) => self.client.connect_tls(addr, tls).await,
        };
        let conn = conn.map_err(failure)?;
        match &self.question {
            Question::Connect => Ok(None),
            Question::Http1(message) => self.converse(conn, message).await,
            Question::Http2(question) => question.ask(conn).await.map(|()| None),
        }
    }

    async fn converse(&self, conn: UpConn, message: &Message) -> Checked {
        let (response, conn) = self.client.exchange(conn, message).await.map_err(failure)?;
        let body = response.body.bytes();
        self.matching.check(&response.head, &response.text, body).map_err(str::to_owned)?;
        Ok(conn)
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::InvalidHead(_) => "the answer is not HTTP".to_owned(),
        Error::HeadTooLong => Error::Closed.to_string(),
        error => error.to_string(),
    }
}
