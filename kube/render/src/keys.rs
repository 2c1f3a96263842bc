//! The keys of ingress-nginx's ConfigMap: types, defaults, and what becomes of them.

use std::collections::BTreeMap;

use crate::check::{self, Check};

/// What becomes of an annotation or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It works.
    Works,
    /// It has no counterpart: an event says so.
    Refused,
    /// It concerns a part of ingress-nginx that does not exist here.
    NoMeaning,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value has to be.
    pub check: Check,
    /// Its default.
    pub default: &'static str,
    /// What becomes of it.
    pub outcome: Outcome,
    /// How, or why not.
    pub how: &'static str,
}

const fn key(name: &'static str, check: Check, default: &'static str, how: &'static str) -> Key {
    Key { name, check, default, outcome: Outcome::Works, how }
}

const fn refused(
    name: &'static str,
    check: Check,
    default: &'static str,
    how: &'static str,
) -> Key {
    Key { name, check, default, outcome: Outcome::Refused, how }
}

const fn none(name: &'static str, how: &'static str) -> Key {
    Key { name, check: Check::Text, default: "", outcome: Outcome::NoMeaning, how }
}

const JAEGER: &str = "ingress-nginx removed it with OpenTracing: use the `otel-` keys";
const NO_WAF: &str = "there is no ModSecurity in Weir";
const GROWS: &str = "Weir's tables grow as needed";
const MIME: &str = "application/atom+xml application/javascript application/x-javascript \
                    application/json application/rss+xml application/vnd.ms-fontobject \
                    application/x-font-ttf application/x-web-app-manifest+json \
                    application/xhtml+xml application/xml font/opentype image/svg+xml \
                    image/x-icon text/css text/javascript text/plain text/x-component";
const LOG: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                   \"$http_referer\" \"$http_user_agent\" $request_length $request_time \
                   [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr \
                   $upstream_response_length $upstream_response_time $upstream_status $req_id";
const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
                       ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
                       ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
const PORTS: &str = "the ACME challenge's path is left out";

use Check::*;

