//! The annotations of ingress-nginx: what each may contain, and what becomes of it.
//!
//! This table is the one source: of the checks, of the events, and of the table in
//! `docs/KUBERNETES.md`.

use std::collections::BTreeMap;

use crate::check::{self, Check};
use crate::keys::Outcome;

/// One annotation.
#[derive(Clone, Copy, Debug)]
pub struct Annotation {
    /// Its name without the prefix.
    pub name: &'static str,
    /// What its value has to be.
    pub check: Check,
    /// What becomes of it.
    pub outcome: Outcome,
    /// How, or why not.
    pub how: &'static str,
    /// Whether it is a snippet, which only an administrator may allow.
    pub snippet: bool,
}

const fn works(name: &'static str, check: Check, how: &'static str) -> Annotation {
    Annotation { name, check, outcome: Outcome::Works, how, snippet: false }
}

const fn snippet(name: &'static str, how: &'static str) -> Annotation {
    Annotation { name, check: Check::Text, outcome: Outcome::Works, how, snippet: true }
}

const fn refused(name: &'static str, check: Check, why: &'static str) -> Annotation {
    Annotation { name, check, outcome: Outcome::Refused, how: why, snippet: false }
}

const fn meaningless(name: &'static str, check: Check, why: &'static str) -> Annotation {
    Annotation { name, check, outcome: Outcome::NoMeaning, how: why, snippet: false }
}

const NO_WAF: &str = "there is no ModSecurity in Weir: ask a firewall by `auth-url`, or put one in \
                      front. The paths answer 503, because serving them unprotected would be worse";

const NO_WAF_SETTING: &str = "there is no ModSecurity in Weir: ask a firewall by `auth-url`, or \
                              put one in front. Without `enable-modsecurity` it has no effect";

const SAME_SITES: &[&str] = &["none", "lax", "strict"];

use Check::*;

