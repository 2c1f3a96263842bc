//! Tables of keys and values: changes and searches, and pairs as JSON.

use std::net::IpAddr;

use keyval::{Change, Kind, Pair, Store};

/// The first byte is the kind of the table, the rest are steps: a byte for what is done, one for
/// the length of the key, the key. What is found is what a plain search of a list finds.
pub fn run(data: &[u8]) {
    let Some((kind, mut rest)) = data.split_first() else { return };
    let kind = [Kind::Text, Kind::Ip, Kind::Prefix][usize::from(kind % 3)];
    let _ = keyval::pairs::members(rest);
    let store = Store::new(kind, 64 << 10).expect("memory");
    let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut n = 0u32;
    while let Some((&[step, len], more)) = rest.split_first_chunk() {
        let (key, more) = more.split_at(usize::from(len % 24).min(more.len()));
        let key = if kind == Kind::Ip { network(key) } else { key.to_vec() };
        (rest, n) = (more, n + 1);
        let same = |other: &[u8]| form(kind, other) == form(kind, &key);
        match step % 4 {
            0 => {
                let value = n.to_string().into_bytes();
                let stored = store.put(Change::Set, false, &Pair::new(&key, &value));
                if stored.is_ok() {
                    list.retain(|(other, _)| !same(other));
                    list.push((key, value));
                }
            }
            1 => {
                let was_there = list.iter().any(|(other, _)| same(other));
                assert_eq!(store.remove(&key), was_there);
                list.retain(|(other, _)| !same(other));
            }
            2 => {
                let want = slowly(kind, &list, &key);
                assert_eq!(store.find(&key).map(|pair| pair.value), want);
            }
            _ => {
                let want = list.iter().find(|(other, _)| same(other));
                assert_eq!(store.get(&key).map(|pair| pair.value), want.map(|(_, v)| v.clone()));
            }
        }
    }
    let (mut next, mut all) = (0, Vec::new());
    while let Some(pairs) = store.some(&mut next, 3) {
        all.extend(pairs.into_iter().map(|pair| (pair.key, pair.value)));
    }
    all.sort();
    list.sort();
    assert_eq!(all, list);
}

/// A network in one of the ways to write it.
fn network(bytes: &[u8]) -> Vec<u8> {
    let Some((&bits, rest)) = bytes.split_first() else { return b"x".to_vec() };
    let text = match rest.first_chunk::<16>() {
        Some(ip) if bits & 1 == 1 => format!("{}/{}", IpAddr::from(*ip), bits / 2),
        _ => {
            let mut ip = [10, 0, 0, 0];
            ip.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            match bits {
                ..=33 => format!("{}/{bits}", IpAddr::from(ip)),
                _ => IpAddr::from(ip).to_string(),
            }
        }
    };
    text.into_bytes()
}

/// Address and bits, without what lies behind the bits.
fn range(text: &[u8]) -> Option<(bool, u128, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let (is_v4, ip, size) = match ip.parse().ok()? {
        IpAddr::V4(ip) => (true, u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (false, ip.to_bits(), 128),
    };
    let bits = bits.map_or(Some(size), |bits| bits.parse().ok()).filter(|bits| *bits <= size)?;
    let rest = size - bits;
    Some((is_v4, if rest == 128 { 0 } else { ip >> rest << rest }, bits))
}

fn form(kind: Kind, key: &[u8]) -> Option<Vec<u8>> {
    match kind {
        Kind::Ip => range(key).map(|range| format!("{range:?}").into_bytes()),
        Kind::Text | Kind::Prefix => Some(key.to_vec()),
    }
}

fn slowly(kind: Kind, list: &[(Vec<u8>, Vec<u8>)], text: &[u8]) -> Option<Vec<u8>> {
    let matches = |key: &[u8]| match kind {
        Kind::Text => (key == text).then_some(0),
        Kind::Prefix => text.starts_with(key).then_some(key.len()),
        Kind::Ip => {
            let ((is_v4, ip, bits), (of_v4, sought, sought_bits)) = (range(key)?, range(text)?);
            let rest = if is_v4 { 32 } else { 128 } - bits;
            let cut = if rest == 128 { 0 } else { sought >> rest << rest };
            (is_v4 == of_v4 && bits <= sought_bits && cut == ip).then_some(bits as usize)
        }
    };
    let found = list.iter().filter_map(|(key, value)| Some((matches(key)?, value)));
    found.max_by_key(|(length, _)| *length).map(|(_, value)| value.clone())
}
