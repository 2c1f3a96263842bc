//! The levels around the servers: main, `events`, `http`, `stream`.

use crate::check;
use crate::conf::{Block, Word, key, plain, share, template, text, w};
use crate::cx::Cx;
use crate::gateway;
use crate::ingress::{self, Servers};
use crate::keys::Config;
use crate::objects::{Key, Kind, ObjectRef};

/// Puts everything together.
pub(crate) fn assemble(cx: &mut Cx, servers: Servers, gateways: gateway::Servers) -> Block {
    let owner = cx.config_owner();
    let mut root = Block::of(owner);
    main(cx, &mut root);
    let mut http = Block::of(owner);
    settings(cx, &mut http);
    logs(cx, &mut http);
    tls(cx, &mut http);
    variables(cx, &mut http);
    tracing(cx, &mut http);
    compression(cx, &mut http);
    limits(cx, &mut http);
    fields(cx, &mut http);
    geoip(cx, &mut http);
    let mut servers = servers.blocks;
    servers.extend(gateways.blocks);
    let usual = ingress::usual(cx);
    match cx.config.some("http-snippet") {
        // It may have servers of its own.
        Some(text) => {
            http.raw(text);
            servers.iter_mut().for_each(|server| usual.spell_out(server));
        }
        None => http.extend(share(&mut servers, usual)),
    }
    http.extend(std::mem::take(&mut cx.http));
    for (name, upstream) in &cx.upstreams {
        http.owned_by(upstream.owner);
        http.block("upstream", [plain(name)], upstream.block(name));
    }
    for block in servers {
        http.owned_by(None);
        http.block("server", [] as [Word; 0], block);
    }
    http.block("server", [] as [Word; 0], status_server(cx));
    root.owned_by(owner);
    root.block("http", [] as [Word; 0], http);
    stream(cx, &mut root);
    root
}

fn main(cx: &mut Cx, root: &mut Block) {
    let config = &cx.config;
    root.add("daemon", ["off"]);
    root.add("pid", [plain(format!("{}/weir.pid", cx.options.temp))]);
    root.add("worker_processes", [plain(config.get("worker-processes"))]);
    if let Some(mask) = config.some("worker-cpu-affinity") {
        root.add("worker_cpu_affinity", mask.split_whitespace().map(plain).collect::<Vec<_>>());
    }
    if config.int("max-worker-open-files") > 0 {
        root.add("worker_rlimit_nofile", [plain(config.get("max-worker-open-files"))]);
    }
    root.add("worker_shutdown_timeout", [plain(config.get("worker-shutdown-timeout"))]);
    root.add("error_log", error_log(cx));
    if let Some(text) = cx.config.some("main-snippet") {
        root.raw(text);
    }
    let config = &cx.config;
    let mut events = Block::default();
    events.add("multi_accept", [config.on_off("enable-multi-accept")]);
    events.add("worker_connections", [plain(config.get("max-worker-connections"))]);
    for address in config.list("debug-connections").into_iter().filter_map(check::cidr) {
        events.add("debug_connection", [plain(address)]);
    }
    root.block("events", [] as [Word; 0], events);
}

fn syslog(config: &Config) -> Option<String> {
    let host = config.some("syslog-host").filter(|_| config.bool("enable-syslog"))?;
    Some(format!("syslog:server={host}:{}", config.int("syslog-port")))
}

fn error_log(cx: &Cx) -> Vec<Word> {
    let config = &cx.config;
    let to = syslog(config).unwrap_or_else(|| match config.get("error-log-path") {
        "/dev/stderr" => "stderr".to_owned(),
        path => path.to_owned(),
    });
    vec![plain(to), plain(config.get("error-log-level"))]
}

