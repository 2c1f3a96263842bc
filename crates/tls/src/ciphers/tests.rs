use std::process::Command;

use super::*;

/// What the tool makes of a cipher string, without the suites of TLS 1.3; none when it refuses.
fn openssl(text: &str) -> Option<Vec<String>> {
    let output = Command::new("openssl").args(["ciphers", "-tls1_2", "--", text]).output();
    let output = output.expect("the tool openssl is installed");
    let names = String::from_utf8(output.stdout).unwrap();
    let names =
        names.trim().split(':').filter(|name| !name.is_empty() && !name.starts_with("TLS_"));
    let names: Vec<_> = names.map(str::to_owned).collect();
    // The tool, unlike nginx, takes a list of nothing but suites of TLS 1.3.
    (output.status.success() && !names.is_empty()).then_some(names)
}

/// The same from us: all suites by name, and the order of those that can be had.
fn compare(text: &str) {
    let theirs = openssl(text);
    let ours = rules::select(text).ok().filter(|selected| !selected.rows.is_empty());
    let (Some(mut theirs), Some(ours)) = (theirs.clone(), &ours) else {
        assert_eq!(ours.is_some(), theirs.is_some(), "{text}");
        assert_eq!(Ciphers::parse(text).is_ok(), theirs.is_some(), "{text}");
        return;
    };
    let mut names: Vec<_> = ours.rows.iter().map(|row| row.name.to_owned()).collect();
    let had = |names: &[String]| -> Vec<&'static str> {
        let find = |name: &String| Suite::TLS12.into_iter().find(|suite| suite.name() == name);
        names.iter().filter_map(find).map(Suite::name).collect()
    };
    assert_eq!(had(&names), had(&theirs), "{text}");
    names.sort();
    theirs.sort();
    assert_eq!(names, theirs, "{text}");
}

/// Strings of Mozilla's generator (three levels, two of them older editions), of certbot, Debian,
/// nginx's default and much-copied articles.
const REAL: &[&str] = &[
    "HIGH:!aNULL:!MD5",
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
     ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
     DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:\
     ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
     DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-SHA256:\
     ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES128-SHA:\
     ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA:\
     DHE-RSA-AES128-SHA256:DHE-RSA-AES128-SHA:DHE-RSA-AES256-SHA256:DHE-RSA-AES256-SHA:\
     ECDHE-ECDSA-DES-CBC3-SHA:ECDHE-RSA-DES-CBC3-SHA:EDH-RSA-DES-CBC3-SHA:AES128-GCM-SHA256:\
     AES256-GCM-SHA384:AES128-SHA256:AES256-SHA256:AES128-SHA:AES256-SHA:DES-CBC3-SHA:!DSS",
    "EECDH+AESGCM:EDH+AESGCM:AES256+EECDH:AES256+EDH",
    "EECDH+ECDSA+AESGCM EECDH+aRSA+AESGCM EECDH+ECDSA+SHA384 EECDH+ECDSA+SHA256 EECDH+aRSA+SHA384 \
     EECDH+aRSA+SHA256 EECDH+aRSA+RC4 EECDH EDH+aRSA RC4 !aNULL !eNULL !LOW !3DES !MD5 !EXP !PSK \
     !SRP !DSS",
    "EECDH+CHACHA20:EECDH+AES128:RSA+AES128:EECDH+AES256:RSA+AES256:EECDH+3DES:RSA+3DES:!MD5",
    "ECDH+AESGCM:DH+AESGCM:ECDH+AES256:DH+AES256:ECDH+AES128:DH+AES:RSA+AESGCM:RSA+AES:!aNULL:!MD5:\
     !DSS",
    "ECDHE-RSA-AES256-GCM-SHA512:DHE-RSA-AES256-GCM-SHA512:ECDHE-RSA-AES256-GCM-SHA384:\
     DHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-SHA384",
    "kEECDH+ECDSA+AES128 kEECDH+ECDSA+AES256 kEECDH+AES128 kEECDH+AES256 kEDH+AES128 kEDH+AES256 \
     DES-CBC3-SHA +SHA !aNULL !eNULL !LOW !kECDH !DSS !MD5 !RC4 !EXP !PSK !SRP !CAMELLIA !SEED",
    "ALL:!ADH:!EXPORT:!SSLv2:RC4+RSA:+HIGH:+MEDIUM:+LOW:+SSLv2:+EXP",
    "ALL:!aNULL:!ADH:!eNULL:!LOW:!EXP:RC4+RSA:+HIGH:+MEDIUM",
    "DEFAULT:!SSLv3:!TLSv1",
    "DEFAULT",
    "DEFAULT@SECLEVEL=1",
    "DEFAULT:@SECLEVEL=0",
    "ALL:@STRENGTH",
    "ECDHE+AESGCM:ECDHE+CHACHA20:@STRENGTH",
    "TLSv1.2+ECDHE:!SHA1:@SECLEVEL=2",
    "ECDHE:-AES:AES128:+CHACHA20",
    "ALL:-ECDHE:ALL",
    "AES128+ECDHE:-ALL:ALL",
    "ECDHE:!ECDHE:ALL",
    "SUITEB128",
    "SUITEB128ONLY",
    "SUITEB128C2:foo",
    "SUITEB192",
    "ECDHE-RSA-AES128-GCM-SHA256+kEECDH",
    "kEECDH+ECDHE-RSA-AES128-GCM-SHA256",
    "kRSA+EECDH",
    "foo",
    "",
    "!ALL",
    "@SECLEVEL=2",
    "HIGH:@FOO",
    "HIGH:@SECLEVEL=9",
    "HIGH/LOW",
    "+",
    "ECDHE+",
    "ECDHE++AES",
    "ALL:DEFAULT",
    "DEFAULTALL",
    "ALL:!",
    "ALL:\u{a7}",
    "eNULL",
    "AES128-SHA",
    "TLS_AES_128_GCM_SHA256",
    "HIGH+FIPS",
    "FIPS",
    "FIPS+HIGH:AESGCM",
    "foo+AES:CHACHA20",
    "ALL,;RSA",
    "HIGH:@STRENGTHS",
    "HIGH:@STRENGTH+AES",
    "ALL:AES128-SHA@SECLEVEL=0",
    "PSK:SRP:aPSK",
];

