//! `auth_ldap`: names and passwords that a directory checks. OpenLDAP's slapd is the server.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use base::base64;
use testkit::certificates::Extension;
use testkit::{
    Driver, Pair, Peer, Port, Scripted, Site, Weir, built_binary, each_driver, read_until,
};

const SLAPD: &str = "
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
%TLS%
database ldif
suffix \"dc=example,dc=com\"
directory %DIR%/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact=\"cn=finder,dc=example,dc=com\" read by * none
";

const ENTRIES: &str = "
dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: cn=finder,dc=example,dc=com
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: finder
userPassword: finder-secret

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=anna,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: anna
cn: Anna
sn: A
userPassword: anna-secret

dn: uid=ben,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ben
cn: Ben
sn: B
userPassword: ben-secret

dn: cn=odd,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: (*)\\
cn: odd
sn: O
userPassword: odd-secret

dn: cn=first twin,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: twin
cn: first twin
sn: T
userPassword: twin-secret

dn: cn=second twin,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: twin
cn: second twin
sn: T
userPassword: twin-secret

dn: ou=groups,dc=example,dc=com
objectClass: organizationalUnit
ou: groups

dn: cn=staff,ou=groups,dc=example,dc=com
objectClass: posixGroup
cn: staff
gidNumber: 100
memberUid: anna
memberUid: ben

dn: cn=admins,ou=groups,dc=example,dc=com
objectClass: posixGroup
cn: admins
gidNumber: 101
memberUid: anna

dn: cn=writers,ou=groups,dc=example,dc=com
objectClass: groupOfNames
cn: writers
member: uid=ben,ou=people,dc=example,dc=com
";

/// The start of a server's block, which searches as `finder`.
const FINDER: &str = "binddn cn=finder,dc=example,dc=com; binddn_passwd finder-secret;";

/// slapd with the entries at a port; `tls` are lines of its configuration, `urls` further places
/// where it listens. `%DIR%` is its folder.
pub(crate) fn slapd(port: u16, tls: &str, files: &[(&str, &str)], urls: &str) -> Peer {
    let conf = SLAPD.replace("%TLS%", tls);
    let files = [&[("slapd.conf", &conf[..]), ("entries.ldif", ENTRIES)][..], files].concat();
    let script = format!(
        "PATH=$PATH:/usr/sbin; mkdir data && slapadd -f slapd.conf -l entries.ldif && \
         exec slapd -d 256 -f slapd.conf -h 'ldap://127.0.0.1:{port}/ {urls}'"
    );
    Peer::start_at("sh", "slapd", &files, &["-c", &script], Some(port))
}

pub(crate) fn url(port: u16) -> String {
    format!("url ldap://127.0.0.1:{port}/ou=people,dc=example,dc=com?uid?sub;")
}

/// A site with these parts of `http`, besides the realm and a page.
fn start(driver: Driver, parts: &str) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", b"hello")
        .http(&format!(
            "add_header X-User $remote_user always; auth_ldap \"The directory\"; {parts}"
        ))
        .start()
}

pub(crate) fn basic(user: impl AsRef<[u8]>, password: &str) -> String {
    let mut text = Vec::new();
    base64::encode(&[user.as_ref(), b":", password.as_bytes()].concat(), &mut text);
    format!("Authorization: Basic {}\r\n", String::from_utf8(text).unwrap())
}

fn status(weir: &Weir, path: &str, user: impl AsRef<[u8]>, password: &str) -> u16 {
    weir.request("GET", path, &basic(user, password)).status
}

/// The connections that the server has accepted since its start, without the kit's first one.
fn accepted(slapd: &Peer) -> usize {
    slapd.output().matches("ACCEPT from").count() - 1
}

fn binds(slapd: &Peer, entry: &str) -> usize {
    slapd.output().matches(&format!("BIND dn=\"{entry}\" method=128")).count()
}

const ANNA: &str = "uid=anna,ou=people,dc=example,dc=com";

