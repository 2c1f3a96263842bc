//! `weir-kube diff`: what changes for objects when ingress-nginx is replaced.

use std::collections::BTreeMap;
use std::fmt::Write;

use render::annotations;
use render::keys::{self, Outcome};
use render::{Objects, Options, render};

/// Annotations that work, but not quite as in ingress-nginx.
const DIFFERENT: &[(&str, &str)] = &[
    ("affinity-mode", "sessions stay with their server in both modes"),
    ("session-cookie-change-on-failure", "a failed server is always replaced in the cookie"),
    ("session-cookie-expires", "sets Max-Age, too"),
    ("session-cookie-max-age", "sets Expires, too"),
    ("auth-keepalive-share-vars", "variables are always shared"),
    ("cors-allow-origin", "fields of CORS that the backend sends to other origins are removed"),
    ("ssl-ciphers", "only the suites of TLS 1.2 with AEAD exist"),
    ("ssl-passthrough", "backends see connections without the PROXY protocol"),
    ("canary-weight", "shares are exact to a hundredth of a percent"),
];

/// The report as text.
pub fn report(objects: &Objects, options: &Options) -> String {
    let mut out = String::new();
    let prefix = format!("{}/", options.annotations_prefix);
    let (mut same, mut changed) = (0, 0);
    for (key, ingress) in &objects.ingresses {
        let mut lines = Vec::new();
        for name in ingress.metadata.annotations.keys() {
            let Some(name) = name.strip_prefix(&prefix) else { continue };
            match annotations::find(name) {
                None => lines.push(format!("{name}: not an annotation of ingress-nginx: ignored")),
                Some(a) if a.outcome != Outcome::Works => lines.push(format!("{name}: {}", a.how)),
                Some(_) => {
                    let note = DIFFERENT.iter().find(|(n, _)| *n == name);
                    lines.extend(note.map(|(_, note)| format!("{name}: {note}")));
                }
            }
        }
        match lines.is_empty() {
            true => same += 1,
            false => {
                changed += 1;
                let _ = writeln!(out, "Ingress {key}");
                lines.iter().for_each(|line| {
                    let _ = writeln!(out, "  {line}");
                });
            }
        }
    }
    if let Some(map) = options.config_map.as_ref().and_then(|key| objects.config_maps.get(key)) {
        for name in map.data.keys() {
            if let Some(key) = keys::find(name).filter(|key| key.outcome != Outcome::Works) {
                let _ = writeln!(out, "ConfigMap key {name}: {}", key.how);
            }
        }
    }
    let rendered = render(objects, options, &BTreeMap::new());
    let known = |reason: &str| reason == "Ignored";
    for event in rendered.events.iter().filter(|e| e.warning && !known(e.reason)) {
        let _ = writeln!(out, "{}: {}", event.object, event.message);
    }
    let _ = writeln!(
        out,
        "{same} Ingresses behave as with ingress-nginx, {changed} differ as listed above."
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_changes() {
        let text = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: a
  annotations:
    nginx.ingress.kubernetes.io/enable-modsecurity: 'true'
    nginx.ingress.kubernetes.io/limit-rps: '1'
    nginx.ingress.kubernetes.io/ssl-passthrough: 'true'
spec: {ingressClassName: nginx}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: b}
spec: {ingressClassName: nginx}
";
        let mut objects = Objects::default();
        objects.read_yaml(text).unwrap();
        let report = report(&objects, &Options::default());
        assert!(report.contains("enable-modsecurity: there is no ModSecurity"), "{report}");
        assert!(report.contains("ssl-passthrough: ") && !report.contains("limit-rps"), "{report}");
        assert!(report.contains("1 Ingresses behave as"), "{report}");
    }
}
