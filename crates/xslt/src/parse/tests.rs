use super::*;
use crate::tests::Folder;

const MAX: usize = 4 << 20;

fn parsing() -> Parsing<'static> {
    Parsing { entities: None, external_entities: false, bytes_max: MAX }
}

/// A document written out: namespaces as `{prefix}uri`, text in brackets.
fn show(atoms: &Atoms, doc: &Doc) -> String {
    let mut all = String::new();
    let mut ends: Vec<(tree::Id, String)> = Vec::new();
    for id in 1..=doc.len() {
        while ends.last().is_some_and(|(end, _)| *end <= id) {
            all += &ends.pop().unwrap().1;
        }
        if id == doc.len() {
            break;
        }
        let node = doc.node(id);
        let (prefix, local) = (atoms.text(node.prefix), atoms.text(node.name.local));
        let name = if prefix.is_empty() { local.to_owned() } else { format!("{prefix}:{local}") };
        let (uri, value) = (atoms.text(node.name.uri), doc.own_value(id));
        let uri = if uri.is_empty() { String::new() } else { format!("{{{uri}}}") };
        all += &match node.kind {
            tree::Kind::Root => unreachable!(),
            tree::Kind::Element => format!("<{uri}{name}"),
            tree::Kind::Namespace if node.parent == tree::ROOT => String::new(),
            tree::Kind::Namespace => format!(" {{{local}}}{value}"),
            tree::Kind::Attribute => format!(" {uri}{name}={value:?}"),
            tree::Kind::Text | tree::Kind::RawText => format!("[{value}]"),
            tree::Kind::Comment => format!("<!--{value}-->"),
            tree::Kind::Pi => format!("<?{local} {value}?>"),
        };
        if node.kind == tree::Kind::Element {
            ends.push((node.end, ">".to_owned()));
        }
    }
    all
}

fn shown_with(document: &str, base: Option<&str>, parsing: &Parsing) -> Result<String> {
    let atoms = Atoms::default();
    let doc = parse(&atoms, document.as_bytes(), base, parsing, true)?;
    Ok(show(&atoms, &doc))
}

fn shown(document: &str) -> String {
    shown_with(document, None, &parsing()).unwrap_or_else(|e| format!("{e}"))
}

fn table(cases: &[(&str, &str)]) {
    for (document, expected) in cases {
        assert_eq!(shown(document), *expected, "{document}");
    }
}

#[test]
fn documents_are_read() {
    table(&[
        ("<a/>", "<a>"),
        ("\n<!--c--><?p  v ?><a>1<b/>2</a><?q?>\n", "<!--c--><?p v ?><a[1]<b>[2]><?q ?>"),
        ("<a>\r\n1\r2&#13;\n<![CDATA[<&\r\n]]>&lt;</a>", "<a[\n1\n2\r\n<&\n<]>"),
        ("<a b='1\n2\t&#10;3&#x41;&quot;'/>", "<a b=\"1 2 \\n3A\\\"\">"),
        ("<a  b = \"'>\" c='1' ></a >", "<a b=\"'>\" c=\"1\">"),
        ("<a><![CDATA[]]></a>", "<a>"),
        ("<a>ä€𝄞&#x1D11E;</a>", "<a[ä€𝄞𝄞]>"),
        ("<?xml version='1.1'?><a/>", "<a>"),
    ]);
}

