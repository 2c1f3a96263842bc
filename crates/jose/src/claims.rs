//! Claims (RFC 7519 section 4), and the two of them that have to do with time.

use serde_json::{Map, Value};

use crate::{Error, Part, json};

/// Numbers above this are not exact in a double, so that readers disagree on them.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads the claims of a payload or plaintext.
///
/// # Errors
/// It is no unambiguous JSON object.
pub fn parse_claims(payload: &[u8]) -> Result<Map<String, Value>, Error> {
    json::parse_object(payload, Part::Claims)
}

/// Checks `exp` and `nbf` against the clock, `now_s` and `leeway_s` in seconds. Both claims are
/// optional (RFC 7519 sections 4.1.4 and 4.1.5).
///
/// # Errors
/// The token has expired or is not valid yet, or a claim is no number of at most 2^53.
pub fn check_times(claims: &Map<String, Value>, now_s: u64, leeway_s: u64) -> Result<(), Error> {
    let (now, leeway) = (now_s as f64, leeway_s as f64);
    if let Some(exp) = claims.get("exp") {
        // "on or after" the time the token is no longer accepted.
        if now >= number(exp, "exp is no number of seconds")? + leeway {
            return Err(Error::Expired);
        }
    }
    if let Some(nbf) = claims.get("nbf")
        && now + leeway < number(nbf, "nbf is no number of seconds")?
    {
        return Err(Error::NotYetValid);
    }
    Ok(())
}

fn number(value: &Value, wrong: &'static str) -> Result<f64, Error> {
    let number = value.as_f64().filter(|n| n.is_finite() && n.abs() < EXACT_MAX);
    number.ok_or(Error::Claim(wrong))
}

#[cfg(test)]
mod tests {
    use super::{check_times, parse_claims};
    use crate::Error;

    fn at(text: &str, now_s: u64, leeway_s: u64) -> Result<(), Error> {
        check_times(&parse_claims(text.as_bytes()).unwrap(), now_s, leeway_s)
    }

    #[test]
    fn a_token_is_valid_from_nbf_until_before_exp() {
        let claims = r#"{"nbf":100,"exp":200.5}"#;
        assert_eq!(at(claims, 99, 0), Err(Error::NotYetValid));
        assert_eq!(at(claims, 100, 0), Ok(()));
        assert_eq!(at(claims, 200, 0), Ok(()));
        assert_eq!(at(claims, 201, 0), Err(Error::Expired));
        assert_eq!(at(r#"{"exp":200}"#, 200, 0), Err(Error::Expired));
        assert_eq!(at("{}", 200, 0), Ok(()));
    }

    #[test]
    fn leeway_widens_both_ends() {
        let claims = r#"{"nbf":100,"exp":200}"#;
        assert_eq!(at(claims, 90, 10), Ok(()));
        assert_eq!(at(claims, 89, 10), Err(Error::NotYetValid));
        assert_eq!(at(claims, 209, 10), Ok(()));
        assert_eq!(at(claims, 210, 10), Err(Error::Expired));
    }

    #[test]
    fn times_are_numbers_that_every_reader_sees_alike() {
        for bad in ["\"200\"", "null", "true", "[]", "9007199254740992", "1e300", "-1e300"] {
            assert!(
                matches!(at(&format!("{{\"exp\":{bad}}}"), 1, 0), Err(Error::Claim(_))),
                "{bad}"
            );
            assert!(
                matches!(at(&format!("{{\"nbf\":{bad}}}"), 1, 0), Err(Error::Claim(_))),
                "{bad}"
            );
        }
        assert_eq!(at("{\"exp\":9007199254740991,\"nbf\":-5}", 1, 0), Ok(()));
    }
}
