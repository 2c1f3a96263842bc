//! Certificates and revocation lists at random: mostly sound, with one oddity or several.

use testkit::certificates::{Draft, Extension, Key, ListDraft, der, general_names};

use testkit::rng::Rng;

/// The parts of a case that the two are known to judge in different ways.
pub type Odd = Vec<&'static str>;

/// The part of a certificate in its chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Leaf,
    /// With so many authorities below.
    Middle(usize),
    Root(usize),
}

const USAGES: [&str; 7] = [
    "1.3.6.1.5.5.7.3.1",
    "1.3.6.1.5.5.7.3.2",
    "1.3.6.1.5.5.7.3.4",
    "2.5.29.37.0",
    "1.3.6.1.4.1.311.10.3.3",
    "2.16.840.1.113730.4.1",
    "1.2.3.4",
];
const HOSTS: [&str; 8] = [
    "a.example",
    "b.a.example",
    "*.a.example",
    "other",
    "w*.a.example",
    "A.Example",
    "x.other",
    "a..example",
];
const MAILS: [&str; 4] = ["u@a.example", "U@b.a.example", "none", "v@other"];
const URIS: [&str; 4] = ["http://a.example/x", "https://b.a.example:8/", "urn:x", "http://other"];
const BASES: [&str; 6] = ["a.example", ".a.example", "example", "", "other", "u@a.example"];
const DIRECTORIES: [&str; 3] = ["O=org", "O=ORG /CN=x", "O=other"];

/// Hosts that are asked for.
pub const ASKED: [&str; 6] =
    ["a.example", "b.a.example", "www.a.example", "level0.example", "127.0.0.1", ".a.example"];

/// The extensions of a certificate; `ids` are the key identifiers of its own and its issuer's.
pub fn extensions(rng: &mut Rng, role: Role, ids: (&[u8], &[u8])) -> Vec<Extension> {
    let mut all = Vec::new();
    let authority = role != Role::Leaf;
    if authority || rng.percent(40) {
        all.extend(basic(rng, role));
    }
    if rng.percent(60) {
        all.push(Extension::key_usage(match (authority, rng.below(30)) {
            (true, 0) => 0x02,
            (true, 1) => 0x04,
            (true, _) => 0x06,
            (false, 0) => 0x04,
            (false, 1) => 0x20,
            (false, 2) => 0x08,
            (false, 3) => 0x8000,
            (false, _) => 0xa0,
        }));
    }
    if rng.percent(if authority { 12 } else { 60 }) {
        let both = rng.percent(80);
        let mut list = vec![*rng.pick(&USAGES.each_ref())];
        if both {
            list = vec![USAGES[0], USAGES[1]];
        }
        all.push(Extension::extended(&list));
    }
    if rng.percent(70) {
        all.push(Extension::subject_key_id(ids.0));
    }
    if rng.percent(60) {
        all.push(Extension::authority_key_id(ids.1));
    }
    if rng.percent(if authority { 5 } else { 60 }) {
        all.push(alt_names(rng));
    }
    if authority && rng.percent(12) {
        all.push(constraints(rng));
    }
    if rng.percent(8) {
        all.push(points(rng));
    }
    if rng.percent(4) {
        let bits = *rng.pick(&[&0x80u16, &0x40, &0x04, &0x02, &0xc0]);
        all.push(Extension::new("2.16.840.1.113730.1.1", der::named_bits(bits)));
    }
    for extension in &mut all {
        let usual = !matches!(&*extension.oid, "2.5.29.14" | "2.5.29.35");
        extension.critical = rng.percent(if usual { 10 } else { 1 });
    }
    if authority && let Some(first) = all.first_mut() {
        first.critical = rng.percent(90);
    }
    all
}

fn basic(rng: &mut Rng, role: Role) -> Option<Extension> {
    let (below, root) = match role {
        Role::Leaf => return Some(Extension::basic(rng.percent(30), None)),
        Role::Middle(below) => (below, false),
        Role::Root(below) => (below, true),
    };
    if rng.percent(4) {
        return None;
    }
    let ca = !rng.percent(3);
    let length = match rng.below(20) {
        0 => Some(below.saturating_sub(1) as u8),
        1..=4 => Some(below as u8),
        5 => Some(below as u8 + 1),
        _ => None,
    };
    Some(Extension::basic(ca, if root && rng.percent(70) { None } else { length }))
}

