//! The response to a request: a playlist at once, a fragment buffer by buffer. Threads read the
//! file and make both; between buffers, other requests get their turn there.

use ::mp4::Fault;
use ::mp4::hls::{self, Film, Limits, Muxer, Playlist, Refused, Span};
use base::log::Level;
use bytes::Bytes;
use http::files::{self, OpenFile};
use http::module::Verdict;
use http::output::Body;
use http::request::Request;
use http_wire::uri::{Escape, escape};
use mem::Chain;

use super::{Hls, Kind};
use crate::mp4::walk::{self, ReadAhead, Trouble};
use crate::mp4::{log, milliseconds, reader};
use crate::static_file::not_opened;

/// Arguments of a playlist that are not forwarded, because fragments have their own.
const OWN_ARGS: [&[u8]; 4] = [b"start", b"end", b"len", b"offset"];

/// What a request asks for, with everything that a thread needs to know.
struct Wanted {
    kind: Kind,
    span: Span,
    fragment_ms: u64,
    offset_ms: Option<i64>,
    /// The fragments' URI, and arguments to add.
    uri: Vec<u8>,
    args: Vec<u8>,
    limits: Limits,
}

/// What was built from the index.
enum Made {
    Playlist(Vec<u8>),
    Fragment(Box<Muxer>),
    /// There is nothing between the two times.
    Empty,
}

impl Hls {
    pub(super) async fn answer(&self, r: &mut Request, kind: Kind, suffix: &[u8]) -> Verdict {
        let path = r.map_path();
        // An alias may have replaced the end of the URI, too.
        let Some(path) = path.strip_suffix(suffix) else { return Verdict::Next };
        let path = path.to_vec();
        let file = match files::open(r, &path).await {
            Ok(file) if file.meta().is_file() => file,
            Ok(_) => return Verdict::Status(404),
            Err(e) => return not_opened(r, &path, &e),
        };
        r.flags.root_tested = !r.flags.error_page;
        let body = match self.body(r, &file, self.wanted(r, kind, file.meta().size)).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                let path = base::log::lossy(&path);
                let what = "has nothing between the arguments start and end";
                r.log(Level::Error, format_args!("\"{path}\" {what}"));
                return Verdict::Status(404);
            }
            Err(trouble) => {
                log(r, &path, trouble);
                return Verdict::Status(500);
            }
        };
        send(r, kind, &file, body)
    }

    fn wanted(&self, r: &Request, kind: Kind, file_len: u64) -> Wanted {
        let time = |name: &[u8]| r.arg(name).and_then(milliseconds);
        let span = Span { start_ms: time(b"start").unwrap_or(0), end_ms: time(b"end") };
        let is_playlist = kind == Kind::Playlist;
        let mut args = Vec::new();
        if is_playlist && self.forward_args {
            forwarded(&r.target.args, &mut args);
        }
        Wanted {
            kind,
            span,
            fragment_ms: time(b"len").filter(|len| *len > 0).unwrap_or(self.fragment_ms),
            offset_ms: r.arg(b"offset").and_then(offset),
            uri: if is_playlist { fragment_uri(&r.target.uri) } else { Vec::new() },
            args,
            limits: Limits { file_len, bytes_max: self.bytes_max() },
        }
    }

    /// The body; `None` if the film has nothing between the two times.
    async fn body(
        &self,
        r: &mut Request,
        file: &OpenFile,
        wanted: Wanted,
    ) -> Result<Option<Chain>, Trouble> {
        let align = r.loc.core.directio_alignment as usize;
        let (index, mut read) = (self.index, reader(file, align));
        let made = r.on_disk(move || make(&mut read, index, &wanted)).await;
        let muxer = match made.map_err(Trouble::Io)?? {
            Made::Empty => return Ok(None),
            Made::Playlist(text) => {
                let mut body = Chain::new();
                body.push_bytes(text.into());
                return Ok(Some(body));
            }
            Made::Fragment(muxer) => muxer,
        };
        let (mut body, max) = (Chain::new(), self.bytes_max());
        let size = self.buffers.size;
        let mut work = Work { muxer, ahead: Default::default() };
        loop {
            let mut read = reader(file, align);
            let step = move || work.fill(&mut read, size).map(|piece| (work, piece));
            let (next, piece) = r.on_disk(step).await.map_err(Trouble::Io)??;
            work = next;
            if body.len() + piece.len() as u64 > max {
                return Err(hls::too_large("fragment", max).into());
            }
            if piece.is_empty() {
                return Ok(Some(body));
            }
            body.push_bytes(piece.into());
        }
    }
}

