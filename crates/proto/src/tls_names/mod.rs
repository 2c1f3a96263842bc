//! The names that OpenSSL has for numbers of TLS, as nginx shows them in variables: suites in
//! `$ssl_ciphers`, groups in `$ssl_curves`, schemes in `$ssl_sigalgs`.

mod ciphers;

use crate::tls_hello::ClientHello;

/// Groups (RFC 8446 §4.2.7) by the short names of their curves, which OpenSSL has had the longest:
/// `prime256v1`, not `secp256r1`.
const GROUPS: &[(u16, &str)] = &[
    (0x0001, "sect163k1"),
    (0x0002, "sect163r1"),
    (0x0003, "sect163r2"),
    (0x0004, "sect193r1"),
    (0x0005, "sect193r2"),
    (0x0006, "sect233k1"),
    (0x0007, "sect233r1"),
    (0x0008, "sect239k1"),
    (0x0009, "sect283k1"),
    (0x000a, "sect283r1"),
    (0x000b, "sect409k1"),
    (0x000c, "sect409r1"),
    (0x000d, "sect571k1"),
    (0x000e, "sect571r1"),
    (0x000f, "secp160k1"),
    (0x0010, "secp160r1"),
    (0x0011, "secp160r2"),
    (0x0012, "secp192k1"),
    (0x0013, "prime192v1"),
    (0x0014, "secp224k1"),
    (0x0015, "secp224r1"),
    (0x0016, "secp256k1"),
    (0x0017, "prime256v1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x001d, "X25519"),
    (0x001e, "X448"),
    (0x001f, "brainpoolP256r1tls13"),
    (0x0020, "brainpoolP384r1tls13"),
    (0x0021, "brainpoolP512r1tls13"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11eb, "SecP256r1MLKEM768"),
    (0x11ec, "X25519MLKEM768"),
    (0x11ed, "SecP384r1MLKEM1024"),
];

/// Signature schemes (RFC 8446 §4.2.3), with the names of OpenSSL 4.
const SIGNATURE_ALGORITHMS: &[(u16, &str)] = &[
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0202, "dsa_sha1"),
    (0x0203, "ecdsa_sha1"),
    (0x0301, "rsa_pkcs1_sha224"),
    (0x0302, "dsa_sha224"),
    (0x0303, "ecdsa_sha224"),
    (0x0401, "rsa_pkcs1_sha256"),
    (0x0402, "dsa_sha256"),
    (0x0403, "ecdsa_secp256r1_sha256"),
    (0x0501, "rsa_pkcs1_sha384"),
    (0x0502, "dsa_sha384"),
    (0x0503, "ecdsa_secp384r1_sha384"),
    (0x0601, "rsa_pkcs1_sha512"),
    (0x0602, "dsa_sha512"),
    (0x0603, "ecdsa_secp521r1_sha512"),
    (0x0708, "sm2sig_sm3"),
    (0x0804, "rsa_pss_rsae_sha256"),
    (0x0805, "rsa_pss_rsae_sha384"),
    (0x0806, "rsa_pss_rsae_sha512"),
    (0x0807, "ed25519"),
    (0x0808, "ed448"),
    (0x0809, "rsa_pss_pss_sha256"),
    (0x080a, "rsa_pss_pss_sha384"),
    (0x080b, "rsa_pss_pss_sha512"),
    (0x081a, "ecdsa_brainpoolP256r1tls13_sha256"),
    (0x081b, "ecdsa_brainpoolP384r1tls13_sha384"),
    (0x081c, "ecdsa_brainpoolP512r1tls13_sha512"),
    (0x0840, "gostr34102012_256"),
    (0x0841, "gostr34102012_512"),
    (0x0904, "mldsa44"),
    (0x0905, "mldsa65"),
    (0x0906, "mldsa87"),
    (0xeded, "gost2001_gost94"),
    (0xeeee, "gost2012_256"),
    (0xefef, "gost2012_512"),
];

/// The name of a cipher suite: `ECDHE-RSA-AES128-GCM-SHA256`, `TLS_AES_256_GCM_SHA384`.
pub fn cipher_suite(number: u16) -> Option<&'static str> {
    find(ciphers::SUITES, number)
}

/// The name of a group: `X25519`, `prime256v1`, `X25519MLKEM768`.
pub fn group(number: u16) -> Option<&'static str> {
    find(GROUPS, number)
}

/// The name of a signature scheme: `ecdsa_secp256r1_sha256`.
pub fn signature_algorithm(number: u16) -> Option<&'static str> {
    find(SIGNATURE_ALGORITHMS, number)
}

/// The number of a signature scheme by its name.
pub fn signature_algorithm_number(name: &str) -> Option<u16> {
    SIGNATURE_ALGORITHMS.iter().find(|(_, other)| *other == name).map(|(number, _)| *number)
}

/// The name of a version: `TLSv1.3`.
pub fn version(number: u16) -> Option<&'static str> {
    match number {
        0x0002 => Some("SSLv2"),
        0x0300 => Some("SSLv3"),
        0x0301 => Some("TLSv1"),
        0x0302 => Some("TLSv1.1"),
        0x0303 => Some("TLSv1.2"),
        0x0304 => Some("TLSv1.3"),
        _ => None,
    }
}

fn find(table: &[(u16, &'static str)], number: u16) -> Option<&'static str> {
    let at = table.binary_search_by_key(&number, |(number, _)| *number).ok()?;
    table.get(at).map(|(_, name)| *name)
}

/// Appends the value of `$ssl_ciphers`: the suites that the client offers, in its order.
pub fn write_ciphers(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    write_names(hello.cipher_suites(), cipher_suite, out);
}

/// Appends the value of `$ssl_curves`: the groups that the client offers, in its order.
pub fn write_curves(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    write_names(hello.groups(), group, out);
}

/// Appends the value of `$ssl_sigalgs`: the signature schemes of the client, in its order.
pub fn write_sigalgs(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    write_names(hello.signature_algorithms(), signature_algorithm, out);
}

/// The value of `$ssl_preread_protocol`: the highest version that the client offers. nginx shows
/// `TLSv1.3` for every hello with `supported_versions`; so does this where no version in it is
/// known.
pub fn preread_protocol(hello: &ClientHello<'_>) -> &'static str {
    match hello.version_max() {
        Some(number) => version(number).unwrap_or_default(),
        None => "TLSv1.3",
    }
}

/// Appends the value of `$ssl_preread_alpn_protocols`: the names with commas between.
pub fn write_alpn(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    for (index, name) in hello.alpn().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
    }
}

/// Names with colons between, and numbers in place of unknown names.
fn write_names(
    numbers: impl Iterator<Item = u16>,
    name: fn(u16) -> Option<&'static str>,
    out: &mut Vec<u8>,
) {
    for (index, number) in numbers.enumerate() {
        if index > 0 {
            out.push(b':');
        }
        match name(number) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => {
                out.extend_from_slice(b"0x");
                write_hex(number, out);
            }
        }
    }
}

/// Appends four hexadecimal digits.
pub(crate) fn write_hex(number: u16, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for shift in [12, 8, 4, 0] {
        out.extend(DIGITS.get(usize::from(number >> shift & 15)));
    }
}

#[cfg(test)]
mod tests;