fn owned_names(rng: &mut Rng, constraint: bool) -> Vec<(u8, Vec<u8>)> {
    (0..1 + rng.below(3)).map(|_| general_name(rng, constraint)).collect()
}

fn general_name(rng: &mut Rng, constraint: bool) -> (u8, Vec<u8>) {
    let text = |list: &[&str], rng: &mut Rng| list[rng.below(list.len())].as_bytes().to_vec();
    match rng.below(if constraint { 12 } else { 13 }) {
        0..=4 => (0x82, text(if constraint { &BASES } else { &HOSTS }, rng)),
        5 | 6 => (0x81, text(if constraint { &BASES } else { &MAILS }, rng)),
        7 => (0x86, text(if constraint { &BASES } else { &URIS }, rng)),
        8 | 9 if constraint => {
            let odd = rng.percent(5);
            let net: &[u8] = if rng.percent(60) { &[127, 0, 0, 0] } else { &[10, 0, 0, 0] };
            let mask: &[u8] = if odd { &[255] } else { &[255, 0, 0, 0] };
            (0x87, [net, mask].concat())
        }
        8 | 9 => match rng.below(6) {
            0 => (0x87, vec![0xfe; 16]),
            1 => (0x87, vec![1, 2, 3]),
            2 => (0x87, vec![10, 1, 1, 1]),
            _ => (0x87, vec![127, 0, 0, 1]),
        },
        10 => (0xa4, der::name(DIRECTORIES[rng.below(DIRECTORIES.len())])),
        11 => match rng.below(3) {
            0 => (0x88, vec![0x2a, 3]),
            1 => (0xa0, [der::oid("1.2.3"), der::element(0xa0, &[5, 0])].concat()),
            _ => (0xa4, der::name("")),
        },
        _ => {
            let value = der::element(0xa0, &der::element(0x0c, b"u@a.example"));
            (0xa0, [der::oid("1.3.6.1.5.5.7.8.9"), value].concat())
        }
    }
}

fn alt_names(rng: &mut Rng) -> Extension {
    let names = owned_names(rng, false);
    let names: Vec<(u8, &[u8])> = names.iter().map(|(kind, name)| (*kind, &name[..])).collect();
    Extension::alt_names(&names)
}

fn constraints(rng: &mut Rng) -> Extension {
    let (permitted, excluded) = (rng.percent(70), rng.percent(40));
    let list = |wanted: bool, rng: &mut Rng| match wanted {
        true => owned_names(rng, true),
        false => Vec::new(),
    };
    let (permitted, excluded) = (list(permitted, rng), list(excluded, rng));
    if rng.percent(5) {
        let name = permitted.first().cloned().unwrap_or((0x82, b"example".to_vec()));
        let bound = der::element(0x80 + rng.below(2) as u8, &[rng.below(2) as u8]);
        let subtree = der::sequence(&[&der::element(name.0, &name.1), &bound]);
        return Extension::new("2.5.29.30", der::sequence(&[&der::element(0xa0, &subtree)]));
    }
    let permitted: Vec<(u8, &[u8])> = permitted.iter().map(|(k, n)| (*k, &n[..])).collect();
    let excluded: Vec<(u8, &[u8])> = excluded.iter().map(|(k, n)| (*k, &n[..])).collect();
    Extension::constraints(&permitted, &excluded)
}

/// The place of a revocation list.
fn place(rng: &mut Rng) -> Vec<u8> {
    let uri: &[u8] = if rng.percent(70) { b"http://crl/" } else { b"http://other/" };
    let name = match rng.below(8) {
        0 => der::element(0xa1, &der::attribute("2.5.4.3", 0x0c, b"list")),
        1 => general_names(0xa0, &[(0xa4, &der::name("O=org/CN=level1/CN=list"))]),
        _ => general_names(0xa0, &[(0x86, uri)]),
    };
    der::element(0xa0, &name)
}

