//! Header blocks as they arrive.

use http_wire::h2::hpack::{Decoder, Encoder, HpackError};
use loona_hpack::decoder::DecoderError;
use loona_hpack::decoder::StringDecodingError::HuffmanDecoderError;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The size we announce: above the protocol's, so that updates can enlarge the table.
const TABLE_SIZE: usize = 6000;

/// Several blocks, each behind a byte with its length. Another decoder reads the same fields and
/// refuses what is refused here; what was read can be encoded; memory is bounded by the table.
pub fn run(data: &[u8]) {
    let mut ours = Decoder::new(TABLE_SIZE);
    let mut theirs = loona_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(TABLE_SIZE);
    let (mut encoder, mut second) = (Encoder::new(), Decoder::new(4096));
    let mut rest = data;
    while let Some((&len, behind)) = rest.split_first() {
        let len = if len < 0x80 { len.into() } else { usize::from(len & 0x7f) * 32 };
        let (block, behind) = behind.split_at(len.min(behind.len()));
        rest = behind;
        let fields = decode(&mut ours, block);
        let begun = Decoder::check_begun(block);
        assert!(begun.is_ok() || fields.is_err(), "{begun:?}: {block:x?}");
        let same = compare(&fields, &decode_theirs(&mut theirs, block), block);
        let (Ok(fields), true) = (fields, same) else { return };
        // Text and a quarter; 187 entries, in 256 cells of 12 bytes; strings of one field.
        let bound = TABLE_SIZE + TABLE_SIZE / 4 + 256 * 12 + 4096;
        assert!(ours.memory() <= bound, "{} bytes held", ours.memory());
        let mut again = Vec::new();
        encoder.begin(&mut again);
        for (name, value) in &fields {
            encoder.field(name, value, &mut again);
        }
        let lower = |(name, value): (Vec<u8>, _)| (name.to_ascii_lowercase(), value);
        let fields: Fields = fields.into_iter().map(lower).collect();
        assert_eq!(decode(&mut second, &again), Ok(fields));
    }
}

pub(crate) fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    // An entry of the table may be repeated for a byte.
    let mut room = 1 << 20;
    decoder.decode(block, |name, value| {
        if let Some(less) = usize::checked_sub(room, name.len() + value.len()) {
            room = less;
            fields.push((name.to_vec(), value.to_vec()));
        }
    })?;
    Ok(fields)
}

pub(crate) fn decode_theirs(
    decoder: &mut loona_hpack::Decoder,
    block: &[u8],
) -> Result<Fields, DecoderError> {
    let mut fields = Fields::new();
    let mut room = 1 << 20;
    decoder.decode_with_cb(block, |name, value| {
        if let Some(less) = usize::checked_sub(room, name.len() + value.len()) {
            room = less;
            fields.push((name.into_owned(), value.into_owned()));
        }
    })?;
    Ok(fields)
}

/// Whether both go on. They take updates of the table's size anywhere but at the end, longer
/// integers, and no padding of eight bits.
fn compare(
    ours: &Result<Fields, HpackError>,
    theirs: &Result<Fields, DecoderError>,
    block: &[u8],
) -> bool {
    use DecoderError::{SizeUpdateAtEnd, StringDecodingError};
    let padding = loona_hpack::huffman::HuffmanDecoderError::PaddingTooLarge;
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours, theirs, "{block:x?}");
            true
        }
        (Ok(_), Err(SizeUpdateAtEnd)) => true,
        (Err(HpackError::UpdateMisplaced | HpackError::Integer), _) | (Err(_), Err(_)) => false,
        (Ok(_), Err(StringDecodingError(HuffmanDecoderError(e)))) if *e == padding => false,
        (Ok(_), Err(error)) => panic!("{error}: {block:x?}"),
        (Err(error), Ok(_)) => panic!("{error:?}: {block:x?}"),
    }
}
