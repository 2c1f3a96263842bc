//! Against `openssl ocsp`, both as a command line that reads and writes files and as a server.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate weir_pki as pki;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pki::ocsp::{Answer, CertStatus, Error, Query, Signers, response_of_file};
use pki::x509::Certificate;
use testkit::openssl::{OcspServer, openssl};

/// The clocks may differ by so much, seconds.
const SKEW: i64 = 300;

const EXTENSIONS: &str = "[req]\ndistinguished_name = dn\n[dn]\n\
    [ca]\nbasicConstraints = critical, CA:true\nsubjectKeyIdentifier = hash\n\
    [leaf]\nauthorityInfoAccess = OCSP;URI:http://127.0.0.1/ocsp\n\
    [responder]\nextendedKeyUsage = OCSPSigning\nnoCheck = yes\n\
    [other]\nextendedKeyUsage = serverAuth\n\
    [critical]\nextendedKeyUsage = OCSPSigning\n1.2.3.4 = critical, DER:0500\n";

/// A CA with certificates, and responders of all kinds, in files of a folder.
struct Pki(PathBuf);

impl Pki {
    /// The one of all tests, made by the first.
    fn get() -> &'static Pki {
        static PKI: OnceLock<Pki> = OnceLock::new();
        PKI.get_or_init(Pki::new)
    }

    fn new() -> Pki {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ocsp");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let pki = Pki(dir);
        fs::write(pki.0.join("ext.cnf"), EXTENSIONS).unwrap();
        pki.ca("ca", "ec -pkeyopt ec_paramgen_curve:P-256");
        pki.ca("rsa", "rsa:2048");
        // Another CA of the same name.
        pki.key("twin", "ec -pkeyopt ec_paramgen_curve:P-384");
        pki.self_signed("twin", "ca");
        pki.ca("stranger", "ec -pkeyopt ec_paramgen_curve:P-256");
        let mut index = String::new();
        for (serial, name, state) in
            [("1000", "good", "V"), ("1001", "revoked", "R"), ("1002", "unknown", "")]
        {
            pki.issue(name, "ca", "leaf", serial, 30);
            let revoked = if state == "R" { "240101000000Z,keyCompromise" } else { "" };
            if !state.is_empty() {
                index +=
                    &format!("{state}\t400101000000Z\t{revoked}\t{serial}\tunknown\t/CN={name}\n");
            }
        }
        fs::write(pki.0.join("index.txt"), index).unwrap();
        // Serial numbers at the limits: 20 bytes, and one with the highest bit set.
        pki.issue("long", "ca", "leaf", "7fffffffffffffffffffffffffffffffffffffff", 30);
        pki.issue("high", "rsa", "leaf", "ff", 30);
        pki.issue("delegate", "ca", "responder", "2000", 30);
        pki.issue("server", "ca", "other", "2001", 30);
        pki.issue("critical", "ca", "critical", "2002", 30);
        pki.issue("foreign", "stranger", "responder", "2003", 30);
        pki.issue("brief", "ca", "responder", "2004", 1);
        pki.issue("forged", "twin", "responder", "2005", 30);
        pki
    }

    fn key(&self, name: &str, kind: &str) {
        let line = format!(
            "req -newkey {kind} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} -config ext.cnf"
        );
        openssl(&self.0, &line);
    }

    fn self_signed(&self, name: &str, subject: &str) {
        let line = format!(
            "req -x509 -key {name}.key -out {name}.pem -subj /CN={subject} -days 30 -config ext.cnf -extensions ca"
        );
        openssl(&self.0, &line);
    }

    fn ca(&self, name: &str, kind: &str) {
        self.key(name, kind);
        self.self_signed(name, name);
    }

    fn issue(&self, name: &str, ca: &str, extensions: &str, serial: &str, days: u32) {
        self.key(name, "ec -pkeyopt ec_paramgen_curve:P-256");
        let line = format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -set_serial 0x{serial} -days {days} -extfile ext.cnf -extensions {extensions} -out {name}.pem"
        );
        openssl(&self.0, &line);
    }

    fn certificate(&self, name: &str) -> Certificate {
        let der = openssl(&self.0, &format!("x509 -in {name}.pem -outform DER"));
        Certificate::parse(der.into()).unwrap()
    }

    /// The question for a certificate of `ca`.
    fn query(&self, name: &str) -> Query {
        Query::new(&self.certificate(name), &self.certificate("ca"))
    }

    /// A response for a certificate, made by the command line and `how`.
    fn response(&self, name: &str, signer: &str, how: &str) -> Bytes {
        fs::read(self.0.join(self.response_file(name, signer, how))).unwrap().into()
    }

    fn response_file(&self, name: &str, signer: &str, how: &str) -> String {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        fs::write(self.0.join(format!("{n}.req")), self.query(name).to_der()).unwrap();
        let line = format!(
            "ocsp -index index.txt -CA ca.pem -rsigner {signer}.pem -rkey {signer}.key -reqin {n}.req -respout {n}.resp {how}"
        );
        openssl(&self.0, &line);
        format!("{n}.resp")
    }

    /// OpenSSL's own verdict on a response now: verified, and the status.
    fn openssl_says(&self, name: &str, file: &str) -> Option<CertStatus> {
        let line =
            format!("ocsp -issuer ca.pem -cert {name}.pem -CAfile ca.pem -no_nonce -respin {file}");
        let args = line.split_whitespace();
        let output = Command::new("openssl").args(args).current_dir(&self.0).output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let status = out.lines().find_map(|line| line.strip_prefix(&format!("{name}.pem: ")))?;
        let verified = err.contains("Response verify OK");
        verified.then(|| match status {
            "good" => CertStatus::Good,
            "revoked" => CertStatus::Revoked,
            other => {
                assert_eq!(other, "unknown");
                CertStatus::Unknown
            }
        })
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The status that the issuer's or its delegate's response gives now. OpenSSL must agree, but for
/// the hash that is too weak here.
fn status(name: &str, signer: &str, how: &str) -> Result<CertStatus, Error> {
    let pki = Pki::get();
    let file = pki.response_file(name, signer, how);
    let response: Bytes = fs::read(pki.0.join(&file)).unwrap().into();
    let answer = pki.query(name).check(&response, Signers::Authorized, now());
    let status = answer.map(|answer| answer.status);
    if !how.contains("sha1") {
        assert_eq!(pki.openssl_says(name, &file), status.ok(), "{name} {signer} {how}");
    }
    status
}

#[test]
fn requests_are_those_of_openssl() {
    let pki = Pki::get();
    for name in ["good", "long"] {
        let line = format!("ocsp -issuer ca.pem -cert {name}.pem -no_nonce -reqout {name}.req");
        openssl(&pki.0, &line);
        let want = fs::read(pki.0.join(format!("{name}.req"))).unwrap();
        assert_eq!(pki.query(name).to_der(), want, "{name}");
    }
    let rsa = Query::new(&pki.certificate("high"), &pki.certificate("rsa"));
    openssl(&pki.0, "ocsp -issuer rsa.pem -cert high.pem -no_nonce -reqout high.req");
    assert_eq!(rsa.to_der(), fs::read(pki.0.join("high.req")).unwrap());
}

#[test]
fn targets_have_one_slash_and_no_other() {
    let query = Pki::get().query("good");
    let target = String::from_utf8(query.target(b"/ocsp")).unwrap();
    let text = target.strip_prefix("/ocsp/").unwrap();
    assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'%'), "{text}");
    let (mut plain, mut der) = (text.replace("%2B", "+"), Vec::new());
    plain = plain.replace("%2F", "/").replace("%3D", "=");
    assert!(base::base64::decode(plain.as_bytes(), &mut der));
    assert_eq!(der, query.to_der());
    for (uri, start) in [(&b""[..], "/M"), (b"/", "/M"), (b"/a/", "/a/M"), (b"/a?b", "/a?b/M")] {
        assert!(query.target(uri).starts_with(start.as_bytes()), "{start}");
    }
}

