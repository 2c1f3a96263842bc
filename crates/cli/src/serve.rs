//! `weir serve [DOMAIN...] [DIR | --proxy URL] [--listen ADDR]`: a site from a folder, or a proxy
//! before a server, without a configuration file; with domains under HTTPS.
//!
//! The command writes a configuration to a folder of its own below the system's folder for
//! temporary files, so that this is the same server reading the same language; the folder is
//! removed when the server ends.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, ValueHint};
use server::environ::Environ;
use server::start;
use server::typed::Typed;

use crate::declared::{Command, PLAIN, Run};
use crate::line;
use crate::serve_domains::{Domains, Https, is_domain};
use crate::serve_proxy::{Proxied, Trust};

/// Ports tried, in order, by default.
const PORTS: std::ops::RangeInclusive<u16> = 8080..=8089;

const MIME_TYPES: &str = include_str!("../../../conf/mime.types");

/// The arguments of `serve`.
#[derive(Default, Debug, PartialEq, Eq)]
struct Asked {
    folder: Option<PathBuf>,
    listen: Option<String>,
    no_browse: bool,
    proxy: Option<String>,
    insecure: bool,
    domains: Domains,
}

/// The content of the site.
#[derive(Debug)]
enum Content {
    Welcome,
    Folder { path: PathBuf, browse: bool },
    Proxied(Proxied),
}

/// `weir serve`
pub const COMMAND: Command = Command {
    name: "serve",
    doc: "serve a folder or proxy a server, without a configuration file",
    about: "To try Weir, for local development, and for a site that needs no configuration. \
            Without DIR and --proxy there is a welcome page. Weir takes the first free port of \
            127.0.0.1 from 8080 to 8089, or --listen. A DOMAIN is served over HTTPS on port 443, \
            with a certificate by ACME; HTTP on port 80 is redirected.",
    args,
    examples: &[
        ("weir serve ./public", "A folder."),
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
            .value_name("DIR|DOMAIN")
            .help("The folder to serve, or domains under HTTPS"),
        line::valued("listen", "ADDR", "The address to listen on: host:port, host or port"),
        line::valued(
            "proxy",
            "URL",
            "The server to proxy: http://host:port/path, https://host, host:port or port",
        ),
        line::option("insecure", "Do not check the certificate of an https URL"),
        line::option("no-browse", "Answer 403 for folders without index.html, do not list them"),
        line::option("browse", "List them, as it does anyway").overrides_with("no-browse"),
        of_domains("http", "ADDR", "Where HTTP is redirected [default: port 80]"),
        of_domains("email", "EMAIL", "Contact address for the ACME account"),
        of_domains("directory", "URL", "Another ACME server than Let's Encrypt"),
        of_domains("directory-ca", "FILE", "CA certificates that verify that server"),
        of_domains("resolver", "ADDR", "DNS server [default: those of /etc/resolv.conf]"),
    ]
}

fn run(matches: &ArgMatches) -> ExitCode {
    let environ = Environ::capture();
    let settled = parse(matches).and_then(|asked| settle(asked, &environ));
    let (content, door) = match settled {
        Ok(settled) => settled,
        Err(message) => return refuse(&message),
    };
    let place = match SiteFolder::make(matches!(door, Door::Secured(_))) {
        Ok(place) => place,
        Err(e) => return refuse(&format!("no folder for temporary files: {e}")),
    };
    let text = configuration(&content, &door);
    let conf_file = place.0.join("nginx.conf");
    if let Err(e) = fs::write(&conf_file, text) {
        return refuse(&format!("{}: {e}", conf_file.display()));
    }
    print!("{}", announcement(&content, &door));
    let typed = Typed {
        prefix: Some(place.0.as_os_str().as_bytes().to_vec()),
        conf_file: Some(b"nginx.conf".to_vec()),
        error_log: Some(Vec::new()),
        ..Typed::default()
    };
    start::run(&typed, std::env::args_os().collect(), environ)
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("weir serve: {message}");
    ExitCode::FAILURE
}

/// Where clients come in.
enum Door {
    /// At this address, in plain text.
    Plain(String),
    /// At these domains, under TLS.
    Secured(Https),
}

