//! Signed and encrypted tokens.

use jose::{KeySet, Limits, check_times, decrypt, parse_claims, parse_header, verify};
use serde_json::Value;

/// The first secret is that of `run`: 32 bytes.
const KEYS: &[u8] = br#"{"keys":[
    {"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"},
    {"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZg"},
    {"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Whether two values are the same, but for the last digit of fractions.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pair = |(name, value): (&String, _)| b.get(name).is_some_and(|b| same(value, b));
            a.len() == b.len() && a.iter().all(pair)
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(1.0));
            (a - b).abs() <= a.abs() * f64::EPSILON * 2.0
        }
        _ => a == b,
    }
}

/// No token is accepted whose encoding has another spelling, and none with a header that
/// `parse_header` refuses. Claims that are read can be written and read again, and are the same but
/// for the last digit of a fraction: serde_json reads fractions to within one unit in the last
/// place.
pub fn run(data: &[u8]) {
    let keys = KeySet::parse(KEYS).expect("valid keys");
    let limits = Limits::default();
    let _ = (verify(data, &keys, limits), decrypt(data, &keys, limits));
    if let Ok(header) = parse_header(data, limits) {
        for refused in ["crit", "zip"] {
            assert!(!header.contains_key(refused));
        }
    }
    if let Ok(claims) = parse_claims(data) {
        let _ = check_times(&claims, 1_700_000_000, 60);
        let text = serde_json::to_vec(&claims).expect("a map");
        let again = parse_claims(&text).expect("claims that were written");
        assert!(same(&again.into(), &claims.into()));
    }
    // A header and payload, signed: accepted, unless a rule refuses the header.
    if data.iter().filter(|byte| **byte == b'.').count() == 1 {
        let secret = b"0123456789abcdef0123456789abcdef";
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
        let mut token = [data, b"."].concat();
        base::base64::encode_url(aws_lc_rs::hmac::sign(&key, data).as_ref(), &mut token);
        if let Ok(verified) = verify(&token, &keys, limits) {
            assert_eq!(verified.header["alg"], "HS256");
            let mut payload = Vec::new();
            base::base64::encode_url(&verified.payload, &mut payload);
            assert!(data.ends_with(&payload));
            token.push(b'A');
            assert!(verify(&token, &keys, limits).is_err());
        }
    }
}