#[test]
fn statuses() {
    for signer in ["ca", "delegate"] {
        for how in ["", "-ndays 1", "-resp_key_id", "-rmd sha512"] {
            assert_eq!(status("good", signer, how), Ok(CertStatus::Good), "{signer} {how}");
        }
        assert_eq!(status("revoked", signer, ""), Ok(CertStatus::Revoked), "{signer}");
        assert_eq!(status("unknown", signer, ""), Ok(CertStatus::Unknown), "{signer}");
    }
}

#[test]
fn responses_hold_for_their_time() {
    let pki = Pki::get();
    let response = pki.response("good", "ca", "-nmin 60");
    let at = |time| pki.query("good").check(&response, Signers::Authorized, time);
    let answer = at(now()).unwrap();
    let next = answer.next_update.unwrap();
    assert!((next - now() - 3_600).abs() < 60, "{next}");
    assert_eq!(at(next + SKEW), Ok(answer));
    assert_eq!(at(next + SKEW + 1), Err(Error::Expired));
    assert_eq!(at(next - 3_600 - SKEW), Ok(answer));
    assert_eq!(at(next - 3_600 - SKEW - 1), Err(Error::NotYetValid));
    let for_ever = pki.response("good", "ca", "");
    let answer = pki.query("good").check(&for_ever, Signers::Authorized, now() + (1 << 40));
    assert_eq!(answer, Ok(Answer { status: CertStatus::Good, next_update: None }));
}

