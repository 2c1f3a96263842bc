//! Password hashes in the forms of crypt(3), Apache's `$apr1$` and the schemes of RFC 2307.

use blowfish::Blowfish;
use md5::Md5;
use sha1::Sha1;
use sha2::digest::Output;
use sha2::{Digest, Sha256, Sha512};

use super::des;

/// bcrypt's cost is the exponent of its time: this one takes some seconds of a thread.
const BCRYPT_COST_MAX: u32 = 16;

/// The same for the SHA hashes, whose rounds are counted.
const SHA_ROUNDS_MAX: u64 = 5_000_000;

/// Whether the password is the one that `hash` was made of; `None` where the form of the hash is
/// not known, or it would take too long.
///
/// Takes up to seconds, by what the hash says; see [`is_costly`].
pub(super) fn verify(password: &[u8], hash: &[u8]) -> Option<bool> {
    let made = match hash {
        _ if hash.starts_with(b"{PLAIN}") => [b"{PLAIN}", password].concat(),
        _ if hash.starts_with(b"{SHA}") => {
            [b"{SHA}", &base64(&Sha1::digest(password))[..]].concat()
        }
        _ if hash.starts_with(b"{SSHA}") => ssha(password, &hash[6..])?,
        _ if hash.starts_with(b"$apr1$") => md5_crypt(password, b"$apr1$", &hash[6..]),
        _ if hash.starts_with(b"$1$") => md5_crypt(password, b"$1$", &hash[3..]),
        _ if hash.starts_with(b"$5$") => sha_crypt::<Sha256>(password, b"$5$", &hash[3..])?,
        _ if hash.starts_with(b"$6$") => sha_crypt::<Sha512>(password, b"$6$", &hash[3..])?,
        [b'$', b'2', b'a' | b'b' | b'y', b'$', ..] => bcrypt(password, hash)?,
        [b'$' | b'{' | b'_' | b'*', ..] => return None,
        _ => des::crypt(password, hash)?,
    };
    Some(same(&made, hash))
}

/// Whether hashing takes long enough to be left to a thread, and its result worth remembering.
pub(super) fn is_costly(hash: &[u8]) -> bool {
    !hash.starts_with(b"{")
}

/// Compares in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    base::base64::encode(bytes, &mut out);
    out
}

/// The salt stands behind the digest, in the same base64 text.
fn ssha(password: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    const LEN: usize = 20;
    let mut decoded = Vec::new();
    if !base::base64::decode(text, &mut decoded) || decoded.len() < LEN {
        // Not what makes such a hash, so no password is the right one.
        return Some(Vec::new());
    }
    let salt = &decoded[LEN..];
    let digest = Sha1::new().chain_update(password).chain_update(salt).finalize();
    Some([b"{SSHA}", &base64(&[&digest[..], salt].concat())[..]].concat())
}

/// crypt(3)'s digits.
pub(super) const DIGITS: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Appends `count` digits of a number, the lowest first.
fn digits(out: &mut Vec<u8>, mut value: u32, count: usize) {
    for _ in 0..count {
        out.push(DIGITS[(value & 63) as usize]);
        value >>= 6;
    }
}

/// The salt of a setting: up to `max` bytes before the next dollar.
fn salt(text: &[u8], max: usize) -> &[u8] {
    let end = memchr::memchr(b'$', text).unwrap_or(text.len());
    &text[..end.min(max)]
}

/// Poul-Henning Kamp's MD5 hash, under either of its names.
fn md5_crypt(password: &[u8], magic: &[u8], setting: &[u8]) -> Vec<u8> {
    let salt = salt(setting, 8);
    let once =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut h = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        let n = left.min(16);
        h.update(&once[..n]);
        left -= n;
    }
    let mut n = password.len();
    while n > 0 {
        h.update(if n & 1 == 1 { &b"\0"[..] } else { &password[..1] });
        n >>= 1;
    }
    let mut d = h.finalize();
    for i in 0..1000 {
        let mut h = Md5::new();
        if i & 1 == 1 {
            h.update(password)
        } else {
            h.update(d)
        };
        if i % 3 != 0 {
            h.update(salt);
        }
        if i % 7 != 0 {
            h.update(password);
        }
        if i & 1 == 1 {
            h.update(d)
        } else {
            h.update(password)
        };
        d = h.finalize();
    }
    let mut out = [magic, salt, b"$"].concat();
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        digits(&mut out, u32::from_be_bytes([0, d[a], d[b], d[c]]), 4);
    }
    digits(&mut out, d[11].into(), 2);
    out
}

