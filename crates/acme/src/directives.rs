//! The directives, their setters, and the resulting configuration.

use std::path::PathBuf;
use std::rc::Rc;

use conf::table::{Args, Contexts as C, Directive};
use conf::value::{set_flag, set_once};
use conf::{ConfError, Node, Word};
use engine::TempPath;
use engine::tls_files::Named;
use engine::zones::name_and_size;
use http::core_directives::directive;
use http::cx::{Block, Cx};
use http::module::Conf;
use pki::issue::{Key, KeyKind};
use pki::pem::{Secret, read_secret};
use proto::acme::Identifier;
use upstream::resolver::Resolving;
use upstream::ssl::SslDraft;

use crate::issuer::{AccountKey, ExternalKey, Issuer, Order, Proof, Secrets, SharedPath};
use crate::zone;

pub(crate) static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "acme_issuer",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "Defines a certificate authority to use over ACME (RFC 8555).",
        acme_issuer,
    ),
    directive(
        "acme_shared_zone",
        C::HTTP,
        Args::T1,
        "zone=ngx_acme_shared:256k",
        "The shared memory zone in which workers see certificates and challenges.",
        acme_shared_zone,
    ),
    directive(
        "acme_certificate",
        C::SERVER,
        Args::ONE_MORE,
        "",
        "Obtains a certificate from an issuer, for the given names or those of `server_name`.",
        acme_certificate,
    ),
    directive("uri", C::ACME_ISSUER, Args::T1, "", "The URL of the ACME directory.", |cx, n| {
        set_once(&mut draft(cx).uri, n, |n| uri(n.arg(0)?))
    }),
    directive(
        "account_key",
        C::ACME_ISSUER,
        Args::T1,
        "ecdsa:256",
        "The account key: a file, or the type to generate (`ecdsa:256`, `rsa:2048`, …).",
        account_key,
    ),
    directive(
        "challenge",
        C::ACME_ISSUER,
        Args::T12,
        "http-01",
        "The challenge type: http-01, tls-alpn-01, or (Weir's own) dns-01 exec=PROGRAM.",
        challenge,
    ),
    directive(
        "common_name_in_csr",
        C::ACME_ISSUER,
        Args::FLAG,
        "off",
        "Also puts the first name into the request's subject (its Common Name).",
        |cx, n| set_flag(&mut draft(cx).common_name, n),
    ),
    directive(
        "contact",
        C::ACME_ISSUER,
        Args::T1,
        "",
        "Contact URL of the account's owner, for example mailto:admin@example.com.",
        contact,
    ),
    directive(
        "external_account_key",
        C::ACME_ISSUER,
        Args::T2,
        "",
        "External account binding: the key identifier and the MAC key from the authority.",
        external_account_key,
    ),
    directive(
        "preferred_chain",
        C::ACME_ISSUER,
        Args::T1,
        "",
        "If several chains are offered, takes the one whose top certificate has this issuer.",
        |cx, n| set_once(&mut draft(cx).chain, n, |n| text(n.arg(0)?)),
    ),
    directive(
        "profile",
        C::ACME_ISSUER,
        Args::T12,
        "",
        "The certificate profile to request; with `require`, fails if it is not offered.",
        |cx, n| set_once(&mut draft(cx).profile, n, profile),
    ),
    directive(
        "ssl_trusted_certificate",
        C::ACME_ISSUER,
        Args::T1,
        "the system's",
        "CA certificates for verifying the ACME server.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            set_once(&mut draft(cx).trusted, n, |_| Ok(named))
        },
    ),
    directive(
        "ssl_verify",
        C::ACME_ISSUER,
        Args::FLAG,
        "on",
        "Verifies the ACME server's certificate.",
        |cx, n| set_flag(&mut draft(cx).verify, n),
    ),
    directive(
        "state_path",
        C::ACME_ISSUER,
        Args::ONE_MORE,
        "acme_NAME",
        "The directory for account, certificates and keys; `off` keeps them in memory only. With \
         (Weir's own) `sync=KEY`, all servers of `shared_state` have the same content; of several \
         `sync=KEY`, the first encrypts and all decrypt.",
        state_path,
    ),
    directive(
        "accept_terms_of_service",
        C::ACME_ISSUER,
        Args::NONE,
        "",
        "Agrees to the certificate authority's terms of service.",
        |cx, n| set_once(&mut draft(cx).agrees, n, |_| Ok(())),
    ),
];

