//! `ssl_ocsp`: whether the certificates of a client's chain have been revoked.

use std::rc::Rc;
use std::sync::Arc;

use base::log::{Level, Log};
use base::time::unix_secs;
use bytes::Bytes;
use conf::value::parse_size;
use conf::{ConfError, Node, Word};
use engine::settings::Conf;
use engine::{Cx, Session};
use pki::ocsp::{CertStatus, Query, Signers, StatusCache};
use pki::x509::Certificate;
use shm::ZoneState;
use upstream::names::Lookup;
use upstream::ocsp_client::{self, Journal, Responder};

use super::settings::{SslSettings, VerifyClient};

/// `ssl_ocsp`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OcspMode {
    /// Nobody is asked.
    #[default]
    Off,
    /// All of the chain is looked up but its root.
    On,
    /// The client's own certificate is looked up.
    Leaf,
}

/// The words of the directive.
pub(super) const MODES: &[(&str, OcspMode)] =
    &[("off", OcspMode::Off), ("on", OcspMode::On), ("leaf", OcspMode::Leaf)];

/// The least size of a cache: eight pages, as in nginx.
const CACHE_MIN: usize = 8 * 4096;

/// A zone of `ssl_ocsp_cache`.
pub struct OcspZone(StatusCache);

impl ZoneState for OcspZone {
    fn died(&self, pid: u32, _: usize) {
        self.0.free_of(pid);
    }
}

/// The zones by name.
#[derive(Default)]
pub struct OcspZones(Vec<(Bytes, Rc<OcspZone>)>);

impl Conf for OcspZones {}

/// `ssl_ocsp_cache off | shared:name:size`; `Some(None)` is off.
///
/// # Errors
/// The word is wrong, the zone is somebody else's, or there is no memory.
pub(super) fn cache<S: Session>(
    cx: &mut Cx<S>,
    n: &Node,
) -> Result<Option<Rc<OcspZone>>, ConfError> {
    let word = n.arg(0)?;
    if word.bytes() == b"off" {
        return Ok(None);
    }
    let (name, bytes) = name_and_bytes(word)?;
    cx.declare_zone(word, &name, Some(bytes), "ssl_ocsp_cache")?;
    let known = cx.main::<OcspZones>().0.iter().find(|(known, _)| *known == name).cloned();
    if let Some((_, zone)) = known {
        return Ok(Some(zone));
    }
    let zone = match cx.env.zones.kept::<OcspZone>(&name) {
        Some(kept) => kept,
        None => Rc::new(OcspZone(StatusCache::new(bytes).map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(word, format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"))
        })?)),
    };
    cx.env.zones.put(&name, zone.clone());
    cx.main::<OcspZones>().0.push((name, zone.clone()));
    Ok(Some(zone))
}

fn name_and_bytes(word: &Word) -> Result<(Bytes, usize), ConfError> {
    let shown = word.lossy();
    let invalid = || ConfError::at(word, format!("invalid OCSP cache \"{shown}\""));
    let text = word.bytes().strip_prefix(b"shared:").ok_or_else(invalid)?;
    let colon = memchr::memchr(b':', text).filter(|at| *at > 0).ok_or_else(invalid)?;
    let bytes = parse_size(&text[colon + 1..]).ok_or_else(invalid)?;
    if bytes < CACHE_MIN {
        return Err(ConfError::at(word, format!("OCSP cache \"{shown}\" is too small")));
    }
    Ok((word.text.slice_ref(&text[..colon]), bytes))
}

/// The look-up of a server's clients.
pub struct ClientStatus {
    leaf_only: bool,
    /// `ssl_ocsp_responder`; else the certificate names one.
    responder: Option<Responder>,
    cache: Option<Rc<OcspZone>>,
}

/// # Errors
/// The settings do not go together, or the responder's URL is wrong; in nginx's words.
pub(super) fn client_status(s: &SslSettings) -> Result<Option<ClientStatus>, ConfError> {
    let mode = s.ocsp.unwrap_or_default();
    if mode == OcspMode::Off {
        return Ok(None);
    }
    if s.verify == Some(VerifyClient::OptionalNoCa) {
        let m = "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"";
        return Err(ConfError::new(m));
    }
    let responder = s.ocsp_responder.as_ref().map(responder).transpose()?;
    let cache = s.ocsp_cache.clone().flatten();
    Ok(Some(ClientStatus { leaf_only: mode == OcspMode::Leaf, responder, cache }))
}

fn responder(word: &Word) -> Result<Responder, ConfError> {
    let parsed = Responder::parse(word.bytes()).and_then(|mut responder| {
        responder.resolve()?;
        Ok(responder)
    });
    parsed.map_err(|why| {
        let url = word.lossy();
        let m = format!("{why} in OCSP responder \"{url}\" in \"ssl_ocsp_responder\"");
        ConfError::at(word, m)
    })
}

/// The text for a status that could not be found out.
const FAILED: &str = "certificate status request failed";

impl ClientStatus {
    /// Looks up the certificates of a verified chain, the client's own first and the root last.
    ///
    /// # Errors
    /// The client may not enter; nginx's words for why.
    pub async fn check(
        &self,
        chain: &[Arc<Certificate>],
        lookup: &Lookup,
        log: &Log,
        connection: u64,
    ) -> Result<(), &'static str> {
        let journal = Journal { log, connection: Some(connection), certificate: None };
        let pairs = chain.windows(2).take(if self.leaf_only { 1 } else { usize::MAX });
        for pair in pairs {
            match self.status(&pair[0], &pair[1], lookup, journal).await {
                Some(CertStatus::Good) => {}
                Some(CertStatus::Revoked) => return Err("certificate revoked"),
                Some(CertStatus::Unknown) => return Err("certificate status unknown"),
                None => return Err(FAILED),
            }
        }
        Ok(())
    }

    async fn status(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        lookup: &Lookup,
        journal: Journal<'_>,
    ) -> Option<CertStatus> {
        let own;
        let responder = match &self.responder {
            Some(responder) => responder,
            None => {
                own = of_certificate(certificate, journal)?;
                &own
            }
        };
        let query = Query::new(certificate, issuer);
        let kept = match &self.cache {
            Some(zone) => Some((&zone.0, query.cache_key()?)),
            None => None,
        };
        let known = kept.and_then(|(cache, key)| cache.find(&key, unix_secs().cast_signed()));
        if known.is_some() {
            return known;
        }
        let target = query.target(responder.uri());
        let response = ocsp_client::fetch(responder, lookup, &target, journal).await?;
        let now = unix_secs().cast_signed();
        match query.check(&response, Signers::Authorized, now) {
            Ok(answer) => {
                if let Some((cache, key)) = kept {
                    cache.keep(&key, &answer, now);
                }
                Some(answer.status)
            }
            Err(e) => {
                journal.write(Level::Error, responder, None, format_args!("{e}"));
                None
            }
        }
    }
}

/// The responder that a certificate names. Its host is looked up by the `resolver` alone.
fn of_certificate(certificate: &Certificate, journal: Journal<'_>) -> Option<Responder> {
    let url = certificate.ocsp_responders().next();
    let tell = |message: std::fmt::Arguments<'_>| {
        base::log!(journal.log, Level::Error, journal.connection, "{message}");
    };
    let Some(url) = url else {
        tell(format_args!("no OCSP responder URL in certificate"));
        return None;
    };
    match Responder::parse(url) {
        Ok(responder) => Some(responder),
        Err(why) => {
            let url = base::log::lossy(url);
            tell(format_args!("{why} in OCSP responder \"{url}\" in certificate"));
            None
        }
    }
}
