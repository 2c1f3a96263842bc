use aws_lc_rs::{hkdf, hmac};
use testkit::rng::Rng;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

fn tagged<A: Algorithm>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut out = ZEROS;
    Keyed::<A>::new(key).tag(parts.iter().copied(), &mut out);
    out[..A::LENGTH].to_vec()
}

fn expanded(expander: &dyn HkdfExpander, info: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    expander.expand_slice(&[info], &mut out).unwrap();
    out
}

/// RFC 5869, appendices A.1 to A.3.
#[test]
fn vectors_of_hkdf() {
    let range = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
    let cases = [
        (
            vec![0x0b; 22],
            Some(range(0, 0x0c)),
            range(0xf0, 0xf9),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            range(0, 0x4f),
            Some(range(0x60, 0xaf)),
            range(0xb0, 0xff),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c\
             59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71\
             cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            vec![0x0b; 22],
            None,
            Vec::new(),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ];
    for (secret, salt, info, okm) in cases {
        let okm = bytes(okm);
        let expander = SHA256.extract_from_secret(salt.as_deref(), &secret);
        assert_eq!(expanded(&*expander, &info, okm.len()), okm);
    }
}

/// RFC 4231, test cases 1, 2 and 6.
#[test]
fn vectors_of_hmac_sha384() {
    let cases = [
        (
            vec![0x0b; 20],
            &b"Hi There"[..],
            "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c\
             faea9ea9076ede7f4af152e8b2fa9cb6",
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?",
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
             8e2240ca5e69e2c78b3239ecfab21649",
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6\
             0c2ef6ab4030fe8296248df163f44952",
        ),
    ];
    for (key, message, tag) in cases {
        assert_eq!(tagged::<Sha384>(&key, &[message]), bytes(tag));
    }
}

fn label(expander: &dyn HkdfExpander, label: &str, context: &[u8]) -> OkmBlock {
    let name = [b"tls13 ", label.as_bytes()].concat();
    let (len, name_len, context_len) = ([0, 32], [name.len() as u8], [context.len() as u8]);
    expander.expand_block(&[&len, &name_len, &name, &context_len, context])
}

/// RFC 8448 section 3: the secrets of a handshake with TLS_AES_128_GCM_SHA256.
#[test]
fn key_schedule_of_rfc_8448() {
    let empty = bytes("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let early = SHA256.extract_from_zero_ikm(None);
    let derived = label(&*early, "derived", &empty);
    let shared = bytes("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
    assert_eq!(
        derived.as_ref(),
        bytes("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba")
    );
    let handshake = SHA256.extract_from_secret(Some(derived.as_ref()), &shared);
    let hello = bytes("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
    let client = label(&*handshake, "c hs traffic", &hello);
    assert_eq!(
        client.as_ref(),
        bytes("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21")
    );
    let derived = label(&*handshake, "derived", &empty);
    assert_eq!(
        derived.as_ref(),
        bytes("43de77e0c77713859a944db9db2590b53190a65b3ee2e4f12dd7a0bb7ce254b4")
    );
    let master = SHA256.extract_from_zero_ikm(Some(derived.as_ref()));
    let finished = bytes("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13");
    let client = label(&*master, "c ap traffic", &finished);
    assert_eq!(
        client.as_ref(),
        bytes("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5")
    );
}

struct Len(usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// Keys and messages of all lengths around the ends of blocks, as AWS-LC has them.
#[test]
fn all_lengths_agree_with_aws_lc() {
    let mut rng = Rng::new(1);
    type Tagged = fn(&[u8], &[&[u8]]) -> Vec<u8>;
    let all: [(&dyn Hkdf, Tagged, _, _); 2] = [
        (&SHA256, tagged::<Sha256>, hkdf::HKDF_SHA256, hmac::HMAC_SHA256),
        (&SHA384, tagged::<Sha384>, hkdf::HKDF_SHA384, hmac::HMAC_SHA384),
    ];
    for (ours, our_tag, other, other_hmac) in all {
        for len in (0..=260).chain([1000]) {
            let key_len = rng.below(200);
            let (key, message) = (random(&mut rng, key_len), random(&mut rng, len));
            let tag = hmac::sign(&hmac::Key::new(other_hmac, &key), &message);
            let (begin, end) = message.split_at(len / 3);
            assert_eq!(our_tag(&key, &[begin, end]), tag.as_ref(), "{len}");
            let expander = ours.extract_from_secret(Some(&key), &message);
            let prk = hkdf::Salt::new(other, &key).extract(&message);
            let info = random(&mut rng, len / 2);
            let mut okm = vec![0; len + 1];
            prk.expand(&[&info], Len(len + 1)).unwrap().fill(&mut okm).unwrap();
            assert_eq!(expanded(&*expander, &info, len + 1), okm, "{len}");
        }
        let expander = ours.extract_from_zero_ikm(Some(b"salt"));
        let most = 255 * expander.hash_len();
        assert!(expander.expand_slice(&[b"x"], &mut vec![0; most]).is_ok());
        assert!(expander.expand_slice(&[b"x"], &mut vec![0; most + 1]).is_err());
    }
}

/// The suites differ from the library's in nothing but the key schedule.
#[test]
fn all_suites_of_the_library_are_there() {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    assert_eq!(suites().len(), all.len());
    for (ours, other) in suites().iter().zip(all) {
        assert_eq!((ours.suite(), ours.version()), (other.suite(), other.version()));
    }
    let aes256 = suites().iter().filter_map(rustls::SupportedCipherSuite::tls13);
    let aes256 = aes256.filter(|s| u16::from(s.common.suite) == 0x1302);
    let used: Vec<_> = aes256.map(|s| std::ptr::from_ref(s.hkdf_provider).cast::<()>()).collect();
    let own = std::ptr::from_ref(&SHA384).cast::<()>();
    assert_eq!(used.contains(&own), cfg!(target_arch = "x86_64"));
}