/// Sizes, timeouts and protocols.
fn settings(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    let temp = &cx.options.temp;
    http.add("include", [plain(&cx.options.mime_types)]);
    http.add("default_type", [plain(config.get("default-type"))]);
    http.add("aio", ["threads"]);
    http.add("aio_write", [config.on_off("enable-aio-write")]);
    http.add("tcp_nopush", ["on"]);
    http.add("tcp_nodelay", ["on"]);
    http.add("log_subrequest", ["on"]);
    http.add("reset_timedout_connection", ["on"]);
    let seconds = |name| plain(format!("{}s", config.int(name)));
    let value = |name| plain(config.get(name));
    http.add("keepalive_timeout", [seconds("keep-alive")]);
    http.add("keepalive_requests", [value("keep-alive-requests")]);
    for (directive, folder) in [
        ("client_body_temp_path", "client-body"),
        ("fastcgi_temp_path", "fastcgi"),
        ("proxy_temp_path", "proxy"),
        ("uwsgi_temp_path", "uwsgi"),
        ("scgi_temp_path", "scgi"),
    ] {
        http.add(directive, [plain(format!("{temp}/{folder}"))]);
    }
    http.add("client_header_buffer_size", [value("client-header-buffer-size")]);
    http.add("client_header_timeout", [seconds("client-header-timeout")]);
    let buffers = config.get("large-client-header-buffers").split_whitespace().map(plain);
    http.add("large_client_header_buffers", buffers.collect::<Vec<_>>());
    http.add("client_body_buffer_size", [value("client-body-buffer-size")]);
    http.add("client_body_timeout", [seconds("client-body-timeout")]);
    if config.int("grpc-buffer-size-kb") > 0 {
        http.add("grpc_buffer_size", [plain(format!("{}k", config.int("grpc-buffer-size-kb")))]);
    }
    http.add("http2_max_concurrent_streams", [value("http2-max-concurrent-streams")]);
    for (directive, name) in [
        ("server_names_hash_max_size", "server-name-hash-max-size"),
        ("server_names_hash_bucket_size", "server-name-hash-bucket-size"),
        ("map_hash_bucket_size", "map-hash-bucket-size"),
        ("proxy_headers_hash_max_size", "proxy-headers-hash-max-size"),
        ("proxy_headers_hash_bucket_size", "proxy-headers-hash-bucket-size"),
        ("variables_hash_bucket_size", "variables-hash-bucket-size"),
        ("variables_hash_max_size", "variables-hash-max-size"),
    ] {
        http.add(directive, [value(name)]);
    }
    http.add("underscores_in_headers", [config.on_off("enable-underscores-in-headers")]);
    http.add("ignore_invalid_headers", [config.on_off("ignore-invalid-headers")]);
    http.add("server_name_in_redirect", ["off"]);
    http.add("port_in_redirect", ["off"]);
    if config.bool("relative-redirects") {
        http.add("absolute_redirect", ["off"]);
    }
    http.add("uninitialized_variable_warn", ["off"]);
    http.add("proxy_ssl_session_reuse", ["on"]);
    resolver(cx, http);
}

