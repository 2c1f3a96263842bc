//! Variables of the connection that a request came over, as far as other engines lack them.

use base::ascii::{write_millis, write_u64};
use common_modules::connection_vars::Connected;
use os::SockAddr;
use os::socket::TcpInfo;
use proto::proxy_protocol::Header;

use crate::request::Request;

impl Connected for Request {
    fn local(&self) -> Option<&SockAddr> {
        self.c().local()
    }

    fn local_port(&self) -> u16 {
        self.c().local_port()
    }

    fn proxy_header(&self) -> Option<&Header> {
        self.c().proxy_header()
    }
}

pub(super) fn requests(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.c().requests.get());
    true
}

pub(super) fn time(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_millis(out, base::time::now_ms().saturating_sub(r.c().start_ms));
    true
}

pub(super) fn scheme(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(if r.is_secured() { b"https" } else { b"http" });
    true
}

pub(super) fn https(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.is_secured() {
        out.extend_from_slice(b"on");
    }
    true
}

pub(super) fn tcp_info(r: &mut Request, out: &mut Vec<u8>, of: fn(&TcpInfo) -> u32) -> bool {
    match r.c().tcp_info() {
        Ok(info) => {
            write_u64(out, of(&info).into());
            true
        }
        Err(_) => false,
    }
}