#[test]
fn only_the_issuer_and_its_delegates_sign() {
    for (signer, how, error) in [
        // Delegates without the right, of somebody else, and of somebody else of that name.
        ("server", "", Error::NotAuthorized),
        ("critical", "", Error::NotAuthorized),
        ("foreign", "", Error::NotAuthorized),
        ("forged", "", Error::NotAuthorized),
        // Its own certificate is not at hand.
        ("delegate", "-resp_no_certs", Error::SignerNotFound),
        ("stranger", "", Error::NotAuthorized),
        ("stranger", "-resp_no_certs", Error::SignerNotFound),
        ("twin", "-resp_no_certs", Error::Signature),
        ("twin", "", Error::Signature),
        ("ca", "-rmd sha1", Error::Signature),
        // A delegate whose certificate comes behind another one.
        ("server", "-rother delegate.pem", Error::NotAuthorized),
    ] {
        assert_eq!(status("good", signer, how), Err(error), "{signer} {how}");
    }
    assert_eq!(status("good", "delegate", "-rother server.pem"), Ok(CertStatus::Good));
    assert_eq!(status("good", "ca", "-resp_no_certs"), Ok(CertStatus::Good));
}

#[test]
fn rsa_signs_with_a_hash_that_is_strong() {
    let pki = Pki::get();
    let query = Query::new(&pki.certificate("high"), &pki.certificate("rsa"));
    fs::write(pki.0.join("rsa.req"), query.to_der()).unwrap();
    pki.key("weak", "ec -pkeyopt ec_paramgen_curve:P-256");
    let sign = "x509 -req -in weak.csr -CA rsa.pem -CAkey rsa.key -set_serial 9 -days 30 -extfile ext.cnf -extensions responder -out weak.pem";
    let status = |signer: &str, hash: &str| {
        let how = format!("-rsigner {signer}.pem -rkey {signer}.key -rmd {hash}");
        let files = "-reqin rsa.req -respout rsa.resp";
        openssl(&pki.0, &format!("ocsp -index index.txt -CA rsa.pem {how} {files}"));
        let response = fs::read(pki.0.join("rsa.resp")).unwrap().into();
        query.check(&response, Signers::Authorized, now()).map(|answer| answer.status)
    };
    // The index does not know it.
    for hash in ["sha256", "sha384", "sha512"] {
        assert_eq!(status("rsa", hash), Ok(CertStatus::Unknown), "{hash}");
    }
    assert_eq!(status("rsa", "sha1"), Err(Error::Signature));
    openssl(&pki.0, &format!("{sign} -sha256"));
    assert_eq!(status("weak", "sha256"), Ok(CertStatus::Unknown));
    openssl(&pki.0, &format!("{sign} -sha1"));
    assert_eq!(status("weak", "sha256"), Err(Error::NotAuthorized));
}

