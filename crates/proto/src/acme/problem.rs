//! Errors of the server: problem documents (RFC 7807, RFC 8555 section 6.7).

use std::fmt;

use super::json::Object;

/// The names of errors begin with this.
const PREFIX: &str = "urn:ietf:params:acme:error:";

/// The longest text taken into messages, characters.
const DETAIL_MAX: usize = 512;

/// Subproblems taken into a message.
const SUBPROBLEMS_MAX: usize = 8;

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Problem {
    /// The type without its prefix (`badNonce`); empty where it has none.
    pub kind: String,
    /// The server's words.
    pub detail: String,
    /// The status of HTTP; 0 where it stood in no answer of its own.
    pub status: u16,
    /// The errors of single identifiers.
    pub identifiers: Vec<(String, String)>,
}

impl Problem {
    /// Reads the body of an answer with this status. Any body makes a problem.
    pub fn parse(status: u16, body: &[u8]) -> Problem {
        Object::parse(body).map_or_else(|_| Problem::of_status(status), |o| Problem::of(status, &o))
    }

    fn of_status(status: u16) -> Problem {
        Problem { status, ..Problem::default() }
    }

    /// Reads an `error` member.
    pub(super) fn of(status: u16, o: &Object) -> Problem {
        let kind = o.text("type").unwrap_or_default();
        let subproblem = |sub: Object| {
            let name = sub.object("identifier").and_then(|i| i.text("value").map(short));
            Some((name?, short(sub.text("detail").unwrap_or_default())))
        };
        let identifiers = o.objects("subproblems").into_iter().take(SUBPROBLEMS_MAX);
        Problem {
            kind: short(kind.strip_prefix(PREFIX).unwrap_or(kind)),
            detail: short(o.text("detail").unwrap_or_default()),
            status,
            identifiers: identifiers.filter_map(subproblem).collect(),
        }
    }

    /// The nonce was refused: the request is to be repeated with the one that came along.
    pub(crate) fn is_bad_nonce(&self) -> bool {
        self.kind == "badNonce"
    }

    /// The server has no such account.
    pub fn is_no_account(&self) -> bool {
        self.kind == "accountDoesNotExist"
    }

    /// Too many requests: RFC 8555 section 6.6.
    pub fn is_rate_limited(&self) -> bool {
        self.kind == "rateLimited" || self.status == 429
    }

    /// The order's `replaces` is refused (RFC 9773 section 5).
    pub fn is_bad_replaces(&self) -> bool {
        self.kind == "alreadyReplaced" || self.status == 409
    }

    /// Trying again with the same settings is no use.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind.as_str(),
            "badCSR"
                | "badPublicKey"
                | "badSignatureAlgorithm"
                | "externalAccountRequired"
                | "invalidContact"
                | "invalidProfile"
                | "rejectedIdentifier"
                | "unsupportedContact"
                | "unsupportedIdentifier"
                | "userActionRequired"
        )
    }
}

/// A text of the server's for messages: short, and without control characters.
fn short(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(DETAIL_MAX).map(visible).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "error" } else { &self.kind };
        f.write_str(kind)?;
        if self.status != 0 {
            write!(f, " (status {})", self.status)?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        for (name, detail) in &self.identifiers {
            write!(f, "; {name}: {detail}")?;
        }
        Ok(())
    }
}
