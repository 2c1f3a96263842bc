//! `split_clients` blocks: a value by a key's hash, in given shares.

use base::murmur2::murmur2;
use bytes::Bytes;

use crate::{ConfError, Node};

/// Values, each with the hash that its share ends before.
#[derive(Debug)]
pub struct Shares(Vec<(u64, Bytes)>);

/// The whole, in hundredths of a percent, in which shares are given.
pub const WHOLE: u64 = 10_000;

/// Behind all hashes.
const END: u64 = 1 << 32;

impl Shares {
    /// Reads the block of `node`.
    ///
    /// # Errors
    ///
    /// The first line that is wrong, in nginx's words.
    pub fn parse(node: &Node) -> Result<Shares, ConfError> {
        let mut shares = Vec::new();
        let (mut sum, mut last) = (0, 0u64);
        for line in node.entries() {
            let line = line?;
            let [value] = &line.args[..] else {
                return Err(ConfError::at(&line.name, "invalid number of parameters"));
            };
            if line.name.bytes() == b"*" {
                sum = WHOLE;
            } else {
                let share = percent(line.name.bytes()).ok_or_else(|| {
                    let m = format!("invalid percent value \"{}\"", line.name.lossy());
                    ConfError::at(&line.name, m)
                })?;
                sum += share;
                if sum > WHOLE {
                    let m = "percent total is greater than 100%";
                    return Err(ConfError::at(&line.name, m));
                }
                // Rounded share by share, as nginx does: a key must not change sides.
                last += share * u64::from(u32::MAX) / WHOLE;
            }
            let end = if sum == WHOLE { END } else { last };
            shares.push((end, value.text.clone()));
        }
        Ok(Shares(shares))
    }

    /// The value for `key`; empty if it falls into the rest that the shares leave.
    pub fn find(&self, key: &[u8]) -> Bytes {
        let hash = u64::from(murmur2(key));
        let found = self.0.iter().find(|(end, _)| hash < *end);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

/// `12.5%` in hundredths of a percent; at most two digits behind the point, and not 0.
pub fn percent(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"%")?;
    let (whole, rest) = match memchr::memchr(b'.', text) {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    if text.is_empty() || rest.len() > 2 {
        return None;
    }
    let digits = [whole, rest, &b"00"[rest.len()..]].concat();
    base::ascii::parse_u64(&digits).filter(|p| *p > 0 && *p <= WHOLE)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::parse::{Options, parse_bytes};

    fn parse(lines: &str) -> Result<Shares, ConfError> {
        let text = format!("split_clients $x $y {{ {lines} }}");
        let tree = parse_bytes(Path::new("t"), text.into(), &Options::default());
        Shares::parse(&tree.expect("a block's text").nodes[0])
    }

    #[test]
    fn a_key_s_share_is_nginx_s() {
        let shares = parse("51.2% .one; 10% .two; * .three;").unwrap();
        let count = |want: &str| {
            (2..=21).filter(|n: &u32| shares.find(n.to_string().as_bytes()) == want).count()
        };
        // Connection numbers 2 to 21, as nginx divides them.
        assert_eq!((count(".one"), count(".two"), count(".three")), (12, 2, 6));
    }

    #[test]
    fn shares_may_leave_a_rest() {
        let shares = parse("0.01% a;").unwrap();
        let hits = (0..100_000u32).filter(|n| shares.find(&n.to_le_bytes()) == "a").count();
        assert!((1..100).contains(&hits), "{hits}");
        let all = parse("33.33% a; 66.67% b;").unwrap();
        assert!((0..10_000u32).all(|n| !all.find(&n.to_le_bytes()).is_empty()));
    }

    #[test]
    fn what_is_wrong() {
        for (lines, message) in [
            ("50 a;", "invalid percent value \"50\""),
            ("0% a;", "invalid percent value \"0%\""),
            ("1.234% a;", "invalid percent value \"1.234%\""),
            ("% a;", "invalid percent value \"%\""),
            ("-1% a;", "invalid percent value \"-1%\""),
            ("1.2.3% a;", "invalid percent value \"1.2.3%\""),
            ("101% a;", "invalid percent value \"101%\""),
            ("60% a; 50% b;", "percent total is greater than 100%"),
            ("60%;", "invalid number of parameters"),
        ] {
            assert_eq!(parse(lines).unwrap_err().message, message, "{lines}");
        }
        for good in [".5% a;", "5.% a;", "100% a;", "* a;", "50% a; * b;"] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }
}
