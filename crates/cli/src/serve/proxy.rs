//! `weir serve --proxy URL`: the server to pass requests on to, and its part of the configuration.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

use engine::tls_files::system_bundle;

use crate::error::Error;

/// The verification of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// By the certificates in this file.
    Bundle(PathBuf),
    /// Not at all.
    Any,
    /// The system has no such file.
    Unknown,
}

impl Trust {
    /// The system's bundle, unless `insecure` asks for none.
    pub(crate) fn choose(insecure: bool) -> Trust {
        match insecure {
            true => Trust::Any,
            false => system_bundle().map_or(Trust::Unknown, Trust::Bundle),
        }
    }
}

/// A server to pass requests on to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proxied {
    url: String,
    is_secured: bool,
    trust: Trust,
}

impl Proxied {
    /// Reads `http://host:port/path`, `https://…`, `host:port`, `:port` or `port`.
    ///
    /// # Errors
    /// The text is none of these forms, the name has no address, or certificates cannot be judged.
    pub(crate) fn new(typed: &str, trust: Trust) -> Result<Proxied, Error> {
        let bad = || Error::usage(format!("\"{typed}\" is not a URL to proxy"));
        // Nothing of it may have a meaning in the configuration's language.
        let plain = |c: char| c.is_ascii_graphic() && !"\"'\\$;{}#".contains(c);
        if !typed.chars().all(plain) {
            return Err(bad());
        }
        let (scheme, rest) = typed.split_once("://").unwrap_or(("http", typed));
        let is_secured = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(bad()),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let authority = match authority.parse::<u16>() {
            Ok(port) => format!("127.0.0.1:{port}"),
            Err(_) if authority.starts_with(':') => format!("127.0.0.1{authority}"),
            Err(_) => authority.to_owned(),
        };
        let port = if is_secured { 443 } else { 80 };
        let named_port = authority.to_socket_addrs().is_ok();
        if authority.is_empty() || authority.contains('@') || path.contains('?') {
            return Err(bad());
        }
        if !named_port && format!("{authority}:{port}").to_socket_addrs().is_err() {
            return Err(Error::usage(format!("no address for \"{authority}\"")));
        }
        if is_secured && trust == Trust::Unknown {
            let m = "this system has no CA bundle; --insecure skips the check";
            return Err(Error::system(m));
        }
        // The path takes the place of the site's first slash.
        let slash = if path.is_empty() || path.ends_with('/') { "" } else { "/" };
        let path = if path == "/" { "" } else { path };
        Ok(Proxied { url: format!("{scheme}://{authority}{path}{slash}"), is_secured, trust })
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The lines about it that are printed at the start.
    pub(crate) fn explain(&self) -> String {
        let host = match self.is_secured {
            true => "The server gets its own name as Host",
            false => "The server gets the client's Host",
        };
        let trust = match &self.trust {
            Trust::Bundle(path) if self.is_secured => {
                format!("Its certificate is verified with the CAs in {}.\n", path.display())
            }
            Trust::Any if self.is_secured => "Its certificate is NOT verified.\n".to_owned(),
            _ => String::new(),
        };
        format!("{host}, and X-Forwarded-For, -Host and -Proto.\n{trust}")
    }

    /// The location of the configuration.
    pub(crate) fn location(&self) -> String {
        let host = if self.is_secured { "$proxy_host" } else { "$http_host" };
        let verify = match &self.trust {
            Trust::Bundle(path) if self.is_secured => verify(path),
            _ => String::new(),
        };
        format!(
            "location / {{\nproxy_pass {};\nproxy_set_header Host {host};\n\
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             proxy_set_header X-Forwarded-Host $http_host;\n\
             proxy_set_header X-Forwarded-Proto $scheme;\n\
             proxy_set_header Upgrade $http_upgrade;\n\
             proxy_set_header Connection $weir_connection;\n\
             proxy_http_version 1.1;\nproxy_ssl_server_name on;\n{verify}\
             proxy_buffering off;\nproxy_request_buffering off;\nclient_max_body_size 0;\n\
             proxy_read_timeout 1h;\nproxy_send_timeout 1h;\n}}\n",
            self.url
        )
    }

    /// The directives that its location needs outside of the server.
    pub(crate) fn around(&self) -> &'static str {
        "map $http_upgrade $weir_connection { default upgrade; \"\" \"\"; }\n"
    }
}

fn verify(bundle: &Path) -> String {
    format!(
        "proxy_ssl_verify on;\nproxy_ssl_verify_depth 9;\nproxy_ssl_trusted_certificate {};\n",
        bundle.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(typed: &str) -> Option<String> {
        Proxied::new(typed, Trust::Any).ok().map(|to| to.url)
    }

    #[test]
    fn servers_in_the_forms_people_type() {
        for (typed, want) in [
            ("8000", "http://127.0.0.1:8000"),
            (":8000", "http://127.0.0.1:8000"),
            ("localhost:8000", "http://localhost:8000"),
            ("http://127.0.0.1", "http://127.0.0.1"),
            ("http://127.0.0.1/", "http://127.0.0.1"),
            ("https://127.0.0.1/app", "https://127.0.0.1/app/"),
            ("http://[::1]:81/a/", "http://[::1]:81/a/"),
        ] {
            assert_eq!(url(typed).as_deref(), Some(want), "{typed}");
        }
        for bad in
            ["", "ftp://localhost", "a b", "http://a;b", "http://$x", "http://u@127.0.0.1", "1/?q"]
        {
            assert!(url(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn certificates_are_checked_unless_told_otherwise() {
        let of = |trust| Proxied::new("https://127.0.0.1", trust);
        assert!(of(Trust::Unknown).unwrap_err().to_string().contains("--insecure"));
        let checked = of(Trust::Bundle("/certs".into())).unwrap();
        assert!(checked.location().contains("proxy_ssl_trusted_certificate /certs;"));
        assert!(checked.explain().contains("/certs"));
        assert!(of(Trust::Any).unwrap().explain().contains("NOT verified"));
        let plain = Proxied::new("http://127.0.0.1", Trust::Unknown).unwrap();
        assert!(!plain.location().contains("verify"));
    }
}