fn points(rng: &mut Rng) -> Extension {
    let entries: Vec<Vec<u8>> = (0..1 + rng.below(2))
        .map(|_| {
            let name = if rng.percent(90) { place(rng) } else { Vec::new() };
            let reasons = match rng.below(8) {
                0 => der::element(0x81, &[1, 0x02]),
                1 => der::element(0x81, &[0, 0x7e]),
                _ => Vec::new(),
            };
            let issuer = match rng.below(10) {
                0 => general_names(0xa2, &[(0xa4, &der::name("O=org/CN=level1"))]),
                1 => general_names(0xa2, &[(0xa4, &der::name("O=elsewhere"))]),
                _ => Vec::new(),
            };
            der::sequence(&[&name, &reasons, &issuer])
        })
        .collect();
    Extension::new("2.5.29.31", der::element(0x30, &entries.concat()))
}

/// One thing that is wrong or rare.
pub fn spoil(rng: &mut Rng, draft: &mut Draft, keys: &[Key], odd: &mut Odd) {
    if rng.percent(50) {
        return spoil_extensions(rng, &mut draft.extensions, odd);
    }
    match rng.below(13) {
        0 => draft.version = 1 + rng.below(2) as u8,
        1 => draft.validity.1 = "210101000000Z".to_owned(),
        2 => draft.validity.0 = "390101000000Z".to_owned(),
        3 => draft.validity.1 = "20500101000000Z".to_owned(),
        4 => draft.validity.0 = odd_time(rng),
        5 => {
            let serials: [&[u8]; 4] = [&[0], &[0x81], &[0x7f; 20], &[0, 0xff, 1]];
            draft.serial = serials[rng.below(4)].to_vec();
        }
        6 => draft.issuer = respelled(rng, "level1"),
        7 => draft.issuer = der::name("O=nobody"),
        8 => draft.spki = keys[rng.below(keys.len())].spki(),
        9 => draft.spki = odd_key(rng),
        10 => draft.subject = respelled(rng, "level0"),
        11 => {
            odd.push("odd name");
            draft.subject = odd_name(rng);
        }
        _ => {
            // The second of the verification, and those before and after it.
            let end = ["270115080001Z", "270115080000Z", "270115075959Z"][rng.below(3)];
            draft.validity.1 = end.to_owned();
        }
    }
}

fn spoil_extensions(rng: &mut Rng, list: &mut Vec<Extension>, odd: &mut Odd) {
    const KEY_USAGE: &str = "2.5.29.15";
    const AUTHORITY_KEY_ID: &str = "2.5.29.35";
    let count = list.len();
    match rng.below(12) {
        0 if count > 0 => {
            let again = list[rng.below(count)].clone();
            list.push(again);
        }
        1 if count > 0 => {
            list.remove(rng.below(count));
        }
        2 if count > 0 => {
            odd.push("bytes of an extension changed");
            let value = &mut list[rng.below(count)].value;
            match rng.below(3) {
                0 => value.push(0),
                1 => {
                    value.pop();
                }
                _ => {
                    let at = rng.below(value.len().max(1));
                    if let Some(byte) = value.get_mut(at) {
                        *byte ^= 1 << rng.below(8);
                    }
                }
            }
        }
        3 => list.retain(|e| e.oid != AUTHORITY_KEY_ID),
        4 => {
            list.retain(|e| e.oid != AUTHORITY_KEY_ID);
            list.push(authority_key_id(rng));
        }
        5 => list.retain(|e| e.oid != KEY_USAGE),
        6 => list.clear(),
        7 => {
            list.retain(|e| e.oid != KEY_USAGE);
            list.push(Extension::key_usage(1 << rng.below(16)));
        }
        8 => list.iter_mut().for_each(|extension| extension.critical = !extension.critical),
        _ => list.push(rare(rng)),
    }
}

fn odd_time(rng: &mut Rng) -> String {
    let odd = [
        "2001010000Z",
        "200101000000+0100",
        "20200101000000.5Z",
        "200101000000",
        "201301000000Z",
        "19491231235959Z",
        "99991231235959Z",
    ];
    odd[rng.below(odd.len())].to_owned()
}

