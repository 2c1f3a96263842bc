//! The head of a connection's last response, for one that is the same: then its header block is,
//! too, as long as the table did not change. Clients that ask an API, or poll, get the same head
//! again and again; to make and to encode its fields costs more than anything else of such a
//! response.

use crate::core_conf::ServerTokens;
use crate::output::Response;
use crate::request::Request;

/// The longest block that is kept.
const BLOCK_MAX: usize = 256;

/// The longest texts that are kept.
const TEXTS_MAX: usize = 1 << 10;

/// A head and its block.
#[derive(Default)]
pub(super) struct LastHead {
    facts: Option<Facts>,
    texts: Vec<u8>,
    /// [`http_wire::h2::hpack::Encoder::changes`] of its block.
    changes: u64,
    /// Empty: it was not encoded twice.
    block: Vec<u8>,
}

/// The parts of a head, but for texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    status: u16,
    tokens: ServerTokens,
    /// The second of its date.
    second: u64,
    content_length: Option<u64>,
    last_modified: Option<i64>,
    last_modified_given: bool,
    vary_encoding: bool,
}

impl Facts {
    /// The parts of a head; none where it has others, too.
    #[inline]
    pub fn of(r: &Request, status: u16) -> Option<Facts> {
        let out = &r.out;
        let is_plain = out.server.is_none()
            && out.date.is_none()
            && out.content_type_written.is_none()
            && out.last_modified_written.is_none()
            && out.location.is_none();
        is_plain.then(|| Facts {
            status,
            tokens: r.loc.core.server_tokens,
            second: base::time::unix_secs(),
            content_length: out.content_length,
            last_modified: out.last_modified,
            last_modified_given: out.last_modified_given,
            vary_encoding: out.vary_encoding,
        })
    }
}

/// Hands over the texts that a head has, in order.
#[inline(always)]
fn texts(out: &Response, mut text: impl FnMut(Option<&[u8]>)) {
    text(out.content_type.as_deref());
    text(out.charset.as_deref());
    text(out.etag.as_deref());
    for (name, value) in &out.headers {
        text(Some(name));
        text(Some(value));
    }
}

/// The length of a text before it.
#[inline]
fn mark(text: Option<&[u8]>) -> [u8; 4] {
    text.map_or(u32::MAX, |text| text.len() as u32).to_le_bytes()
}

impl LastHead {
    /// The block of this head, if it is the last one's.
    #[inline]
    pub fn block(&self, facts: &Facts, out: &Response, changes: u64) -> Option<&[u8]> {
        if self.block.is_empty() || self.changes != changes || self.facts != Some(*facts) {
            return None;
        }
        let (mut left, mut same) = (&self.texts[..], true);
        texts(out, |text| {
            let (mark, text) = (mark(text), text.unwrap_or_default());
            let Some((own, rest)) = left.split_first_chunk() else { return same = false };
            let Some((own_text, rest)) = rest.split_at_checked(text.len()) else {
                return same = false;
            };
            same = same && *own == mark && own_text == text;
            left = rest;
        });
        (same && left.is_empty()).then_some(&self.block)
    }

    /// Takes note of a head that was encoded, and the changes of the table before and after it.
    pub fn note(&mut self, facts: Facts, out: &Response, changes: (u64, u64), block: &[u8]) {
        self.block.clear();
        // Most heads come once: nothing more is kept of them.
        if self.facts.replace(facts) != Some(facts) || changes.0 != changes.1 {
            return;
        }
        let mut len = 0;
        texts(out, |text| len += mark(text).len() + text.unwrap_or_default().len());
        if len > TEXTS_MAX || block.len() > BLOCK_MAX {
            return;
        }
        self.texts.clear();
        texts(out, |text| {
            self.texts.extend_from_slice(&mark(text));
            self.texts.extend_from_slice(text.unwrap_or_default());
        });
        self.block.extend_from_slice(block);
        self.changes = changes.1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn facts(status: u16) -> Facts {
        Facts {
            status,
            tokens: ServerTokens::On,
            second: 1,
            content_length: Some(10),
            last_modified: None,
            last_modified_given: false,
            vary_encoding: false,
        }
    }

    fn response(etag: Option<&'static str>, fields: &[(&'static str, &'static str)]) -> Response {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        Response {
            etag: etag.map(bytes),
            headers: fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            ..Response::default()
        }
    }

    #[test]
    fn a_head_that_came_twice_is_known() {
        let mut last = LastHead::default();
        let out = response(Some("\"a\""), &[("x-a", "b")]);
        for _ in 0..2 {
            assert_eq!(last.block(&facts(200), &out, 7), None);
            last.note(facts(200), &out, (7, 7), b"block");
        }
        assert_eq!(last.block(&facts(200), &out, 7), Some(&b"block"[..]));
        assert_eq!(last.block(&facts(200), &out, 8), None, "the table has changed");
        assert_eq!(last.block(&facts(404), &out, 7), None);
        let others = [
            response(None, &[("x-a", "b")]),
            response(Some("\"b\""), &[("x-a", "b")]),
            response(Some("\"a\""), &[("x-a", "c")]),
            response(Some("\"a\""), &[("x-ab", "")]),
            response(Some("\"a\""), &[]),
            response(Some("\"a\""), &[("x-a", "b"), ("x-a", "b")]),
        ];
        assert!(others.iter().all(|out| last.block(&facts(200), out, 7).is_none()));
    }

    #[test]
    fn a_block_that_changes_the_table_is_not_sent_again() {
        let mut last = LastHead::default();
        let out = response(None, &[]);
        last.note(facts(200), &out, (7, 8), b"block");
        last.note(facts(200), &out, (8, 9), b"block");
        assert_eq!(last.block(&facts(200), &out, 9), None);
        last.note(facts(200), &out, (9, 9), b"blk");
        assert_eq!(last.block(&facts(200), &out, 9), Some(&b"blk"[..]));
        last.note(facts(304), &out, (9, 9), b"other");
        assert_eq!(last.block(&facts(200), &out, 9), None);
    }
}
