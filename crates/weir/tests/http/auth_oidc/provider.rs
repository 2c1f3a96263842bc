//! A provider of OpenID Connect that lies on request, and a browser with cookies.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::certificates::{Draft, Extension, Key, KeyKind, der};
use testkit::{Response, Scripted, Weir, read_until};

/// Secrets that must never be in a log. The last one begins each token.
pub const CANARIES: [&str; 4] = ["secret-canary", "access-canary", "refresh-canary", "eyJhbGciOi"];

/// A login that waits for its code to be exchanged.
#[derive(Clone)]
struct Grant {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

/// What the provider knows, and how it lies.
#[derive(Default)]
pub struct State {
    grants: BTreeMap<String, Grant>,
    /// Members of the metadata; null removes one.
    pub metadata: BTreeMap<String, Value>,
    /// Claims of ID tokens; null removes one.
    pub claims: BTreeMap<String, Value>,
    /// Members of token responses; null removes one.
    pub tokens: BTreeMap<String, Value>,
    /// The user info.
    pub userinfo: Option<Value>,
    /// The status of all responses, unless 0.
    pub status: u16,
    /// The error code of the token endpoint.
    pub error: Option<String>,
    /// The number of the key that signs; the set has those up to `published`.
    pub key: usize,
    pub published: usize,
    /// Requests by path.
    pub requests: BTreeMap<String, usize>,
    /// Bodies of token requests.
    pub bodies: Vec<String>,
}

pub struct Provider {
    pub port: u16,
    pub state: Arc<Mutex<State>>,
    keys: Arc<Vec<Key>>,
}

fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn base64url(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    base::base64::encode_url(bytes, &mut out);
    String::from_utf8(out).expect("ASCII")
}

fn apply(all: &mut Value, changes: &BTreeMap<String, Value>) {
    let members = all.as_object_mut().expect("an object");
    for (name, value) in changes {
        match value {
            Value::Null => members.remove(name),
            value => members.insert(name.clone(), value.clone()),
        };
    }
}

impl Provider {
    /// Starts it in plain HTTP: the server under test puts TLS in front of it, at `issuer`.
    pub fn start(issuer: String) -> Provider {
        let state = Arc::new(Mutex::new(State::default()));
        let keys: Arc<Vec<_>> = Arc::new((0..3).map(|_| Key::generate(KeyKind::Ed25519)).collect());
        let (of, signing) = (state.clone(), keys.clone());
        let server =
            Scripted::start(move |mut stream, _| answer(&mut stream, &issuer, &of, &signing));
        Provider { port: server.port, state, keys }
    }

    pub fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no panic"));
    }

    /// The number of requests for a path.
    pub fn count(&self, path: &str) -> usize {
        let state = self.state.lock().expect("no panic");
        state.requests.get(path).copied().unwrap_or(0)
    }

    /// The user has signed in: the arguments of the callback for an authentication request.
    pub fn sign_in(&self, location: &str) -> String {
        let args = arguments(location.split_once('?').expect("arguments").1);
        let of = |name: &str| args.get(name).cloned().unwrap_or_default();
        assert_eq!(of("response_type"), "code", "{location}");
        assert_eq!((of("client_id").as_str(), of("scope").as_str()), ("me", "openid"));
        let mut state = self.state.lock().expect("no panic");
        let code = format!("code-{}", state.grants.len());
        let grant = Grant {
            nonce: of("nonce"),
            challenge: of("code_challenge"),
            redirect_uri: of("redirect_uri"),
        };
        state.grants.insert(code.clone(), grant);
        format!("code={code}&state={}", of("state"))
    }

    pub fn sign(&self, claims: &Value) -> String {
        sign(&self.keys[self.state.lock().expect("no panic").key], "1", claims)
    }

    /// A logout token.
    pub fn logout_token(&self, issuer: &str, jti: &str, changes: Value) -> String {
        let mut claims = json!({
            "iss": issuer, "aud": "me", "iat": now_s(), "exp": now_s() + 60, "jti": jti,
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        });
        let changes = changes.as_object().expect("an object").clone().into_iter().collect();
        apply(&mut claims, &changes);
        self.sign(&claims)
    }
}

fn sign(key: &Key, kid: &str, claims: &Value) -> String {
    let header = json!({"alg": "EdDSA", "kid": kid}).to_string();
    let input =
        format!("{}.{}", base64url(header.as_bytes()), base64url(claims.to_string().as_bytes()));
    format!("{input}.{}", base64url(&key.sign(input.as_bytes())))
}

