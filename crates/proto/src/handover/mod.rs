//! A live connection on its way from a worker that leaves to one that serves: the message that
//! describes it. Its descriptors travel beside the message.
//!
//! ```text
//!  "WEIRMOVE" | version 2 | kind 1 | length of the rest 4 | the kind's fields in their order
//!  numbers: big-endian · bytes: length 4, bytes · option: 0, or 1 and the value
//!  list: count 4, the elements
//! ```
//!
//! Sender and receiver may be of different binaries. [`Message::read`] refuses another version and
//! unknown kinds, so that the connection stays where it is. Fields are never skipped or added
//! within a version: every change of this file that changes bytes needs the next [`VERSION`].
//!
//! Times are lengths, never instants, because clocks of processes start at different points.

mod bytes;
#[cfg(test)]
mod tests;

use self::bytes::{Field, Reader, record};

/// The version of all messages.
pub const VERSION: u16 = 5;

const MAGIC: &[u8; 8] = b"WEIRMOVE";

/// Bytes in front of a kind's fields.
const HEAD: usize = MAGIC.len() + 2 + 1 + 4;

/// The longest message.
pub const MESSAGE_MAX: usize = 1 << 20;

/// The longest message that goes through the socket itself: its buffer takes that in one piece,
/// whatever the system's limits. A longer one is in a file in memory, whose descriptor is sent with
/// [`Message::Long`].
pub const INLINE_MAX: usize = 128 << 10;

/// A message.
#[derive(Clone, PartialEq, Debug)]
pub enum Message<'a> {
    /// Asks whether a worker receives connections in this version. Carries no descriptor.
    Hello,
    /// Connections that are offered together: the descriptors of each, in the order of the parts.
    Many(Vec<Part<'a>>),
    /// A tunnel of HTTP/1: the descriptors of client and server.
    Tunnel(Box<Tunnel<'a>>),
    /// A session of `stream` over TCP: the descriptors of client and server.
    Session(Box<Session<'a>>),
    /// A connection of HTTP/1 between two requests: its descriptor.
    Idle(Box<Idle<'a>>),
    /// A connection of HTTP/2 without streams, or with tunnels alone: its descriptor, and those of
    /// the tunnels' servers in the order of the streams.
    Http2(Box<Http2<'a>>),
    /// A session of `mail` whose client is logged in: the descriptors of client and server.
    Mail(Box<Mail<'a>>),
    /// A connection to a server, between two requests: its descriptor.
    Kept(Box<Kept<'a>>),
    /// A message of so many bytes, in a file: its own descriptors, and that of the file.
    Long(u32),
}

/// The reason why a message is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// The sender's version is this one.
    Version(u16),
    /// This version has no such kind.
    Kind(u8),
    /// The bytes are no message.
    Malformed,
}

record! {
    /// A connection of [`Message::Many`].
    pub struct Part<'a> {
        /// The number of its descriptors.
        pub ends: u32,
        /// The message that describes it.
        pub message: &'a [u8],
    }
}

record! {
    /// The client's connection.
    pub struct Client<'a> {
        /// The listening socket's address, as text.
        pub listener: &'a [u8],
        /// Our own end, as text.
        pub local: &'a [u8],
        /// The client's end, as text.
        pub peer: &'a [u8],
        /// The address that a trusted proxy reported for the client, as text.
        pub real_peer: Option<&'a [u8]>,
        /// The connection's number in logs.
        pub number: u64,
        /// Milliseconds since it was accepted.
        pub age_ms: u64,
        /// Requests on it so far.
        pub requests: u64,
        /// The run of the server in which it has come to the sender's process from another one; 0
        /// if the sender has accepted it.
        pub moved_in: u64,
        /// The PROXY protocol header.
        pub proxy: Option<Proxied<'a>>,
        /// TLS with the client.
        pub tls: Option<Sealed<'a>>,
        /// The facts of its handshake.
        pub handshake: Option<Handshake<'a>>,
    }
}

record! {
    /// The facts of a client's handshake of TLS, for variables and access checks. Numbers are those
    /// of the protocol.
    pub struct Handshake<'a> {
        /// The name of the server in the client's hello.
        pub server_name: Option<&'a [u8]>,
        /// The hello's message, if variables ask for it.
        pub hello: Option<&'a [u8]>,
        /// Version and cipher suite.
        pub terms: (u16, u16),
        /// The group of the key exchange; 0 if none took place.
        pub group: u16,
        /// The signature schemes of server and client; 0 if it did not sign.
        pub schemes: (u16, u16),
        /// Names the session.
        pub session_id: &'a [u8],
        /// An earlier session was resumed.
        pub is_resumed: bool,
        /// The client sent early data.
        pub has_early_data: bool,
        /// The protocol chosen by ALPN.
        pub alpn: Option<&'a [u8]>,
        /// The server's certificate, in DER.
        pub own: Option<&'a [u8]>,
        /// The certificates that the client sent, its own first, in DER.
        pub peer: Option<Vec<&'a [u8]>>,
        /// The client was asked for a certificate.
        pub is_asked: bool,
        /// OCSP responders were asked about the client's certificate, and it is good.
        pub is_confirmed: bool,
    }
}

record! {
    /// An established session of TLS, and its bytes on their way.
    pub struct Sealed<'a> {
        /// The session with its keys, in the form of the crate `tls`.
        pub state: &'a [u8],
        /// Bytes that have arrived, and are no whole record.
        pub input: &'a [u8],
        /// Plaintext of records that were opened.
        pub plain: &'a [u8],
        /// Records that are to be sent before all others.
        pub unsent: &'a [u8],
    }
}

record! {
    /// A PROXY protocol header.
    pub struct Proxied<'a> {
        /// The client.
        pub source: End<'a>,
        /// The address that the client connected to.
        pub destination: End<'a>,
        /// The TLVs of version 2.
        pub tlvs: &'a [u8],
    }
}

