//! AES Key Wrap (RFC 3394). aws-lc-rs has it without AES-192, which JOSE allows, so that it is
//! built here on the cipher, one way for all lengths.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

/// RFC 3394 section 2.2.3.1: what an intact key begins with.
const INITIAL_VALUE: [u8; 8] = [0xa6; 8];

/// Keys of content have 64 bytes at most, and 8 are added.
const WRAPPED_MAX: usize = 72;

/// The key that was wrapped; `None` if it is not intact.
pub(super) fn unwrap(key: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if !wrapped.len().is_multiple_of(8) || !(24..=WRAPPED_MAX).contains(&wrapped.len()) {
        return None;
    }
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return None,
    };
    let cipher = DecryptingKey::ecb(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
    let (first, rest) = wrapped.split_first_chunk::<8>()?;
    let mut a = *first;
    let mut out = Zeroizing::new(rest.to_vec());
    let n = out.len() / 8;
    // RFC 3394 section 2.2.2, with the registers R[1] to R[n] in `out`.
    for round in (0..6usize).rev() {
        for (i, register) in out.chunks_exact_mut(8).enumerate().rev() {
            let mut block = Zeroizing::new([0u8; 16]);
            let step = (n * round + i + 1) as u64;
            block[..8].copy_from_slice(&(u64::from_be_bytes(a) ^ step).to_be_bytes());
            block[8..].copy_from_slice(register);
            cipher.decrypt(&mut block[..], DecryptionContext::None).ok()?;
            a.copy_from_slice(&block[..8]);
            register.copy_from_slice(&block[8..]);
        }
    }
    verify_slices_are_equal(&a, &INITIAL_VALUE).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::unwrap;

    fn hex(text: &str) -> Vec<u8> {
        let digits = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    }

    /// RFC 3394 sections 4.1, 4.2, 4.3 and 4.6.
    #[test]
    fn the_vectors_of_the_rfc() {
        let kek = "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F";
        let data = "00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F";
        for (kek_bytes, data_bytes, wrapped) in [
            (16, 16, "1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5"),
            (24, 16, "96778B25AE6CA435F92B5B97C050AED2468AB8A17AD84E5D"),
            (32, 16, "64E8C3F9CE0F5BA263E9777905818A2A93C8191E7D6E8AE7"),
            (
                32,
                32,
                "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21",
            ),
        ] {
            let (kek, wrapped) = (&hex(kek)[..kek_bytes], hex(wrapped));
            let unwrapped = unwrap(kek, &wrapped).unwrap();
            assert_eq!(unwrapped[..], hex(data)[..data_bytes]);
            for i in 0..wrapped.len() {
                let mut other = wrapped.clone();
                other[i] ^= 1;
                assert!(unwrap(kek, &other).is_none(), "byte {i}");
            }
            assert!(unwrap(kek, &wrapped[..16]).is_none());
            assert!(unwrap(kek, &wrapped[1..]).is_none());
            assert!(unwrap(&kek[1..], &wrapped).is_none());
        }
    }
}