#[test]
fn delegates_are_valid_for_their_time() {
    let pki = Pki::get();
    let response = pki.response("good", "brief", "");
    let at = |time| pki.query("good").check(&response, Signers::Authorized, time);
    let brief = pki.certificate("brief");
    let (from, to) = (brief.not_before().unix().unwrap(), brief.not_after().unix().unwrap());
    assert!(at(now()).is_ok() && at(to).is_ok());
    assert_eq!(at(to + 1), Err(Error::NotAuthorized));
    assert_eq!(at(from - 1), Err(Error::NotAuthorized));
}

#[test]
fn without_verification_the_signature_still_counts() {
    let pki = Pki::get();
    let check = |response: &Bytes, chain: &[Certificate]| {
        let answer = pki.query("good").check(response, Signers::Any(chain), now());
        answer.map(|answer| answer.status)
    };
    for signer in ["ca", "delegate", "server", "foreign", "stranger"] {
        let response = pki.response("good", signer, "");
        assert_eq!(check(&response, &[]), Ok(CertStatus::Good), "{signer}");
    }
    let response = pki.response("good", "stranger", "-resp_no_certs");
    assert_eq!(check(&response, &[]), Err(Error::SignerNotFound));
    let chain = [pki.certificate("good"), pki.certificate("stranger")];
    assert_eq!(check(&response, &chain), Ok(CertStatus::Good));
    let mut bad = response.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(check(&bad.into(), &chain), Err(Error::Signature));
}

#[test]
fn answers_to_other_questions_are_none() {
    let pki = Pki::get();
    let response = pki.response("good", "ca", "");
    let check = |query: &Query| query.check(&response, Signers::Authorized, now());
    assert!(check(&pki.query("good")).is_ok());
    assert_eq!(check(&pki.query("revoked")), Err(Error::StatusNotFound));
    // The same serial number of another issuer, whose name is the same.
    let twin = Query::new(&pki.certificate("good"), &pki.certificate("twin"));
    assert_eq!(check(&twin), Err(Error::Signature));
    // Many statuses in one response.
    openssl(
        &pki.0,
        "ocsp -issuer ca.pem -cert unknown.pem -cert revoked.pem -cert good.pem -reqout many.req",
    );
    openssl(
        &pki.0,
        "ocsp -index index.txt -CA ca.pem -rsigner ca.pem -rkey ca.key -reqin many.req -respout many.resp",
    );
    let many: Bytes = fs::read(pki.0.join("many.resp")).unwrap().into();
    for (name, want) in [
        ("good", CertStatus::Good),
        ("revoked", CertStatus::Revoked),
        ("unknown", CertStatus::Unknown),
    ] {
        let answer = pki.query(name).check(&many, Signers::Authorized, now()).unwrap();
        assert_eq!(answer.status, want);
    }
}

