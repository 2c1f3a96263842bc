//! The features in `weir -V`, in the words of nginx's `configure`.
//!
//! Scripts and test suites read this line to find out what a binary can do: a module that nginx
//! builds by default counts as there unless its `--without-…` word stands here, other modules count
//! as missing unless their `--with-…` word does. **When a module comes in, edit this file.**

/// Features that nginx does not build by default.
pub(crate) const WITH: &[&str] = &[
    "--with-debug",
    "--with-http_addition_module",
    "--with-http_auth_request_module",
    "--with-http_dav_module",
    "--with-http_flv_module",
    "--with-http_gunzip_module",
    "--with-http_image_filter_module",
    "--with-http_gzip_static_module",
    "--with-http_geoip_module",
    "--with-http_mp4_module",
    "--with-http_random_index_module",
    "--with-http_secure_link_module",
    "--with-http_realip_module",
    "--with-http_slice_module",
    "--with-http_ssl_module",
    "--with-http_stub_status_module",
    "--with-http_sub_module",
    "--with-http_v2_module",
    "--with-http_v3_module",
    "--with-http_xslt_module",
    "--with-mail",
    "--with-mail_ssl_module",
    "--with-stream",
    "--with-stream_geoip_module",
    "--with-stream_realip_module",
    "--with-stream_ssl_module",
    "--with-stream_ssl_preread_module",
];

/// nginx's defaults that are not built in.
pub(crate) const WITHOUT: &[&str] = &[];

/// The engine of scripts, in the words for a module from elsewhere.
const SCRIPT: &[&str] = if cfg!(feature = "script") { &["--add-module=njs"] } else { &[] };

/// Lines that suites look for as they stand, such as `TLS SNI support enabled`.
pub(crate) const LINES: &[&str] = &[
    // The version text of the crypto library under rustls.
    "built with OpenSSL 1.1.1 (compatible; AWS-LC 5.12.0)",
    "TLS SNI support enabled",
];

/// The crate whose AWS-LC has the version in [`LINES`].
#[cfg(test)]
const AWS_LC_SYS: &str = "name = \"aws-lc-sys\"\nversion = \"0.47.0\"";

/// The arguments after `configure arguments:`, each with a space before it, those of paths first.
pub(crate) fn configure_arguments(paths: &str) -> String {
    let mut line = paths.to_owned();
    for word in WITH.iter().chain(WITHOUT).chain(SCRIPT) {
        line.push(' ');
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crypto_library_s_version_is_that_of_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(AWS_LC_SYS), "see AWSLC_VERSION_NUMBER_STRING of the new version");
    }

    #[test]
    fn words_have_configure_s_form() {
        assert!(WITH.iter().all(|w| w.starts_with("--with-")));
        assert!(WITHOUT.iter().all(|w| w.starts_with("--without-")));
        let line = configure_arguments(" --prefix=/usr/local/weir");
        assert!(line.starts_with(" --prefix=/usr/local/weir --with-debug"), "{line}");
    }
}