/// The directives of an `acme_issuer` block.
#[derive(Default)]
struct Draft {
    uri: Option<String>,
    account_key: Option<AccountKey>,
    proof: Option<Proof>,
    common_name: Option<bool>,
    contacts: Vec<String>,
    external: Option<(String, ExternalKey)>,
    chain: Option<String>,
    profile: Option<(String, bool)>,
    trusted: Option<Named>,
    verify: Option<bool>,
    folder: Option<Option<PathBuf>>,
    shared: Option<SharedPath>,
    agrees: Option<()>,
}

impl Conf for Draft {}

fn draft(cx: &mut Cx) -> &mut Draft {
    cx.loc::<Draft>()
}

/// An issuer that has no orders yet, and the position of its name in the configuration.
struct Defined {
    at: Word,
    issuer: Issuer,
}

/// The module's settings in `http`.
#[derive(Default)]
pub(crate) struct Acme {
    defined: Vec<Defined>,
    zone: Option<(Word, Vec<u8>, usize)>,
    /// The issuers with their orders; set after all servers were read.
    pub issuers: Vec<Rc<Issuer>>,
    pub shared: Option<Rc<zone::Shared>>,
}

impl Conf for Acme {}

/// `acme_certificate` of a server.
#[derive(Default)]
pub(crate) struct Wanted {
    asked: Option<Asked>,
    /// The order; set after all servers were read, because its names may come from `server_name`.
    pub order: Option<Rc<Order>>,
}

// A server inherits none.
impl Conf for Wanted {}

struct Asked {
    at: Word,
    issuer: Vec<u8>,
    names: Vec<Identifier>,
    kind: KeyKind,
}

fn duplicate(n: &Node) -> ConfError {
    ConfError::directive(n, "is duplicate")
}

fn invalid(word: &Word) -> ConfError {
    ConfError::at(word, format!("invalid value \"{}\"", word.lossy()))
}

/// A non-empty value without control characters.
fn text(word: &Word) -> Result<String, ConfError> {
    let text = std::str::from_utf8(word.bytes()).map_err(|_| invalid(word))?;
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(invalid(word));
    }
    Ok(text.to_owned())
}

fn uri(word: &Word) -> Result<String, ConfError> {
    let uri = text(word)?;
    let rest = uri.strip_prefix("https://").or(uri.strip_prefix("http://"));
    let host = rest.unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || !uri.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfError::at(word, format!("invalid URL \"{uri}\"")));
    }
    Ok(uri)
}