/// The text that is printed at the start.
fn announcement(content: &Content, door: &Door) -> String {
    let (what, more) = match content {
        Content::Welcome => ("serves its welcome page".to_owned(), String::new()),
        Content::Folder { path, browse } => {
            let more = match browse {
                true => "Folders without an index.html are listed (--no-browse: they are refused).",
                false => "Folders without an index.html are refused.",
            };
            (format!("serves {}", path.display()), format!("{more}\n"))
        }
        Content::Proxied(to) => (format!("proxies {}", to.url()), to.explain()),
    };
    let version = server::VERSION;
    let at = match door {
        Door::Plain(address) => format!("http://{}/", shown(address)),
        Door::Secured(https) => https.shown(),
    };
    let terms = match door {
        Door::Plain(_) => String::new(),
        Door::Secured(https) => https.explain(),
    };
    format!(
        "Weir {version} {what} at {at}\n{more}{terms}\
         Errors are shown here. Ctrl-C stops it.\n"
    )
}

/// Checks what was typed against the system.
fn settle(asked: Asked, environ: &Environ) -> Result<(Content, Door), String> {
    let content = match (&asked.folder, &asked.proxy) {
        (Some(folder), _) => {
            Content::Folder { path: check_folder(folder)?, browse: !asked.no_browse }
        }
        (None, Some(url)) => Content::Proxied(Proxied::new(url, Trust::choose(asked.insecure))?),
        (None, None) => Content::Welcome,
    };
    if !asked.domains.names.is_empty() {
        let https = Https::new(asked.domains, asked.listen, environ)?;
        return Ok((content, Door::Secured(https)));
    }
    let address = asked.listen.map_or_else(free_address, |text| bindable(check_address(&text)?))?;
    Ok((content, Door::Plain(address)))
}

fn parse(matches: &ArgMatches) -> Result<Asked, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let mut asked = Asked {
        listen: text("listen"),
        no_browse: matches.get_flag("no-browse"),
        proxy: text("proxy"),
        insecure: matches.get_flag("insecure"),
        domains: Domains::new(text),
        ..Asked::default()
    };
    for word in matches.get_many::<OsString>("WHAT").into_iter().flatten() {
        let text = word.to_string_lossy();
        if is_domain(&text) && !Path::new(word).exists() {
            asked.domains.names.push(text.to_ascii_lowercase());
        } else if asked.folder.is_some() {
            return Err("one folder at a time".to_owned());
        } else {
            asked.folder = Some(PathBuf::from(word));
        }
    }
    let message = match &asked {
        Asked { folder: Some(_), proxy: Some(_), .. } => "a folder or --proxy, not both",
        Asked { folder: None, no_browse: true, .. } => "--no-browse is for a folder",
        Asked { proxy: None, insecure: true, .. } => "--insecure is for --proxy",
        Asked { domains, .. } if domains.lacks_names() => "that option is for domains",
        _ => return Ok(asked),
    };
    Err(message.to_owned())
}

fn check_folder(folder: &Path) -> Result<PathBuf, String> {
    let fail = |e: io::Error| format!("{}: {e}", folder.display());
    let full = folder.canonicalize().map_err(fail)?;
    fs::read_dir(&full).map_err(fail)?;
    Ok(full)
}

/// `8080`, `:8080`, `127.0.0.1`, `localhost:8080` and so on, as an address with a port.
fn check_address(text: &str) -> Result<String, String> {
    let text = text.trim_start_matches("http://").trim_end_matches('/');
    let full = match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) if text.starts_with(':') => format!("127.0.0.1{text}"),
        Err(_) if text.to_socket_addrs().is_ok() => text.to_owned(),
        Err(_) => format!("{text}:{}", PORTS.start()),
    };
    match full.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(addr)) => Ok(addr.to_string()),
        _ => Err(format!("\"{text}\" is not an address to listen on")),
    }
}

/// An address that the server will get, as far as can be told before: its announcement is the
/// first that people read.
fn bindable(address: String) -> Result<String, String> {
    match TcpListener::bind(&address) {
        Ok(_) => Ok(address),
        Err(e) => Err(format!("{address}: {e}")),
    }
}

fn free_address() -> Result<String, String> {
    PORTS
        .map(|port| format!("127.0.0.1:{port}"))
        .find(|address| TcpListener::bind(address).is_ok())
        .ok_or_else(|| "ports 8080 to 8089 are taken: name one with --listen".to_owned())
}