/// All of them, in the order of ingress-nginx's documentation.
pub const KEYS: &[Key] = &[
    key("add-headers", Basic, "", "`more_set_headers` from a ConfigMap"),
    key("allow-backend-server-header", Bool, "false", "`proxy_pass_header Server`"),
    key("allow-cross-namespace-resources", Bool, "false", "secrets and ConfigMaps of others"),
    key("allow-snippet-annotations", Bool, "false", "the switch for snippets"),
    key(
        "annotations-risk-level",
        Of(&["Critical", "High", "Medium", "Low"]),
        "High",
        "below Critical, snippets are refused; the other annotations cannot inject anything",
    ),
    key("annotation-value-word-blocklist", Text, "", "words that refuse an object"),
    key("hide-headers", Text, "", "`proxy_hide_header`"),
    key("access-log-params", Text, "", "parameters of `access_log`"),
    key("access-log-path", Text, "/dev/stdout", "`access_log`; standard output by default"),
    key("http-access-log-path", Text, "", "`access_log` of `http`"),
    key("stream-access-log-path", Text, "", "`access_log` of `stream`"),
    key("enable-access-log-for-default-backend", Bool, "false", "`access_log` of its locations"),
    key("error-log-path", Text, "/dev/stderr", "`error_log`; standard error by default"),
    refused("enable-modsecurity", Bool, "false", NO_WAF),
    refused("modsecurity-snippet", Text, "", NO_WAF),
    refused("enable-owasp-modsecurity-crs", Bool, "false", NO_WAF),
    key("client-header-buffer-size", Size, "1k", "`client_header_buffer_size`"),
    key("client-header-timeout", Int, "60", "`client_header_timeout`"),
    key("client-body-buffer-size", Size, "8k", "`client_body_buffer_size`"),
    key("client-body-timeout", Int, "60", "`client_body_timeout`"),
    key("disable-access-log", Bool, "false", "`access_log off`"),
    key("disable-http-access-log", Bool, "false", "`access_log off` in `http`"),
    key("disable-stream-access-log", Bool, "false", "`access_log off` in `stream`"),
    key("disable-ipv6", Bool, "false", "no `listen [::]`"),
    key("disable-ipv6-dns", Bool, "false", "`resolver … ipv6=off`"),
    key("disable-proxy-intercept-errors", Bool, "false", "without `proxy_intercept_errors`"),
    key("enable-underscores-in-headers", Bool, "false", "`underscores_in_headers`"),
    key("enable-ocsp", Bool, "false", "`ssl_stapling`"),
    key("ignore-invalid-headers", Bool, "true", "`ignore_invalid_headers`"),
    key("retry-non-idempotent", Bool, "false", "`proxy_next_upstream … non_idempotent`"),
    key(
        "error-log-level",
        Of(&["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"]),
        "notice",
        "`error_log`",
    ),
    none("http2-max-field-size", "obsolete: `large-client-header-buffers`"),
    none("http2-max-header-size", "obsolete: `large-client-header-buffers`"),
    none("http2-max-requests", "obsolete: `keep-alive-requests`"),
    key("http2-max-concurrent-streams", Int, "128", "`http2_max_concurrent_streams`"),
    key("hsts", Bool, "true", "`Strict-Transport-Security`"),
    key("hsts-include-subdomains", Bool, "true", "`includeSubDomains`"),
    key("hsts-max-age", Int, "31536000", "`max-age`"),
    key("hsts-preload", Bool, "false", "`preload`"),
    key("keep-alive", Int, "75", "`keepalive_timeout`"),
    key("keep-alive-requests", Int, "1000", "`keepalive_requests`"),
    key("large-client-header-buffers", Buffers, "4 8k", "`large_client_header_buffers`"),
    key("log-format-escape-none", Bool, "false", "`log_format … escape=none`"),
    key("log-format-escape-json", Bool, "false", "`log_format … escape=json`"),
    key("log-format-upstream", Text, LOG, "`log_format`"),
    key(
        "log-format-stream",
        Text,
        "[$remote_addr] [$time_local] $protocol $status $bytes_sent $bytes_received $session_time",
        "`log_format` in `stream`",
    ),
    key("enable-multi-accept", Bool, "true", "`multi_accept`"),
    key("max-worker-connections", Int, "16384", "`worker_connections`"),
    key("max-worker-open-files", Int, "0", "`worker_rlimit_nofile`; 0: as the container has it"),
    key("map-hash-bucket-size", Int, "64", GROWS),
    key("nginx-status-ipv4-whitelist", Cidrs, "127.0.0.1", "`allow` of `/nginx_status`"),
    key("nginx-status-ipv6-whitelist", Cidrs, "::1", "`allow` of `/nginx_status`"),
    key("proxy-real-ip-cidr", Cidrs, "0.0.0.0/0", "`set_real_ip_from`"),
    key("proxy-set-headers", Basic, "", "`proxy_set_header` from a ConfigMap"),
    key("server-name-hash-max-size", Int, "1024", GROWS),
    key("server-name-hash-bucket-size", Int, "64", GROWS),
    key("proxy-headers-hash-max-size", Int, "512", GROWS),
    key("proxy-headers-hash-bucket-size", Int, "64", GROWS),
    key("reuse-port", Bool, "true", "`listen … reuseport`"),
    key("server-tokens", Bool, "false", "`server_tokens`; \"false\" removes the Server field"),
    key("ssl-ciphers", Ciphers, CIPHERS, "`ssl_ciphers`"),
    key("ssl-ecdh-curve", Basic, "auto", "`ssl_ecdh_curve`"),
    none("ssl-dh-param", "no available cipher suite uses DHE"),
    key("ssl-early-data", Bool, "false", "`ssl_early_data`"),
    key("ssl-protocols", TlsVersions, "TLSv1.2 TLSv1.3", "`ssl_protocols`"),
    key("ssl-session-cache", Bool, "true", "`ssl_session_cache`"),
    key("ssl-session-cache-size", Size, "10m", "`ssl_session_cache`"),
    key("ssl-session-tickets", Bool, "false", "`ssl_session_tickets`"),
    key("ssl-session-ticket-key", Text, "", "`ssl_session_ticket_key`"),
    key("ssl-session-timeout", Time, "10m", "`ssl_session_timeout`"),
    key("ssl-buffer-size", Size, "4k", "`ssl_buffer_size`"),
    key("use-proxy-protocol", Bool, "false", "`listen … proxy_protocol`"),
    key("proxy-protocol-header-timeout", Time, "5s", "`proxy_protocol_timeout` of `stream`"),
    key("enable-aio-write", Bool, "true", "`aio_write`"),
    key("use-gzip", Bool, "false", "`gzip`"),
    none("use-geoip", "obsolete: `use-geoip2`"),
    key("use-geoip2", Bool, "false", "`geoip2`, with the databases of `--maxmind-edition-ids`"),
    none("geoip2-autoreload-in-minutes", "a reload reads new databases"),
    key("enable-brotli", Bool, "false", "`brotli`"),
    key("brotli-level", Int, "4", "`brotli_comp_level`"),
    key("brotli-min-length", Int, "20", "`brotli_min_length`"),
    key("brotli-types", Text, MIME, "`brotli_types`"),
    key("use-http2", Bool, "true", "`http2`"),
    key("gzip-disable", Text, "", "`gzip_disable`"),
    key("gzip-level", Int, "1", "`gzip_comp_level`"),
    key("gzip-min-length", Int, "256", "`gzip_min_length`"),
    key("gzip-types", Text, MIME, "`gzip_types`"),
    key("worker-processes", Basic, "auto", "`worker_processes`"),
    key("worker-cpu-affinity", BasicSpaced, "", "`worker_cpu_affinity`"),
    key("worker-shutdown-timeout", Time, "240s", "`worker_shutdown_timeout`"),
    none("enable-serial-reloads", "reloads are always one after the other"),
    key("load-balance", Of(&["round_robin", "ewma"]), "round_robin", "as the annotation"),
    key("variables-hash-bucket-size", Int, "256", GROWS),
    key("variables-hash-max-size", Int, "2048", GROWS),
    key("upstream-keepalive-connections", Int, "320", "`keepalive`"),
    key("upstream-keepalive-time", Time, "1h", "`keepalive_time`"),
    key("upstream-keepalive-timeout", Int, "60", "`keepalive_timeout`"),
    key("upstream-keepalive-requests", Int, "10000", "`keepalive_requests`"),
    key("limit-conn-zone-variable", Variables, "$binary_remote_addr", "the key of limits"),
    key("proxy-stream-timeout", Time, "600s", "`proxy_timeout` of `stream`"),
    key("proxy-stream-next-upstream", Bool, "true", "`proxy_next_upstream` of `stream`"),
    key("proxy-stream-next-upstream-timeout", Time, "600s", "`proxy_next_upstream_timeout`"),
    key("proxy-stream-next-upstream-tries", Int, "3", "`proxy_next_upstream_tries`"),
    key("proxy-stream-responses", Int, "1", "`proxy_responses`"),
    key("bind-address", Cidrs, "", "addresses of `listen`"),
    key("use-forwarded-headers", Bool, "false", "trusts `X-Forwarded-…`"),
    key("enable-real-ip", Bool, "false", "`real_ip_header`"),
    key("forwarded-for-header", Basic, "X-Forwarded-For", "`real_ip_header`"),
    key("forwarded-host-header", Basic, "X-Forwarded-Host", "`X-Original-Forwarded-Host`"),
    key(
        "forwarded-for-proxy-protocol-header",
        Basic,
        "X-Forwarded-For-Proxy-Protocol",
        "`real_ip_header` behind PROXY protocol and proxies together",
    ),
    key("compute-full-forwarded-for", Bool, "false", "appends to `X-Forwarded-For`"),
    key("proxy-add-original-uri-header", Bool, "false", "`X-Original-URI`"),
    key("generate-request-id", Bool, "true", "`X-Request-ID`"),
    none("jaeger-collector-host", JAEGER),
    none("jaeger-collector-port", JAEGER),
    none("jaeger-endpoint", JAEGER),
    none("jaeger-service-name", JAEGER),
    none("jaeger-propagation-format", JAEGER),
    none("jaeger-sampler-type", JAEGER),
    none("jaeger-sampler-param", JAEGER),
    none("jaeger-sampler-host", JAEGER),
    none("jaeger-sampler-port", JAEGER),
    none("jaeger-trace-context-header-name", JAEGER),
    none("jaeger-debug-header", JAEGER),
    none("jaeger-baggage-header", JAEGER),
    none("jaeger-trace-baggage-header-prefix", JAEGER),
    key("enable-opentelemetry", Bool, "false", "`otel_trace`"),
    key("opentelemetry-trust-incoming-span", Bool, "true", "`otel_trace_context`"),
    key("opentelemetry-operation-name", Text, "", "`otel_span_name`"),
    none("opentelemetry-config", "the exporter is set by the `otel-` keys"),
    key("otlp-collector-host", Basic, "", "`otel_exporter`"),
    key("otlp-collector-port", Int, "4317", "`otel_exporter`"),
    key("otel-max-queuesize", Int, "2048", "`batch_count`, with the size of a batch"),
    key("otel-schedule-delay-millis", Int, "5000", "`interval`"),
    key("otel-max-export-batch-size", Int, "512", "`batch_size`"),
    key("otel-service-name", BasicSpaced, "nginx", "`otel_service_name`"),
    key(
        "otel-sampler",
        Of(&["AlwaysOn", "AlwaysOff", "TraceIdRatioBased"]),
        "AlwaysOn",
        "`otel_trace` on, off, or by `split_clients` of `$otel_trace_id`",
    ),
    key("otel-sampler-parent-based", Bool, "true", "`$otel_parent_sampled` decides if it is set"),
    key("otel-sampler-ratio", Float, "0.01", "the share of `split_clients`"),
    key("main-snippet", Text, "", "directives of the main level"),
    key("http-snippet", Text, "", "directives of `http`"),
    key("server-snippet", Text, "", "directives of each server"),
    key("stream-snippet", Text, "", "directives of `stream`"),
    key("location-snippet", Text, "", "directives of each location"),
    key("custom-http-errors", ErrorCodes, "", "`error_page` to the default backend"),
    key("proxy-body-size", Size, "1m", "`client_max_body_size`"),
    key("proxy-connect-timeout", Int, "5", "`proxy_connect_timeout`"),
    key("proxy-read-timeout", Int, "60", "`proxy_read_timeout`"),
    key("proxy-send-timeout", Int, "60", "`proxy_send_timeout`"),
    key("proxy-buffers-number", Int, "4", "`proxy_buffers`"),
    key("proxy-buffer-size", Size, "4k", "`proxy_buffer_size`"),
    key("proxy-busy-buffers-size", Size, "", "`proxy_busy_buffers_size`"),
    key("proxy-max-temp-file-size", Size, "1024m", "`proxy_max_temp_file_size`"),
    key("proxy-http-version", Of(&["1.0", "1.1"]), "1.1", "`proxy_http_version`"),
    key("proxy-cookie-path", BasicSpaced, "off", "`proxy_cookie_path`"),
    key("proxy-cookie-domain", CookieDomain, "off", "`proxy_cookie_domain`"),
    key("proxy-next-upstream", NextUpstream, "error timeout", "`proxy_next_upstream`"),
    key("proxy-next-upstream-timeout", Int, "0", "`proxy_next_upstream_timeout`"),
    key("proxy-next-upstream-tries", Int, "3", "`proxy_next_upstream_tries`"),
    key("proxy-redirect-from", Url, "off", "`proxy_redirect`"),
    key("proxy-redirect-to", Url, "off", "`proxy_redirect`"),
    key("proxy-request-buffering", Of(&["on", "off"]), "on", "`proxy_request_buffering`"),
    key("ssl-redirect", Bool, "true", "308 to HTTPS for hosts with a certificate"),
    key("force-ssl-redirect", Bool, "false", "308 to HTTPS for all hosts"),
    key("denylist-source-range", Cidrs, "", "`deny`"),
    key("whitelist-source-range", Cidrs, "", "`allow`, then `deny all`"),
    key("skip-access-log-urls", Text, "", "a `map` for `access_log … if=`"),
    key("limit-rate", Int, "0", "`limit_rate`"),
    key("limit-rate-after", Int, "0", "`limit_rate_after`"),
    none("lua-shared-dicts", "there is no Lua"),
    key("http-redirect-code", Of(&["301", "302", "307", "308"]), "308", "the redirect to HTTPS"),
    key("proxy-buffering", Of(&["on", "off"]), "off", "`proxy_buffering`"),
    key("limit-req-status-code", Int, "503", "`limit_req_status`"),
    key("limit-conn-status-code", Int, "503", "`limit_conn_status`"),
    key("enable-syslog", Bool, "false", "`access_log syslog:` and `error_log syslog:`"),
    key("syslog-host", Basic, "", "their server"),
    key("syslog-port", Int, "514", "its port"),
    key("no-tls-redirect-locations", Text, "/.well-known/acme-challenge", "paths without redirect"),
    key("global-allowed-response-headers", HeaderList, "", "fields that `custom-headers` may set"),
    key("global-auth-url", UrlWithVariables, "", "`auth_request` of all locations"),
    key(
        "global-auth-method",
        Of(&["", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"]),
        "",
        "as the annotation",
    ),
    key("global-auth-signin", UrlWithVariables, "", "as the annotation"),
    key("global-auth-signin-redirect-param", Url, "rd", "as the annotation"),
    key("global-auth-response-headers", HeaderList, "", "as the annotation"),
    key("global-auth-request-redirect", Url, "", "as the annotation"),
    key("global-auth-snippet", Text, "", "as the annotation"),
    key("global-auth-cache-key", Variables, "", "as the annotation"),
    key("global-auth-cache-duration", CacheDurations, "200 202 401 5m", "as the annotation"),
    key("global-auth-always-set-cookie", Bool, "false", "as the annotation"),
    key("no-auth-locations", Text, "/.well-known/acme-challenge", PORTS),
    key("block-cidrs", Cidrs, "", "`deny`"),
    key("block-user-agents", Text, "", "403 by a `map`"),
    key("block-referers", Text, "", "403 by a `map`"),
    none("proxy-ssl-location-only", "`proxy-ssl-…` is always set in the locations"),
    key("default-type", Basic, "text/html", "`default_type`"),
    key("service-upstream", Bool, "false", "as the annotation"),
    key("ssl-reject-handshake", Bool, "false", "`ssl_reject_handshake` for unknown names"),
    key("debug-connections", Cidrs, "", "`debug_connection`"),
    key("strict-validate-path-type", Bool, "true", "Exact and Prefix take plain paths alone"),
    key("grpc-buffer-size-kb", Int, "0", "`grpc_buffer_size`"),
    key("relative-redirects", Bool, "false", "`absolute_redirect off`"),
];

/// Finds a key by its name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

/// The ConfigMap's values, with defaults for what is not set or not acceptable.
#[derive(Clone, Debug, Default)]
pub struct Config {
    values: BTreeMap<&'static str, String>,
}

/// Keys that hold configuration as it is.
const SNIPPETS: [&str; 6] = [
    "main-snippet",
    "http-snippet",
    "server-snippet",
    "stream-snippet",
    "location-snippet",
    "global-auth-snippet",
];

impl Config {
    /// Reads a ConfigMap; what is not acceptable is reported and has its default.
    pub fn read(data: &BTreeMap<String, String>) -> (Config, Vec<String>) {
        let (mut values, mut findings) = (BTreeMap::new(), Vec::new());
        for (name, value) in data {
            let Some(key) = find(name) else {
                findings.push(format!("key \"{name}\" is unknown"));
                continue;
            };
            if value.is_empty() {
                continue;
            }
            if key.outcome != Outcome::Works {
                findings.push(format!("key \"{name}\": {}", key.how));
                continue;
            }
            if SNIPPETS.contains(&key.name) {
                if let Err(error) = crate::snippet::check(value) {
                    findings.push(format!("key \"{name}\": {error}"));
                    continue;
                }
            } else {
                // A log format may be written over several lines.
                let value = value.replace('\n', " ");
                if !check::is_clean(&value) {
                    findings.push(format!("key \"{name}\" contains a control character"));
                    continue;
                }
                if !key.check.accepts(&value) {
                    findings.push(format!("key \"{name}\" is not {}", key.check.wanted()));
                    continue;
                }
            }
            values.insert(key.name, value.clone());
        }
        (Config { values }, findings)
    }

    /// A key's value, or its default.
    pub fn get(&self, name: &'static str) -> &str {
        let value = self.values.get(name).map(|v| v.trim());
        value.unwrap_or_else(|| find(name).map_or("", |key| key.default))
    }

    /// The value, if it is set to something or has a default.
    pub fn some(&self, name: &'static str) -> Option<&str> {
        Some(self.get(name)).filter(|v| !v.is_empty())
    }

    /// Whether the ConfigMap sets it.
    pub fn is_set(&self, name: &'static str) -> bool {
        self.values.contains_key(name)
    }

    /// A switch.
    pub fn bool(&self, name: &'static str) -> bool {
        check::bool(self.get(name)) == Some(true)
    }

    /// A switch as the configuration writes it.
    pub fn on_off(&self, name: &'static str) -> &'static str {
        if self.bool(name) { "on" } else { "off" }
    }

    /// A number.
    pub fn int(&self, name: &'static str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    /// A list.
    pub fn list(&self, name: &'static str) -> Vec<&str> {
        check::list(self.get(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_acceptable() {
        let mut names: Vec<_> = KEYS.iter().map(|k| k.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
        for key in KEYS {
            assert!(key.default.is_empty() || key.check.accepts(key.default), "{}", key.name);
        }
    }

    #[test]
    fn bad_values_leave_the_default() {
        let data = [("keep-alive", "75; x"), ("use-gzip", "true"), ("no-such", "1")];
        let data = data.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let (config, findings) = Config::read(&data);
        assert_eq!(config.get("keep-alive"), "75");
        assert!(config.bool("use-gzip"));
        assert_eq!(findings.len(), 2);
    }
}