/// All of them, by topic.
pub const ANNOTATIONS: &[Annotation] = &[
    // Paths.
    works("app-root", CapturePath, "302 from `/` to it"),
    works("rewrite-target", CapturePath, "`rewrite`; the host's paths become expressions"),
    works("use-regex", Bool, "`location ~*` for all paths of the host"),
    works("x-forwarded-prefix", CapturePath, "`X-Forwarded-Prefix`, with `rewrite-target`"),
    works("server-alias", ServerNames, "further names in `server_name`"),
    // Sessions.
    works("affinity", Of(&["cookie"]), "`sticky cookie`"),
    works(
        "affinity-mode",
        Of(&["balanced", "persistent"]),
        "sessions stay with their server in both modes: adding servers moves none",
    ),
    works(
        "affinity-canary-behavior",
        Of(&["sticky", "legacy"]),
        "a second cookie, `NAME-backend`, keeps a client with the canary, or with the main service",
    ),
    works("session-cookie-name", Basic, "the name of the cookie"),
    works("session-cookie-secure", Bool, "`sticky … secure`"),
    works("session-cookie-expires", SignedInt, "`sticky … expires=`, which also sets Max-Age"),
    works("session-cookie-max-age", SignedInt, "`sticky … expires=`, which also sets Expires"),
    works("session-cookie-path", Url, "`sticky … path=`"),
    works("session-cookie-domain", Basic, "`sticky … domain=`"),
    works("session-cookie-samesite", OfAnyCase(SAME_SITES), "`sticky … samesite=`"),
    works(
        "session-cookie-conditional-samesite-none",
        Bool,
        "`samesite=` by a `map` of the browsers that reject None",
    ),
    works(
        "session-cookie-change-on-failure",
        Bool,
        "a failed server is always replaced in the cookie; \"false\" has no effect",
    ),
    // Authentication.
    works("auth-realm", BasicSpaced, "`auth_basic`"),
    works("auth-secret", Basic, "`auth_basic_user_file`"),
    works("auth-secret-type", Of(&["auth-file", "auth-map"]), "both forms of the secret"),
    works(
        "auth-type",
        Of(&["basic", "digest"]),
        "`basic`; with `digest` the paths answer 503 and an event says so",
    ),
    works("auth-tls-secret", Basic, "`ssl_client_certificate`, and `ssl_crl` with `ca.crl`"),
    works("auth-tls-verify-depth", Int, "`ssl_verify_depth`"),
    works(
        "auth-tls-verify-client",
        Of(&["on", "off", "optional", "optional_no_ca"]),
        "`ssl_verify_client`",
    ),
    works("auth-tls-error-page", ErrorPage, "`error_page 495 496`"),
    works("auth-tls-pass-certificate-to-upstream", Bool, "`ssl-client-cert`"),
    works("auth-tls-match-cn", CommonName, "403 if the subject does not match"),
    works("auth-url", UrlWithVariables, "`auth_request`"),
    works(
        "auth-method",
        Of(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"]),
        "`proxy_method` of the authentication request",
    ),
    works("auth-signin", UrlWithVariables, "302 on status 401"),
    works("auth-signin-redirect-param", Url, "the parameter of that redirect"),
    works("auth-response-headers", HeaderList, "`auth_request_set` and `proxy_set_header`"),
    works("auth-proxy-set-headers", Basic, "fields of the authentication request from a ConfigMap"),
    works("auth-request-redirect", Url, "`X-Auth-Request-Redirect`"),
    works("auth-cache-key", Variables, "`proxy_cache` of the authentication request"),
    works("auth-cache-duration", CacheDurations, "`proxy_cache_valid`"),
    works("auth-always-set-cookie", Bool, "`add_header Set-Cookie … always`"),
    works("auth-keepalive", SignedInt, "an `upstream` with `keepalive`"),
    works("auth-keepalive-requests", Int, "`keepalive_requests`"),
    works("auth-keepalive-timeout", Int, "`keepalive_timeout`"),
    works("auth-keepalive-share-vars", Bool, "variables are always shared with the subrequest"),
    snippet("auth-snippet", "directives of the authentication request's location"),
    works("enable-global-auth", Bool, "\"false\": without `global-auth-url`"),
    works("satisfy", Of(&["any", "all"]), "`satisfy`"),
    works("whitelist-source-range", Cidrs, "`allow`, then `deny all`"),
    works("allowlist-source-range", Cidrs, "`allow`, then `deny all`"),
    works("denylist-source-range", Cidrs, "`deny`"),
    // Backends.
    works(
        "backend-protocol",
        OfAnyCase(&["HTTP", "HTTPS", "AUTO_HTTP", "GRPC", "GRPCS", "FCGI"]),
        "`proxy_pass`, `grpc_pass` or `fastcgi_pass`",
    ),
    works("fastcgi-index", Basic, "`fastcgi_index`"),
    works("fastcgi-params-configmap", Basic, "`fastcgi_param` from a ConfigMap"),
    works("service-upstream", Bool, "the Service's cluster address instead of its endpoints"),
    works(
        "load-balance",
        Of(&["round_robin", "ewma"]),
        "round robin, or `random two least_time=last_byte` for `ewma`",
    ),
    works("upstream-hash-by", Variables, "`hash … consistent`"),
    refused(
        "upstream-hash-by-subset",
        Bool,
        "there are no subsets: `upstream-hash-by` chooses one server for each key",
    ),
    refused("upstream-hash-by-subset-size", Int, "there are no subsets"),
    works("upstream-vhost", ServerName, "`proxy_set_header Host`"),
    works("connection-proxy-header", Of(&["close", "keep-alive"]), "`proxy_set_header Connection`"),
    works("proxy-connect-timeout", Int, "`proxy_connect_timeout`"),
    works("proxy-send-timeout", Int, "`proxy_send_timeout`"),
    works("proxy-read-timeout", Int, "`proxy_read_timeout`"),
    works("proxy-buffering", Of(&["on", "off"]), "`proxy_buffering`"),
    works("proxy-buffers-number", Int, "`proxy_buffers`"),
    works("proxy-buffer-size", Size, "`proxy_buffer_size`"),
    works("proxy-busy-buffers-size", Size, "`proxy_busy_buffers_size`"),
    works("proxy-max-temp-file-size", Size, "`proxy_max_temp_file_size`"),
    works("proxy-request-buffering", Of(&["on", "off"]), "`proxy_request_buffering`"),
    works("proxy-http-version", Of(&["1.0", "1.1"]), "`proxy_http_version`"),
    works("proxy-body-size", Size, "`client_max_body_size`"),
    works("client-body-buffer-size", Size, "`client_body_buffer_size`"),
    works("proxy-cookie-domain", CookieDomain, "`proxy_cookie_domain`"),
    works("proxy-cookie-path", BasicSpaced, "`proxy_cookie_path`"),
    works("proxy-next-upstream", NextUpstream, "`proxy_next_upstream`"),
    works("proxy-next-upstream-timeout", Int, "`proxy_next_upstream_timeout`"),
    works("proxy-next-upstream-tries", Int, "`proxy_next_upstream_tries`"),
    works("proxy-redirect-from", Url, "`proxy_redirect`"),
    works("proxy-redirect-to", Url, "`proxy_redirect`"),
    works("proxy-ssl-secret", Basic, "`proxy_ssl_certificate`, `proxy_ssl_trusted_certificate`"),
    works("proxy-ssl-ciphers", Ciphers, "`proxy_ssl_ciphers`"),
    works("proxy-ssl-name", ServerName, "`proxy_ssl_name`"),
    works("proxy-ssl-protocols", TlsVersions, "`proxy_ssl_protocols`"),
    works("proxy-ssl-verify", Of(&["on", "off"]), "`proxy_ssl_verify`"),
    works("proxy-ssl-verify-depth", Int, "`proxy_ssl_verify_depth`"),
    works("proxy-ssl-server-name", Of(&["on", "off"]), "`proxy_ssl_server_name`"),
    works("ssl-passthrough", Bool, "TLS by name to the backend (`--enable-ssl-passthrough`)"),
    // Canaries and mirrors.
    works("canary", Bool, "`map` and `split_clients` choose the upstream"),
    works("canary-by-header", Basic, "always, never"),
    works("canary-by-header-value", Basic, "a value of that field"),
    works("canary-by-header-pattern", Regex, "an expression for that field"),
    works("canary-by-cookie", Basic, "always, never"),
    works("canary-weight", Int, "a share of the requests"),
    works("canary-weight-total", Int, "what the weight is a part of"),
    works("mirror-target", UrlWithVariables, "`mirror`"),
    works("mirror-request-body", Of(&["on", "off"]), "`mirror_request_body`"),
    works("mirror-host", ServerName, "the Host field of mirrored requests"),
    // Responses.
    works("default-backend", ServiceName, "answers if the Service has no endpoints"),
    works("custom-http-errors", ErrorCodes, "`error_page` to the default backend"),
    works("disable-proxy-intercept-errors", Bool, "without `proxy_intercept_errors`"),
    works("custom-headers", Basic, "`more_set_headers` from a ConfigMap"),
    works("enable-cors", Bool, "`Access-Control-…` fields, and 204 for preflight requests"),
    works("cors-allow-origin", Origins, "a `map` of `Origin`"),
    works("cors-allow-methods", Methods, "`Access-Control-Allow-Methods`"),
    works("cors-allow-headers", HeaderList, "`Access-Control-Allow-Headers`"),
    works("cors-expose-headers", BasicOrStar, "`Access-Control-Expose-Headers`"),
    works("cors-allow-credentials", Bool, "`Access-Control-Allow-Credentials`"),
    works("cors-max-age", SignedInt, "`Access-Control-Max-Age`"),
    works("permanent-redirect", Url, "`return 301`"),
    works("permanent-redirect-code", Int, "its status, from 300 to 308"),
    works("temporal-redirect", Url, "`return 302`"),
    works("temporal-redirect-code", Int, "its status, from 300 to 308"),
    works("relative-redirects", Bool, "`absolute_redirect off`"),
    works("from-to-www-redirect", Bool, "a server for the other name"),
    works("ssl-redirect", Bool, "308 to HTTPS if the host has a certificate"),
    works("force-ssl-redirect", Bool, "308 to HTTPS always"),
    works("preserve-trailing-slash", Bool, "that redirect keeps a slash at the end"),
    works(
        "use-port-in-redirects",
        Bool,
        "`port_in_redirect`, and the port in the redirect to HTTPS",
    ),
    meaningless("http2-push-preload", Bool, "browsers and nginx have given up HTTP/2 push"),
    // Limits.
    works("limit-connections", Int, "`limit_conn`"),
    works("limit-rps", Int, "`limit_req` in requests per second"),
    works("limit-rpm", Int, "`limit_req` in requests per minute"),
    works("limit-burst-multiplier", Int, "`burst`"),
    works("limit-rate", Int, "`limit_rate` in kilobytes per second"),
    works("limit-rate-after", Int, "`limit_rate_after` in kilobytes"),
    works("limit-whitelist", Cidrs, "addresses without limits"),
    works("limit-allowlist", Cidrs, "addresses without limits"),
    // TLS.
    works("ssl-ciphers", Ciphers, "`ssl_ciphers`; those of TLS 1.2 with AEAD are available"),
    works("ssl-prefer-server-ciphers", Bool, "`ssl_prefer_server_ciphers`"),
    // Logs and traces.
    works("enable-access-log", Bool, "`access_log off`"),
    works("enable-rewrite-log", Bool, "`rewrite_log`"),
    works("enable-opentelemetry", Bool, "`otel_trace`"),
    works("opentelemetry-trust-incoming-span", Bool, "`otel_trace_context`"),
    works("opentelemetry-operation-name", BasicSpaced, "`otel_span_name`"),
    // Snippets.
    snippet("configuration-snippet", "directives of the location"),
    snippet("server-snippet", "directives of the server"),
    snippet("stream-snippet", "directives of `stream`"),
    // A firewall.
    refused("enable-modsecurity", Bool, NO_WAF),
    refused("enable-owasp-core-rules", Bool, NO_WAF),
    refused("modsecurity-transaction-id", Variables, NO_WAF_SETTING),
    refused("modsecurity-snippet", Text, NO_WAF_SETTING),
];

/// Finds an annotation by its name.
pub fn find(name: &str) -> Option<&'static Annotation> {
    ANNOTATIONS.iter().find(|a| a.name == name)
}

