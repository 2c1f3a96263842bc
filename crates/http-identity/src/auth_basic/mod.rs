//! `auth_basic`: names and passwords of the Basic scheme, from a file.

mod crypt;
mod des;
mod verified;

use std::task::{Poll, ready};

use base::log::{Level, lossy};
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files::{self, FilePath, OpenFile};
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;
use mem::FileHandle;

use os::errno::ENOENT;

use crate::limit_auth::{self, Proof};

/// The module's table.
pub static MODULE: Module = Module::of::<AuthConf>("auth_basic", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "auth_basic",
        HSL.or(C::LIMIT_EXCEPT),
        Args::T1,
        "off",
        "Requires a user name and password; the argument is the realm, `off` disables.",
        |cx, n| {
            let realm = once(cx, n, |c| c.realm.is_some())?;
            cx.loc::<AuthConf>().realm = Some(realm);
            Ok(())
        },
    ),
    directive(
        "auth_basic_user_file",
        HSL.or(C::LIMIT_EXCEPT),
        Args::T1,
        "",
        "The file with user names and password hashes.",
        |cx, n| {
            let file = once(cx, n, |c| c.file.is_some())?;
            let prefix = Bytes::copy_from_slice(path_bytes(&cx.env.conf_path(b"")));
            cx.loc::<AuthConf>().file = Some((file, prefix));
            Ok(())
        },
    ),
];

engine::settings! {
    struct AuthConf {
        realm: Option<Template>,
        /// The file, and the folder that a relative name starts from.
        file: Option<(Template, Bytes)>,
    }
}

fn path_bytes(path: &std::path::Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}

fn once(cx: &mut Cx, n: &Node, set: fn(&AuthConf) -> bool) -> Result<Template, ConfError> {
    if set(cx.loc::<AuthConf>()) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    cx.template(&n.args[0])
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<AuthConf>();
    if let (Some(realm), Some((file, prefix))) = (&conf.realm, &conf.file)
        && realm.as_const().is_none_or(|r| r != "off")
    {
        let (realm, file, prefix) = (realm.clone(), file.clone(), prefix.clone());
        p.access.push(Box::new(Handler { realm, file, prefix }));
    }
    Ok(())
}

struct Handler {
    realm: Template,
    file: Template,
    prefix: Bytes,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let realm = r.eval(&self.realm);
        if realm == "off" {
            return Step::Now(Verdict::Next);
        }
        if r.basic_credentials().is_none() {
            let m = "no user/password was provided for basic authentication";
            r.log(Level::Info, format_args!("{m}"));
            return Step::Now(challenge(r, &realm));
        }
        if let Err(refused) = limit_auth::admit(r, Proof::Password) {
            return Step::Now(limit_auth::respond(r, refused));
        }
        match self.look_up(r) {
            Poll::Ready(UserEntry::Decided(v)) => return Step::Now(v),
            Poll::Ready(UserEntry::Hash(hash)) => {
                if let Check::Done(right) = at_once(r, &hash) {
                    return Step::Now(decide(r, &realm, right));
                }
            }
            Poll::Ready(UserEntry::Unknown(hash))
                if !hash.as_deref().is_some_and(crypt::is_costly) =>
            {
                return Step::Now(self.nobody(r, &realm));
            }
            Poll::Ready(UserEntry::Unknown(_) | UserEntry::Long(_)) | Poll::Pending => {}
        }
        Step::Wait(Box::pin(self.slowly(r, realm)))
    }
}

/// The user's entry in the file.
enum UserEntry {
    /// The file could not be read.
    Decided(Verdict),
    Hash(Vec<u8>),
    /// The user is unknown. The hash of another user is checked in its place, because the time of
    /// an answer would tell which names the file has.
    Unknown(Option<Vec<u8>>),
    /// It is long, and has to be read.
    Long(FileHandle),
}

impl Handler {
    fn path(&self, r: &mut Request) -> FilePath {
        let mut path = FilePath::new();
        self.file.eval_into(r, &mut path);
        if path.first() != Some(&b'/') {
            let mut full = FilePath::new();
            full.extend_from_slice(&self.prefix);
            if full.last() != Some(&b'/') {
                full.push(b'/');
            }
            full.extend_from_slice(&path);
            path = full;
        }
        path
    }

    fn look_up(&self, r: &mut Request) -> Poll<UserEntry> {
        let path = self.path(r);
        Poll::Ready(match ready!(files::try_open_plain(r, &path)) {
            Ok(OpenFile { content: Some(text), .. }) => {
                let credentials = r.basic_credentials();
                let user = credentials.as_ref().map_or(&b""[..], |c| c.user());
                match find_in(&text, user) {
                    Some(hash) => UserEntry::Hash(hash.to_vec()),
                    None => UserEntry::Unknown(another_hash(&text).map(<[u8]>::to_vec)),
                }
            }
            Ok(OpenFile { fd: Some(fd), .. }) => UserEntry::Long(fd),
            Ok(_) => {
                use os::errno::EISDIR;
                let e = std::io::Error::from_raw_os_error(EISDIR);
                UserEntry::Decided(unread(r, &e, &path))
            }
            Err(e) => {
                let missing = e.errno() == Some(ENOENT);
                let level = if missing { Level::Error } else { Level::Crit };
                r.log_os(level, format_args!("{} \"{}\"", e.what, lossy(&path)), &e.error);
                UserEntry::Decided(Verdict::Status(if missing { 403 } else { 500 }))
            }
        })
    }

