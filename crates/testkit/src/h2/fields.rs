//! Header blocks: an encoder of literals, and a decoder that is not weir's.

use hpack_patched::Decoder as Hpack;

/// A field section, in its order; names are as on the wire.
pub type Fields = Vec<(String, String)>;

/// An integer with a prefix of so many bits, under the bits of `first` (RFC 7541, section 5.1).
pub fn integer(first: u8, prefix: u32, value: usize) -> Vec<u8> {
    let limit = (1usize << prefix) - 1;
    if value < limit {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | limit as u8];
    let mut rest = value - limit;
    while rest >= 128 {
        bytes.push(rest as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A string without Huffman's code.
pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&integer(0, 7, bytes.len())[..], bytes].concat()
}

/// A literal that stays out of the dynamic table.
pub fn literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// A literal that goes into the dynamic table, where it has index 62.
pub fn literal_indexed(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

/// A whole field by its index.
pub fn indexed(index: usize) -> Vec<u8> {
    integer(0x80, 7, index)
}

/// The change of the dynamic table's size.
pub fn table_size(size: usize) -> Vec<u8> {
    integer(0x20, 5, size)
}

/// A block of literals.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

/// The server's header blocks, which depend on the ones before.
pub(super) struct Decoder {
    hpack: Hpack<'static>,
    /// The table's size now, and the greatest that the server may choose.
    size: usize,
    limit: usize,
}

impl Decoder {
    /// With the size that both sides begin with.
    pub(super) fn new() -> Self {
        Self { hpack: Hpack::new(), size: 4096, limit: 4096 }
    }

    /// The greatest size of the table from now on. Below the present one, the next block has to
    /// begin with another (RFC 7541, section 4.2).
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit as usize;
    }

    /// See [`set_limit`](Self::set_limit), if this is more.
    pub(super) fn raise_limit(&mut self, limit: u32) {
        self.limit = self.limit.max(limit as usize);
    }

    /// Decodes a block. An error is the server's fault.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Fields, String> {
        let mut rest = block;
        let mut fields = Fields::new();
        while let Some(first) = rest.first() {
            let (part, later) = rest.split_at(length(rest).ok_or("a block breaks off")?);
            if first & 0xe0 == 0x20 {
                self.size = number(part, 5).map_or(0, |(size, _)| size);
                if !fields.is_empty() {
                    return Err("the dynamic table's size changes behind a field".to_string());
                }
                if self.size > self.limit {
                    return Err(format!("a dynamic table of {}, not {}", self.size, self.limit));
                }
            } else if self.size > self.limit {
                return Err(format!("the dynamic table is not reduced to {}", self.limit));
            }
            let found = self.hpack.decode(part).map_err(|e| format!("HPACK: {e:?}"))?;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            fields.extend(found.into_iter().map(|(name, value)| (text(name), text(value))));
            rest = later;
        }
        Ok(fields)
    }
}

/// An integer with a prefix of so many bits, and its length.
fn number(bytes: &[u8], prefix: u32) -> Option<(usize, usize)> {
    let limit = (1usize << prefix) - 1;
    let mut value = usize::from(*bytes.first()?) & limit;
    if value < limit {
        return Some((value, 1));
    }
    for (n, byte) in bytes.iter().skip(1).take(4).enumerate() {
        value += usize::from(byte & 127) << (7 * n);
        if byte & 128 == 0 {
            return Some((value, n + 2));
        }
    }
    None
}

