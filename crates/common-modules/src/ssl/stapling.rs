//! `ssl_stapling`: OCSP responses that are shown to clients with the certificate.
//!
//! As in nginx a response is fetched once a handshake has asked for the certificate, by each
//! worker for itself, and again before it ends. What cannot be stapled is said once, at loading,
//! and served without. Certificates that variables name are stapled, too, by the certificate: of
//! those that were shown last, each has a place for its response.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Level;
use base::time::unix_secs;
use bytes::Bytes;
use conf::ConfError;
use conf::template::Template;
use engine::tls_files::Named;
use pki::ocsp::{Query, Signers, has_issued, response_of_file};
use pki::stapling::Staple;
use pki::verify::Store;
use pki::x509::{Certificate, Malformed};
use tls::certified::Certified;
use upstream::names::Lookup;
use upstream::ocsp_client::{self, Journal, Responder};

use super::settings::SslSettings;

/// Fetches the staples of one certificate.
pub struct Stapler {
    staple: RefCell<Staple>,
    /// A handshake has shown the certificate since the last look.
    is_shown: Cell<bool>,
    certified: Certified,
    query: Query,
    /// The responder, and its URL.
    responder: Responder,
    url: Bytes,
    /// The chain that clients get: with `ssl_stapling_verify off` any of it may sign.
    chain: Vec<Certificate>,
    verify: bool,
    /// The certificate's file.
    name: String,
}

/// Gives certificates their staple of a file, or a place for fetched ones.
///
/// # Errors
/// The file cannot be read.
pub(super) fn staplers(
    s: &SslSettings,
    names: &[(Named, Template)],
    certificates: &mut [Certified],
    store: &Store,
) -> Result<Vec<Rc<Stapler>>, ConfError> {
    if s.stapling != Some(true) {
        return Ok(Vec::new());
    }
    if let Some(file) = &s.stapling_file {
        let response = of_file(file)?;
        for certified in certificates {
            *certified = certified.with_staple(response.to_vec());
        }
        return Ok(Vec::new());
    }
    let mut staplers = Vec::new();
    for (certified, (name, _)) in certificates.iter_mut().zip(names) {
        let shown = name.path.display().to_string();
        let made = stapler(s, certified.with_staples(), store, shown.clone());
        match made.and_then(Stapler::resolved) {
            Ok(stapler) => {
                *certified = stapler.certified.clone();
                staplers.push(Rc::new(stapler));
            }
            Err(why) => {
                let why = why.of(&shown);
                conf::warn(&name.word, format!("\"ssl_stapling\" ignored, {why}"));
            }
        }
    }
    Ok(staplers)
}

/// Certificates with places for their staples, of those that handshakes have shown last.
const PLACES: usize = 64;

/// The staples of certificates that variables name.
#[derive(Default)]
pub(super) struct Changing {
    /// By the whole chain, in DER, the last one shown at the end; without a stapler where the
    /// certificate cannot be stapled.
    known: RefCell<Vec<(Bytes, Option<Rc<Stapler>>)>>,
    /// The response of `ssl_stapling_file`.
    of_file: Option<Bytes>,
}

impl Changing {
    /// # Errors
    /// The file cannot be read.
    pub fn new(s: &SslSettings) -> Result<Changing, ConfError> {
        let file = s.stapling_file.as_ref().filter(|_| s.stapling == Some(true));
        Ok(Changing { known: RefCell::default(), of_file: file.map(of_file).transpose()? })
    }

    /// A certificate with its staple, or a place for one, and the stapler that fills that. Reasons
    /// why there is none are logged once.
    pub fn with_staple(
        &self,
        s: &SslSettings,
        certified: Certified,
        store: &Store,
        name: &str,
    ) -> (Certified, Option<Rc<Stapler>>) {
        if let Some(response) = &self.of_file {
            return (certified.with_staple(response.to_vec()), None);
        }
        if s.stapling != Some(true) {
            return (certified, None);
        }
        let der = Bytes::from(certified.chain().collect::<Vec<_>>().concat());
        let mut known = self.known.borrow_mut();
        let stapler = match known.iter().position(|(of, _)| *of == der) {
            Some(at) => known.remove(at).1,
            None => match stapler(s, certified.with_staples(), store, name.to_owned()) {
                Ok(stapler) => Some(Rc::new(stapler)),
                Err(why) => {
                    let why = why.of(name);
                    let log = base::log::default();
                    base::log!(log, Level::Info, None, "\"ssl_stapling\" ignored, {why}");
                    None
                }
            },
        };
        if known.len() >= PLACES {
            known.remove(0);
        }
        known.push((der, stapler.clone()));
        let certified = stapler.as_ref().map_or(certified, |stapler| stapler.certified.clone());
        (certified, stapler)
    }