#[test]
fn namespaces_are_read() {
    table(&[
        (
            "<p:a xmlns:p='urn:p' xmlns='urn:d' p:x='1' x='2' xml:lang='de'><b><p:c/></b></p:a>",
            "<{urn:p}p:a {p}urn:p {}urn:d {urn:p}p:x=\"1\" x=\"2\" \
             {http://www.w3.org/XML/1998/namespace}xml:lang=\"de\"<{urn:d}b<{urn:p}p:c>>>",
        ),
        (
            "<a xmlns='u' xmlns:p='v'><b xmlns='' xmlns:p='w'><p:c/></b><b xmlns='u'/></a>",
            "<{u}a {}u {p}v<b {} {p}w<{w}p:c>><{u}b>>",
        ),
        ("<a xmlns:p='1' xmlns:q='2'><b xmlns:p='1' xmlns:q='3'/></a>", "<a {p}1 {q}2<b {q}3>>"),
        ("<a xmlns:p='u' xmlns:q='u'><q:b q:x='1'/></a>", "<a {p}u {q}u<{u}q:b {u}q:x=\"1\">>"),
        // Prefixes that nothing declares.
        ("<x:a x:b='1' y='2'><x:c/><d/></x:a>", "<x:a x:b=\"1\" y=\"2\"<x:c><d>>"),
        ("<a xmlns:x='' x:b='1'/>", "<a x:b=\"1\">"),
        ("<a xmlns:x='u'><b xmlns:x=''><x:c/></b></a>", "<a {x}u<b<{u}x:c>>>"),
    ]);
}

#[test]
fn entities_are_replaced() {
    let dtd = |declared: &str, rest: &str| shown(&format!("<!DOCTYPE a [{declared}]>{rest}"));
    let cases = [
        ("<!ENTITY e 'x'>", "<a b='1&e;2'>1&e;2&e;</a>", "<a b=\"1x2\"[1x2x]>"),
        ("<!ENTITY e '<b c=\"&f;\">&f;</b>'><!ENTITY f 'y'>", "<a>&e;</a>", "<a<b c=\"y\"[y]>>"),
        ("<!ENTITY e '&#38;#60;x'>", "<a q='&e;'>&e;</a>", "<a q=\"<x\"[<x]>"),
        ("<!ENTITY e '&#34;&#39;&#10;&#38;#10;'>", "<a q='&e;'/>", "<a q=\"\\\"' \\n\">"),
        ("<!ENTITY e '&#13;\r\n'>", "<a>&e;</a>", "<a[\r\n]>"),
        ("<!ENTITY lt '&#38;#60;'>", "<a>&lt;</a>", "<a[<]>"),
        (
            "<!ENTITY e '<p:b p:c=\"1\"/>'>",
            "<a xmlns:p='u'>&e;</a>",
            "<a {p}u<{u}p:b {u}p:c=\"1\">>",
        ),
        ("<!ENTITY e '<p:b/>'>", "<a>&e;</a>", "<a<p:b>>"),
        (
            "<!ENTITY e '<![CDATA[&f;]]><!--&f;--><?p &f;?>'>",
            "<a>&e;</a>",
            "<a[&f;]<!--&f;--><?p &f;?>>",
        ),
        ("<!ENTITY e SYSTEM 'x'>", "<a>1&e;2</a>", "<a[12]>"),
        ("<!ENTITY % p \"<!ENTITY e 'x'>\">%p;", "<a>&e;&gone;</a>", "<a[x]>"),
        (
            "<!ENTITY e 'x'>",
            "<!--&e;--><?p &e;?><a><![CDATA[&e;]]></a>",
            "<!--&e;--><?p &e;?><a[&e;]>",
        ),
    ];
    for (declared, rest, expected) in cases {
        assert_eq!(dtd(declared, rest), expected, "{declared} {rest}");
    }
    let empty = dtd("<!ENTITY e ''>", "<a xmlns:p='u'><p:b xmlns:p='&e;' p:c='1'/></a>");
    assert_eq!(empty, "<a {p}u<p:b p:c=\"1\">>");
    let lenient = "<!DOCTYPE a SYSTEM 'no.dtd'><a y='&x;'>1&x;2</a>";
    assert_eq!(shown(lenient), "<a y=\"\"[12]>");
    let strict = format!("<?xml version='1.0' standalone='yes'?>{lenient}");
    assert_eq!(shown(&strict), "the entity \"x\" is not declared in document:1");
}