/// The annotations of one object, checked.
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    values: BTreeMap<&'static str, String>,
}

/// What the checks found besides.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Annotations that are ignored, and why.
    pub ignored: Vec<String>,
}

impl Annotations {
    /// Reads an object's annotations. Values stand without the prefix.
    ///
    /// # Errors
    /// The first annotation whose value is not acceptable: the object is refused.
    pub fn read(
        all: &BTreeMap<String, String>,
        prefix: &str,
        snippets: bool,
        blocked: &[String],
    ) -> Result<(Annotations, Findings), String> {
        let mut values = BTreeMap::new();
        let mut findings = Findings::default();
        for (full, value) in all {
            let Some(name) = full.strip_prefix(prefix).and_then(|n| n.strip_prefix('/')) else {
                continue;
            };
            let Some(known) = find(name) else {
                findings.ignored.push(format!("annotation \"{name}\" is unknown"));
                continue;
            };
            if value.is_empty() {
                continue;
            }
            if let Some(word) = blocked.iter().find(|word| value.contains(word.as_str())) {
                return Err(format!("annotation \"{name}\" contains the blocked word \"{word}\""));
            }
            if known.snippet {
                if !snippets {
                    return Err(format!(
                        "annotation \"{name}\" is a snippet, and allow-snippet-annotations is \
                         not \"true\""
                    ));
                }
                crate::snippet::check(value).map_err(|e| format!("annotation \"{name}\": {e}"))?;
            } else if known.name != "modsecurity-snippet" {
                if !check::is_clean(value) {
                    return Err(format!("annotation \"{name}\" contains a control character"));
                }
                if !known.check.accepts(value) {
                    let wanted = known.check.wanted();
                    return Err(format!("annotation \"{name}\" is not {wanted}"));
                }
            }
            match known.outcome {
                Outcome::Works => {}
                Outcome::Refused | Outcome::NoMeaning => {
                    findings.ignored.push(format!("annotation \"{name}\": {}", known.how));
                }
            }
            values.insert(known.name, value.clone());
        }
        Ok((Annotations { values }, findings))
    }

