//! Fingerprints of clients from their hellos.
//!
//! JA3: <https://github.com/salesforce/ja3>. JA4: `technical_details/JA4.md` of
//! <https://github.com/FoxIO-LLC/ja4>; that of the TLS client alone, which is free to use. Both
//! leave out the numbers of GREASE.

use md5::{Digest, Md5};
use sha2::Sha256;

use super::{ClientHello, extension, is_grease};
use crate::tls_names::write_hex;

/// The number of hexadecimal digits that JA4 keeps of a hash.
const JA4_DIGITS: usize = 12;
/// The text of JA4 in place of the hash of an empty list.
const JA4_EMPTY: &[u8] = b"000000000000";

/// The text of JA3: version, suites, extensions, groups and forms of points, in the client's order.
pub fn ja3_text(hello: &ClientHello<'_>) -> String {
    let mut out = String::new();
    let mut field = |numbers: &mut dyn Iterator<Item = u16>| {
        if !out.is_empty() {
            out.push(',');
        }
        for (index, number) in numbers.enumerate() {
            if index > 0 {
                out.push('-');
            }
            out.push_str(&number.to_string());
        }
    };
    field(&mut std::iter::once(hello.legacy_version()));
    field(&mut hello.cipher_suites().without_grease());
    field(&mut extensions(hello));
    field(&mut hello.groups().without_grease());
    field(&mut hello.ec_point_formats().iter().map(|form| u16::from(*form)));
    out
}

/// JA3: the MD5 of [`ja3_text`], 32 hexadecimal digits.
pub fn ja3(hello: &ClientHello<'_>) -> String {
    hex(&Md5::digest(ja3_text(hello)))
}

/// The transport of the hello, the first letter of JA4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// TLS over TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// JA4 of the client, 36 characters: `t13d1516h2_8daaf6152771_e5627efa2ab1`.
pub fn ja4(hello: &ClientHello<'_>, carrier: Carrier) -> String {
    let (mut suites, mut extensions) = ja4_lists(hello);
    let mut out = ja4_head(hello, carrier, suites.len());
    suites.sort_unstable();
    extensions.sort_unstable();
    let hash = |text: Vec<u8>| match &*text {
        [] => JA4_EMPTY.to_vec(),
        text => hex(&Sha256::digest(text)).into_bytes(),
    };
    for text in [ja4_text(&suites), ja4_extensions(hello, &extensions)] {
        out.push(b'_');
        out.extend(hash(text).iter().take(JA4_DIGITS));
    }
    ascii(out)
}

/// The text that [`ja4`] hashes, `JA4_r`: the lists themselves in place of their hashes.
pub fn ja4_raw(hello: &ClientHello<'_>, carrier: Carrier) -> String {
    let (mut suites, mut extensions) = ja4_lists(hello);
    let mut out = ja4_head(hello, carrier, suites.len());
    suites.sort_unstable();
    extensions.sort_unstable();
    out.push(b'_');
    out.extend(ja4_text(&suites));
    out.push(b'_');
    out.extend(ja4_extensions(hello, &extensions));
    ascii(out)
}

/// The suites, and the extensions that JA4 hashes: server name and ALPN are in its first part.
fn ja4_lists(hello: &ClientHello<'_>) -> (Vec<u16>, Vec<u16>) {
    let named = [extension::SERVER_NAME, extension::ALPN];
    let suites = hello.cipher_suites().without_grease().collect();
    (suites, extensions(hello).filter(|number| !named.contains(number)).collect())
}

fn extensions<'a>(hello: &'a ClientHello<'_>) -> impl Iterator<Item = u16> + 'a {
    hello.extensions().map(|one| one.number).filter(|number| !is_grease(*number))
}

/// The first part: carrier, version, whether there is a server name, two counts, and ALPN.
fn ja4_head(hello: &ClientHello<'_>, carrier: Carrier, suites: usize) -> Vec<u8> {
    let carrier = match carrier {
        Carrier::Tcp => 't',
        Carrier::Quic => 'q',
    };
    let version = match hello.supported_versions().without_grease().max() {
        Some(version) => version,
        None if hello.has_supported_versions() => 0,
        None => hello.legacy_version(),
    };
    let version = match version {
        0x0002 => "s2",
        0x0300 => "s3",
        0x0301 => "10",
        0x0302 => "11",
        0x0303 => "12",
        0x0304 => "13",
        _ => "00",
    };
    let named = if hello.extension(extension::SERVER_NAME).is_some() { 'd' } else { 'i' };
    let (suites, extensions) = (suites.min(99), extensions(hello).count().min(99));
    let mut out = format!("{carrier}{version}{named}{suites:02}{extensions:02}").into_bytes();
    out.extend_from_slice(&ja4_alpn(hello.alpn().next().unwrap_or_default()));
    out
}

/// First and last character of a protocol's name, of its hexadecimal form where they are no letters
/// and digits.
fn ja4_alpn(name: &[u8]) -> [u8; 2] {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return *b"00" };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last];
    }
    let digit = |value: u8| char::from_digit(u32::from(value), 16).map_or(b'0', |c| c as u8);
    [digit(first >> 4), digit(last & 15)]
}

/// The extensions in the order given, then, after a `_`, the signature schemes in the client's
/// order.
fn ja4_extensions(hello: &ClientHello<'_>, extensions: &[u16]) -> Vec<u8> {
    let mut out = ja4_text(extensions);
    let schemes: Vec<u16> = hello.signature_algorithms().without_grease().collect();
    if !schemes.is_empty() {
        out.push(b'_');
        out.extend(ja4_text(&schemes));
    }
    out
}

/// Hexadecimal numbers with commas between.
fn ja4_text(numbers: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(numbers.len() * 5);
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_hex(*number, &mut out);
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The text is ASCII alone.
fn ascii(bytes: Vec<u8>) -> String {
    bytes.into_iter().map(char::from).collect()
}
