//! The texts of a certificate: OpenSSL's program prints with the functions that nginx calls.

use std::path::Path;
use std::process::Command;

use pki::x509::Certificate;

use super::chain::Case;

/// Compares the texts of the first certificate; a difference ends the run.
pub fn compare(folder: &Path, case: &Case, number: usize) -> crate::Outcome {
    let Ok(certificate) = Certificate::parse(case.peer[0].clone().into()) else { return Ok(()) };
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-subject", "-issuer", "-nameopt", "RFC2253", "-serial"])
        .args(["-dates", "-sha1", "-fingerprint", "-in"])
        .arg(folder.join("leaf.pem"))
        .output()
        .map_err(|e| format!("openssl: {e}"))?;
    let theirs = String::from_utf8_lossy(&output.stdout).into_owned();
    let fingerprint = certificate.fingerprint().to_uppercase();
    let pairs: Vec<&str> =
        (0..fingerprint.len() / 2).map(|i| &fingerprint[i * 2..i * 2 + 2]).collect();
    let ours = format!(
        "subject={}\nissuer={}\nserial={}\nnotBefore={}\nnotAfter={}\nsha1 Fingerprint={}\n",
        certificate.subject().rfc2253(),
        certificate.issuer().rfc2253(),
        certificate.serial_text(),
        certificate.not_before(),
        certificate.not_after(),
        pairs.join(":"),
    );
    // OpenSSL prints some times that it refuses in every check: with fractions, with zones.
    if ours == theirs || ours.contains("Bad time value") {
        return Ok(());
    }
    Err(format!("case {number}: printed in another way\nopenssl:\n{theirs}weir:\n{ours}"))
}
