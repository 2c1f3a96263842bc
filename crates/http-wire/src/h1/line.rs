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
enum LineState {
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

/// The result of a step through the request line.
pub(super) enum LineStep {
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
    state: LineState,
    start: u32,
    target: u32,
    scan: Scan,
    matched: u8,
}

impl RequestLine {
    /// Offset of the line's first byte, or none while only empty lines were seen.
    #[inline]
    pub(super) fn start(&self) -> Option<usize> {
        if self.state == LineState::Start { None } else { Some(self.start as usize) }
    }

    /// Continues at `pos`, and moves it.
    #[inline]
    pub(super) fn next(&mut self, buf: &[u8], pos: &mut usize, head: &mut Head) -> LineStep {
        if self.state == LineState::Start {
            self.start = *pos as u32;
            if let Some(next) = whole_line(buf, *pos, head) {
                *pos = next;
                self.state = LineState::Cr;
                return LineStep::Done;
            }
        }
        self.step(buf, pos, head)
    }

    fn step(&mut self, buf: &[u8], pos: &mut usize, head: &mut Head) -> LineStep {
        while let Some(&byte) = buf.get(*pos) {
            let found = match self.state {
                LineState::Start | LineState::Method => self.method(byte, *pos, buf, head),
                LineState::BeforeTarget
                | LineState::BeforeAuthority
                | LineState::Scheme
                | LineState::Colon
                | LineState::Slash => self.before_target(byte, *pos, head),
                LineState::HostStart
                | LineState::Host
                | LineState::Literal
                | LineState::HostEnd
                | LineState::PortStart
                | LineState::Port => self.authority(byte, *pos, head),
                LineState::Target => {
                    *pos = self.scan.run(buf, *pos);
                    match buf.get(*pos) {
                        None => return LineStep::More,
                        Some(&end) => self.target_end(end, *pos, head),
                    }
                }
                _ => self.version(byte, *pos, head),
            };
            match found {
                Transition::Byte => *pos += 1,
                Transition::Same => {}
                Transition::Bad(kind) => return LineStep::Bad(kind),
                Transition::Done => {
                    let cr = *pos > 0 && buf.get(*pos - 1) == Some(&b'\r');
                    head.line = Span::new(self.start as usize, *pos - usize::from(cr));
                    *pos += 1;
                    return if head.version == Version::HTTP_09 && head.method != Method::Get {
                        LineStep::Bad(H1ErrorKind::Invalid09Method)
                    } else {
                        LineStep::Done
                    };
                }
            }
        }
        LineStep::More
    }

    fn method(&mut self, byte: u8, pos: usize, buf: &[u8], head: &mut Head) -> Transition {
        match byte {
            b'A'..=b'Z' | b'_' | b'-' => {
                if self.state == LineState::Start {
                    self.start = pos as u32;
                    self.state = LineState::Method;
                }
                Transition::Byte
            }
            b'\r' | b'\n' if self.state == LineState::Start => Transition::Byte,
            b' ' if self.state == LineState::Method => {
                head.method_name = Span::new(self.start as usize, pos);
                head.method = Method::lookup(head.method_name.of(buf));
                self.state = if head.method == Method::Connect {
                    LineState::BeforeAuthority
                } else {
                    LineState::BeforeTarget
                };
                Transition::Byte
            }
            _ => Transition::Bad(H1ErrorKind::InvalidMethod),
        }
    }

    fn before_target(&mut self, byte: u8, pos: usize, head: &mut Head) -> Transition {
        self.state = match (self.state, byte) {
            (LineState::BeforeTarget | LineState::BeforeAuthority, b' ') => self.state,
            (LineState::BeforeTarget, b'/') => return self.begin_target(pos),
            (LineState::BeforeTarget, b'a'..=b'z' | b'A'..=b'Z') => {
                head.scheme.start = pos as u32;
                LineState::Scheme
            }
            (LineState::BeforeAuthority, _) => {
                head.form = TargetForm::Authority;
                self.state = LineState::HostStart;
                return Transition::Same;
            }
            (LineState::Scheme, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.') => {
                LineState::Scheme
            }
            (LineState::Scheme, b':') => {
                head.scheme.end = pos as u32;
                head.form = TargetForm::Absolute;
                LineState::Colon
            }
            (LineState::Colon, b'/') => LineState::Slash,
            (LineState::Slash, b'/') => LineState::HostStart,
            _ => return Transition::Bad(H1ErrorKind::InvalidRequest),
        };
        Transition::Byte
    }

