//! An authority of a user's own, for servers on this machine and in its network. Its certificate
//! limits it to such names (RFC 5280 section 4.2.1.10): a stolen key of an authority that browsers
//! trust must be of no use against the rest of the web.

use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use proto::acme::Identifier;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyUsagePurpose, NameConstraints,
    PublicKeyData, date_time_ymd,
};

use super::{Error, Key, KeyKind, params};
use crate::pem::Secret;

/// Clocks differ: certificates are valid a little earlier.
const EARLIER: u64 = 24 * 3600;
/// Ten years, seconds.
const AUTHORITY_LASTS: u64 = 10 * 365 * 24 * 3600;
/// A certificate of a server is made anew at each start; systems accept at most 825 days.
const SERVER_LASTS: u64 = 365 * 24 * 3600;

/// The names that it may certify, with all below them.
const NAMES: [&str; 3] = ["localhost", "local", "test"];

/// The networks that it may certify: of one machine, private ones (RFC 1918, RFC 4193), and those
/// of links.
const NETWORKS: [(&str, u8); 8] = [
    ("127.0.0.0", 8),
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("169.254.0.0", 16),
    ("::1", 128),
    ("fc00::", 7),
    ("fe80::", 10),
];

/// Whether the authority may certify an address.
pub fn is_local(address: IpAddr) -> bool {
    networks().any(|(network, prefix)| match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (u32::from(network) ^ u32::from(address)).leading_zeros() >= u32::from(prefix)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (u128::from(network) ^ u128::from(address)).leading_zeros() >= u32::from(prefix)
        }
        _ => false,
    })
}

fn networks() -> impl Iterator<Item = (IpAddr, u8)> {
    NETWORKS.iter().filter_map(|(network, prefix)| Some((network.parse().ok()?, *prefix)))
}

/// A certificate authority for this machine's own names, as `weir serve --https` uses it.
pub struct Authority {
    key: Key,
}

impl Authority {
    /// Makes a new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Authority, Error> {
        Ok(Authority { key: Key::generate(KeyKind::Ecdsa(256))? })
    }

    /// The one of that key, in PEM.
    ///
    /// # Errors
    /// It is no key.
    pub fn from_key(pem: &[u8]) -> Result<Authority, Error> {
        Ok(Authority { key: Key::from_pem(pem)? })
    }

    /// Its key in PEM.
    pub fn key(&self) -> Secret {
        self.key.to_pem()
    }

    /// Its certificate in PEM. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The key does not sign.
    pub fn certificate(&self, now: u64) -> Result<Vec<u8>, Error> {
        let params = self.params(now)?;
        let certificate = params.self_signed(&self.key.rcgen()?)?;
        Ok(crate::x509::pem::write(certificate.der()))
    }

    /// Certifies a server's key for these names and addresses; returns the certificate in PEM.
    ///
    /// # Errors
    /// A name is not ASCII, or the key does not sign.
    pub fn certify(&self, key: &Key, names: &[Identifier], now: u64) -> Result<Vec<u8>, Error> {
        let mut params = params(names)?;
        let name = names.first().ok_or(Error::NoName)?;
        params.distinguished_name.push(DnType::CommonName, name.value());
        set_times(&mut params, now, SERVER_LASTS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self.params(now)?, self.key.rcgen()?);
        let certificate = params.signed_by(&key.rcgen()?, &issuer)?;
        Ok(crate::x509::pem::write(certificate.der()))
    }

    fn params(&self, now: u64) -> Result<CertificateParams, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // Two authorities in one store differ by name.
        let hash = digest(&SHA256, &self.key.rcgen()?.subject_public_key_info());
        let id: String = hash.as_ref().iter().take(4).map(|b| format!("{b:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("Weir local authority {id}"));
        set_times(&mut params, now, AUTHORITY_LASTS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let names = NAMES.iter().map(|name| GeneralSubtree::DnsName((*name).to_owned()));
        let networks = networks().map(|(network, prefix)| {
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(network, prefix))
        });
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: names.chain(networks).collect(),
            excluded_subtrees: Vec::new(),
        });
        Ok(params)
    }
}

fn set_times(params: &mut CertificateParams, now: u64, lasts: u64) {
    let at = |secs| date_time_ymd(1970, 1, 1) + Duration::from_secs(secs);
    params.not_before = at(now.saturating_sub(EARLIER));
    params.not_after = at(now.saturating_add(lasts));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{SystemTime, UNIX_EPOCH};

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    /// Whether rustls accepts a server of that name, certified by the authority.
    fn is_accepted(authority: &Authority, name: &str) -> bool {
        let der = |pem: Vec<u8>| CertificateDer::from_pem_slice(&pem).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(authority.certificate(now()).unwrap())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let key = Key::generate(KeyKind::Ecdsa(256)).unwrap();
        let identifier = match name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(name.to_owned()),
        };
        let leaf = der(authority.certify(&key, &[identifier], now()).unwrap());
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let verified =
            verifier.build().unwrap().verify_server_cert(&leaf, &[], &server, &[], UnixTime::now());
        verified.is_ok()
    }

    #[test]
    fn local_names_are_accepted_and_no_others() {
        let authority = Authority::generate().unwrap();
        let again = Authority::from_key(&authority.key()).unwrap();
        for name in ["localhost", "a.localhost", "box.local", "127.0.0.1", "::1", "192.168.7.8"] {
            assert!(is_accepted(&again, name), "{name}");
        }
        for name in ["example.com", "localhost.example.com", "8.8.8.8", "2001:db8::1"] {
            assert!(!is_accepted(&again, name), "{name}");
        }
    }

    #[test]
    fn local_addresses() {
        for (address, local) in [
            ("127.0.0.1", true),
            ("172.31.0.1", true),
            ("172.32.0.1", false),
            ("8.8.8.8", false),
            ("::1", true),
            ("fd00::1", true),
            ("::2", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), local, "{address}");
        }
    }
}