#[test]
fn users_have_the_passwords_of_the_directory() {
    each_driver(|driver| {
        let port = Port::reserve();
        let slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let weir = start(
            driver,
            &format!(
                "ldap_server main {{ {url} {FINDER} require valid_user; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers main;
                     location /open/ {{ auth_ldap off; alias html/; }} }}"
            ),
        );
        let page = weir.request("GET", "/a.txt", &basic("anna", "anna-secret"));
        assert_eq!((page.status, page.header("X-User")), (200, Some("anna")));
        assert_eq!(status(&weir, "/a.txt", "anna", "wrong"), 401);
        assert_eq!(status(&weir, "/a.txt", "nobody", "anna-secret"), 401);
        assert_eq!(status(&weir, "/a.txt", "twin", "twin-secret"), 401);
        let asked = weir.get("/a.txt");
        let realm = "Basic realm=\"The directory\"";
        assert_eq!((asked.status, asked.header("WWW-Authenticate")), (401, Some(realm)));
        assert_eq!(weir.get("/open/a.txt").status, 200);
        // The connection is bound as finder again after it was bound as a user.
        assert_eq!(status(&weir, "/a.txt", "ben", "ben-secret"), 200);
        assert_eq!(accepted(&slapd), 1);
        // Nobody is asked about an empty password, with which every bind succeeds.
        let before = binds(&slapd, ANNA);
        assert_eq!(status(&weir, "/a.txt", "anna", ""), 401);
        assert_eq!(binds(&slapd, ANNA), before);
        let log = weir.stop_and_read("error.log");
        for line in [
            "user \"anna\": password mismatch (49: invalidCredentials), ldap_server \"main\"",
            "user \"nobody\": was not found, ldap_server \"main\"",
            "user \"twin\": has several entries, ldap_server \"main\"",
            "user \"anna\" has sent an empty password",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
        assert!(!log.contains("-secret"), "{log}");
    });
}

#[test]
fn names_add_nothing_to_filters_and_entries() {
    each_driver(|driver| {
        let port = Port::reserve();
        let _slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let weir = start(
            driver,
            &format!(
                "ldap_server main {{ {url} {FINDER} require valid_user; }}
                 ldap_server direct {{ {url}
                     require valid_user 'uid=$remote_user,ou=people,dc=example,dc=com'; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers main;
                     location /direct/ {{ auth_ldap_servers direct; alias html/; }} }}"
            ),
        );
        for name in [
            &b"*"[..],
            b"an*",
            b"anna)(uid=*",
            b"*)(objectClass=*",
            b"anna))(|(uid=*",
            b"\\61nna",
            b"anna\0",
            b"\xff",
            b"nobody",
        ] {
            let shown = String::from_utf8_lossy(name).into_owned();
            assert_eq!(status(&weir, "/a.txt", name, "anna-secret"), 401, "{shown}");
            assert_eq!(status(&weir, "/direct/a.txt", name, "anna-secret"), 401, "{shown}");
        }
        // Whoever is called so is found.
        assert_eq!(status(&weir, "/a.txt", "(*)\\", "odd-secret"), 200);
        assert_eq!(status(&weir, "/direct/a.txt", "anna", "anna-secret"), 200);
        assert_eq!(status(&weir, "/direct/a.txt", "anna", "ben-secret"), 401);
        for name in ["anna,ou=people", "anna,ou=people,dc=example,dc=com#", "x+uid=anna"] {
            assert_eq!(status(&weir, "/direct/a.txt", name, "anna-secret"), 401, "{name}");
        }
    });
}

