//! The client's end, as something to wait for beside other work.

use std::future::Future;
use std::rc::Rc;

use net::Transport;

use super::Channel;
use super::conn::Conn;
use super::streams::Multiplexed;
use crate::request::Request;
use crate::{h2, h3};

/// A handle on the client's end. It outlives no request, but borrows none.
pub struct ClientEnd(End);

enum End {
    /// That of a connection which the request has for itself.
    Connection(Rc<Conn>),
    Stream(h2::Watch),
    /// That of a stream over QUIC.
    Quic(h3::Watch),
}

impl ClientEnd {
    /// The connection whose end is the client's, where the request has one of its own: a wait for
    /// another connection can include it.
    pub fn transport(&self) -> Option<&Transport> {
        match &self.0 {
            End::Connection(c) => Some(c.sock()),
            End::Stream(_) | End::Quic(_) => None,
        }
    }

    /// Waits until the client is known to be gone. Of several that wait on one connection only the
    /// first is told; the others go on as if nothing was.
    pub async fn gone(&self) {
        match &self.0 {
            End::Connection(c) => {
                if c.sock().closed_by_peer().await.is_err() {
                    // The connection is read by another task, which will notice.
                    std::future::pending::<()>().await;
                }
            }
            End::Stream(watch) => watch.gone().await,
            End::Quic(watch) => watch.gone().await,
        }
    }
}

impl Request {
    /// The client's end; only for the client's own request of a family, which has to notice it.
    pub fn watched(&self) -> Option<ClientEnd> {
        if self.flags.post_action || !self.c().has_client() {
            return None;
        }
        match &self.client.channel {
            Channel::Http1(_) => Some(ClientEnd(End::Connection(self.c().clone()))),
            Channel::Http2(stream) => Some(ClientEnd(End::Stream(stream.watch()))),
            Channel::Http3(stream) => Some(ClientEnd(End::Quic(stream.watch()))),
            Channel::Subrequest(_) => None,
        }
    }

    /// Whether a line tells that the client is gone: of a connection with many streams a few do, so
    /// that a client that resets one after the other does not fill the disk.
    pub fn tells_of_client_end(&self) -> bool {
        match &self.client.channel {
            Channel::Http2(stream) => stream.tells_of_end(),
            Channel::Http3(stream) => stream.tells_of_end(),
            Channel::Http1(_) | Channel::Subrequest(_) => true,
        }
    }

    /// Whether a line tells that the request's body or the response is written to a temporary file:
    /// a client with many streams has a few.
    pub fn tells_of_temp_file(&self) -> bool {
        match &self.client.channel {
            Channel::Http2(stream) => stream.tells_of_temp_file(),
            Channel::Http3(stream) => stream.tells_of_temp_file(),
            Channel::Http1(_) | Channel::Subrequest(_) => true,
        }
    }

    /// Waits until the client is gone; for ever where others look out for that.
    pub fn client_gone(&self) -> impl Future<Output = ()> + use<> {
        let end = self.watched();
        async move {
            match end {
                Some(end) => end.gone().await,
                None => std::future::pending().await,
            }
        }
    }
}
