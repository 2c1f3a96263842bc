//! Memory and work that a peer may ask for.

use super::*;

const NONE: fn(&[u8], &[u8]) = |_, _| {};

#[test]
fn sections_wait_in_a_number_and_with_bytes_that_are_limited() {
    let mut decoder = Decoder::new(LIMITS);
    for stream in 0..4 {
        assert_eq!(decoder.decode(4 * stream, &hex("0200 80"), NONE), Ok(Decoded::Blocked));
    }
    let fault = decoder.decode(16, &hex("0200 80"), NONE).unwrap_err();
    let expected = (Ends::Connection, Code::QpackDecompressionFailed);
    assert_eq!((fault.ends, fault.code), expected);
    decoder.cancel(8);
    assert_eq!(instructions(&mut decoder), [0x48]);
    let large = [hex("0200"), vec![0x80; 998]].concat();
    let fault = decoder.decode(16, &large, NONE).unwrap_err();
    assert_eq!((fault.ends, fault.code), (Ends::Stream, Code::RequestRejected));
    assert_eq!(decoder.decode(20, &hex("0300 80"), NONE), Ok(Decoded::Blocked));
    // They come in order as their entries do.
    decoder.encoder_stream(&hex("3fe11f c0 00")).unwrap();
    let mut streams = vec![];
    while let Some(held) = decoder.unblocked() {
        assert_eq!(decode_held(&mut decoder, &held), Ok(fields(&[(":authority", "")])));
        streams.push(held.stream);
    }
    assert_eq!((streams, decoder.blocked()), (vec![0, 4, 12], 1));
    assert_eq!(instructions(&mut decoder), [0x80, 0x84, 0x8c]);
}

#[test]
fn a_section_has_a_limit_and_leaves_the_decoder_as_it_was() {
    let mut decoder = behind("3fe11f 41 61 7f810e");
    decoder.encoder_stream(&[b'v'; 1920]).unwrap();
    let section = [hex("0200"), vec![0x80; 11]].concat();
    let fault = decode(&mut decoder, 0, &section).unwrap_err();
    let expected = (Ends::Connection, Code::QpackDecompressionFailed);
    assert_eq!((fault.ends, fault.code), expected);
    assert_eq!(decode(&mut decoder, 0, &section[..12]).unwrap().len(), 10);
}

#[test]
fn names_and_values_of_new_entries_have_a_limit() {
    let limits = Limits { text: 100, ..LIMITS };
    let insert = |name: usize, value: usize| {
        let mut wire = hex("3fe11f");
        crate::compression::integer::write(0x40, 5, name, &mut wire);
        wire.extend(std::iter::repeat_n(b'n', name));
        crate::compression::integer::write(0, 7, value, &mut wire);
        wire.extend(std::iter::repeat_n(b'v', value));
        wire
    };
    assert!(Decoder::new(limits).encoder_stream(&insert(100, 100)).is_ok());
    for (name, value) in [(101, 1), (1, 101)] {
        // It is refused by its length, before it has come.
        let wire = insert(name, value);
        for len in [wire.len() - 90, wire.len()] {
            let fault = Decoder::new(limits).encoder_stream(&wire[..len]).unwrap_err();
            assert_eq!((fault.ends, fault.code), (Ends::Connection, Code::ExcessiveLoad));
        }
    }
}

#[test]
fn memory_is_bounded_by_the_table() {
    let mut decoder = Decoder::new(Limits { text: 4096, ..LIMITS });
    let mut wire = hex("3fe11f");
    for n in 0..2000 {
        let len = n % 4000;
        crate::compression::integer::write(0xc0, 6, n % 99, &mut wire);
        crate::compression::integer::write(0, 7, len, &mut wire);
        wire.extend(std::iter::repeat_n(b'v', len));
        wire.push(0);
    }
    for piece in wire.chunks(1000) {
        decoder.encoder_stream(piece).unwrap();
        // Text and a quarter, 128 cells, an instruction and its strings.
        assert!(decoder.memory() < 4096 * 5 / 4 + 128 * 12 + 4096 * 2, "{}", decoder.memory());
    }
    // A string of the longest codes may just fit; what cannot is refused before it comes.
    for (len, fits) in [(15_200usize, true), (15_300, false)] {
        let mut wire = vec![0xc0];
        crate::compression::integer::write(0x80, 7, len, &mut wire);
        assert_eq!(behind("3fe11f").encoder_stream(&wire).is_ok(), fits, "{len}");
    }
}

#[test]
fn a_decoder_without_a_table_writes_nothing() {
    let mut decoder = Decoder::new(Limits { table_capacity: 0, ..LIMITS });
    decoder.cancel(4);
    assert!(!decoder.has_instructions());
    assert!(decoder.encoder_stream(&hex("20")).is_ok());
    assert!(decoder.encoder_stream(&hex("21")).is_err());
}