fn make(read: walk::Read<'_>, limits: walk::Limits, wanted: &Wanted) -> Result<Made, Trouble> {
    let Some(moov) = walk::index(read, wanted.limits.file_len, limits)? else {
        return Err(Fault::in_file("no mp4 moov atom was found").into());
    };
    let film = Film::read(&moov)?;
    let made = match wanted.kind {
        Kind::Fragment => {
            film.fragment(wanted.span, &wanted.limits).map(|muxer| Made::Fragment(Box::new(muxer)))
        }
        Kind::Playlist => {
            let playlist = Playlist {
                span: wanted.span,
                fragment_ms: wanted.fragment_ms,
                offset_ms: wanted.offset_ms,
                uri: &wanted.uri,
                args: &wanted.args,
            };
            film.playlist(&playlist, &wanted.limits).map(Made::Playlist)
        }
    };
    match made {
        Ok(made) => Ok(made),
        Err(Refused::Empty) => Ok(Made::Empty),
        Err(Refused::Fault(fault)) => Err(fault.into()),
    }
}

/// A fragment in the making.
struct Work {
    muxer: Box<Muxer>,
    /// What was read ahead, of video and of audio: they may be far from each other in the file.
    ahead: [ReadAhead; 2],
}

impl Work {
    /// Makes packets until a buffer is full; nothing if there are no more samples.
    fn fill(&mut self, read: walk::Read<'_>, size: usize) -> Result<Vec<u8>, Trouble> {
        let mut out = Vec::new();
        let ends = [hls::Kind::Video, hls::Kind::Audio].map(|kind| self.muxer.end_of(kind));
        while out.len() < size {
            let Some((kind, range)) = self.muxer.wanted() else { break };
            let (ahead, end) = (&mut self.ahead[kind as usize], ends[kind as usize]);
            let len = (range.end - range.start) as usize;
            let sample = ahead.bytes(&mut *read, range.start, len, (size, end))?;
            self.muxer.feed(&sample, &mut out)?;
        }
        Ok(out)
    }
}

fn send(r: &mut Request, kind: Kind, file: &OpenFile, body: Chain) -> Verdict {
    r.out.status = 200;
    r.out.content_length = Some(body.len());
    r.out.content_type = Some(Bytes::from_static(match kind {
        Kind::Playlist => b"application/vnd.apple.mpegurl",
        Kind::Fragment => b"video/mp2t",
    }));
    // A playlist depends on the configuration, too, so it has no validators.
    if kind == Kind::Fragment {
        r.out.last_modified = Some(file.meta().mtime_sec);
        if r.loc.core.etag {
            r.out.etag = Some(file.facts.etag.clone());
        }
        r.out.allow_ranges = true;
    }
    r.out.body = Body::Chain(body);
    Verdict::Done
}

/// The URI of fragments relative to that of their playlist: `film.mp4.ts`.
fn fragment_uri(uri: &[u8]) -> Vec<u8> {
    let name = uri.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut out = Vec::with_capacity(name.len() + 8);
    escape(name.strip_suffix(b".m3u8").unwrap_or(name), Escape::UriComponent, &mut out);
    out.extend_from_slice(b".ts");
    out
}

/// Appends all arguments that fragments do not have themselves.
fn forwarded(args: &[u8], out: &mut Vec<u8>) {
    for arg in args.split(|byte| *byte == b'&').filter(|arg| !arg.is_empty()) {
        let name = arg.split(|byte| *byte == b'=').next().unwrap_or_default();
        if OWN_ARGS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            continue;
        }
        if !out.is_empty() {
            out.push(b'&');
        }
        out.extend_from_slice(arg);
    }
}

/// Seconds with a sign, in milliseconds.
fn offset(text: &[u8]) -> Option<i64> {
    let (is_negative, number) = match text.strip_prefix(b"-") {
        Some(number) => (true, number),
        None => (false, text),
    };
    let ms = i64::try_from(milliseconds(number)?).ok()?;
    Some(if is_negative { -ms } else { ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_arguments_that_fragments_lack() {
        for (args, want) in [
            ("a=1&b=2", "a=1&b=2"),
            ("start=1&a=1&END=2&&len=4&offset=1&b", "a=1&b"),
            ("started=1", "started=1"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            forwarded(args.as_bytes(), &mut out);
            assert_eq!(out, want.as_bytes());
        }
    }

    #[test]
    fn names_fragments_relative_to_the_playlist() {
        assert_eq!(fragment_uri(b"/a/film.mp4.m3u8"), b"film.mp4.ts");
        assert_eq!(fragment_uri(b"/a/b:c d?.mp4.m3u8"), b"b%3Ac%20d%3F.mp4.ts");
    }

    #[test]
    fn offsets_may_be_negative() {
        for (text, want) in
            [("1.5", Some(1500)), ("-2", Some(-2000)), ("--2", None), ("-", None), ("+1", None)]
        {
            assert_eq!(offset(text.as_bytes()), want, "{text}");
        }
    }
}
