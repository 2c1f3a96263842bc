//! Key agreement (RFC 7518 section 4.6, RFC 8037 section 3.2): the recipient's key and the sender's
//! ephemeral one, which the header has, give a secret, and a hash makes a key of it.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::digest;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::Error;
use crate::base64url;
use crate::header::Header;
use crate::jwk::AgreementCurve;

/// What the header has of the agreement.
pub(super) struct Agreement {
    curve: AgreementCurve,
    /// The ephemeral key's point.
    point: Vec<u8>,
    /// `apu` and `apv`: what each party tells about itself.
    parties: [Vec<u8>; 2],
}

impl Agreement {
    pub(super) fn of(header: &Header) -> Result<Agreement, Error> {
        let epk = header.members.get("epk").and_then(Value::as_object);
        let epk = epk.ok_or(Error::Header("epk is missing or no JSON object"))?;
        let (curve, point) = point(epk).ok_or(Error::Header("epk is no key of a known curve"))?;
        let party = |name, wrong| match header.text(name, wrong)? {
            None => Ok(Vec::new()),
            Some(text) => base64url::decode(text.as_bytes()).ok_or(Error::Header(wrong)),
        };
        let parties = [party("apu", "apu is no base64url")?, party("apv", "apv is no base64url")?];
        Ok(Agreement { curve, point, parties })
    }

    /// The key of `bytes` bytes for the algorithm of that name; `None` if the ephemeral key is of
    /// another curve than ours, or no point of its curve.
    pub(super) fn key(
        &self,
        private: &PrivateKey,
        algorithm: &str,
        bytes: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let point = UnparsedPublicKey::new(self.curve.algorithm(), &self.point);
        agree(private, point, (), |z| Ok(self.derive(z, algorithm, bytes))).ok()
    }

    /// The Concat KDF of NIST SP 800-56A section 5.8.1 with SHA-256, as RFC 7518 section 4.6.2
    /// fills it in.
    fn derive(&self, z: &[u8], algorithm: &str, bytes: usize) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(bytes + 32));
        let mut counter = 1u32;
        while out.len() < bytes {
            let mut hash = digest::Context::new(&digest::SHA256);
            hash.update(&counter.to_be_bytes());
            hash.update(z);
            for part in [algorithm.as_bytes(), &self.parties[0], &self.parties[1]] {
                hash.update(&(part.len() as u32).to_be_bytes());
                hash.update(part);
            }
            hash.update(&(bytes as u32 * 8).to_be_bytes());
            out.extend_from_slice(hash.finish().as_ref());
            counter += 1;
        }
        out.truncate(bytes);
        out
    }
}

fn point(epk: &Map<String, Value>) -> Option<(AgreementCurve, Vec<u8>)> {
    let text = |name: &str| epk.get(name).and_then(Value::as_str);
    let curve = AgreementCurve::parse(text("kty")?, text("crv")?)?;
    let coordinate = |name| {
        let bytes = base64url::decode(text(name)?.as_bytes())?;
        (bytes.len() == curve.bytes()).then_some(bytes)
    };
    let x = coordinate("x")?;
    if curve == AgreementCurve::X25519 {
        return Some((curve, x));
    }
    Some((curve, [&[4][..], &x, &coordinate("y")?].concat()))
}

#[cfg(test)]
mod tests {
    use super::{Agreement, AgreementCurve};

    /// RFC 7518 appendix C.
    #[test]
    fn the_derivation_of_the_rfc() {
        let z = [
            158, 86, 217, 29, 129, 113, 53, 211, 114, 131, 66, 131, 191, 132, 38, 156, 251, 49,
            110, 163, 218, 128, 106, 72, 246, 218, 167, 121, 140, 254, 144, 196,
        ];
        let parties = [b"Alice".to_vec(), b"Bob".to_vec()];
        let agreement = Agreement { curve: AgreementCurve::P256, point: Vec::new(), parties };
        let expected = crate::base64url::decode(b"VqqN6vgjbSBcIijNcacQGg").unwrap();
        assert_eq!(agreement.derive(&z, "A128GCM", 16)[..], expected);
        // Longer keys take further rounds, whose hash has the length in it.
        let long = agreement.derive(&z, "A256CBC-HS512", 64);
        assert_eq!(long.len(), 64);
        assert_ne!(long[..32], long[32..]);
    }
}