fn resolver(cx: &Cx, block: &mut Block) {
    if cx.options.resolvers.is_empty() {
        return;
    }
    let address = |a: &String| match a.parse() {
        Ok(std::net::IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => a.clone(),
    };
    let mut words: Vec<Word> = cx.options.resolvers.iter().map(address).map(plain).collect();
    words.push(w("valid=30s"));
    if cx.config.bool("disable-ipv6-dns") {
        words.push(w("ipv6=off"));
    }
    block.add("resolver", words);
}

fn log_format(config: &Config, name: &'static str, key: &'static str) -> Vec<Word> {
    let mut words = vec![w(name)];
    if config.bool("log-format-escape-none") {
        words.push(w("escape=none"));
    } else if config.bool("log-format-escape-json") {
        words.push(w("escape=json"));
    }
    words.push(template(config.get(key).replace('\n', " ")));
    words
}

fn logs(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    http.add("log_format", log_format(config, "upstreaminfo", "log-format-upstream"));
    let mut map = Block::default();
    map.entry(w("default"), ["1"]);
    for url in config.list("skip-access-log-urls") {
        match url.strip_prefix('~') {
            Some(_) => map.entry(plain(url), ["0"]),
            None => map.entry(key(url), ["0"]),
        }
    }
    http.block("map", ["$request_uri", "$loggable"], map);
    if config.bool("disable-access-log") || config.bool("disable-http-access-log") {
        http.add("access_log", ["off"]);
        return;
    }
    let path = config.some("http-access-log-path").unwrap_or_else(|| config.get("access-log-path"));
    let mut words = match syslog(config) {
        Some(to) => vec![plain(to), w("upstreaminfo")],
        None => {
            let mut words = vec![plain(path), w("upstreaminfo")];
            words.extend(config.get("access-log-params").split_whitespace().map(plain));
            words
        }
    };
    words.push(w("if=$loggable"));
    http.add("access_log", words);
}

fn tls(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    let versions = config.get("ssl-protocols").split_whitespace().map(plain);
    http.add("ssl_protocols", versions.collect::<Vec<_>>());
    http.add("ssl_early_data", [config.on_off("ssl-early-data")]);
    if config.bool("ssl-session-cache") {
        let size = config.get("ssl-session-cache-size");
        http.add("ssl_session_cache", [plain(format!("shared:SSL:{size}"))]);
        http.add("ssl_session_timeout", [plain(config.get("ssl-session-timeout"))]);
    }
    http.add("ssl_session_tickets", [config.on_off("ssl-session-tickets")]);
    http.add("ssl_buffer_size", [plain(config.get("ssl-buffer-size"))]);
    http.add("ssl_ciphers", [plain(config.get("ssl-ciphers"))]);
    http.add("ssl_prefer_server_ciphers", ["on"]);
    http.add("ssl_ecdh_curve", [plain(config.get("ssl-ecdh-curve"))]);
    if config.bool("enable-ocsp") {
        http.add("ssl_stapling", ["on"]);
    }
    let key = config.some("ssl-session-ticket-key").map(str::to_owned);
    if let Some(text) = key {
        use base64::Engine;
        match base64::engine::general_purpose::STANDARD.decode(text.trim()) {
            Ok(bytes) if bytes.len() == 48 || bytes.len() == 80 => {
                let file = cx.file("tickets", "key", bytes);
                http.add("ssl_session_ticket_key", [plain(file)]);
            }
            _ => warn_config(cx, "key \"ssl-session-ticket-key\" is not 48 or 80 bytes in base64"),
        }
    }
}

fn warn_config(cx: &mut Cx, message: &str) {
    if let Some(key) = cx.options.config_map.clone() {
        let object = ObjectRef::new(Kind::ConfigMap, &key.namespace, &key.name);
        cx.warn(object, "Rejected", message);
    }
}

/// A map with these lines.
fn map(http: &mut Block, from: &str, to: &str, lines: &[(Word, Word)]) {
    let mut block = Block::default();
    for (from, to) in lines {
        block.entry(from.clone(), [to.clone()]);
    }
    http.block("map", [w(from), w(to)], block);
}

/// The variables that locations use.
fn variables(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    let default = || w("default");
    let mut dollar = Block::default();
    dollar.add("default", ["$"]);
    http.block("geo", ["$literal_dollar"], dollar);
    let fresh = if config.bool("generate-request-id") { "$request_id" } else { "" };
    map(
        http,
        "$http_x_request_id",
        "$req_id",
        &[(default(), w("$http_x_request_id")), (w(""), w(fresh))],
    );
    let keeps = config.int("upstream-keepalive-connections") > 0;
    let plain_connection = if keeps { "" } else { "close" };
    map(
        http,
        "$http_upgrade",
        "$connection_upgrade",
        &[(default(), w("upgrade")), (w(""), w(plain_connection))],
    );
    let trusts = config.bool("use-forwarded-headers");
    let proxied = config.bool("use-proxy-protocol");
    forwarded(http, trusts, proxied);
    let http_port = cx.options.http_port.to_string();
    let https = cx.options.https_port.to_string();
    let proxy = cx.options.ssl_proxy_port.to_string();
    let port = if proxied { "$proxy_protocol_server_port" } else { "$server_port" };
    map(
        http,
        port,
        "$weir_port",
        &[
            (default(), w(port)),
            (plain(&http_port), w("80")),
            (plain(&https), w("443")),
            (plain(&proxy), w("443")),
        ],
    );
    let forwarded_port = if trusts { "$http_x_forwarded_port" } else { "" };
    match trusts {
        true => map(
            http,
            forwarded_port,
            "$pass_port",
            &[(default(), w(forwarded_port)), (w(""), w("$weir_port"))],
        ),
        false => map(http, "$weir_port", "$pass_port", &[(default(), w("$weir_port"))]),
    }
    map(http, "$pass_access_scheme", "$weir_plain", &[(default(), w("")), (w("http"), w("1"))]);
    parts_of_urls(http);
    forwarded_for(cx, http, trusts, proxied);
}

/// Parts of a request's URL, for redirects.
fn parts_of_urls(http: &mut Block) {
    let default = || w("default");
    map(
        http,
        "$best_http_host",
        "$weir_redirect_host",
        &[
            (default(), w("$best_http_host")),
            (w("~^(?<weir_host_name>[^:]+):"), w("$weir_host_name")),
        ],
    );
    map(
        http,
        "$request_uri",
        "$weir_uri_no_slash",
        &[(default(), w("$request_uri")), (w("~^(?<weir_uri_start>.*)/$"), w("$weir_uri_start"))],
    );
    map(
        http,
        "$http_host",
        "$weir_port_suffix",
        &[(default(), w("")), (w("~(?<weir_host_port>:[0-9]+)$"), w("$weir_host_port"))],
    );
    map(http, "$request_method", "$weir_preflight", &[(default(), w("")), (w("OPTIONS"), w("1"))]);
}

/// The scheme and the host that clients used, as trusted proxies tell them.
fn forwarded(http: &mut Block, trusts: bool, proxied: bool) {
    let default = || w("default");
    let own = if proxied { "$weir_scheme" } else { "$scheme" };
    if proxied {
        let lines = [(default(), w("$scheme")), (w("443"), w("https"))];
        map(http, "$proxy_protocol_server_port", "$weir_scheme", &lines);
    }
    map(http, "$http_host", "$weir_host", &[(default(), w("$http_host")), (w(""), w("$host"))]);
    match trusts {
        true => {
            let proto = "$http_x_forwarded_proto";
            map(http, proto, "$pass_access_scheme", &[(default(), w(proto)), (w(""), w(own))]);
            let first = w("~^\\s*(?<weir_first_host>[^,\\s]+)");
            let lines = [(default(), w("$weir_host")), (first, w("$weir_first_host"))];
            map(http, "$http_x_forwarded_host", "$best_http_host", &lines);
        }
        false => {
            map(http, own, "$pass_access_scheme", &[(default(), w(own))]);
            map(http, "$weir_host", "$best_http_host", &[(default(), w("$weir_host"))]);
        }
    }
}

fn forwarded_for(cx: &mut Cx, http: &mut Block, trusts: bool, proxied: bool) {
    let config = &cx.config;
    let default = || w("default");
    let variable = |name: &'static str| {
        format!("$http_{}", config.get(name).to_ascii_lowercase().replace('-', "_"))
    };
    let original_for = variable("forwarded-for-header");
    let original_host = variable("forwarded-host-header");
    for (from, to) in [
        (&original_for, "$weir_original_forwarded_for"),
        (&original_host, "$weir_original_forwarded_host"),
    ] {
        map(http, from, to, &[(default(), w(from))]);
    }
    let last = if proxied { "$proxy_protocol_addr" } else { "$realip_remote_addr" };
    if trusts && config.bool("compute-full-forwarded-for") {
        let lines = [(default(), w(format!("{original_for}, {last}"))), (w(""), w(last))];
        map(http, &original_for, "$weir_forwarded_for", &lines);
    } else {
        map(http, "$remote_addr", "$weir_forwarded_for", &[(default(), w("$remote_addr"))]);
    }
    if trusts || proxied || config.bool("enable-real-ip") {
        let header = match (trusts, proxied) {
            (true, true) => config.get("forwarded-for-proxy-protocol-header"),
            (false, true) => "proxy_protocol",
            _ => config.get("forwarded-for-header"),
        };
        http.add("real_ip_header", [plain(header)]);
        http.add("real_ip_recursive", ["on"]);
        let ranges = config.list("proxy-real-ip-cidr").into_iter().filter_map(check::cidr);
        for range in ranges.clone() {
            http.add("set_real_ip_from", [plain(range)]);
        }
        if trusts && proxied {
            let mut geo = Block::default();
            geo.add("default", ["0"]);
            for range in ranges {
                geo.entry(plain(range), ["1"]);
            }
            http.block("geo", ["$proxy_protocol_addr", "$weir_trusted"], geo);
            let lines = [(default(), w("$proxy_protocol_addr")), (w("1"), w(&original_for))];
            map(http, "$weir_trusted", "$weir_forwarded_for_proxy", &lines);
            let field = config.get("forwarded-for-proxy-protocol-header");
            http.add(
                "more_set_input_headers",
                [template(format!("{field}: $weir_forwarded_for_proxy"))],
            );
        }
    }
}

