use super::*;
use testkit::certificates::der;

const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const DIRECTORY: u8 = 0xa4;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

type Names<'a> = &'a [(u8, &'a [u8])];

fn check(leaf: &Draft, permitted: Names<'_>, excluded: Names<'_>) -> Option<Error> {
    let middle = middle().with(Extension::constraints(permitted, excluded).critical());
    let errors = three(leaf, &middle, &root(), client(1));
    assert!(errors.len() <= 1, "{errors:?}");
    errors.first().map(|(error, _)| *error)
}

fn named(names: Names<'_>) -> Draft {
    leaf().with(Extension::alt_names(names))
}

fn one(kind: u8, name: &[u8], base: &[u8]) -> Option<Error> {
    check(&named(&[(kind, name)]), &[(kind, base)], &[])
}

const OUTSIDE: Option<Error> = Some(Error::PermittedSubtree);
const SYNTAX: Option<Error> = Some(Error::NameSyntax);

#[test]
fn dns_names() {
    for (name, base, expected) in [
        ("a.example", "example", None),
        ("a.EXAMPLE", "Example", None),
        ("example", "example", None),
        ("bexample", "example", OUTSIDE),
        ("a.example", ".example", None),
        ("example", ".example", OUTSIDE),
        ("example", "a.example", OUTSIDE),
        ("anything", "", None),
    ] {
        assert_eq!(one(DNS, name.as_bytes(), base.as_bytes()), expected, "{name} {base}");
    }
    let leaf = named(&[(DNS, b"a.b.example"), (DNS, b"c.example")]);
    assert_eq!(check(&leaf, &[], &[(DNS, b"b.example")]), Some(Error::ExcludedSubtree));
    assert_eq!(check(&leaf, &[(DNS, b"b.example")], &[]), OUTSIDE, "one of them is outside");
    assert_eq!(check(&leaf, &[(DNS, b"b.example"), (DNS, b"c.example")], &[]), None);
    assert_eq!(check(&leaf, &[(IP, &[0; 8])], &[]), None, "no name of that kind");
}

#[test]
fn the_common_name_is_a_dns_name_if_it_looks_like_one() {
    let cn = |text| Draft::new(text, "CN=middle", &LEAF);
    let permitted: Names<'_> = &[(DNS, b"example")];
    assert_eq!(check(&cn("CN=a.other"), permitted, &[]), OUTSIDE);
    assert_eq!(check(&cn("CN=a.example"), permitted, &[]), None);
    assert_eq!(check(&cn("CN=other"), permitted, &[]), None, "one label");
    assert_eq!(check(&cn("CN=a b.other"), permitted, &[]), None);
    assert_eq!(check(&cn("CN=-a.other"), permitted, &[]), None);
    assert_eq!(check(&cn("CN=a..other"), permitted, &[]), None);
    assert_eq!(check(&cn("CN=a.other\0"), permitted, &[]), OUTSIDE, "a zero at the end");
    assert_eq!(check(&cn("CN=a.other\0.example"), permitted, &[]), SYNTAX);
    let other_kind = cn("CN=a.other").with(Extension::alt_names(&[(EMAIL, b"a@b")]));
    assert_eq!(check(&other_kind, permitted, &[]), OUTSIDE);
    let named = cn("CN=a.other").with(Extension::alt_names(&[(DNS, b"b.example")]));
    assert_eq!(check(&named, permitted, &[]), None, "a DNS name takes its place");
}

#[test]
fn addresses() {
    let net: &[u8] = &[10, 1, 0, 0, 255, 255, 0, 0];
    assert_eq!(one(IP, &[10, 1, 2, 3], net), None);
    assert_eq!(one(IP, &[10, 2, 2, 3], net), OUTSIDE);
    assert_eq!(one(IP, &[0; 16], net), OUTSIDE);
    assert_eq!(one(IP, &[0; 5], net), SYNTAX);
    assert_eq!(one(IP, &[10, 1, 2, 3], &net[..7]), SYNTAX);
    assert_eq!(one(IP, &[0xfe; 16], &[[0xfe; 16], [0xff; 16]].concat()), None);
}

#[test]
fn mail_addresses() {
    for (name, base, expected) in [
        ("a@b.example", "b.example", None),
        ("a@c.b.example", "b.example", OUTSIDE),
        ("a@c.b.example", ".b.example", None),
        ("a@b.example", ".b.example", OUTSIDE),
        ("a@B.example", "a@b.example", None),
        ("A@b.example", "a@b.example", OUTSIDE),
        ("a@b.example", "@b.example", None),
        ("no address", "b.example", SYNTAX),
    ] {
        assert_eq!(one(EMAIL, name.as_bytes(), base.as_bytes()), expected, "{name} {base}");
    }
    let subject = Draft::new("emailAddress=a@other", "CN=middle", &LEAF);
    assert_eq!(check(&subject, &[(EMAIL, b"b.example")], &[]), OUTSIDE);
}

/// A mailbox in UTF-8 is subject to the constraints of mail addresses.
#[test]
fn mail_addresses_in_utf8() {
    let other = |tag, text: &str| {
        let value = der::element(0xa0, &der::element(tag, text.as_bytes()));
        [der::oid("1.3.6.1.5.5.7.8.9"), value].concat()
    };
    for (tag, name, base, expected) in [
        (0x0c, "ä@b.example", "B.example", None),
        (0x0c, "ä@c.b.example", "b.example", OUTSIDE),
        (0x0c, "ä@c.b.example", ".b.example", None),
        (0x0c, "ä@b.example", ".b.example", OUTSIDE),
        (0x0c, "ä@b.example", "ä@b.example", OUTSIDE),
        (0x0c, "ä@xn--a.example", "xn--a.example", SYNTAX),
        (0x0c, "no address", "b.example", SYNTAX),
        (0x16, "ä@b.example", "b.example", SYNTAX),
    ] {
        let constrained =
            check(&named(&[(0xa0, &other(tag, name))]), &[(EMAIL, base.as_bytes())], &[]);
        assert_eq!(constrained, expected, "{name} {base}");
    }
}

#[test]
fn uris() {
    for (name, base, expected) in [
        ("http://b.example/x", "b.example", None),
        ("http://b.example:80/x", "B.example", None),
        ("http://a.b.example", "b.example", OUTSIDE),
        ("http://a.b.example", ".b.example", None),
        ("http://b.example", ".b.example", OUTSIDE),
        ("http:b.example", "b.example", SYNTAX),
        ("http://", "b.example", SYNTAX),
        ("http:///x", "b.example", SYNTAX),
        ("nothing", "b.example", SYNTAX),
    ] {
        assert_eq!(one(URI, name.as_bytes(), base.as_bytes()), expected, "{name} {base}");
    }
}

#[test]
fn directory_names() {
    let subtree = |text| der::name(text);
    let subject = |text| Draft::new(text, "CN=middle", &LEAF);
    let check = |leaf: &Draft, base: &[u8]| check(leaf, &[(DIRECTORY, base)], &[]);
    assert_eq!(check(&subject("O=a  B/CN=x"), &subtree("O=A b")), None);
    assert_eq!(check(&subject("O=ab/CN=x"), &subtree("O=a")), OUTSIDE);
    assert_eq!(check(&subject("CN=x/O=a"), &subtree("O=a")), OUTSIDE, "not at the begin");
    let alternative = der::name("O=other");
    let both = subject("O=a").with(Extension::alt_names(&[(DIRECTORY, &alternative)]));
    assert_eq!(check(&both, &subtree("O=a")), OUTSIDE);
    assert_eq!(check(&subject("CN=x"), &subtree("")), None);
}

#[test]
fn kinds_that_cannot_be_compared() {
    let id: &[u8] = &[0x2a, 3];
    assert_eq!(one(0x88, id, id), Some(Error::ConstraintType));
    let other = [der::oid("1.2.3"), der::element(0xa0, &[5, 0])].concat();
    assert_eq!(one(0xa0, &other, &other), Some(Error::ConstraintType));
    let unlike = [der::oid("1.2.4"), der::element(0xa0, &[5, 0])].concat();
    assert_eq!(one(0xa0, &other, &unlike), None, "another kind of other name");
}

#[test]
fn bounds_of_subtrees() {
    let check = |bound: &[u8]| {
        let subtree = der::sequence(&[&der::element(DNS, b"example"), bound]);
        let value = der::sequence(&[&der::element(0xa0, &subtree)]);
        let middle = middle().with(Extension::new("2.5.29.30", value));
        three(&named(&[(DNS, b"a.example")]), &middle, &root(), client(1))
    };
    assert_eq!(check(&[]), []);
    assert_eq!(check(&[0x80, 1, 0]), []);
    assert_eq!(check(&[0x80, 1, 1]), [(Error::SubtreeBounds, 0)]);
    assert_eq!(check(&[0x81, 1, 9]), [(Error::SubtreeBounds, 0)]);
}

#[test]
fn the_roots_constraints_count_too() {
    let root = root().with(Extension::constraints(&[(DNS, b"example")], &[]));
    let errors = three(&named(&[(DNS, b"a.other")]), &middle(), &root, client(1));
    assert_eq!(errors, [(Error::PermittedSubtree, 0)]);
}

/// A thousand names against a thousand subtrees are more than anybody needs.
#[test]
fn the_work_is_bounded() {
    let many: Vec<(u8, &[u8])> = (0..1_100).map(|_| (DNS, &b"a.example"[..])).collect();
    assert_eq!(check(&named(&many), &many, &[]), Some(Error::Unspecified));
    assert_eq!(check(&named(&many[..500]), &many[..500], &[]), None);
}
