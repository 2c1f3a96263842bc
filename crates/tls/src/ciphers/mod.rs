//! Cipher suites, and the language of `ssl_ciphers`: OpenSSL's cipher strings.
//!
//! The rules are OpenSSL 3.0's, applied to its table of suites, so that what a string says about
//! suites that cannot be had here, and the order of those that can, are what OpenSSL makes of it.

mod rules;
mod table;

use std::fmt;

use pki::verify::security_bits;

/// A cipher suite that can be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suite {
    /// TLS 1.2, `ECDHE-ECDSA-AES256-GCM-SHA384`.
    EcdsaAes256,
    /// TLS 1.2, `ECDHE-RSA-AES256-GCM-SHA384`.
    RsaAes256,
    /// TLS 1.2, `ECDHE-ECDSA-CHACHA20-POLY1305`.
    EcdsaChacha20,
    /// TLS 1.2, `ECDHE-RSA-CHACHA20-POLY1305`.
    RsaChacha20,
    /// TLS 1.2, `ECDHE-ECDSA-AES128-GCM-SHA256`.
    EcdsaAes128,
    /// TLS 1.2, `ECDHE-RSA-AES128-GCM-SHA256`.
    RsaAes128,
    /// TLS 1.3, `TLS_AES_256_GCM_SHA384`.
    Aes256,
    /// TLS 1.3, `TLS_CHACHA20_POLY1305_SHA256`.
    Chacha20,
    /// TLS 1.3, `TLS_AES_128_GCM_SHA256`.
    Aes128,
}

impl Suite {
    /// The suites of TLS 1.2, in OpenSSL's order.
    pub const TLS12: [Suite; 6] = [
        Suite::EcdsaAes256,
        Suite::RsaAes256,
        Suite::EcdsaChacha20,
        Suite::RsaChacha20,
        Suite::EcdsaAes128,
        Suite::RsaAes128,
    ];

    /// The suites of TLS 1.3, in OpenSSL's order.
    pub const TLS13: [Suite; 3] = [Suite::Aes256, Suite::Chacha20, Suite::Aes128];

    /// The number in the protocol.
    pub fn number(self) -> u16 {
        match self {
            Suite::EcdsaAes256 => 0xc02c,
            Suite::RsaAes256 => 0xc030,
            Suite::EcdsaChacha20 => 0xcca9,
            Suite::RsaChacha20 => 0xcca8,
            Suite::EcdsaAes128 => 0xc02b,
            Suite::RsaAes128 => 0xc02f,
            Suite::Aes256 => 0x1302,
            Suite::Chacha20 => 0x1303,
            Suite::Aes128 => 0x1301,
        }
    }

    /// OpenSSL's name.
    pub fn name(self) -> &'static str {
        proto::tls_names::cipher_suite(self.number()).unwrap_or_default()
    }

    /// The length of the key, bits.
    pub fn bits(self) -> u32 {
        match self {
            Suite::EcdsaAes128 | Suite::RsaAes128 | Suite::Aes128 => 128,
            _ => 256,
        }
    }
}

/// Why a string is refused, in OpenSSL's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Something that is no command, no name and no separator.
    InvalidCommand,
    /// Nothing is left.
    NoCipherMatch,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::InvalidCommand => "error:0A000118:SSL routines::invalid command",
            Reason::NoCipherMatch => "error:0A0000B9:SSL routines::no cipher match",
        })
    }
}

/// nginx's message for a string that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    text: String,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SSL_CTX_set_cipher_list(\"{}\") failed (SSL: {})", self.text, self.reason)
    }
}

impl std::error::Error for Error {}

/// The suites that a cipher string selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ciphers {
    text: String,
    suites: Vec<Suite>,
    missing: Vec<&'static str>,
    security_level: Option<u8>,
}

impl Ciphers {
    /// Reads a cipher string.
    ///
    /// # Errors
    /// OpenSSL refuses it: it breaks the language, or selects no suite at all. One that selects
    /// suites, but none that can be had, is no error here: see [`Ciphers::suites`].
    pub fn parse(text: &str) -> Result<Ciphers, Error> {
        let error = |reason| Error { text: text.to_owned(), reason };
        let selected = rules::select(text).map_err(error)?;
        if selected.rows.is_empty() {
            return Err(error(Reason::NoCipherMatch));
        }
        let had = |row: &&table::Row| row.suite().is_some();
        let named = selected.named.into_iter().filter(|row| !had(row));
        let suites = selected.rows.iter().filter_map(|row| row.suite());
        let bits = selected.security_level.map_or(0, security_bits);
        Ok(Ciphers {
            text: text.to_owned(),
            suites: suites.filter(|suite| suite.bits() >= bits).collect(),
            missing: named.map(|row| row.name).collect(),
            security_level: selected.security_level,
        })
    }

    /// The suites of TLS 1.2, best first.
    ///
    /// # Errors
    /// None is left, and there is no TLS 1.3, whose suites are another setting.
    pub fn suites(&self, has_tls13: bool) -> Result<&[Suite], Error> {
        if self.suites.is_empty() && !has_tls13 {
            return Err(Error { text: self.text.clone(), reason: Reason::NoCipherMatch });
        }
        Ok(&self.suites)
    }

    /// The level of `@SECLEVEL`, where the string has it. Certificates, groups and signatures have
    /// to reach it as well.
    pub fn security_level(&self) -> Option<u8> {
        self.security_level
    }

    /// What to warn of, once: suites that the string names and that cannot be had (with CBC, with
    /// a key exchange by RSA or DHE, …), and that no suite of TLS 1.2 is left.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.missing.is_empty() {
            warnings
                .push(format!("cipher suites not supported, ignored: {}", self.missing.join(":")));
        }
        if self.suites.is_empty() {
            warnings.push(format!("no cipher suite of TLSv1.2 is left of \"{}\"", self.text));
        }
        warnings
    }

    /// The names of suites that the string has and that cannot be had.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

/// Reads the names of suites of TLS 1.3, as the command `Ciphersuites` has them. Suites that are
/// known and cannot be had come second.
///
/// # Errors
/// There are names, and no suite among them is known.
pub fn tls13(text: &str) -> Result<(Vec<Suite>, Vec<&str>), Reason> {
    let (mut suites, mut missing) = (Vec::new(), Vec::new());
    for name in text.split(':').map(str::trim).filter(|name| !name.is_empty()) {
        match Suite::TLS13.into_iter().find(|suite| suite.name() == name) {
            Some(suite) if !suites.contains(&suite) => suites.push(suite),
            Some(_) => {}
            None if matches!(name, "TLS_AES_128_CCM_SHA256" | "TLS_AES_128_CCM_8_SHA256") => {
                missing.push(name);
            }
            None => {}
        }
    }
    if suites.is_empty() && missing.is_empty() && !text.is_empty() {
        return Err(Reason::NoCipherMatch);
    }
    Ok((suites, missing))
}

#[cfg(test)]
mod tests;
