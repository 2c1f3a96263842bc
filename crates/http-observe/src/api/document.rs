//! Answers that are made in pieces: as large ones as the loop may be held up for, and no more ahead
//! of the client than one.

use std::rc::Rc;
use std::time::{Duration, Instant};

use base::json::{Object, string};
use bytes::Bytes;
use http::module::Verdict;
use http::output::{Body, BodySource, NextPiece};
use http::request::Request;
use mem::Chain;

/// Appends to an answer. True: there is more, for the next call. Each call appends little.
pub(crate) type Writer = Box<dyn FnMut(&mut Vec<u8>) -> bool>;

/// The time for one piece.
const PIECE_TIME: Duration = Duration::from_micros(400);

/// The same of the first, for which the turn has gathered what is to be written.
const FIRST_TIME: Duration = Duration::from_micros(50);

/// The size of a piece, bytes.
const PIECE: usize = 64 << 10;

/// An answer in the making.
struct Document {
    write: Writer,
    is_over: bool,
}

impl Document {
    fn piece(&mut self, time: Duration) -> Vec<u8> {
        let began = Instant::now();
        let mut out = Vec::new();
        while !self.is_over && out.len() < PIECE && began.elapsed() < time {
            self.is_over = !(self.write)(&mut out);
        }
        out
    }
}

impl BodySource for Document {
    fn next<'a>(&'a mut self, _: &'a mut Request) -> NextPiece<'a> {
        Box::pin(async move {
            while !self.is_over {
                // Others come first: the piece before has had its time.
                event::task::next_turn().await;
                let piece = self.piece(PIECE_TIME);
                if !piece.is_empty() {
                    let mut chain = Chain::new();
                    chain.push_bytes(piece.into());
                    return Ok(Some(chain));
                }
            }
            Ok(None)
        })
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A source that has its first piece.
struct Begun(Option<Vec<u8>>, Document);

impl BodySource for Begun {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        match self.0.take() {
            Some(first) => Box::pin(async move {
                let mut chain = Chain::new();
                chain.push_bytes(first.into());
                Ok(Some(chain))
            }),
            None => self.1.next(r),
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_none() && self.1.is_over()
    }
}

/// Answers with what `write` writes.
pub(crate) fn answer(
    r: &mut Request,
    status: u16,
    content_type: &'static [u8],
    write: Writer,
) -> Verdict {
    let mut document = Document { write, is_over: false };
    let first = document.piece(FIRST_TIME);
    if document.is_over {
        r.respond(status, Bytes::from_static(content_type), first.into());
    } else {
        r.out.status = status;
        r.out.content_type = Some(Bytes::from_static(content_type));
        r.out.body =
            Body::Stream(Box::new(Begun(Some(first).filter(|first| !first.is_empty()), document)));
    }
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    Verdict::Done
}

/// Writes a text at once.
pub(crate) fn text(text: Vec<u8>) -> Writer {
    Box::new(move |out| {
        out.extend_from_slice(&text);
        false
    })
}

/// The members that an answer is to have: those that `?fields=` names, or all.
pub(crate) type Fields = Option<Rc<[Vec<u8>]>>;

/// Writes one object.
pub(crate) fn object(fields: Fields, fill: impl Fn(&mut Object<'_>) + 'static) -> Writer {
    // An object without members is of no use.
    let fields = fields.filter(|fields| !fields.is_empty());
    Box::new(move |out| {
        Object::write_only(out, fields.as_deref(), &fill);
        out.push(b'\n');
        false
    })
}

/// Writes an object with a member for each of `names`, which is an object that `fill` fills. With
/// no fields at all, a list of the names.
pub(crate) fn collection(
    fields: Fields,
    names: Vec<Vec<u8>>,
    fill: impl Fn(&mut Object<'_>, usize) + 'static,
) -> Writer {
    let only_names = fields.as_ref().is_some_and(|fields| fields.is_empty());
    let (open, close) = if only_names { (b'[', b"]\n") } else { (b'{', b"}\n") };
    let mut i = 0;
    Box::new(move |out| {
        out.push(if i == 0 { open } else { b',' });
        if let Some(name) = names.get(i) {
            string(out, name);
            if !only_names {
                out.push(b':');
                Object::write_only(out, fields.as_deref(), |o| fill(o, i));
            }
        }
        i += 1;
        if i >= names.len() {
            out.extend_from_slice(close);
        }
        i < names.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mut write: Writer) -> String {
        let mut out = Vec::new();
        while write(&mut out) {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn collections_and_their_fields() {
        let of = |n: usize, fields: Option<&[&[u8]]>| {
            let names = (0..n).map(|i| vec![b'a' + i as u8]).collect();
            let fields = fields.map(|f| f.iter().map(|f| f.to_vec()).collect());
            written(collection(fields, names, |o, i| {
                o.number("n", i as u64);
                o.number("m", 7);
            }))
        };
        assert_eq!(of(0, None), "{}\n");
        assert_eq!(of(0, Some(&[])), "[]\n");
        assert_eq!(of(2, None), "{\"a\":{\"n\":0,\"m\":7},\"b\":{\"n\":1,\"m\":7}}\n");
        assert_eq!(of(2, Some(&[b"m"])), "{\"a\":{\"m\":7},\"b\":{\"m\":7}}\n");
        assert_eq!(of(2, Some(&[])), "[\"a\",\"b\"]\n");
    }

    #[test]
    fn a_piece_is_small() {
        let mut document = Document {
            write: collection(None, vec![b"x".to_vec(); 100_000], |_, _| {}),
            is_over: false,
        };
        let mut pieces = 0;
        while !document.is_over {
            assert!(document.piece(PIECE_TIME).len() < PIECE + 100);
            pieces += 1;
        }
        assert!(pieces > 5);
    }
}
