//! The same chains of certificates to `openssl verify` and to weir's own verification.
//!
//! Nothing that OpenSSL refuses may be accepted; what only weir refuses is counted by its reason.
//! Where both refuse, the errors and their places are to be the same, up to the one at which
//! `openssl verify` stops.

#![forbid(unsafe_code)]

mod chain;
mod draft;
mod openssl;
mod printed;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use pki::verify::{Purpose, Rules, Store, check_host};
use pki::x509::{Certificate, RevocationList};

use chain::{Case, Keys};
use testkit::rng::Rng;

/// Every so many cases the texts of the leaf are compared, too.
const PRINTED_EVERY: usize = 10;

/// Cases that are kept of each kind of difference.
const KEPT: usize = 3;

/// The verdict of a side: the errors with their places, none for a good chain.
type Errors = Vec<(u8, usize)>;

/// Success, or the reason for which there is none.
type Outcome<T = ()> = Result<T, String>;

/// The chains that are compared.
#[derive(Clone, Copy)]
pub struct Options {
    /// How many.
    pub requests: usize,
    /// They are the same for the same seed.
    pub seed: u64,
    /// The number of a single one, which is shown with its verdicts.
    pub only: Option<usize>,
}

/// Runs the comparison.
///
/// # Errors
/// OpenSSL cannot be asked, or the two differ where they may not.
pub fn run(options: &Options) -> Outcome {
    let folder = Folder::new()?;
    let keys = Keys::new();
    let mut seen = Seen::default();
    for number in 0..options.requests {
        if options.only.is_some_and(|only| only != number) {
            continue;
        }
        // Each case has a sequence of its own, so that one alone is the same.
        let mut rng = Rng::new(options.seed.wrapping_mul(1 << 32).wrapping_add(number as u64));
        let case = chain::case(&mut rng, &keys);
        let openssl = openssl::verify(&folder.0, &case)?;
        let weir = verify(&case);
        if options.only.is_some() {
            println!("openssl: {openssl:?}\nweir:    {weir:?}\n{}", case.told());
        }
        let kind = seen.compare(&case, &openssl, &weir);
        if let Some(kind) = kind
            && *kind.1 <= KEPT
        {
            folder.keep(&kind.0, number)?;
        }
        if number.is_multiple_of(PRINTED_EVERY) {
            printed::compare(&folder.0, &case, number)?;
        }
    }
    seen.report(options, &folder)
}

/// Weir's answer: errors, or why a certificate cannot be read.
#[derive(Debug)]
struct Answer {
    errors: Errors,
    malformed: Option<&'static str>,
    host: bool,
}

fn verify(case: &Case) -> Answer {
    let mut answer = Answer { errors: Vec::new(), malformed: None, host: true };
    let mut store = Store::default();
    store.set_security_level(case.level);
    let mut peer = Vec::new();
    let read = |der: &Vec<u8>| Certificate::parse(der.clone().into());
    for der in &case.trusted {
        match read(der) {
            Ok(certificate) => store.add(certificate),
            Err(why) => answer.malformed = Some(why.0),
        }
    }
    for der in &case.lists {
        match RevocationList::parse(der.clone().into()) {
            Ok(list) => store.add_list(list),
            Err(why) => answer.malformed = Some(why.0),
        }
    }
    for der in &case.peer {
        match read(der) {
            Ok(certificate) => peer.push(Arc::new(certificate)),
            Err(why) => answer.malformed = Some(why.0),
        }
    }
    if answer.malformed.is_some() {
        return answer;
    }
    if case.check_lists {
        store.check_revocation();
    }
    let purpose = if case.server { Purpose::Server } else { Purpose::Client };
    let rules = Rules { purpose, depth: case.depth, now: case.now };
    let verdict = store.verify(&peer, &rules);
    answer.errors = verdict.errors().iter().map(|(error, i)| (error.number(), *i)).collect();
    if let (Some(host), Some(leaf)) = (case.host, peer.first()) {
        answer.host = check_host(leaf, host.as_bytes());
    }
    answer
}

/// Counts of outcomes.
#[derive(Default)]
struct Seen {
    both_accept: usize,
    both_refuse: usize,
    /// By OpenSSL's first error.
    refused: BTreeMap<u8, usize>,
    only_openssl: BTreeMap<String, usize>,
    only_weir: BTreeMap<String, usize>,
    other_errors: BTreeMap<String, usize>,
}

