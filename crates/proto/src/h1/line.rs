//! The request line.
//!
//! ```text
//! Start ─► Method ─► BeforeTarget ──/──► Target ─► AfterTarget ─► Protocol ─► Major… ─► Minor…
//!                        │ letter           ▲         ▲   └── line end: HTTP/0.9          │
//!                        ├──► Scheme :// HostStart ─► Host | Literal ─► HostEnd ─► Port   │
//!                        │                  ▲                                             ▼
//!                        └─── CONNECT ──────┘                      (done) ◄── Cr ◄── AfterVersion
//! ```

use super::error::H1ErrorKind;
use super::head::{Head, Span, TargetForm, Version};
use super::method::Method;
use crate::uri::target::Scan;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Start,
    Method,
    BeforeTarget,
    BeforeAuthority,
    Scheme,
    Colon,
    Slash,
    HostStart,
    Host,
    Literal,
    HostEnd,
    PortStart,
    Port,
    Target,
    AfterTarget,
    Protocol,
    MajorStart,
    Major,
    MinorStart,
    Minor,
    AfterVersion,
    Cr,
}

/// What a step over the request line found.
pub(super) enum Found {
    /// The line is complete; the position is behind it.
    Done,
    /// The bytes ended first.
    More,
    /// The byte at the position cannot stand there.
    Bad(H1ErrorKind),
}

/// Enters a target that ended at `end`.
#[inline]
fn enter_target(start: usize, end: usize, scan: &Scan, head: &mut Head) {
    head.target = Span::new(start, end);
    head.path = head.target;
    head.plain_path = !scan.complex;
    head.quoted = scan.quoted;
    head.plus_in_path = scan.plus;
    if scan.args != 0 && !scan.complex {
        head.path.end = scan.args - 1;
        head.args = Span { start: scan.args, end: end as u32 };
    }
}

/// The state within a request line. The default is the start of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestLine {
    state: State,
    start: u32,
    target: u32,
    scan: Scan,
    matched: u8,
}

impl RequestLine {
    /// Offset of the line's first byte, or none while only empty lines were seen.
    #[inline]
    pub(super) fn start(&self) -> Option<usize> {
        if self.state == State::Start { None } else { Some(self.start as usize) }
    }

    /// Reads on at `pos`, which it moves to where it stopped.
    #[inline]
    pub(super) fn next(&mut self, buf: &[u8], pos: &mut usize, head: &mut Head) -> Found {
        if self.state == State::Start {
            self.start = *pos as u32;
            if let Some(next) = whole_line(buf, *pos, head) {
                *pos = next;
                self.state = State::Cr;
                return Found::Done;
            }
        }
        self.step(buf, pos, head)
    }

    fn step(&mut self, buf: &[u8], pos: &mut usize, head: &mut Head) -> Found {
        while let Some(&byte) = buf.get(*pos) {
            let found = match self.state {
                State::Start | State::Method => self.method(byte, *pos, buf, head),
                State::BeforeTarget
                | State::BeforeAuthority
                | State::Scheme
                | State::Colon
                | State::Slash => self.before_target(byte, *pos, head),
                State::HostStart
                | State::Host
                | State::Literal
                | State::HostEnd
                | State::PortStart
                | State::Port => self.authority(byte, *pos, head),
                State::Target => {
                    *pos = self.scan.run(buf, *pos);
                    match buf.get(*pos) {
                        None => return Found::More,
                        Some(&end) => self.target_end(end, *pos, head),
                    }
                }
                _ => self.version(byte, *pos, head),
            };
            match found {
                Next::Byte => *pos += 1,
                Next::Same => {}
                Next::Bad(kind) => return Found::Bad(kind),
                Next::Done => {
                    let cr = *pos > 0 && buf.get(*pos - 1) == Some(&b'\r');
                    head.line = Span::new(self.start as usize, *pos - usize::from(cr));
                    *pos += 1;
                    return if head.version == Version::HTTP_09 && head.method != Method::Get {
                        Found::Bad(H1ErrorKind::Invalid09Method)
                    } else {
                        Found::Done
                    };
                }
            }
        }
        Found::More
    }