#[test]
fn rules_are_about_users_and_groups() {
    each_driver(|driver| {
        let port = Port::reserve();
        let _slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let group = |name: &str| format!("require group cn={name},ou=groups,dc=example,dc=com;");
        let (staff, admins) = (group("staff"), group("admins"));
        let (writers, missing) = (group("writers"), group("missing"));
        let user = |name: &str| format!("require user uid={name},ou=people,dc=example,dc=com;");
        let (anna, ben) = (user("anna"), user("ben"));
        let cases = [
            // Rules; whether anna and ben are let in.
            ("staff", format!("group_attribute memberUid; {staff}"), 200, 200),
            ("admins", format!("group_attribute memberUid; {admins}"), 200, 401),
            ("missing", format!("group_attribute memberUid; {missing}"), 401, 401),
            ("any", format!("group_attribute memberUid; {missing} {admins} {staff}"), 200, 200),
            ("all", format!("group_attribute memberUid; satisfy all; {staff} {admins}"), 200, 401),
            (
                "dn",
                format!("group_attribute member; group_attribute_is_dn on; {writers}"),
                401,
                200,
            ),
            // A member is named by its entry, and not by its user.
            ("no-dn", format!("group_attribute member; {writers}"), 401, 401),
            ("user", anna.clone(), 200, 401),
            ("users", format!("{anna} {ben}"), 200, 200),
            ("all-users", format!("satisfy all; {anna} {ben}"), 401, 401),
            ("user-or-group", format!("group_attribute memberUid; {ben} {admins}"), 200, 200),
            (
                "user-and-group",
                format!("group_attribute memberUid; satisfy all; {ben} {admins}"),
                401,
                401,
            ),
            (
                "variable",
                "group_attribute memberUid; require group 'cn=$arg_g,ou=groups,dc=example,dc=com';"
                    .to_owned(),
                401,
                401,
            ),
        ];
        let (mut servers, mut locations) = (String::new(), String::new());
        for (name, rules, ..) in &cases {
            servers += &format!("ldap_server {name} {{ {url} {FINDER} {rules} }}\n");
            locations += &format!("location /{name}/ {{ auth_ldap_servers {name}; alias html/; }}");
        }
        let weir =
            start(driver, &format!("{servers} server {{ listen 127.0.0.1:%PORT0%; {locations} }}"));
        for (name, _, of_anna, of_ben) in &cases {
            let path = format!("/{name}/a.txt");
            assert_eq!(status(&weir, &path, "anna", "anna-secret"), *of_anna, "{name}");
            assert_eq!(status(&weir, &path, "ben", "ben-secret"), *of_ben, "{name}");
            assert_eq!(status(&weir, &path, "anna", "ben-secret"), 401, "{name}");
        }
        assert_eq!(status(&weir, "/variable/a.txt?g=admins", "anna", "anna-secret"), 200);
        assert_eq!(status(&weir, "/variable/a.txt?g=admins", "ben", "ben-secret"), 401);
        let log = weir.stop_and_read("error.log");
        let rule = "require group cn=admins,ou=groups,dc=example,dc=com";
        assert!(log.contains(&format!("user \"ben\": does not satisfy \"{rule}\"")), "{log}");
    });
}

