use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls_pki_types::PrivateKeyDer;

use super::*;

/// Runs the tool `openssl` with an input, and gives its output.
fn openssl(args: &str, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(args.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool openssl is installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "openssl {args}: {stderr}");
    output.stdout
}

fn rsa() -> Vec<u8> {
    openssl("genrsa -traditional 2048", b"")
}

fn passwords(text: &str) -> Passwords {
    Passwords::parse(text.as_bytes()).unwrap()
}

/// The key is read, is what the tool takes it for, and one that rustls signs with.
fn same(pem: &[u8], passwords: &Passwords, pkcs8: &[u8]) {
    let key = private_key(pem, passwords);
    let key = key.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(pem)));
    assert!(any_supported_type(&PrivateKeyDer::try_from(key.der()).unwrap()).is_ok());
    let again = openssl("pkcs8 -topk8 -nocrypt -inform DER -outform DER", key.der());
    assert_eq!(again, pkcs8);
}

#[test]
fn keys_in_every_plain_form() {
    let rsa = rsa();
    let ec = openssl("ecparam -name prime256v1 -genkey", b"");
    assert!(ec.starts_with(b"-----BEGIN EC PARAMETERS-----"));
    let p384 = openssl("ecparam -name secp384r1 -genkey -noout", b"");
    let ed25519 = openssl("genpkey -algorithm ed25519", b"");
    for pem in [rsa, ec, p384, ed25519] {
        let pkcs8 = openssl("pkcs8 -topk8 -nocrypt", &pem);
        let der = openssl("pkcs8 -topk8 -nocrypt -outform DER", &pem);
        same(&pem, &Passwords::none(), &der);
        same(&pkcs8, &passwords("unused"), &der);
        // Text, other blocks, other ends of lines, and blanks behind them.
        let mut odd =
            b"Bag Attributes\n  a: b\n-----BEGIN X-----\r\n\r\nAAAA\r\n-----END X-----\n".to_vec();
        odd.extend(String::from_utf8(pem).unwrap().replace('\n', " \t\r\n").bytes());
        odd.extend(b"and more");
        same(&odd, &Passwords::none(), &der);
        // The label is only a label.
        let label = String::from_utf8(pkcs8).unwrap().replace("BEGIN PRIVATE", "BEGIN EC PRIVATE");
        let label = label.replace("END PRIVATE", "END EC PRIVATE");
        same(label.as_bytes(), &Passwords::none(), &der);
    }
}

#[test]
fn keys_that_pem_encrypts() {
    let rsa = rsa();
    let ec = openssl("ecparam -name prime256v1 -genkey -noout", b"");
    for (kind, pem) in [("rsa -traditional", rsa), ("ec", ec)] {
        let der = openssl("pkcs8 -topk8 -nocrypt -outform DER", &pem);
        for cipher in ["aes128", "aes192", "aes256", "des3"] {
            let args = format!("{kind} -{cipher} -passout pass:secret");
            let encrypted = openssl(&args, &pem);
            assert!(String::from_utf8_lossy(&encrypted).contains("DEK-Info"));
            same(&encrypted, &passwords("wrong\nsecret\n"), &der);
            let error = private_key(&encrypted, &passwords("wrong")).unwrap_err().to_string();
            // Of 256 wrong passwords one has padding by chance.
            assert!(
                error
                    == "PEM_read_bio_PrivateKey() failed (SSL: error:1C800064:Provider routines::\
                    bad decrypt error:04800065:PEM routines::bad decrypt)"
                    || error.contains("DECODER"),
                "{error}"
            );
        }
    }
}

