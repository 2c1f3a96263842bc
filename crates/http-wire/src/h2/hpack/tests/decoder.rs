//! What a decoder refuses, and what its table holds.

use super::*;

fn fails(block: &str, error: HpackError) {
    assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Err(error), "{block}");
}

#[test]
fn indices_are_in_a_table() {
    fails("80", HpackError::Index);
    fails("be", HpackError::Index);
    fails("7f00 00", HpackError::Index);
    fails("ff80 ff7f", HpackError::Index);
    fails("ff80 8080 00", HpackError::Integer);
    fails("ffff ffff ff0f", HpackError::Integer);
}

#[test]
fn fields_are_complete() {
    for block in ["41", "4101", "4181", "0001 61", "0001 6102 61", "00", "41 7fff ff7f"] {
        fails(block, HpackError::Truncated);
    }
    for block in ["ff", "ff80", "ff80 80", "40 7f", "4101 61ff"] {
        fails(block, HpackError::CutInteger);
    }
}

#[test]
fn the_beginning_of_a_block_is_whole_or_cut() {
    let block = hex("3fe1 1f 82 0401 61 1002 6162 817f 4002 6162 7f01 ff ff7f");
    for len in 0..=block.len() {
        assert_eq!(Decoder::check_begun(&block[..len]), Ok(()), "{len}");
    }
    for block in ["ff80 8080", "82 7fff ffff", "82 0401 61 00 ffff ffff", "3f80 8080 00"] {
        assert_eq!(Decoder::check_begun(&hex(block)), Err(HpackError::Integer), "{block}");
    }
}

#[test]
fn updates_stand_at_the_start() {
    let mut decoder = Decoder::new(4096);
    for block in ["20", "3fe1 1f", "20 3fe1 1f", "3fe1 1f 20 82", ""] {
        assert!(decode(&mut decoder, &hex(block)).is_ok(), "{block}");
    }
    fails("3fe2 1f", HpackError::UpdateTooLarge);
    fails("20 20 20", HpackError::UpdateMisplaced);
    fails("82 20", HpackError::UpdateMisplaced);
    fails("4101 61 3e", HpackError::UpdateMisplaced);
    assert_eq!(decode(&mut Decoder::new(100), &hex("3f46")), Err(HpackError::UpdateTooLarge));
    assert_eq!(decode(&mut Decoder::new(100), &hex("3f45")), Ok(vec![]));
}

#[test]
fn huffman_padding_is_of_few_ones() {
    let fails = |text: &str| {
        let text = hex(text);
        let block = [&[0x44, 0x80 | text.len() as u8], &text[..]].concat();
        let result = decode(&mut Decoder::new(4096), &block);
        assert_eq!(result, Err(HpackError::Huffman), "{text:x?}");
    };
    let passes = |text: &str, value: &str| {
        let text = hex(text);
        let block = [&[0x44, 0x80 | text.len() as u8], &text[..]].concat();
        let result = decode(&mut Decoder::new(4096), &block);
        assert_eq!(result, Ok(fields(&[(":path", value)])), "{text:x?}");
    };
    // "a" is 00011, "X" 11111100, "b" 100011.
    passes("1f", "a");
    passes("8f", "b");
    // One bit too many, as nginx takes it.
    passes("ff", "");
    passes("fcff", "X");
    passes("18c6 318c 63 ff", "aaaaaaaa");
    fails("1e");
    fails("18");
    fails("ff ff");
    fails("2f ff");
    // EOS, also in the middle and behind what the quick loop takes.
    fails("ff ff ff fc");
    fails("ff ff ff ff");
    fails("ff ff ff ff 1f");
    fails("18c6 318c 63 18c6 318c 63 ffff ffff 18c6 318c 63 18c6 318c 63");
    fails("18c6 318c 63 18c6 318c 63 18c6 318c 63 ff ff");
    fails("1f ff");
    fails("18c6 318c 63 18c6 318c 63 18c6 318c 63 1e");
}

