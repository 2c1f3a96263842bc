//! The name of a certificate in requests and responses.

use aws_lc_rs::digest;
use bytes::Bytes;

use super::CacheKey;
use crate::x509::der::{self, Reader, tag};
use crate::x509::{Certificate, Malformed, oid};

/// The tag of the parameters that the hash has not.
const NULL: u8 = 5;

/// CertID: the issuer by hashes of its name and key, and the serial number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CertId {
    name_hash: [u8; 20],
    key_hash: [u8; 20],
    serial: Bytes,
}

/// SHA-1, which stands here for a name; collisions help nobody.
pub(super) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    let mut out = [0; 20];
    out.copy_from_slice(hash.as_ref());
    out
}

impl CertId {
    pub(super) fn new(certificate: &Certificate, issuer: &Certificate) -> CertId {
        CertId {
            name_hash: sha1(certificate.issuer().der()),
            key_hash: sha1(issuer.public_key().bits()),
            serial: certificate.serial().clone(),
        }
    }

    /// The content of a CertID. `None` where other hashes than SHA-1 are used: such a one cannot
    /// be the answer to a question of ours.
    pub(super) fn parse(owner: &Bytes, content: &[u8]) -> Result<Option<CertId>, Malformed> {
        let mut fields = Reader::new(content);
        let mut algorithm = fields.sequence()?;
        let hash = der::oid(algorithm.expect(tag::OID)?)?;
        let name_hash = fields.expect(tag::OCTET_STRING)?;
        let key_hash = fields.expect(tag::OCTET_STRING)?;
        let serial = der::integer(fields.expect(tag::INTEGER)?)?;
        fields.finish()?;
        let (Ok(name_hash), Ok(key_hash)) = (name_hash.try_into(), key_hash.try_into()) else {
            return Ok(None);
        };
        let id = CertId { name_hash, key_hash, serial: owner.slice_ref(serial) };
        Ok((hash == oid::SHA1).then_some(id))
    }

    pub(super) fn to_der(&self) -> Vec<u8> {
        let mut algorithm = Vec::new();
        der::push(&mut algorithm, tag::OID, oid::SHA1);
        der::push(&mut algorithm, NULL, &[]);
        let mut fields = Vec::new();
        der::push(&mut fields, tag::SEQUENCE, &algorithm);
        der::push(&mut fields, tag::OCTET_STRING, &self.name_hash);
        der::push(&mut fields, tag::OCTET_STRING, &self.key_hash);
        der::push(&mut fields, tag::INTEGER, &self.serial);
        let mut out = Vec::new();
        der::push(&mut out, tag::SEQUENCE, &fields);
        out
    }

    pub(super) fn cache_key(&self) -> Option<CacheKey> {
        let mut key = [0; 60];
        key[..20].copy_from_slice(&self.name_hash);
        key[20..40].copy_from_slice(&self.key_hash);
        key[40..].get_mut(..self.serial.len())?.copy_from_slice(&self.serial);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_cache_has_room_for_serial_numbers_of_rfc_5280() {
        let id = |len| {
            let serial = Bytes::from(vec![3; len]);
            CertId { name_hash: [1; 20], key_hash: [2; 20], serial }
        };
        let key = id(2).cache_key().unwrap();
        assert_eq!((key[19], key[20], key[40], key[41], key[42]), (1, 2, 3, 3, 0));
        assert_eq!(id(20).cache_key().unwrap()[59], 3);
        assert_eq!(id(21).cache_key(), None);
    }
}