/// Parses a key type such as `rsa:2048`; `None` if `text` is something else, that is a file name.
fn key_kind(word: &Word, text: &[u8]) -> Result<Option<KeyKind>, ConfError> {
    let (kind, size) = match memchr::memchr(b':', text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let bits = |sizes: &[&str], message: &str| {
        let size = size.unwrap_or(sizes[0].as_bytes());
        let known = sizes.iter().any(|one| one.as_bytes() == size);
        let bits = base::ascii::parse_u64(size).filter(|_| known);
        let bits = bits.and_then(|bits| u32::try_from(bits).ok());
        bits.ok_or_else(|| ConfError::at(word, format!("{message} in \"{}\"", word.lossy())))
    };
    match kind {
        b"ecdsa" => Ok(Some(KeyKind::Ecdsa(bits(&["256", "384", "521"], "unsupported curve")?))),
        b"rsa" => Ok(Some(KeyKind::Rsa(bits(&["2048", "3072", "4096"], "unsupported key size")?))),
        _ => Ok(None),
    }
}

/// Only checks that the file is readable and valid: the acme process reads the key later, so that
/// the master does not keep it.
fn account_key(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft(cx).account_key.is_some() {
        return Err(duplicate(n));
    }
    let word = n.arg(0)?;
    let key = match key_kind(word, word.bytes())? {
        Some(kind) => AccountKey::Generate(kind),
        None => {
            let path = cx.env.conf_path(word.bytes());
            let tried = read(&path).and_then(|text| Key::from_pem(&text).map_err(BadKeyFile::Key));
            tried.map_err(|e| {
                let m = format!("cannot load account key \"{}\": {e}", path.display());
                ConfError::at(word, m)
            })?;
            AccountKey::File(path)
        }
    };
    draft(cx).account_key = Some(key);
    Ok(())
}

/// The shortest content of the file that `sync=` names, in bytes.
const SECRET_MIN: usize = 32;

fn state_path(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let path = (word.bytes() != b"off").then(|| cx.env.path(word.bytes()));
    let is_off = path.is_none();
    // Their accounts have files of the same names, and each keeps a list of its own on the engine.
    let has_sync = n.args.len() > 1;
    let is_same =
        |of: &Issuer| of.folder == path && (has_sync || of.shared.is_some()) && path.is_some();
    if let Some(other) = cx.main::<Acme>().defined.iter().find(|d| is_same(&d.issuer)) {
        let m =
            format!("issuer \"{}\" has this path, too, which excludes \"sync\"", other.issuer.name);
        return Err(ConfError::at(word, m));
    }
    set_once(&mut draft(cx).folder, n, |_| Ok(path))?;
    let mut keys = Vec::new();
    for parameter in &n.args[1..] {
        keys.push(sync_key(cx, parameter, is_off)?);
    }
    let engine = cx.env.fleet.settings().filter(|_| !keys.is_empty()).cloned();
    draft(cx).shared = engine.map(|engine| SharedPath { engine, keys });
    Ok(())
}

/// Reads `sync=FILE`.
fn sync_key(cx: &mut Cx, parameter: &Word, is_off: bool) -> Result<PathBuf, ConfError> {
    let key = parameter.bytes().strip_prefix(b"sync=").filter(|key| !key.is_empty());
    let key = key.filter(|_| !is_off).ok_or_else(|| {
        ConfError::at(parameter, format!("invalid parameter \"{}\"", parameter.lossy()))
    })?;
    cx.env.fleet.check(parameter)?;
    let key = cx.env.conf_path(key);
    // As with the account's key, the master does not keep it.
    let tried = read(&key).and_then(|text| match text.len() {
        SECRET_MIN.. => Ok(()),
        _ => Err(BadKeyFile::Short),
    });
    tried.map_err(|e| {
        ConfError::at(parameter, format!("cannot load key \"{}\": {e}", key.display()))
    })?;
    Ok(key)
}

/// Why a file has no key.
#[derive(Debug)]
pub(crate) enum BadKeyFile {
    Unread(std::io::Error),
    /// It is no key for signatures.
    Key(pki::issue::Error),
    /// It is no key of an external account.
    External(&'static str),
    /// It is too short for a secret that several servers share.
    Short,
}

impl std::fmt::Display for BadKeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadKeyFile::Unread(e) => write!(f, "open() failed {}", base::log::os_error(e)),
            BadKeyFile::Key(e) => e.fmt(f),
            BadKeyFile::External(why) => f.write_str(why),
            BadKeyFile::Short => write!(f, "it has fewer than {SECRET_MIN} bytes"),
        }
    }
}

/// Reads a file with a secret.
pub(crate) fn read(path: &std::path::Path) -> Result<Secret, BadKeyFile> {
    let file = std::fs::File::open(path);
    file.and_then(read_secret).map_err(BadKeyFile::Unread)
}

fn challenge(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft(cx).proof.is_some() {
        return Err(duplicate(n));
    }
    let word = n.arg(0)?;
    let proof = match (word.bytes(), n.args.get(1)) {
        (b"http" | b"http-01", None) => Proof::Http,
        (b"tls-alpn" | b"tls-alpn-01", None) => Proof::Alpn,
        (b"dns" | b"dns-01", None) => {
            return Err(ConfError::at(word, "\"dns-01\" must have the \"exec\" parameter"));
        }
        (b"dns" | b"dns-01", Some(parameter)) => {
            let program = parameter.bytes().strip_prefix(b"exec=").filter(|p| !p.is_empty());
            let program = program.ok_or_else(|| {
                ConfError::at(parameter, format!("invalid parameter \"{}\"", parameter.lossy()))
            })?;
            Proof::Dns(cx.env.conf_path(program))
        }
        (b"http" | b"http-01" | b"tls-alpn" | b"tls-alpn-01", Some(parameter)) => {
            let m = format!("invalid parameter \"{}\"", parameter.lossy());
            return Err(ConfError::at(parameter, m));
        }
        _ => {
            let m = format!("unsupported challenge: {}", word.lossy());
            return Err(ConfError::at(word, m));
        }
    };
    draft(cx).proof = Some(proof);
    Ok(())
}

fn contact(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let contact = text(n.arg(0)?)?;
    let scheme = contact.split_once(':').map_or("", |(scheme, _)| scheme);
    let in_scheme = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let has_scheme =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(in_scheme);
    let contact = if has_scheme { contact } else { format!("mailto:{contact}") };
    draft(cx).contacts.push(contact);
    Ok(())
}

