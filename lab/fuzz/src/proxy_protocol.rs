//! Headers of the PROXY protocol.

use proto::proxy_protocol::{HEADER_MAX, Parsed, TlvName, find_tlv, parse, write_v1, write_v2};
use std::net::SocketAddr;

/// Every beginning of a header gives `More` or the result of the whole; an accepted header is
/// written and accepted again.
pub fn run(data: &[u8]) {
    let whole = parse(data);
    for len in 0..data.len().min(300) {
        let part = parse(&data[..len]);
        assert!(part == Ok(Parsed::More) || part == whole, "at {len}");
    }
    if let Err(error) = &whole {
        assert!(!error.message(data).contains(['\n', '\r', '\0']));
    }
    let Ok(Parsed::Done { len, header }) = whole else { return };
    assert!(len <= data.len() && len <= HEADER_MAX);
    let Some(header) = header else { return };
    for name in [TlvName::Top(1), TlvName::Ssl(0x21), TlvName::SslVerify] {
        if let Ok(Some(value)) = find_tlv(&header.tlvs, name) {
            assert!(value.len() <= data.len().max(10));
        }
    }
    let (Some(source), Some(destination)) = (header.source.ip, header.destination.ip) else {
        return;
    };
    let source = SocketAddr::new(source, header.source.port);
    let destination = SocketAddr::new(destination, header.destination.port);
    if source.is_ipv4() != destination.is_ipv4() {
        return;
    }
    let (mut one, mut two) = (Vec::new(), Vec::new());
    write_v1(Some(source), Some(destination), &mut one);
    assert!(write_v2(Some(source), Some(destination), false, &[], &mut two));
    for written in [one, two] {
        let Ok(Parsed::Done { len, header: Some(again) }) = parse(&written) else {
            panic!("{written:?} is not read")
        };
        assert_eq!(len, written.len());
        let ips = (again.source.ip.map(|ip| ip.to_canonical()), again.source.port);
        assert_eq!(ips, (Some(source.ip().to_canonical()), source.port()));
        assert_eq!(again.destination.port, destination.port());
    }
}