#[test]
fn attributes_are_declared() {
    let document = "<!DOCTYPE a [<!ENTITY e '&#34;'>
        <!ATTLIST a z CDATA ' d&e; ' y (u|v) #FIXED 'u'>
        <!ATTLIST p:b xmlns:p CDATA #FIXED 'urn:p' p:t NMTOKENS ' t  s '>
        <!ATTLIST c xmlns CDATA 'urn:c' i ID #IMPLIED n NMTOKEN #IMPLIED>
        ]><a y='v'><p:b p:t=' 1  2 '/><p:b/><c i=' k ' n=' 1 '/><c i='k'/></a>";
    let atoms = Atoms::default();
    let doc = parse(&atoms, document.as_bytes(), None, &parsing(), true).unwrap();
    let expected = "<a y=\"v\" z=\" d\\\" \"<{urn:p}p:b {p}urn:p {urn:p}p:t=\"1 2\">\
        <{urn:p}p:b {p}urn:p {urn:p}p:t=\"t s\"><{urn:c}c {}urn:c i=\"k\" n=\"1\">\
        <{urn:c}c {}urn:c i=\"k\">>";
    assert_eq!(show(&atoms, &doc), expected);
    let id = doc.ids["k"];
    assert_eq!((doc.line(id), doc.attributes(id).count(), doc.ids.len()), (5, 2, 1));
    let document = b"<a><b xml:id=' k '/><c xml:id='k'/></a>";
    let doc = parse(&atoms, document, None, &parsing(), false).unwrap();
    assert_eq!(atoms.text(doc.node(doc.ids["k"]).name.local), "b");
}

#[test]
fn unparsed_entities_have_places() {
    let document = "<!DOCTYPE a [<!NOTATION g SYSTEM 'v'><!ENTITY p SYSTEM 'i/p.gif' NDATA g>
        <!ENTITY q PUBLIC 'x' 'http://h/q' NDATA g>]><a/>";
    let atoms = Atoms::default();
    let doc = parse(&atoms, document.as_bytes(), Some("/x/d.xml"), &parsing(), false).unwrap();
    assert_eq!((&*doc.unparsed["p"], &*doc.unparsed["q"]), ("/x/i/p.gif", "http://h/q"));
    assert_eq!(doc.base.as_deref(), Some("/x/d.xml"));
}

#[test]
fn external_entities_are_files() {
    let folder = Folder::with(&[
        ("e.txt", "<?xml encoding='utf-8'?>out &amp; <b x='&i;'/>\r\n&n;"),
        ("bad", "<b>"),
        ("p.ent", "<!ENTITY fromp 'y'>"),
    ]);
    let base = folder.file("d.xml");
    let document = |uri: &str, rest: &str| {
        format!(
            "<!DOCTYPE a [<!ENTITY e SYSTEM '{uri}'><!ENTITY i 'in'><!ENTITY n SYSTEM 'none'>
            <!ENTITY % p SYSTEM 'p.ent'>%p;]>{rest}"
        )
    };
    let on = Parsing { external_entities: true, ..parsing() };
    let read = |uri: &str, rest: &str, parsing: &Parsing| {
        let shown = shown_with(&document(uri, rest), Some(&base), parsing);
        shown.map_err(|e| e.message)
    };
    let text = "<a>1&e;2</a>";
    let whole = Ok("<a[1out & ]<b x=\"in\">[\n2]>".to_owned());
    assert_eq!(read("e.txt", text, &on), whole);
    assert_eq!(read(&format!("file://{}", folder.file("e.txt")), text, &on), whole);
    assert_eq!(read("e.txt", text, &parsing()), Ok("<a[12]>".to_owned()));
    for gone in ["none", "http://127.0.0.1/e.txt", ""] {
        assert_eq!(read(gone, text, &on), Ok("<a[12]>".to_owned()), "{gone}");
    }
    assert_eq!(read("", "<a>&fromp;</a>", &on), Ok("<a[y]>".to_owned()));
    assert!(read("bad", text, &on).unwrap_err().contains("\"e\" is not well-formed"));
    let in_attribute = read("e.txt", "<a b='&e;'/>", &on).unwrap_err();
    assert!(in_attribute.contains("refers to the external entity"), "{in_attribute}");
}

