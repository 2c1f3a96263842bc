//! `auth_jwt`: JSON Web Tokens as proof of who sends a request. [`jose`] decides whether a token is
//! valid; here is where tokens and keys come from, and what becomes of the claims.

mod check;
mod keys;
mod known;
mod requests;
mod variables;

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{set_enum, set_msec, set_once, set_sec};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline};
use keys::KeyFile;
use requests::KeyRequest;
pub(crate) use variables::{member, write};

const HSLX: C = HSL.or(C::LIMIT_EXCEPT);

/// The module's table.
pub static MODULE: Module = Module {
    variables: variables::VARIABLES,
    ..Module::of::<JwtConf>("auth_jwt", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "auth_jwt",
        HSLX,
        Args::T12,
        "off",
        "Requires a JSON Web Token; the argument is the realm, `off` disables: REALM \
         [token=$VARIABLE].",
        auth_jwt,
    ),
    directive(
        "auth_jwt_type",
        HSLX,
        Args::T1,
        "signed",
        "The kind of token: signed, encrypted, or nested (signed, then encrypted).",
        |cx, n| {
            let kinds = &[
                ("signed", TokenType::Signed),
                ("encrypted", TokenType::Encrypted),
                ("nested", TokenType::Nested),
            ];
            set_enum(&mut cx.loc::<JwtConf>().token_type, n, kinds)
        },
    ),
    directive(
        "auth_jwt_key_file",
        HSLX,
        Args::T1,
        "",
        "A file with a key or set of keys (JWK, JWKS) that tokens are checked with.",
        |cx, n| {
            let file = KeyFile::of(cx, n)?;
            let files = cx.loc::<JwtConf>().files.get_or_insert_default();
            Rc::make_mut(files).push(Rc::new(file));
            Ok(())
        },
    ),
    directive(
        "auth_jwt_key_request",
        HSLX,
        Args::T1,
        "",
        "The URI of a subrequest that responds with a key or set of keys (JWK, JWKS).",
        |cx, n| {
            let request = KeyRequest::of(cx, n)?;
            let requests = cx.loc::<JwtConf>().requests.get_or_insert_default();
            Rc::make_mut(requests).push(Rc::new(request));
            Ok(())
        },
    ),
    directive(
        "auth_jwt_key_cache",
        HSL,
        Args::T1,
        "0",
        "The time for which keys are used before they are read or fetched again.",
        |cx, n| set_msec(&mut cx.loc::<JwtConf>().cache_ms, n),
    ),
    directive(
        "auth_jwt_leeway",
        HSL,
        Args::T1,
        "0s",
        "The difference between clocks that is tolerated when exp and nbf are checked.",
        |cx, n| set_sec(&mut cx.loc::<JwtConf>().leeway_s, n),
    ),
    directive(
        "auth_jwt_require",
        HSLX,
        Args::ONE_MORE,
        "",
        "Values that must be neither empty nor \"0\" for a token to be accepted: $VALUE... \
         [error=401|403].",
        auth_jwt_require,
    ),
    directive(
        "auth_jwt_claim_set",
        C::HTTP,
        Args::TWO_MORE,
        "",
        "A variable with a claim that is found by names, from the top level down.",
        variables::claim_set,
    ),
    directive(
        "auth_jwt_header_set",
        C::HTTP,
        Args::TWO_MORE,
        "",
        "A variable with a member of a token's header that is found by names.",
        variables::header_set,
    ),
];

/// `auth_jwt_type`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TokenType {
    #[default]
    Signed,
    Encrypted,
    Nested,
}

/// `auth_jwt`.
#[derive(Clone)]
struct Auth {
    realm: Template,
    /// Where the token is, if not in `Authorization`.
    token: Option<Template>,
    /// It is the ID token of the session of `auth_oidc`.
    is_of_session: bool,
}

/// `auth_jwt_require`.
#[derive(Clone)]
struct Require {
    values: Vec<Template>,
    status: u16,
}

engine::settings! {
    struct JwtConf {
        auth: Option<Auth>,
        token_type: Option<TokenType>,
        files: Option<Rc<Vec<Rc<KeyFile>>>>,
        requests: Option<Rc<Vec<Rc<KeyRequest>>>>,
        cache_ms: Option<u64>,
        leeway_s: Option<u64>,
        require: Option<Rc<Vec<Require>>>,
    }
}

impl JwtConf {
    /// Whether the realm is not simply `off`.
    fn is_on(&self) -> bool {
        let auth = self.auth.as_ref();
        auth.is_some_and(|auth| auth.realm.as_const().is_none_or(|realm| realm != "off"))
    }

    /// `off token=$oidc_id_token`: the token was verified at the login, and only its claims are
    /// read.
    fn reads_session(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.is_of_session) && !self.is_on()
    }

    fn files(&self) -> &[Rc<KeyFile>] {
        self.files.as_ref().map_or(&[], |files| files)
    }

    fn requests(&self) -> &[Rc<KeyRequest>] {
        self.requests.as_ref().map_or(&[], |requests| requests)
    }

    fn token_type(&self) -> TokenType {
        self.token_type.unwrap_or_default()
    }
}

fn auth_jwt(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<JwtConf>().auth.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let realm = cx.template(n.arg(0)?)?;
    let token = match n.args.get(1) {
        None => None,
        Some(word) => {
            let Some(name) = word.bytes().strip_prefix(b"token=$").filter(|v| !v.is_empty()) else {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m).with_help("it is token=$VARIABLE"));
            };
            let at = word.text.len() - name.len() - 1;
            Some(Template::parse_slice(&word.text.slice(at..), word, at, &mut cx.vars)?)
        }
    };
    let is_of_session = n.args.get(1).is_some_and(|word| word.bytes() == b"token=$oidc_id_token");
    cx.loc::<JwtConf>().auth = Some(Auth { realm, token, is_of_session });
    Ok(())
}

fn auth_jwt_require(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut values, mut status) = (Vec::new(), None);
    for word in &n.args {
        match word.bytes() {
            b"error=401" => set_once(&mut status, n, |_| Ok(401))?,
            b"error=403" => set_once(&mut status, n, |_| Ok(403))?,
            [b'$', ..] => values.push(cx.template(word)?),
            text if text.starts_with(b"error=") => {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m).with_help("it is error=401 or error=403"));
            }
            _ => {
                let m = format!("invalid value \"{}\"", word.lossy());
                return Err(ConfError::at(word, m).with_help("it must start with a variable"));
            }
        }
    }
    if values.is_empty() {
        return Err(ConfError::directive(n, "needs a variable"));
    }
    let all = cx.loc::<JwtConf>().require.get_or_insert_default();
    Rc::make_mut(all).push(Require { values, status: status.unwrap_or(401) });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<JwtConf>();
    if conf.is_on() {
        // The token of the client's `Authorization` is its request's to check.
        if conf.auth.as_ref().is_some_and(|auth| auth.token.is_some()) {
            p.preaccess.push(Box::new(check::OfSubrequest));
        }
        p.access.push(Box::new(check::Handler));
    }
    Ok(())
}

/// The text of a quoted string (RFC 9110 section 5.6.4).
pub(crate) fn quoted(realm: &[u8]) -> Bytes {
    let mut out = vec![b'"'];
    for &byte in realm {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    Bytes::from(out)
}
