//! What a decoder refuses, by the codes of section 6.

use super::*;

fn fails(decoder: &mut Decoder, section: &str, what: &str) {
    let fault = decode(decoder, 0, &hex(section)).unwrap_err();
    assert_eq!(fault.ends, Ends::Connection, "{section}");
    assert_eq!((fault.code, fault.what), (Code::QpackDecompressionFailed, what), "{section}");
}

/// Two entries: `ab` with `c`, and `:authority` with nothing.
const TWO: &str = "3fe11f 42 6162 01 63 c0 00";

#[test]
fn sections_are_complete() {
    for section in ["", "00", "0000 51", "0000 5105 61", "0000 2261", "0000 2261 62", "0000 ff"] {
        fails(&mut behind(TWO), section, "field section that ends inside a field");
    }
    assert_eq!(decode(&mut behind(TWO), 0, &hex("0000")), Ok(vec![]));
}

#[test]
fn integers_have_62_bits() {
    for section in ["0000 ff ffff ffff ffff ffff 7f", "0000 ff 8080 8080 8080 8080 80"] {
        fails(&mut behind(TWO), section, "too large integer in field section");
    }
    // 99 entries, whatever form the index has.
    fails(&mut behind(TWO), "0000 ff24", "invalid index in field section");
    let last = decode(&mut behind(TWO), 0, &hex("0000 ffa3 00"));
    assert_eq!(last, Ok(fields(&[("x-frame-options", "sameorigin")])));
}

#[test]
fn strings_are_of_their_code() {
    fails(&mut behind(TWO), "0000 5181 00", "invalid Huffman code in field section");
    fails(&mut behind(TWO), "0000 29 00 00", "invalid Huffman code in field section");
}

#[test]
fn references_lie_in_the_tables_and_below_the_required_count() {
    // Relative to the base, behind it, and names alone.
    let two = fields(&[(":authority", ""), ("ab", "c"), ("ab", "x"), ("ab", "y")]);
    let section = hex("0381 11 10 00 01 78 4f 00 01 79");
    assert!(decode(&mut behind(TWO), 0, &section).is_err(), "nothing is below a base of 0");
    let section = hex("0300 80 81 41 01 78 41 01 79");
    assert_eq!(decode(&mut behind(TWO), 0, &section), Ok(two.clone()));
    let section = hex("0381 11 10 00 01 78 00 01 79");
    assert_eq!(decode(&mut behind(TWO), 0, &section), Ok(two));
    for section in [
        "0200 82",
        "0000 80",
        "0000 10",
        "0000 00 00",
        "0000 40 00",
        "0300 10",
        "0201 80",
        "0300 82",
        "0300 42 00",
        "0381 12",
        "0381 02 00",
        "0300 bf ff01",
        "0300 1f ff01",
    ] {
        fails(&mut behind(TWO), section, "invalid index in field section");
    }
}

#[test]
fn required_counts_are_decoded() {
    // The prefix is relative to twice the entries of the largest table: 256.
    let fails = |section: &str| fails(&mut behind(TWO), section, "invalid required insert count");
    fails("ff02 00");
    fails("ff03 00");
    // 2 insertions, so at most 130 are expected; -1 and below are none.
    fails("84 00");
    let mut decoder = behind(TWO);
    let none = |_: &[u8], _: &[u8]| panic!("no field");
    assert_eq!(decoder.decode(0, &hex("83 00 80"), none), Ok(Decoded::Blocked), "130");
    let small = Limits { table_capacity: 0, ..LIMITS };
    let mut decoder = Decoder::new(small);
    let fault = decode(&mut decoder, 0, &hex("02 00")).unwrap_err();
    assert_eq!(fault.code, Code::QpackDecompressionFailed);
}

#[test]
fn required_counts_wrap() {
    let mut decoder = behind(TWO);
    for n in 2..1000u64 {
        // A table of 128 entries at most holds the last of them all.
        let encoded = n % 256 + 1;
        let mut section = Vec::new();
        crate::compression::integer::write_long(0, 8, encoded, &mut section);
        section.extend_from_slice(&[0, 0x80]);
        let decoded = decode(&mut decoder, 0, &section).unwrap();
        assert_eq!(decoded, fields(&[(":authority", "")]), "{n}");
        decoder.encoder_stream(&[0]).unwrap();
    }
}

#[test]
fn bases_are_not_negative() {
    fails(&mut behind(TWO), "0382", "invalid base of field section");
    fails(&mut behind(TWO), "0080", "invalid base of field section");
    assert_eq!(decode(&mut behind(TWO), 0, &hex("0005 c1")), Ok(fields(&[(":path", "/")])));
}

#[test]
fn instructions_that_may_not_come() {
    let refused = |instructions: &str, what: &str| {
        let wire = hex(instructions);
        let mut first = None;
        for step in (1..=wire.len()).rev() {
            let mut decoder = behind("3fe11f");
            let mut pieces = wire.chunks(step).map(|piece| decoder.encoder_stream(piece));
            let fault = pieces.find_map(Result::err).unwrap();
            assert_eq!(*first.get_or_insert(fault), fault, "{instructions}");
            let expected = (Ends::Connection, Code::QpackEncoderStreamError, what);
            assert_eq!((fault.ends, fault.code, fault.what), expected, "{instructions}");
        }
    };
    refused("3fe21f", "too large dynamic table capacity");
    refused("3fffffff ffffffff ff7f", "too large integer on encoder stream");
    refused("ff24 00", "an encoder instruction with an invalid index");
    refused("80 00", "an encoder instruction with an invalid index");
    refused("00", "an encoder instruction with an invalid index");
    refused("1fffff ffff ffff ffff 1f", "an encoder instruction with an invalid index");
    refused("61 00 00", "invalid Huffman code on encoder stream");
    refused("c0 8100", "invalid Huffman code on encoder stream");
    let large = "an insertion that is larger than the dynamic table";
    refused("c0 7fff7f", large);
    refused("20 c0 00", large);
    refused("5fffff7f", large);
}

#[test]
fn an_entry_may_evict_the_one_that_it_comes_from() {
    // A table for one entry, with a short and a long name.
    for len in [2usize, 64, 65, 100] {
        let name = "n".repeat(len);
        let mut decoder = Decoder::new(LIMITS);
        let mut wire = Vec::new();
        let write = crate::compression::integer::write;
        write(0x20, 5, len + 40, &mut wire);
        write(0x40, 5, len, &mut wire);
        wire.extend_from_slice(name.as_bytes());
        wire.extend_from_slice(b"\x01v\x80\x01w");
        decoder.encoder_stream(&wire).unwrap();
        let both = |decoder: &mut Decoder, section| decode(decoder, 0, &hex(section));
        assert_eq!(both(&mut decoder, "0300 80"), Ok(fields(&[(&name, "w")])));
        decoder.encoder_stream(&[0]).unwrap();
        assert_eq!(both(&mut decoder, "0400 80"), Ok(fields(&[(&name, "w")])));
        assert!(both(&mut decoder, "0400 81").is_err(), "there is one entry");
    }
}