/// Arguments of a URL, or a form.
pub fn arguments(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte == b'%' {
                out.extend(base::ascii::parse_hex(&rest[..2]).expect("two digits"));
                rest = &rest[2..];
            } else {
                out.push(byte);
            }
        }
        String::from_utf8(out).expect("UTF-8")
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn answer(stream: &mut TcpStream, issuer: &str, state: &Mutex<State>, keys: &[Key]) {
    let Some(mut bytes) = read_until(stream, |all| all.windows(4).any(|w| w == b"\r\n\r\n")) else {
        return;
    };
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("found") + 4;
    let mut body = bytes.split_off(at);
    let head = String::from_utf8(bytes).expect("ASCII");
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let len = field("Content-Length").map_or(0, |len| len.parse().expect("a length"));
    while body.len() < len {
        let Some(more) = read_until(stream, |more| !more.is_empty()) else { return };
        body.extend(more);
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = String::from_utf8(body).expect("a form");
    let mut state = state.lock().expect("no panic");
    *state.requests.entry(path.clone()).or_default() += 1;
    let (status, value) = match path.as_str() {
        _ if state.status != 0 => (state.status, json!({})),
        "/.well-known/openid-configuration" => {
            let mut all = json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/auth"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/keys"),
                "userinfo_endpoint": format!("{issuer}/me"),
                "end_session_endpoint": format!("{issuer}/bye"),
                "code_challenge_methods_supported": ["S256"],
            });
            apply(&mut all, &state.metadata);
            (200, all)
        }
        "/keys" => {
            let set = keys.iter().take(state.published + 1).enumerate().map(|(i, key)| {
                let x = base64url(&key.bits());
                json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": (i + 1).to_string()})
            });
            (200, json!({"keys": set.collect::<Vec<_>>()}))
        }
        "/token" => token(issuer, &mut state, keys, &body, field("Authorization").as_deref()),
        "/me" => match field("Authorization").as_deref() {
            Some("Bearer access-canary") => {
                let info = json!({"sub": "alice", "email": "a@b.test"});
                (200, state.userinfo.clone().unwrap_or(info))
            }
            _ => (401, json!({})),
        },
        _ => (404, json!({})),
    };
    let text = value.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    let _ = stream.write_all((head + &text).as_bytes());
}

fn token(
    issuer: &str,
    state: &mut State,
    keys: &[Key],
    body: &str,
    authorization: Option<&str>,
) -> (u16, Value) {
    state.bodies.push(body.to_owned());
    let mut expected = b"Basic ".to_vec();
    base::base64::encode(b"me:secret-canary", &mut expected);
    if authorization.map(str::as_bytes) != Some(&expected) {
        return (401, json!({"error": "invalid_client"}));
    }
    if let Some(error) = &state.error {
        return (400, json!({"error": error}));
    }
    let form = arguments(body);
    let of = |name: &str| form.get(name).cloned().unwrap_or_default();
    let grant = match of("grant_type").as_str() {
        "authorization_code" => state.grants.remove(&of("code")),
        "refresh_token" if of("refresh_token") == "refresh-canary" => None,
        other => panic!("{other}"),
    };
    let mut nonce = Value::Null;
    match &grant {
        Some(grant) => {
            let hash = testkit_sha256(&of("code_verifier"));
            if grant.challenge != hash || grant.redirect_uri != of("redirect_uri") {
                return (400, json!({"error": "invalid_grant"}));
            }
            nonce = grant.nonce.clone().into();
        }
        None if of("grant_type") == "refresh_token" => {}
        None => return (400, json!({"error": "invalid_grant"})),
    }
    let mut claims = json!({
        "iss": issuer, "aud": "me", "sub": "alice", "sid": "s1", "nonce": nonce,
        "iat": now_s(), "exp": now_s() + 300,
    });
    if nonce.is_null() {
        claims.as_object_mut().expect("an object").remove("nonce");
    }
    apply(&mut claims, &state.claims);
    let kid = (state.key + 1).to_string();
    let mut all = json!({
        "access_token": "access-canary", "token_type": "Bearer", "expires_in": 3600,
        "refresh_token": "refresh-canary", "id_token": sign(&keys[state.key], &kid, &claims),
    });
    apply(&mut all, &state.tokens);
    (200, all)
}

fn testkit_sha256(text: &str) -> String {
    use sha2::Digest;
    base64url(&sha2::Sha256::digest(text.as_bytes()))
}

/// Certificates for `https://127.0.0.1`: the authority's, the server's, and its key.
pub fn certificates() -> [String; 3] {
    let (root, own) = (Key::generate(KeyKind::P256), Key::generate(KeyKind::P256));
    let authority = Draft::new("CN=root", "CN=root", &root)
        .with(Extension::basic(true, None).critical())
        .with(Extension::key_usage(0x04).critical());
    let server = Draft::new("CN=provider", "CN=root", &own)
        .with(Extension::alt_names(&[(0x87, &[127, 0, 0, 1]), (0x82, b"localhost")]));
    [
        der::pem("CERTIFICATE", &authority.sign(&root)),
        der::pem("CERTIFICATE", &server.sign(&root)),
        own.pem(),
    ]
}

/// A browser: it keeps cookies.
#[derive(Default, Clone)]
pub struct Browser {
    pub cookies: BTreeMap<String, String>,
}

impl Browser {
    pub fn get(&mut self, weir: &Weir, path: &str) -> Response {
        self.send(weir, "GET", path, "Accept: text/html,*/*;q=0.8\r\n")
    }

    pub fn send(&mut self, weir: &Weir, method: &str, path: &str, headers: &str) -> Response {
        let pairs: Vec<_> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let cookies = match pairs.is_empty() {
            true => String::new(),
            false => format!("Cookie: {}\r\n", pairs.join("; ")),
        };
        let response = weir.request(method, path, &format!("{headers}{cookies}"));
        for set in response.all("Set-Cookie") {
            assert!(set.contains("; HttpOnly; SameSite=Lax"), "{set}");
            let (name, rest) = set.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            match set.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        response
    }

    /// Goes to a page, signs in at the provider, and returns the response to the callback.
    pub fn sign_in(&mut self, weir: &Weir, provider: &Provider, path: &str) -> Response {
        let response = self.get(weir, path);
        assert_eq!(response.status, 302, "{}", response.text());
        let location = response.header("Location").expect("a login");
        let args = provider.sign_in(location);
        self.get(weir, &format!("/oidc_callback?{args}"))
    }
}