fn external_account_key(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft(cx).external.is_some() {
        return Err(duplicate(n));
    }
    let (kid, word) = (text(n.arg(0)?)?, n.arg(1)?);
    let key = match word.bytes().strip_prefix(b"data:") {
        Some(data) => ExternalKey::Data(decode_key(data).map_err(|m| ConfError::directive(n, m))?),
        None => {
            let path = cx.env.conf_path(word.bytes());
            let tried =
                read(&path).and_then(|text| decode_key(&text).map_err(BadKeyFile::External));
            tried.map_err(|e| {
                let m = format!("cannot load external account key \"{}\": {e}", path.display());
                ConfError::at(word, m)
            })?;
            ExternalKey::File(path)
        }
    };
    draft(cx).external = Some((kid, key));
    Ok(())
}

/// Decodes a base64url key.
pub(crate) fn decode_key(text: &[u8]) -> Result<Secret, &'static str> {
    let text = text.trim_ascii();
    let mut key = Secret::new(Vec::with_capacity(text.len()));
    if text.is_empty() || !base::base64::decode_url(text, &mut key) {
        return Err("invalid base64url encoded value");
    }
    Ok(key)
}

fn profile(n: &Node) -> Result<(String, bool), ConfError> {
    let required = match n.args.get(1) {
        None => false,
        Some(word) if word.bytes() == b"require" => true,
        Some(word) => return Err(invalid(word)),
    };
    Ok((text(n.arg(0)?)?, required))
}

fn acme_issuer(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let name = text(word)?;
    // The name becomes part of file names.
    if name.contains('/') || name == "." || name == ".." {
        return Err(invalid(word));
    }
    if cx.main::<Acme>().defined.iter().any(|d| d.issuer.name == name) {
        return Err(duplicate(n));
    }
    let mut level = cx.block(n, C::ACME_ISSUER, Block::default())?;
    let draft = std::mem::take(level.get::<Draft>());
    let missing = || ConfError::at(word, "acme_issuer: \"uri\" is missing");
    let uri = draft.uri.clone().ok_or_else(missing)?;
    let folder = match &draft.folder {
        Some(folder) => folder.clone(),
        None => Some(cx.env.temp_folder(&format!("acme_{name}"))),
    };
    if let Some(folder) = &folder {
        cx.need_folder(&TempPath::named(folder.clone(), [0; 3]));
    }
    let tls = tls_of(cx, word, &draft)?;
    let issuer = Issuer {
        name,
        uri,
        account_key: draft.account_key.unwrap_or(AccountKey::Generate(KeyKind::Ecdsa(256))),
        proof: draft.proof.unwrap_or(Proof::Http),
        contacts: draft.contacts,
        common_name_in_csr: draft.common_name.unwrap_or(false),
        external: draft.external,
        preferred_chain: draft.chain,
        profile: draft.profile,
        tls: Rc::new(tls),
        folder,
        shared: draft.shared,
        agrees: draft.agrees.is_some(),
        lookup: Resolving::default().lookup(),
        orders: Vec::new(),
        secrets: Secrets::default(),
    };
    cx.main::<Acme>().defined.push(Defined { at: word.clone(), issuer });
    Ok(())
}

/// The maximum number of intermediate certificates in the ACME server's chain.
const DEPTH: u64 = 9;

fn tls_of(cx: &Cx, word: &Word, draft: &Draft) -> Result<upstream::ssl::UpstreamTls, ConfError> {
    let verify = draft.verify.unwrap_or(true);
    let trusted = match &draft.trusted {
        Some(named) => Some(named.clone()),
        None if !verify => None,
        None => Some(Named::of_system(cx, word, "acme_issuer", "ssl_trusted_certificate")?),
    };
    let settings = SslDraft {
        verify: Some(verify),
        depth: Some(DEPTH),
        trusted,
        server_name: Some(true),
        ..SslDraft::default()
    };
    settings.finish("acme", &["http/1.1"])
}

fn acme_shared_zone(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.main::<Acme>().zone.is_some() {
        return Err(duplicate(n));
    }
    let word = n.arg(0)?;
    let Some(text) = word.bytes().strip_prefix(b"zone=") else {
        return Err(ConfError::directive(n, "must have \"zone\" parameter"));
    };
    let (name, bytes) = name_and_size(word, text)?;
    cx.main::<Acme>().zone = Some((word.clone(), name.to_vec(), bytes));
    Ok(())
}

