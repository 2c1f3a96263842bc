//! What depends on the server that was chosen: whether it may be asked (`*_allow_upstream`), the
//! request, which is made anew because it may contain the server's name (`*_request_dynamic`), and
//! our own address (`*_bind_dynamic`).

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use base::log::Level;
use http::request::Request;
use mem::Chain;
use upstream::socket::SocketConf;

use super::Exchange;
use crate::conf::next;
use crate::failure::Stop;

/// Our own end of connections, where its address is from variables.
pub(super) struct Bound {
    /// The settings with that address.
    pub socket: SocketConf,
    /// A hash of the address, so that a kept connection is only reused from the same one.
    pub hash: usize,
}

impl Exchange {
    /// Whether anything is to be done once the server is known.
    pub(super) fn depends_on_server(&self) -> bool {
        let conf = &self.conf;
        conf.request_dynamic || conf.bind_dynamic || !conf.allow.is_empty()
    }

    /// The server is known: checks that it may be asked, and makes what is made anew for it.
    #[cold]
    pub(super) fn at_server(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), Stop> {
        let conf = self.conf.clone();
        let is_set = |value: &[u8]| !value.is_empty() && value != b"0";
        if !conf.allow.iter().all(|value| is_set(&value.eval(r))) {
            r.log(Level::Error, format_args!("upstream server is not allowed"));
            return Err(Stop::Next(next::DENIED));
        }
        if conf.bind_dynamic {
            self.bind(r);
        }
        match conf.request_dynamic {
            true => self.protocol.request(r, out).map_err(Stop::Status),
            false => Ok(()),
        }
    }

    /// Evaluates our own address, if it is from variables.
    #[cold]
    pub(super) fn bind(&mut self, r: &mut Request) {
        if self.conf.socket.varies() {
            let (socket, local) = self.conf.socket.evaluated(r);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&local) as usize;
            self.bound = Some(Box::new(Bound { socket, hash }));
        }
    }
}
