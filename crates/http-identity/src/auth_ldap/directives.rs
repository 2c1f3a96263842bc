//! The directives, and the server that a block of them makes.

use std::path::PathBuf;
use std::rc::Rc;

use base::log::os_error;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{number, set_flag, set_msec, set_num, set_once, set_size};
use conf::{ConfError, Node, Word};
use engine::tls_files::Named;
use http::core_directives::{HSL, directive};
use http::cx::{Block, Cx};
use http::module::Conf;
use proto::ldap::{Filter, Url};
use upstream::resolver::Resolving;
use upstream::ssl::{Fixed, SslDraft, UpstreamTls};
use upstream::url;
use zeroize::Zeroizing;

use super::pool::Pool;
use super::server::{Rules, Search, Security, Server, Timeouts};
use super::{Ldap, LdapConf};

const PORT: u16 = 389;
const PORT_TLS: u16 = 636;

/// Intermediate certificates in the chain of the server's certificate, at most.
const DEPTH: u64 = 9;

/// `connections` is at most that, because each worker keeps so many open.
const CONNECTIONS_MAX: u64 = 1_000;

const HSLX: C = HSL.or(C::LIMIT_EXCEPT);

pub(super) static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "auth_ldap",
        HSLX,
        Args::T1,
        "off",
        "Requires a user name and password that an LDAP server accepts; the argument is the \
         realm, `off` disables. Of nginx-auth-ldap.",
        auth_ldap,
    ),
    directive(
        "auth_ldap_servers",
        HSLX,
        Args::ONE_MORE,
        "",
        "The `ldap_server` blocks to ask, in this order, until one accepts the password.",
        |cx, n| {
            let servers = cx.loc::<LdapConf>().servers.get_or_insert_default();
            Rc::make_mut(servers).extend(n.args.iter().cloned());
            Ok(())
        },
    ),
    directive(
        "auth_ldap_cache_enabled",
        C::HTTP,
        Args::FLAG,
        "off",
        "Remembers which passwords were right, so that a directory need not be asked each time.",
        |cx, n| set_flag(&mut cx.main::<Ldap>().cache_enabled, n),
    ),
    directive(
        "auth_ldap_cache_expiration_time",
        C::HTTP,
        Args::T1,
        "10s",
        "The time for which a right password is remembered, at least 1s.",
        |cx, n| set_msec(&mut cx.main::<Ldap>().cache_ms, n),
    ),
    directive(
        "auth_ldap_cache_size",
        C::HTTP,
        Args::T1,
        "100",
        "The number of right passwords that each worker remembers, at least 100.",
        |cx, n| set_size(&mut cx.main::<Ldap>().cache_size, n),
    ),
    directive(
        "auth_ldap_servers_size",
        C::HTTP,
        Args::T1,
        "",
        "The number of `ldap_server` blocks at most; no limit by default.",
        |cx, n| set_num(&mut cx.main::<Ldap>().servers_max, n),
    ),
    directive(
        "ldap_server",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "Defines an LDAP server, for `auth_ldap_servers`.",
        ldap_server,
    ),
    directive(
        "url",
        C::LDAP_SERVER,
        Args::T1,
        "",
        "The server, and where its users are: ldap[s]://HOST[:PORT]/BASE?ATTRIBUTE?SCOPE?FILTER.",
        |cx, n| set_once(&mut draft(cx).url, n, |n| Ok(n.arg(0)?.clone())),
    ),
    directive(
        "binddn",
        C::LDAP_SERVER,
        Args::T1,
        "",
        "The entry that searches for users run as; without one they are anonymous.",
        |cx, n| set_once(&mut draft(cx).bind_dn, n, |n| Ok(n.arg(0)?.clone())),
    ),
    directive(
        "binddn_passwd",
        C::LDAP_SERVER,
        Args::T1,
        "",
        "The password of `binddn`.",
        |cx, n| {
            set_once(&mut draft(cx).bind_password, n, |n| {
                Ok(Zeroizing::new(n.arg(0)?.bytes().to_vec()))
            })
        },
    ),
    directive(
        "group_attribute",
        C::LDAP_SERVER,
        Args::T1,
        "",
        "The attribute of groups that has their members, for example memberUid.",
        |cx, n| set_once(&mut draft(cx).group_attribute, n, attribute),
    ),
    directive(
        "group_attribute_is_dn",
        C::LDAP_SERVER,
        Args::FLAG,
        "off",
        "Members are in `group_attribute` with the names of their entries, not as users.",
        |cx, n| set_flag(&mut draft(cx).group_has_dns, n),
    ),
    directive(
        "require",
        C::LDAP_SERVER,
        Args::T12,
        "",
        "What a user has to be: valid_user [ENTRY], user ENTRY, or group ENTRY.",
        require,
    ),
    directive(
        "satisfy",
        C::LDAP_SERVER,
        Args::T1,
        "any",
        "Whether all or any `require user` and `require group` must hold.",
        |cx, n| {
            set_once(&mut draft(cx).all, n, |n| match n.arg(0)?.bytes() {
                b"all" => Ok(true),
                b"any" => Ok(false),
                _ => Err(ConfError::directive(n, "must be \"all\" or \"any\"")),
            })
        },
    ),
    directive(
        "max_down_retries",
        C::LDAP_SERVER,
        Args::T1,
        "0",
        "How often a request is tried again over a new connection after one has failed.",
        |cx, n| set_num(&mut draft(cx).retries, n),
    ),
    directive(
        "connections",
        C::LDAP_SERVER,
        Args::T1,
        "1",
        "The connections of each worker to the server; further requests wait for one.",
        |cx, n| {
            set_once(&mut draft(cx).connections, n, |n| match number(n, 0)? {
                count @ 1..=CONNECTIONS_MAX => Ok(count),
                _ => Err(ConfError::directive(n, "must be between 1 and 1000")),
            })
        },
    ),
    directive(
        "referral",
        C::LDAP_SERVER,
        Args::FLAG,
        "off",
        "Only off: servers that another one refers to are never asked.",
        |cx, n| {
            set_flag(&mut draft(cx).referral, n)?;
            if draft(cx).referral == Some(true) {
                let m = "on is not supported: referrals are not followed. Define an \
                         \"ldap_server\" for each server, and name them in \"auth_ldap_servers\"";
                return Err(ConfError::directive(n, m));
            }
            Ok(())
        },
    ),
    directive(
        "starttls",
        C::LDAP_SERVER,
        Args::FLAG,
        "off",
        "Begins TLS on connections to an ldap:// server before anything else is sent. Weir's own.",
        |cx, n| set_flag(&mut draft(cx).starttls, n),
    ),
    directive(
        "ssl_check_cert",
        C::LDAP_SERVER,
        Args::FLAG,
        "off",
        "Verifies the server's certificate and its name.",
        |cx, n| set_flag(&mut draft(cx).verifies, n),
    ),
    directive(
        "ssl_ca_file",
        C::LDAP_SERVER,
        Args::T1,
        "the system's",
        "CA certificates for verifying the server.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            set_once(&mut draft(cx).ca_file, n, |_| Ok(named))
        },
    ),
    directive(
        "ssl_ca_dir",
        C::LDAP_SERVER,
        Args::T1,
        "the system's",
        "A folder with CA certificates in files that are named by hashes, as c_rehash makes it.",
        |cx, n| {
            let word = n.arg(0)?;
            let path = cx.env.conf_path(word.bytes());
            set_once(&mut draft(cx).ca_dir, n, |n| Ok((n.arg(0)?.clone(), path)))
        },
    ),
    directive(
        "connect_timeout",
        C::LDAP_SERVER,
        Args::T1,
        "10s",
        "The time for a connection, with its TLS.",
        |cx, n| set_time(&mut draft(cx).connect_ms, n),
    ),
    directive(
        "reconnect_timeout",
        C::LDAP_SERVER,
        Args::T1,
        "10s",
        "The time for which a server that failed is asked only if no other one could be asked.",
        |cx, n| set_time(&mut draft(cx).reconnect_ms, n),
    ),
    directive(
        "bind_timeout",
        C::LDAP_SERVER,
        Args::T1,
        "5s",
        "The time for the bind as `binddn`.",
        |cx, n| set_time(&mut draft(cx).bind_ms, n),
    ),
    directive(
        "request_timeout",
        C::LDAP_SERVER,
        Args::T1,
        "10s",
        "The time that the server has for a request, from the wait for a connection on.",
        |cx, n| set_time(&mut draft(cx).request_ms, n),
    ),
];