    /// The file knows no such user.
    fn nobody(&self, r: &mut Request, realm: &Bytes) -> Verdict {
        let path = self.path(r);
        if let Some(c) = r.basic_credentials() {
            let (user, path) = (lossy(c.user()), lossy(&path));
            let m = format_args!("user \"{user}\" was not found in \"{path}\"");
            r.log(Level::Error, m);
        }
        wrong(r, realm)
    }

    /// Looks the user up in a file that is read for it.
    async fn read(&self, r: &mut Request, fd: FileHandle) -> UserEntry {
        let user = r.basic_credentials().map(|c| c.user().to_vec()).unwrap_or_default();
        let done = r.on_disk(move || find(&fd, &user)).await;
        let path = self.path(r);
        match done.and_then(|found| found) {
            Ok(Found::User(hash)) => UserEntry::Hash(hash),
            Ok(Found::Nobody(another)) => UserEntry::Unknown(another),
            Err(e) => UserEntry::Decided(unread(r, &e, &path)),
        }
    }

    /// The same where the file is not at hand, or the hash takes longer than a worker may.
    async fn slowly(&self, r: &mut Request, realm: Bytes) -> Verdict {
        let mut found = files::asking(r, |r| self.look_up(r)).await;
        if let UserEntry::Long(fd) = found {
            found = self.read(r, fd).await;
        }
        let hash = match found {
            UserEntry::Hash(hash) => hash,
            UserEntry::Unknown(another) => {
                if let (Some(hash), Some(c)) = (another, r.basic_credentials()) {
                    let password = c.password().to_vec();
                    let check = move || crypt::verify(&password, &hash);
                    // Whatever it finds: the answer is the same.
                    let _ = event::pool::run_blocking(check).await;
                }
                return self.nobody(r, &realm);
            }
            UserEntry::Decided(v) => return v,
            UserEntry::Long(_) => return Verdict::Status(500),
        };
        if let Check::Done(right) = at_once(r, &hash) {
            return decide(r, &realm, right);
        }
        let Some(c) = r.basic_credentials() else { return challenge(r, &realm) };
        let (password, of_thread) = (c.password().to_vec(), hash.clone());
        let made = event::pool::run_blocking(move || crypt::verify(&password, &of_thread)).await;
        match made {
            Ok(right) => {
                if right == Some(true) {
                    verified::remember(c.user(), &hash, c.password());
                }
                decide(r, &realm, right)
            }
            Err(e) => {
                r.log(Level::Crit, format_args!("password not checked: {e}"));
                Verdict::Status(500)
            }
        }
    }
}

/// A password's check.
enum Check {
    /// Right or wrong; `None` where that could not be found out.
    Done(Option<bool>),
    /// The hash takes time.
    Costly,
}

/// Checks the password if that takes no time, or it was right a moment ago.
fn at_once(r: &Request, hash: &[u8]) -> Check {
    let Some(c) = r.basic_credentials() else { return Check::Done(Some(false)) };
    if !crypt::is_costly(hash) {
        return Check::Done(crypt::verify(c.password(), hash));
    }
    if verified::holds(c.user(), hash, c.password()) {
        return Check::Done(Some(true));
    }
    Check::Costly
}

/// The verdict on a password that was right, wrong, or could not be checked.
fn decide(r: &mut Request, realm: &Bytes, right: Option<bool>) -> Verdict {
    let Some(c) = r.basic_credentials() else { return challenge(r, realm) };
    let user = lossy(c.user());
    match right {
        Some(true) => match limit_auth::succeeded(r, Proof::Password) {
            Ok(()) => Verdict::Ok,
            Err(refused) => limit_auth::respond(r, refused),
        },
        Some(false) => {
            r.log(Level::Error, format_args!("user \"{user}\": password mismatch"));
            wrong(r, realm)
        }
        None => {
            let m = "crypt() failed (22: Invalid argument): the hash has an unknown form or is too \
                     costly";
            r.log(Level::Crit, format_args!("{m}, user \"{user}\""));
            // No password is the right one: `NAME:*` and `NAME:!` lock a user out, for example.
            wrong(r, realm)
        }
    }
}

/// Counts a failure, and asks again.
fn wrong(r: &mut Request, realm: &Bytes) -> Verdict {
    match limit_auth::failed(r, Proof::Password) {
        Ok(()) => challenge(r, realm),
        Err(refused) => limit_auth::respond(r, refused),
    }
}

/// Asks for a name and password.
pub(crate) fn challenge(r: &mut Request, realm: &Bytes) -> Verdict {
    let value = Bytes::from([b"Basic realm=\"", &quotable(realm)[..], b"\""].concat());
    if r.target.method == Method::Connect {
        r.out.add("Proxy-Authenticate", value);
        return Verdict::Status(407);
    }
    r.out.add("WWW-Authenticate", value);
    Verdict::Status(401)
}