    fn authority(&mut self, byte: u8, pos: usize, head: &mut Head) -> Transition {
        match (self.state, byte) {
            (LineState::HostStart, _) => {
                head.authority.start = pos as u32;
                if byte == b'[' {
                    self.state = LineState::Literal;
                    return Transition::Byte;
                }
                self.state = LineState::Host;
                Transition::Same
            }
            (LineState::Host, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-') => {
                Transition::Byte
            }
            (LineState::Host | LineState::HostEnd, b':') => {
                self.state = LineState::PortStart;
                Transition::Byte
            }
            (LineState::Host | LineState::HostEnd, _) if head.method == Method::Connect => {
                Transition::Bad(H1ErrorKind::InvalidRequest)
            }
            (LineState::Host | LineState::HostEnd, _) => self.authority_end(byte, pos, head),
            (LineState::Literal, b']') => {
                self.state = LineState::HostEnd;
                Transition::Byte
            }
            (LineState::Literal, _) => match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'-' | b'.' | b'_' | b'~' => {
                    Transition::Byte
                }
                b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {
                    Transition::Byte
                }
                _ => Transition::Bad(H1ErrorKind::InvalidRequest),
            },
            (_, b'0'..=b'9') => {
                self.state = LineState::Port;
                Transition::Byte
            }
            (LineState::PortStart, _) if head.method == Method::Connect => {
                Transition::Bad(H1ErrorKind::InvalidRequest)
            }
            _ => self.authority_end(byte, pos, head),
        }
    }

    fn authority_end(&mut self, byte: u8, pos: usize, head: &mut Head) -> Transition {
        head.authority.end = pos as u32;
        match byte {
            b' ' => {
                if head.method != Method::Connect {
                    // Without a path, a "/" of "://" stands for it, so that the path is a span as
                    // always.
                    let slash = head.scheme.end as usize + 1;
                    head.target = Span::new(slash, slash + 1);
                    head.path = head.target;
                }
                self.state = LineState::AfterTarget;
                Transition::Byte
            }
            b'/' if head.method != Method::Connect => self.begin_target(pos),
            b'?' if head.method != Method::Connect => {
                let next = self.begin_target(pos);
                self.scan.complex = true;
                next
            }
            _ => Transition::Bad(H1ErrorKind::InvalidRequest),
        }
    }

    fn begin_target(&mut self, pos: usize) -> Transition {
        self.target = pos as u32;
        self.scan = Scan::default();
        self.state = LineState::Target;
        Transition::Same
    }

    fn target_end(&mut self, end: u8, pos: usize, head: &mut Head) -> Transition {
        enter_target(self.target as usize, pos, &self.scan, head);
        match end {
            b' ' | b'\r' | b'\n' => {
                self.state = LineState::AfterTarget;
                Transition::Same
            }
            _ => Transition::Bad(H1ErrorKind::InvalidRequest),
        }
    }

    fn version(&mut self, byte: u8, pos: usize, head: &mut Head) -> Transition {
        const NAME: &[u8] = b"HTTP/";
        self.state = match (self.state, byte) {
            (LineState::AfterTarget | LineState::AfterVersion, b' ') => self.state,
            (LineState::AfterTarget | LineState::AfterVersion, b'\r') => LineState::Cr,
            (LineState::AfterTarget | LineState::AfterVersion | LineState::Cr, b'\n') => {
                return Transition::Done;
            }
            (LineState::AfterTarget, b'H') => {
                head.protocol.start = pos as u32;
                self.matched = 1;
                LineState::Protocol
            }
            (LineState::Protocol, _) if NAME.get(self.matched as usize) == Some(&byte) => {
                self.matched += 1;
                if byte == b'/' {
                    if head.method == Method::Connect {
                        // nginx's $request_uri of CONNECT is "/"; here is one.
                        head.target = Span::new(pos, pos + 1);
                        head.path = head.target;
                    }
                    LineState::MajorStart
                } else {
                    LineState::Protocol
                }
            }
            (LineState::MajorStart, b'1') => LineState::Major,
            (LineState::MajorStart, b'2'..=b'9') | (LineState::Major, b'0'..=b'9') => {
                return Transition::Bad(H1ErrorKind::InvalidVersion);
            }
            (LineState::Major, b'.') => LineState::MinorStart,
            (LineState::MinorStart, b'0'..=b'9') => {
                head.version = Version(1000 + u16::from(byte - b'0'));
                head.protocol.end = pos as u32 + 1;
                LineState::Minor
            }
            (LineState::Minor, b'0'..=b'9') if head.version.0 < 1100 => {
                head.version =
                    Version(1000 + (head.version.0 - 1000) * 10 + u16::from(byte - b'0'));
                head.protocol.end = pos as u32 + 1;
                LineState::Minor
            }
            (LineState::Minor, b' ' | b'\r' | b'\n') => {
                self.state = LineState::AfterVersion;
                return Transition::Same;
            }
            _ => return Transition::Bad(H1ErrorKind::InvalidRequest),
        };
        Transition::Byte
    }
}

/// The state machine's reaction to a byte.
enum Transition {
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