/// The directives of an `ldap_server` block.
#[derive(Default)]
struct Draft {
    url: Option<Word>,
    bind_dn: Option<Word>,
    bind_password: Option<Zeroizing<Vec<u8>>>,
    group_attribute: Option<String>,
    group_has_dns: Option<bool>,
    rules: Rules,
    valid_user: bool,
    all: Option<bool>,
    retries: Option<u64>,
    connections: Option<u64>,
    referral: Option<bool>,
    starttls: Option<bool>,
    verifies: Option<bool>,
    ca_file: Option<Named>,
    ca_dir: Option<(Word, PathBuf)>,
    connect_ms: Option<u64>,
    reconnect_ms: Option<u64>,
    bind_ms: Option<u64>,
    request_ms: Option<u64>,
}

impl Conf for Draft {}

fn draft(cx: &mut Cx) -> &mut Draft {
    cx.loc::<Draft>()
}

fn set_time(field: &mut Option<u64>, n: &Node) -> Result<(), ConfError> {
    set_msec(field, n)?;
    if *field == Some(0) {
        return Err(ConfError::directive(n, "must not be 0"));
    }
    Ok(())
}

fn auth_ldap(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_once(&mut cx.loc::<LdapConf>().realm, n, |n| {
        let word = n.arg(0)?;
        match word.bytes() {
            b"off" => Ok(Bytes::new()),
            b"" => Err(ConfError::at(word, "the realm is empty")),
            realm => Ok(Bytes::copy_from_slice(realm)),
        }
    })
}