#[test]
fn entities_of_a_file_are_added() {
    let folder = Folder::with(&[
        (
            "good.ent",
            "<?xml encoding='utf-8'?>\n<!-- Latin -->\n<!ENTITY nbsp \"&#160;\">
            <!ENTITY both 'shared'><!ENTITY % p '<!ENTITY inner \"1\">'>%p;",
        ),
        ("bad.ent", "<!ENTITY a 'x'>\n<!ENTITY b>"),
    ]);
    let read = |name: &str| Entities::read(Path::new(&folder.file(name)));
    let entities = read("good.ent").unwrap();
    let with = Parsing { entities: Some(&entities), ..parsing() };
    let cases = [
        ("<a b='&nbsp;'>&nbsp;&inner;</a>", "<a b=\"\\u{a0}\"[\u{a0}1]>"),
        ("<?xml version='1.0'?><!--c--><?p?>\n<a>&nbsp;</a>", "<!--c--><?p ?><a[\u{a0}]>"),
        ("<!DOCTYPE a><a>&both;</a>", "<a[shared]>"),
        ("<!DOCTYPE a [<!ENTITY both 'own'>]><a>&both;</a>", "<a[own]>"),
    ];
    for (document, expected) in cases {
        assert_eq!(shown_with(document, None, &with).as_deref(), Ok(expected));
    }
    let error = shown_with("<a>\n&nbsp;\n</b>", None, &with).unwrap_err();
    assert_eq!(error.place, Some(("document".to_owned(), 3)));
    let error = Entities::of(b"\n<", "file", false).unwrap_err();
    assert_eq!(error.place, Some(("file".to_owned(), 2)));
    let error = shown_with("<a b=\u{7}/>", None, &parsing()).unwrap_err();
    assert_eq!(error.message, "expected a quote not '\u{fffd}'", "no controls in a log");
    let error = read("bad.ent").unwrap_err();
    assert_eq!(error.place, Some((folder.file("bad.ent"), 2)));
    assert!(read("none.ent").unwrap_err().message.contains("cannot be read"));
}

