//! The cost of signed tokens: `auth_jwt` with one that the worker has verified before, and with a
//! new one for each request, beside the same file for everybody and the floor with and without a
//! verification of each request's token. And the cost of a look-up in a table of `keyval`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};

use crate::helper::Helper;
use crate::http_client::Client;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, new_folder};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../configs/signed.conf");

/// The subject without anything.
const PLAIN: &str = "1k";
/// The bare server without a verification.
const FLOOR: &str = "floor";

/// Asks for the last pair.
const LAST: &str = "/1k.txt?k=key-99999";

/// The subjects of each algorithm: a token seen before, a new one, and the floor that verifies it.
const NAMES: [[&str; 3]; 2] =
    [["rs256-seen", "rs256-new", "floor-rs256"], ["es256-seen", "es256-new", "floor-es256"]];

/// More tokens than a worker remembers, so that each is new when its turn comes.
const TOKENS: usize = 4096;
/// Pairs in the table.
const PAIRS: usize = 100_000;

/// Why a key could not be made or used: the library does not tell.
const FAILED: &str = "aws-lc-rs failed";

enum Key {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl Key {
    fn algorithm(&self) -> &'static str {
        match self {
            Key::Rsa(_) => "RS256",
            Key::Ecdsa(_) => "ES256",
        }
    }

