//! Bodies in chunked coding.

use http_wire::chunked::{ChunkedError, Decoder, Event, Trailers};

/// The end of a body, its data, the bytes it took, its trailers.
type Outcome = (Result<bool, ChunkedError>, Vec<u8>, usize, Vec<(Vec<u8>, Vec<u8>)>);

/// The first byte chooses the treatment of trailers and the size of the pieces: they give the same
/// result as the whole. The decoder never asks for more bytes than a body has.
pub fn run(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    let keep = if kind & 1 == 0 { Trailers::Discard } else { Trailers::Keep };
    let whole = decode(body, body.len().max(1), keep);
    for piece in [1, usize::from(kind / 2) + 1] {
        assert_eq!(decode(body, piece, keep), whole, "in pieces of {piece}");
    }
    if whole.0 == Ok(true) {
        let (data, taken) = (&whole.1, whole.2);
        assert!(body[..taken].ends_with(b"\r\n") && data.len() < taken);
        let again = encode(data);
        let decoded = decode(&again, again.len(), keep);
        assert_eq!((decoded.0, &decoded.1, decoded.2), (Ok(true), data, again.len()));
        let mut decoder = Decoder::new(keep, 256);
        for at in 0..taken {
            assert!(decoder.wanted() <= (taken - at) as u64);
            let mut pos = 0;
            while pos == 0 {
                decoder.next(&body[at..=at], &mut pos).expect("accepted before");
            }
        }
    }
}

fn decode(body: &[u8], piece: usize, keep: Trailers) -> Outcome {
    let mut decoder = Decoder::new(keep, 256);
    let (mut data, mut taken) = (Vec::new(), 0);
    let mut result = Ok(false);
    'body: for part in body.chunks(piece) {
        let mut pos = 0;
        loop {
            match decoder.next(part, &mut pos) {
                Ok(Event::Data(range)) => data.extend_from_slice(&part[range]),
                Ok(Event::More) => break,
                Ok(Event::Done) => {
                    result = Ok(true);
                    taken += pos;
                    break 'body;
                }
                Err(error) => {
                    result = Err(error);
                    break 'body;
                }
            }
        }
        assert_eq!(pos, part.len());
        taken += pos;
    }
    if result.is_err() {
        taken = 0;
    }
    let trailers = decoder.trailers().map(|(name, value)| (name.to_vec(), value.to_vec()));
    (result, data, taken, trailers.collect())
}

fn encode(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(7) {
        out.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