/// An authority, and slapd's files with a certificate by it for the address 127.0.0.1.
fn certificates(name: &str) -> (String, [(&'static str, String); 2]) {
    let issuer = format!("CN={name}");
    let authority = Pair::authority(&issuer);
    let server = authority.issue(&issuer, "CN=directory", 2, |draft| {
        draft.with(Extension::alt_names(&[(0x87, &[127, 0, 0, 1]), (0x82, b"localhost")]))
    });
    let files = [("server.pem", server.pem()), ("server.key", server.key.pem())];
    (authority.pem(), files)
}

#[test]
fn certificates_are_checked() {
    each_driver(|driver| {
        let (port, tls_port, plain_port) = (Port::reserve(), Port::reserve(), Port::reserve());
        let (authority, files) = certificates("own");
        let files = files.each_ref().map(|(name, text)| (*name, &text[..]));
        let tls = "TLSCertificateFile %DIR%/server.pem\nTLSCertificateKeyFile %DIR%/server.key\n\
                   security simple_bind=64\n";
        let ldaps = format!("ldaps://127.0.0.1:{}/", tls_port.number());
        let _sealed = slapd(port.number(), tls, &files, &ldaps);
        let _plain = slapd(plain_port.number(), "", &[], "");
        let sealed = url(port.number());
        let of_host = |host: &str| {
            format!("url ldaps://{host}:{}/ou=people,dc=example,dc=com?uid?sub;", tls_port.number())
        };
        let (of_address, of_name) = (of_host("127.0.0.1"), of_host("localhost"));
        let other_name = sealed.replace("127.0.0.1", "127.0.0.2");
        let own = "ssl_check_cert on; ssl_ca_file own.pem;";
        let plain = url(plain_port.number());
        let cases = [
            ("starttls", format!("{sealed} starttls on; {own}"), 200),
            ("ldaps", format!("{of_address} {own}"), 200),
            ("name", format!("{of_name} {own}"), 200),
            ("folder", format!("{of_name} ssl_check_cert on; ssl_ca_dir folder;"), 200),
            ("unchecked", format!("{of_address} ssl_check_cert off;"), 200),
            (
                "other",
                format!("{sealed} starttls on; ssl_check_cert on; ssl_ca_file other.pem;"),
                503,
            ),
            ("others", format!("{of_address} ssl_check_cert on; ssl_ca_file other.pem;"), 503),
            ("system", format!("{of_address} ssl_check_cert on;"), 503),
            // Nothing listens there; its certificate would not be for it either.
            ("away", format!("{other_name} starttls on; {own}"), 503),
            // The server refuses names and passwords in plain text.
            ("plain", sealed.clone(), 503),
            // It has no TLS.
            ("none", format!("{plain} starttls on; {own}"), 503),
        ];
        let (mut servers, mut locations) = (String::new(), String::new());
        for (name, settings, _) in &cases {
            servers +=
                &format!("ldap_server {name} {{ {settings} {FINDER} require valid_user; }}\n");
            locations += &format!("location /{name}/ {{ auth_ldap_servers {name}; alias html/; }}");
        }
        let weir = Site::new(built_binary(), driver)
            .file("html/a.txt", b"hello")
            .file("conf/own.pem", &authority)
            .file("conf/other.pem", certificates("other").0)
            .file("conf/folder/5ed36f99.0", certificates("another").0)
            .file("conf/folder/5ed36f99.1", &authority)
            .http(&format!(
                "auth_ldap x; {servers} server {{ listen 127.0.0.1:%PORT0%; {locations} }}"
            ))
            .start();
        for (name, _, expected) in &cases {
            let path = format!("/{name}/a.txt");
            assert_eq!(status(&weir, &path, "anna", "anna-secret"), *expected, "{name}");
        }
        assert_eq!(status(&weir, "/starttls/a.txt", "anna", "wrong"), 401);
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("certificate verify error").count(), 3, "{log}");
        assert!(log.contains("ldap_server \"none\": StartTLS failed (2: protocolError"), "{log}");
        assert!(log.contains("ldap_server \"plain\": the bind"), "{log}");
    });
}

#[test]
fn another_server_is_asked_and_a_restart_is_no_error() {
    each_driver(|driver| {
        let (first, second, away) = (Port::reserve(), Port::reserve(), Port::reserve());
        let server = |port: &Port| url(port.number());
        let (of_first, of_second, of_away) = (server(&first), server(&second), server(&away));
        let weir = start(
            driver,
            &format!(
                "ldap_server first {{ {of_first} {FINDER} require valid_user; }}
                 ldap_server second {{ {of_second} {FINDER} require valid_user; }}
                 ldap_server away {{ {of_away} {FINDER} require valid_user; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers away first;
                     auth_ldap_servers second; }}"
            ),
        );
        // Nobody can be asked: the password may be right.
        let none = weir.request("GET", "/a.txt", &basic("anna", "anna-secret"));
        assert_eq!((none.status, none.header("WWW-Authenticate")), (503, None));
        // All have failed a moment ago, and are asked all the same.
        let one = slapd(second.number(), "", &[], "");
        assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 200);
        assert_eq!(status(&weir, "/a.txt", "anna", "wrong"), 401);
        assert_eq!(accepted(&one), 1);
        drop(one);
        assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 503);
        // A server that comes back closes what it had before, and nobody notices.
        for _ in 0..3 {
            let one = slapd(second.number(), "", &[], "");
            assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 200);
            drop(one);
            let one = slapd(second.number(), "", &[], "");
            assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 200);
            drop(one);
        }
        let log = weir.stop_and_read("error.log");
        assert!(log.contains("ldap_server \"away\": connect() failed (111"), "{log}");
    });
}