fn rare(rng: &mut Rng) -> Extension {
    let rare = [
        Extension::new("1.2.3.4", vec![5, 0]),
        Extension::new("2.5.29.32", der::sequence(&[&der::sequence(&[&der::oid("1.2.3")])])),
        Extension::new("2.5.29.36", der::sequence(&[&[0x80, 1, 0]])),
        Extension::new("2.5.29.54", vec![2, 1, 0]),
        Extension::new("2.5.29.46", der::sequence(&[])),
        Extension::new("1.3.6.1.5.5.7.48.1.5", vec![5, 0]),
        Extension::new("1.3.6.1.5.5.7.1.24", der::sequence(&[&[2, 1, 5]])),
        Extension::new("1.3.6.1.5.5.7.1.1", der::sequence(&[])),
        Extension::new("2.5.29.18", der::sequence(&[&der::element(0x82, b"issuer")])),
        Extension::new("2.5.29.9", der::sequence(&[])),
        proxy(),
    ];
    let extension = rare[rng.below(rare.len())].clone();
    if rng.percent(50) { extension.critical() } else { extension }
}

fn proxy() -> Extension {
    let policy = der::sequence(&[&der::oid("1.3.6.1.5.5.7.21.1")]);
    Extension::new("1.3.6.1.5.5.7.1.14", der::sequence(&[&policy]))
}

/// With an issuer and a serial number, right or wrong.
fn authority_key_id(rng: &mut Rng) -> Extension {
    let id = if rng.percent(40) { der::element(0x80, b"wrong") } else { Vec::new() };
    let issuer = match rng.below(4) {
        0 => general_names(0xa1, &[(0xa4, &der::name("O=org/CN=level2"))]),
        1 => general_names(0xa1, &[(0x82, b"x"), (0xa4, &der::name("O=elsewhere"))]),
        _ => Vec::new(),
    };
    let serial = match rng.below(3) {
        0 => der::element(0x82, &[1]),
        1 => der::element(0x82, &[2]),
        _ => Vec::new(),
    };
    Extension::new("2.5.29.35", der::sequence(&[&id, &issuer, &serial]))
}

/// The same name to OpenSSL, or nearly.
fn respelled(rng: &mut Rng, name: &str) -> Vec<u8> {
    let wide: Vec<u8> = name.bytes().flat_map(|b| [0, b]).collect();
    let cn = match rng.below(6) {
        0 => der::attribute("2.5.4.3", 0x13, name.to_uppercase().as_bytes()),
        1 => der::attribute("2.5.4.3", 0x0c, format!("  {name}\t").as_bytes()),
        2 => der::attribute("2.5.4.3", 0x1e, &wide),
        3 => der::attribute("2.5.4.3", 0x14, name.as_bytes()),
        4 => der::attribute("2.5.4.3", 0x16, format!("{name}.").as_bytes()),
        _ => der::attribute("2.5.4.3", 0x12, name.as_bytes()),
    };
    let org = der::element(0x31, &der::attribute("2.5.4.10", 0x0c, b"org"));
    der::element(0x30, &[org, der::element(0x31, &cn)].concat())
}

fn odd_name(rng: &mut Rng) -> Vec<u8> {
    let types: [(u8, &[u8]); 12] = [
        (0x0c, "süß, €".as_bytes()),
        (0x0c, b" #edges "),
        (0x0c, b"a.example\0"),
        (0x0c, b"a.ex\0ample"),
        (0x0c, b"\xff"),
        (0x14, b"caf\xe9"),
        (0x1e, b"\x20\xac"),
        (0x1e, b"\xd8\x3d\xde\x00"),
        (0x1c, b"\0\x01\xf6\0"),
        (0x03, b"\0ab"),
        (0x16, b"u@other"),
        (0x1a, b"visible"),
    ];
    let (tag, value) = types[rng.below(types.len())];
    let keys = ["2.5.4.3", "1.2.840.113549.1.9.1", "2.5.4.5", "1.2.3.4.5", "2.5.4.97"];
    let one = der::attribute(keys[rng.below(keys.len())], tag, value);
    let two = der::attribute("2.5.4.11", 0x0c, b"unit");
    let content = if rng.percent(70) { one } else { [one, two].concat() };
    der::element(0x30, &der::element(0x31, &content))
}

