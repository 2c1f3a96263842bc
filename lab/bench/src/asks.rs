//! Requests of the mixed load over HTTP/2 and HTTP/3, the responses to them that are right, and
//! what follows from those.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::client::{PLACES, Site, Watch};

/// The longest message of a call, and of its answer.
const CALL_MAX: usize = 20_000;
const REPLY_MAX: usize = 1_000;

/// The answer to a call: the message's bytes, inverted and repeated as far as its number says.
pub fn reply(message: &[u8]) -> Vec<u8> {
    let Some((number, rest)) = message.get(5..).and_then(|m| m.split_at_checked(2)) else {
        return Vec::new();
    };
    let len = usize::from(u16::from_be_bytes([number[0], number[1]]));
    let mut out = vec![0];
    out.extend_from_slice(&(len as u32).to_be_bytes());
    out.extend(rest.iter().chain(number).cycle().take(len).map(|b| !b));
    out
}

/// A call's message, which no other one resembles.
pub fn message(seed: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&((len + 2) as u32).to_be_bytes());
    out.extend_from_slice(&((seed * 7919 % REPLY_MAX) as u16).to_be_bytes());
    out.extend((0..len).map(|i| (i / 3 * 31 + seed * 13 + (seed >> 7)) as u8));
    out
}

/// The body of an upload.
pub fn upload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 253) as u8).collect()
}

/// The body of an answer.
#[derive(Clone)]
pub enum Expected {
    /// Any.
    Any,
    Page,
    /// A part of a file.
    File(usize, Range<usize>),
    /// None, of a file of this length.
    Head(usize),
    Upload(usize),
    /// The reply to a call's message.
    Call(usize, usize),
}

/// A request, and the answers to it that are right.
#[derive(Clone)]
pub struct Ask {
    pub what: &'static str,
    pub method: &'static str,
    pub path: String,
    pub range: Option<String>,
    pub upload: Option<usize>,
    pub statuses: &'static [u16],
    pub expected: Expected,
    /// Bytes of the answer behind which it is given up.
    pub reset_after: Option<usize>,
    /// When it was sent.
    pub since: Instant,
}

impl Ask {
    /// Whether it is part of an upload.
    pub fn is_upload(&self) -> bool {
        self.path.starts_with("/put/")
    }
}

/// An answer that has ended.
pub struct Got<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// The fields that matter, where it has them.
    pub grpc_status: Option<&'a str>,
    pub content_length: Option<&'a str>,
}

/// Chooses a client's requests, and judges the answers.
pub struct Asker {
    /// The name of its uploads, one for each client.
    pub name: String,
    /// The longest of them.
    pub upload_max: usize,
    /// Calls of gRPC instead of the site's files.
    pub calls: bool,
    /// Some requests for files are made with HEAD.
    pub heads: bool,
    pub site: Arc<Site>,
    /// The observer, in place of a list of faults.
    pub watch: Option<Arc<dyn Watch>>,
    pub random: u64,
    /// Requests that come before others: the rest of an upload, and those to be repeated.
    pub next: Vec<Ask>,
    pub faults: Vec<String>,
}