    fn method(&mut self, byte: u8, pos: usize, buf: &[u8], head: &mut Head) -> Next {
        match byte {
            b'A'..=b'Z' | b'_' | b'-' => {
                if self.state == State::Start {
                    self.start = pos as u32;
                    self.state = State::Method;
                }
                Next::Byte
            }
            b'\r' | b'\n' if self.state == State::Start => Next::Byte,
            b' ' if self.state == State::Method => {
                head.method_name = Span::new(self.start as usize, pos);
                head.method = Method::lookup(head.method_name.of(buf));
                self.state = if head.method == Method::Connect {
                    State::BeforeAuthority
                } else {
                    State::BeforeTarget
                };
                Next::Byte
            }
            _ => Next::Bad(H1ErrorKind::InvalidMethod),
        }
    }

    fn before_target(&mut self, byte: u8, pos: usize, head: &mut Head) -> Next {
        self.state = match (self.state, byte) {
            (State::BeforeTarget | State::BeforeAuthority, b' ') => self.state,
            (State::BeforeTarget, b'/') => return self.begin_target(pos),
            (State::BeforeTarget, b'a'..=b'z' | b'A'..=b'Z') => {
                head.scheme.start = pos as u32;
                State::Scheme
            }
            (State::BeforeAuthority, _) => {
                head.form = TargetForm::Authority;
                self.state = State::HostStart;
                return Next::Same;
            }
            (State::Scheme, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.') => {
                State::Scheme
            }
            (State::Scheme, b':') => {
                head.scheme.end = pos as u32;
                head.form = TargetForm::Absolute;
                State::Colon
            }
            (State::Colon, b'/') => State::Slash,
            (State::Slash, b'/') => State::HostStart,
            _ => return Next::Bad(H1ErrorKind::InvalidRequest),
        };
        Next::Byte
    }

    fn authority(&mut self, byte: u8, pos: usize, head: &mut Head) -> Next {
        match (self.state, byte) {
            (State::HostStart, _) => {
                head.authority.start = pos as u32;
                if byte == b'[' {
                    self.state = State::Literal;
                    return Next::Byte;
                }
                self.state = State::Host;
                Next::Same
            }
            (State::Host, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-') => Next::Byte,
            (State::Host | State::HostEnd, b':') => {
                self.state = State::PortStart;
                Next::Byte
            }
            (State::Host | State::HostEnd, _) if head.method == Method::Connect => {
                Next::Bad(H1ErrorKind::InvalidRequest)
            }
            (State::Host | State::HostEnd, _) => self.authority_end(byte, pos, head),
            (State::Literal, b']') => {
                self.state = State::HostEnd;
                Next::Byte
            }
            (State::Literal, _) => match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'-' | b'.' | b'_' | b'~' => {
                    Next::Byte
                }
                b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {
                    Next::Byte
                }
                _ => Next::Bad(H1ErrorKind::InvalidRequest),
            },
            (_, b'0'..=b'9') => {
                self.state = State::Port;
                Next::Byte
            }
            (State::PortStart, _) if head.method == Method::Connect => {
                Next::Bad(H1ErrorKind::InvalidRequest)
            }
            _ => self.authority_end(byte, pos, head),
        }
    }

    fn authority_end(&mut self, byte: u8, pos: usize, head: &mut Head) -> Next {
        head.authority.end = pos as u32;
        match byte {
            b' ' => {
                if head.method != Method::Connect {
                    // No path: a "/" of "://" stands for it, so that the path is a span as always.
                    let slash = head.scheme.end as usize + 1;
                    head.target = Span::new(slash, slash + 1);
                    head.path = head.target;
                }
                self.state = State::AfterTarget;
                Next::Byte
            }
            b'/' if head.method != Method::Connect => self.begin_target(pos),
            b'?' if head.method != Method::Connect => {
                let next = self.begin_target(pos);
                self.scan.complex = true;
                next
            }
            _ => Next::Bad(H1ErrorKind::InvalidRequest),
        }
    }

    fn begin_target(&mut self, pos: usize) -> Next {
        self.target = pos as u32;
        self.scan = Scan::default();
        self.state = State::Target;
        Next::Same
    }

