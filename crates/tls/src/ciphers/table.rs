//! The suites of OpenSSL 3.0, in its order of preference, and the names of groups of them.

use super::Suite;

/// A suite, with a bit of each kind.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) marks: Marks,
}

/// Bits by kind: of a suite one each, of a rule those that are selected; 0 for all.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks {
    pub(super) exchange: u32,
    pub(super) authentication: u32,
    pub(super) encryption: u32,
    pub(super) mac: u32,
    pub(super) version: u32,
    pub(super) strength: u32,
    pub(super) not_default: u32,
}

// Key exchanges.
const ECDHE: u32 = 1 << 0;
const DHE: u32 = 1 << 1;
const RSA: u32 = 1 << 2;
const PSK: u32 = 1 << 3;
const RSA_PSK: u32 = 1 << 4;
const DHE_PSK: u32 = 1 << 5;
const ECDHE_PSK: u32 = 1 << 6;
const SRP: u32 = 1 << 7;
// Authentication.
const ECDSA: u32 = 1 << 0;
const ARSA: u32 = 1 << 1;
const DSS: u32 = 1 << 2;
const ANULL: u32 = 1 << 3;
const APSK: u32 = 1 << 4;
const ASRP: u32 = 1 << 5;
// Encryption.
const AES128: u32 = 1 << 0;
const AES256: u32 = 1 << 1;
const AES128_GCM: u32 = 1 << 2;
const AES256_GCM: u32 = 1 << 3;
const AES128_CCM: u32 = 1 << 4;
const AES256_CCM: u32 = 1 << 5;
const AES128_CCM8: u32 = 1 << 6;
const AES256_CCM8: u32 = 1 << 7;
const ARIA128: u32 = 1 << 8;
const ARIA256: u32 = 1 << 9;
const CAMELLIA128: u32 = 1 << 10;
const CAMELLIA256: u32 = 1 << 11;
const CHACHA: u32 = 1 << 12;
const ENULL: u32 = 1 << 13;
// Authentication of messages.
const AEAD: u32 = 1 << 0;
const MD5: u32 = 1 << 1;
const SHA1: u32 = 1 << 2;
const SHA256: u32 = 1 << 3;
const SHA384: u32 = 1 << 4;
// The oldest version.
const SSL3: u32 = 1 << 0;
const TLS1: u32 = 1 << 1;
const TLS12: u32 = 1 << 2;
// Strength: all that encrypt are strong, and some have FIPS' approval.
const HIGH: u32 = 1 << 0;
const FIPS: u32 = 1 << 1;
// Whether the default leaves it out.
const NOT_DEFAULT: u32 = 1 << 0;

const AES_GCM: u32 = AES128_GCM | AES256_GCM;
const AES_CCM8: u32 = AES128_CCM8 | AES256_CCM8;
const AES_CCM: u32 = AES128_CCM | AES256_CCM | AES_CCM8;
const CAMELLIA: u32 = CAMELLIA128 | CAMELLIA256;
const CBC: u32 = AES128 | AES256 | CAMELLIA;
const ALL_PSK: u32 = PSK | RSA_PSK | DHE_PSK | ECDHE_PSK;

/// A suite in the default list, or not in it.
#[derive(Clone, Copy)]
enum In {
    /// It is in the default list, and has FIPS' approval.
    Fips,
    /// It is in the default list.
    Default,
    /// It is not in the default list, and has FIPS' approval.
    OnlyFips,
    /// It is not in the default list.
    Other,
}

const fn row(
    name: &'static str,
    exchange: u32,
    authentication: u32,
    encryption: u32,
    mac: u32,
    version: u32,
    list: In,
) -> Row {
    let high = if encryption == ENULL { 0 } else { HIGH };
    let (strength, not_default) = match list {
        In::Fips => (high | FIPS, 0),
        In::Default => (high, 0),
        In::OnlyFips => (high | FIPS, NOT_DEFAULT),
        In::Other => (high, NOT_DEFAULT),
    };
    let marks = Marks { exchange, authentication, encryption, mac, version, strength, not_default };
    Row { name, marks }
}

impl Row {
    /// The suite, if it can be had.
    pub(super) fn suite(&self) -> Option<Suite> {
        Suite::TLS12.into_iter().find(|suite| suite.name() == self.name)
    }