impl Seen {
    /// The kind of the difference, if there is one, and how often it has been seen.
    fn compare<'s>(
        &'s mut self,
        case: &Case,
        openssl: &openssl::Answer,
        weir: &Answer,
    ) -> Option<(String, &'s usize)> {
        let first = openssl.errors.first().map(|(number, _)| *number);
        if let Some(first) = first {
            *self.refused.entry(first).or_default() += 1;
        }
        let accepts = weir.malformed.is_none() && weir.errors.is_empty() && weir.host;
        let (map, kind) = match (openssl.accepts, accepts) {
            (true, true) => {
                self.both_accept += 1;
                return None;
            }
            (false, true) => (&mut self.only_openssl, format!("openssl {:?}", openssl.errors)),
            (true, false) => (&mut self.only_weir, format!("{} {:?}", reason(weir), case.odd)),
            (false, false) => {
                self.both_refuse += 1;
                if weir.malformed.is_some() || openssl.unreadable || case.host.is_some() {
                    return None;
                }
                let (ours, theirs) = (until_stop(&weir.errors), &openssl.errors);
                if ours == *theirs {
                    return None;
                }
                let kind = match case.odd.is_empty() {
                    true => format!("openssl {theirs:?} weir {ours:?}"),
                    false => format!("{:?}", case.odd),
                };
                (&mut self.other_errors, kind)
            }
        };
        let count = map.entry(kind.clone()).or_default();
        *count += 1;
        Some((kind, count))
    }

    fn report(&self, options: &Options, folder: &Folder) -> Outcome {
        let Self { both_accept, both_refuse, .. } = self;
        println!("{} chains, seed {}", options.requests, options.seed);
        println!("{both_accept} accepted by both, {both_refuse} refused by both");
        let refused: Vec<_> = self.refused.iter().map(|(e, n)| format!("{e}: {n}")).collect();
        println!("OpenSSL's first errors: {}", refused.join(", "));
        show("refused by weir alone", &self.only_weir);
        show("refused by both with other errors", &self.other_errors);
        show("ACCEPTED BY WEIR ALONE", &self.only_openssl);
        if !self.only_weir.is_empty() || !self.other_errors.is_empty() {
            println!("the first {KEPT} of each kind are in {}", folder.kept().display());
        }
        match self.only_openssl.values().sum::<usize>() {
            0 => Ok(()),
            n => Err(format!("{n} chains are accepted that OpenSSL refuses")),
        }
    }
}

fn show(title: &str, kinds: &BTreeMap<String, usize>) {
    println!("{title}: {}", kinds.values().sum::<usize>());
    for (kind, count) in kinds {
        println!("  {count:6} {kind}");
    }
}

fn reason(weir: &Answer) -> String {
    match (weir.malformed, weir.errors.last()) {
        (Some(why), _) => format!("malformed: {why}"),
        (None, Some((number, _))) => format!("error {number}"),
        (None, None) => "host name".to_owned(),
    }
}

/// The program goes on after some errors, and stops at the first other one.
fn until_stop(errors: &[(u8, usize)]) -> Errors {
    const GOES_ON: [u8; 9] = [10, 11, 12, 18, 25, 26, 34, 37, 79];
    let stop = errors.iter().position(|(number, _)| !GOES_ON.contains(number));
    errors[..stop.map_or(errors.len(), |i| i + 1)].to_vec()
}

/// The files of the case at hand, and copies of odd ones.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Self> {
        let name = format!("weir-certificates-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("now")).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path.join("now")))
    }

    fn kept(&self) -> PathBuf {
        self.0.with_file_name("kept")
    }

    fn keep(&self, kind: &str, number: usize) -> Outcome {
        let plain = kind.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let to = self.kept().join(format!("{number}-{}", &plain[..plain.len().min(60)]));
        let copy = || -> std::io::Result<()> {
            fs::create_dir_all(&to)?;
            for entry in fs::read_dir(&self.0)? {
                let entry = entry?;
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
            Ok(())
        };
        copy().map_err(|e| format!("{}: {e}", to.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        // Goes if nothing was kept.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}
