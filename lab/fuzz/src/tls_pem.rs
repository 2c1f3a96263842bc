//! Certificates and keys in PEM.

use pki::pem::{Passwords, certificates, private_key};

/// A text that was read is written and read the same, also with text around it and other ends of
/// lines; a beginning of a text has no more certificates than the whole.
pub fn run(data: &[u8]) {
    if let Ok(chain) = certificates(data) {
        assert!(!chain.is_empty());
        let mut text = b"text\n".to_vec();
        for certificate in &chain {
            text.extend(pem("CERTIFICATE", certificate, "\r\n"));
        }
        assert_eq!(certificates(&text).as_ref(), Ok(&chain));
        let before = chain.len();
        if let Ok(chain) = certificates(&data[..data.len() / 2]) {
            assert!(chain.len() <= before);
        }
    }
    // Deriving keys takes as long as the file says; their parameters are read without a password.
    const COSTLY: &[u8] = b"ENCRYPTED PRIVATE KEY";
    let is_costly = data.windows(COSTLY.len()).any(|word| word == COSTLY);
    let passwords = if is_costly { None } else { Passwords::parse(b"wrong\nsecret\n") };
    match private_key(data, &passwords.unwrap_or_default()) {
        Ok(key) => {
            for label in ["PRIVATE KEY", "RSA PRIVATE KEY"] {
                let again = private_key(&pem(label, key.der(), " \n"), &Passwords::none());
                assert_eq!(again.as_ref(), Ok(&key));
            }
        }
        Err(error) => {
            assert!(error.to_string().starts_with("PEM_read_bio_PrivateKey() failed (SSL: error:"));
        }
    }
    if let Some(passwords) = Passwords::parse(data) {
        assert!(!format!("{passwords:?}").contains("(0)"));
    }
}

fn pem(label: &str, der: &[u8], end: &str) -> Vec<u8> {
    let mut base64 = Vec::new();
    base::base64::encode(der, &mut base64);
    let mut out = format!("-----BEGIN {label}-----{end}").into_bytes();
    for line in base64.chunks(64) {
        out.extend_from_slice(line);
        out.extend_from_slice(end.as_bytes());
    }
    out.extend(format!("-----END {label}-----{end}").bytes());
    out
}