    /// The length of the key, bits.
    pub(super) fn bits(&self) -> u32 {
        const LONG: u32 =
            AES256 | AES256_GCM | AES256_CCM | AES256_CCM8 | ARIA256 | CAMELLIA256 | CHACHA;
        match self.marks.encryption {
            ENULL => 0,
            encryption if encryption & LONG != 0 => 256,
            _ => 128,
        }
    }
}

/// What the name of a group selects. Groups that are empty in OpenSSL 3.0 (`RC4`, `3DES`, `MEDIUM`,
/// …) are unknown here, which comes to the same.
pub(super) fn group(name: &[u8]) -> Option<Marks> {
    let exchange = |exchange| Marks { exchange, ..Marks::default() };
    let authentication = |authentication| Marks { authentication, ..Marks::default() };
    let encryption = |encryption| Marks { encryption, ..Marks::default() };
    let mac = |mac| Marks { mac, ..Marks::default() };
    let version = |version| Marks { version, ..Marks::default() };
    let both = |exchange, authentication| Marks { exchange, authentication, ..Marks::default() };
    Some(match name {
        b"ALL" => encryption(!ENULL),
        b"COMPLEMENTOFALL" | b"eNULL" | b"NULL" => encryption(ENULL),
        b"COMPLEMENTOFDEFAULT" => Marks { not_default: NOT_DEFAULT, ..Marks::default() },
        b"HIGH" => Marks { strength: HIGH, ..Marks::default() },
        b"FIPS" => Marks { strength: FIPS, ..encryption(!ENULL) },
        b"kRSA" => exchange(RSA),
        b"kEDH" | b"kDHE" | b"DH" => exchange(DHE),
        b"kEECDH" | b"kECDHE" | b"ECDH" => exchange(ECDHE),
        b"kPSK" => exchange(PSK),
        b"kRSAPSK" => exchange(RSA_PSK),
        b"kECDHEPSK" => exchange(ECDHE_PSK),
        b"kDHEPSK" => exchange(DHE_PSK),
        b"PSK" => exchange(ALL_PSK),
        b"kSRP" | b"SRP" => exchange(SRP),
        b"aRSA" => authentication(ARSA),
        b"aDSS" | b"DSS" => authentication(DSS),
        b"aNULL" => authentication(ANULL),
        b"aECDSA" | b"ECDSA" => authentication(ECDSA),
        b"aPSK" => authentication(APSK),
        b"aSRP" => authentication(ASRP),
        b"EDH" | b"DHE" => both(DHE, !ANULL),
        b"EECDH" | b"ECDHE" => both(ECDHE, !ANULL),
        b"RSA" => both(RSA, ARSA),
        b"ADH" => both(DHE, ANULL),
        b"AECDH" => both(ECDHE, ANULL),
        b"AES128" => encryption(AES128 | AES128_GCM | AES128_CCM | AES128_CCM8),
        b"AES256" => encryption(AES256 | AES256_GCM | AES256_CCM | AES256_CCM8),
        b"AES" => encryption(AES128 | AES256 | AES_GCM | AES_CCM),
        b"AESGCM" => encryption(AES_GCM),
        b"AESCCM" => encryption(AES_CCM),
        b"AESCCM8" => encryption(AES_CCM8),
        b"CAMELLIA128" => encryption(CAMELLIA128),
        b"CAMELLIA256" => encryption(CAMELLIA256),
        b"CAMELLIA" => encryption(CAMELLIA),
        b"CHACHA20" => encryption(CHACHA),
        b"ARIA" | b"ARIAGCM" => encryption(ARIA128 | ARIA256),
        b"ARIA128" => encryption(ARIA128),
        b"ARIA256" => encryption(ARIA256),
        b"CBC" => encryption(CBC),
        b"MD5" => mac(MD5),
        b"SHA1" | b"SHA" => mac(SHA1),
        b"SHA256" => mac(SHA256),
        b"SHA384" => mac(SHA384),
        b"SSLv3" => version(SSL3),
        b"TLSv1" | b"TLSv1.0" => version(TLS1),
        b"TLSv1.2" => version(TLS12),
        _ => return None,
    })
}