/// The length of a block's first field, or change of the table's size.
fn length(block: &[u8]) -> Option<usize> {
    let (prefix, literal) = match block.first()? {
        0x80.. => (7, false),
        0x40.. => (6, true),
        0x20.. => (5, false),
        _ => (4, true),
    };
    let (index, mut length) = number(block, prefix)?;
    let strings = if !literal { 0 } else { 1 + usize::from(index == 0) };
    for _ in 0..strings {
        let (bytes, head) = number(block.get(length..)?, 7)?;
        length += head + bytes;
    }
    (length <= block.len()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::{Decoder, block, indexed, integer, literal_indexed, table_size};

    fn hex(text: &str) -> Vec<u8> {
        let text: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let digit = |b: u8| (b as char).to_digit(16).unwrap() as u8;
        text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    #[test]
    fn integers_are_those_of_the_rfc() {
        assert_eq!(integer(0, 5, 10), [10]);
        assert_eq!(integer(0, 5, 1337), [0x1f, 0x9a, 0x0a]);
        assert_eq!(integer(0, 8, 42), [42]);
        assert_eq!(integer(0x80, 7, 127), [0xff, 0]);
    }

    /// RFC 7541, appendix C.6: a table of 256 bytes, evictions, Huffman's code.
    #[test]
    fn the_rfc_s_responses_are_decoded() {
        let mut decoder = Decoder::new();
        let mut first = table_size(256);
        first.extend(hex("488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff
             6e919d29ad171863c78f0b97c8e9ae82ae43d3"));
        let (date, location) = ("Mon, 21 Oct 2013 20:13:21 GMT", "https://www.example.com");
        let field = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            decoder.decode(&first).unwrap(),
            [
                field(":status", "302"),
                field("cache-control", "private"),
                field("date", date),
                field("location", location),
            ]
        );
        let second = decoder.decode(&hex("4883640effc1c0bf")).unwrap();
        assert_eq!(second[0], field(":status", "307"));
        assert_eq!(second[3], field("location", location));
        let third = decoder
            .decode(&hex(
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6
                 c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ))
            .unwrap();
        assert_eq!(third[2], field("date", "Mon, 21 Oct 2013 20:13:22 GMT"));
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        assert_eq!(third[5], field("set-cookie", cookie));
    }

    #[test]
    fn what_the_encoder_writes_is_read_back() {
        let mut decoder = Decoder::new();
        let long = "v".repeat(300);
        let fields = decoder.decode(&block(&[("a", "b"), ("c", &long)])).unwrap();
        assert_eq!(fields[1], ("c".to_string(), long));
        let twice = [literal_indexed("x", "y"), indexed(62), indexed(62)].concat();
        assert_eq!(decoder.decode(&twice).unwrap().len(), 3);
    }

    #[test]
    fn wrong_blocks_are_refused() {
        let refused = |block: &[u8], why: &str| {
            let fault = Decoder::new().decode(block).unwrap_err();
            assert!(fault.contains(why), "{fault}, not {why}");
        };
        refused(&indexed(62), "OutOfBounds");
        refused(&[0x80], "OutOfBounds");
        refused(&table_size(4097), "4097, not 4096");
        refused(&[indexed(8), table_size(0)].concat(), "behind a field");
        for broken in [&[0xff, 0x80][..], &[0, 1, b'n', 2, b'v'], &[0x40], &[0xff; 9]] {
            refused(broken, "breaks off");
        }
        // The value "a" by Huffman's code: its padding is zeros, a whole byte, and the end symbol.
        let huffman = |value: &[u8]| [&[0, 1, b'n', 0x80 | value.len() as u8], value].concat();
        refused(&huffman(&[0x18]), "InvalidPadding");
        refused(&huffman(&[0x1f, 0xff]), "PaddingTooLarge");
        refused(&huffman(&[0x1f, 0xff, 0xff, 0xff, 0xff]), "EOS");
        assert_eq!(Decoder::new().decode(&huffman(&[0x1f])).unwrap()[0].1, "a");
    }

    #[test]
    fn a_smaller_table_is_announced() {
        let mut decoder = Decoder::new();
        decoder.decode(&literal_indexed("x", "y")).unwrap();
        decoder.set_limit(100);
        assert!(decoder.decode(&indexed(62)).unwrap_err().contains("not reduced to 100"));
        assert!(decoder.decode(&table_size(101)).unwrap_err().contains("101, not 100"));
        let reduced = [table_size(0), table_size(100), literal_indexed("x", "y")].concat();
        assert_eq!(decoder.decode(&reduced).unwrap().len(), 1);
        decoder.raise_limit(5000);
        assert_eq!(decoder.decode(&table_size(5000)).unwrap(), []);
    }
}
