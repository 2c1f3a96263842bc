//! `@SECLEVEL` in cipher strings, `ssl_conf_command SignatureAlgorithms`, and clients that fit
//! nothing.

use crate::tls::{self, Client, Pair};
use testkit::certificates::KeyKind;
use testkit::{Driver, Site, built_binary, each_driver};

fn site(driver: Driver) -> Site {
    let pairs = [(KeyKind::Rsa, "rsa"), (KeyKind::P256, "p256"), (KeyKind::P384, "p384")];
    pairs.into_iter().fold(Site::new(built_binary(), driver), |site, (kind, name)| {
        Pair::own(kind, &format!("{name}.example")).on(site, name)
    })
}

fn server(port: usize, name: &str, rest: &str) -> String {
    format!(
        "server {{ listen 127.0.0.1:%PORT{port}% ssl; ssl_certificate {name}.pem;
        ssl_certificate_key {name}.key; {rest}
        location / {{ return 200
            '$ssl_sigalg $ssl_client_sigalg $ssl_curve $ssl_client_verify'; }} }}\n"
    )
}

const ASK: &str = "ssl_verify_client optional_no_ca; ssl_conf_command SignatureAlgorithms";

#[test]
fn signature_algorithms_are_those_of_the_command() {
    each_driver(|driver| {
        let weir = site(driver)
            .http(&format!(
                "{}{}{}",
                server(1, "rsa", &format!("{ASK} RSA+SHA1:RSA-PSS+SHA384:RSA+SHA512;")),
                server(2, "p256", &format!("{ASK} ECDSA+SHA256;")),
                "server { listen 127.0.0.1:%PORT0%;
                location /good { proxy_pass https://127.0.0.1:%PORT1%; }
                location /limited { proxy_ssl_conf_command SignatureAlgorithms RSA+SHA512;
                    proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%PORT1%; }
                location /none { proxy_ssl_conf_command SignatureAlgorithms RSA+SHA256;
                    proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%PORT1%; }
                location /shown { proxy_ssl_certificate p256.pem;
                    proxy_ssl_certificate_key p256.key;
                    proxy_ssl_conf_command SignatureAlgorithms ECDSA+SHA256;
                    proxy_pass https://127.0.0.1:%PORT2%; } }"
            ))
            .start();
        let (p256, p384) =
            (Pair::own(KeyKind::P256, "c.example"), Pair::own(KeyKind::P384, "c.example"));
        let told = |port: usize, version, shown: Option<&Pair>| {
            let shown = shown.map(|pair| [pair]);
            let client = Client::with("x", &[version], shown.as_ref().map(|s| &s[..]));
            let client = client.with_signatures();
            let text = client.get(weir.port(port), "/").text();
            let mut words = text.split(' ').map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        for version in tls::BOTH {
            // The first of ours that the client has, too, whatever the key would rather use.
            assert_eq!(told(1, version, None), both("rsa_pss_rsae_sha384", ""));
            let ecdsa = "ecdsa_secp256r1_sha256";
            assert_eq!(told(2, version, Some(&p256)), both(ecdsa, ecdsa));
            // The client has no key that can sign so, and shows nothing.
            assert_eq!(told(2, version, Some(&p384)), both(ecdsa, ""));
        }
        weir.answers_with(&[("GET", "/good", 200), ("GET", "/none", 502)]);
        let begins = |path: &str, start: &str| {
            let text = weir.get(path).text();
            assert!(text.starts_with(start), "{path}: {text}");
        };
        begins("/limited", "rsa_pkcs1_sha512 ");
        begins("/shown", "ecdsa_secp256r1_sha256 ecdsa_secp256r1_sha256 ");
    });
}

#[test]
fn levels_of_security_hold_for_groups_signatures_and_peers() {
    each_driver(|driver| {
        let level = |level: u8| {
            format!("ssl_ciphers ALL:@SECLEVEL={level}; ssl_verify_client optional_no_ca;")
        };
        let weir = site(driver)
            .http(&format!(
                "{}{}{}{}",
                server(1, "p256", &level(2)),
                server(2, "p256", &level(3)),
                server(3, "p384", &level(4)),
                "server { listen 127.0.0.1:%PORT0%; proxy_ssl_verify on;
                proxy_ssl_trusted_certificate p256.pem; proxy_ssl_name p256.example;
                location /3 { proxy_ssl_ciphers DEFAULT:@SECLEVEL=3;
                    proxy_pass https://127.0.0.1:%PORT1%; }
                location /4 { proxy_ssl_ciphers DEFAULT:@SECLEVEL=4;
                    proxy_ssl_conf_command Groups P-256:P-384;
                    proxy_pass https://127.0.0.1:%PORT3%; }
                location /weak { proxy_ssl_ciphers DEFAULT:@SECLEVEL=4;
                    proxy_pass https://127.0.0.1:%PORT1%; } }"
            ))
            .start();
        // A key of 2048 bits is of level 2.
        let rsa = Pair::own(KeyKind::Rsa, "c.example");
        for version in tls::BOTH {
            let client = Client::with("x", &[version], Some(&[&rsa]));
            for (port, status) in [(1, 200), (2, 400)] {
                assert_eq!(client.get(weir.port(port), "/").status, status, "{version:?}");
            }
            let client = Client::with("x", &[version], None);
            let text = client.with_signatures().get(weir.port(3), "/").text();
            let groups = ["X25519MLKEM768", "secp384r1"];
            assert!(groups.iter().any(|group| text.contains(group)), "{text}");
            assert!(text.starts_with("ecdsa_secp384r1_sha384 "), "{text}");
        }
        weir.wait_for_log("error.log", "(66:EE certificate key too weak)");
        // The certificate signed itself; its key is good enough for level 3, and not for level 4.
        weir.answers_with(&[("GET", "/3", 200), ("GET", "/4", 502), ("GET", "/weak", 502)]);
        weir.wait_for_log("error.log", "upstream SSL certificate verify error: (18:");
    });
}

#[test]
fn certificates_below_the_level_are_refused() {
    let line = server(0, "rsa", "ssl_ciphers ALL:@SECLEVEL=3;");
    site(Driver::Epoll)
        .http(&line)
        .is_refused("rsa.pem\") failed (SSL: error:0A00018F:SSL routines::ee key too small)");
    let line = server(0, "p384", "ssl_ciphers ALL:@SECLEVEL=5;");
    site(Driver::Epoll).http(&line).is_refused("no group is left by \"@SECLEVEL\"");
    for (command, message) in [
        ("SignatureAlgorithms RSA+SHA1", "none of these algorithms is to be had"),
        ("SignatureAlgorithms foo", "error:0A000180:SSL routines::bad value"),
    ] {
        let line = server(0, "rsa", &format!("ssl_conf_command {command};"));
        site(Driver::Epoll).http(&line).is_refused(message);
    }
}

/// A client that cannot verify what the only key can sign is told so, in either version.
#[test]
fn a_client_without_a_common_signature_gets_an_alert() {
    each_driver(|driver| {
        let weir = site(driver).config(&format!(
            "error_log logs/error.log info; events {{}} http {{ {} }}",
            server(0, "p384", "")
        ));
        let weir = weir.start();
        for version in tls::BOTH {
            let refusal = Client::with("x", &[version], None).refusal(weir.port(0));
            assert!(refusal.contains("HandshakeFailure"), "{version:?}: {refusal}");
        }
        weir.wait_for_log("error.log", "NoSignatureSchemesInCommon");
        assert!(!weir.stop_and_read("error.log").contains("[crit]"));
    });
}

/// RFC 8446 section D.5: whatever else such a hello offers.
#[test]
fn a_hello_of_ssl_3_gets_an_alert() {
    each_driver(|driver| {
        let weir = site(driver).http(&server(0, "p256", "")).start();
        for version in [[0, 0], [2, 0], [3, 0]] {
            let mut hello = Client::of("x").hello();
            hello[9..11].copy_from_slice(&version);
            assert_eq!(weir.raw(&hello), [21, 3, 3, 0, 2, 2, 70], "{version:?}");
        }
    });
}
