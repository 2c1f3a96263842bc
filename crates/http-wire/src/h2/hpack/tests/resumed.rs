//! Both ends of a connection that moves to another process.

use super::*;

const LISTS: [&[(&str, &str)]; 3] = [
    &[("x-a", "one"), ("x-b", "two"), ("a-name-that-is-rather-long-for-a-table", "v")],
    &[("x-b", "two"), ("x-c", "three"), ("a-name-that-is-rather-long-for-a-table", "w")],
    &[("x-a", "one"), ("x-c", "three"), ("x-a", "four")],
];

/// Fields that repeat are indexed with their second block.
fn warm(encoder: &mut Encoder, decoder: &mut Decoder) {
    for list in LISTS.iter().chain(&LISTS) {
        let block = encode(encoder, list);
        assert_eq!(decode(decoder, &block).unwrap(), fields(list));
    }
}

#[test]
fn a_decoder_knows_the_fields_of_the_one_before() {
    // Tables with room for all, for some, and for none.
    for size in [4096, 100, 0] {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        encoder.set_limit(size);
        warm(&mut encoder, &mut decoder);
        for list in LISTS {
            let (room, entries) = decoder.table();
            assert_eq!(room, size);
            match size {
                0 => assert!(entries.is_empty()),
                4096 => assert!(entries.len() > 3),
                _ => {}
            }
            decoder = Decoder::resumed(4096, room, entries);
            let block = encode(&mut encoder, list);
            assert_eq!(decode(&mut decoder, &block).unwrap(), fields(list), "{size}");
        }
    }
}

#[test]
fn an_encoder_begins_with_an_empty_table_and_the_peer_learns_it() {
    for limits in [[4096, 4096], [4096, 0], [0, 4096], [100, 60], [60, 100]] {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        encoder.set_limit(limits[0]);
        warm(&mut encoder, &mut decoder);
        // The client has changed its limit, and no block has told of that yet.
        encoder.set_limit(limits[1]);
        for list in LISTS {
            encoder = Encoder::resumed(encoder.sizes());
            let block = encode(&mut encoder, list);
            assert_eq!(decode(&mut decoder, &block).unwrap(), fields(list), "{limits:?}");
            assert_eq!(encoder.sizes(), (limits[1], limits[1]));
            assert_eq!(decoder.table().0, limits[1]);
        }
        warm(&mut encoder, &mut decoder);
    }
}
