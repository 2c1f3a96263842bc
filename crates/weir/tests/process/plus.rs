//! Every directive of NGINX Plus that nginx does not have is built in, or says what to use.

use std::collections::HashSet;
use std::process::Command;

use testkit::{Driver, Site};

use crate::common::BINARY;

/// Module and name of each, from NGINX's documentation.
const TABLE: &str = include_str!("plus.tsv");

/// Families that are not built in, by their first letters.
const ABSENT: &[&str] = &["js_", "zone_sync"];
/// What nobody needs here.
const NEEDLESS: &[&str] = &[
    // Licences.
    "mgmt",
    "license_token",
    "usage_report",
    "enforce_initial_report",
    "proxy_username",
    "proxy_password",
    // Retired by NGINX itself.
    "status",
    "status_format",
    "upstream_conf",
    "limit_zone",
    "ssl",
];

#[test]
fn each_directive_works_or_names_what_to_use() {
    let dump = Command::new(BINARY).arg("dump-directives").output().unwrap().stdout;
    let dump = String::from_utf8(dump).unwrap();
    let known: HashSet<_> = dump.lines().filter_map(|line| line.split('\t').next()).collect();
    let (mut built_in, mut refused) = (0, 0);
    for line in TABLE.lines() {
        let (module, name) = line.split_once('\t').unwrap();
        if known.contains(name) {
            built_in += 1;
            continue;
        }
        let is_meant = NEEDLESS.contains(&name) || ABSENT.iter().any(|of| name.starts_with(of));
        assert!(is_meant, "{module}: {name} is not built in");
        let block = if module.contains("stream") { "stream" } else { "http" };
        let text = match module {
            "ngx_mgmt_module" => format!("events {{ }} {name} a;"),
            "ngx_mail_ssl_module" => format!("events {{ }} mail {{ server {{ {name} on; }} }}"),
            _ => format!("events {{ }} {block} {{ server {{ {name} on; }} }}"),
        };
        let site = Site::new(BINARY, Driver::usual()).config(&text);
        let told = site.is_refused("is not built in: ");
        assert!(told.contains(&format!("directive \"{name}\" of ")), "{told}");
        refused += 1;
    }
    assert_eq!(built_in + refused, TABLE.lines().count());
    assert!(built_in > 90, "{built_in}");
}