    /// The public key as a JSON Web Key.
    fn public(&self) -> String {
        match self {
            Key::Rsa(key) => {
                // RSAPublicKey in DER (RFC 8017 appendix A.1.1): nine bytes are before the modulus
                // of a key of this size, and the exponent behind it is 65537.
                let n = base64url(&key.public_key().as_ref()[9..][..key.public_modulus_len()]);
                format!(r#"{{"kty":"RSA","kid":"RS256","n":"{n}","e":"AQAB"}}"#)
            }
            Key::Ecdsa(key) => {
                // The uncompressed point: a byte, x and y.
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (base64url(x), base64url(y));
                format!(r#"{{"kty":"EC","crv":"P-256","kid":"ES256","x":"{x}","y":"{y}"}}"#)
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Outcome<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.map(|()| signature).map_err(|_| FAILED.to_owned())
            }
            Key::Ecdsa(key) => {
                let signed = key.sign(&random, message);
                signed.map(|it| it.as_ref().to_vec()).map_err(|_| FAILED.to_owned())
            }
        }
    }

    /// The token of a user.
    fn token(&self, user: usize) -> Outcome<String> {
        let algorithm = self.algorithm();
        let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT","kid":"{algorithm}"}}"#);
        let claims = format!(
            r#"{{"iss":"https://issuer.test","aud":"bench","sub":"user-{user}","exp":4102444800}}"#
        );
        let mut token =
            format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let signature = self.sign(token.as_bytes())?;
        token.push('.');
        token.push_str(&base64url(&signature));
        Ok(token)
    }

    /// The public key as aws-lc-rs takes it.
    fn public_bytes(&self) -> &[u8] {
        match self {
            Key::Rsa(key) => key.public_key().as_ref(),
            Key::Ecdsa(key) => key.public_key().as_ref(),
        }
    }
}

fn base64url(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    base::base64::encode_url(bytes, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn written(path: PathBuf, text: &str) -> Outcome<PathBuf> {
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// What the clients of a subject send.
enum Sends {
    Path(&'static str),
    /// The tokens of a file, one after the other.
    Tokens(PathBuf),
}

/// A bare server with its arguments, and the tokens that its clients send.
struct Floor {
    name: &'static str,
    words: Vec<String>,
    tokens: PathBuf,
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| FAILED.to_owned())?;
    let ecdsa = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let keys = [Key::Rsa(rsa), Key::Ecdsa(ecdsa.map_err(|_| FAILED.to_owned())?)];
    let folder = new_folder()?;

    let mut floors: Vec<Floor> = Vec::new();
    let mut plans = vec![(PLAIN, String::new(), Sends::Path("/1k.txt"))];
    for (key, [seen, new, floor]) in keys.iter().zip(NAMES) {
        let algorithm = key.algorithm();
        let set = format!("{{\"keys\":[{}]}}", key.public());
        let set = written(folder.join(format!("{algorithm}.json")), &set)?;
        let place = format!("auth_jwt bench; auth_jwt_key_file {};", set.display());
        let one = written(folder.join(format!("{algorithm}-seen")), &key.token(0)?)?;
        let mut all = String::new();
        for user in 0..TOKENS {
            let _ = writeln!(all, "{}", key.token(user)?);
        }
        let all = written(folder.join(format!("{algorithm}-new")), &all)?;
        let public = folder.join(format!("{algorithm}.key"));
        fs::write(&public, key.public_bytes()).map_err(|e| format!("{}: {e}", public.display()))?;
        let words = vec![algorithm.to_owned(), public.display().to_string()];
        floors.push(Floor { name: floor, words, tokens: all.clone() });
        plans.push((seen, place.clone(), Sends::Tokens(one)));
        plans.push((new, place, Sends::Tokens(all)));
    }
    // The same requests without a verification.
    let tokens = floors.last().map(|floor| floor.tokens.clone());
    floors.extend(tokens.map(|tokens| Floor { name: FLOOR, words: Vec::new(), tokens }));
    plans.push(("argument", "add_header X-Found $arg_k;".to_owned(), Sends::Path(LAST)));
    plans.push(("keyval", "add_header X-Found $found;".to_owned(), Sends::Path(LAST)));

    let pairs = written(folder.join("pairs.json"), &pairs())?;
    let (mut subjects, mut sends) = (Vec::new(), Vec::new());
    for (name, place, send) in plans {
        let fill = vec![("%PLACE%", place), ("%PAIRS%", pairs.display().to_string())];
        let setup = Setup { template: CONFIG, generation: 1, fill, ..Setup::default() };
        let server = Server::start(options, Kind::Weir, &setup)?.0;
        if name == "keyval" {
            find_pair(server.port)?;
        }
        sends.push((server.port, send));
        subjects.push(Subject::server(server).called(name));
    }
    for Floor { name, words, tokens } in floors {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let helper = Helper::bare(options, 0, "floor", &words)?;
        sends.push((helper.port, Sends::Tokens(tokens)));
        subjects.push(Subject::helper(name, helper));
    }
    subject::measure(options, &mut subjects, |port, seconds| {
        let send = sends.iter().find(|(of, _)| *of == port).map(|(_, send)| send);
        match send {
            Some(Sends::Tokens(file)) => {
                wrk::run_with_tokens(&load(port, "/1k.txt", seconds), file)
            }
            Some(Sends::Path(path)) => wrk::run(&load(port, path, seconds)),
            None => Err("no such subject".to_owned()),
        }
    })?;
    subject::print(&subjects, "req");
    subject::print_ratios(&subjects, "req", PLAIN);
    subject::print_ratios(&subjects, "req", "argument");
    for [_, new, floor] in NAMES {
        subject::print_ratio(&subjects, "req", floor, FLOOR);
        over_sum(&subjects, new, floor);
    }
    remove(&folder);
    Ok(())
}

/// The table of `keyval`, in JSON.
fn pairs() -> String {
    let pairs: Vec<_> = (0..PAIRS).map(|i| format!("\"key-{i}\":\"{i}\"")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// The answer has to have the pair's value: else the look-up that is measured finds nothing.
fn find_pair(port: u16) -> Outcome {
    let mut client = Client::new(port, None, Duration::from_secs(5));
    let answer = client.get_once(LAST).map_err(|lost| lost.to_string())?;
    match answer.field("X-Found") {
        Some("99999") => Ok(()),
        _ => Err(format!("the pair is not found: {}", answer.head)),
    }
}

fn load(port: u16, path: &str, seconds: u32) -> wrk::Load<'_> {
    let (connections, pipeline, close, files) = (64, false, false, None);
    wrk::Load { port, path, connections, seconds, pipeline, close, files }
}

/// Prints the CPU of a new token beside the sum of what it cannot do without: the file for
/// everybody, and what a verification adds to the floor.
fn over_sum(subjects: &[Subject], new: &str, floor: &str) {
    let cpu = |name| subject::cpu_us(subjects, name);
    if let (Some(new_us), Some(plain), Some(verifies), Some(bare)) =
        (cpu(new), cpu(PLAIN), cpu(floor), cpu(FLOOR))
    {
        let verification = verifies - bare;
        let over = new_us / (plain + verification);
        println!("{new}: one verification {verification:.2} us; CPU / ({PLAIN} + it) {over:.3}");
    }
}

fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}