record! {
    /// An end in a PROXY protocol header.
    pub struct End<'a> {
        /// Its text.
        pub text: &'a [u8],
        /// Its address, as text; `None` if the text is none.
        pub ip: Option<&'a [u8]>,
        /// Its port.
        pub port: u16,
    }
}

record! {
    /// A location, by which the receiver finds it in its own configuration.
    pub struct Place<'a> {
        /// The number of its kind.
        pub kind: u8,
        /// Its name as written.
        pub name: &'a [u8],
    }
}

record! {
    /// A request that has become a tunnel.
    pub struct Request<'a> {
        /// The header section as it was received; over HTTP/2 the list of its fields.
        pub head: &'a [u8],
        /// Its bytes as they were received.
        pub head_len: u32,
        /// The path inside the server, which may have been rewritten.
        pub uri: &'a [u8],
        /// The arguments.
        pub args: &'a [u8],
        /// The location.
        pub place: Place<'a>,
        /// The status that opened the tunnel.
        pub status: u16,
        /// Bytes sent to the client, and the part of the header section in them.
        pub sent: (u64, u64),
        /// The time of the first byte, milliseconds since 1970.
        pub start_ms: u64,
        /// Microseconds since then.
        pub elapsed_us: u64,
        /// Microseconds until the header section, of the access phases, and until the response.
        pub times_us: (u64, u64, u64),
        /// The values of variables so far; `None` is "not found".
        pub values: Vec<(&'a [u8], Option<&'a [u8]>)>,
    }
}

record! {
    /// The exchange with a server by which a request has become a tunnel.
    pub struct Exchange<'a> {
        /// `http://` and the like.
        pub scheme: &'a [u8],
        /// The URI of the request to the server.
        pub uri: &'a [u8],
        /// The values of `$proxy_host` and `$proxy_port`.
        pub host: (&'a [u8], &'a [u8]),
        /// The attempts to reach a server, the last one successful.
        pub attempts: Vec<Attempt<'a>>,
        /// The server.
        pub leased: Leased<'a>,
    }
}

record! {
    /// An attempt to reach a server.
    pub struct Attempt<'a> {
        /// The server's address as text; `None` separates internal redirects.
        pub peer: Option<&'a [u8]>,
        /// The status that came.
        pub status: u16,
        /// Milliseconds since it began.
        pub age_ms: u64,
        /// Milliseconds until it was connected.
        pub connect_ms: Option<u64>,
        /// Milliseconds until the first bytes, or the header section.
        pub first_ms: Option<u64>,
        /// Milliseconds until the end.
        pub end_ms: Option<u64>,
        /// Bytes of the response's body.
        pub length: u64,
        /// Bytes received.
        pub received: u64,
        /// Bytes sent.
        pub sent: u64,
    }
}

