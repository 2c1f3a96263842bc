//! `weir serve DOMAIN...`: HTTPS with certificates by ACME, and the redirects to it.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;

use engine::Place;
use net::resolver::system_servers;
use server::environ::Environ;
use server::places::state_folder;

use crate::error::Error;

/// The authority of servers that name none.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The switches that go with domains, as they were typed.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Domains {
    /// In lower case.
    pub(crate) names: Vec<String>,
    http: Option<String>,
    email: Option<String>,
    directory: Option<String>,
    directory_ca: Option<String>,
    resolver: Option<String>,
}

/// Whether an argument looks like a domain: two labels at least, and nothing of a path.
pub(crate) fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        !label.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let top = text.rsplit('.').next().unwrap_or_default();
    text.contains('.') && text.split('.').all(is_label) && top.parse::<u64>().is_err()
}

impl Domains {
    /// The options, by their names.
    pub(crate) fn new(option: impl Fn(&str) -> Option<String>) -> Domains {
        Domains {
            names: Vec::new(),
            http: option("http"),
            email: option("email"),
            directory: option("directory"),
            directory_ca: option("directory-ca"),
            resolver: option("resolver"),
        }
    }

    /// Whether there are switches and no domain.
    pub(crate) fn lacks_names(&self) -> bool {
        self.names.is_empty() && *self != Domains::default()
    }
}

/// A server under TLS, checked against the system.
pub(crate) struct Https {
    names: Vec<String>,
    /// The addresses of redirects and challenges, and those under TLS.
    plain: Vec<String>,
    secured: Vec<String>,
    email: Option<String>,
    directory: String,
    directory_ca: Option<PathBuf>,
    resolvers: Vec<String>,
    folder: PathBuf,
}

/// The addresses to listen on: that one, or all with the default port.
fn addresses(typed: Option<String>, port: u16) -> Result<Vec<String>, Error> {
    let Some(typed) = typed else {
        let mut all = vec![format!("0.0.0.0:{port}")];
        if TcpListener::bind("[::1]:0").is_ok() {
            all.push(format!("[::]:{port}"));
        }
        return Ok(all);
    };
    let full = match typed.parse::<u16>() {
        Ok(port) => format!("0.0.0.0:{port}"),
        Err(_) if typed.starts_with(':') => format!("0.0.0.0{typed}"),
        Err(_) => typed.clone(),
    };
    match full.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => Ok(vec![address.to_string()]),
        _ => Err(Error::usage(format!("\"{typed}\" is not an address to listen on"))),
    }
}

/// A text for the configuration, in which nothing may have a meaning.
fn plain(name: &str, text: String) -> Result<String, Error> {
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"'\\$;{}#".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text),
        false => Err(Error::usage(format!("{name}: \"{text}\" cannot be used"))),
    }
}

impl Https {
    /// Checks what was typed. `listen` is the address under TLS.
    ///
    /// # Errors
    /// An address is none, or there is no place for keys, or no name server.
    pub(crate) fn new(
        asked: Domains,
        listen: Option<String>,
        environ: &Environ,
    ) -> Result<Https, Error> {
        let check = |name, value: Option<String>| value.map(|v| plain(name, v)).transpose();
        let directory = check("--directory", asked.directory)?;
        let directory = directory.unwrap_or_else(|| DIRECTORY.to_owned());
        let host = directory.split("://").nth(1).unwrap_or_default();
        let host: String = host
            .chars()
            .take_while(|c| *c != '/')
            .map(|c| if c == ':' { '-' } else { c })
            .collect();
        if host.is_empty() {
            return Err(Error::usage(format!("--directory: \"{directory}\" is no URL")));
        }
        let place =
            state_folder(environ).ok_or_else(|| Error::system("no folder for keys can be made"))?;
        place.make().map_err(|e| Error::system(format!("the folder for keys: {e}")))?;
        let Place::Folder(folder) = place else { return Err(Error::system("no folder for keys")) };
        let folder = folder.join(format!("acme-{host}"));
        plain("the folder for keys", folder.to_string_lossy().into_owned())?;
        let resolvers = match check("--resolver", asked.resolver)? {
            Some(resolver) => vec![resolver],
            None => {
                let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
                system_servers(&text).iter().map(ToString::to_string).collect()
            }
        };
        if resolvers.is_empty() {
            return Err(Error::system("/etc/resolv.conf names no server: --resolver ADDR does"));
        }
        let ca = check("--directory-ca", asked.directory_ca)?.map(std::path::absolute);
        Ok(Https {
            names: asked.names,
            plain: addresses(asked.http, 80)?,
            secured: addresses(listen, 443)?,
            email: check("--email", asked.email)?,
            directory,
            directory_ca: ca
                .transpose()
                .map_err(|e| Error::usage(format!("--directory-ca: {e}")))?,
            resolvers,
            folder,
        })
    }

