//! The languages of TLS settings: cipher strings, lists of groups, OpenSSL's commands.

use tls::ciphers::{Ciphers, Suite};
use tls::conf_command;
use tls::groups::Groups;

/// Suites and groups come once; what only orders changes no set, and what excludes leaves nothing.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(ciphers) = Ciphers::parse(text) {
        let suites = ciphers.suites(true).unwrap_or_default().to_vec();
        assert!(suites.iter().all(|suite| Suite::TLS12.contains(suite)));
        is_set(&suites);
        for warning in ciphers.warnings() {
            assert!(!warning.is_empty());
        }
        // Such a string is one by itself, with nothing behind it.
        if !text.starts_with("SUITEB") {
            let moved = Ciphers::parse(&format!("{text}:+AESGCM:@STRENGTH")).map(|ciphers| {
                let mut moved = ciphers.suites(true).unwrap_or_default().to_vec();
                moved.sort_by_key(|suite| suite.number());
                moved
            });
            let mut sorted = suites;
            sorted.sort_by_key(|suite| suite.number());
            assert_eq!(moved, Ok(sorted));
            assert!(Ciphers::parse(&format!("{text}:!ALL:!eNULL")).is_err());
        }
    }
    if let Ok(groups) = Groups::setting(text) {
        assert!(!groups.groups().is_empty());
        is_set(groups.groups());
    }
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    match conf_command::parse(name, value) {
        Ok(parsed) => {
            conf_command::versions(&[], &parsed.commands);
        }
        Err(error) => assert!(error.to_string().starts_with("SSL_CONF_cmd(\"")),
    }
}

fn is_set<T: PartialEq>(all: &[T]) {
    assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)));
}