record! {
    /// The server that an attempt leased.
    pub struct Leased<'a> {
        /// The group's name.
        pub group: &'a [u8],
        /// The server's name in the group.
        pub server: &'a [u8],
    }
}

record! {
    /// One direction of a relay.
    pub struct Way<'a> {
        /// Bytes that were read and not yet sent.
        pub pending: &'a [u8],
        /// Its source has ended.
        pub ended: bool,
        /// The end was forwarded.
        pub closed: bool,
        /// Its rate.
        pub rate: Option<Rate<'a>>,
    }
}

record! {
    /// A rate limit of a direction.
    pub struct Rate<'a> {
        /// Bytes a second.
        pub per_second: u64,
        /// Milliseconds since the bytes are counted.
        pub age_ms: u64,
        /// The bytes read since then.
        pub read: u64,
        /// Milliseconds until the next read.
        pub wait_ms: u64,
        /// Bytes that were read and wait for the rate.
        pub ahead: &'a [u8],
    }
}

record! {
    /// See [`Message::Tunnel`].
    pub struct Tunnel<'a> {
        /// The client's connection.
        pub client: Client<'a>,
        /// The request.
        pub request: Request<'a>,
        /// The exchange with the server.
        pub exchange: Exchange<'a>,
        /// TLS with the server.
        pub server_tls: Option<Sealed<'a>>,
        /// From client to server.
        pub up: Way<'a>,
        /// From server to client.
        pub down: Way<'a>,
        /// Time-outs, milliseconds: of silence, of a server and of a client that do not read.
        pub timeouts: (u64, u64, u64),
        /// Milliseconds since bytes moved last.
        pub silent_ms: u64,
        /// Milliseconds left for the server and for the client to read, while bytes wait for them.
        pub left_ms: (Option<u64>, Option<u64>),
    }
}

record! {
    /// See [`Message::Session`].
    pub struct Session<'a> {
        /// The client's connection.
        pub client: Client<'a>,
        /// The first name of the server block; `None` for the default one of the address.
        pub server: Option<&'a [u8]>,
        /// The values of variables so far; `None` is "not found".
        pub values: Vec<(&'a [u8], Option<&'a [u8]>)>,
        /// Bytes received from the client and sent to it.
        pub bytes: (u64, u64),
        /// The attempts to reach a server, the last one successful.
        pub attempts: Vec<Attempt<'a>>,
        /// The server.
        pub leased: Leased<'a>,
        /// TLS with the server.
        pub server_tls: Option<Sealed<'a>>,
        /// From client to server.
        pub up: Way<'a>,
        /// From server to client.
        pub down: Way<'a>,
        /// Milliseconds since bytes moved last.
        pub silent_ms: u64,
    }
}

record! {
    /// See [`Message::Idle`].
    pub struct Idle<'a> {
        /// The client's connection.
        pub client: Client<'a>,
        /// Bytes that have arrived: requests, or a part of one.
        pub read: &'a [u8],
        /// Milliseconds until the connection is closed if nothing comes.
        pub left_ms: u64,
    }
}

record! {
    /// See [`Message::Http2`].
    pub struct Http2<'a> {
        /// The connection, between two frames.
        pub idle: Idle<'a>,
        /// The server has announced: the streams that may be open at once, the first window of
        /// each, and the longest payload of a frame.
        pub announced: (u32, u32, u32),
        /// The client has announced: the size of its table of fields, the streams that the server
        /// may open,
        pub tables: (u32, u32),
        /// the first window of a stream, the longest payload of a frame,
        pub sizes: (u32, u32),
        /// that it knows CONNECT to other protocols, and that it does not use dependencies.
        pub flags: (bool, bool),
        /// Bytes that may be sent on all streams, and received.
        pub windows: (u32, u32),
        /// The newest stream of the client.
        pub last_id: u32,
        /// The size that the client's table of fields has, and the one that it gets next.
        pub encoder: (u32, u32),
        /// The room of the table of fields that the client has filled.
        pub table_size: u32,
        /// The fields in it, the oldest first.
        pub fields: Vec<(&'a [u8], &'a [u8])>,
        /// The newest stream that the server has reset, and a bit for each of those before it.
        pub resets: (u32, &'a [u8]),
        /// Bytes of streams that have ended, which the client may still return to their windows.
        pub unreturned: u64,
        /// The client's dependencies are not used; it has used priorities; they make a difference.
        pub priorities: (bool, bool, bool),
        /// Frames and resets for which the client has not made up.
        pub used: (u32, u32),
        /// The streams, each of which is a tunnel.
        pub streams: Vec<Stream<'a>>,
    }
}

