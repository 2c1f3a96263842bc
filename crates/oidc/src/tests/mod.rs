//! Tests of the rules, against a provider whose key is here.

mod flow;
mod id_tokens;
mod logouts;
mod sessions;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jose::KeySet;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{Client, Expected, Metadata, bits};

pub(crate) const NOW_S: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.test";
const SECRET: &str = "a secret of at least 32 characters";

pub(crate) fn client() -> Client {
    Client {
        provider: "p".to_owned(),
        issuer: ISSUER.to_owned(),
        id: "me".to_owned(),
        secret: Some(Zeroizing::new(SECRET.to_owned())),
        scope: "openid email".to_owned(),
        extra_args: None,
        pkce: None,
    }
}

/// Metadata with some members changed; null removes one.
pub(crate) fn document(changes: Value) -> Vec<u8> {
    let mut all = json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://id.test/auth",
        "token_endpoint": "https://id.test/token",
        "jwks_uri": "https://id.test/keys",
        "userinfo_endpoint": "https://id.test/me",
        "end_session_endpoint": "https://id.test/bye?x=1",
        "response_types_supported": ["code", "id_token"],
        "code_challenge_methods_supported": ["plain", "S256"],
    });
    changed(&mut all, changes);
    all.to_string().into_bytes()
}

pub(crate) fn changed(all: &mut Value, changes: Value) {
    let members = all.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => members.remove(name),
            value => members.insert(name.clone(), value.clone()),
        };
    }
}

/// The provider, and this client of it.
pub(crate) struct World {
    pub client: Client,
    pub metadata: Metadata,
    pub keys: KeySet,
    key: Ed25519KeyPair,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(json!({}))
    }

    pub(crate) fn with(metadata: Value) -> World {
        let client = client();
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let x = bits::base64url(key.public_key().as_ref());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "1"}]});
        let keys = KeySet::parse(set.to_string().as_bytes()).unwrap();
        let metadata = Metadata::parse(&document(metadata), &client).unwrap();
        World { client, metadata, keys, key }
    }

    pub(crate) fn expected(&self) -> Expected<'_> {
        Expected { client: &self.client, metadata: &self.metadata, keys: &self.keys, now_s: NOW_S }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let input = input(json!({"alg": "EdDSA", "kid": "1"}), claims);
        let signature = bits::base64url(self.key.sign(input.as_bytes()).as_ref());
        format!("{input}.{signature}")
    }
}

pub(crate) fn input(header: Value, claims: &Value) -> String {
    let part = |value: &Value| bits::base64url(value.to_string().as_bytes());
    format!("{}.{}", part(&header), part(claims))
}

/// A token signed with a secret.
pub(crate) fn sign_with_secret(secret: &str, claims: &Value) -> String {
    let input = input(json!({"alg": "HS256"}), claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = bits::base64url(hmac::sign(&key, input.as_bytes()).as_ref());
    format!("{input}.{signature}")
}

/// The claims of a good ID token, with some changed; null removes one.
pub(crate) fn claims(changes: Value) -> Value {
    let mut all = json!({
        "iss": ISSUER, "sub": "alice", "aud": "me", "nonce": "n",
        "iat": NOW_S, "exp": NOW_S + 300, "sid": "s1",
    });
    changed(&mut all, changes);
    all
}
