//! Groups for the key exchange, and the list of them in `ssl_ecdh_curve`.

use std::fmt;

/// A group that can be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// X25519 with ML-KEM-768, against quantum computers.
    X25519MlKem768,
    /// P-256 with ML-KEM-768.
    P256MlKem768,
    /// ML-KEM-768 alone.
    MlKem768,
    /// Curve25519.
    X25519,
    /// The curve P-256.
    P256,
    /// The curve P-384.
    P384,
}

impl Group {
    /// The groups of `auto`, best first.
    pub const AUTO: [Group; 4] = [Group::X25519MlKem768, Group::X25519, Group::P256, Group::P384];

    const ALL: [Group; 6] = [
        Group::X25519MlKem768,
        Group::P256MlKem768,
        Group::MlKem768,
        Group::X25519,
        Group::P256,
        Group::P384,
    ];

    /// The number in the protocol.
    pub fn number(self) -> u16 {
        match self {
            Group::X25519MlKem768 => 0x11ec,
            Group::P256MlKem768 => 0x11eb,
            Group::MlKem768 => 0x0201,
            Group::X25519 => 0x001d,
            Group::P256 => 0x0017,
            Group::P384 => 0x0018,
        }
    }

    /// The strength in bits, as OpenSSL counts it.
    pub fn bits(self) -> u32 {
        match self {
            Group::X25519 | Group::P256 => 128,
            Group::X25519MlKem768 | Group::P256MlKem768 | Group::MlKem768 | Group::P384 => 192,
        }
    }

    /// The group of a name, of its kinds that OpenSSL knows, in letters of any case as OpenSSL 3.5
    /// takes them.
    fn named(name: &str) -> Option<Group> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let of = |group: &Group| match group {
            Group::P256 => is("prime256v1") || is("secp256r1") || is("P-256"),
            Group::P384 => is("secp384r1") || is("P-384"),
            group => proto::tls_names::group(group.number()).is_some_and(is),
        };
        Group::ALL.into_iter().find(of)
    }
}

/// Names that OpenSSL knows, of groups that cannot be had, besides those of
/// [`proto::tls_names::group`].
const OTHER_NAMES: &[&str] = &[
    "P-521",
    "K-163",
    "B-163",
    "K-233",
    "B-233",
    "K-283",
    "B-283",
    "K-409",
    "B-409",
    "K-571",
    "B-571",
    "P-192",
    "P-224",
    "secp192r1",
];

/// Whether OpenSSL knows this name.
fn is_known(name: &str) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    /// The numbers of groups, without those of hybrids, which stand apart.
    const PLAIN: std::ops::Range<u16> = 0..0x300;
    OTHER_NAMES.iter().any(|other| is(other))
        || PLAIN.chain(0x11eb..0x11ee).filter_map(proto::tls_names::group).any(is)
}