#[test]
fn refusals_of_responders() {
    let check = |bytes: &'static [u8]| {
        let query = Pki::get().query("good");
        query.check(&Bytes::from_static(bytes), Signers::Authorized, now()).unwrap_err()
    };
    for (code, text) in [
        (1, "(1: malformedrequest)"),
        (2, "(2: internalerror)"),
        (3, "(3: trylater)"),
        (5, "(5: sigrequired)"),
        (6, "(6: unauthorized)"),
        (4, "(4: (UNKNOWN))"),
    ] {
        let bytes: &'static [u8] = vec![0x30, 3, 0x0a, 1, code].leak();
        let error = check(bytes);
        assert_eq!(error, Error::NotSuccessful(code));
        assert_eq!(error.to_string(), format!("OCSP response not successful {text}"));
    }
    let malformed: [&'static [u8]; 6] = [
        b"",
        b"<html>",
        &[0x30, 3, 0x0a, 1, 0],
        &[0x30, 3, 0x0a, 1, 0xff],
        &[0x30, 2, 0x0a, 0],
        &[0x30, 3, 0x0a, 1, 3, 0],
    ];
    for bytes in malformed {
        assert!(matches!(check(bytes), Error::Malformed(_)), "{bytes:?}");
    }
    // A type that is not the basic one.
    assert_eq!(
        check(&[0x30, 12, 0x0a, 1, 0, 0xa0, 7, 0x30, 5, 6, 1, 0x2a, 4, 0]),
        Error::UnknownType
    );
}

#[test]
fn what_is_cut_or_changed_is_refused() {
    let pki = Pki::get();
    let query = pki.query("good");
    for signer in ["ca", "delegate"] {
        let response = pki.response("good", signer, "-nmin 60");
        let check = |bytes: Bytes| query.check(&bytes, Signers::Authorized, now());
        let answer = check(response.clone()).unwrap();
        for len in 0..response.len() {
            let cut = check(response.slice(..len));
            assert!(matches!(cut, Err(Error::Malformed(_))), "{len}: {cut:?}");
            let mut more = response.to_vec();
            more[len] ^= 1 << (len % 8);
            // Nothing that is signed may change; what is not signed may matter to nobody.
            if let Ok(other) = check(more.into()) {
                assert_eq!(other, answer, "byte {len}");
            }
        }
        let mut long = response.to_vec();
        long.push(0);
        assert!(matches!(check(long.into()), Err(Error::Malformed(_))));
    }
}

/// The body of a response with status 200.
fn get(server: &OcspServer, target: &[u8]) -> Option<Bytes> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(&[b"GET ", target, head].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    answer.starts_with(b"HTTP/1.0 200 OK").then(|| answer.split_off(head).into())
}

#[test]
fn a_responder_that_serves() {
    let pki = Pki::get();
    let how = "-index index.txt -CA ca.pem -rsigner delegate.pem -rkey delegate.key -ndays 1";
    let server = OcspServer::start(&pki.0, how);
    for (name, want) in [
        ("good", CertStatus::Good),
        ("revoked", CertStatus::Revoked),
        ("unknown", CertStatus::Unknown),
        ("long", CertStatus::Unknown),
    ] {
        let query = pki.query(name);
        let response = get(&server, &query.target(b"/")).unwrap();
        let answer = query.check(&response, Signers::Authorized, now()).unwrap();
        assert_eq!(answer.status, want, "{name}");
        assert!(answer.next_update.unwrap() > now());
    }
    assert_eq!(get(&server, b"/AAAA"), None);
}

#[test]
fn keys_of_the_cache() {
    let pki = Pki::get();
    let key = pki.query("good").cache_key().unwrap();
    assert_eq!(key[40..42], [0x10, 0]);
    assert_eq!(key[42..], [0; 18]);
    assert_eq!(pki.query("long").cache_key().unwrap()[40..], pki.certificate("long").serial()[..]);
    assert_ne!(pki.query("revoked").cache_key().unwrap(), key);
}

#[test]
fn files_with_responses() {
    let pki = Pki::get();
    let response = pki.response("revoked", "ca", "");
    assert_eq!(response_of_file(&response), Ok(response.clone()));
    let more: Bytes = [&response[..], b"\n"].concat().into();
    assert_eq!(response_of_file(&more), Ok(response.clone()));
    assert!(response_of_file(&Bytes::from_static(&[0x30, 3, 0x0a, 1, 6])).is_ok());
    assert!(response_of_file(&response.slice(..response.len() - 1)).is_err());
    assert!(response_of_file(&Bytes::from_static(b"-----BEGIN OCSP")).is_err());
}