fn odd_key(rng: &mut Rng) -> Vec<u8> {
    let rsa = |size: usize| {
        let modulus = [&[0u8][..], &vec![0xc3; size]].concat();
        let key = der::sequence(&[&der::element(2, &modulus), &[2, 3, 1, 0, 1]]);
        let algorithm = der::sequence(&[&der::oid("1.2.840.113549.1.1.1"), &[5, 0]]);
        der::sequence(&[&algorithm, &der::bits(&key)])
    };
    match rng.below(5) {
        0 => rsa(128),
        1 => rsa(255),
        2 => rsa(384),
        3 => {
            let algorithm = der::sequence(&[&der::oid("1.2.3.4")]);
            der::sequence(&[&algorithm, &der::bits(&[1, 2, 3])])
        }
        _ => {
            let p256 = der::oid("1.2.840.10045.3.1.7");
            let algorithm = der::sequence(&[&der::oid("1.2.840.10045.2.1"), &p256]);
            der::sequence(&[&algorithm, &der::bits(&[4; 65])])
        }
    }
}

/// A revocation list, sound or not.
pub fn list(
    rng: &mut Rng,
    issuer: &[u8],
    serials: &[Vec<u8>],
    id: &[u8],
    odd: &mut Odd,
) -> ListDraft {
    let mut draft = ListDraft { issuer: issuer.to_vec(), ..ListDraft::new("") };
    let reason = |code| vec![Extension::new("2.5.29.21", vec![0x0a, 1, code])];
    for serial in serials {
        match rng.below(40) {
            0 | 1 => draft.revoked.push((serial.clone(), Vec::new())),
            2 => draft.revoked.push((serial.clone(), reason(1))),
            3 => draft.revoked.push((serial.clone(), reason(8))),
            _ => {}
        }
    }
    if rng.percent(50) {
        draft.revoked.push((vec![0x55], reason(4)));
    }
    match rng.below(30) {
        0 => draft.next_update = Some("210101000000Z".to_owned()),
        1 => draft.this_update = "390101000000Z".to_owned(),
        2 => draft.next_update = None,
        3 => draft.this_update = "2001010000Z".to_owned(),
        4 => draft.this_update = "210101000000Z".to_owned(),
        5 => draft.extensions.push(Extension::new("1.2.3.4", vec![5, 0]).critical()),
        6 => draft.extensions.push(Extension::new("1.2.3.4", vec![5, 0])),
        7 => draft.extensions.push(Extension::new("2.5.29.20", vec![2, 1, 9]).critical()),
        8 => {
            odd.push("delta list");
            draft.extensions.push(Extension::new("2.5.29.20", vec![2, 1, 9]));
            draft.extensions.push(Extension::new("2.5.29.27", vec![2, 1, 5]).critical());
        }
        9 => draft.extensions.push(Extension::authority_key_id(b"wrong")),
        10 => {
            let entry = vec![Extension::new("1.2.3.4", vec![5, 0]).critical()];
            draft.revoked.push((vec![0x56], entry));
        }
        11 => {
            odd.push("entry of another issuer");
            let names = general_names(0x30, &[(0xa4, &der::name("O=elsewhere"))]);
            let entry = vec![Extension::new("2.5.29.29", names).critical()];
            draft.revoked.push((vec![1], entry));
        }
        12..=15 => draft.extensions.push(distribution(rng).critical()),
        16..=21 => draft.extensions.push(Extension::authority_key_id(id)),
        _ => {}
    }
    draft
}

fn distribution(rng: &mut Rng) -> Extension {
    let place = if rng.percent(50) { place(rng) } else { Vec::new() };
    let flag: &[u8] = match rng.below(9) {
        0 | 1 => &[0x81, 1, 0xff],
        2 | 3 => &[0x82, 1, 0xff],
        4 => &[0x83, 2, 1, 0x06],
        5 => &[0x84, 1, 0xff],
        6 => &[0x85, 1, 0xff],
        _ => &[],
    };
    Extension::new("2.5.29.28", der::sequence(&[&place, flag]))
}
