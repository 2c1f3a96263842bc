//! The chain from the peer's certificate to a trusted root.

use super::{Error, Run, Store};
use crate::x509::{Certificate, Kind};
use std::sync::Arc;

impl Run<'_> {
    /// Extends the chain as far as it goes; without a trusted end the reason is noted. False if
    /// nothing more can be said of the chain.
    pub(super) fn build(&mut self) -> bool {
        // One more than allowed, so that a chain that is too long is seen as such.
        let longest = self.rules.depth as usize + 1;
        let mut pool: Vec<&Arc<Certificate>> = self.peer.iter().collect();
        let mut from_peer = true;
        loop {
            let length = self.chain.len();
            let current = self.chain[length - 1].clone();
            let trusted = if length > longest {
                None
            } else {
                self.store.issuer_of(&current, self.rules.now)
            };
            if let Some(issuer) = trusted {
                if current.public_key().kind() == Kind::Unknown {
                    return false;
                }
                let issuer = issuer.clone();
                match self.take_trusted(current.is_self_signed(), issuer) {
                    Taken::Root => return true,
                    Taken::Issuer => {
                        // An issuer that we have is not looked for among the peer's any more.
                        from_peer = false;
                        continue;
                    }
                    Taken::Rejected => return true,
                    Taken::No => {}
                }
            }
            if !from_peer {
                break;
            }
            let issuer = if current.is_self_signed() || length > longest {
                None
            } else {
                self.issuer_from(&pool, &current)
            };
            match issuer {
                Some(place) => {
                    self.chain.push(pool.remove(place).clone());
                    self.untrusted += 1;
                }
                // A second look into the store would find what the first one did.
                None => break,
            }
        }
        self.no_root(longest);
        true
    }

    /// Takes a trusted issuer of the chain's last certificate.
    fn take_trusted(&mut self, self_signed: bool, issuer: Arc<Certificate>) -> Taken {
        let last = self.chain.len() - 1;
        let verdict = self.store.verdict(&issuer, self.rules.purpose);
        if !self_signed {
            let root = verdict.unwrap_or(issuer.is_self_signed());
            self.chain.push(issuer);
            if verdict == Some(false) {
                self.fail(Error::Rejected, last + 1);
                return Taken::Rejected;
            }
            return if root { Taken::Root } else { Taken::Issuer };
        }
        // Another certificate with a root's names is not that root.
        if *self.chain[last] != *issuer {
            return Taken::No;
        }
        self.chain[last] = issuer;
        self.untrusted = last;
        if verdict == Some(false) {
            self.fail(Error::Rejected, last);
            return Taken::Rejected;
        }
        Taken::Root
    }

    /// The place in `pool` of an issuer that is not yet in the chain: the first one that is valid
    /// now, else that which is the longest valid.
    fn issuer_from(&self, pool: &[&Arc<Certificate>], of: &Certificate) -> Option<usize> {
        let alone = of.is_self_issued() && self.chain.len() == 1;
        let fits = |candidate: &Certificate| {
            is_likely_issuer(candidate, of)
                && (alone || self.chain.iter().all(|one| **one != *candidate))
        };
        best(pool.iter().enumerate().filter(|(_, c)| fits(c)), self.rules.now, |(_, c)| c)
            .map(|(place, _)| place)
    }

    fn no_root(&mut self, longest: usize) {
        let last = self.chain.len() - 1;
        if let Some((earlier, _)) = self.errors.last().copied() {
            self.fail(earlier, last);
            return;
        }
        if self.chain.len() > longest {
            self.fail(Error::ChainTooLong, last);
        }
        let error = match (self.chain[last].is_self_signed(), last) {
            (true, 0) => Error::SelfSigned,
            (true, _) => Error::SelfSignedInChain,
            (false, _) if self.untrusted < self.chain.len() => Error::NoIssuer,
            (false, _) => Error::NoLocalIssuer,
        };
        self.fail(error, last);
    }
}

enum Taken {
    /// The chain has its trusted end.
    Root,
    /// The chain is longer by a trusted certificate that is no root.
    Issuer,
    /// Its settings reject it for this purpose.
    Rejected,
    No,
}

impl Store {
    /// The trusted issuer of a certificate: the first one that is valid now, else that which is the
    /// longest valid.
    fn issuer_of(&self, of: &Certificate, now: i64) -> Option<&Arc<Certificate>> {
        let named = self.with_subject(of.issuer().canonical());
        best(named.filter(|candidate| is_likely_issuer(candidate, of)), now, |c| c)
    }
}

/// The first candidate that is valid now, else the first of those with the latest end.
fn best<'a, T>(
    candidates: impl Iterator<Item = T>,
    now: i64,
    certificate: impl Fn(&T) -> &'a Arc<Certificate>,
) -> Option<T> {
    let mut best: Option<(T, Option<i64>)> = None;
    for candidate in candidates {
        let one = certificate(&candidate);
        let end = one.not_after().unix();
        let begun = one.not_before().unix().is_some_and(|begin| begin <= now);
        if begun && end.is_some_and(|end| end > now) {
            return Some(candidate);
        }
        if best.as_ref().is_none_or(|(_, latest)| end > *latest) {
            best = Some((candidate, end));
        }
    }
    best.map(|(candidate, _)| candidate)
}

/// Whether `issuer` can have issued `subject` by all that is said in them: names, key identifiers,
/// and the kind of the key. The signature is another question.
pub(super) fn is_likely_issuer(issuer: &Certificate, subject: &Certificate) -> bool {
    issuer.subject() == subject.issuer()
        && !issuer.extensions().invalid
        && !subject.extensions().invalid
        && issuer.is_meant_by(subject.extensions().authority_key_id.as_ref())
        && subject.inner_algorithm().scheme().is_of(issuer.public_key().kind())
}
