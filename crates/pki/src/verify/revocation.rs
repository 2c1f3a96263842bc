//! Revocation lists: the best list for each certificate of the chain, and what it says.

use super::{Error, Run, extensions};
use crate::x509::general_name::{ALL_REASONS, GeneralName};
use crate::x509::{Certificate, Kind, RevocationList};
use std::cmp::Ordering;

/// How good a list is for a certificate; the greater, the better. The order of the fields is that
/// of their weight in OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// No critical extension is unknown.
    understood: bool,
    /// The certificate is among those that it is about.
    in_scope: bool,
    /// It is valid now.
    in_time: bool,
    /// The next certificate of the chain issued it, and not one further up.
    by_issuer: bool,
}

/// A list with what was found out of it.
struct Candidate<'a> {
    list: &'a RevocationList,
    score: Score,
    /// The place of its issuer in the chain.
    issuer: usize,
    /// The reasons covered once this list is used.
    reasons: u16,
}

impl<'a> Run<'a> {
    /// Every certificate, also the root, has a valid list that does not name it.
    pub(super) fn check_revocation(&mut self) {
        for i in 0..self.chain.len() {
            if self.chain[i].extensions().proxy.is_none() {
                self.check_one(i);
            }
        }
    }

    fn check_one(&mut self, i: usize) {
        let certificate = self.chain[i].clone();
        let mut reasons = 0;
        while reasons != ALL_REASONS {
            let Some(best) = self.best_list(&certificate, i, reasons) else {
                self.fail(Error::NoRevocationList, i);
                return;
            };
            self.check_list(&best, i);
            if best.list.has_unhandled_critical() {
                self.fail(Error::CriticalListExtension, i);
            }
            if best.list.revokes(certificate.serial()) {
                self.fail(Error::Revoked, i);
            }
            if best.reasons == reasons {
                self.fail(Error::NoRevocationList, i);
                return;
            }
            reasons = best.reasons;
        }
    }

    fn check_list(&mut self, best: &Candidate<'_>, i: usize) {
        let issuer = self.chain[best.issuer].clone();
        if !extensions::may_sign_lists(&issuer) {
            self.fail(Error::NoCrlSign, i);
        }
        if !best.score.in_scope {
            self.fail(Error::ListScope, i);
        }
        if !best.score.in_time {
            self.fail_times(best.list, i);
        }
        if issuer.public_key().kind() == Kind::Unknown {
            self.fail(Error::IssuerKey, i);
        } else if !best.list.is_signed_by(issuer.public_key()) {
            self.fail(Error::ListSignature, i);
        }
    }

    fn fail_times(&mut self, list: &RevocationList, i: usize) {
        match list.this_update().unix() {
            None => self.fail(Error::LastUpdateField, i),
            Some(begin) if begin > self.rules.now => self.fail(Error::ListNotYetValid, i),
            Some(_) => {}
        }
        match list.next_update().map(|time| time.unix()) {
            Some(None) => self.fail(Error::NextUpdateField, i),
            Some(Some(end)) if end <= self.rules.now => self.fail(Error::ListExpired, i),
            _ => {}
        }
    }

    fn best_list(&self, of: &Certificate, i: usize, reasons: u16) -> Option<Candidate<'a>> {
        let lists = self.store.lists.get(of.issuer().canonical())?;
        let mut best: Option<Candidate<'a>> = None;
        for list in lists {
            let Some(candidate) = self.candidate(list, of, i, reasons) else { continue };
            let better = best.as_ref().is_none_or(|best| {
                let newer = || match (list.this_update().unix(), best.list.this_update().unix()) {
                    (Some(one), Some(other)) => one > other,
                    _ => false,
                };
                match candidate.score.cmp(&best.score) {
                    Ordering::Less => false,
                    Ordering::Equal => newer(),
                    Ordering::Greater => true,
                }
            });
            if better {
                best = Some(candidate);
            }
        }
        best
    }

    /// A list whose issuer has the name of the certificate's. `None` if it is of no use at all.
    fn candidate<'l>(
        &self,
        list: &'l RevocationList,
        of: &Certificate,
        i: usize,
        covered: u16,
    ) -> Option<Candidate<'l>> {
        if list.scope().partial {
            return None;
        }
        let next = (i + 1).min(self.chain.len() - 1);
        let id = list.authority_key_id();
        // Of the next one the name is not looked at: it is the issuer's, or that of a certificate
        // without an issuer, whose key did not sign the list.
        let by_issuer = self.chain[next].is_meant_by(id);
        let issuer = if by_issuer {
            next
        } else {
            (next + 1..self.chain.len()).find(|place| {
                let one = &self.chain[*place];
                one.subject() == list.issuer() && one.is_meant_by(id)
            })?
        };
        let mut reasons = covered;
        let scope = scope(list, of);
        if let Some(more) = scope {
            if more & !covered == 0 {
                return None;
            }
            reasons |= more;
        }
        let now = self.rules.now;
        let begun = list.this_update().unix().is_some_and(|begin| begin <= now);
        let lasts = list.next_update().is_none_or(|end| end.unix().is_some_and(|end| end > now));
        let score = Score {
            understood: !list.has_unhandled_critical(),
            in_scope: scope.is_some(),
            in_time: begun && lasts,
            by_issuer,
        };
        Some(Candidate { list, score, issuer, reasons })
    }
}

/// The reasons that a list covers for a certificate, if it is about this one.
fn scope(list: &RevocationList, of: &Certificate) -> Option<u16> {
    let scope = list.scope();
    let is_authority = of.extensions().basic.is_some_and(|b| b.ca);
    let other_kind = if is_authority { scope.only_users } else { scope.only_authorities };
    if scope.only_attributes || other_kind {
        return None;
    }
    for point in &of.extensions().points {
        let right_issuer = point.crl_issuer.as_ref().is_none_or(|names| {
            names
                .iter()
                .any(|name| matches!(name, GeneralName::Directory(name) if name == list.issuer()))
        });
        let same_place = match (&point.name, &scope.point) {
            (Some(one), Some(other)) => one.meets(other),
            _ => true,
        };
        if right_issuer && same_place {
            return Some(point.reasons);
        }
    }
    scope.point.is_none().then_some(ALL_REASONS)
}
