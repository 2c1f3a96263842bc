//! Type-length-value fields of a version 2 header, by the names that
//! `$proxy_protocol_tlv_NAME` gives them.

use base::ascii::hex_digit;

/// TLVs that end before they should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokenTlv;

/// The name of a TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlvName {
    /// A TLV of the header.
    Top(u8),
    /// A TLV inside the SSL one.
    Ssl(u8),
    /// The result of verifying the client's certificate, from the SSL one; a decimal number.
    SslVerify,
    /// A number that no type has: never found.
    Never,
}

const SSL: u8 = 0x20;

/// Client flags and verify result, before the TLVs inside the SSL one.
const SSL_FIXED: usize = 5;

impl TlvName {
    /// The TLV that a name, as in `$proxy_protocol_tlv_NAME`, stands for: `alpn`, `ssl_cn`, `0xea`,
    /// `ssl_0x21`, …; none for an unknown name.
    pub fn parse(name: &[u8]) -> Option<TlvName> {
        let (name, inside) = match name.strip_prefix(b"ssl_") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let tlv = match (name, inside) {
            (b"verify", true) => return Some(TlvName::SslVerify),
            (b"alpn", false) => 0x01,
            (b"authority", false) => 0x02,
            (b"unique_id", false) => 0x05,
            (b"ssl", false) => SSL,
            (b"netns", false) => 0x30,
            (b"version", true) => 0x21,
            (b"cn", true) => 0x22,
            (b"cipher", true) => 0x23,
            (b"sig_alg", true) => 0x24,
            (b"key_alg", true) => 0x25,
            _ => match hex(name.strip_prefix(b"0x")?)? {
                Some(tlv) => tlv,
                None => return Some(TlvName::Never),
            },
        };
        Some(if inside { TlvName::Ssl(tlv) } else { TlvName::Top(tlv) })
    }
}

/// A hex number: `None` when it is not one, `Some(None)` when it is above 255.
fn hex(digits: &[u8]) -> Option<Option<u8>> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u32;
    for digit in digits {
        value = (value * 16 + u32::from(hex_digit(*digit)?)).min(0x1000);
    }
    Some(u8::try_from(value).ok())
}

/// The value of a TLV among `tlvs`, if it is there.
pub fn find_tlv(tlvs: &[u8], name: TlvName) -> Result<Option<Vec<u8>>, BrokenTlv> {
    match name {
        TlvName::Never => Ok(None),
        TlvName::Top(tlv) => Ok(lookup(tlvs, tlv)?.map(<[u8]>::to_vec)),
        TlvName::Ssl(_) | TlvName::SslVerify => {
            let Some(ssl) = lookup(tlvs, SSL)? else { return Ok(None) };
            let Some((fixed, inside)) = ssl.split_first_chunk::<SSL_FIXED>() else {
                return Err(BrokenTlv);
            };
            if let TlvName::Ssl(tlv) = name {
                return Ok(lookup(inside, tlv)?.map(<[u8]>::to_vec));
            }
            let [_, verify @ ..] = *fixed;
            Ok(Some(u32::from_be_bytes(verify).to_string().into_bytes()))
        }
    }
}

fn lookup(mut tlvs: &[u8], wanted: u8) -> Result<Option<&[u8]>, BrokenTlv> {
    while !tlvs.is_empty() {
        let (&[tlv, high, low], rest) = tlvs.split_first_chunk::<3>().ok_or(BrokenTlv)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = rest.split_at_checked(len).ok_or(BrokenTlv)?;
        if tlv == wanted {
            return Ok(Some(value));
        }
        tlvs = rest;
    }
    Ok(None)
}