/// Ulrich Drepper's hashes on SHA-256 and SHA-512.
fn sha_crypt<D: Digest>(password: &[u8], magic: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    const ROUNDS: u64 = 5000;
    let (rounds, rest) = match setting.strip_prefix(b"rounds=") {
        Some(text) => {
            let end = memchr::memchr(b'$', text)?;
            let rounds = base::ascii::parse_u64(&text[..end])?.max(1000);
            (Some(rounds), &text[end + 1..])
        }
        None => (None, setting),
    };
    if rounds.is_some_and(|n| n > SHA_ROUNDS_MAX) {
        return None;
    }
    let salt = salt(rest, 16);
    let d = sha_rounds::<D>(password, salt, rounds.unwrap_or(ROUNDS));
    let mut out = magic.to_vec();
    if let Some(n) = rounds {
        out.extend_from_slice(format!("rounds={n}$").as_bytes());
    }
    out.extend_from_slice(salt);
    out.push(b'$');
    sha_digits(&mut out, &d);
    Some(out)
}

fn sha_rounds<D: Digest>(password: &[u8], salt: &[u8], rounds: u64) -> Output<D> {
    let b = D::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut h = D::new().chain_update(password).chain_update(salt);
    update_to_length(&mut h, &b, password.len());
    let mut n = password.len();
    while n > 0 {
        if n & 1 == 1 {
            h.update(&b)
        } else {
            h.update(password)
        };
        n >>= 1;
    }
    let mut a = h.finalize();
    let mut h = D::new();
    for _ in 0..password.len() {
        h.update(password);
    }
    let p = to_length(&h.finalize(), password.len());
    let mut h = D::new();
    for _ in 0..16 + usize::from(a[0]) {
        h.update(salt);
    }
    let s = to_length(&h.finalize(), salt.len());
    for i in 0..rounds {
        let mut h = D::new();
        if i & 1 == 1 {
            h.update(&p)
        } else {
            h.update(&a)
        };
        if i % 3 != 0 {
            h.update(&s);
        }
        if i % 7 != 0 {
            h.update(&p);
        }
        if i & 1 == 1 {
            h.update(&a)
        } else {
            h.update(&p)
        };
        a = h.finalize();
    }
    a
}

fn update_to_length(h: &mut impl Digest, block: &[u8], len: usize) {
    h.update(to_length(block, len));
}

/// The block over and over, up to a length.
fn to_length(block: &[u8], len: usize) -> Vec<u8> {
    block.iter().copied().cycle().take(len).collect()
}

/// The digest in digits, its bytes in the order that the hash's definition has.
fn sha_digits(out: &mut Vec<u8>, d: &[u8]) {
    if d.len() == 32 {
        for i in 0..10 {
            let at = |n: usize| d[(i * 21 + n) % 30];
            digits(out, u32::from_be_bytes([0, at(0), at(10), at(20)]), 4);
        }
        digits(out, u32::from_be_bytes([0, 0, d[31], d[30]]), 3);
    } else {
        for i in 0..21 {
            let at = |n: usize| d[(i * 22 + n) % 63];
            digits(out, u32::from_be_bytes([0, at(0), at(21), at(42)]), 4);
        }
        digits(out, d[63].into(), 2);
    }
}

/// Niels Provos' and David Mazières' hash on Blowfish.
fn bcrypt(password: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    const SALT_DIGITS: usize = 22;
    let cost = setting.get(4..6).and_then(base::ascii::parse_u64)? as u32;
    let text = setting.get(6..)?.strip_prefix(b"$")?.get(..SALT_DIGITS)?;
    if !(4..=BCRYPT_COST_MAX).contains(&cost) {
        return None;
    }
    let salt: [u8; 16] = bcrypt_decode(text)?;
    // The key ends in a zero byte and is cut at 72.
    let mut key = [password, b"\0"].concat();
    key.truncate(72);
    let mut state: Blowfish = Blowfish::bc_init_state();
    state.salted_expand_key(&salt, &key);
    for _ in 0..1u32 << cost {
        state.bc_expand_key(&key);
        state.bc_expand_key(&salt);
    }
    let mut digest = [0u8; 24];
    let text_words = [0x4f72_7068, 0x6561_6e42, 0x6568_6f6c, 0x6465_7253, 0x6372_7944, 0x6f75_6274];
    for (i, pair) in text_words.chunks_exact(2).enumerate() {
        let mut block = [pair[0], pair[1]];
        for _ in 0..64 {
            block = state.bc_encrypt(block);
        }
        digest[i * 8..i * 8 + 4].copy_from_slice(&block[0].to_be_bytes());
        digest[i * 8 + 4..i * 8 + 8].copy_from_slice(&block[1].to_be_bytes());
    }
    let mut out = setting[..7].to_vec();
    bcrypt_encode(&mut out, &salt);
    bcrypt_encode(&mut out, &digest[..23]);
    Some(out)
}