#[test]
fn huffman_codes_of_all_bytes() {
    for byte in 0..=255u8 {
        for before in [0, 1, 9, 30] {
            for behind in [0, 1, 2, 7, 20] {
                let text = [&vec![b'a'; before][..], &[byte], &vec![byte; behind]].concat();
                let mut encoded = Vec::new();
                huffman::encode(&text, |b| b, &mut encoded);
                assert_eq!(huffman::encoded_len(&text, |b| b), encoded.len());
                let mut decoded = vec![0; huffman::room(encoded.len())];
                assert_eq!(huffman::decode(&encoded, &mut decoded), Ok(text.len()));
                assert!(decoded.starts_with(&text));
                for len in 0..encoded.len() {
                    // A beginning is a shorter text or broken off inside a code.
                    let mut decoded = vec![0; huffman::room(len)];
                    if let Ok(len) = huffman::decode(&encoded[..len], &mut decoded) {
                        assert!(text.starts_with(&decoded[..len]));
                    }
                }
            }
        }
    }
}

/// A literal that is indexed, its strings as they are.
fn indexed(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = vec![0x40];
    for text in [name, value] {
        integer::write(0, 7, text.len(), &mut block);
        block.extend_from_slice(text);
    }
    block
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &indexed(b"a", b"b")).unwrap();
    assert!(decode(&mut decoder, &hex("be")).is_ok());
    assert!(decode(&mut decoder, &indexed(b"a", &[b'x'; 4096 - 33])).is_ok());
    assert!(decode(&mut decoder, &hex("be")).is_ok());
    assert_eq!(decode(&mut decoder, &hex("bf")), Err(HpackError::Index), "evicted");
    assert!(decode(&mut decoder, &indexed(b"a", &[b'x'; 4096 - 32])).is_ok());
    assert_eq!(decode(&mut decoder, &hex("be")), Err(HpackError::Index));
}

#[test]
fn a_new_entry_may_take_its_name_from_the_one_it_evicts() {
    for len in [1, 60, 64, 65, 2000] {
        let name = vec![b'n'; len];
        let mut decoder = Decoder::new(4096);
        decode(&mut decoder, &indexed(&name, b"")).unwrap();
        let value = vec![b'v'; 4096 - 32 - len];
        let mut block = hex("7e");
        integer::write(0, 7, value.len(), &mut block);
        block.extend_from_slice(&value);
        for _ in 0..3 {
            let expected = Ok(vec![(name.clone(), value.clone())]);
            assert_eq!(decode(&mut decoder, &block), expected);
            assert_eq!(decode(&mut decoder, &hex("be")), expected);
            assert_eq!(decode(&mut decoder, &hex("bf")), Err(HpackError::Index));
        }
    }
}

#[test]
fn updates_evict_the_oldest() {
    let mut decoder = Decoder::new(4096);
    let block = [indexed(b"a", b"1"), indexed(b"b", b"2"), indexed(b"c", b"3")].concat();
    decode(&mut decoder, &block).unwrap();
    // Two entries of 34 bytes.
    assert_eq!(decode(&mut decoder, &hex("3f25 be bf")), Ok(fields(&[("c", "3"), ("b", "2")])));
    assert_eq!(decode(&mut decoder, &hex("c0")), Err(HpackError::Index));
    assert_eq!(decode(&mut decoder, &hex("3f24 be")), Ok(fields(&[("c", "3")])));
    assert_eq!(decode(&mut decoder, &hex("bf")), Err(HpackError::Index));
    assert_eq!(decode(&mut decoder, &hex("20 3fe1 1f")), Ok(vec![]));
    assert_eq!(decode(&mut decoder, &hex("be")), Err(HpackError::Index));
    assert_eq!(decoder.memory(), 0);
}

#[test]
fn memory_is_bounded_by_the_table() {
    let mut decoder = Decoder::new(4096);
    assert_eq!(decoder.memory(), 0);
    for round in 0..2000u32 {
        let len = (round * 37 % 700) as usize;
        let name = vec![b'a' + (round % 26) as u8; len % 90 + 1];
        decode(&mut decoder, &indexed(&name, &vec![b'v'; len])).unwrap();
        assert!(decoder.memory() <= 4096 * 2, "{}", decoder.memory());
    }
    let text = vec![0x63; 10_000];
    let mut block = hex("04");
    integer::write(0x80, 7, text.len(), &mut block);
    block.extend_from_slice(&text);
    let list = decode(&mut decoder, &block).unwrap();
    assert!(list[0].1.len() > text.len());
    assert!(decoder.memory() <= 4096 * 2, "{}", decoder.memory());
}