#[test]
fn keys_in_encrypted_pkcs8() {
    let ec = openssl("ecparam -name prime256v1 -genkey -noout", b"");
    let der = openssl("pkcs8 -topk8 -nocrypt -outform DER", &ec);
    let mut kinds = vec![
        "-scrypt -scrypt_N 1024 -scrypt_r 8 -scrypt_p 1".to_owned(),
        "-scrypt -scrypt_N 64 -scrypt_r 4 -scrypt_p 3 -v2 aes-128-cbc".to_owned(),
        "-v1 PBE-SHA1-3DES".to_owned(),
        "-v1 PBE-SHA1-2DES -iter 3".to_owned(),
    ];
    for cipher in ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc", "des-ede3-cbc"] {
        for hash in ["SHA1", "SHA256", "SHA384", "SHA512"] {
            kinds.push(format!("-v2 {cipher} -v2prf hmacWith{hash}"));
        }
    }
    for kind in kinds {
        // The password is not ASCII: PKCS#12 has a form of its own for it.
        let args = format!("pkcs8 -topk8 {kind} -passout pass:g\u{fc}nther");
        let encrypted = openssl(&args, &ec);
        same(&encrypted, &passwords("a\n\nb\r\ng\u{fc}nther"), &der);
        let wrong = private_key(&encrypted, &passwords("wrong")).unwrap_err().to_string();
        assert!(wrong.contains("maybe wrong password") || wrong.contains("DECODER"), "{wrong}");
        let none = private_key(&encrypted, &Passwords::none()).unwrap_err().to_string();
        assert_eq!(
            none,
            "PEM_read_bio_PrivateKey() failed (SSL: error:04800068:PEM routines::bad password read)"
        );
    }
    // Ciphers that OpenSSL has in its default provider, too, and nobody uses.
    let other = openssl("pkcs8 -topk8 -v2 camellia-128-cbc -passout pass:a", &ec);
    let error = private_key(&other, &passwords("a")).unwrap_err().to_string();
    assert!(error.contains("unknown digest algorithm"), "{error}");
}

/// An empty password file has one password, the empty one.
#[test]
fn empty_passwords() {
    let ec = openssl("ecparam -name prime256v1 -genkey -noout", b"");
    let der = openssl("pkcs8 -topk8 -nocrypt -outform DER", &ec);
    for kind in ["-v1 PBE-SHA1-3DES", "-v2 aes-256-cbc"] {
        let encrypted = openssl(&format!("pkcs8 -topk8 {kind} -passout pass:"), &ec);
        same(&encrypted, &passwords(""), &der);
        same(&encrypted, &passwords("\r\n\n"), &der);
    }
}

#[test]
fn lines_of_passwords() {
    assert!(Passwords::parse(&[b'a'; 4096]).is_none());
    assert!(Passwords::parse(&[b'a'; 4095]).is_some());
    let mut lines = [b'a'; 5000];
    lines[4095] = b'\n';
    assert!(Passwords::parse(&lines).is_some());
    lines[4095] = b'a';
    lines[4096] = b'\n';
    assert!(Passwords::parse(&lines).is_none());
    // 1,024 bytes count.
    let ec = openssl("ecparam -name prime256v1 -genkey -noout", b"");
    let der = openssl("pkcs8 -topk8 -nocrypt -outform DER", &ec);
    let long = "p".repeat(1024);
    let encrypted = openssl(&format!("ec -aes256 -passout pass:{long}"), &ec);
    same(&encrypted, &passwords(&format!("{long}and more")), &der);
    assert_eq!(format!("{:?}", passwords("secret\nother")), "Passwords(2)");
    let missing = Passwords::load("/nonexistent/passwords".as_ref()).unwrap_err().to_string();
    assert_eq!(missing, "open() \"/nonexistent/passwords\" failed (2: No such file or directory)");
    let directory = Passwords::load("/".as_ref()).unwrap_err().to_string();
    assert_eq!(directory, "read() \"/\" failed (21: Is a directory)");
}

fn certificate() -> Vec<u8> {
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -subj /CN=a", b"")
}

#[test]
fn chains_of_certificates() {
    let (one, two) = (certificate(), certificate());
    let der = |pem: &[u8]| openssl("x509 -outform DER", pem);
    let ders = vec![der(&one), der(&two)];
    let joined = |parts: &[&[u8]]| parts.concat();
    let key = rsa();
    for text in [
        joined(&[&one, &two]),
        joined(&[b"subject=CN = a\n\n", &one, &key, b"issuer\n", &two, b"end"]),
        joined(&[&key, &one, &two]),
        String::from_utf8(joined(&[&one, &two])).unwrap().replace('\n', "\r\n").into_bytes(),
        joined(&[&one, &openssl("x509 -trustout", &one), &two]),
        joined(&[&openssl("x509 -addtrust serverAuth", &one), &two]),
        joined(&[&openssl("x509 -text", &one), &openssl("x509 -text", &two)]),
    ] {
        assert_eq!(certificates(&text).unwrap(), ders);
    }
    let old = String::from_utf8(one.clone()).unwrap().replace("CERTIFICATE", "X509 CERTIFICATE");
    assert_eq!(certificates(old.as_bytes()).unwrap(), ders[..1]);
    // Without the line feed at the end, and all in one line.
    assert_eq!(certificates(one.trim_ascii_end()).unwrap(), ders[..1]);
    let lines: Vec<_> = std::str::from_utf8(&one).unwrap().lines().collect();
    let [first, middle @ .., last] = &lines[..] else { panic!() };
    let long = [first, &*middle.concat(), last].join("\n");
    assert_eq!(certificates(long.as_bytes()).unwrap(), ders[..1]);
}

