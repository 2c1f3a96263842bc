//! Cookies: their names, attributes, and values.

use crate::bits;

/// The names of a provider's cookies on one origin.
pub struct Cookies {
    name: String,
    is_secure: bool,
}

impl Cookies {
    /// `base` is the configured name. Under HTTPS it gets the prefix `__Host-`, with which browsers
    /// accept the cookie only from this host, over HTTPS, for all paths (RFC 6265bis section
    /// 4.1.3.2), so that neither a plain connection nor a neighbouring host can plant one.
    pub fn new(base: &str, is_secure: bool) -> Cookies {
        let has_prefix = base.starts_with("__Host-") || base.starts_with("__Secure-");
        let prefix = if is_secure && !has_prefix { "__Host-" } else { "" };
        Cookies { name: format!("{prefix}{base}"), is_secure }
    }

    /// The name of the session's cookie.
    pub fn session(&self) -> &str {
        &self.name
    }

    /// The name of the cookie of the login with this `state`: each tab has a login of its own.
    pub fn login(&self, state: &str) -> String {
        let suffix = bits::hash_of(&[b"login", state.as_bytes()]);
        format!("{}_{}", self.name, &suffix[..10])
    }

    /// Whether it is the name of the cookie of some login.
    pub fn is_login(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.name.as_bytes());
        rest.is_some_and(|rest| rest.len() == 11 && rest[0] == b'_')
    }

    /// The value of `Set-Cookie` for a cookie of the browser's session, or of some seconds.
    pub fn set(&self, name: &str, value: &str, max_age_s: Option<u64>) -> String {
        let age = max_age_s.map(|s| format!("; Max-Age={s}")).unwrap_or_default();
        let secure = if self.is_secure { "; Secure" } else { "" };
        // Lax: the provider's redirect is a navigation from another site, and has to bring it.
        format!("{name}={value}; Path=/{age}{secure}; HttpOnly; SameSite=Lax")
    }

    /// The value of `Set-Cookie` that removes a cookie.
    pub fn clear(&self, name: &str) -> String {
        self.set(name, "", Some(0))
    }
}

/// The pairs of a `Cookie` field.
pub fn pairs(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|b| *b == b';').filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        Some((pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::{Cookies, pairs};

    #[test]
    fn cookies_are_bound_to_the_host_under_https() {
        let cookies = Cookies::new("S", true);
        assert_eq!(
            cookies.set(cookies.session(), "v", None),
            "__Host-S=v; Path=/; Secure; HttpOnly; SameSite=Lax"
        );
        assert_eq!(cookies.clear("x"), "x=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
        let plain = Cookies::new("S", false);
        assert_eq!(
            plain.set(plain.session(), "v", Some(5)),
            "S=v; Path=/; Max-Age=5; HttpOnly; SameSite=Lax"
        );
        assert_eq!(Cookies::new("__Host-S", true).session(), "__Host-S");
        assert_eq!(Cookies::new("__Secure-S", true).session(), "__Secure-S");
    }

    #[test]
    fn logins_have_cookies_of_their_own() {
        let cookies = Cookies::new("S", true);
        let (a, b) = (cookies.login("a"), cookies.login("b"));
        assert!(a != b && cookies.is_login(a.as_bytes()) && cookies.is_login(b.as_bytes()));
        assert!(!cookies.is_login(b"__Host-S") && !cookies.is_login(b"__host-S_0123456789"));
    }

    #[test]
    fn cookie_fields_are_split() {
        let all: Vec<_> = pairs(b"a=1; b = x=y ;; c; a=2").collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b"x=y"), (b"a", b"2")];
        assert_eq!(all, expected);
    }
}
