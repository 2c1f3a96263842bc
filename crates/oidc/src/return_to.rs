//! The page to return to after a login.

/// Bytes of a target: longer ones would make a cookie that browsers drop.
const BYTES_MAX: usize = 2000;

/// Whether a target fits: in the cookie, quotes and backslashes are two bytes each.
fn fits(text: &str) -> bool {
    text.len() + text.bytes().filter(|b| matches!(b, b'"' | b'\\')).count() <= BYTES_MAX
}

/// The target of the request that began a login, if it is a path of this very origin; otherwise
/// `/`. Browsers read `//host` and `/\host` as other hosts, and drop tabs and line ends first.
pub fn return_to(target: &[u8]) -> String {
    let is_graphic = target.iter().all(|b| b.is_ascii_graphic() || *b >= 0x80);
    let is_own = matches!(target, [b'/'] | [b'/', 0..=b'.' | b'0'..=b'[' | b']'..=u8::MAX, ..]);
    let text = std::str::from_utf8(target).ok().filter(|_| is_graphic && is_own);
    match text {
        Some(text) if fits(text) => text.to_owned(),
        // The arguments are the longest part as a rule.
        Some(text) => {
            let path = text.split('?').next().unwrap_or_default();
            if fits(path) { path.to_owned() } else { "/".to_owned() }
        }
        None => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, return_to};

    #[test]
    fn only_paths_of_this_origin_are_returned_to() {
        for own in ["/", "/a", "/a?b=//c", "/a/../b", "/%2f/evil.test", "/caf\u{e9}"] {
            assert_eq!(return_to(own.as_bytes()), own);
        }
        for other in [
            "",
            "*",
            "//evil.test/",
            "/\\evil.test/",
            "///evil.test",
            "http://evil.test/",
            "evil.test",
            "/\t/evil.test",
            "/a\r\nSet-Cookie: x",
            "/a b",
        ] {
            assert_eq!(return_to(other.as_bytes()), "/", "{other}");
        }
        assert_eq!(return_to(b"/\xff"), "/");
    }

    #[test]
    fn long_targets_lose_their_arguments() {
        let long = "x".repeat(BYTES_MAX);
        assert_eq!(return_to(format!("/a?{long}").as_bytes()), "/a");
        assert_eq!(return_to(format!("/{long}").as_bytes()), "/");
        let quotes = "\"".repeat(BYTES_MAX / 2);
        assert_eq!(return_to(format!("/a?{quotes}").as_bytes()), "/a");
    }
}