#[test]
fn strings_that_people_use() {
    for text in REAL {
        compare(text);
    }
}

/// Numbers below a limit, the same each time.
fn random() -> impl FnMut(usize) -> usize {
    let mut state = 88172645463325252u64;
    move |limit| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    }
}

/// Strings at random, of all names of groups, some suites and some nonsense.
#[test]
fn strings_at_random() {
    const WORDS: &[&str] = &[
        "ALL",
        "COMPLEMENTOFALL",
        "COMPLEMENTOFDEFAULT",
        "HIGH",
        "MEDIUM",
        "LOW",
        "FIPS",
        "kRSA",
        "kEDH",
        "kDHE",
        "DH",
        "kEECDH",
        "kECDHE",
        "ECDH",
        "kPSK",
        "kRSAPSK",
        "kECDHEPSK",
        "kDHEPSK",
        "PSK",
        "SRP",
        "kSRP",
        "aRSA",
        "aDSS",
        "DSS",
        "aNULL",
        "aECDSA",
        "ECDSA",
        "aPSK",
        "aSRP",
        "EDH",
        "DHE",
        "EECDH",
        "ECDHE",
        "NULL",
        "eNULL",
        "RSA",
        "ADH",
        "AECDH",
        "AES128",
        "AES256",
        "AES",
        "AESGCM",
        "AESCCM",
        "AESCCM8",
        "CAMELLIA128",
        "CAMELLIA256",
        "CAMELLIA",
        "CHACHA20",
        "ARIA",
        "ARIAGCM",
        "ARIA128",
        "ARIA256",
        "CBC",
        "MD5",
        "SHA1",
        "SHA",
        "SHA256",
        "SHA384",
        "SSLv3",
        "TLSv1",
        "TLSv1.0",
        "TLSv1.2",
        "TLSv1.3",
        "3DES",
        "RC4",
        "GOST",
        "EXP",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "AES128-SHA",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "DHE-RSA-AES256-SHA256",
        "PSK-NULL-SHA",
        "nonsense",
    ];
    let mut below = random();
    // Each word alone.
    for word in WORDS {
        compare(word);
        compare(&format!("ALL:COMPLEMENTOFALL:!{word}"));
    }
    for _ in 0..200 {
        let mut text = String::new();
        if below(4) == 0 {
            text.push_str("DEFAULT");
        }
        for _ in 0..=below(7) {
            text.push_str([":", ":", ":", " ", ","][below(5)]);
            text.push_str(["", "", "", "!", "-", "+"][below(6)]);
            text.push_str(WORDS[below(WORDS.len())]);
            while below(3) == 0 {
                text.push('+');
                text.push_str(WORDS[below(WORDS.len())]);
            }
            if below(8) == 0 {
                text.push_str([":@STRENGTH", ":@SECLEVEL=1"][below(2)]);
            }
        }
        compare(&text);
    }
}