#[test]
fn errors_have_places() {
    table(&[
        ("<a>\n</b>", "mismatched tags: expected </a>, found </b> in document:2"),
        (
            "<?xml version='1.0'\n?>\n<a>\n<b></a>",
            "mismatched tags: expected </b>, found </a> in document:4",
        ),
        (
            "<!DOCTYPE a [\n<!ENTITY e '1\n2'>\n]>\n<a>&e;&e;\n<b></a>",
            "mismatched tags: expected </b>, found </a> in document:6",
        ),
        (
            "<!DOCTYPE a [\n<!ENTITY e '<b\n c=1/>'>\n]>\n<a>\n&e;</a>",
            "the text of the entity \"e\" is not well-formed in document:6",
        ),
        (
            "<!DOCTYPE a [\n<!ENTITY e '<1>\n'>\n]>\n<a>\n&e;</a>",
            "the text of the entity \"e\" is not well-formed in document:6",
        ),
        (
            "<!DOCTYPE a [\n<!ENTITY e '<b>\n<1:x/></b>'>\n]>\n<a>\n&e;</a>",
            "invalid name token in document:6",
        ),
        ("<a>\n<b>\n", "the document ends in <b> of line 2 in document:3"),
        ("<a", "the document has no element in document:1"),
        ("<a><b", "the document ends in <a> of line 1 in document:1"),
        ("", "the document has no element in document:1"),
        ("<a/>x", "unknown token in document:1"),
        ("<a/><b/>", "unknown token in document:1"),
        ("<a>\n&x;</a>", "the entity \"x\" is not declared in document:2"),
        ("<a>\n& x</a>", "malformed entity reference in document:2"),
        ("<a>&#xD800;</a>", "the reference \"&#xD800;\" names no character in document:1"),
        ("<a b='&#0;'/>", "the reference \"&#0;\" names no character in document:1"),
        ("<a b='1' b='2'/>", "attribute 'b' is already defined in document:1"),
        ("<a xmlns='1' xmlns='2'/>", "the attribute \"xmlns\" comes twice in document:1"),
        ("<a b='<'/>", "expected ''' not '<' in document:1"),
        ("<a b=1/>", "expected a quote not '1' in document:1"),
        ("<a>\u{1}</a>", "a non-XML character '\\u{1}' found in document:1"),
        ("<a>]]></a>", "']]>' is not allowed inside a character data in document:1"),
        ("<a><!-- -- --></a>", "comment contains '--' in document:1"),
        (
            "\n<?xml version='1.0'?><a/>",
            "an XML declaration is not at the document's beginning in document:2",
        ),
        (
            "<!DOCTYPE a [\n<!ENTITY e>]><a/>",
            "expected a text in quotes in the document type declaration in document:2",
        ),
        (
            "<!DOCTYPE a><!DOCTYPE b><a/>",
            "a document type declaration is out of place in document:1",
        ),
        ("<!DOCTYPE a>", "the document has no element in document:1"),
        (
            "<!DOCTYPE a [<!ENTITY m '<b>'>]><a>&m;</b></a>",
            "the text of the entity \"m\" is not well-formed in document:1",
        ),
        (
            "<!DOCTYPE a [<!ENTITY m '</a><a>'>]><a>&m;</a>",
            "the text of the entity \"m\" is not well-formed in document:1",
        ),
        (
            "<!DOCTYPE a [<!ENTITY e '&f;'><!ENTITY f '&e;'>]><a>&e;</a>",
            "the entity \"e\" refers to itself, or too deep in document:1",
        ),
        (
            "<!DOCTYPE a [<!ENTITY e '&f;'><!ENTITY f '&e;'>]><a b='&e;'/>",
            "the entity \"f\" refers to itself, or too deep in document:1",
        ),
        (
            "<!DOCTYPE a [<!ENTITY e '&#60;'>]><a b='&e;'/>",
            "an attribute gets a '<' from \"e\" in document:1",
        ),
        (
            "<!DOCTYPE a [<!ENTITY e SYSTEM 'p' NDATA g>]><a>&e;</a>",
            "a reference to the entity \"e\", which is no XML in document:1",
        ),
    ]);
}

#[test]
fn lines_are_those_of_the_document() {
    let document = "<?xml version='1.0'\n?><!DOCTYPE a [<!ENTITY e '<i/>\n\n<i/>'>\n\
        <!ATTLIST b z CDATA 'x\ny'>]>\n<a\nx='1'>\n<b/>&e;&e;\n<b/><!--\n--><c/>\n<d/></a>\n<?p?>";
    let atoms = Atoms::default();
    let doc = parse(&atoms, document.as_bytes(), None, &parsing(), true).unwrap();
    let lines: Vec<String> = (0..doc.len())
        .filter(|id| matches!(doc.node(*id).kind, tree::Kind::Element | tree::Kind::Pi))
        .map(|id| format!("{}{}", atoms.text(doc.node(id).name.local), doc.line(id)))
        .collect();
    assert_eq!(lines.join(" "), "a7 b9 i9 i9 i9 i9 b10 c11 d12 p13");
}

#[test]
fn depth_is_bounded() {
    let nested = |n| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
    let read = |text: &str| shown_with(text, None, &parsing()).map(drop).map_err(|e| e.message);
    assert_eq!(read(&nested(256)), Ok(()));
    assert_eq!(read(&nested(257)), Err("elements are nested deeper than 256".to_owned()));
    assert!(read(&"<a>".repeat(1_000_000)).is_err());
    let entity = format!("<!DOCTYPE a [<!ENTITY e '{}'>]><a>&e;</a>", nested(256));
    assert_eq!(read(&entity), Err("elements are nested deeper than 256".to_owned()));
}