fn acme_certificate(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.srv::<Wanted>().asked.is_some() {
        return Err(duplicate(n));
    }
    let issuer = n.arg(0)?;
    if issuer.bytes().is_empty() {
        return Err(ConfError::directive(n, "\"issuer\" is missing"));
    }
    let (mut names, mut kind) = (Vec::new(), KeyKind::Ecdsa(256));
    for word in &n.args[1..] {
        if let Some(text) = word.bytes().strip_prefix(b"key=") {
            let invalid = || ConfError::at(word, "invalid \"key\" value");
            kind = key_kind(word, text)?.ok_or_else(invalid)?;
            continue;
        }
        if word.bytes().is_empty() {
            return Err(invalid(word));
        }
        names.extend(identifiers(word, word.bytes())?);
    }
    let issuer = issuer.bytes().to_vec();
    cx.srv::<Wanted>().asked = Some(Asked { at: n.name.clone(), issuer, names, kind });
    Ok(())
}

fn identifiers(at: &Word, text: &[u8]) -> Result<Vec<Identifier>, ConfError> {
    Identifier::parse(text).map_err(|e| {
        let name = base::log::lossy(text);
        ConfError::at(at, format!("\"acme_certificate\": invalid server name: {e} in \"{name}\""))
    })
}

/// Called after the whole configuration was read: assigns the servers' certificates to their
/// issuers, and maps the zone.
pub(crate) fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let mut defined = std::mem::take(&mut cx.main::<Acme>().defined);
    let resolving = cx.main::<Resolving>().clone();
    for level in cx.servers() {
        if level.peek::<Wanted>().is_none() {
            continue;
        }
        let own = level.block.server_names().to_vec();
        let wanted = level.get::<Wanted>();
        let Some(asked) = &mut wanted.asked else { continue };
        if asked.names.is_empty() {
            asked.names = of_server(&asked.at, &own)?;
        }
        let issuer = defined.iter_mut().find(|d| d.issuer.name.as_bytes() == asked.issuer);
        let Some(Defined { issuer, .. }) = issuer else {
            let m = format!("issuer \"{}\" is missing", base::log::lossy(&asked.issuer));
            return Err(ConfError::at(&asked.at, m));
        };
        if let Some(name) = asked.names.iter().find(|name| name.is_wildcard())
            && !matches!(issuer.proof, Proof::Dns(_))
        {
            let m = format!("\"acme_certificate\": \"{name}\" can be proved by dns-01 alone");
            return Err(ConfError::at(&asked.at, m));
        }
        let order = Order::new(&issuer.name, asked.names.clone(), asked.kind);
        let known = issuer.orders.iter().find(|known| ***known == order).cloned();
        wanted.order = Some(known.unwrap_or_else(|| {
            let order = Rc::new(order);
            issuer.orders.push(order.clone());
            order
        }));
    }
    if defined.is_empty() {
        return Ok(());
    }
    for Defined { at, issuer } in &mut defined {
        if resolving.resolver.is_none() {
            return Err(ConfError::at(at, "acme_issuer: \"resolver\" is not configured"));
        }
        issuer.lookup = resolving.lookup();
    }
    let at = defined[0].at.clone();
    let acme = cx.main::<Acme>();
    acme.issuers = defined.into_iter().map(|d| Rc::new(d.issuer)).collect();
    let zone = acme.zone.take();
    let (at, name, bytes) = zone.unwrap_or((at, zone::NAME.to_vec(), zone::BYTES));
    cx.main::<Acme>().shared = Some(zone::map(cx, &at, &name, bytes)?);
    Ok(())
}

/// The server names for which a certificate can be issued.
fn of_server(at: &Word, names: &[engine::names::ServerName]) -> Result<Vec<Identifier>, ConfError> {
    let mut found = Vec::new();
    for name in names {
        if name.regex.is_some() {
            let m = format!(
                "\"acme_certificate\": unsupported regular expression in server_name: {}",
                base::log::lossy(&name.text)
            );
            conf::warn(&name.at, m);
        } else if !name.text.is_empty() {
            found.extend(identifiers(&name.at, &name.text)?);
        }
    }
    if found.is_empty() {
        let m = "\"acme_certificate\": no identifiers found in \"server_name\"";
        return Err(ConfError::at(at, m));
    }
    Ok(found)
}
