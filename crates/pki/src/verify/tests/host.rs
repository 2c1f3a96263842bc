use super::*;
use testkit::certificates::der;

fn with_names(names: &[&str]) -> Certificate {
    let names: Vec<(u8, &[u8])> = names.iter().map(|name| (0x82, name.as_bytes())).collect();
    parse(
        &Draft::new("CN=cn.example", "CN=ca", &LEAF).with(Extension::alt_names(&names)).sign(&ROOT),
    )
}

fn names(pattern: &str, host: &str) -> bool {
    check_host(&with_names(&[pattern]), host.as_bytes())
}

#[test]
fn names_and_wildcards() {
    for (pattern, host, expected) in [
        ("a.example", "a.example", true),
        ("A.Example", "a.eXample", true),
        ("a.example", "b.example", false),
        ("a.example", "a.example.", false),
        ("*.b.example", "a.b.example", true),
        ("*.b.example", "xn--a.b.example", true),
        ("*.b.example", "b.example", false),
        ("*.b.example", ".b.example", true),
        ("*.b.example", "a.a.b.example", false),
        ("*.b.example", "*.b.example", true),
        ("*.b.example", "a_.b.example", false),
        ("*.example", "a.example", false),
        ("*.*.b.example", "a.a.b.example", false),
        ("a.*.b.example", "a.a.b.example", false),
        ("w*.b.example", "www.b.example", true),
        ("w*.b.example", "w.b.example", true),
        ("*w.b.example", "www.b.example", true),
        ("w*w.b.example", "www.b.example", false),
        ("*n--a.b.example", "xn--a.b.example", false),
        ("xn--*.b.example", "xn--a.b.example", false),
        ("-*.b.example", "-a.b.example", false),
        ("a-*.b.example", "a-b.b.example", false),
        ("*-a.b.example", "b-a.b.example", true),
        ("*.b.example.", "a.b.example", false),
        ("*.-b.example", "a.-b.example", false),
        ("*.b_.example", "a.b_.example", false),
        ("*", "a", false),
        ("a.example\0", "a.example", false),
        ("a.b.example", ".b.example", true),
        ("b.example", ".b.example", false),
        ("", "a", false),
    ] {
        assert_eq!(names(pattern, host), expected, "{pattern} {host}");
    }
}

#[test]
fn the_common_name_counts_without_dns_names_only() {
    assert!(!check_host(&with_names(&["a.example"]), b"cn.example"));
    let subject_only =
        parse(&Draft::new("CN=cn.example/CN=*.b.example", "CN=ca", &LEAF).sign(&ROOT));
    assert!(check_host(&subject_only, b"cn.example"));
    assert!(check_host(&subject_only, b"a.b.example"));
    assert!(!check_host(&subject_only, b""));
    assert!(!check_host(&subject_only, b"cn.example\0"));
    // An address is no DNS name, and is not compared with hosts.
    let address = Draft::new("CN=127.0.0.1", "CN=ca", &LEAF)
        .with(Extension::alt_names(&[(0x87, &[127, 0, 0, 2])]));
    let address = parse(&address.sign(&ROOT));
    assert!(!check_host(&address, b"127.0.0.2"));
    assert!(check_host(&address, b"127.0.0.1"));
    // BMPString
    let rdn = der::element(0x31, &der::attribute("2.5.4.3", 0x1e, b"\0a\0.\0b"));
    let wide = Draft { subject: der::element(0x30, &rdn), ..leaf() };
    assert!(check_host(&parse(&wide.sign(&ROOT)), b"a.b"));
}