impl Asker {
    /// A number below another one.
    pub fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as usize) % limit.max(1)
    }

    /// Counts a fault.
    pub fn fault(&mut self, since: Instant, what: &str) {
        match &self.watch {
            Some(watch) => watch.fault(since, what, ""),
            None => self.faults.push(what.to_string()),
        }
    }

    /// The next request; `uploads` says whether an upload is under way.
    pub fn next(&mut self, uploads: bool) -> Ask {
        let ask = self.next.pop().unwrap_or_else(|| self.choose(uploads));
        Ask { since: Instant::now(), ..ask }
    }

    /// A request that may be made beside those that are under way.
    fn choose(&mut self, uploads: bool) -> Ask {
        if self.calls {
            return self.call();
        }
        let place = PLACES[self.below(PLACES.len())];
        let site = Arc::clone(&self.site);
        let n = site.draw(&mut |limit| self.below(limit));
        let (name, len) = (self.site.files()[n].0, self.site.files()[n].1.len());
        let reset_after = (self.below(12) == 0).then(|| self.below(len + 1));
        let ask = |what, path: String, statuses, expected| Ask {
            what,
            method: "GET",
            path,
            range: None,
            upload: None,
            statuses,
            expected,
            reset_after: None,
            since: Instant::now(),
        };
        let file =
            |what, range| ask(what, format!("/{place}/{name}"), &[200], Expected::File(n, range));
        match self.below(100) {
            0..5 if self.heads => {
                let head = file("head", 0..len);
                Ask { method: "HEAD", expected: Expected::Head(len), ..head }
            }
            0..70 => Ask { reset_after, ..file(place, 0..len) },
            70..80 if len > 0 => {
                let from = self.below(len);
                let to = from + 1 + self.below(len - from);
                let range = Some(format!("bytes={from}-{}", to - 1));
                Ask { range, statuses: &[206], ..file("range", from..to) }
            }
            80..86 => ask("page", "/page/page.html".to_string(), &[200], Expected::Page),
            86..89 => ask("listed", "/listed/".to_string(), &[200], Expected::Any),
            89..92 => ask("none", "/auto/none.txt".to_string(), &[404], Expected::Any),
            _ if !uploads && !self.next.iter().any(Ask::is_upload) => {
                let len = [0, 10, 5_000, self.upload_max][self.below(4)];
                let put = ask("put", format!("/put/{}", self.name), &[201, 204], Expected::Any);
                Ask { method: "PUT", upload: Some(len), ..put }
            }
            _ => file("auto", 0..len),
        }
    }

    /// A unary call.
    fn call(&mut self) -> Ask {
        let (seed, short) = (self.below(1 << 30), self.below(10) > 0);
        let len = self.below(if short { 500 } else { CALL_MAX });
        let reset_after = (self.below(20) == 0).then_some(0);
        Ask {
            what: "call",
            method: "POST",
            path: "/soak.Echo/Call".to_string(),
            range: None,
            upload: None,
            statuses: &[200],
            expected: Expected::Call(seed, len),
            reset_after,
            since: Instant::now(),
        }
    }

    /// The fault of an answer.
    fn wrong(&self, ask: &Ask, got: &Got<'_>) -> Option<String> {
        if !ask.statuses.contains(&got.status) {
            return Some(format!("{}: status {}", ask.what, got.status));
        }
        let is_right = match &ask.expected {
            Expected::Any => true,
            Expected::Page if self.site.is_page_without_part(got.body) => {
                return Some("page: status 502 of a part".to_string());
            }
            Expected::Page => got.body == self.site.page(),
            Expected::File(n, range) => got.body == &self.site.files()[*n].1[range.clone()],
            Expected::Head(len) => {
                if got.content_length != Some(&len.to_string()[..]) {
                    let text = got.content_length.unwrap_or("none");
                    return Some(format!("{}: wrong content-length: {text}", ask.what));
                }
                got.body.is_empty()
            }
            Expected::Upload(len) => got.body == upload(*len),
            Expected::Call(seed, len) => {
                if got.grpc_status != Some("0") {
                    return Some(format!(
                        "call: grpc-status {}",
                        got.grpc_status.unwrap_or("none")
                    ));
                }
                got.body == reply(&message(*seed, *len))
            }
        };
        (!is_right).then(|| format!("{}: another body", ask.what))
    }

    /// Counts an answer as a right one of this kind, or its fault; whether it is right.
    pub fn check(&mut self, ask: &Ask, got: &Got<'_>, kind: &str) -> bool {
        if let Some(what) = self.wrong(ask, got) {
            self.fault(ask.since, &what);
            return false;
        }
        if let Some(watch) = &self.watch {
            watch.right(ask.since, kind);
        }
        true
    }

    /// The next step of an upload.
    pub fn goes_on(&mut self, ask: &Ask, right: bool) {
        match (ask.method, ask.upload) {
            ("PUT", Some(len)) if right => self.next.push(Ask {
                what: "got",
                method: "GET",
                statuses: &[200],
                expected: Expected::Upload(len),
                reset_after: None,
                ..ask.clone()
            }),
            ("PUT" | "GET", Some(_)) => self.given_up(ask),
            _ => {}
        }
    }

    /// The client goes away, or gives the request up.
    pub fn leaves(&mut self, ask: &Ask) {
        if let Some(watch) = &self.watch {
            watch.given_up(ask.since);
        }
        self.given_up(ask);
    }

    /// Nothing more comes of a request: a file that it may have left is deleted.
    pub fn given_up(&mut self, ask: &Ask) {
        if ask.is_upload() {
            self.next.push(Ask {
                what: "delete",
                method: "DELETE",
                upload: None,
                statuses: &[204, 404],
                expected: Expected::Any,
                reset_after: None,
                ..ask.clone()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker() -> Asker {
        let folder = std::env::temp_dir().join(format!("weir-bench-asks-{}", std::process::id()));
        let site = Arc::new(Site::new(folder.clone()).unwrap());
        let _ = std::fs::remove_dir_all(folder);
        Asker {
            name: "h2-1".to_string(),
            upload_max: 60_000,
            calls: false,
            heads: true,
            site,
            watch: None,
            random: 5,
            next: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn got(status: u16, body: &[u8]) -> Got<'_> {
        Got { status, body, grpc_status: None, content_length: None }
    }

    #[test]
    fn other_statuses_and_bodies_are_faults() {
        let mut asker = asker();
        let whole = asker.site.files()[1].1.clone();
        let ask = Ask {
            what: "range",
            method: "GET",
            path: "/auto/small.txt".to_string(),
            range: None,
            upload: None,
            statuses: &[206],
            expected: Expected::File(1, 3..9),
            reset_after: None,
            since: Instant::now(),
        };
        assert!(asker.check(&ask, &got(206, &whole[3..9]), "range"));
        assert!(!asker.check(&ask, &got(206, &whole[3..8]), "range"));
        assert!(!asker.check(&ask, &got(200, &whole[3..9]), "range"));
        assert_eq!(asker.faults, ["range: another body", "range: status 200"]);
        let head = Ask { what: "head", expected: Expected::Head(1024), statuses: &[200], ..ask };
        let right = Got { content_length: Some("1024"), ..got(200, b"") };
        assert!(asker.check(&head, &right, "head"));
        assert!(!asker.check(&head, &Got { body: b"a", ..right }, "head"));
        assert!(!asker.check(&head, &got(200, b""), "head"));
    }

    #[test]
    fn replies_belong_to_their_calls() {
        let one = message(5, 100);
        assert_eq!(one[1..5], (one.len() as u32 - 5).to_be_bytes());
        let answer = reply(&one);
        assert_eq!(answer.len(), 5 + 5 * 7919 % REPLY_MAX);
        assert_ne!(answer, reply(&message(5 + REPLY_MAX, 100)), "of the same length");
        assert!(reply(b"short").is_empty());
    }

    #[test]
    fn an_upload_ends_with_its_deletion() {
        let mut asker = asker();
        let chosen: Vec<Ask> = (0..1000).map(|_| asker.choose(false)).collect();
        assert!(chosen.iter().any(|ask| ask.method == "HEAD"));
        let put = chosen.iter().find(|ask| ask.method == "PUT").unwrap();
        assert!((0..1000).all(|_| asker.choose(true).method != "PUT"), "one name, one upload");
        asker.goes_on(put, true);
        assert!((0..1000).all(|_| asker.choose(false).method != "PUT"));
        let got = asker.next.pop().unwrap();
        assert_eq!((got.method, got.statuses), ("GET", &[200][..]));
        asker.goes_on(&got, true);
        let delete = asker.next.pop().unwrap();
        assert_eq!((delete.method, &delete.path), ("DELETE", &put.path));
        asker.goes_on(&delete, true);
        assert!(asker.next.is_empty());
        asker.given_up(put);
        assert_eq!(asker.next.pop().unwrap().method, "DELETE");
    }
}