#[test]
fn memory_and_work_are_bounded() {
    let laughs = |inner: &str, uses: &str| {
        let mut all = format!("<!DOCTYPE a [<!ENTITY e0 '{inner}'>");
        for n in 1..30 {
            let before = format!("&e{};", n - 1);
            all += &format!("<!ENTITY e{n} '{}'>", before.repeat(10));
        }
        all + "]>" + uses
    };
    let many = |n: usize, of: &dyn Fn(usize) -> String| (0..n).map(of).collect::<String>();
    let large = "x".repeat(100_000);
    let cases = [
        laughs("lol", "<a>&e29;</a>"),
        laughs("", "<a>&e29;</a>"),
        laughs("", "<a b='&e29;'/>"),
        format!("<!DOCTYPE a [<!ENTITY e '{large}'>]><a>{}</a>", "&e;".repeat(100)),
        format!("<!DOCTYPE a [<!ENTITY e '{large}'>]><a b='{}'/>", "&e;".repeat(100)),
        format!("<!DOCTYPE a [<!ATTLIST b c CDATA '{large}'>]><a>{}</a>", "<b/>".repeat(100)),
        format!("<a {}/>", many(200_000, &|n| format!("a{n}='' "))),
        format!(
            "<a {}>{}</a>",
            many(30_000, &|n| format!("xmlns:a{n}='u' ")),
            many(30_000, &|n| format!("<b xmlns:b{n}='u'/>"))
        ),
        format!("<a {}/>", many(100_000, &|n| format!("p{n}:a='' "))),
        format!("<a>{}</a>", "=".repeat(1_000_000)),
        format!("<a>{}</a>", "<b/>".repeat(100_000)),
        "x".repeat(MAX + 1),
    ];
    for document in cases {
        // Processor time, because other processes may have the processor for longer.
        let begin = os::clock::thread_usec();
        let error = shown_with(&document, None, &parsing()).unwrap_err();
        let head: String = document.chars().take(60).collect();
        assert!(
            ["more memory", "more than", "too many"].iter().any(|s| error.message.contains(s)),
            "{head}: {error}"
        );
        let took = os::clock::thread_usec() - begin;
        assert!(took < 20_000_000, "{head}: {took} us");
    }
}

#[test]
fn no_beginning_panics() {
    let document = "\u{feff}<?xml version='1.0' encoding='utf-8' standalone='no'?>\r\n<!-- c -->\
        <?p v?><!DOCTYPE ä:a PUBLIC 'x' \"y\" [ <!ENTITY e '<b x=\"&f;\"/>&#38;amp;é&#13;'>\
        <!ENTITY f \"'\"><!ENTITY % p '<!ENTITY g \"1\">'>%p;<!ENTITY u SYSTEM 'u' NDATA n>\
        <!NOTATION n SYSTEM 'n'><!ELEMENT b ANY><!ATTLIST b i ID #IMPLIED d (x|y) 'x' \
        p:q CDATA #FIXED '&f;'><!-- ]> --><?p ]>?> ] ><ä:a é='ü&f;&#x41;' xmlns='u' xmlns:p=''\
        xmlns:ä='v'>té&e;&lt;&none;<![CDATA[é]]><p:b i='k'/><c></c></ä:a><!-- é --><?p?>\n";
    let bytes = document.as_bytes();
    let atoms = Atoms::default();
    let on = Parsing { external_entities: true, ..parsing() };
    assert!(parse(&atoms, bytes, None, &on, true).is_ok(), "{}", shown(document));
    for end in 0..bytes.len() {
        let beginning = parse(&atoms, &bytes[..end], None, &on, true);
        assert!(
            beginning.is_err()
                || document[end..].trim_start().starts_with("<!--")
                || end > document.find("</ä:a>").unwrap(),
            "{end}"
        );
        // Without a piece, and with bytes that are wrong.
        for (len, with) in [(1, &b""[..]), (7, b"<"), (3, b"&"), (0, b"\xc3"), (2, b"]]>'\"")] {
            let behind = bytes.get(end + len..).unwrap_or_default();
            let _ = parse(&atoms, &[&bytes[..end], with, behind].concat(), None, &on, true);
        }
    }
}
