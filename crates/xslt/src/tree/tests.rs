//! Trees and how they are made.

use super::*;

fn names(doc: &Doc, atoms: &Atoms, ids: impl Iterator<Item = Id>) -> Vec<String> {
    ids.map(|id| atoms.text(doc.node(id).name.local).to_owned()).collect()
}

#[test]
fn nodes_are_linked_in_document_order() {
    let atoms = Atoms::default();
    let mut b = Builder::new(&atoms, true, 1 << 20);
    let name = |local| atoms.name("", local);
    let r = b.start(name("r"), Atom::EMPTY).unwrap();
    b.attribute(name("x"), Atom::EMPTY, "1").unwrap();
    let a = b.start(name("a"), Atom::EMPTY).unwrap();
    b.text("one", false).unwrap();
    b.text(" more", false).unwrap();
    b.end();
    b.comment("c").unwrap();
    let z = b.start(name("z"), Atom::EMPTY).unwrap();
    b.end();
    b.end();
    let doc = b.finish();
    assert_eq!(names(&doc, &atoms, doc.children(ROOT)), ["r"]);
    assert_eq!(names(&doc, &atoms, doc.children(r)), ["a", "", "z"]);
    assert_eq!(names(&doc, &atoms, doc.attributes(r)), ["x"]);
    assert_eq!(doc.value(r), "one more");
    assert_eq!((doc.node(r).end, doc.node(ROOT).end), (doc.len(), doc.len()));
    assert_eq!(doc.node(a).end, a + 2);
    assert_eq!((doc.node(z).prev, doc.node(z).next), (z - 1, NONE));
    assert_eq!(doc.ancestors(a).collect::<Vec<_>>(), [r, ROOT]);
    assert_eq!(doc.attribute(r, name("x")), Some("1"));
}

#[test]
fn names_declare_their_namespaces() {
    let atoms = Atoms::default();
    let mut b = Builder::new(&atoms, true, 1 << 20);
    let get = |text| atoms.get(text);
    b.start(atoms.name("urn:d", "r"), Atom::EMPTY).unwrap();
    // In scope already, and another one of the same prefix.
    b.namespace(Atom::EMPTY, get("urn:d")).unwrap();
    b.namespace(Atom::EMPTY, get("urn:other")).unwrap();
    b.namespace(get("p"), get("urn:p")).unwrap();
    let inner = b.start(atoms.name("", "a"), Atom::EMPTY).unwrap();
    b.attribute(atoms.name("urn:p", "x"), get("p"), "1").unwrap();
    b.attribute(atoms.name("urn:q", "x"), get("p"), "2").unwrap();
    b.attribute(atoms.name(crate::XML, "lang"), get("y"), "de").unwrap();
    b.end();
    let doc = b.finish();
    let declared = |id| -> Vec<(String, String)> {
        let all = doc.declared(id);
        all.map(|id| {
            let prefix = atoms.text(doc.node(id).name.local).to_owned();
            (prefix, doc.own_value(id).to_owned())
        })
        .collect()
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let r = doc.node(inner).parent;
    assert_eq!(declared(r), [pair("", "urn:d"), pair("p", "urn:p")]);
    assert_eq!(declared(inner), [pair("", ""), pair("ns_1", "urn:q")]);
    let prefixes: Vec<&str> =
        doc.attributes(inner).map(|id| atoms.text(doc.node(id).prefix)).collect();
    assert_eq!(prefixes, ["p", "ns_1", "xml"]);
    assert_eq!(doc.uri_of(&atoms, inner, ""), Some(""));
    assert_eq!(doc.uri_of(&atoms, inner, "p"), Some("urn:p"));
    assert_eq!(doc.uri_of(&atoms, r, "ns_1"), None);
}

#[test]
fn a_copy_is_the_same_elsewhere() {
    let atoms = Atoms::default();
    let mut b = Builder::new(&atoms, true, 1 << 20);
    b.start(atoms.name("urn:d", "r"), Atom::EMPTY).unwrap();
    let a = b.start(atoms.name("urn:d", "a"), Atom::EMPTY).unwrap();
    b.attribute(atoms.name("", "x"), Atom::EMPTY, "1").unwrap();
    b.text("t", true).unwrap();
    b.pi("p", "v").unwrap();
    b.end();
    b.text("behind", false).unwrap();
    let doc = b.finish();
    let mut copy = Builder::new(&atoms, true, 1 << 20);
    copy.copy(&doc, a).unwrap();
    let copy = copy.finish();
    let element = copy.children(ROOT).next().unwrap();
    assert_eq!(copy.uri_of(&atoms, element, ""), Some("urn:d"), "its namespace came along");
    let kinds: Vec<Kind> = copy.children(element).map(|id| copy.node(id).kind).collect();
    assert_eq!(kinds, [Kind::RawText, Kind::Pi]);
    assert_eq!((copy.value(ROOT).as_ref(), copy.attributes(element).count()), ("t", 1));
}

#[test]
fn memory_is_bounded_and_given_back() {
    let atoms = Atoms::default();
    let mut b = Builder::new(&atoms, true, 1000);
    let mut most = 0;
    while b.comment("12345678").is_ok() {
        most += 1;
    }
    assert!((5..20).contains(&most), "{most}");
    let left = Rc::new(Cell::new(10_000));
    let mut doc = b.finish();
    let bytes = doc.bytes();
    doc.charge(&left);
    assert_eq!(left.get(), 10_000 - bytes);
    drop(doc);
    assert_eq!(left.get(), 10_000);
}