/// The messages of nginx 1.22 with OpenSSL 3.0 for the same files.
#[test]
fn words_for_broken_certificates() {
    const START: &str = "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start line:\
        Expecting: TRUSTED CERTIFICATE)";
    let error = |text: &[u8]| certificates(text).unwrap_err().to_string();
    let one = certificate();
    for text in [b"".as_slice(), b"hello\n", &rsa(), b"-----BEGIN CERTIFICATE----\nAAAA\n"] {
        assert_eq!(error(text), START);
    }
    let end = "failed (SSL: error:04800066:PEM routines::bad end line)";
    let base64 = "failed (SSL: error:04800064:PEM routines::bad base64 decode)";
    let tag = "failed (SSL: error:068000A8:asn1 encoding routines::wrong tag error:0688010A:asn1 \
        encoding routines::nested asn1 error:Type=X509 error:0488000D:PEM routines::ASN1 lib)";
    let text = String::from_utf8(one.clone()).unwrap();
    let other_end = text.replace("END CERTIFICATE", "END CERT");
    let garbage = text.replace("\nMII", "\nM!!");
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, words) in [
        (&text[..600], end),
        (&other_end, end),
        (&garbage, base64),
        (no_der, tag),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", tag),
        ("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n", base64),
        ("-----BEGIN CERTIFICATE-----\nAAAA=AAA\n-----END CERTIFICATE-----\n", base64),
        ("-----BEGIN CERTIFICATE-----\n\n\nAAAA\n-----END CERTIFICATE-----\n", end),
        // A block that nobody asked for has to be one, too.
        ("-----BEGIN X-----\n!\n-----END X-----\n", base64),
    ] {
        assert_eq!(error(text.as_bytes()), format!("PEM_read_bio_X509_AUX() {words}"));
        let second = [&one[..], text.as_bytes()].concat();
        assert_eq!(error(&second), format!("PEM_read_bio_X509() {words}"));
    }
    // A certificate with bytes in the middle left out.
    let cut: Vec<_> = text.lines().enumerate().filter(|(n, _)| *n != 5).map(|(_, l)| l).collect();
    assert!(error(cut.join("\n").as_bytes()).contains("Type=X509"));
}

#[test]
fn words_for_broken_keys() {
    const NONE: &str = "PEM_read_bio_PrivateKey() failed (SSL: error:1E08010C:DECODER routines::\
        unsupported:No supported data to decode. Input type: PEM)";
    let error = |text: &[u8]| private_key(text, &passwords("secret")).unwrap_err().to_string();
    let rsa = rsa();
    let dsa = b"-----BEGIN DSA PRIVATE KEY-----\nMAMCAQA=\n-----END DSA PRIVATE KEY-----\n";
    let public = openssl("rsa -pubout", &rsa);
    for text in [b"".as_slice(), b"hello\n", &certificate(), &public, dsa] {
        assert_eq!(error(text), NONE);
    }
    let encrypted = openssl("rsa -traditional -aes256 -passout pass:secret", &rsa);
    let encrypted = String::from_utf8(encrypted).unwrap();
    let info = encrypted.lines().find(|line| line.starts_with("DEK-Info")).unwrap();
    let with = |other: &str| error(encrypted.replace(info, other).as_bytes());
    let iv = "PEM_read_bio_PrivateKey() failed (SSL: error:04800067:PEM routines::bad iv chars)";
    assert_eq!(with("DEK-Info: AES-256-CBC,zz"), iv);
    assert_eq!(with("DEK-Info: AES-256-CBC"), iv);
    assert_eq!(with(&info[..info.len() - 1]), iv);
    let other = "PEM_read_bio_PrivateKey() failed (SSL: error:04800072:PEM routines::unsupported \
        encryption)";
    assert_eq!(with("DEK-Info: FOO-256-CBC,00"), other);
    assert_eq!(with("X: y"), NONE);
    assert_eq!(error(encrypted.replace("4,ENC", "3,ENC").as_bytes()), NONE);
}