/// `otel_exporter`, and the variables that decide about traces.
fn tracing(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    let Some(host) = config.some("otlp-collector-host") else { return };
    let mut exporter = Block::default();
    exporter.add("endpoint", [plain(format!("{host}:{}", config.int("otlp-collector-port")))]);
    exporter.add("interval", [plain(format!("{}ms", config.int("otel-schedule-delay-millis")))]);
    let batch = config.int("otel-max-export-batch-size").max(1);
    exporter.add("batch_size", [plain(batch.to_string())]);
    let count = config.int("otel-max-queuesize").div_ceil(batch).max(1);
    exporter.add("batch_count", [plain(count.to_string())]);
    http.block("otel_exporter", [] as [Word; 0], exporter);
    http.add("otel_service_name", [plain(config.get("otel-service-name"))]);
    let share = match config.get("otel-sampler") {
        "AlwaysOff" => "off".to_owned(),
        "TraceIdRatioBased" => {
            let ratio = config.get("otel-sampler-ratio").parse::<f64>().unwrap_or(0.0);
            let hundredths = (ratio.clamp(0.0, 1.0) * 10_000.0).round() as u64;
            let mut split = Block::default();
            if hundredths > 0 {
                let percent = format!("{}.{:02}%", hundredths / 100, hundredths % 100);
                split.entry(plain(percent), ["on"]);
            }
            if hundredths < 10_000 {
                split.entry(w("*"), ["off"]);
            }
            http.block("split_clients", ["$otel_trace_id", "$weir_otel_share"], split);
            "$weir_otel_share".to_owned()
        }
        _ => "on".to_owned(),
    };
    if config.bool("otel-sampler-parent-based") {
        let lines = [(w("default"), w(&share)), (w("1"), w("on")), (w("0"), w("off"))];
        map(http, "$otel_parent_sampled", "$weir_otel", &lines);
    } else {
        map(http, "$request_method", "$weir_otel", &[(w("default"), w(&share))]);
    }
    if config.bool("enable-opentelemetry") {
        http.add("otel_trace", [SAMPLER]);
    }
}

