//! The response: its status and fields while modules work on it, and its body as a chain of memory
//! and file ranges, or a source that is asked for more.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use bytes::Bytes;
use mem::Chain;
use proto::handover::{self, Refusal};

use crate::module::Verdict;
use crate::request::Request;
use crate::subrequest::Handle;
use crate::types::TypeList;

/// A response's body.
#[derive(Default)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// All of it is known: memory and ranges of files.
    Chain(Chain),
    /// It comes piece by piece.
    Stream(Box<dyn BodySource>),
    /// None: behind the head (of a 101) the connection becomes something else.
    Upgraded(Box<dyn Tunnel>),
}

impl Body {
    /// The length, where it is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty | Body::Upgraded(_) => Some(0),
            Body::Chain(c) => Some(c.len()),
            Body::Stream(_) => None,
        }
    }

    /// Whether there is certainly nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// A piece of a streamed body, in the future.
pub type NextPiece<'a> = Pin<Box<dyn Future<Output = Result<Option<Chain>, Broken>> + 'a>>;

/// The body cannot be finished: the response stays short, and the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A body that comes piece by piece.
pub trait BodySource {
    /// The next piece; `None` at the end. May wait.
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a>;

    /// Work that goes on while the client takes a piece (reading ahead); never ready.
    fn ahead(&mut self) -> Option<Ahead<'_>> {
        None
    }

    /// Whether the piece given last was the last one: then it goes together with the body's end.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether the next piece is there without waiting. Where it is not, and pieces are for the
    /// client as they come ([`Response::flush`]), the head goes out before.
    fn is_ready(&self) -> bool {
        true
    }

    /// The client did not take all of it.
    fn abandoned(&mut self, _: &mut Request) {}
}

/// See [`BodySource::ahead`].
pub type Ahead<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The life of a connection after its upgrade.
pub trait Tunnel {
    /// Carries bytes until either side ends it; the connection closes then.
    fn run<'a>(self: Box<Self>, r: &'a mut Request) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

/// Begins a tunnel, once the other process has given it up.
pub type Beginning = Box<dyn FnOnce() -> Box<dyn Tunnel>>;

/// Makes the tunnel of a request that another process has described, over the connection to its
/// server.
pub(crate) type Begin =
    fn(&mut Request, &handover::Tunnel<'_>, OwnedFd) -> Result<Beginning, Refusal>;

/// See [`FilterStep::Wait`].
pub type Until = Pin<Box<dyn Future<Output = Result<(), Broken>>>>;

/// A body filter's answer: done, or the thing it waits for.
pub enum FilterStep {
    /// Took all of the input; `out` has the output.
    Go,
    /// `out` has enough for now: call again with the rest of the input when it has gone down the
    /// row (a filter that makes much output of little input).
    More,
    /// This subrequest's body follows `out`; call again with the rest of the input, maybe at once.
    Include(Handle),
    /// Wait for this, then call again with the rest of the input (work in a thread pool, the end of
    /// a subrequest). Meanwhile `out` goes down the row.
    Wait(Until),
    /// The body cannot be finished.
    Fail,
}

/// A piece of the body on its way through a filter.
pub struct Piece<'a> {
    /// The input that the filter has not taken yet.
    pub input: &'a mut Chain,
    /// No more input will come behind this.
    pub last: bool,
    /// The output for the next filter.
    pub out: &'a mut Chain,
}

/// A filter over a response's body, by pieces. It never waits: it returns the future to await.
pub trait BodyFilter {
    /// Takes the input of `piece` and appends to its output.
    fn filter(&mut self, r: &mut Request, piece: Piece<'_>) -> FilterStep;

    /// Whether it takes ranges of files as they are. Others get them as memory, piece by piece.
    fn takes_files(&self) -> bool {
        false
    }

    /// Says whether it works on the whole body, with the bodies of subrequests in their places
    /// (`gzip`). Such filters stand behind all others.
    fn is_coding(&self) -> bool {
        false
    }
}

/// Work on a whole body before the response's head is written: a header filter puts it into
/// [`Response::whole`], the body filters that came before it run, and the other header filters
/// wait.
pub trait WholeBody {
    /// Longer bodies are not taken.
    fn bytes_max(&self) -> usize;

    /// Puts the result into `r.out`, or refuses it by a `Status`.
    fn run<'a>(self: Box<Self>, r: &'a mut Request, body: Result<Vec<u8>, NotWhole>) -> Work<'a>;
}

/// See [`WholeBody::run`].
pub type Work<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// The reason why there is no whole body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotWhole {
    /// It is longer than the limit.
    TooLong,
    /// It broke off, or cannot be had as a whole.
    Broken,
}

