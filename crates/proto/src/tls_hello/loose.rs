//! A look at hellos that are not well-formed, or of SSL 2: who passes a connection on need not
//! judge it.

use std::borrow::Cow;

use super::records;

/// The contents of such a hello.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LooseHello {
    /// The highest version that it offers.
    pub version: u16,
    /// The name of the server; empty without one.
    pub server_name: Vec<u8>,
    /// The application protocols.
    pub alpn: Vec<Vec<u8>>,
}

/// The first version of drafts of TLS 1.3.
const DRAFTS: u16 = 0x7f00;

/// Reads what can be read; none where the input is no hello, or incomplete.
pub fn loose(input: &[u8]) -> Option<LooseHello> {
    // An SSL 2 header without padding, and its kind of message.
    if let [0x80..=0xff, _, 1, high, low, ..] = *input {
        let version = u16::from_be_bytes([high, low]);
        return Some(LooseHello { version, ..LooseHello::default() });
    }
    let gathered = records::gather(input).ok()?;
    let message: Cow<'_, [u8]> = gathered.message;
    let mut rest = Reader(&message);
    let mut hello = LooseHello { version: rest.u16()?, ..LooseHello::default() };
    rest.take(32)?;
    for width in [1, 2, 1] {
        rest.list(width)?;
    }
    let mut extensions = Reader(rest.list(2).unwrap_or_default());
    while let (Some(number), Some(data)) = (extensions.u16(), extensions.list_or_rest(2)) {
        let mut data = Reader(data);
        match number {
            super::extension::SERVER_NAME => hello.server_name = name(&mut data),
            super::extension::ALPN => hello.alpn = protocols(&mut data),
            super::extension::SUPPORTED_VERSIONS => {
                let versions = data.list(1).unwrap_or_default().chunks_exact(2);
                let versions = versions.map(|v| u16::from_be_bytes([v[0], v[1]]));
                let known = versions.filter_map(|version| match version {
                    0x0300..=0x0304 => Some(version),
                    DRAFTS..=0x7fff => Some(0x0304),
                    _ => None,
                });
                hello.version = known.max().unwrap_or(hello.version);
            }
            _ => {}
        }
    }
    Some(hello)
}

/// The first host name of the list.
fn name(data: &mut Reader<'_>) -> Vec<u8> {
    let mut names = Reader(data.list(2).unwrap_or_default());
    while let (Some(kind), Some(name)) = (names.take(1), names.list(2)) {
        if kind == [0] {
            return name.to_vec();
        }
    }
    Vec::new()
}

fn protocols(data: &mut Reader<'_>) -> Vec<Vec<u8>> {
    let mut list = Reader(data.list(2).unwrap_or_default());
    std::iter::from_fn(|| list.list(1).map(<[u8]>::to_vec)).collect()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    /// The same, or what there is where the length is too large.
    fn list_or_rest(&mut self, width: usize) -> Option<&'a [u8]> {
        let rest = self.0.get(width..)?;
        Some(self.list(width).unwrap_or_else(|| {
            self.0 = &[];
            rest
        }))
    }

    /// A list whose length stands before it in `width` bytes.
    fn list(&mut self, width: usize) -> Option<&'a [u8]> {
        let len = self.take(width)?.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with a hello of these extensions and no cipher suites.
    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 0, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1, 0, 0, body.len() as u8];
        message.extend(body);
        let mut record = vec![22, 3, 1, 0, message.len() as u8];
        record.extend(message);
        record
    }

    #[test]
    fn facts_of_hellos_that_are_not_well_formed() {
        let extensions = [
            &[0, 0, 0, 8, 0, 6, 0, 0, 3, b'f', b'o', b'o'][..],
            &[0, 16, 0, 7, 0, 5, 1, b'a', 2, b'b', b'c'],
            &[0, 43, 0, 5, 4, 0x0a, 0x0a, 0x7f, 0x1c],
        ];
        let found = loose(&hello(&extensions.concat())).unwrap();
        assert_eq!(found.version, 0x0304);
        assert_eq!(found.server_name, b"foo");
        assert_eq!(found.alpn, [b"a".to_vec(), b"bc".to_vec()]);
        assert_eq!(loose(&hello(&[])).unwrap().version, 0x0303);
    }

    #[test]
    fn an_extension_may_be_shorter_than_it_says() {
        let found = loose(&hello(&[0, 43, 0, 7, 2, 0x7f, 0x1c])).unwrap();
        assert_eq!(found.version, 0x0304);
    }

    #[test]
    fn each_beginning_and_each_changed_byte_is_harmless() {
        let whole = hello(&[0, 0, 0, 8, 0, 6, 0, 0, 3, b'f', b'o', b'o']);
        for end in 0..whole.len() {
            assert_eq!(loose(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = loose(&changed);
        }
    }

    #[test]
    fn ssl_2() {
        assert_eq!(loose(&[0x80, 0x1c, 1, 0, 2, 0]).unwrap().version, 2);
        assert_eq!(loose(&[0x80, 0x1c, 1, 3, 1, 0]).unwrap().version, 0x0301);
        assert_eq!(loose(&[0x80, 0x1c, 2, 3, 1, 0]), None);
    }
}
