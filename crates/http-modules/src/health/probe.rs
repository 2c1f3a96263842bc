//! The HTTP question of a health check.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use ::upstream::health::{Checked, Failure, Probe};
use ::upstream::http_client::{Client, Error, Message, Timeout};
use ::upstream::pool::UpConn;
use ::upstream::ssl;
use http::upstream::conf::Conf as UpConf;
use os::SockAddr;

use super::matching::Matching;

/// The longest head, and the longest body, of a response that is read whole, bytes.
const ANSWER_MAX: usize = 256 << 10;

/// The question, and the judgement of the answer.
pub(super) struct HttpProbe {
    /// The request; without one, a connection (and its TLS session) is all that is asked for.
    message: Option<Message>,
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
        message: Option<Message>,
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
        HttpProbe { message, matching, tls, client }
    }

    async fn check(&self, addr: &SockAddr, kept: Option<UpConn>) -> Checked {
        // The server may have closed a connection that was kept: then a new one decides.
        if let (Some(message), Some(kept)) = (&self.message, kept)
            && let Ok(kept) = self.converse(kept, message).await
        {
            return Ok(kept);
        }
        let conn = match &self.tls {
            None => self.client.connect(addr).await,
            Some(tls) => self.client.connect_tls(addr, tls).await,
        };
        let conn = conn.map_err(failure)?;
        match &self.message {
            Some(message) => self.converse(conn, message).await,
            None => Ok(None),
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