/// A response in the making.
#[derive(Default)]
pub struct Response {
    /// The status; 0 before there is one.
    pub status: u16,
    /// The text of the status line behind the version, where it is not the usual one.
    pub status_text: Option<Bytes>,
    /// `Content-Type` without the charset.
    pub content_type: Option<Bytes>,
    /// `; charset=` of the content type.
    pub charset: Option<Bytes>,
    /// `Content-Type` as an upstream wrote it, where it has a charset. It is sent if it begins with
    /// [`Response::content_type`]: a filter that changes the charset takes it away.
    pub content_type_written: Option<Bytes>,
    /// The charset that an upstream says the body has (`X-Accel-Charset`).
    pub override_charset: Option<Bytes>,
    /// `Content-Length`; unknown lengths are chunked or end with the connection.
    pub content_length: Option<u64>,
    /// `Last-Modified`, seconds since 1970.
    pub last_modified: Option<i64>,
    /// An upstream or `add_header` says it, and not a file: it is sent whatever the status.
    pub last_modified_given: bool,
    /// `Last-Modified` as it was written, where the date has another form than ours.
    pub last_modified_written: Option<Bytes>,
    /// `ETag` with its quotes.
    pub etag: Option<Bytes>,
    /// `Location`; made absolute by the writer where it starts with a slash.
    pub location: Option<Bytes>,
    /// `Server` instead of our own; empty: none at all.
    pub server: Option<Bytes>,
    /// `Date` instead of our own; empty: none at all.
    pub date: Option<Bytes>,
    /// Other fields, in order.
    pub headers: Vec<(Bytes, Bytes)>,
    /// Fields behind a chunked body.
    pub trailers: Vec<(Bytes, Bytes)>,
    /// Fields are to come behind the body: it is chunked where that can be.
    pub expect_trailers: bool,
    /// `Vary: Accept-Encoding` is due.
    pub vary_encoding: bool,
    /// Pieces of the body are for the client as soon as they come: filters hold nothing back.
    pub flush: bool,
    /// Ranges may be taken from the body.
    pub allow_ranges: bool,
    /// Body filters that header filters inserted.
    pub filters: Vec<Box<dyn BodyFilter>>,
    /// The body is only a part of the [`Response::content_length`] bytes: it begins here, and a
    /// filter will add the rest. One range at most may be taken.
    pub part_from: Option<u64>,
    /// The range that was taken.
    pub part: Option<std::ops::Range<u64>>,
    /// The range filter did its work already.
    pub ranged: bool,
    /// Error pages and the like: conditional requests do not apply.
    pub unconditional: bool,
    /// A condition on tags goes before one on dates, which does not count then (RFC 9110 section
    /// 13.2.2); nginx asks for both.
    pub tags_first: bool,
    /// The body that goes to the filters.
    pub body: Body,
    /// Work on the whole of it before the head is written.
    pub whole: Option<Box<dyn WholeBody>>,
    /// The number of fields, in front, that were there before the header filters.
    pub(crate) prepared: usize,
    /// The number of fields that were there before the current header filter.
    pub(crate) filtered: usize,
}

impl Response {
    /// Clears everything, keeping memory. Each field by itself: to build a new response, move it
    /// here and drop the old one takes a hundred instructions more.
    pub fn reset(&mut self) {
        let Response {
            status,
            status_text,
            content_type,
            charset,
            content_type_written,
            override_charset,
            content_length,
            last_modified,
            last_modified_given,
            last_modified_written,
            etag,
            location,
            server,
            date,
            headers,
            trailers,
            expect_trailers,
            vary_encoding,
            flush,
            allow_ranges,
            filters,
            part_from,
            part,
            ranged,
            unconditional,
            tags_first,
            body,
            whole,
            prepared,
            filtered,
        } = self;
        *status = 0;
        *status_text = None;
        *content_type = None;
        *charset = None;
        *content_type_written = None;
        *override_charset = None;
        *content_length = None;
        *last_modified = None;
        *last_modified_given = false;
        *last_modified_written = None;
        *etag = None;
        *location = None;
        *server = None;
        *date = None;
        headers.clear();
        trailers.clear();
        *expect_trailers = false;
        *vary_encoding = false;
        *flush = false;
        *allow_ranges = false;
        filters.clear();
        *part_from = None;
        *part = None;
        *ranged = false;
        *unconditional = false;
        *tags_first = false;
        *body = Body::Empty;
        *whole = None;
        *prepared = 0;
        *filtered = 0;
    }

    /// Forgets the entity prepared so far (type, length, body, validators); other fields stay.
    pub fn clear_entity(&mut self) {
        self.status_text = None;
        self.content_type = None;
        self.charset = None;
        self.content_type_written = None;
        self.override_charset = None;
        self.content_length = None;
        self.last_modified = None;
        self.last_modified_given = false;
        self.last_modified_written = None;
        self.etag = None;
        self.allow_ranges = false;
        self.body = Body::Empty;
        self.whole = None;
        self.remove(b"Content-Encoding");
        self.remove(b"Accept-Ranges");
    }