fn attribute(n: &Node) -> Result<String, ConfError> {
    let word = n.arg(0)?;
    // An attribute is what a URL may name.
    match Url::parse(&[b"ldap://h/?", word.bytes()].concat()) {
        Ok(Url { attribute: Some(name), .. }) if name.as_bytes() == word.bytes() => Ok(name),
        _ => Err(ConfError::at(word, format!("\"{}\" is no attribute", word.lossy()))),
    }
}

fn require(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let what = n.arg(0)?.clone();
    let entry: Option<Template> = n.args.get(1).map(|word| cx.template(word)).transpose()?;
    let draft = draft(cx);
    match (what.bytes(), entry) {
        (b"valid_user", None) => draft.valid_user = true,
        (b"valid_user", Some(entry)) => {
            if draft.rules.user_dn.replace(entry).is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
        }
        (b"user", Some(entry)) => draft.rules.users.push(entry),
        (b"group", Some(entry)) => draft.rules.groups.push(entry),
        (b"user" | b"group", None) => {
            return Err(ConfError::at(&what, "the name of an entry is missing"));
        }
        _ => {
            let m = format!("invalid parameter \"{}\"", what.lossy());
            return Err(ConfError::at(&what, m).with_help("it is valid_user, user or group"));
        }
    }
    Ok(())
}

fn ldap_server(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let name = word.lossy().into_owned();
    if name.is_empty() {
        return Err(ConfError::at(word, "the name of the server is empty"));
    }
    if cx.main::<Ldap>().defined.iter().any(|server| server.name == name) {
        return Err(ConfError::at(word, format!("duplicate ldap_server \"{name}\"")));
    }
    let mut level = cx.block(n, C::LDAP_SERVER, Block::default())?;
    let draft = std::mem::take(level.get::<Draft>());
    let server = server(cx, word, name, draft)?;
    let ldap = cx.main::<Ldap>();
    ldap.defined.push(server);
    if let Some(max) = ldap.servers_max
        && ldap.defined.len() as u64 > max
    {
        let m = "there are more servers than \"auth_ldap_servers_size\" allows";
        return Err(ConfError::at(word, m));
    }
    Ok(())
}

fn server(cx: &Cx, word: &Word, name: String, draft: Draft) -> Result<Server, ConfError> {
    let fail = |why: &str| ConfError::at(word, format!("ldap_server \"{name}\": {why}"));
    let at = draft.url.as_ref().ok_or_else(|| fail("no \"url\""))?;
    let url = Url::parse(at.bytes())
        .map_err(|why| ConfError::at(at, format!("invalid URL \"{}\": {why}", at.lossy())))?;
    let port = if url.is_tls { PORT_TLS } else { PORT };
    let target = url::parse(&Bytes::from(url.authority.clone()), port, false)
        .map_err(|why| ConfError::at(at, format!("{why} in URL \"{}\"", at.lossy())))?;
    let bind_dn = draft.bind_dn.as_ref().map(|dn| dn.bytes().to_vec()).unwrap_or_default();
    let bind_password = draft.bind_password.clone().unwrap_or_default();
    match (bind_dn.is_empty(), bind_password.is_empty()) {
        (false, true) => {
            // RFC 4513 section 5.1.2: servers take it for an anonymous client.
            return Err(fail("\"binddn\" without a password in \"binddn_passwd\""));
        }
        (true, false) => return Err(fail("\"binddn_passwd\" without \"binddn\"")),
        _ => {}
    }
    let search = match (url.attribute, draft.rules.user_dn.is_some()) {
        (Some(attribute), false) => Some(Search {
            base: url.base,
            scope: url.scope,
            attribute,
            filter: url.filter.unwrap_or_else(|| Filter::present(b"objectClass")),
        }),
        (None, false) => return Err(fail("its \"url\" has no attribute with the user's name")),
        (_, true) => None,
    };
    if !draft.rules.groups.is_empty() && draft.group_attribute.is_none() {
        return Err(fail("\"require group\" needs \"group_attribute\""));
    }
    if !draft.valid_user
        && draft.rules.user_dn.is_none()
        && draft.rules.users.is_empty()
        && draft.rules.groups.is_empty()
    {
        conf::warn(word, "no \"require\": every user of the directory is let in");
    }
    let security = security(cx, word, &draft, url.is_tls, &target)?;
    Ok(Server {
        name,
        target,
        security,
        bind_dn,
        bind_password,
        search,
        group_attribute: draft.group_attribute.unwrap_or_default(),
        group_has_dns: draft.group_has_dns.unwrap_or(false),
        rules: Rules { all: draft.all.unwrap_or(false), ..draft.rules },
        timeouts: Timeouts {
            connect: draft.connect_ms.unwrap_or(10_000),
            bind: draft.bind_ms.unwrap_or(5_000),
            request: draft.request_ms.unwrap_or(10_000),
            reconnect: draft.reconnect_ms.unwrap_or(10_000),
        },
        retries: draft.retries.unwrap_or(0),
        lookup: Resolving::default().lookup(),
        pool: Pool::new(draft.connections.unwrap_or(1) as usize),
    })
}