/// The address for a browser: wildcards are reached through the loopback address.
fn shown(address: &str) -> String {
    address.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
}

/// A string in the configuration language's quotes; `$` cannot be escaped there, so that it becomes
/// a variable which holds one.
fn quoted(path: &Path) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &b in path.as_os_str().as_bytes() {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'$' => out.extend_from_slice(b"${weir_dollar}"),
            _ => out.push(b),
        }
    }
    out.push(b'"');
    out
}

fn configuration(content: &Content, door: &Door) -> Vec<u8> {
    // The values of geo are taken as they stand.
    let dollar = match content {
        Content::Folder { path, .. } if path.as_os_str().as_bytes().contains(&b'$') => {
            "geo $weir_dollar { default \"$\"; }\n"
        }
        Content::Proxied(to) => to.around(),
        _ => "",
    };
    let (process, http, listen) = match door {
        // Workers are to hold no key of the account.
        Door::Secured(https) => ("worker_processes auto;", https.http(), https.server()),
        Door::Plain(address) => {
            ("master_process off;", String::new(), format!("listen {address};\n"))
        }
    };
    let level = if matches!(door, Door::Secured(_)) { "notice" } else { "warn" };
    let mut out = format!(
        "# Made by weir serve; it goes when the server ends.\n\
         daemon off;\n{process}\npid weir.pid;\nlock_file weir.lock;\n\
         error_log stderr {level};\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n{MIME_TYPES}\n\
         default_type application/octet-stream;\nsendfile on;\naccess_log off;\n\
         client_body_temp_path body;\nproxy_temp_path responses;\n\
{dollar}{http}\
         server {{\n{listen}"
    )
    .into_bytes();
    match content {
        Content::Welcome => out.extend_from_slice(b"location / { welcome_page; }\n"),
        Content::Proxied(to) => out.extend_from_slice(to.location().as_bytes()),
        Content::Folder { path, browse } => {
            out.extend_from_slice(b"root ");
            out.extend_from_slice(&quoted(path));
            out.extend_from_slice(b";\n");
            if *browse {
                out.extend_from_slice(b"autoindex on;\n");
            }
        }
    }
    out.extend_from_slice(b"}\n}\n");
    out
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

    fn asked(args: &[&str]) -> Result<Asked, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        parse(&COMMAND.parse(&args).map_err(|e| e.to_string())?)
    }

    #[test]
    fn what_is_typed() {
        let a = asked(&["site", "--no-browse", "--listen", "8081"]).unwrap();
        assert_eq!(a.folder.as_deref(), Some(Path::new("site")));
        assert!(a.no_browse && !asked(&["site", "--browse"]).unwrap().no_browse);
        assert_eq!(a.listen.as_deref(), Some("8081"));
        assert_eq!(asked(&["--listen=:9000"]).unwrap().listen.as_deref(), Some(":9000"));
        assert_eq!(asked(&["--proxy=:9000"]).unwrap().proxy.as_deref(), Some(":9000"));
        for wrong in [
            &["--no-browse"][..],
            &["site", "--proxy", "8000"],
            &["--proxy"],
            &["--insecure"],
            &["site", "--insecure"],
        ] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
        assert!(asked(&["a", "b"]).is_err());
        assert!(asked(&["--port"]).is_err());
        assert!(asked(&["--listen"]).is_err());
    }

    #[test]
    fn addresses_in_the_forms_people_type() {
        assert_eq!(check_address("9000").unwrap(), "127.0.0.1:9000");
        assert_eq!(check_address(":9000").unwrap(), "127.0.0.1:9000");
        assert_eq!(check_address("127.0.0.1").unwrap(), "127.0.0.1:8080");
        assert_eq!(check_address("http://0.0.0.0:80/").unwrap(), "0.0.0.0:80");
        assert!(check_address("no such host").is_err());
        assert_eq!(shown("0.0.0.0:80"), "127.0.0.1:80");
    }

    #[test]
    fn odd_folder_names_stay_one_word() {
        let folder = Content::Folder { path: "/a \"b\\$c;{".into(), browse: false };
        let text = configuration(&folder, &Door::Plain("127.0.0.1:1".into()));
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(r#"root "/a \"b\\${weir_dollar}c;{";"#), "{text}");
        assert!(text.contains("geo $weir_dollar"));
    }
}
