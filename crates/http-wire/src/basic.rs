//! Credentials of the Basic scheme (RFC 7617), as the client sent them.

/// A user's name and password, not checked against anything yet.
pub struct Credentials {
    text: Vec<u8>,
    colon: usize,
}

impl Credentials {
    /// The name; never empty.
    pub fn user(&self) -> &[u8] {
        &self.text[..self.colon]
    }

    /// The password; may be empty, and may hold colons.
    pub fn password(&self) -> &[u8] {
        &self.text[self.colon + 1..]
    }
}

/// Reads a field value; nothing for other schemes, bad base64, and texts without name or colon.
pub fn parse(value: &[u8]) -> Option<Credentials> {
    const SCHEME: &[u8] = b"Basic ";
    if !base::ascii::starts_with_ignore_case(value, SCHEME) {
        return None;
    }
    let encoded = value[SCHEME.len()..].trim_ascii_start();
    let mut text = Vec::new();
    if !base::base64::decode(encoded, &mut text) {
        return None;
    }
    let colon = memchr::memchr(b':', &text).filter(|colon| *colon > 0)?;
    Some(Credentials { text, colon })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_and_passwords() {
        for (value, user, password) in [
            ("Basic dXNlcjpwYXNz", "user", "pass"),
            ("basic   dTphOmI=", "u", "a:b"),
            ("BASIC dTo=", "u", ""),
        ] {
            let c = parse(value.as_bytes()).expect(value);
            assert_eq!((c.user(), c.password()), (user.as_bytes(), password.as_bytes()), "{value}");
        }
    }

    #[test]
    fn what_names_nobody() {
        // No scheme, another one, empty, no colon ("user"), no name (":x"), bad base64.
        for value in
            ["", "dXNlcjpwYXNz", "Digest dXNlcjpwYXNz", "Basic", "Basic ", "Basic dXNlcg=="]
        {
            assert!(parse(value.as_bytes()).is_none(), "{value}");
        }
        for value in ["Basic Ong=", "Basic dXNlcjpwYXN_"] {
            assert!(parse(value.as_bytes()).is_none(), "{value}");
        }
    }
}
