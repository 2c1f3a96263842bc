//! Certificates of clients, and the certificate that backends see: a Gateway's `tls`.

use super::refs;
use super::types::{FrontendSettings, Gateway};
use crate::conf::{Block, plain, w};
use crate::cx::Cx;
use crate::objects::Key;

/// How a listener verifies the certificates of clients.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The file of CA certificates.
    ca: String,
    /// Whether clients without a valid certificate are let in.
    pub insecure: bool,
}

/// Why a listener or a Gateway cannot have what it asks for: a reason and a message.
type Problem = (&'static str, String);

impl Clients {
    /// Those of the listeners at a port, and the first reference that is not valid. If none is,
    /// there is no way to verify.
    pub fn of(
        cx: &mut Cx,
        key: &Key,
        gateway: &Gateway,
        port: u16,
    ) -> (Option<Clients>, Result<(), Problem>) {
        let frontend = &gateway.spec.tls.frontend;
        let own = frontend.per_port.iter().find(|p| p.port == port).map(|p| &p.tls);
        let FrontendSettings { validation } = own.unwrap_or(&frontend.default);
        let Some(validation) = validation else { return (None, Ok(())) };
        let (mut text, mut resolved) = (String::new(), Ok(()));
        for reference in &validation.ca_certificate_refs {
            match refs::ca(cx, key, reference) {
                Ok(ca) => text.extend([ca, "\n"]),
                Err(problem) => resolved = resolved.and(Err(problem)),
            }
        }
        let insecure = validation.mode.as_deref() == Some("AllowInsecureFallback");
        if text.is_empty() {
            let none = || ("InvalidCACertificateRef", "no caCertificateRefs".to_owned());
            return (None, resolved.and(Err(none())));
        }
        let name = format!("{}-{}-{port}-clients", key.namespace, key.name);
        let ca = cx.file(&name, "crt", text.into_bytes());
        (Some(Clients { ca, insecure }), resolved)
    }

    /// Writes the directives. Clients that are refused see their connection closed: their requests
    /// are not answered at all.
    pub fn add_to(&self, block: &mut Block) {
        if self.insecure {
            // Without the CA certificates: a certificate that they contradict would be refused.
            block.add("ssl_verify_client", ["optional_no_ca"]);
            return;
        }
        block.add("ssl_client_certificate", [plain(&self.ca)]);
        block.add("ssl_verify_client", ["on"]);
        block.add("ssl_verify_depth", ["3"]);
        block.add("error_page", ["495", "496", "@gw_refused"]);
        let mut refused = Block::default();
        refused.add("return", ["444"]);
        block.block("location", [w("@gw_refused")], refused);
    }
}

/// Whether any port of a Gateway lets clients in without a valid certificate although it asks for
/// one.
pub(crate) fn is_insecure(gateway: &Gateway) -> bool {
    let frontend = &gateway.spec.tls.frontend;
    let all = frontend.per_port.iter().map(|p| &p.tls).chain([&frontend.default]);
    all.filter_map(|settings| settings.validation.as_ref())
        .any(|v| v.mode.as_deref() == Some("AllowInsecureFallback"))
}

/// The certificate and key for backends, if the Gateway names one.
pub(crate) fn of_backends(
    cx: &mut Cx,
    key: &Key,
    gateway: &Gateway,
) -> Option<Result<(String, String), Problem>> {
    let reference = gateway.spec.tls.backend.client_certificate_ref.as_ref()?;
    Some(refs::certificate(cx, key, reference, "InvalidClientCertificateRef"))
}
