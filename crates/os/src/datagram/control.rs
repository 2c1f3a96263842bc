//! Control messages: what goes with a datagram beside its bytes and its address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Received;
use crate::SockAddr;

/// Room for the control messages of one call.
#[repr(C, align(8))]
pub(super) struct Control([u8; Control::LEN]);

impl Control {
    /// The longest that are received: the local address in both versions' forms, ECN, and the
    /// length of joined datagrams.
    pub const LEN: usize = 128;
    pub const EMPTY: Control = Control([0; Control::LEN]);
}

/// Control messages to be sent with a datagram.
#[derive(Clone, Copy)]
pub(super) struct Extras {
    /// The local address.
    pub from: Option<IpAddr>,
    /// The length of each datagram but the last one.
    pub segment: Option<u16>,
    /// ECN bits.
    pub ecn: u8,
}

/// The bits of the field in the IP header that are ECN's; the others are the kernel's to fill.
const ECN: u8 = 3;

impl Extras {
    /// The kernel needs none of it.
    pub fn is_empty(&self) -> bool {
        self.from.is_none() && self.segment.is_none() && self.ecn == 0
    }
}

/// Notes what came with a datagram.
pub(super) fn read_control(message: &libc::msghdr, received: &mut Received) {
    // SAFETY: `message` was filled by `recvmsg`, and its control buffer lives in the caller.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the macros gave a header that lies within the control buffer, aligned for it; its
        // data is read only as far as its length says.
        unsafe {
            let head = &*next;
            let data = libc::CMSG_DATA(next);
            let len = (head.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if len >= size_of::<libc::in_pktinfo>() => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let ip = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
                    received.to = Some(IpAddr::V4(ip));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                    if len >= size_of::<libc::in6_pktinfo>() =>
                {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    received.to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) if len >= size_of::<i32>() => {
                    let segment = data.cast::<i32>().read_unaligned();
                    if let Ok(segment @ 1..) = usize::try_from(segment) {
                        received.segment = segment;
                    }
                }
                // A byte.
                (libc::IPPROTO_IP, libc::IP_TOS) if len >= 1 => received.ecn = data.read() & ECN,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if len >= size_of::<i32>() => {
                    received.ecn = data.cast::<i32>().read_unaligned() as u8 & ECN;
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
}

/// Writes what is to go with a datagram to this address, or over a connected socket; the bytes
/// used.
pub(super) fn write_control(control: &mut Control, to: Option<&SockAddr>, extras: Extras) -> usize {
    let mut used = 0;
    match extras.from {
        None => {}
        Some(IpAddr::V4(ip)) => {
            // SAFETY: plain integers, for which all zeroes is a value.
            let mut info: libc::in_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
            used = put(control, used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            // SAFETY: as above.
            let mut info: libc::in6_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi6_addr.s6_addr = ip.octets();
            used = put(control, used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
    if let Some(segment) = extras.segment {
        used = put(control, used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    if extras.ecn != 0 {
        let ecn = i32::from(extras.ecn & ECN);
        // To a client of version 4 behind a socket of version 6 the kernel sends as version 4.
        let (v4, v6) = match to {
            Some(SockAddr::V6(addr)) => {
                let mapped = addr.ip().to_ipv4_mapped().is_some();
                (mapped, !mapped)
            }
            Some(_) => (true, false),
            None => (true, true),
        };
        if v4 {
            used = put(control, used, libc::IPPROTO_IP, libc::IP_TOS, ecn);
        }
        if v6 {
            used = put(control, used, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ecn);
        }
    }
    used
}

/// Puts one control message behind `at` bytes; gives the bytes used then.
fn put<T: Copy>(control: &mut Control, at: usize, level: i32, kind: i32, value: T) -> usize {
    // SAFETY: these compute lengths alone.
    let (space, len) = unsafe {
        let size = size_of::<T>() as u32;
        (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
    };
    assert!(at + space <= Control::LEN, "all control messages fit");
    let Some(place) = control.0.get_mut(at..at + space) else { return at };
    let head = place.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: `place` has room for the header and the value behind it. The buffer is aligned for
    // headers, and `CMSG_SPACE` keeps what follows aligned.
    unsafe {
        (*head).cmsg_len = len as _;
        (*head).cmsg_level = level;
        (*head).cmsg_type = kind;
        libc::CMSG_DATA(head).cast::<T>().write_unaligned(value);
    }
    at + space
}
