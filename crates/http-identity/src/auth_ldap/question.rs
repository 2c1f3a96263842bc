//! A question to a server: is this the password of a user that fulfils the rules?

use std::fmt;

use base::log::lossy;
use event::Deadline;
use proto::ldap::response::code;
use proto::ldap::{Filter, Scope};
use zeroize::Zeroizing;

use super::connection::{Connection, Done, Failure, Found};
use super::server::{Required, Server};

pub(super) struct Question {
    pub user: Vec<u8>,
    /// Not empty: with an empty one every name is accepted (RFC 4513 section 5.1.2).
    pub password: Zeroizing<Vec<u8>>,
    pub required: Required,
}

/// The reason why a user is not let in. Fit for the log.
pub(super) enum Denial {
    NotFound,
    /// The server has several entries for the name, and no way to tell whose password it is.
    Ambiguous,
    /// Another server may know the user.
    Elsewhere,
    /// The user's name cannot be a part of the name of an entry.
    UnfitName,
    /// A rule does not hold.
    Rule(String),
    Password(String),
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denial::NotFound => f.write_str("was not found"),
            Denial::Ambiguous => f.write_str("has several entries"),
            Denial::Elsewhere => {
                f.write_str("may have an entry at another server, and referrals are not followed")
            }
            Denial::UnfitName => f.write_str("cannot be in the name of an entry"),
            Denial::Rule(which) => write!(f, "does not satisfy \"{which}\""),
            Denial::Password(result) => write!(f, "password mismatch ({result})"),
        }
    }
}

/// The answer: `None` if the user is let in.
type Answer = Option<Denial>;

impl Server {
    /// Asks the server.
    ///
    /// # Errors
    /// It gave no answer.
    pub(super) async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        let deadline = Deadline::in_ms(self.timeouts.request);
        let mut retries = self.retries;
        loop {
            let mut lease = self.pool.lease(deadline).await?;
            let is_old = lease.is_old;
            let answer = match lease.connection(self, deadline).await {
                Ok(connection) => connection.answer(self, question, deadline).await,
                Err(e) => Err(e),
            };
            match answer {
                Ok(answer) => {
                    self.pool.set_up();
                    return Ok(answer);
                }
                // It was closed while it was idle; the others may have been, too.
                Err(e) if e.is_closed && is_old => {}
                Err(e) if e.is_down && retries > 0 && !deadline.has_passed() => retries -= 1,
                Err(e) => {
                    if e.is_down {
                        self.pool.set_down(self.timeouts.reconnect);
                    }
                    return Err(e);
                }
            }
        }
    }
}

impl Connection {
    async fn answer(
        &mut self,
        server: &Server,
        question: &Question,
        deadline: Deadline,
    ) -> Result<Answer, Failure> {
        let Question { user, password, required } = question;
        let entry = match (&required.user_dn, &server.search) {
            (Some(_), _) if !fits_dn(user) => return Ok(Some(Denial::UnfitName)),
            (Some(dn), _) => dn.to_vec(),
            (None, Some(search)) => {
                self.become_searcher(server, deadline).await?;
                let named = Filter::equals(search.attribute.as_bytes(), user);
                let filter = named.and(&search.filter);
                match self.find(&search.base, search.scope, &filter, deadline).await? {
                    Found::One(name) => name,
                    Found::None => return Ok(Some(Denial::NotFound)),
                    Found::Many => return Ok(Some(Denial::Ambiguous)),
                    Found::Elsewhere => return Ok(Some(Denial::Elsewhere)),
                }
            }
            (None, None) => return Err(Failure::other("it has no search")),
        };
        // The name of the root is the empty one, which binds anybody.
        if entry.is_empty() {
            return Ok(Some(Denial::NotFound));
        }
        let all = server.rules.all;
        let is_user = judge(all, required.users.iter().map(|name| *name == entry[..]));
        if all && is_user == Some(false) {
            return Ok(Some(Denial::Rule("require user".to_owned())));
        }
        let is_decided = !all && is_user == Some(true);
        if !is_decided && !required.groups.is_empty() {
            self.become_searcher(server, deadline).await?;
            if let Some(denial) = self.check_groups(server, question, &entry, deadline).await? {
                return Ok(Some(denial));
            }
        } else if is_user == Some(false) {
            return Ok(Some(Denial::Rule("require user".to_owned())));
        }
        let done: Done = self.bind(&entry, password, deadline).await?;
        Ok((done.code != code::SUCCESS).then(|| Denial::Password(done.code_and_name())))
    }

    /// Whether the user is in all groups, or in any.
    async fn check_groups(
        &mut self,
        server: &Server,
        question: &Question,
        entry: &[u8],
        deadline: Deadline,
    ) -> Result<Answer, Failure> {
        let member = if server.group_has_dns { entry } else { &question.user[..] };
        let filter = Filter::equals(server.group_attribute.as_bytes(), member);
        let mut last = None;
        for group in &question.required.groups {
            let found = self.find(group, Scope::Base, &filter, deadline).await?;
            let is_member = matches!(found, Found::One(_));
            if is_member && !server.rules.all {
                return Ok(None);
            }
            if !is_member {
                last = Some(Denial::Rule(format!("require group {}", lossy(group))));
                if server.rules.all {
                    break;
                }
            }
        }
        Ok(last)
    }
}

/// Whether all hold, or any; `None` of no rules.
fn judge(all: bool, mut rules: impl ExactSizeIterator<Item = bool>) -> Option<bool> {
    if rules.len() == 0 {
        return None;
    }
    Some(if all { rules.all(|holds| holds) } else { rules.any(|holds| holds) })
}

/// Whether a user's name can be put into the name of an entry as it is: none of its characters has
/// a meaning there (RFC 4514 section 2.4), so it cannot name an entry elsewhere.
fn fits_dn(user: &[u8]) -> bool {
    let has_meaning =
        |byte: &u8| matches!(byte, b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=');
    let is_control = |byte: &u8| byte.is_ascii_control();
    !user.iter().any(|byte| has_meaning(byte) || is_control(byte))
        && !user.starts_with(b"#")
        && !user.starts_with(b" ")
        && !user.ends_with(b" ")
        && std::str::from_utf8(user).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_meaning_do_not_fit() {
        for name in ["anna", "anna.b@example.com", "Anna Ängstlich", "a#b", "a*"] {
            assert!(fits_dn(name.as_bytes()), "{name}");
        }
        for name in [
            "a,ou=admins",
            "a+b",
            "a\\",
            "a\"",
            "<a",
            "a>",
            "a;b",
            "a=b",
            "#a",
            " a",
            "a ",
            "a\0",
            "a\n",
        ] {
            assert!(!fits_dn(name.as_bytes()), "{name}");
        }
        assert!(!fits_dn(b"\xff"));
    }

    #[test]
    fn rules_hold_all_or_any() {
        let judge = |all, rules: &[bool]| super::judge(all, rules.iter().copied());
        assert_eq!((judge(true, &[]), judge(false, &[])), (None, None));
        assert_eq!(judge(true, &[true, false]), Some(false));
        assert_eq!(judge(true, &[true, true]), Some(true));
        assert_eq!(judge(false, &[true, false]), Some(true));
        assert_eq!(judge(false, &[false, false]), Some(false));
    }
}
