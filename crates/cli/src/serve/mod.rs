//! `weir serve`: a site from a folder or file, or a proxy before a server, without a configuration
//! file; with domains under HTTPS.
//!
//! The command writes a configuration to a folder of its own below the system's folder for
//! temporary files, so that this is the same server reading the same language; the folder is
//! removed when the server ends.

mod account;
mod address;
mod configuration;
mod content;
mod domains;
mod error_pages;
mod proxy;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, ValueHint, value_parser};
use pki::issue::local::is_local;
use server::environ::Environ;
use server::start;
use server::typed::Typed;

use crate::authority::{self, Authority};
use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::{line, trust};
use account::Account;
use content::{Content, FolderOptions};
use domains::{Domains, Https, is_domain};
use proxy::{Proxied, Trust};

/// The first port that is tried.
const PORT: u16 = 8080;
/// The same under TLS.
const HTTPS_PORT: u16 = 8443;

/// `weir serve`
pub(crate) const COMMAND: Command = Command {
    name: "serve",
    doc: "serve a folder or file, or proxy a server, without a configuration file",
    about: "For local development, to try Weir, and for a site that needs no configuration. \
            Without a word it serves the current folder. Text is compressed, each request is \
            shown in a line, and names that begin with a dot are not served.\n\n\
            Only this machine can reach the server unless --lan or --listen says otherwise. A \
            DOMAIN is served to all, over HTTPS on port 443, with a certificate by ACME; HTTP on \
            port 80 is redirected.\n\n\
            A server of root reads files with the rights of the folder's owner, or of nobody if \
            that is root.",
    args,
    files: &[
        ("~/.local/share/weir/", "The authority of --https; weir trust installs it."),
        ("/tmp/weir-serve-PID/", "The configuration that it runs, and temporary files."),
        ("/var/lib/weir/, ~/.local/state/weir/", "Keys and certificates of domains."),
    ],
    environment: &[
        ("XDG_DATA_HOME", "The folder of the authority, in place of ~/.local/share."),
        ("TMPDIR", "The folder for temporary files, in place of /tmp."),
        ("STATE_DIRECTORY, XDG_STATE_HOME", "The folder for keys of domains."),
    ],
    examples: &[
        ("weir serve", "The current folder."),
        ("weir serve ./public --port 3000 --lan", "A folder, for all in the network."),
        ("weir serve report.pdf --lan", "One file, and nothing else."),
        ("weir serve dist --spa", "An application whose paths are all index.html."),
        ("weir serve --https", "HTTPS for localhost; see weir trust."),
        ("weir serve --proxy localhost:3000", "Another server."),
        ("weir serve example.com --proxy localhost:3000", "A server behind HTTPS."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn args() -> Vec<Arg> {
    const DOMAINS: &str = "Options with a domain";
    let of_domains = |name, value, doc| line::valued(name, value, doc).help_heading(DOMAINS);
    vec![
        Arg::new("WHAT")
            .num_args(..)
            .value_parser(ValueParser::os_string())
            .value_hint(ValueHint::AnyPath)
            .value_name("DIR|FILE|DOMAIN")
            .help("The folder or file to serve, and domains to serve it under"),
        line::valued("port", "N", "The port [default: the first free one from 8080 to 8089]")
            .value_parser(value_parser!(u16))
            .conflicts_with("listen"),
        line::option("lan", "Also serve the network, not only this machine")
            .conflicts_with("listen"),
        line::option(
            "https",
            "Serve HTTPS for localhost, by an authority of your own (also --tls)",
        )
        .alias("tls"),
        line::valued("listen", "ADDR", "The address to listen on: host:port, host or port"),
        line::option("spa", "Answer unknown paths with index.html")
            .conflicts_with_all(["no-browse", "proxy"]),
        line::option("no-browse", "Answer 403 for folders without index.html, do not list them"),
        line::option("browse", "List them, as it does anyway").overrides_with("no-browse"),
        line::option("hidden", "Also serve names that begin with a dot"),
        line::valued(
            "proxy",
            "URL",
            "The server to proxy: http://host:port/path, https://host, host:port or port",
        ),
        line::option("insecure", "Do not check the certificate of an https URL"),
        Arg::new("quiet")
            .short('q')
            .long("quiet")
            .action(clap::ArgAction::SetTrue)
            .help("Show errors alone, and no lines of requests"),
        line::valued("user", "NAME", "As root: the user whose rights the server has")
            .value_hint(ValueHint::Username),
        of_domains("http", "ADDR", "Where HTTP is redirected [default: port 80]"),
        of_domains("email", "EMAIL", "Contact address for the ACME account"),
        of_domains("directory", "URL", "Another ACME server than Let's Encrypt"),
        of_domains("directory-ca", "FILE", "CA certificates that verify that server"),
        of_domains("resolver", "ADDR", "DNS server [default: those of /etc/resolv.conf]"),
    ]
}

/// The arguments of `serve`.
#[derive(Default, Debug, PartialEq, Eq)]
struct Asked {
    path: Option<PathBuf>,
    folder: FolderOptions,
    address: address::Asked,
    proxy: Option<String>,
    insecure: bool,
    https: bool,
    quiet: bool,
    user: Option<String>,
    domains: Domains,
}

/// How clients reach the site.
enum Door {
    /// Over plain HTTP.
    Plain(address::Chosen),
    /// Under TLS, with a certificate of the user's own authority.
    Local(address::Chosen, Authority),
    /// At these domains, under TLS.
    Secured(Https),
}

/// A site, checked against the system.
struct Site {
    content: Content,
    door: Door,
    /// The account that a server of root becomes.
    account: Option<Account>,
    /// Requests are shown in lines.
    lines: bool,
}

fn run(matches: &ArgMatches) -> ExitCode {
    let environ = Environ::capture();
    let site = match parse(matches).and_then(|asked| Site::new(asked, &environ)) {
        Ok(site) => site,
        Err(error) => return refuse(&error),
    };
    let shared = site.account.is_some() || matches!(site.door, Door::Secured(_));
    let place = match SiteFolder::make(shared) {
        Ok(place) => place,
        Err(e) => return refuse(&Error::system(format!("no folder for temporary files: {e}"))),
    };
    let conf_file = place.0.join("nginx.conf");
    if let Err(e) = fs::write(&conf_file, configuration::text(&site)) {
        return refuse(&Error::File(conf_file, e));
    }
    if let Door::Local(at, authority) = &site.door
        && let Err(error) = authority.certify(&at.certified(), &place.0)
    {
        return refuse(&error);
    }
    print!("{}", site.announcement());
    let typed = Typed {
        prefix: Some(place.0.as_os_str().as_bytes().to_vec()),
        conf_file: Some(b"nginx.conf".to_vec()),
        error_log: Some(Vec::new()),
        ..Typed::default()
    };
    let opened = site.door.into_socket().map(OwnedFd::from).into_iter().collect();
    start::run_on(opened, &typed, std::env::args_os().collect(), environ)
}

fn refuse(error: &Error) -> ExitCode {
    error.report("serve", 1)
}

fn parse(matches: &ArgMatches) -> Result<Asked, Error> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let mut asked = Asked {
        path: None,
        folder: FolderOptions {
            no_browse: matches.get_flag("no-browse"),
            spa: matches.get_flag("spa"),
            hidden: matches.get_flag("hidden"),
        },
        address: address::Asked {
            listen: text("listen"),
            port: matches.get_one("port").copied(),
            lan: matches.get_flag("lan"),
        },
        proxy: text("proxy"),
        insecure: matches.get_flag("insecure"),
        https: matches.get_flag("https"),
        quiet: matches.get_flag("quiet"),
        user: text("user"),
        domains: Domains::new(text),
    };
    let mut paths = Vec::new();
    for word in matches.get_many::<OsString>("WHAT").into_iter().flatten() {
        let text = word.to_string_lossy();
        if is_domain(&text) && !Path::new(word).exists() {
            asked.domains.names.push(text.to_ascii_lowercase());
        } else {
            paths.push(PathBuf::from(word));
        }
    }
    if let [first, second, ..] = &paths[..] {
        return Err(Error::usage(format!(
            "one folder or file at a time, not {} and {}: serve the folder that holds them, or run \
             one server for each",
            first.display(),
            second.display()
        )));
    }
    asked.path = paths.pop();
    let of_folder = asked.folder != FolderOptions::default();
    let message = match &asked {
        Asked { path: Some(_), proxy: Some(_), .. } => "a folder or --proxy, not both",
        Asked { proxy: Some(_), .. } if of_folder => "--no-browse and --hidden are for a folder",
        Asked { proxy: None, insecure: true, .. } => "--insecure is for --proxy",
        Asked { domains, .. } if domains.lacks_names() => "that option is for domains",
        Asked { domains, address, .. } if !domains.names.is_empty() && address.lan => {
            "domains are served to all: --lan is for a server without them"
        }
        Asked { domains, https: true, .. } if !domains.names.is_empty() => {
            "domains are served over HTTPS anyway: --https is for localhost"
        }
        _ => return Ok(asked),
    };
    Err(Error::usage(message))
}

impl Site {
    /// Checks what was typed against the system.
    fn new(asked: Asked, environ: &Environ) -> Result<Site, Error> {
        let mut content = match &asked.proxy {
            Some(url) => Content::Proxied(Proxied::new(url, Trust::choose(asked.insecure))?),
            None => Content::local(asked.path.as_deref(), asked.folder)?,
        };
        let account = match (os::process::geteuid().is_root(), &asked.user) {
            (true, named) => Some(match account::choose(named.as_deref(), content.path()) {
                Ok(account) => account,
                // Nobody has asked for this folder: a first try as root shows something.
                Err(why) if asked.path.is_none() && asked.folder == FolderOptions::default() => {
                    content = Content::Welcome(why.to_string());
                    account::choose(named.as_deref(), None)?
                }
                Err(why) => return Err(why),
            }),
            (false, None) => None,
            (false, Some(_)) => return Err(Error::usage("--user is for root")),
        };
        let door = match asked.domains.names.is_empty() {
            true if asked.https => {
                let at = asked.address.choose(HTTPS_PORT)?;
                if !at.address.ip().is_unspecified() && !is_local(at.address.ip()) {
                    return Err(Error::usage(format!(
                        "--https: {} is not an address of this machine or of a private network",
                        at.address.ip()
                    )));
                }
                Door::Local(at, Authority::open(authority::folder()?)?)
            }
            true => Door::Plain(asked.address.choose(PORT)?),
            false => {
                let port = asked.address.port.map(|port| port.to_string());
                Door::Secured(Https::new(asked.domains, asked.address.listen.or(port), environ)?)
            }
        };
        // Where standard output is a socket or closed, it cannot be opened as a log.
        let mut options = fs::OpenOptions::new();
        let lines = !asked.quiet && options.append(true).open("/dev/stdout").is_ok();
        Ok(Site { content, door, account, lines })
    }

    /// The text that is printed at the start.
    fn announcement(&self) -> String {
        let (what, more) = self.content.explain();
        let url = self.door.url();
        let account = self.account.as_ref().filter(|account| account.name != "root");
        let account = account.map(|Account { name, .. }| {
            format!("Started by root, it runs with the rights of user {name} (--user: another).\n")
        });
        let shown = match self.lines {
            true => "Requests (-q: not) and errors are shown here.",
            false => "Errors are shown here.",
        };
        format!(
            "Weir {} {what} at {url}{}\n{more}{}{}{shown} Ctrl-C stops it.\n",
            server::VERSION,
            self.content.url_path(),
            self.door.explain(&self.content.url_path()),
            account.unwrap_or_default(),
        )
    }
}

impl Door {
    /// The socket that listens already, where this program has chosen the address.
    fn into_socket(self) -> Option<TcpListener> {
        match self {
            Door::Plain(at) | Door::Local(at, _) => Some(at.socket),
            Door::Secured(_) => None,
        }
    }

    /// The URL for a browser on this machine.
    fn url(&self) -> String {
        match self {
            Door::Plain(at) => format!("http://{}/", address::local(at.address)),
            Door::Local(at, _) => format!("https://{}/", at.host()),
            Door::Secured(https) => https.shown(),
        }
    }

    /// Further lines of the announcement. `path` is that of URLs.
    fn explain(&self, path: &str) -> String {
        let (scheme, at) = match self {
            Door::Plain(at) => ("http", at),
            Door::Local(at, _) => ("https", at),
            Door::Secured(https) => return https.explain(),
        };
        let trust = match self {
            Door::Local(_, authority) if !trust::is_trusted(authority) => format!(
                "Browsers warn of its certificate until \"weir trust\" has installed {}.\n",
                authority.certificate().display()
            ),
            _ => String::new(),
        };
        let port = at.address.port();
        let taken = at.taken.map(|taken| format!("Port {taken} is taken: {port} is used.\n"));
        let network = match (at.address.ip(), address::in_network()) {
            (ip, Some(own)) if ip.is_unspecified() => {
                let own = std::net::SocketAddr::new(own, port);
                format!("In the network: {scheme}://{own}/{path}\n")
            }
            (ip, Some(own)) if ip.is_loopback() => {
                format!("Only this machine can reach it; --lan serves the network, at {own}.\n")
            }
            _ => String::new(),
        };
        taken.unwrap_or_default() + &network + &trust
    }

    /// The directives of `http` that its server needs.
    fn http(&self) -> String {
        match self {
            Door::Plain(_) | Door::Local(..) => String::new(),
            Door::Secured(https) => https.http(),
        }
    }

    /// The first directives of the server.
    fn server(&self) -> String {
        match self {
            Door::Plain(at) => format!("listen {};\n", at.address),
            Door::Local(at, _) => format!(
                "listen {} ssl;\nhttp2 on;\nssl_certificate {};\nssl_certificate_key {};\n\
                 error_page 497 =301 https://$http_host$request_uri;\n",
                at.address,
                authority::SERVER[0],
                authority::SERVER[1]
            ),
            Door::Secured(https) => https.server(),
        }
    }
}

/// The folder of one run.
struct SiteFolder(PathBuf, u32);

impl SiteFolder {
    /// Makes it; `shared` with processes of another user.
    fn make(shared: bool) -> io::Result<SiteFolder> {
        let path = std::env::temp_dir().join(format!("weir-serve-{}", std::process::id()));
        // Only ours, and made now: a folder that someone else laid there is not used.
        fs::DirBuilder::new().mode(if shared { 0o711 } else { 0o700 }).create(&path)?;
        Ok(SiteFolder(path, std::process::id()))
    }
}

impl Drop for SiteFolder {
    fn drop(&mut self) {
        // A worker that ends is no end of the server.
        if std::process::id() == self.1 {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<Asked, Error> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        parse(&COMMAND.parse(&args).map_err(|e| Error::usage(e.to_string()))?)
    }

    #[test]
    fn what_is_typed() {
        let a = asked(&["site", "--no-browse", "--listen", "8081"]).unwrap();
        assert_eq!(a.path.as_deref(), Some(Path::new("site")));
        assert!(a.folder.no_browse);
        assert!(!asked(&["site", "--no-browse", "--browse"]).unwrap().folder.no_browse);
        assert_eq!(a.address.listen.as_deref(), Some("8081"));
        assert_eq!(asked(&["--listen=:9000"]).unwrap().address.listen.as_deref(), Some(":9000"));
        assert_eq!(asked(&["--proxy=:9000"]).unwrap().proxy.as_deref(), Some(":9000"));
        let a = asked(&["--port", "3000", "--lan", "--spa", "-q"]).unwrap();
        assert_eq!((a.address.port, a.address.lan), (Some(3000), true));
        assert!(a.folder.spa && a.quiet && a.path.is_none());
        for wrong in [
            &["site", "--proxy", "8000"][..],
            &["--proxy"],
            &["--proxy", "8000", "--spa"],
            &["--proxy", "8000", "--hidden"],
            &["--insecure"],
            &["site", "--insecure"],
            &["--port", "65536"],
            &["--port", "80", "--listen", "80"],
            &["--lan", "--listen", "80"],
            &["--spa", "--no-browse"],
            &["a.test", "--lan"],
            &["a.test", "--https"],
            &["--email", "a@a.test"],
            &["--listen"],
        ] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
        let error = asked(&["a", "b"]).unwrap_err().to_string();
        assert!(error.contains("one folder or file at a time, not a and b"), "{error}");
    }
}