/// A realm as it stands in a quoted string (RFC 9110 section 5.6.4): a backslash goes before each
/// quote that has none, so that those of configurations written for nginx keep theirs.
fn quotable(realm: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(realm.len());
    let mut is_escaped = false;
    for &byte in realm {
        if byte == b'"' && !is_escaped {
            out.push(b'\\');
        }
        out.push(byte);
        is_escaped = byte == b'\\' && !is_escaped;
    }
    if is_escaped {
        // It would escape the quote that ends the string.
        out.push(b'\\');
    }
    out
}

/// The file could not be read.
fn unread(r: &Request, e: &std::io::Error, path: &[u8]) -> Verdict {
    r.log_os(Level::Crit, format_args!("read() \"{}\"", lossy(path)), e);
    Verdict::Status(500)
}

/// The result of a look into a long file.
enum Found {
    /// The user's hash.
    User(Vec<u8>),
    /// The user is not there; the hash of another one, if the file has any.
    Nobody(Option<Vec<u8>>),
}

/// Looks a user up in a long file. Waits for the disk.
fn find(fd: &FileHandle, user: &[u8]) -> std::io::Result<Found> {
    const CHUNK: usize = 64 << 10;
    // Read in pieces; the unfinished last line of one goes before the next.
    let (mut held, mut at, mut another) = (Vec::new(), 0, None);
    loop {
        let from = held.len();
        held.resize(from + CHUNK, 0);
        let n = os::file::read_at(fd, &mut held[from..], at)?;
        held.truncate(from + n);
        at += n as u64;
        let whole = match (n, memchr::memrchr(b'\n', &held)) {
            (0, _) => held.len(),
            (_, Some(end)) => end + 1,
            (_, None) => 0,
        };
        if let Some(hash) = find_in(&held[..whole], user) {
            return Ok(Found::User(hash.to_vec()));
        }
        another = another.or_else(|| another_hash(&held[..whole]).map(<[u8]>::to_vec));
        if n == 0 {
            return Ok(Found::Nobody(another));
        }
        held.drain(..whole);
    }
}

/// The hash of a user in lines of `NAME:HASH[:COMMENT]`; the first line of the name counts.
fn find_in<'a>(text: &'a [u8], user: &[u8]) -> Option<&'a [u8]> {
    let mut at = 0;
    while let Some(found) = memchr::memmem::find(&text[at..], user).map(|i| at + i) {
        let begins = found == 0 || text[found - 1] == b'\n';
        let hash = &text[found + user.len()..];
        if begins
            && text[found] != b'#'
            && let Some(hash) = hash.strip_prefix(b":")
        {
            return Some(first_field(hash));
        }
        at = found + 1;
    }
    None
}

/// The first hash of a file: that of any user.
fn another_hash(text: &[u8]) -> Option<&[u8]> {
    let line = text.split(|b| *b == b'\n').find(|line| !line.is_empty() && line[0] != b'#')?;
    Some(first_field(&line[memchr::memchr(b':', line)? + 1..]))
}

/// The text before the next colon, or before the end of the line.
fn first_field(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|b| matches!(b, b'\n' | b'\r' | b':'));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::{another_hash, find_in, quotable};

    #[test]
    fn quotes_of_a_realm_are_escaped_once() {
        for (realm, quoted) in [
            ("plain", "plain"),
            ("say \"hi\"", "say \\\"hi\\\""),
            ("say \\\"hi\\\"", "say \\\"hi\\\""),
            ("back\\\\\"", "back\\\\\\\""),
            ("end\\", "end\\\\"),
        ] {
            assert_eq!(quotable(realm.as_bytes()), quoted.as_bytes(), "{realm}");
        }
    }

    #[test]
    fn another_user_stands_in_for_an_unknown_one() {
        assert_eq!(another_hash(b"# c\n\nab:h1:x\nb:h2"), Some(&b"h1"[..]));
        assert_eq!(another_hash(b"b:h2\r\n"), Some(&b"h2"[..]));
        assert_eq!(another_hash(b"# c\nnobody"), None);
    }

    #[test]
    fn users_in_files() {
        let text = b"# comment\n#x:h0\nab:h1\nb:h2:comment\r\nc:h3\r\nb:h4\n\nab:\nlast:h5";
        let of = |user: &str| {
            find_in(text, user.as_bytes()).map(|h| String::from_utf8_lossy(h).into_owned())
        };
        assert_eq!(of("ab").as_deref(), Some("h1"));
        assert_eq!(of("b").as_deref(), Some("h2"));
        assert_eq!(of("c").as_deref(), Some("h3"));
        assert_eq!(of("last").as_deref(), Some("h5"));
        for nobody in ["a", "x", "#x", "las", "ast", "h5", "comment"] {
            assert_eq!(of(nobody), None, "{nobody}");
        }
        assert_eq!(find_in(b"", b"a"), None);
        assert_eq!(find_in(b"a:", b"a"), Some(&b""[..]));
    }
}
