//! Clients that misread responses, told by `User-Agent`.

/// MSIE's version, the text after its name. Other browsers send no such name, or name Opera, too.
pub fn msie(ua: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(ua, b"MSIE ")?;
    let version = &ua[at + 5..];
    (version.len() > 2 && memchr::memmem::find(ua, b"Opera").is_none()).then_some(version)
}

/// MSIE up to version 6.
pub fn is_msie6(ua: &[u8]) -> bool {
    match msie(ua) {
        Some([b'4' | b'5', b'.', ..]) => true,
        Some(v @ [b'6', b'.', ..]) => memchr::memmem::find(v, b"SV1").is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_msie6, msie};

    #[test]
    fn msie_says_its_version() {
        for (agent, any, six) in [
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", true, true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", true, false),
            ("Mozilla/4.0 (compatible; MSIE 7.0)", true, false),
            ("MSIE 6.0", true, true),
            ("MSIE 6.", false, false),
            ("MSIE 6", false, false),
            ("MSIE ", false, false),
            ("Mozilla/4.0 (compatible; MSIE 6.0; en) Opera 8.0", false, false),
        ] {
            assert_eq!(msie(agent.as_bytes()).is_some(), any, "{agent}");
            assert_eq!(is_msie6(agent.as_bytes()), six, "{agent}");
        }
    }
}