const BCRYPT_DIGITS: &[u8; 64] =
    b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

fn bcrypt_encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let mut three = [0u8; 4];
        three[1..=chunk.len()].copy_from_slice(chunk);
        let n = u32::from_be_bytes(three);
        for i in 0..=chunk.len() {
            out.push(BCRYPT_DIGITS[(n >> (18 - 6 * i) & 63) as usize]);
        }
    }
}

fn bcrypt_decode(text: &[u8]) -> Option<[u8; 16]> {
    let (mut out, mut at, mut bits, mut held) = ([0; 16], 0, 0, 0u32);
    for b in text {
        let digit = BCRYPT_DIGITS.iter().position(|d| d == b)? as u32;
        held = held << 6 | digit;
        bits += 6;
        if bits >= 8 && at < out.len() {
            bits -= 8;
            out[at] = (held >> bits) as u8;
            at += 1;
        }
    }
    (at == out.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_programs() {
        let forty = "a".repeat(40);
        let seventy = "a".repeat(70);
        let eighty = "x".repeat(80);
        for (password, hash) in [
            ("password", "{PLAIN}password"),
            ("password", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
            ("password", "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0"),
            ("password", "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb."),
            ("password", "$1$salt$qJH7.N4xYta3aEG/dfqo/0"),
            ("", "$1$$qRPK7m23GJusamGpoGLby/"),
            (&forty, "$1$longsalt$JCjFxL61YamU56ZO20.s1/"),
            ("password", "$5$salt$Gcm6FsVtF/Qa77ZKD.iwsJlCVPY0XSMgLJL0Hnww/c1"),
            (
                &seventy,
                "$5$rounds=1400$anotherlongsalts$V1WEm1S2.09qN/2ryZMihElzQSMSyRPD8waT8E4NLR7",
            ),
            (
                "password",
                concat!(
                    "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS1",
                    "30MTSuDDl3aCI6WouIL9AjRbLCelDCy.g."
                ),
            ),
            (
                "",
                concat!(
                    "$6$rounds=1100$short$kpjoqfrzz240QzCDGMIVRkQRDJcH4rE/j7tDoDq",
                    "ynJ6oUsTOrtDV4VAHsg7MjANOyZdILKnHsOeySGW3uv/fk."
                ),
            ),
            ("password", "$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm"),
            ("", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy"),
            (&eighty, "$2y$04$CCCCCCCCCCCCCCCCCCCCC.ug0A3dTXhy5U.dFjx/qguZ8I4CB77BC"),
            ("password", "sa3tHJ3/KuYvI"),
            ("", "abmF1QH4PEr.E"),
            ("longer than eight", "zZb64kacvY9KA"),
        ] {
            assert_eq!(verify(password.as_bytes(), hash.as_bytes()), Some(true), "{hash}");
            let wrong = format!("{password}?");
            // Bytes behind the significant part of the password make no difference.
            let cut = !hash.starts_with(['$', '{']) || password.len() > 72;
            let wrong = if cut { format!("?{password}") } else { wrong };
            assert_eq!(verify(wrong.as_bytes(), hash.as_bytes()), Some(false), "{hash}");
        }
    }

    #[test]
    fn broken_hashes_fit_no_password() {
        for hash in [
            "$1$",
            "$apr1$",
            "{SHA}_____Mm5Pz8GgiULbPgzG37mj9g=",
            "{SHA}Zm9vCg==",
            "{SSHA}_____wQadOA1e+/f+T+H3eCQQhRzYWx0",
            "{SSHA}Zm9vCg==",
            "$5$",
            "$6$rounds=10$roundstoolow$",
            "$2b$04$abcdefghijklmnopqrstuu",
        ] {
            assert_eq!(verify(b"1", hash.as_bytes()), Some(false), "{hash}");
        }
    }

    #[test]
    fn what_is_not_known_or_too_costly() {
        for hash in [
            "",
            "x",
            "**",
            "*0",
            "\u{e4}x",
            "$y$j9T$salt$hash",
            "{MD5}x",
            "$6$rounds=x$salt$",
            "$6$rounds=999999999$salt$",
            "$2b$31$abcdefghijklmnopqrstuu",
            "$2b$03$abcdefghijklmnopqrstuu",
            "$2b$0",
            "$2b$04$short",
            "$2b$04$abcdefghijklmnopqrst*u",
        ] {
            assert_eq!(verify(b"1", hash.as_bytes()), None, "{hash}");
        }
    }
}
