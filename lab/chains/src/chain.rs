//! One case: what is trusted, what the peer sends, and how it is checked.

use testkit::certificates::{Draft, Key, KeyKind, der, signed};

use testkit::rng::Rng;

use super::draft::{self, Odd, Role};

/// In the middle of the usual validity.
const NOW: i64 = 1_800_000_000;

/// A chain to verify.
pub struct Case {
    pub trusted: Vec<Vec<u8>>,
    pub lists: Vec<Vec<u8>>,
    pub check_lists: bool,
    /// The peer's own certificate first.
    pub peer: Vec<Vec<u8>>,
    pub server: bool,
    pub depth: u32,
    pub now: i64,
    pub host: Option<&'static str>,
    /// OpenSSL's security level.
    pub level: u8,
    pub odd: Odd,
}

impl Case {
    /// A line about it.
    pub fn told(&self) -> String {
        format!(
            "{} trusted, {} of the peer, {} lists ({}), server: {}, depth {}, host {:?}, {:?}",
            self.trusted.len(),
            self.peer.len(),
            self.lists.len(),
            self.check_lists,
            self.server,
            self.depth,
            self.host,
            self.odd,
        )
    }
}

/// Few key pairs for all cases: making them takes longer than all else.
pub struct Keys(Vec<Key>);

impl Keys {
    /// Fresh ones.
    pub fn new() -> Keys {
        use KeyKind::{Ed25519, P256, P384, P521, Rsa};
        Keys([P256, P256, P256, P384, P521, Ed25519, Rsa, Rsa].map(Key::generate).into())
    }
}

/// One level of the chain, zero is the leaf.
struct Level {
    key: usize,
    draft: Draft,
    der: Vec<u8>,
}

/// A case at random.
pub fn case(rng: &mut Rng, keys: &Keys) -> Case {
    let keys = &keys.0;
    let length = [1, 2, 2, 3, 3, 3, 4, 5][rng.below(8)];
    let mut odd = Odd::new();
    let levels = levels(rng, keys, length, &mut odd);
    let mut case = Case {
        trusted: Vec::new(),
        lists: Vec::new(),
        check_lists: false,
        peer: vec![levels[0].der.clone()],
        server: rng.percent(50),
        depth: [0, 1, 2, 3, 5, 9][rng.below(6)].max(if rng.percent(70) {
            length as u32
        } else {
            0
        }),
        now: NOW,
        host: rng.percent(15).then(|| draft::ASKED[rng.below(draft::ASKED.len())]),
        level: if rng.percent(85) { 2 } else { rng.below(6) as u8 },
        odd,
    };
    trust(rng, &mut case, &levels, keys);
    send(rng, &mut case, &levels, keys);
    if rng.percent(30) {
        case.check_lists = true;
        lists(rng, &mut case, &levels, keys);
    }
    case
}

fn name(level: usize) -> Vec<u8> {
    der::name(&match level {
        0 => "O=org/CN=level0.example".to_owned(),
        n => format!("O=org/CN=level{n}"),
    })
}

fn id(key: usize) -> [u8; 4] {
    [1, 2, 3, key as u8]
}

fn levels(rng: &mut Rng, keys: &[Key], length: usize, odd: &mut Odd) -> Vec<Level> {
    let used: Vec<usize> = (0..length).map(|_| rng.below(keys.len())).collect();
    // The others are sound but for what was drawn with the extensions.
    let spoilt = if rng.percent(45) { 1 + rng.below(2) } else { 0 };
    let spoilt: Vec<usize> = (0..spoilt).map(|_| rng.below(length)).collect();
    (0..length)
        .map(|level| {
            let last = level + 1 == length;
            let role = match level {
                _ if last && length > 1 => Role::Root(level - 1),
                0 => Role::Leaf,
                n => Role::Middle(n - 1),
            };
            let above = if last { level } else { level + 1 };
            let ids = (&id(used[level])[..], &id(used[above])[..]);
            let mut draft = Draft::new("", "", &keys[used[level]]);
            draft.subject = name(level);
            draft.issuer = name(above);
            draft.serial = vec![level as u8 + 1];
            draft.extensions = draft::extensions(rng, role, ids);
            for _ in spoilt.iter().filter(|at| **at == level) {
                draft::spoil(rng, &mut draft, keys, odd);
            }
            let signer = if rng.percent(2) { rng.below(keys.len()) } else { used[above] };
            let der = sign(rng, &draft, &keys[signer], odd);
            Level { key: used[level], draft, der }
        })
        .collect()
}