/// Few words and many commands, for the order.
#[test]
fn orders_at_random() {
    const SMALL: &[&str] =
        &["ALL", "ECDHE", "aRSA", "ECDSA", "AESGCM", "CHACHA20", "AES128", "HIGH"];
    let mut below = random();
    for _ in 0..200 {
        let mut text = String::new();
        for _ in 0..=3 + below(6) {
            text.push_str(["", "", "-", "-", "+", "!"][below(6)]);
            text.push_str(SMALL[below(SMALL.len())]);
            if below(2) == 0 {
                text.push('+');
                text.push_str(SMALL[below(SMALL.len())]);
            }
            text.push_str([":", ":", ":@STRENGTH:"][below(3)]);
        }
        compare(&text);
    }
}

#[test]
fn suites_have_their_names_and_numbers() {
    for suite in Suite::TLS12.into_iter().chain(Suite::TLS13) {
        assert!(crate::server::provider(&[suite.number()], &[]).is_ok(), "{suite:?}");
        assert!(!suite.name().is_empty());
    }
    let had = table::ROWS.iter().filter_map(table::Row::suite).collect::<Vec<_>>();
    assert_eq!(had, Suite::TLS12);
}

#[test]
fn what_cannot_be_had_is_named_once() {
    let mozilla = Ciphers::parse(REAL[1]).unwrap();
    assert_eq!(mozilla.suites(false).unwrap().len(), 6);
    let dhe =
        ["DHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES256-GCM-SHA384", "DHE-RSA-CHACHA20-POLY1305"];
    assert_eq!(mozilla.missing(), dhe);
    let warning = format!("cipher suites not supported, ignored: {}", dhe.join(":"));
    assert_eq!(mozilla.warnings(), [warning]);
    // Groups name nothing, and neither does what is excluded, is there twice, or is unknown.
    let groups = Ciphers::parse("HIGH:AES128-SHA:AES128-SHA:AES256-SHA:!AES256:FOO").unwrap();
    assert_eq!(groups.missing(), ["AES128-SHA"]);
    assert!(Ciphers::parse("HIGH:!aNULL:!MD5").unwrap().warnings().is_empty());
    assert!(Ciphers::parse("PROFILE=SYSTEM").unwrap().suites(false).unwrap().len() == 6);
}

#[test]
fn none_left() {
    let error = |text: &str| Ciphers::parse(text).unwrap_err().to_string();
    assert_eq!(
        error("foo"),
        "SSL_CTX_set_cipher_list(\"foo\") failed (SSL: error:0A0000B9:SSL routines::no cipher match)"
    );
    assert_eq!(
        error("HIGH:@FOO"),
        "SSL_CTX_set_cipher_list(\"HIGH:@FOO\") failed (SSL: error:0A000118:SSL routines::invalid \
         command)"
    );
    let old = Ciphers::parse("AES128-SHA").unwrap();
    assert_eq!(old.suites(true).unwrap(), []);
    assert_eq!(old.suites(false).unwrap_err().reason, Reason::NoCipherMatch);
    assert_eq!(old.warnings().len(), 2);
}

#[test]
fn levels_of_security() {
    let level = |level: u8| Ciphers::parse(&format!("ECDHE+aRSA:@SECLEVEL={level}")).unwrap();
    assert_eq!(level(2).suites.len(), 3);
    assert_eq!(level(3).security_level(), Some(3));
    assert_eq!(level(4).suites, [Suite::RsaAes256, Suite::RsaChacha20]);
    assert_eq!(level(5).suites.len(), 2);
}

#[test]
fn suites_of_tls13() {
    assert_eq!(
        tls13("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:foo:TLS_AES_128_CCM_SHA256"),
        Ok((vec![Suite::Chacha20, Suite::Aes128], vec!["TLS_AES_128_CCM_SHA256"]))
    );
    assert_eq!(tls13(""), Ok((vec![], vec![])));
    assert_eq!(tls13("foo"), Err(Reason::NoCipherMatch));
}