/// Serves one connection after the other with the same bytes as response to whatever comes.
fn answering(response: &'static [u8]) -> Scripted {
    Scripted::start(move |mut stream: TcpStream, _| {
        read_until(&mut stream, |bytes| !bytes.is_empty());
        let _ = stream.write_all(response);
        read_until(&mut stream, |_| false);
    })
}

#[test]
fn slow_and_lying_servers_cost_a_limited_time() {
    each_driver(|driver| {
        let good = Port::reserve();
        let _slapd = slapd(good.number(), "", &[], "");
        let good = url(good.number());
        let silent = Scripted::start(|mut stream: TcpStream, _| {
            stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
            read_until(&mut stream, |_| false);
        });
        let cases = [
            ("http", answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not begin as a message"),
            ("endless", answering(b"\x30\x84\x7f\xff\xff\xff"), "the message is too long"),
            // The result of another request; a result of another kind; entries without end.
            (
                "id",
                answering(b"\x30\x0c\x02\x01\x09\x61\x07\x0a\x01\x00\x04\x00\x04\x00"),
                "it responds to another request",
            ),
            (
                "kind",
                answering(b"\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00"),
                "it is no response to the request",
            ),
            (
                "notice",
                answering(
                    b"\x30\x24\x02\x01\x00\x78\x1f\x0a\x01\x34\x04\x00\x04\x00\x8a\x16\
                      1.3.6.1.4.1.1466.20036",
                ),
                "the server closes the connection (52: unavailable)",
            ),
            // Success of StartTLS with plain text behind it.
            (
                "tls",
                answering(
                    b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00\
                      \x30\x0c\x02\x01\x02\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
                ),
                "plain text behind its answer to StartTLS",
            ),
        ];
        let (mut servers, mut locations) = (String::new(), String::new());
        for (name, server, _) in &cases {
            let (url, tls) = (url(server.port), if *name == "tls" { "starttls on;" } else { "" });
            servers +=
                &format!("ldap_server {name} {{ {url} {FINDER} {tls} require valid_user; }}");
            locations += &format!("location /{name}/ {{ auth_ldap_servers {name}; alias html/; }}");
        }
        let silent = url(silent.port);
        let weir = start(
            driver,
            &format!(
                "{servers}
                 ldap_server silent {{ {silent} {FINDER} require valid_user; bind_timeout 50ms; }}
                 ldap_server silent-user {{ {silent} request_timeout 50ms;
                     require valid_user 'uid=$remote_user,dc=example,dc=com'; }}
                 ldap_server good {{ {good} {FINDER} require valid_user; }}
                 server {{ listen 127.0.0.1:%PORT0%; {locations}
                     location /silent/ {{ auth_ldap_servers silent; alias html/; }}
                     location /silent-user/ {{ auth_ldap_servers silent-user; alias html/; }}
                     location /next/ {{ auth_ldap_servers silent good; alias html/; }} }}"
            ),
        );
        for (name, ..) in &cases {
            let path = format!("/{name}/a.txt");
            assert_eq!(status(&weir, &path, "anna", "anna-secret"), 503, "{name}");
        }
        for path in ["/silent/a.txt", "/silent-user/a.txt"] {
            assert_eq!(status(&weir, path, "anna", "anna-secret"), 503, "{path}");
        }
        assert_eq!(status(&weir, "/next/a.txt", "anna", "anna-secret"), 200);
        assert_eq!(status(&weir, "/next/a.txt", "anna", "wrong"), 401);
        let log = weir.stop_and_read("error.log");
        for (name, _, why) in &cases {
            let line = log.lines().find(|line| line.contains(&format!("ldap_server \"{name}\"")));
            assert!(line.is_some_and(|line| line.contains(why)), "{name}: {log}");
        }
        assert!(log.contains("ldap_server \"silent\": timed out"), "{log}");
    });
}

#[test]
fn requests_share_the_connections_of_a_worker() {
    each_driver(|driver| {
        let port = Port::reserve();
        let slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let weir = start(
            driver,
            &format!(
                "ldap_server main {{ {url} {FINDER} require valid_user; connections 2; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers main; }}"
            ),
        );
        let mut clients: Vec<_> = (0..20).map(|_| weir.connect()).collect();
        for (i, client) in clients.iter_mut().enumerate() {
            let password = if i % 2 == 0 { "anna-secret" } else { "wrong" };
            let credentials = basic("anna", password);
            client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{credentials}\r\n"));
        }
        for (i, client) in clients.iter_mut().enumerate() {
            let expected = if i % 2 == 0 { 200 } else { 401 };
            assert_eq!(client.response().status, expected, "{i}");
        }
        assert_eq!(accepted(&slapd), 2);
        // Clients that leave give their place back.
        for _ in 0..5 {
            let credentials = basic("anna", "anna-secret");
            weir.connect().send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{credentials}\r\n"));
        }
        assert_eq!(status(&weir, "/a.txt", "ben", "ben-secret"), 200);
    });
}

#[test]
fn right_passwords_are_remembered() {
    each_driver(|driver| {
        let port = Port::reserve();
        let slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let weir = start(
            driver,
            &format!(
                "auth_ldap_cache_enabled on; auth_ldap_cache_expiration_time 1h;
                 auth_ldap_cache_size 100;
                 ldap_server main {{ {url} {FINDER} group_attribute memberUid;
                     require group 'cn=$arg_group,ou=groups,dc=example,dc=com'; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers main; }}"
            ),
        );
        for _ in 0..3 {
            assert_eq!(status(&weir, "/a.txt?group=admins", "anna", "anna-secret"), 200);
        }
        assert_eq!(binds(&slapd, ANNA), 1);
        // What was right for one rule says nothing about another one.
        assert_eq!(status(&weir, "/a.txt?group=missing", "anna", "anna-secret"), 401);
        assert_eq!(status(&weir, "/a.txt?group=staff", "anna", "anna-secret"), 200);
        assert_eq!(binds(&slapd, ANNA), 2);
        for _ in 0..2 {
            assert_eq!(status(&weir, "/a.txt?group=admins", "anna", "wrong"), 401);
        }
        assert_eq!(binds(&slapd, ANNA), 4);
        drop(slapd);
        assert_eq!(status(&weir, "/a.txt?group=admins", "anna", "anna-secret"), 200);
        assert_eq!(status(&weir, "/a.txt?group=admins", "anna", "wrong"), 503);
    });
}

#[test]
fn failures_are_limited_by_address() {
    each_driver(|driver| {
        let port = Port::reserve();
        let slapd = slapd(port.number(), "", &[], "");
        let url = url(port.number());
        let weir = start(
            driver,
            &format!(
                "limit_auth_zone zone=logins:64k rate=1r/m; limit_auth zone=logins burst=1;
                 ldap_server main {{ {url} {FINDER} require valid_user; }}
                 server {{ listen 127.0.0.1:%PORT0%; root html; auth_ldap_servers main; }}"
            ),
        );
        assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 200);
        // An empty password guesses nothing.
        assert_eq!(status(&weir, "/a.txt", "anna", ""), 401);
        assert_eq!(status(&weir, "/a.txt", "anna", "wrong"), 401);
        assert_eq!(status(&weir, "/a.txt", "nobody", "wrong"), 401);
        let before = binds(&slapd, ANNA);
        assert_eq!(status(&weir, "/a.txt", "anna", "wrong"), 429);
        assert_eq!(status(&weir, "/a.txt", "anna", "anna-secret"), 429);
        assert_eq!(binds(&slapd, ANNA), before);
    });
}