/// Mostly as it should be.
fn sign(rng: &mut Rng, draft: &Draft, key: &Key, tags: &mut Odd) -> Vec<u8> {
    use aws_lc_rs::signature as aws;
    let odd = rng.below(60);
    if key.kind() == KeyKind::Rsa && odd < 12 {
        let pkcs1 = |last: u8| {
            let oid = format!("1.2.840.113549.1.1.{last}");
            der::sequence(&[&der::oid(&oid), &[5, 0]])
        };
        let (algorithm, encoding): (_, &'static dyn aws::RsaEncoding) = match odd {
            0 | 1 => (pkcs1(12), &aws::RSA_PKCS1_SHA384),
            2 | 3 => (pkcs1(13), &aws::RSA_PKCS1_SHA512),
            4 => (pkcs1(5), &aws::RSA_PKCS1_SHA256),
            5 => (pkcs1(4), &aws::RSA_PKCS1_SHA256),
            6 => (pss(20), &aws::RSA_PSS_SHA256),
            _ => (pss(32), &aws::RSA_PSS_SHA256),
        };
        let part = draft.to_be_signed(&algorithm);
        let signature = key.sign_rsa(encoding, &part).unwrap_or_default();
        return der::sequence(&[&part, &algorithm, &der::bits(&signature)]);
    }
    match odd {
        12 => {
            let mut der = draft.sign(key);
            let at = der.len() - 1 - rng.below(10);
            der[at] ^= 1 << rng.below(8);
            der
        }
        13 => {
            // The inner algorithm is another one.
            let inner = der::sequence(&[&der::oid("1.2.840.10045.4.3.4")]);
            signed(&draft.to_be_signed(&inner), key)
        }
        14 => {
            tags.push("bytes left over");
            let part = draft.to_be_signed(&key.algorithm());
            let signature = der::bits(&key.sign(&part));
            der::sequence(&[&part, &key.algorithm(), &signature, &[5, 0]])
        }
        _ => draft.sign(key),
    }
}

fn pss(salt: u8) -> Vec<u8> {
    let sha256 = der::sequence(&[&der::oid("2.16.840.1.101.3.4.2.1"), &[5, 0]]);
    let mask = der::sequence(&[&der::oid("1.2.840.113549.1.1.8"), &sha256]);
    let parameters = der::sequence(&[
        &der::element(0xa0, &sha256),
        &der::element(0xa1, &mask),
        &der::element(0xa2, &[2, 1, salt]),
    ]);
    der::sequence(&[&der::oid("1.2.840.113549.1.1.10"), &parameters])
}

/// A self-signed authority with the name of a level and another key.
fn mimic(rng: &mut Rng, level: &Level, keys: &[Key]) -> Vec<u8> {
    let key = &keys[rng.below(keys.len())];
    let mut draft = level.draft.clone();
    draft.spki = key.spki();
    if rng.percent(50) {
        draft.extensions.retain(|e| e.oid != "2.5.29.14" && e.oid != "2.5.29.35");
    }
    draft.sign(key)
}

/// The same certificate with other times or without identifiers.
fn twin(rng: &mut Rng, level: &Level, issuer: &Level, keys: &[Key]) -> Vec<u8> {
    let mut draft = level.draft.clone();
    draft.validity = match rng.below(3) {
        0 => ("190101000000Z".to_owned(), "220101000000Z".to_owned()),
        1 => ("390101000000Z".to_owned(), "400101000000Z".to_owned()),
        _ => draft.validity,
    };
    if rng.percent(50) {
        draft.extensions.retain(|e| e.oid != "2.5.29.35");
    }
    draft.serial = vec![0x40 + rng.below(16) as u8];
    draft.sign(&keys[issuer.key])
}

fn trust(rng: &mut Rng, case: &mut Case, levels: &[Level], keys: &[Key]) {
    let root = &levels[levels.len() - 1];
    if rng.percent(8) {
        case.trusted.push(mimic(rng, root, keys));
    }
    if rng.percent(5) {
        case.trusted.push(twin(rng, root, root, keys));
    }
    if !rng.percent(8) {
        case.trusted.push(root.der.clone());
    }
    for (i, level) in levels.iter().enumerate().take(levels.len() - 1) {
        if rng.percent(if i == 0 { 4 } else { 8 }) {
            case.trusted.push(level.der.clone());
        }
    }
    if case.trusted.is_empty() {
        // The program wants a file with something in it.
        case.trusted.push(Draft::new("CN=unrelated", "CN=unrelated", &keys[0]).sign(&keys[0]));
    }
}

fn send(rng: &mut Rng, case: &mut Case, levels: &[Level], keys: &[Key]) {
    let mut more = Vec::new();
    for (i, level) in levels.iter().enumerate().skip(1) {
        let last = i + 1 == levels.len();
        if rng.percent(if last { 30 } else { 95 }) {
            more.push(level.der.clone());
        }
        if rng.percent(8) {
            let issuer = if last { level } else { &levels[i + 1] };
            more.push(twin(rng, level, issuer, keys));
        }
        if rng.percent(4) {
            more.push(mimic(rng, level, keys));
        }
    }
    if rng.percent(3) {
        more.push(case.peer[0].clone());
    }
    if rng.percent(30) {
        for i in (1..more.len()).rev() {
            more.swap(i, rng.below(i + 1));
        }
    }
    case.peer.extend(more);
}

fn lists(rng: &mut Rng, case: &mut Case, levels: &[Level], keys: &[Key]) {
    let serials: Vec<Vec<u8>> = levels.iter().map(|level| level.draft.serial.clone()).collect();
    for level in &levels[usize::from(levels.len() > 1)..] {
        let count = [0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3][rng.below(11)];
        for _ in 0..count {
            let draft =
                draft::list(rng, &level.draft.subject, &serials, &id(level.key), &mut case.odd);
            let signer = if rng.percent(4) { rng.below(keys.len()) } else { level.key };
            case.lists.push(draft.sign(&keys[signer]));
        }
    }
}