record! {
    /// A tunnel on a stream of HTTP/2.
    pub struct Stream<'a> {
        /// The number of the stream.
        pub id: u32,
        /// The client has ended its half.
        pub is_ended: bool,
        /// Bytes that may be sent; fewer than none if the client has made its windows smaller.
        pub send: i32,
        /// Bytes that the client may send, the window that it has while they are read, and bytes
        /// that were read since it got the window.
        pub receive: (u32, u32, u32),
        /// Bytes that have arrived, behind those of the tunnel.
        pub received: &'a [u8],
        /// Bytes for the client that wait for a window, before those of the tunnel.
        pub queued: &'a [u8],
        /// Bytes of frames' heads that no request has counted yet.
        pub framing: u64,
        /// The tunnel. Of its client, the address that a trusted proxy reported is new.
        pub tunnel: Tunnel<'a>,
    }
}

record! {
    /// See [`Message::Mail`].
    pub struct Mail<'a> {
        /// The client's connection.
        pub client: Client<'a>,
        /// The name of the protocol.
        pub protocol: &'a [u8],
        /// The name that the client has logged in with.
        pub login: &'a [u8],
        /// The mail server, for logs.
        pub upstream: Option<&'a [u8]>,
        /// TLS with the client began by a command.
        pub is_starttls: bool,
        /// TLS with the server.
        pub server_tls: Option<Sealed<'a>>,
        /// From client to server.
        pub up: Way<'a>,
        /// From server to client.
        pub down: Way<'a>,
        /// Milliseconds since bytes moved last.
        pub silent_ms: u64,
    }
}

record! {
    /// See [`Message::Kept`].
    pub struct Kept<'a> {
        /// The server, by its group's name and its address.
        pub leased: Leased<'a>,
        /// Identifies the location that it is for, if it is not for all.
        pub place: u64,
        /// Requests on it so far.
        pub requests: u64,
        /// Milliseconds since it was made.
        pub age_ms: u64,
        /// Milliseconds until it is closed if nobody needs it.
        pub left_ms: u64,
        /// See [`Client::moved_in`].
        pub moved_in: u64,
    }
}