    fn target_end(&mut self, end: u8, pos: usize, head: &mut Head) -> Next {
        enter_target(self.target as usize, pos, &self.scan, head);
        match end {
            b' ' | b'\r' | b'\n' => {
                self.state = State::AfterTarget;
                Next::Same
            }
            _ => Next::Bad(H1ErrorKind::InvalidRequest),
        }
    }

    fn version(&mut self, byte: u8, pos: usize, head: &mut Head) -> Next {
        const NAME: &[u8] = b"HTTP/";
        self.state = match (self.state, byte) {
            (State::AfterTarget | State::AfterVersion, b' ') => self.state,
            (State::AfterTarget | State::AfterVersion, b'\r') => State::Cr,
            (State::AfterTarget | State::AfterVersion | State::Cr, b'\n') => return Next::Done,
            (State::AfterTarget, b'H') => {
                head.protocol.start = pos as u32;
                self.matched = 1;
                State::Protocol
            }
            (State::Protocol, _) if NAME.get(self.matched as usize) == Some(&byte) => {
                self.matched += 1;
                if byte == b'/' {
                    if head.method == Method::Connect {
                        // nginx's $request_uri of CONNECT is "/"; here is one.
                        head.target = Span::new(pos, pos + 1);
                        head.path = head.target;
                    }
                    State::MajorStart
                } else {
                    State::Protocol
                }
            }
            (State::MajorStart, b'1') => State::Major,
            (State::MajorStart, b'2'..=b'9') | (State::Major, b'0'..=b'9') => {
                return Next::Bad(H1ErrorKind::InvalidVersion);
            }
            (State::Major, b'.') => State::MinorStart,
            (State::MinorStart, b'0'..=b'9') => {
                head.version = Version(1000 + u16::from(byte - b'0'));
                head.protocol.end = pos as u32 + 1;
                State::Minor
            }
            (State::Minor, b'0'..=b'9') if head.version.0 < 1100 => {
                head.version =
                    Version(1000 + (head.version.0 - 1000) * 10 + u16::from(byte - b'0'));
                head.protocol.end = pos as u32 + 1;
                State::Minor
            }
            (State::Minor, b' ' | b'\r' | b'\n') => {
                self.state = State::AfterVersion;
                return Next::Same;
            }
            _ => return Next::Bad(H1ErrorKind::InvalidRequest),
        };
        Next::Byte
    }
}

/// What a state does with a byte.
enum Next {
    Byte,
    Same,
    Done,
    Bad(H1ErrorKind),
}

/// A line that lies complete in the buffer in the usual form: `METHOD /target HTTP/1.x`, single
/// spaces. Everything else, and everything wrong, is left to the states.
#[inline]
fn whole_line(buf: &[u8], start: usize, head: &mut Head) -> Option<usize> {
    const HTTP_10: [u8; 8] = *b"HTTP/1.0";
    const HTTP_11: [u8; 8] = *b"HTTP/1.1";
    let line = buf.get(start..)?;
    let (method, method_len) = if line.starts_with(b"GET ") {
        (Method::Get, 3)
    } else {
        let len = line.iter().take(10).position(|byte| *byte == b' ')?;
        match Method::lookup(line.get(..len)?) {
            Method::Other | Method::Connect => return None,
            method => (method, len),
        }
    };
    let from = start + method_len + 1;
    if *buf.get(from)? != b'/' {
        return None;
    }
    let mut scan = Scan::default();
    let end = scan.run(buf, from);
    let (b' ', tail) = buf.get(end..)?.split_first()? else { return None };
    let (version, rest) = tail.split_first_chunk::<8>()?;
    let version = match *version {
        HTTP_11 => Version::HTTP_11,
        HTTP_10 => Version::HTTP_10,
        _ => return None,
    };
    let line_end = end + 9;
    let next = match rest {
        [b'\r', b'\n', ..] => line_end + 2,
        [b'\n', ..] => line_end + 1,
        _ => return None,
    };
    head.method = method;
    head.method_name = Span::new(start, start + method_len);
    head.version = version;
    head.protocol = Span::new(end + 1, line_end);
    head.line = Span::new(start, line_end);
    enter_target(from, end, &scan, head);
    Some(next)
}
