//! pebble, a certificate authority that speaks ACME, with its DNS server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::openssl::openssl;
use crate::{Peer, Port};

/// An authority and its DNS server, in which all names are 127.0.0.1.
pub struct Pebble {
    peer: Option<Peer>,
    dns: Peer,
    /// The port of the DNS server.
    dns_port: Port,
    management: Port,
    folder: PathBuf,
    settings: Settings,
}

/// The ways in which an authority differs from the usual.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The port where it looks for challenges by HTTP.
    pub http_port: u16,
    /// The port where it looks for challenges by ALPN.
    pub tls_port: u16,
    /// The life of certificates, seconds.
    pub validity_s: u64,
    /// Of a hundred good nonces, so many are refused.
    pub nonces_refused: u8,
    /// Accounts need to be bound to this one: its identifier, and its key in base64url.
    pub external: Option<(String, String)>,
    /// A port to listen on, where it is not to be any.
    pub port: Option<u16>,
}

impl Settings {
    /// The usual ones.
    pub fn new(http_port: u16, tls_port: u16) -> Settings {
        Settings {
            http_port,
            tls_port,
            validity_s: 3600,
            nonces_refused: 5,
            external: None,
            port: None,
        }
    }
}

const PACKAGE: &str = "pebble";

impl Pebble {
    /// Starts it.
    ///
    /// # Panics
    /// It is missing, or does not start.
    pub fn start(settings: Settings) -> Pebble {
        let (dns_port, management) = (Port::reserve(), Port::reserve());
        let bind = format!("127.0.0.1:{}", dns_port.number());
        let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""];
        let mut arguments = vec!["-management", "127.0.0.1:%PORT%", "-dns01", &bind];
        arguments.extend_from_slice(&off);
        let dns = Peer::start("pebble-challtestsrv", PACKAGE, &[], &arguments);
        let folder = dns.folder().to_owned();
        let names = "subjectAltName=DNS:acme.test,IP:127.0.0.1";
        let kind = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
        let line = format!("req -x509 {kind} -subj /CN=acme.test -addext {names}");
        openssl(&folder, &format!("{line} -keyout acme.key -out acme.crt"));
        let mut pebble = Pebble { peer: None, dns, dns_port, management, folder, settings };
        pebble.go_on();
        pebble
    }

    /// Ends the authority, but not the DNS server.
    pub fn end(&mut self) {
        self.peer = None;
    }

    /// Starts the authority again, without anything that it knew.
    pub fn go_on(&mut self) {
        self.peer = None;
        let (s, folder) = (&self.settings, self.folder.display());
        let external = match &s.external {
            None => r#""externalAccountBindingRequired":false"#.to_owned(),
            Some((id, key)) => format!(
                "\"externalAccountBindingRequired\":true,\
                 \"externalAccountMACKeys\":{{\"{id}\":\"{key}\"}}"
            ),
        };
        // Versions since 2.7 take it from the profile.
        let validity = s.validity_s;
        let listen = s.port.map_or("%PORT%".to_owned(), |port| port.to_string());
        let conf = format!(
            r#"{{"pebble":{{"listenAddress":"127.0.0.1:{listen}",
            "managementListenAddress":"127.0.0.1:{}","certificate":"{folder}/acme.crt",
            "privateKey":"{folder}/acme.key","httpPort":{},"tlsPort":{},
            "ocspResponderURL":"","certificateValidityPeriod":{validity},
            "profiles":{{"default":{{"validityPeriod":{validity}}}}},{external}}}}}"#,
            self.management.number(),
            s.http_port,
            s.tls_port
        );
        let nonces = format!("PEBBLE_WFE_NONCEREJECT={}", s.nonces_refused);
        let server = format!("127.0.0.1:{}", self.dns_port.number());
        let program = ["pebble", "-config", "%DIR%/pebble.json", "-dnsserver", &server];
        let mut arguments = vec!["PEBBLE_VA_NOSLEEP=1", &nonces];
        arguments.extend_from_slice(&program);
        // Authorizations are never taken from an order before: each has its challenge.
        arguments.insert(0, "PEBBLE_AUTHZREUSE=0");
        let files = [("pebble.json", conf.as_str())];
        self.peer = Some(Peer::start_at("env", PACKAGE, &files, &arguments, s.port));
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.settings.port.or(self.peer.as_ref().map(Peer::port)).unwrap_or(0)
    }

    /// The address of its directory.
    pub fn directory(&self) -> String {
        format!("https://acme.test:{}/dir", self.port())
    }

    /// The file of the certificate that verifies its server.
    pub fn trusted(&self) -> PathBuf {
        self.folder.join("acme.crt")
    }

    /// The port of its DNS server.
    pub fn dns_port(&self) -> u16 {
        self.dns_port.number()
    }

    /// The port at which records are set.
    pub fn records_port(&self) -> u16 {
        self.dns.port()
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.peer.as_ref().map(Peer::output).unwrap_or_default()
    }

    /// The number of orders that it has made.
    pub fn orders(&self) -> usize {
        self.output().matches("Added order ").count()
    }

    /// The number of accounts that it has made.
    pub fn accounts(&self) -> usize {
        self.output().matches("accounts in memory").count()
    }

    /// The number of challenges that it has finished looking at, whatever it has found.
    pub fn validations(&self) -> usize {
        self.output().matches("VALID by completed challenge").count()
    }

    /// The paths that it was asked for, without their last parts.
    pub fn asked(&self) -> Vec<String> {
        let output = self.output();
        let calls = output.lines().filter_map(|line| line.split_once(" -> calling handler"));
        let path = |call: &str| call.rsplit(' ').next().unwrap_or_default().to_owned();
        calls.map(|(call, _)| path(call)).collect()
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a command to the DNS server.
    pub fn set(&self, command: &str, json: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.dns.port())).expect("connect");
        let len = json.len();
        let head = format!("POST /{command} HTTP/1.0\r\nContent-Length: {len}\r\n\r\n");
        stream.write_all((head + json).as_bytes()).expect("send a command");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read the answer");
        assert!(answer.contains(" 200 "), "{command}: {answer}");
    }
}