impl<'a> Message<'a> {
    /// Appends the message to `out`. Returns `false`, and leaves `out` as it was, if that is longer
    /// than [`MESSAGE_MAX`]; what was written of it is wiped, because it may have keys in it.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        out.extend_from_slice(MAGIC);
        VERSION.put(out);
        self.kind().put(out);
        let at = out.len();
        0u32.put(out);
        match self {
            Message::Hello => {}
            Message::Many(parts) => parts.put(out),
            Message::Tunnel(tunnel) => tunnel.put(out),
            Message::Session(session) => session.put(out),
            Message::Idle(idle) => idle.put(out),
            Message::Http2(http2) => http2.put(out),
            Message::Mail(mail) => mail.put(out),
            Message::Kept(kept) => kept.put(out),
            Message::Long(len) => len.put(out),
        }
        let len = out.len() - begin;
        if len > MESSAGE_MAX {
            out[begin..].fill(0);
            out.truncate(begin);
            return false;
        }
        let rest = u32::try_from(len - HEAD).unwrap_or(u32::MAX);
        out[at..at + 4].copy_from_slice(&rest.to_be_bytes());
        true
    }

    /// The run of the server in which the connection has moved before: [`Client::moved_in`].
    pub fn moved_in(&self) -> u64 {
        match self {
            Message::Hello | Message::Many(_) | Message::Long(_) => 0,
            Message::Tunnel(tunnel) => tunnel.client.moved_in,
            Message::Session(session) => session.client.moved_in,
            Message::Idle(idle) => idle.client.moved_in,
            Message::Http2(http2) => http2.idle.client.moved_in,
            Message::Mail(mail) => mail.client.moved_in,
            Message::Kept(kept) => kept.moved_in,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Hello => 0,
            Message::Tunnel(_) => 1,
            Message::Session(_) => 2,
            Message::Long(_) => 3,
            Message::Idle(_) => 4,
            Message::Http2(_) => 5,
            Message::Mail(_) => 6,
            Message::Kept(_) => 7,
            Message::Many(_) => 8,
        }
    }

    /// Reads a message, all of `bytes`.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn read(bytes: &'a [u8]) -> Result<Message<'a>, Unread> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(Unread::Malformed)?;
        let mut reader = Reader(rest);
        match u16::get(&mut reader) {
            Some(VERSION) => {}
            Some(other) => return Err(Unread::Version(other)),
            None => return Err(Unread::Malformed),
        }
        let kind = u8::get(&mut reader).ok_or(Unread::Malformed)?;
        let len = u32::get(&mut reader).ok_or(Unread::Malformed)?;
        if bytes.len() > MESSAGE_MAX || len as usize != reader.0.len() {
            return Err(Unread::Malformed);
        }
        let message = match kind {
            0 => Some(Message::Hello),
            1 => Tunnel::get(&mut reader).map(|tunnel| Message::Tunnel(Box::new(tunnel))),
            2 => Session::get(&mut reader).map(|session| Message::Session(Box::new(session))),
            3 => u32::get(&mut reader).map(Message::Long),
            4 => Idle::get(&mut reader).map(|idle| Message::Idle(Box::new(idle))),
            5 => Http2::get(&mut reader).map(|http2| Message::Http2(Box::new(http2))),
            6 => Mail::get(&mut reader).map(|mail| Message::Mail(Box::new(mail))),
            7 => Kept::get(&mut reader).map(|kept| Message::Kept(Box::new(kept))),
            8 => Vec::get(&mut reader).map(Message::Many),
            other => return Err(Unread::Kind(other)),
        };
        message.filter(|_| reader.0.is_empty()).ok_or(Unread::Malformed)
    }
}

/// The receiver's reply, a word for each part of [`Message::Many`] or a refusal of all, and the
/// sender's words that end the exchange.
///
/// ```text
///  sender                          receiver
///    │ ── message, descriptors ──────▶ │   the sender moves no byte any more
///    │ ◀───────── Takes, or Refuses ── │   of each
///    │ ── Yours ─────────────────────▶ │   from here on the receiver serves this one
/// ```
///
/// A receiver that dies closes the socket, and the sender serves on. A sender that waited for too
/// long closes it, and the receiver drops its descriptors. So nobody serves a connection twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The receiver can serve the connection.
    Takes,
    /// It cannot: the connection stays.
    Refuses(Refusal),
    /// The connection of this part is the receiver's.
    Yours(u8),
}

/// The most parts of [`Message::Many`], as far as words can name them.
pub const PARTS_MAX: usize = 256;

/// Why a receiver refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The message is of another version, or of a kind that it does not know.
    Version = 1,
    /// Its configuration has no such listener, server or location.
    Configuration = 2,
    /// Its configuration has `handover off` there.
    Off = 3,
    /// It cannot be served for another reason: memory, descriptors, a worker that leaves.
    Other = 4,
}

impl Word {
    /// As bytes.
    pub fn bytes(self) -> [u8; 2] {
        match self {
            Word::Takes => *b"T\0",
            Word::Refuses(why) => [b'R', why as u8],
            Word::Yours(part) => [b'Y', part],
        }
    }

    /// A message of words.
    pub fn write_all(words: &[Word]) -> Vec<u8> {
        words.iter().flat_map(|word| word.bytes()).collect()
    }

    /// Reads a message of words; `None` if it is none.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Word>> {
        bytes.chunks(2).map(Word::read).collect()
    }

    /// Reads one; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Word> {
        Some(match bytes {
            b"T\0" => Word::Takes,
            [b'Y', part] => Word::Yours(*part),
            [b'R', why] => Word::Refuses(match why {
                1 => Refusal::Version,
                2 => Refusal::Configuration,
                3 => Refusal::Off,
                _ => Refusal::Other,
            }),
            _ => return None,
        })
    }
}