/// nginx's message for a list that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    text: String,
    /// The reason in OpenSSL's words; it has none for a list that is badly written.
    pub reason: Option<String>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SSL_CTX_set1_curves_list(\"{}\") failed", self.text)?;
        match &self.reason {
            Some(reason) => write!(f, " (SSL: {reason})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// The groups that a list selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    groups: Vec<Group>,
    missing: Vec<String>,
}

impl Groups {
    /// Reads what `ssl_ecdh_curve` has: `auto`, or a list.
    ///
    /// # Errors
    /// As [`Groups::parse`].
    pub fn setting(text: &str) -> Result<Groups, Error> {
        match text {
            "auto" => Ok(Groups { groups: Group::AUTO.to_vec(), missing: Vec::new() }),
            text => Groups::parse(text),
        }
    }

    /// Reads a list of groups with `:` between, best first. Of OpenSSL 3.5's additions `/` is a
    /// separator too, `?` allows a name to be unknown, `-` takes a group out again, `DEFAULT` is
    /// the groups of `auto`, and `*` marks what a client guesses, which is nothing here.
    ///
    /// # Errors
    /// OpenSSL refuses it: an item is empty, too long, or unknown. Or no group that can be had is
    /// left.
    pub fn parse(text: &str) -> Result<Groups, Error> {
        const NAME_MAX: usize = 63;
        let error = |reason| Error { text: text.to_owned(), reason };
        let (mut groups, mut missing) = (Vec::new(), Vec::new());
        let mut add = |group: Group| {
            if !groups.contains(&group) {
                groups.push(group);
            }
        };
        let mut removed = Vec::new();
        for item in text.split([':', '/']).map(str::trim) {
            let name = item.trim_start_matches(['*', '?', '-']);
            let marks = &item[..item.len() - name.len()];
            if name.is_empty() || name.len() > NAME_MAX {
                return Err(error(None));
            }
            let group = Group::named(name);
            match group {
                Some(group) if marks.contains('-') => removed.push(group),
                Some(group) => add(group),
                None if name.eq_ignore_ascii_case("DEFAULT") => {
                    Group::AUTO.into_iter().for_each(&mut add);
                }
                None if is_known(name) && !marks.contains('-') => missing.push(name.to_owned()),
                None if is_known(name) || marks.contains('?') => {}
                None => {
                    return Err(error(Some(format!(
                        "error:0A080106:SSL routines::passed invalid argument:group '{item}' \
                         cannot be set"
                    ))));
                }
            }
        }
        groups.retain(|group| !removed.contains(group));
        if groups.is_empty() {
            return Err(error(Some("none of these groups is supported".to_owned())));
        }
        Ok(Groups { groups, missing })
    }

    /// The groups, best first; one at least.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What to warn of, once: groups that the list names and that cannot be had.
    pub fn warning(&self) -> Option<String> {
        (!self.missing.is_empty())
            .then(|| format!("groups not supported, ignored: {}", self.missing.join(":")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let groups = |text: &str| Groups::setting(text).unwrap().groups().to_vec();
        assert_eq!(groups("auto"), Group::AUTO);
        assert_eq!(
            groups("X25519:prime256v1:secp384r1"),
            [Group::X25519, Group::P256, Group::P384]
        );
        assert_eq!(groups("P-384:P-256"), [Group::P384, Group::P256]);
        assert_eq!(groups("secp256r1: x25519 "), [Group::P256, Group::X25519]);
        assert_eq!(
            groups("X25519MLKEM768:SecP256r1MLKEM768:MLKEM768"),
            [Group::X25519MlKem768, Group::P256MlKem768, Group::MlKem768]
        );
        assert_eq!(groups("?foo:*X25519/?P-256:X25519"), [Group::X25519, Group::P256]);
        assert_eq!(groups("P-384:DEFAULT:-X25519")[..2], [Group::P384, Group::X25519MlKem768]);
        assert_eq!(groups("P-384:DEFAULT:-X25519").len(), 3);
        for group in Group::ALL {
            assert!(crate::server::provider(&[], &[group.number()]).is_ok(), "{group:?}");
        }
    }

    #[test]
    fn groups_that_cannot_be_had() {
        let groups = Groups::parse("secp521r1:X448:X25519:ffdhe2048:P-521:secp192r1").unwrap();
        assert_eq!(groups.groups(), [Group::X25519]);
        assert_eq!(
            groups.warning().unwrap(),
            "groups not supported, ignored: secp521r1:X448:ffdhe2048:P-521:secp192r1"
        );
        assert_eq!(Groups::parse("X25519").unwrap().warning(), None);
        // Every name of OpenSSL 3.0's.
        for name in "sect163k1 K-163 sect163r1 sect163r2 B-163 sect193r1 sect193r2 sect233k1 \
            K-233 sect233r1 B-233 sect239k1 sect283k1 K-283 sect283r1 B-283 sect409k1 K-409 \
            sect409r1 B-409 sect571k1 K-571 sect571r1 B-571 secp160k1 secp160r1 secp160r2 \
            secp192k1 secp192r1 prime192v1 P-192 secp224k1 secp224r1 P-224 secp256k1 secp521r1 \
            P-521 brainpoolP256r1 brainpoolP384r1 brainpoolP512r1 x448 ffdhe3072 ffdhe8192"
            .split_whitespace()
        {
            let groups = Groups::parse(&format!("{name}:P-256")).unwrap();
            assert_eq!((groups.groups().len(), groups.missing), (1, vec![name.to_owned()]));
        }
    }

    /// What nginx 1.22 says, but for names in other letters, names that come twice, which OpenSSL
    /// 3.5 takes, and the last line.
    #[test]
    fn lists_that_are_refused() {
        let error = |text: &str| Groups::setting(text).unwrap_err().to_string();
        let start = |text: &str| format!("SSL_CTX_set1_curves_list(\"{text}\") failed");
        for text in ["X25519::P-256", ":X25519", "X25519:", "", "*", &"a".repeat(100)] {
            assert_eq!(error(text), start(text));
        }
        for (text, name) in [("foo", "foo"), ("prime256v1:foo", "foo"), ("auto:X25519", "auto")] {
            let reason = format!(
                " (SSL: error:0A080106:SSL routines::passed invalid argument:group '{name}' cannot \
                 be set)"
            );
            assert_eq!(error(text), start(text) + &reason);
        }
        let none = " (SSL: none of these groups is supported)";
        assert_eq!(error("secp521r1"), start("secp521r1") + none);
        assert_eq!(error("X25519:-X25519"), start("X25519:-X25519") + none);
    }
}