fn security(
    cx: &Cx,
    word: &Word,
    draft: &Draft,
    is_tls: bool,
    target: &url::Url,
) -> Result<Security, ConfError> {
    let starttls = draft.starttls.unwrap_or(false);
    if is_tls && starttls {
        return Err(ConfError::at(word, "\"starttls\" is for ldap:// URLs: ldaps:// has TLS"));
    }
    if !is_tls && !starttls {
        if draft.verifies == Some(true) || draft.ca_file.is_some() || draft.ca_dir.is_some() {
            let m = "certificates are checked under TLS only: the URL must begin with \
                     \"ldaps://\", or \"starttls\" be on";
            return Err(ConfError::at(word, m));
        }
        return Ok(Security::Plain);
    }
    let tls = Rc::new(tls_of(cx, word, draft)?);
    let fixed = Fixed::new(&tls, &target.host)
        .map_err(|_| ConfError::at(word, "TLS depends on the request"))?;
    Ok(if is_tls { Security::Tls(fixed) } else { Security::StartTls(fixed) })
}

fn tls_of(cx: &Cx, word: &Word, draft: &Draft) -> Result<UpstreamTls, ConfError> {
    let verifies = draft.verifies.unwrap_or(false);
    let mut files: Vec<Named> = draft.ca_file.iter().cloned().collect();
    if let Some((word, folder)) = &draft.ca_dir {
        files.extend(hashed(folder, word)?.into_iter().map(|p| Named::in_folder(cx, word, p)));
    }
    if verifies && files.is_empty() {
        files.push(Named::of_system(cx, word, "ldap_server", "ssl_ca_file")?);
    }
    if !verifies && !files.is_empty() {
        conf::warn(word, "CA certificates are not used without \"ssl_check_cert on\"");
    }
    let mut files = files.into_iter();
    let settings = SslDraft {
        verify: Some(verifies),
        depth: Some(DEPTH),
        trusted: files.next(),
        trusted_more: Some(files.collect()),
        server_name: Some(true),
        ..SslDraft::default()
    };
    settings.finish("ldap", &[])
}

/// The files of a folder whose names are hashes of subjects, as OpenSSL looks for them.
fn hashed(folder: &std::path::Path, word: &Word) -> Result<Vec<PathBuf>, ConfError> {
    let read = std::fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
    });
    let mut paths = read.map_err(|e| {
        let m = format!("opendir() \"{}\" failed {}", folder.display(), os_error(&e));
        ConfError::at(word, m)
    })?;
    paths.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_hashed));
    if paths.is_empty() {
        let m = format!("\"{}\" has no certificates named by hashes", folder.display());
        return Err(ConfError::at(word, m).with_help("c_rehash FOLDER makes these names"));
    }
    paths.sort();
    Ok(paths)
}

/// `HHHHHHHH.N`
fn is_hashed(name: &str) -> bool {
    let Some((hash, number)) = name.split_once('.') else { return false };
    hash.len() == 8
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_hashed;

    #[test]
    fn files_of_certificates_are_named_by_hashes() {
        assert!(is_hashed("5ed36f99.0") && is_hashed("00000000.12"));
        for other in ["5ed36f99", "5ed36f99.", "5ed36f99.r0", "5ed36f9.0", "ca.pem", "5ed36fzz.0"] {
            assert!(!is_hashed(other), "{other}");
        }
    }
}