/// The value of `otel_trace` where traces are on.
pub(crate) const SAMPLER: &str = "$weir_otel";

fn compression(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    let types =
        |name: &'static str| config.get(name).split_whitespace().map(plain).collect::<Vec<_>>();
    if config.bool("enable-brotli") {
        http.add("brotli", ["on"]);
        http.add("brotli_comp_level", [plain(config.get("brotli-level"))]);
        http.add("brotli_min_length", [plain(config.get("brotli-min-length"))]);
        http.add("brotli_types", types("brotli-types"));
    }
    if config.bool("use-gzip") {
        http.add("gzip", ["on"]);
        http.add("gzip_comp_level", [plain(config.get("gzip-level"))]);
        if let Some(agents) = config.some("gzip-disable") {
            http.add("gzip_disable", [plain(agents)]);
        }
        http.add("gzip_http_version", ["1.1"]);
        http.add("gzip_min_length", [plain(config.get("gzip-min-length"))]);
        http.add("gzip_types", types("gzip-types"));
        http.add("gzip_proxied", ["any"]);
        http.add("gzip_vary", ["on"]);
    }
}

/// Statuses of limits, and clients that are blocked everywhere.
fn limits(cx: &mut Cx, http: &mut Block) {
    let config = &cx.config;
    http.add("limit_req_status", [plain(config.get("limit-req-status-code"))]);
    http.add("limit_conn_status", [plain(config.get("limit-conn-status-code"))]);
    for range in config.list("block-cidrs").into_iter().filter_map(check::cidr) {
        http.add("deny", [plain(range)]);
    }
    for (name, from, to) in [
        ("block-user-agents", "$http_user_agent", "$block_ua"),
        ("block-referers", "$http_referer", "$block_ref"),
    ] {
        let list = config.list(name);
        if list.is_empty() {
            continue;
        }
        let mut block = Block::default();
        block.entry(w("default"), ["0"]);
        for item in list {
            match item.starts_with('~') {
                true => block.entry(plain(item), ["1"]),
                false => block.entry(key(item), ["1"]),
            }
        }
        http.block("map", [w(from), w(to)], block);
    }
}