#[test]
fn places() {
    let full = |name: &str| PathBuf::from("/conf").join(name);
    assert_eq!(Source::certificate("a.pem", full), Source::File("/conf/a.pem".into()));
    assert_eq!(Source::key("/a.pem", full), Source::File("/a.pem".into()));
    assert_eq!(Source::key("store:file:/a", full), Source::File("/a".into()));
    assert_eq!(Source::key("store:file:///a", full), Source::File("/a".into()));
    assert_eq!(Source::key("store:pkcs11:x", full), Source::Store);
    assert_eq!(Source::key("engine:e:id", full), Source::Engine);
    // nginx knows these for keys only.
    assert_eq!(Source::certificate("engine:e", full), Source::File("/conf/engine:e".into()));
    let one = certificate();
    let data = Source::certificate(&format!("data:{}", String::from_utf8_lossy(&one)), full);
    assert_eq!(data.load_certificates().unwrap().len(), 1);
    assert_eq!(format!("{data:?}"), "Data");
    let engine = Source::Engine.load_key(&Passwords::none()).unwrap_err().to_string();
    assert_eq!(engine, "loading \"engine:...\" certificate keys is not supported");
    let missing = Source::File("/nonexistent/a.pem".into()).load_certificates().unwrap_err();
    assert_eq!(
        missing.to_string(),
        "BIO_new_file() failed (SSL: error:80000002:system library::No such file or directory:\
        calling fopen(/nonexistent/a.pem, r) error:10000080:BIO routines::no such file)"
    );
    let directory = Source::File("/".into()).load_certificates().unwrap_err();
    assert!(directory.to_string().contains("no start line"));
    let error = std::io::Error::from_raw_os_error(13);
    assert_eq!(
        Error::file("/a".as_ref(), &error).to_string(),
        "BIO_new_file() failed (SSL: error:8000000D:system library::Permission denied:\
        calling fopen(/a, r) error:10080002:BIO routines::system lib)"
    );
}

/// Limits on what a file can make us compute.
#[test]
fn costly_derivations_are_refused() {
    let ec = openssl("ecparam -name prime256v1 -genkey -noout", b"");
    let args = "pkcs8 -topk8 -outform DER -scrypt -scrypt_N 64 -scrypt_r 4 -scrypt_p 1";
    let der = openssl(&format!("{args} -passout pass:a"), &ec);
    let at = der.windows(3).position(|three| three == [2, 1, 64]).unwrap();
    for (factor, is_known) in [(64, true), (65, false), (0, false), (1, false)] {
        let mut der = der.clone();
        der[at + 2] = factor;
        assert_eq!(encrypted::Encrypted::parse(&der).unwrap().is_known(), is_known);
    }
    let der = openssl("pkcs8 -topk8 -outform DER -iter 4660 -passout pass:a", &ec);
    let at = der.windows(4).position(|four| four == [2, 2, 0x12, 0x34]).unwrap();
    let mut none = der.clone();
    none[at + 2..at + 4].fill(0);
    assert!(!encrypted::Encrypted::parse(&none).unwrap().is_known());
}

/// No beginning of a file, and no file with a byte changed, makes trouble.
#[test]
fn broken_files_are_only_errors() {
    let ec = openssl("ecparam -name prime256v1 -genkey", b"");
    let files = [
        openssl("ec -aes128 -passout pass:secret", &ec),
        openssl("pkcs8 -topk8 -iter 1 -passout pass:secret", &ec),
        openssl("pkcs8 -topk8 -iter 1 -v1 PBE-SHA1-3DES -passout pass:secret", &ec),
        ec,
    ];
    for file in files {
        for len in 0..file.len() - 2 {
            assert!(private_key(&file[..len], &passwords("secret")).is_err());
            let mut changed = file.clone();
            changed[len] ^= 3;
            let _ = private_key(&changed, &passwords("secret"));
            let _ = certificates(&changed);
        }
    }
}