#[test]
fn wrong_settings_are_refused() {
    let url = "url ldap://127.0.0.1/dc=example?uid?sub;";
    let server = |settings: &str| format!("ldap_server main {{ {settings} }}");
    for (settings, message) in [
        (server(""), "ldap_server \"main\": no \"url\""),
        (server("url http://h/dc=x?uid;"), "it begins with neither \"ldap://\" nor \"ldaps://\""),
        (server("url ldap://h:0/dc=x?uid;"), "invalid port in URL"),
        (server("url ldap://h/dc=x;"), "its \"url\" has no attribute with the user's name"),
        (server("url ldap://h/dc=x?uid?sub?(a;"), "its filter is invalid"),
        (server(&format!("{url} binddn cn=x;")), "\"binddn\" without a password"),
        (server(&format!("{url} binddn cn=x; binddn_passwd '';")), "\"binddn\" without a password"),
        (server(&format!("{url} binddn_passwd x;")), "\"binddn_passwd\" without \"binddn\""),
        (server(&format!("{url} require group cn=x,dc=y;")), "needs \"group_attribute\""),
        (server(&format!("{url} require group;")), "the name of an entry is missing"),
        (server(&format!("{url} require users x;")), "invalid parameter \"users\""),
        (server(&format!("{url} satisfy some;")), "must be \"all\" or \"any\""),
        (server(&format!("{url} group_attribute 'a=b';")), "\"a=b\" is no attribute"),
        (server(&format!("{url} referral on;")), "referrals are not followed"),
        (server(&format!("{url} connections 0;")), "must be between 1 and 1000"),
        (server(&format!("{url} connect_timeout 0;")), "must not be 0"),
        (server(&format!("{url} ssl_check_cert on;")), "certificates are checked under TLS only"),
        (server("url ldaps://h/dc=x?uid; starttls on;"), "\"starttls\" is for ldap:// URLs"),
        (server("url ldaps://h/dc=x?uid; ssl_ca_dir nowhere;"), "opendir()"),
        (server("url ldaps://h/dc=x?uid; ssl_ca_dir .;"), "has no certificates named by hashes"),
        (format!("{} {0}", server(url)), "duplicate ldap_server \"main\""),
        (
            format!("auth_ldap_servers_size 0; {}", server(url)),
            "there are more servers than \"auth_ldap_servers_size\" allows",
        ),
        (
            "auth_ldap_cache_enabled on; auth_ldap_cache_size 10;".to_owned(),
            "\"auth_ldap_cache_size\" must not be less than 100",
        ),
        (
            "auth_ldap_cache_enabled on; auth_ldap_cache_expiration_time 10ms;".to_owned(),
            "\"auth_ldap_cache_expiration_time\" must not be less than 1000 ms",
        ),
        (
            "server { auth_ldap x; auth_ldap_servers other; }".to_owned(),
            "ldap_server \"other\" is not defined",
        ),
    ] {
        Site::new(built_binary(), Driver::Epoll).http(&settings).is_refused(message);
    }
}

#[test]
fn an_explanation_asks_no_server() {
    let site = Site::new(built_binary(), Driver::Epoll).file("html/a.txt", b"hello").http(
        "ldap_server main { url ldap://127.0.0.1:1/dc=x?uid?sub; binddn cn=x;
             binddn_passwd canary; require valid_user; }
         server { listen 127.0.0.1:8000; root html; auth_ldap x; auth_ldap_servers main; }",
    );
    let explained = |arguments: &[&str]| {
        let mut command = std::process::Command::new(built_binary());
        command.arg("explain").args(arguments).arg("-p").arg(site.prefix());
        let output = command.args(["-c", "conf/weir.conf"]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let without = explained(&["http://127.0.0.1:8000/a.txt"]);
    assert!(without.contains("401"), "{without}");
    let credentials = basic("anna", "anna-secret");
    let with = explained(&["-H", credentials.trim_end(), "http://127.0.0.1:8000/a.txt"]);
    assert!(with.contains("auth_ldap would ask main for user \"anna\""), "{with}");
    assert!(!with.contains("canary") && !with.contains("anna-secret"), "{with}");
}