    /// One annotation, unchecked.
    #[cfg(test)]
    pub(crate) fn of(name: &'static str, value: &str) -> Annotations {
        Annotations { values: BTreeMap::from([(name, value.to_owned())]) }
    }

    /// The value of an annotation that is set to something.
    pub fn get(&self, name: &'static str) -> Option<&str> {
        debug_assert!(find(name).is_some(), "no annotation {name}");
        self.values.get(name).map(String::as_str)
    }

    /// The value without blanks around it.
    pub fn trimmed(&self, name: &'static str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|v| !v.is_empty())
    }

    /// A switch; `None` if it is not set.
    pub fn bool(&self, name: &'static str) -> Option<bool> {
        self.get(name).and_then(check::bool)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &'static str) -> bool {
        self.bool(name) == Some(true)
    }

    /// A number.
    pub fn int(&self, name: &'static str) -> Option<u64> {
        self.trimmed(name).and_then(|v| v.parse().ok())
    }

    /// A number with a sign.
    pub fn signed(&self, name: &'static str) -> Option<i64> {
        self.trimmed(name).and_then(|v| v.parse().ok())
    }

    /// Those that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<(Annotations, Findings), String> {
        let all = BTreeMap::from([(format!("n.io/{name}"), value.to_owned())]);
        Annotations::read(&all, "n.io", true, &["blocked".to_owned()])
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ANNOTATIONS.iter().map(|a| a.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn bad_values_refuse_the_object() {
        for (name, value) in [
            ("limit-rps", "5; deny all"),
            ("auth-realm", "a\"; return 200"),
            ("rewrite-target", "/a\nb"),
            ("upstream-hash-by", "${env:HOME}"),
            ("app-root", "blocked"),
            ("configuration-snippet", "} server {"),
        ] {
            assert!(read(name, value).is_err(), "{name} {value:?}");
        }
        assert!(read("limit-rps", "5").unwrap().0.int("limit-rps") == Some(5));
    }

    #[test]
    fn what_has_no_effect_is_named() {
        assert_eq!(read("http2-push-preload", "true").unwrap().1.ignored.len(), 1);
        assert_eq!(read("no-such", "x").unwrap().1.ignored.len(), 1);
        assert!(read("limit-rps", "1").unwrap().1.ignored.is_empty());
    }
}