    /// The port behind the names in URLs; none for the usual one.
    fn port(&self) -> String {
        let port = self.secured.first().and_then(|address| address.rsplit(':').next());
        port.filter(|port| *port != "443").map(|port| format!(":{port}")).unwrap_or_default()
    }

    /// The address for a browser.
    pub(crate) fn shown(&self) -> String {
        format!("https://{}{}/", self.names.join(" "), self.port())
    }

    /// The lines about certificates at the start.
    pub(crate) fn explain(&self) -> String {
        let (directory, folder) = (&self.directory, self.folder.display());
        format!(
            "Certificates come from {directory}; running this accepts its terms of service.\n\
             They are kept in {folder}. HTTP at {} is redirected to HTTPS.\n",
            self.plain.join(" ")
        )
    }

    /// The issuer, and the server of redirects.
    pub(crate) fn http(&self) -> String {
        let listens: String = self.plain.iter().map(|at| format!("listen {at};\n")).collect();
        let email = self.email.as_ref().map(|email| format!("contact {email};\n"));
        let ca = self.directory_ca.as_ref();
        let ca = ca.map(|ca| format!("ssl_trusted_certificate {};\n", ca.display()));
        format!(
            "resolver {};\nacme_issuer weir {{\nuri {};\nstate_path {};\n{}{}\
             accept_terms_of_service;\n}}\n\
             server {{\n{listens}server_name {};\nreturn 301 https://$host{}$request_uri;\n}}\n",
            self.resolvers.join(" "),
            self.directory,
            self.folder.display(),
            email.unwrap_or_default(),
            ca.unwrap_or_default(),
            self.names.join(" "),
            self.port()
        )
    }

    /// The first lines of the server under TLS.
    pub(crate) fn server(&self) -> String {
        let listens: String = self.secured.iter().map(|at| format!("listen {at} ssl;\n")).collect();
        format!(
            "{listens}http2 on;\nserver_name {};\nacme_certificate weir;\n\
             ssl_certificate $acme_certificate;\nssl_certificate_key $acme_certificate_key;\n",
            self.names.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_look_like_domains() {
        for domain in ["a.test", "www.a-b.example", "XN--e1afmkfd.test"] {
            assert!(is_domain(domain), "{domain}");
        }
        for other in ["site", "./site", "a/b.test", ".", "..", "a..b", "127.0.0.1", "a_b.c", ""] {
            assert!(!is_domain(other), "{other}");
        }
    }

    #[test]
    fn addresses_in_the_forms_people_type() {
        assert_eq!(addresses(Some("8443".into()), 443).unwrap(), ["0.0.0.0:8443"]);
        assert_eq!(addresses(Some(":8443".into()), 443).unwrap(), ["0.0.0.0:8443"]);
        assert_eq!(addresses(Some("127.0.0.1:1".into()), 443).unwrap(), ["127.0.0.1:1"]);
        assert!(addresses(Some("nowhere".into()), 443).is_err());
        assert_eq!(addresses(None, 443).unwrap()[0], "0.0.0.0:443");
        assert!(plain("--email", "a;b".into()).is_err());
    }
}