    /// Has staples fetched that are due, of certificates that were shown since the last time.
    pub fn update(&self, lookup: impl Fn() -> Lookup) {
        for stapler in self.known.borrow().iter().filter_map(|(_, stapler)| stapler.as_ref()) {
            if stapler.is_shown.take() {
                stapler.update(&lookup);
            }
        }
    }
}

/// The response in a file.
fn of_file(file: &Named) -> Result<Bytes, ConfError> {
    let path = file.path.display();
    let bytes = std::fs::read(&file.path).map_err(|e| {
        let e = base::log::os_error(&e);
        ConfError::at(&file.word, format!("BIO_new_file(\"{path}\") failed {e}"))
    })?;
    response_of_file(&bytes.into()).map_err(|e| {
        ConfError::at(&file.word, format!("d2i_OCSP_RESPONSE_bio(\"{path}\") failed ({e})"))
    })
}

/// Why a certificate has no staples.
enum NoStaples {
    /// A certificate of its chain cannot be parsed.
    Chain(Malformed),
    NoIssuer,
    NoUrl,
    /// The URL of the responder is of no use, for this reason.
    Responder(&'static str, Bytes),
}

impl NoStaples {
    /// The reason in nginx's words, for the certificate of this name.
    fn of(&self, name: &str) -> String {
        match self {
            NoStaples::Chain(e) => format!("{e} in the chain of certificate \"{name}\""),
            NoStaples::NoIssuer => {
                format!("issuer certificate not found for certificate \"{name}\"")
            }
            NoStaples::NoUrl => format!("no OCSP responder URL in the certificate \"{name}\""),
            NoStaples::Responder(why, url) => {
                let url = base::log::lossy(url);
                format!("{why} in OCSP responder \"{url}\" in the certificate \"{name}\"")
            }
        }
    }
}

fn stapler(
    s: &SslSettings,
    certified: Certified,
    store: &Store,
    name: String,
) -> Result<Stapler, NoStaples> {
    let chain: Result<Vec<_>, _> =
        certified.chain().map(|der| Certificate::parse(Bytes::copy_from_slice(der))).collect();
    let mut chain = chain.map_err(NoStaples::Chain)?;
    let own = chain.remove(0);
    let trusted = store.certificates().iter().map(|c| &**c);
    let mut issuers = chain.iter().chain(trusted).filter(|c| has_issued(c, &own));
    let issuer = issuers.next().ok_or(NoStaples::NoIssuer)?;
    let query = Query::new(&own, issuer);
    let url = match &s.stapling_responder {
        Some(word) => word.text.clone(),
        None => Bytes::copy_from_slice(own.ocsp_responders().next().ok_or(NoStaples::NoUrl)?),
    };
    let responder = Responder::parse(&url).map_err(|why| NoStaples::Responder(why, url.clone()))?;
    Ok(Stapler {
        staple: RefCell::new(Staple::to_fetch()),
        is_shown: Cell::new(false),
        url,
        certified,
        query,
        responder,
        chain,
        verify: s.stapling_verify.unwrap_or(false),
        name,
    })
}

fn now() -> i64 {
    unix_secs().cast_signed()
}

impl Stapler {
    /// With the responder's addresses, for configurations without a `resolver`. Waits.
    fn resolved(mut self) -> Result<Stapler, NoStaples> {
        let resolved = self.responder.resolve();
        resolved.map_err(|why| NoStaples::Responder(why, self.url.clone()))?;
        Ok(self)
    }

    /// Notes that a handshake shows the certificate.
    pub fn shown(&self) {
        self.is_shown.set(true);
    }

    /// Fetches a response if one is due, in a task of its own.
    pub fn update(self: &Rc<Self>, lookup: impl FnOnce() -> Lookup) {
        if !self.staple.borrow_mut().is_due(now()) {
            return;
        }
        let (stapler, lookup) = (self.clone(), lookup());
        event::spawn(async move { stapler.fetch(lookup).await });
    }

    async fn fetch(&self, lookup: Lookup) {
        let log = base::log::default();
        let journal = Journal { log: &log, connection: None, certificate: Some(&self.name) };
        let target = self.query.target(self.responder.uri());
        let response = ocsp_client::fetch(&self.responder, &lookup, &target, journal).await;
        let now = now();
        let mut staple = self.staple.borrow_mut();
        let Some(response) = response else { return staple.failed(now) };
        let tell = |message: std::fmt::Arguments<'_>| {
            journal.write(Level::Error, &self.responder, None, message);
        };
        let signers = match self.verify {
            true => Signers::Authorized,
            false => Signers::Any(&self.chain),
        };
        match self.query.check(&response, signers, now) {
            Err(e) => {
                tell(format_args!("{e}"));
                staple.failed(now);
            }
            Ok(answer) => match staple.fetched(response.clone(), &answer, now) {
                Ok(()) => {
                    self.certified.staple(&response, answer.next_update.unwrap_or(i64::MAX));
                }
                Err(status) => {
                    tell(format_args!("certificate status \"{status}\" in the OCSP response"));
                }
            },
        }
    }
}
