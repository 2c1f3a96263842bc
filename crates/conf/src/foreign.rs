//! Well-known directives that are not built in, most of them of modules of third parties, with what
//! to use instead: a name of theirs is never taken for a misspelt one of ours.

/// A module, or an older server, with its directives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Its name, as its project calls it.
    pub name: &'static str,
    /// What to use instead.
    pub advice: &'static str,
    /// Names of the files that `load_module` has, without `ngx_` and `_module.so`.
    files: &'static str,
    /// Names of directives; an asterisk stands for any text.
    patterns: &'static str,
}

/// A line a module: name, files, directives, advice, tabs between.
const FACTS: &str = include_str!("foreign.tsv");

/// The modules. A directive is of the first whose pattern fits.
pub fn all() -> impl Iterator<Item = Foreign> {
    FACTS.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        let (name, files) = (fields.next()?, fields.next()?);
        Some(Foreign { name, files, patterns: fields.next()?, advice: fields.next()? })
    })
}

/// The module that a directive belongs to.
pub fn of_directive(name: &str) -> Option<Foreign> {
    all().find(|foreign| foreign.patterns.split(' ').any(|pattern| fits(pattern, name)))
}

/// The module that `load_module` names: `http_lua` for `ngx_http_lua_module.so`.
pub fn of_file(name: &str) -> Option<Foreign> {
    all().find(|foreign| foreign.files.split(' ').any(|file| !file.is_empty() && file == name))
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() > start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_whole() {
        let lines = FACTS.lines().count();
        assert_eq!(all().count(), lines);
        for foreign in all() {
            assert!(!foreign.name.is_empty() && !foreign.advice.is_empty(), "{foreign:?}");
            assert!(!foreign.patterns.is_empty(), "{foreign:?}");
            // The message is not to be cut.
            assert!(foreign.advice.len() < 300, "{foreign:?}");
            for pattern in foreign.patterns.split(' ') {
                assert!(pattern.matches('*').count() <= 1 && pattern != "*", "{pattern}");
            }
        }
    }

    #[test]
    fn the_directives_seen_most_are_known() {
        for (directive, module) in [
            ("content_by_lua_block", "lua-nginx-module"),
            ("access_by_lua_file", "lua-nginx-module"),
            ("ssl_certificate_by_lua_block", "lua-nginx-module"),
            ("lua_shared_dict", "lua-nginx-module"),
            ("lua_package_path", "lua-nginx-module"),
            ("js_import", "njs"),
            ("js_content", "njs"),
            ("echo", "echo-nginx-module"),
            ("echo_sleep", "echo-nginx-module"),
            ("set_by_lua", "lua-nginx-module"),
            ("set_unescape_uri", "set-misc-nginx-module"),
            ("set_md5", "set-misc-nginx-module"),
            ("vhost_traffic_status_zone", "nginx-module-vts"),
            ("vhost_traffic_status", "nginx-module-vts"),
            ("pagespeed", "ngx_pagespeed"),
            ("modsecurity", "ModSecurity-nginx"),
            ("modsecurity_rules_file", "ModSecurity-nginx"),
            ("SecRulesEnabled", "naxsi"),
            ("fancyindex", "ngx-fancyindex"),
            ("upload_pass", "nginx-upload-module"),
            ("upload_progress", "nginx-upload-progress-module"),
            ("upload_progress_json_output", "nginx-upload-progress-module"),
            ("rtmp", "nginx-rtmp-module"),
            ("rtmp_stat", "nginx-rtmp-module"),
            ("vod", "nginx-vod-module"),
            ("subs_filter", "ngx_http_substitutions_filter_module"),
            ("memc_pass", "memc-nginx-module"),
            ("srcache_fetch", "srcache-nginx-module"),
            ("redis_pass", "ngx_http_redis"),
            ("redis2_query", "redis2-nginx-module"),
            ("drizzle_pass", "drizzle-nginx-module"),
            ("postgres_query", "ngx_postgres"),
            ("concat", "nginx-http-concat"),
            ("check", "nginx_upstream_check_module"),
            ("fair", "nginx-upstream-fair"),
            ("auth_pam", "ngx_http_auth_pam_module"),
            ("auth_gss", "spnego-http-auth-nginx-module"),
            ("auth_digest", "nginx-http-auth-digest"),
            ("dav_ext_methods", "nginx-dav-ext-module"),
            ("nchan_publisher", "nchan"),
            ("push_stream_subscriber", "nginx-push-stream-module"),
            ("passenger_enabled", "Passenger"),
            ("testcookie", "testcookie-nginx-module"),
            ("set_cookie_flag", "nginx_cookie_flag_module"),
            ("opentracing", "nginx-opentracing"),
            ("mgmt", "NGINX Plus's licence"),
            ("zone_sync_server", "NGINX Plus's cluster"),
            ("upstream_conf", "NGINX Plus before R16"),
            ("app_protect_enable", "F5 WAF for NGINX"),
            ("proxy_connect", "ngx_http_proxy_connect_module"),
            ("ssl", "nginx before 1.25.1"),
            ("datadog_tracing", "nginx-datadog"),
            ("shib_request", "nginx-http-shibboleth"),
            ("auth_jwt_require_claim", "nginx-auth-jwt"),
            ("auth_jwt_validate_exp", "nginx-auth-jwt"),
            ("keyval_zone_redis", "nginx-keyval"),
            ("session_sticky", "Tengine"),
            ("req_status_zone", "Tengine"),
            ("zm_lookup", "Zimbra's nginx"),
            ("spdy_headers_comp", "nginx before 1.9.5"),
        ] {
            assert_eq!(of_directive(directive).map(|f| f.name), Some(module), "{directive}");
        }
        assert_eq!(of_directive("echoes"), None);
        assert_eq!(of_directive("lua_"), None);
    }

    #[test]
    fn files_of_modules_are_known() {
        assert_eq!(of_file("http_lua").map(|f| f.name), Some("lua-nginx-module"));
        assert_eq!(of_file("ndk_http").map(|f| f.name), Some("lua-nginx-module"));
        for (file, module) in [
            ("http_sticky", "nginx-sticky-module-ng"),
            ("http_substitutions_filter", "ngx_http_substitutions_filter_module"),
            ("http_datadog", "nginx-datadog"),
            ("http_shibboleth", "nginx-http-shibboleth"),
        ] {
            assert_eq!(of_file(file).map(|f| f.name), Some(module), "{file}");
        }
        assert_eq!(of_file(""), None);
        assert_eq!(of_file("http_gzip"), None);
    }

    #[test]
    fn nothing_of_nginx_is_called_foreign() {
        let own = ["ngx_http_perl_module", "ngx_google_perftools_module"];
        for known in crate::known::all() {
            let foreign = of_directive(known.name).map(|f| f.name);
            assert!(foreign.is_none_or(|name| own.contains(&name)), "{}: {foreign:?}", known.name);
        }
    }
}
