//! The configuration of `weir serve`.

use super::account::Account;
use super::content::Content;
use super::{Door, Site, error_pages};

const MIME_TYPES: &str = include_str!("../../../../conf/mime.types");

/// Types that compression makes smaller; text/html always counts.
const COMPRESSED: &str = "text/css text/plain text/javascript text/xml text/markdown text/csv \
                          application/javascript application/json application/manifest+json \
                          application/xml application/rss+xml application/atom+xml \
                          application/wasm image/svg+xml font/ttf font/otf";

/// Types that are UTF-8 where nobody says otherwise, as listings are; text/html always counts.
const UTF_8: &str = "text/plain text/css text/markdown text/javascript application/javascript";

/// Lines of requests as people read them. Values are escaped, so that no request writes to the
/// terminal what it likes.
const ACCESS: &str = r#"map $time_iso8601 $weir_clock {
"~T(?<weir_hms>[0-9:]+)" $weir_hms;
default -;
}
log_format weir '$weir_clock $remote_addr $status $request_method $request_uri '
'$body_bytes_sent B $request_time s';
access_log /dev/stdout weir;
"#;

/// The text of the configuration.
pub(crate) fn text(site: &Site) -> Vec<u8> {
    let Site { content, door, account, lines } = site;
    // Workers are to hold no key of the account, and not root's rights.
    let process = match (door, account) {
        (Door::Secured(_), _) => "worker_processes auto;",
        (_, Some(_)) => "worker_processes 1;",
        _ => "master_process off;",
    };
    let user =
        account.as_ref().map(|Account { name, group, .. }| format!("user {name} {group};\n"));
    let level = if matches!(door, Door::Secured(_)) { "notice" } else { "warn" };
    let access = if *lines { ACCESS } else { "access_log off;\n" };
    let compression = match content {
        Content::Proxied(_) => String::new(),
        _ => format!(
            "charset utf-8;\ncharset_types {UTF_8};\ngzip on;\ngzip_vary on;\n\
             gzip_types {COMPRESSED};\nbrotli on;\nbrotli_types {COMPRESSED};\n\
             zstd on;\nzstd_types {COMPRESSED};\n"
        ),
    };
    let (http, server) = (door.http(), door.server());
    let mut out = format!(
        "# Made by weir serve; it goes when the server ends.\n\
         daemon off;\n{process}\n{}pid weir.pid;\nlock_file weir.lock;\n\
         error_log stderr {level};\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n{MIME_TYPES}\n\
         default_type application/octet-stream;\nsendfile on;\nlog_not_found off;\n\
         {access}{compression}\
         client_body_temp_path body;\nproxy_temp_path responses;\n\
         {}{http}\
         server {{\n{server}",
        user.unwrap_or_default(),
        content.around(),
    )
    .into_bytes();
    out.extend_from_slice(error_pages::directives().as_bytes());
    out.extend_from_slice(&content.server());
    out.extend_from_slice(b"}\n}\n");
    out
}
