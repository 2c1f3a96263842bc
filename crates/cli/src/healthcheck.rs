//! `weir healthcheck [URL]`: does the server serve? For containers and scripts, which need no curl.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::log::Level;
use clap::ArgMatches;
use conf::value;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line;
use crate::target::{Arguments, Target, asked};

/// The longest head of a response that is read, bytes.
const HEAD_MAX: u64 = 64 << 10;

/// `weir healthcheck`
pub(crate) const COMMAND: Command = Command {
    name: "healthcheck",
    doc: "check that the server serves, for containers and scripts",
    about: "With a URL, sends a request to it; a status from 200 to 399 is healthy. Without one, \
            asks the running server of this configuration whether workers serve. The certificate \
            of an https URL is not verified, because a check asks its own machine, by an address \
            that certificates rarely name.",
    args: || {
        let url = clap::Arg::new("URL").help("http://HOST[:PORT][/PATH], or the same with https");
        let timeout = "How long the answer may take, for example 500ms [default: 5s]";
        let own = [url, line::valued("timeout", "TIME", timeout), line::pid()];
        own.into_iter().chain(line::switches("cpge")).collect()
    },
    exit: &[("0", "healthy"), ("1", "not healthy; standard error has the reason")],
    examples: &[
        ("weir healthcheck http://localhost:8080/ready", "Does this address answer?"),
        ("weir healthcheck -c /etc/nginx/nginx.conf", "Do the workers of this server serve?"),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let checked = match (timeout(matches), matches.get_one::<String>("URL")) {
        (Err(error), _) => Err(error),
        (Ok(timeout), Some(url)) => ask(url, timeout),
        (Ok(_), None) => ask_master(matches),
    };
    match checked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report("healthcheck", 1),
    }
}

fn timeout(matches: &ArgMatches) -> Result<Duration, Error> {
    let Some(text) = matches.get_one::<String>("timeout") else {
        return Ok(Duration::from_secs(5));
    };
    let ms = value::parse_msec(text.as_bytes()).filter(|ms| *ms > 0);
    Ok(Duration::from_millis(ms.ok_or_else(|| Error::usage(format!("invalid time \"{text}\"")))?))
}

fn ask_master(matches: &ArgMatches) -> Result<(), Error> {
    let args = Arguments::new(matches)?;
    let target = Target::new(&args.typed, Level::Emerg)?;
    let answer = asked(&target.socket(args.value("pid"))?, "top")?;
    match answer.number("workers") {
        0 => Err(Error::server("no worker serves")),
        _ => Ok(()),
    }
}

/// The parts of a URL.
#[derive(PartialEq, Eq, Debug)]
struct Url<'u> {
    is_tls: bool,
    host: &'u str,
    port: u16,
    /// Host and port as they stand.
    authority: &'u str,
    target: String,
}

impl Url<'_> {
    fn parse(text: &str) -> Result<Url<'_>, Error> {
        let wrong = || Error::usage(format!("\"{text}\" is no URL of http or https"));
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        let port_at = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
        let (host, port) = match port_at {
            Some(at) => (&authority[..at], authority[at + 1..].parse().map_err(|_| wrong())?),
            None => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let target = behind.split('#').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || host.contains('@') || !text.chars().all(is_plain) {
            return Err(wrong());
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Url { is_tls, host, port, authority, target: format!("{slash}{target}") })
    }
}

/// Asks a URL; an error says what is wrong.
fn ask(text: &str, timeout: Duration) -> Result<(), Error> {
    let url = Url::parse(text)?;
    let until = Instant::now() + timeout;
    let addresses =
        (url.host, url.port).to_socket_addrs().map_err(|e| Error::peer(format!("{text}: {e}")))?;
    let mut failed = format!("{text}: no address");
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        match connect(address, left).and_then(|stream| exchange(&url, stream, until)) {
            Ok(200..400) => return Ok(()),
            Ok(status) => return Err(Error::peer(format!("{text}: status {status}"))),
            Err(e) => failed = format!("{text} at {address}: {e}"),
        }
    }
    Err(Error::peer(failed))
}

fn connect(address: std::net::SocketAddr, left: Duration) -> std::io::Result<TcpStream> {
    if left.is_zero() {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    TcpStream::connect_timeout(&address, left)
}

fn exchange(url: &Url<'_>, stream: TcpStream, until: Instant) -> std::io::Result<u16> {
    let mut stream = Timed { stream, until };
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir-healthcheck\r\nConnection: close\r\n\r\n",
        url.target, url.authority
    );
    if !url.is_tls {
        stream.write_all(head.as_bytes())?;
        return status(&mut stream);
    }
    let name = ServerName::try_from(url.host.to_owned()).map_err(std::io::Error::other)?;
    let connection = ClientConnection::new(config()?, name).map_err(std::io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(connection, stream);
    tls.write_all(head.as_bytes())?;
    status(&mut tls)
}

/// The status of the final response.
fn status(stream: &mut impl Read) -> std::io::Result<u16> {
    let bad = || std::io::Error::other("the answer is not HTTP");
    let (mut head, mut byte, mut read) = (Vec::new(), [0], 0);
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            read += 1;
            if read > HEAD_MAX || stream.read(&mut byte)? == 0 {
                return Err(bad());
            }
            head.push(byte[0]);
        }
        let line = head.strip_prefix(b"HTTP/1.").ok_or_else(bad)?;
        let digits = line.get(2..5).and_then(|code| std::str::from_utf8(code).ok());
        let status: u16 = digits.and_then(|code| code.parse().ok()).ok_or_else(bad)?;
        // Interim responses (RFC 9110 section 15.2) come before it.
        if status >= 200 {
            return Ok(status);
        }
    }
}

/// A connection whose reads and writes end at a moment.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(std::io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

/// The kernel tells the end of a time as if the call would block.
fn in_words(e: std::io::Error) -> std::io::Error {
    match e.kind() {
        std::io::ErrorKind::WouldBlock => std::io::ErrorKind::TimedOut.into(),
        _ => e,
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(to).map_err(in_words)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn config() -> std::io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?;
    let any = Arc::new(AnyCertificate(provider));
    let builder = builder.dangerous().with_custom_certificate_verifier(any);
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Accepts every certificate; the handshake must still be signed with its key.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let of = |text| {
            let url: Url<'_> = Url::parse(text).unwrap();
            (url.is_tls, url.host.to_owned(), url.port, url.authority.to_owned(), url.target)
        };
        let own = |text: &str| text.to_owned();
        assert_eq!(of("http://a:8080/x?y#z"), (false, own("a"), 8080, own("a:8080"), own("/x?y")));
        assert_eq!(of("HTTPS://[::1]?q"), (true, own("::1"), 443, own("[::1]"), own("/?q")));
        assert_eq!(of("http://[::1]:81"), (false, own("::1"), 81, own("[::1]:81"), own("/")));
        for bad in ["a", "ftp://a", "http://", "http://a:x/", "http://a b/", "http://u@a/"] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_final_status_counts() {
        let of = |text: &str| status(&mut text.as_bytes()).ok();
        assert_eq!(of("HTTP/1.1 204 x\r\n\r\n"), Some(204));
        assert_eq!(of("HTTP/1.1 103 x\r\nLink: y\r\n\r\nHTTP/1.1 503 z\r\n\r\n"), Some(503));
        for bad in ["", "HTTP/1.1 200 x\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 xyz\r\n\r\n"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