pub(super) static ROWS: &[Row] = &[
    row("ECDHE-ECDSA-AES256-GCM-SHA384", ECDHE, ECDSA, AES256_GCM, AEAD, TLS12, In::Fips),
    row("ECDHE-RSA-AES256-GCM-SHA384", ECDHE, ARSA, AES256_GCM, AEAD, TLS12, In::Fips),
    row("DHE-DSS-AES256-GCM-SHA384", DHE, DSS, AES256_GCM, AEAD, TLS12, In::OnlyFips),
    row("DHE-RSA-AES256-GCM-SHA384", DHE, ARSA, AES256_GCM, AEAD, TLS12, In::Fips),
    row("ECDHE-ECDSA-CHACHA20-POLY1305", ECDHE, ECDSA, CHACHA, AEAD, TLS12, In::Default),
    row("ECDHE-RSA-CHACHA20-POLY1305", ECDHE, ARSA, CHACHA, AEAD, TLS12, In::Default),
    row("DHE-RSA-CHACHA20-POLY1305", DHE, ARSA, CHACHA, AEAD, TLS12, In::Default),
    row("ECDHE-ECDSA-AES256-CCM8", ECDHE, ECDSA, AES256_CCM8, AEAD, TLS12, In::Other),
    row("ECDHE-ECDSA-AES256-CCM", ECDHE, ECDSA, AES256_CCM, AEAD, TLS12, In::Other),
    row("DHE-RSA-AES256-CCM8", DHE, ARSA, AES256_CCM8, AEAD, TLS12, In::Other),
    row("DHE-RSA-AES256-CCM", DHE, ARSA, AES256_CCM, AEAD, TLS12, In::Other),
    row("ECDHE-ECDSA-ARIA256-GCM-SHA384", ECDHE, ECDSA, ARIA256, AEAD, TLS12, In::Other),
    row("ECDHE-ARIA256-GCM-SHA384", ECDHE, ARSA, ARIA256, AEAD, TLS12, In::Other),
    row("DHE-DSS-ARIA256-GCM-SHA384", DHE, DSS, ARIA256, AEAD, TLS12, In::Other),
    row("DHE-RSA-ARIA256-GCM-SHA384", DHE, ARSA, ARIA256, AEAD, TLS12, In::Other),
    row("ADH-AES256-GCM-SHA384", DHE, ANULL, AES256_GCM, AEAD, TLS12, In::OnlyFips),
    row("ECDHE-ECDSA-AES128-GCM-SHA256", ECDHE, ECDSA, AES128_GCM, AEAD, TLS12, In::Fips),
    row("ECDHE-RSA-AES128-GCM-SHA256", ECDHE, ARSA, AES128_GCM, AEAD, TLS12, In::Fips),
    row("DHE-DSS-AES128-GCM-SHA256", DHE, DSS, AES128_GCM, AEAD, TLS12, In::OnlyFips),
    row("DHE-RSA-AES128-GCM-SHA256", DHE, ARSA, AES128_GCM, AEAD, TLS12, In::Fips),
    row("ECDHE-ECDSA-AES128-CCM8", ECDHE, ECDSA, AES128_CCM8, AEAD, TLS12, In::Other),
    row("ECDHE-ECDSA-AES128-CCM", ECDHE, ECDSA, AES128_CCM, AEAD, TLS12, In::Other),
    row("DHE-RSA-AES128-CCM8", DHE, ARSA, AES128_CCM8, AEAD, TLS12, In::Other),
    row("DHE-RSA-AES128-CCM", DHE, ARSA, AES128_CCM, AEAD, TLS12, In::Other),
    row("ECDHE-ECDSA-ARIA128-GCM-SHA256", ECDHE, ECDSA, ARIA128, AEAD, TLS12, In::Other),
    row("ECDHE-ARIA128-GCM-SHA256", ECDHE, ARSA, ARIA128, AEAD, TLS12, In::Other),
    row("DHE-DSS-ARIA128-GCM-SHA256", DHE, DSS, ARIA128, AEAD, TLS12, In::Other),
    row("DHE-RSA-ARIA128-GCM-SHA256", DHE, ARSA, ARIA128, AEAD, TLS12, In::Other),
    row("ADH-AES128-GCM-SHA256", DHE, ANULL, AES128_GCM, AEAD, TLS12, In::OnlyFips),
    row("ECDHE-ECDSA-AES256-SHA384", ECDHE, ECDSA, AES256, SHA384, TLS12, In::Fips),
    row("ECDHE-RSA-AES256-SHA384", ECDHE, ARSA, AES256, SHA384, TLS12, In::Fips),
    row("DHE-RSA-AES256-SHA256", DHE, ARSA, AES256, SHA256, TLS12, In::Fips),
    row("DHE-DSS-AES256-SHA256", DHE, DSS, AES256, SHA256, TLS12, In::OnlyFips),
    row("ECDHE-ECDSA-CAMELLIA256-SHA384", ECDHE, ECDSA, CAMELLIA256, SHA384, TLS12, In::Other),
    row("ECDHE-RSA-CAMELLIA256-SHA384", ECDHE, ARSA, CAMELLIA256, SHA384, TLS12, In::Other),
    row("DHE-RSA-CAMELLIA256-SHA256", DHE, ARSA, CAMELLIA256, SHA256, TLS12, In::Other),
    row("DHE-DSS-CAMELLIA256-SHA256", DHE, DSS, CAMELLIA256, SHA256, TLS12, In::Other),
    row("ADH-AES256-SHA256", DHE, ANULL, AES256, SHA256, TLS12, In::OnlyFips),
    row("ADH-CAMELLIA256-SHA256", DHE, ANULL, CAMELLIA256, SHA256, TLS12, In::Other),
    row("ECDHE-ECDSA-AES128-SHA256", ECDHE, ECDSA, AES128, SHA256, TLS12, In::Fips),
    row("ECDHE-RSA-AES128-SHA256", ECDHE, ARSA, AES128, SHA256, TLS12, In::Fips),
    row("DHE-RSA-AES128-SHA256", DHE, ARSA, AES128, SHA256, TLS12, In::Fips),
    row("DHE-DSS-AES128-SHA256", DHE, DSS, AES128, SHA256, TLS12, In::OnlyFips),
    row("ECDHE-ECDSA-CAMELLIA128-SHA256", ECDHE, ECDSA, CAMELLIA128, SHA256, TLS12, In::Other),
    row("ECDHE-RSA-CAMELLIA128-SHA256", ECDHE, ARSA, CAMELLIA128, SHA256, TLS12, In::Other),
    row("DHE-RSA-CAMELLIA128-SHA256", DHE, ARSA, CAMELLIA128, SHA256, TLS12, In::Other),
    row("DHE-DSS-CAMELLIA128-SHA256", DHE, DSS, CAMELLIA128, SHA256, TLS12, In::Other),
    row("ADH-AES128-SHA256", DHE, ANULL, AES128, SHA256, TLS12, In::OnlyFips),
    row("ADH-CAMELLIA128-SHA256", DHE, ANULL, CAMELLIA128, SHA256, TLS12, In::Other),
    row("ECDHE-ECDSA-AES256-SHA", ECDHE, ECDSA, AES256, SHA1, TLS1, In::Fips),
    row("ECDHE-RSA-AES256-SHA", ECDHE, ARSA, AES256, SHA1, TLS1, In::Fips),
    row("DHE-RSA-AES256-SHA", DHE, ARSA, AES256, SHA1, SSL3, In::Fips),
    row("DHE-DSS-AES256-SHA", DHE, DSS, AES256, SHA1, SSL3, In::OnlyFips),
    row("DHE-RSA-CAMELLIA256-SHA", DHE, ARSA, CAMELLIA256, SHA1, SSL3, In::Other),
    row("DHE-DSS-CAMELLIA256-SHA", DHE, DSS, CAMELLIA256, SHA1, SSL3, In::Other),
    row("AECDH-AES256-SHA", ECDHE, ANULL, AES256, SHA1, TLS1, In::OnlyFips),
    row("ADH-AES256-SHA", DHE, ANULL, AES256, SHA1, SSL3, In::OnlyFips),
    row("ADH-CAMELLIA256-SHA", DHE, ANULL, CAMELLIA256, SHA1, SSL3, In::Other),
    row("ECDHE-ECDSA-AES128-SHA", ECDHE, ECDSA, AES128, SHA1, TLS1, In::Fips),
    row("ECDHE-RSA-AES128-SHA", ECDHE, ARSA, AES128, SHA1, TLS1, In::Fips),
    row("DHE-RSA-AES128-SHA", DHE, ARSA, AES128, SHA1, SSL3, In::Fips),
    row("DHE-DSS-AES128-SHA", DHE, DSS, AES128, SHA1, SSL3, In::OnlyFips),
    row("DHE-RSA-CAMELLIA128-SHA", DHE, ARSA, CAMELLIA128, SHA1, SSL3, In::Other),
    row("DHE-DSS-CAMELLIA128-SHA", DHE, DSS, CAMELLIA128, SHA1, SSL3, In::Other),
    row("AECDH-AES128-SHA", ECDHE, ANULL, AES128, SHA1, TLS1, In::OnlyFips),
    row("ADH-AES128-SHA", DHE, ANULL, AES128, SHA1, SSL3, In::OnlyFips),
    row("ADH-CAMELLIA128-SHA", DHE, ANULL, CAMELLIA128, SHA1, SSL3, In::Other),
    row("RSA-PSK-AES256-GCM-SHA384", RSA_PSK, ARSA, AES256_GCM, AEAD, TLS12, In::Fips),
    row("DHE-PSK-AES256-GCM-SHA384", DHE_PSK, APSK, AES256_GCM, AEAD, TLS12, In::Fips),
    row("RSA-PSK-CHACHA20-POLY1305", RSA_PSK, ARSA, CHACHA, AEAD, TLS12, In::Default),
    row("DHE-PSK-CHACHA20-POLY1305", DHE_PSK, APSK, CHACHA, AEAD, TLS12, In::Default),
    row("ECDHE-PSK-CHACHA20-POLY1305", ECDHE_PSK, APSK, CHACHA, AEAD, TLS12, In::Default),
    row("DHE-PSK-AES256-CCM8", DHE_PSK, APSK, AES256_CCM8, AEAD, TLS12, In::Other),
    row("DHE-PSK-AES256-CCM", DHE_PSK, APSK, AES256_CCM, AEAD, TLS12, In::Other),
    row("RSA-PSK-ARIA256-GCM-SHA384", RSA_PSK, ARSA, ARIA256, AEAD, TLS12, In::Other),
    row("DHE-PSK-ARIA256-GCM-SHA384", DHE_PSK, APSK, ARIA256, AEAD, TLS12, In::Other),
    row("AES256-GCM-SHA384", RSA, ARSA, AES256_GCM, AEAD, TLS12, In::Fips),
    row("AES256-CCM8", RSA, ARSA, AES256_CCM8, AEAD, TLS12, In::Other),
    row("AES256-CCM", RSA, ARSA, AES256_CCM, AEAD, TLS12, In::Other),
    row("ARIA256-GCM-SHA384", RSA, ARSA, ARIA256, AEAD, TLS12, In::Other),
    row("PSK-AES256-GCM-SHA384", PSK, APSK, AES256_GCM, AEAD, TLS12, In::Fips),
    row("PSK-CHACHA20-POLY1305", PSK, APSK, CHACHA, AEAD, TLS12, In::Default),
    row("PSK-AES256-CCM8", PSK, APSK, AES256_CCM8, AEAD, TLS12, In::Other),
    row("PSK-AES256-CCM", PSK, APSK, AES256_CCM, AEAD, TLS12, In::Other),
    row("PSK-ARIA256-GCM-SHA384", PSK, APSK, ARIA256, AEAD, TLS12, In::Other),
    row("RSA-PSK-AES128-GCM-SHA256", RSA_PSK, ARSA, AES128_GCM, AEAD, TLS12, In::Fips),
    row("DHE-PSK-AES128-GCM-SHA256", DHE_PSK, APSK, AES128_GCM, AEAD, TLS12, In::Fips),
    row("DHE-PSK-AES128-CCM8", DHE_PSK, APSK, AES128_CCM8, AEAD, TLS12, In::Other),
    row("DHE-PSK-AES128-CCM", DHE_PSK, APSK, AES128_CCM, AEAD, TLS12, In::Other),
    row("RSA-PSK-ARIA128-GCM-SHA256", RSA_PSK, ARSA, ARIA128, AEAD, TLS12, In::Other),
    row("DHE-PSK-ARIA128-GCM-SHA256", DHE_PSK, APSK, ARIA128, AEAD, TLS12, In::Other),
    row("AES128-GCM-SHA256", RSA, ARSA, AES128_GCM, AEAD, TLS12, In::Fips),
    row("AES128-CCM8", RSA, ARSA, AES128_CCM8, AEAD, TLS12, In::Other),
    row("AES128-CCM", RSA, ARSA, AES128_CCM, AEAD, TLS12, In::Other),
    row("ARIA128-GCM-SHA256", RSA, ARSA, ARIA128, AEAD, TLS12, In::Other),
    row("PSK-AES128-GCM-SHA256", PSK, APSK, AES128_GCM, AEAD, TLS12, In::Fips),
    row("PSK-AES128-CCM8", PSK, APSK, AES128_CCM8, AEAD, TLS12, In::Other),
    row("PSK-AES128-CCM", PSK, APSK, AES128_CCM, AEAD, TLS12, In::Other),
    row("PSK-ARIA128-GCM-SHA256", PSK, APSK, ARIA128, AEAD, TLS12, In::Other),
    row("AES256-SHA256", RSA, ARSA, AES256, SHA256, TLS12, In::Fips),
    row("CAMELLIA256-SHA256", RSA, ARSA, CAMELLIA256, SHA256, TLS12, In::Other),
    row("AES128-SHA256", RSA, ARSA, AES128, SHA256, TLS12, In::Fips),
    row("CAMELLIA128-SHA256", RSA, ARSA, CAMELLIA128, SHA256, TLS12, In::Other),
    row("ECDHE-PSK-AES256-CBC-SHA384", ECDHE_PSK, APSK, AES256, SHA384, TLS1, In::Fips),
    row("ECDHE-PSK-AES256-CBC-SHA", ECDHE_PSK, APSK, AES256, SHA1, TLS1, In::Fips),
    row("SRP-DSS-AES-256-CBC-SHA", SRP, DSS, AES256, SHA1, SSL3, In::Other),
    row("SRP-RSA-AES-256-CBC-SHA", SRP, ARSA, AES256, SHA1, SSL3, In::Default),
    row("SRP-AES-256-CBC-SHA", SRP, ASRP, AES256, SHA1, SSL3, In::Default),
    row("RSA-PSK-AES256-CBC-SHA384", RSA_PSK, ARSA, AES256, SHA384, TLS1, In::Fips),
    row("DHE-PSK-AES256-CBC-SHA384", DHE_PSK, APSK, AES256, SHA384, TLS1, In::Fips),
    row("RSA-PSK-AES256-CBC-SHA", RSA_PSK, ARSA, AES256, SHA1, SSL3, In::Fips),
    row("DHE-PSK-AES256-CBC-SHA", DHE_PSK, APSK, AES256, SHA1, SSL3, In::Fips),
    row("ECDHE-PSK-CAMELLIA256-SHA384", ECDHE_PSK, APSK, CAMELLIA256, SHA384, TLS1, In::Other),
    row("RSA-PSK-CAMELLIA256-SHA384", RSA_PSK, ARSA, CAMELLIA256, SHA384, TLS1, In::Other),
    row("DHE-PSK-CAMELLIA256-SHA384", DHE_PSK, APSK, CAMELLIA256, SHA384, TLS1, In::Other),
    row("AES256-SHA", RSA, ARSA, AES256, SHA1, SSL3, In::Fips),
    row("CAMELLIA256-SHA", RSA, ARSA, CAMELLIA256, SHA1, SSL3, In::Other),
    row("PSK-AES256-CBC-SHA384", PSK, APSK, AES256, SHA384, TLS1, In::Fips),
    row("PSK-AES256-CBC-SHA", PSK, APSK, AES256, SHA1, SSL3, In::Fips),
    row("PSK-CAMELLIA256-SHA384", PSK, APSK, CAMELLIA256, SHA384, TLS1, In::Other),
    row("ECDHE-PSK-AES128-CBC-SHA256", ECDHE_PSK, APSK, AES128, SHA256, TLS1, In::Fips),
    row("ECDHE-PSK-AES128-CBC-SHA", ECDHE_PSK, APSK, AES128, SHA1, TLS1, In::Fips),
    row("SRP-DSS-AES-128-CBC-SHA", SRP, DSS, AES128, SHA1, SSL3, In::Other),
    row("SRP-RSA-AES-128-CBC-SHA", SRP, ARSA, AES128, SHA1, SSL3, In::Default),
    row("SRP-AES-128-CBC-SHA", SRP, ASRP, AES128, SHA1, SSL3, In::Default),
    row("RSA-PSK-AES128-CBC-SHA256", RSA_PSK, ARSA, AES128, SHA256, TLS1, In::Fips),
    row("DHE-PSK-AES128-CBC-SHA256", DHE_PSK, APSK, AES128, SHA256, TLS1, In::Fips),
    row("RSA-PSK-AES128-CBC-SHA", RSA_PSK, ARSA, AES128, SHA1, SSL3, In::Fips),
    row("DHE-PSK-AES128-CBC-SHA", DHE_PSK, APSK, AES128, SHA1, SSL3, In::Fips),
    row("ECDHE-PSK-CAMELLIA128-SHA256", ECDHE_PSK, APSK, CAMELLIA128, SHA256, TLS1, In::Other),
    row("RSA-PSK-CAMELLIA128-SHA256", RSA_PSK, ARSA, CAMELLIA128, SHA256, TLS1, In::Other),
    row("DHE-PSK-CAMELLIA128-SHA256", DHE_PSK, APSK, CAMELLIA128, SHA256, TLS1, In::Other),
    row("AES128-SHA", RSA, ARSA, AES128, SHA1, SSL3, In::Fips),
    row("CAMELLIA128-SHA", RSA, ARSA, CAMELLIA128, SHA1, SSL3, In::Other),
    row("PSK-AES128-CBC-SHA256", PSK, APSK, AES128, SHA256, TLS1, In::Fips),
    row("PSK-AES128-CBC-SHA", PSK, APSK, AES128, SHA1, SSL3, In::Fips),
    row("PSK-CAMELLIA128-SHA256", PSK, APSK, CAMELLIA128, SHA256, TLS1, In::Other),
    row("ECDHE-ECDSA-NULL-SHA", ECDHE, ECDSA, ENULL, SHA1, TLS1, In::Default),
    row("ECDHE-RSA-NULL-SHA", ECDHE, ARSA, ENULL, SHA1, TLS1, In::Default),
    row("AECDH-NULL-SHA", ECDHE, ANULL, ENULL, SHA1, TLS1, In::Default),
    row("NULL-SHA256", RSA, ARSA, ENULL, SHA256, TLS12, In::Default),
    row("ECDHE-PSK-NULL-SHA384", ECDHE_PSK, APSK, ENULL, SHA384, TLS1, In::Default),
    row("ECDHE-PSK-NULL-SHA256", ECDHE_PSK, APSK, ENULL, SHA256, TLS1, In::Default),
    row("ECDHE-PSK-NULL-SHA", ECDHE_PSK, APSK, ENULL, SHA1, TLS1, In::Default),
    row("RSA-PSK-NULL-SHA384", RSA_PSK, ARSA, ENULL, SHA384, TLS1, In::Default),
    row("RSA-PSK-NULL-SHA256", RSA_PSK, ARSA, ENULL, SHA256, TLS1, In::Default),
    row("DHE-PSK-NULL-SHA384", DHE_PSK, APSK, ENULL, SHA384, TLS1, In::Default),
    row("DHE-PSK-NULL-SHA256", DHE_PSK, APSK, ENULL, SHA256, TLS1, In::Default),
    row("RSA-PSK-NULL-SHA", RSA_PSK, ARSA, ENULL, SHA1, SSL3, In::Default),
    row("DHE-PSK-NULL-SHA", DHE_PSK, APSK, ENULL, SHA1, SSL3, In::Default),
    row("NULL-SHA", RSA, ARSA, ENULL, SHA1, SSL3, In::Default),
    row("NULL-MD5", RSA, ARSA, ENULL, MD5, SSL3, In::Default),
    row("PSK-NULL-SHA384", PSK, APSK, ENULL, SHA384, TLS1, In::Default),
    row("PSK-NULL-SHA256", PSK, APSK, ENULL, SHA256, TLS1, In::Default),
    row("PSK-NULL-SHA", PSK, APSK, ENULL, SHA1, SSL3, In::Default),
];