    /// Appends the value of `Content-Type`, as the upstream wrote it unless a filter changed it.
    pub fn write_content_type(&self, media: &[u8], out: &mut Vec<u8>) {
        if let Some(written) = &self.content_type_written
            && written
                .strip_prefix(media)
                .is_some_and(|rest| rest.trim_ascii_start().starts_with(b";"))
        {
            return http_wire::h1::write_value(out, written);
        }
        http_wire::h1::write_value(out, media);
        if let Some(charset) = &self.charset {
            out.extend_from_slice(b"; charset=");
            http_wire::h1::write_value(out, charset);
        }
    }

    /// The first field of a name in [`Response::headers`], in any case.
    pub fn header(&self, name: &[u8]) -> Option<&Bytes> {
        let mut named = self.headers.iter();
        named.find(|(n, _)| base::ascii::eq_ignore_case(n, name)).map(|(_, v)| v)
    }

    /// Adds a field.
    pub fn add(&mut self, name: &'static str, value: Bytes) {
        self.headers.push((Bytes::from_static(name.as_bytes()), value));
    }

    /// Removes all fields of a name.
    pub fn remove(&mut self, name: &[u8]) {
        self.remove_if(|_, n| base::ascii::eq_ignore_case(n, name));
    }

    /// Removes the fields of which it is true, by their places and names.
    pub fn remove_if(&mut self, gone: impl Fn(usize, &[u8]) -> bool) {
        let (prepared, filtered) = (self.prepared, self.filtered);
        let mut at = 0;
        self.headers.retain(|(name, _)| {
            let gone = gone(at, name);
            if gone {
                self.prepared -= usize::from(at < prepared);
                self.filtered -= usize::from(at < filtered);
            }
            at += 1;
            !gone
        });
    }

    /// Forgets the fields that header filters added before the one that runs.
    pub(crate) fn drop_filtered(&mut self) {
        let end = self.filtered.min(self.headers.len());
        self.headers.drain(self.prepared.min(end)..end);
    }

    /// Drops the fields that are wrong if the body's length or bytes change on its way.
    pub fn body_changes(&mut self) {
        self.content_length = None;
        self.allow_ranges = false;
        self.remove(b"Accept-Ranges");
    }

    /// Drops the fields that are wrong if a filter writes another text: the tag is weak where the
    /// date of the text is kept, and both go otherwise.
    pub fn text_changes(&mut self, keeps_last_modified: bool) {
        self.body_changes();
        if keeps_last_modified {
            self.weaken_etag();
        } else {
            self.last_modified = None;
            self.etag = None;
            self.remove(b"Last-Modified");
            self.remove(b"ETag");
        }
    }

    /// A body that changes bytes is no longer the entity that a strong tag names (RFC 9110 8.8.3).
    pub fn weaken_etag(&mut self) {
        if let Some(tag) = &self.etag
            && !tag.starts_with(b"W/")
        {
            let mut weak = b"W/".to_vec();
            weak.extend_from_slice(tag);
            // Without quotes it is no tag, which has no weak form.
            self.etag = tag.starts_with(b"\"").then(|| Bytes::from(weak));
        }
    }
}

impl TypeList {
    /// Whether the list has the type of a response. A response without one is on no list but `*`.
    pub fn has(&self, response: &Response) -> bool {
        match (self, &response.content_type) {
            (TypeList::Any, _) => true,
            (TypeList::These(_), None) => false,
            (TypeList::These(list), Some(of)) => {
                list.iter().any(|t| base::ascii::eq_ignore_case(t, of))
            }
        }
    }
}

impl Request {
    /// Gives the prepared response another status, whatever it was made for.
    pub fn set_status(&mut self, status: u16) {
        self.out.status = status;
        self.out.status_text = None;
        self.flags.err_status = 0;
    }

    /// Prepares a response of known bytes; the content handler then answers [`Done`].
    ///
    /// [`Done`]: crate::module::Verdict::Done
    pub fn respond(&mut self, status: u16, content_type: Bytes, body: Bytes) {
        self.out.status = status;
        self.out.content_type = Some(content_type);
        self.out.content_length = Some(body.len() as u64);
        let mut chain = Chain::new();
        if !body.is_empty() {
            chain.push_bytes(body);
        }
        self.out.body = Body::Chain(chain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_filters_added_is_told_from_what_was_there_whatever_they_remove() {
        let mut out = Response::default();
        let names = |out: &Response| out.headers.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
        for name in ["A", "B", "C"] {
            out.add(name, Bytes::new());
        }
        out.prepared = 3;
        // One filter takes two of three fields away, and adds two, of which another takes one.
        out.filtered = 3;
        out.remove(b"a");
        out.remove(b"C");
        out.add("D", Bytes::new());
        out.add("E", Bytes::new());
        out.filtered = out.headers.len();
        out.remove_if(|at, name| at == 1 && name == b"D");
        out.add("F", Bytes::new());
        assert_eq!(names(&out), ["B", "E", "F"]);
        out.drop_filtered();
        assert_eq!(names(&out), ["B", "F"]);
        // All of them may go.
        out.headers.clear();
        out.drop_filtered();
        assert!(out.headers.is_empty());
    }
}
