//! The parts that extensions allow a certificate to play: an authority, a client, a server.

use super::{Error, Purpose, Run};
use crate::x509::extensions::{key_usage as ku, netscape};
use crate::x509::{Certificate, Kind};

impl Run<'_> {
    /// Every certificate of the chain may stand at its place.
    pub(super) fn check_extensions(&mut self) {
        let length = self.chain.len();
        let mut place = Place::Leaf;
        // How many authorities stand below, those aside that issued for themselves.
        let mut below: u32 = 0;
        let mut proxies: u32 = 0;
        for i in 0..length {
            let certificate = self.chain[i].clone();
            let extensions = certificate.extensions();
            if extensions.unhandled_critical {
                self.fail(Error::CriticalExtension, i);
            }
            if extensions.proxy.is_some() {
                self.fail(Error::ProxyCertificate, i);
            }
            if let Some(error) = place.refuses(authority(&certificate), i + 1 == length) {
                self.fail(error, i);
            }
            if length > 1 && certificate.public_key().kind() == Kind::Unknown {
                self.fail(Error::Unspecified, i);
            }
            let settled = self.store.verdict(&certificate, self.rules.purpose);
            let is_fit = || is_fit(&certificate, self.rules.purpose, place == Place::Issuer);
            if !settled.filter(|_| i >= self.untrusted).unwrap_or_else(is_fit) {
                self.fail(Error::Purpose, i);
            }
            let limit = extensions.basic.and_then(|b| b.path_length);
            if i > 1 && limit.is_some_and(|limit| below > limit.saturating_add(proxies)) {
                self.fail(Error::PathLength, i);
            }
            if i > 0 && !certificate.is_self_issued() {
                below += 1;
            }
            place = Place::Issuer;
            if let Some(proxy) = extensions.proxy {
                if proxy.path_length.is_some_and(|limit| proxies > limit) {
                    self.fail(Error::ProxyPathLength, i);
                }
                proxies = proxy.path_length.unwrap_or(proxies).saturating_add(1);
                place = Place::IssuerOfProxy;
            }
        }
    }
}

/// Where a certificate stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Leaf,
    /// It issued a proxy certificate, as only a user does.
    IssuerOfProxy,
    Issuer,
}

impl Place {
    /// The error of a certificate with these rights at this place.
    fn refuses(self, authority: Authority, last: bool) -> Option<Error> {
        match (self, authority) {
            (Place::Leaf, _) | (Place::IssuerOfProxy, Authority::No) => None,
            (Place::IssuerOfProxy, _) => Some(Error::InvalidNonCa),
            (Place::Issuer, Authority::No) => Some(Error::InvalidCa),
            (Place::Issuer, Authority::Yes) => None,
            // The root may be an old one.
            (Place::Issuer, _) => (!last).then_some(Error::InvalidCa),
        }
    }
}

/// Why something counts as an authority's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    No,
    /// By its basic constraints.
    Yes,
    /// A self-signed one of version 1.
    Version1,
    /// By its key usage, without basic constraints.
    ByUsage,
    /// By Netscape's type, without basic constraints.
    ByType,
}

fn authority(certificate: &Certificate) -> Authority {
    let extensions = certificate.extensions();
    if extensions.invalid || lacks(extensions.key_usage, ku::KEY_CERT_SIGN) {
        return Authority::No;
    }
    if let Some(basic) = extensions.basic {
        return if basic.ca { Authority::Yes } else { Authority::No };
    }
    if certificate.version() == 1 && certificate.is_self_signed() {
        Authority::Version1
    } else if extensions.key_usage.is_some() {
        Authority::ByUsage
    } else if extensions.netscape.is_some_and(|bits| bits & netscape::ANY_CA != 0) {
        Authority::ByType
    } else {
        Authority::No
    }
}

/// The usage is there, and has none of the bits.
fn lacks(usage: Option<u16>, bits: u16) -> bool {
    usage.is_some_and(|usage| usage & bits == 0)
}

/// Whether a certificate is fit for the purpose, as the peer's own or as an authority's.
fn is_fit(certificate: &Certificate, purpose: Purpose, as_authority: bool) -> bool {
    let extensions = certificate.extensions();
    if extensions.invalid {
        // OpenSSL's answer is "cannot tell", which counts as yes: such a certificate has no issuer
        // and issues nothing, and so fails elsewhere.
        return true;
    }
    let allowed = extensions.extended.is_none_or(|usage| match purpose {
        Purpose::Client => usage.client,
        Purpose::Server => usage.server || usage.gated,
    });
    if !allowed {
        return false;
    }
    if as_authority {
        return match authority(certificate) {
            Authority::No => false,
            Authority::ByType => {
                extensions.netscape.is_some_and(|bits| bits & netscape::SSL_CA != 0)
            }
            _ => true,
        };
    }
    let (usage, kind) = match purpose {
        Purpose::Client => (ku::DIGITAL_SIGNATURE | ku::KEY_AGREEMENT, netscape::SSL_CLIENT),
        Purpose::Server => {
            (ku::DIGITAL_SIGNATURE | ku::KEY_ENCIPHERMENT | ku::KEY_AGREEMENT, netscape::SSL_SERVER)
        }
    };
    !lacks(extensions.key_usage, usage) && !lacks(extensions.netscape, kind)
}

/// The error of an issuer whose key usage does not allow to sign this certificate.
pub(super) fn refuses_to_sign(issuer: &Certificate, subject: &Certificate) -> Option<Error> {
    let usage = issuer.extensions().key_usage;
    if subject.extensions().proxy.is_some() {
        lacks(usage, ku::DIGITAL_SIGNATURE).then_some(Error::NoDigitalSignature)
    } else {
        lacks(usage, ku::KEY_CERT_SIGN).then_some(Error::NoCertSign)
    }
}

/// The key usage, if there is one, allows to sign revocation lists.
pub(super) fn may_sign_lists(issuer: &Certificate) -> bool {
    !lacks(issuer.extensions().key_usage, ku::CRL_SIGN)
}