/// The fields of a ConfigMap that a key names.
pub(crate) fn fields_of(cx: &mut Cx, key: &'static str) -> Vec<(String, String)> {
    let Some(name) = cx.config.some(key) else { return Vec::new() };
    let own = cx.options.config_map.as_ref().map_or("default", |key| &key.namespace);
    let map = Key::parse(name, own);
    let Some(map) = cx.objects.config_maps.get(&map) else {
        let message = format!("key \"{key}\": ConfigMap {map} does not exist");
        warn_config(cx, &message);
        return Vec::new();
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let good = map.data.iter().filter(|(name, value)| {
        !name.is_empty() && name.bytes().all(is_name) && check::is_clean(value)
    });
    good.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Fields of all responses.
fn fields(cx: &mut Cx, http: &mut Block) {
    for (name, value) in fields_of(cx, "add-headers") {
        http.add("more_set_headers", [text(format!("{name}: {value}"))]);
    }
    let config = &cx.config;
    http.add("server_tokens", [config.on_off("server-tokens")]);
    if config.bool("allow-backend-server-header") {
        http.add("proxy_pass_header", ["Server"]);
    } else if !config.bool("server-tokens") {
        http.add("more_clear_headers", ["Server"]);
    }
    for name in config.list("hide-headers") {
        http.add("proxy_hide_header", [plain(name)]);
    }
    if config.bool("hsts") {
        let mut value = format!("max-age={}", config.int("hsts-max-age"));
        if config.bool("hsts-include-subdomains") {
            value.push_str("; includeSubDomains");
        }
        if config.bool("hsts-preload") {
            value.push_str("; preload");
        }
        map(http, "$scheme", "$weir_hsts", &[(w("default"), w("")), (w("https"), plain(value))]);
        http.add("more_set_headers", ["Strict-Transport-Security: $weir_hsts"]);
    }
}

/// The databases of addresses, with the variables that ingress-nginx gives them.
fn geoip(cx: &mut Cx, http: &mut Block) {
    const COUNTRY: &[(&str, &str)] = &[
        ("$geoip2_country_code", "country iso_code"),
        ("$geoip2_country_name", "country names en"),
        ("$geoip2_country_geoname_id", "country geoname_id"),
        ("$geoip2_continent_code", "continent code"),
        ("$geoip2_continent_name", "continent names en"),
    ];
    const CITY: &[(&str, &str)] = &[
        ("$geoip2_city_country_code", "country iso_code"),
        ("$geoip2_city_country_name", "country names en"),
        ("$geoip2_city", "city names en"),
        ("$geoip2_city_geoname_id", "city geoname_id"),
        ("$geoip2_postal_code", "postal code"),
        ("$geoip2_latitude", "location latitude"),
        ("$geoip2_longitude", "location longitude"),
        ("$geoip2_time_zone", "location time_zone"),
        ("$geoip2_region_code", "subdivisions 0 iso_code"),
        ("$geoip2_region_name", "subdivisions 0 names en"),
    ];
    const ASN: &[(&str, &str)] = &[
        ("$geoip2_asn", "autonomous_system_number"),
        ("$geoip2_org", "autonomous_system_organization"),
    ];
    if !cx.config.bool("use-geoip2") {
        return;
    }
    for file in &cx.options.geoip_databases {
        let fields = match file.rsplit('-').next() {
            Some("Country.mmdb") => COUNTRY,
            Some("City.mmdb") => CITY,
            Some("ASN.mmdb") => ASN,
            _ => continue,
        };
        let mut block = Block::default();
        for (variable, path) in fields {
            let mut words = vec![w("source=$remote_addr")];
            words.extend(path.split(' ').map(w));
            block.entry(w(variable), words);
        }
        http.block("geoip2", [plain(format!("/etc/ingress-controller/geoip/{file}"))], block);
    }
}

/// The local server with the API, metrics and health.
fn status_server(cx: &Cx) -> Block {
    let mut server = Block::default();
    server.add("listen", [plain(&cx.options.status)]);
    server.add("server_name", ["_"]);
    server.add("access_log", ["off"]);
    let mut api = Block::default();
    api.add("api", ["write=on"]);
    server.block("location", ["/api"], api);
    let mut metrics = Block::default();
    metrics.add("prometheus", [] as [Word; 0]);
    server.block("location", ["=", "/metrics"], metrics);
    let mut ready = Block::default();
    ready.add("ready", [] as [Word; 0]);
    server.block("location", [w("="), plain(&cx.options.healthz_path)], ready);
    let mut rest = Block::default();
    rest.add("return", ["404"]);
    server.block("location", ["/"], rest);
    server
}

fn stream(cx: &mut Cx, root: &mut Block) {
    let snippet = cx.config.some("stream-snippet").map(str::to_owned);
    if cx.stream.is_empty() && cx.stream_upstreams.is_empty() && snippet.is_none() {
        return;
    }
    let config = &cx.config;
    let mut stream = Block::default();
    stream.add("log_format", log_format(config, "log_stream", "log-format-stream"));
    if config.bool("disable-access-log") || config.bool("disable-stream-access-log") {
        stream.add("access_log", ["off"]);
    } else {
        let own = config.some("stream-access-log-path");
        let path = own.unwrap_or_else(|| config.get("access-log-path"));
        let mut words = vec![plain(path), w("log_stream")];
        words.extend(config.get("access-log-params").split_whitespace().map(plain));
        stream.add("access_log", words);
    }
    stream.add("proxy_protocol_timeout", [plain(config.get("proxy-protocol-header-timeout"))]);
    resolver(cx, &mut stream);
    for (name, upstream) in &cx.stream_upstreams {
        stream.owned_by(upstream.owner);
        stream.block("upstream", [plain(name)], upstream.block(name));
    }
    stream.owned_by(None);
    stream.extend(std::mem::take(&mut cx.stream));
    if let Some(text) = snippet {
        stream.owned_by(cx.config_owner());
        stream.raw(&text);
    }
    root.owned_by(None);
    root.block("stream", [] as [Word; 0], stream);
}
