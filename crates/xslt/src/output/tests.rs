use super::*;
use crate::tree::Builder;

const MAX: usize = 1 << 20;

/// The nodes inside of the document element; `<?raw …?>` is text that is written as it is.
fn doc_of(atoms: &Atoms, inside: &str) -> Doc {
    let xml = format!("<w>{inside}</w>");
    let parsed = roxmltree::Document::parse(&xml).unwrap();
    let mut builder = Builder::new(atoms, false, MAX);
    build(&mut builder, parsed.root_element());
    builder.finish()
}

fn build(builder: &mut Builder, parent: roxmltree::Node) {
    let atoms = builder.atoms();
    let prefix_of = |node: roxmltree::Node, at: usize| {
        let text = &node.document().input_text()[at..];
        let name = text.split(['=', ' ', '/', '>']).next().unwrap_or_default();
        atoms.get(name.split_once(':').map_or("", |(prefix, _)| prefix))
    };
    for node in parent.children() {
        if node.is_element() {
            let name = node.tag_name();
            let uri = name.namespace().unwrap_or_default();
            let prefix = prefix_of(node, node.range().start + 1);
            builder.start(atoms.name(uri, name.name()), prefix).unwrap();
            for declared in node.namespaces() {
                let prefix = declared.name().unwrap_or_default();
                if prefix != "xml" {
                    builder.namespace(atoms.get(prefix), atoms.get(declared.uri())).unwrap();
                }
            }
            for attribute in node.attributes() {
                let name = atoms.name(attribute.namespace().unwrap_or_default(), attribute.name());
                let prefix = prefix_of(node, attribute.range().start);
                builder.attribute(name, prefix, attribute.value()).unwrap();
            }
            build(builder, node);
            builder.end();
        } else if let Some(pi) = node.pi() {
            let value = pi.value.unwrap_or_default();
            match pi.target {
                "raw" => builder.text(value, true).unwrap(),
                target => builder.pi(target, value).unwrap(),
            }
        } else if node.is_comment() {
            builder.comment(node.text().unwrap_or_default()).unwrap();
        } else {
            builder.text(node.text().unwrap_or_default(), false).unwrap();
        }
    }
}

/// What the attributes of `xsl:output` say, in the form `method=html|indent=no`.
fn output_of(atoms: &Atoms, said: &str) -> Output {
    let mut output = Output::default();
    for (name, value) in said.split('|').filter_map(|said| said.split_once('=')) {
        let text = Some(value.to_owned());
        let yes = Some(value == "yes");
        match name {
            "method" => {
                output.method = match value {
                    "xml" => Some(Method::Xml),
                    "html" => Some(Method::Html),
                    "text" => Some(Method::Text),
                    _ => Some(Method::Xhtml),
                }
            }
            "version" => output.version = text,
            "encoding" => output.encoding = text,
            "omit-xml-declaration" => output.omit_xml_declaration = yes,
            "standalone" => output.standalone = yes,
            "doctype-public" => output.doctype_public = text,
            "doctype-system" => output.doctype_system = text,
            "indent" => output.indent = yes,
            "cdata" => output.cdata = value.split(' ').map(|name| atoms.name("", name)).collect(),
            other => panic!("{other}"),
        }
    }
    output
}

fn written(said: &str, inside: &str) -> String {
    let atoms = Atoms::default();
    let output = output_of(&atoms, said);
    let bytes = write(&output, &atoms, &doc_of(&atoms, inside), MAX).unwrap();
    // Bytes of other encodings as the characters of their numbers.
    String::from_utf8(bytes)
        .unwrap_or_else(|e| e.into_bytes().into_iter().map(char::from).collect())
}

fn check(cases: &[(&str, &str, &str)]) {
    for (said, inside, want) in cases {
        assert_eq!(written(said, inside), *want, "{said}: {inside}");
    }
}

const XHTML_SAID: &str = "doctype-public=-//W3C//DTD XHTML 1.0 Strict//EN|encoding=utf-8";
const XHTML_TOP: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Strict//EN\" \"\">\n";

#[test]
fn top_of_xml() {
    check(&[
        ("", "<a/>", "<?xml version=\"1.0\"?>\n<a/>\n"),
        ("", "", ""),
        ("", "x", "<?xml version=\"1.0\"?>\nx\n"),
        ("", "<a/><b/>", "<?xml version=\"1.0\"?>\n<a/><b/>\n"),
        ("", "<!--c--><a/><!--d-->", "<?xml version=\"1.0\"?>\n<!--c-->\n<a/><!--d-->\n"),
        ("", "<?c d?><a/><?c?>", "<?xml version=\"1.0\"?>\n<?c d?><a/><?c?>\n"),
        ("indent=no", "<!--c--><a/>", "<?xml version=\"1.0\"?>\n<!--c--><a/>"),
        (
            "encoding=Utf-8|standalone=yes|version=1.1",
            "<a/>",
            "<?xml version=\"1.1\" encoding=\"Utf-8\" standalone=\"yes\"?>\n<a/>\n",
        ),
        ("standalone=no", "<a/>", "<?xml version=\"1.0\" standalone=\"no\"?>\n<a/>\n"),
        ("omit-xml-declaration=yes|standalone=no", "<a/>", "<a/>\n"),
        ("omit-xml-declaration=yes|doctype-system=s", "<a/>", "<!DOCTYPE a SYSTEM \"s\">\n<a/>\n"),
        (
            "omit-xml-declaration=yes|doctype-public=p|doctype-system=a\"b",
            "x<p:a xmlns:p=\"u\"/>",
            "<!DOCTYPE p:a PUBLIC \"p\" 'a\"b'>\nx<p:a xmlns:p=\"u\"/>\n",
        ),
        (
            "omit-xml-declaration=yes|doctype-public=p|indent=no",
            "<a/>",
            "<!DOCTYPE a PUBLIC \"p\" \"\"><a/>",
        ),
        ("omit-xml-declaration=yes|doctype-public=p", "<!--c-->", "<!--c-->\n"),
    ]);
}

#[test]
fn text_and_attributes_of_xml() {
    let said = "omit-xml-declaration=yes|encoding=utf-8|indent=no";
    check(&[
        (
            said,
            "<a t=\"&lt;>&amp;&quot;'&#9;&#10;&#13;é\">&lt;>&amp;\"'&#9;&#10;&#13;é]]&gt;</a>",
            "<a t=\"&lt;&gt;&amp;&quot;'&#9;&#10;&#13;é\">&lt;&gt;&amp;\"'\t\n&#13;é]]&gt;</a>",
        ),
        (
            "omit-xml-declaration=yes|indent=no",
            "<a t=\"é😀\">é</a>",
            "<a t=\"&#xE9;&#x1F600;\">é</a>",
        ),
        (
            "omit-xml-declaration=yes|indent=no|encoding=us-ascii",
            "<a t=\"é\">é<!--é--></a>",
            "<a t=\"&#233;\">&#233;<!--&#233;--></a>",
        ),
        (
            "omit-xml-declaration=yes|indent=no|encoding=iso-8859-1",
            "<a t=\"é\">é€</a>",
            "<a t=\"é\">é&#8364;</a>",
        ),
        (said, "<a><?raw <b>&?></a>", "<a><b>&</a>"),
        (
            said,
            "<a p:q=\"1\" xmlns=\"u\" xmlns:p=\"v&amp;&lt;\"><b xmlns=\"\"/></a>",
            "<a xmlns=\"u\" xmlns:p=\"v&amp;&lt;\" p:q=\"1\"><b xmlns=\"\"/></a>",
        ),
    ]);
}

#[test]
fn cdata_sections() {
    let said = "omit-xml-declaration=yes|encoding=us-ascii|indent=no|cdata=b c";
    check(&[
        (said, "<b>x&lt;</b>", "<b><![CDATA[x<]]></b>"),
        (said, "<b/>", "<b/>"),
        (
            said,
            "<a>&lt;<b>&amp;<a>&lt;</a>&amp;</b></a>",
            "<a>&lt;<b><![CDATA[&]]><a>&lt;</a><![CDATA[&]]></b></a>",
        ),
        (said, "<c>]]&gt;x]]&gt;]</c>", "<c><![CDATA[]]]]><![CDATA[>x]]]]><![CDATA[>]]]></c>"),
        (said, "<c>]]<?raw >?></c>", "<c><![CDATA[]]]]><![CDATA[>]]></c>"),
        (said, "<c>aéb</c>", "<c><![CDATA[a]]>&#233;<![CDATA[b]]></c>"),
        (said, "<c xmlns=\"u\">&lt;</c>", "<c xmlns=\"u\">&lt;</c>"),
    ]);
}

#[test]
fn indentation_of_xml() {
    let said = "omit-xml-declaration=yes|indent=yes";
    check(&[
        (
            said,
            "<a><b><c/><d><e>t</e></d></b><b>t<c><d/></c></b><b><c/>t</b><!--d--><?c d?></a>",
            "<a>\n  <b>\n    <c/>\n    <d>\n      <e>t</e>\n    </d>\n  </b>\n  \
                <b>t<c><d/></c></b>\n  <b><c/>t</b>\n  <!--d-->\n  <?c d?>\n</a>\n",
        ),
        (said, "<a><b><?raw x?><c/></b></a>", "<a>\n  <b>x<c/></b>\n</a>\n"),
        (said, "<a><b> <c/></b></a>", "<a>\n  <b> <c/></b>\n</a>\n"),
        ("omit-xml-declaration=yes", "<a><b/></a>", "<a><b/></a>\n"),
    ]);
    let deep = written(said, &("<a>".repeat(40) + &"</a>".repeat(40)));
    let line = |n: usize| deep.lines().nth(n).unwrap_or_default();
    assert_eq!((line(30), line(39)), (&*format!("{:60}<a>", ""), &*format!("{:60}<a/>", "")));
}

#[test]
fn the_method() {
    let xhtml = format!("<html xmlns=\"{XHTML}\"/>");
    let atoms = Atoms::default();
    for (said, inside, want) in [
        ("", "<html/>", Method::Html),
        ("", " <!--c--><?p?><HTML/>x", Method::Html),
        ("", "x<html/>", Method::Xml),
        ("", "<a/><html/>", Method::Xml),
        ("", &xhtml, Method::Xml),
        ("", "", Method::Xml),
        ("method=xml", "<html/>", Method::Xml),
        ("method=html", "x", Method::Html),
        ("method=text", "<html/>", Method::Text),
        ("method=xhtml", "<html/>", Method::Html),
        ("method=xhtml", "<a/>", Method::Xml),
        (XHTML_SAID, "<html/>", Method::Html),
        (XHTML_SAID, &xhtml, Method::Xhtml),
        (XHTML_SAID, "x", Method::Xml),
        ("doctype-public=-//W3C//DTD XHTML 1.1//EN", &xhtml, Method::Xml),
        (
            "doctype-system=http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd",
            &xhtml,
            Method::Xhtml,
        ),
    ] {
        let output = output_of(&atoms, said);
        assert_eq!(output.method_for(&atoms, &doc_of(&atoms, inside)), want, "{said} {inside}");
    }
}

#[test]
fn html_elements() {
    check(&[
        (
            "",
            "<html><head><title>x</title></head><body><br/><p/>x<img>y</img></body></html>",
            "<html>\n<head>\n<meta http-equiv=\"Content-Type\" content=\"text/html; \
                charset=UTF-8\">\n<title>x</title>\n</head>\n\
                <body>\n<br><p></p>x<img>\n</body>\n</html>\n",
        ),
        (
            "method=html",
            "<div><p>x</p><ul><li>x</li><li/></ul>text<div>x</div><div/>text</div>",
            "<div>\n<p>x</p>\n<ul>\n<li>x</li>\n<li>\n</ul>text<div>x</div>\n\
                <div></div>text</div>\n",
        ),
        ("method=html", "<div><p/></div>", "<div><p></p></div>\n"),
        ("method=html", "<p><div/><hr/><b/></p>", "<p><div></div><hr><b></b></p>\n"),
        (
            "method=html",
            "<div><!--c--><div/><?x y?></div>",
            "<div>\n<!--c--><div></div>\n<?x y>\n</div>\n",
        ),
        ("method=html|indent=no", "<ul><li/><li>x</li></ul>", "<ul><li><li>x</li></ul>\n"),
        (
            "method=html",
            "<div xmlns=\"u\"><br/><p/></div>",
            "<div xmlns=\"u\"><br></br><p></p></div>\n",
        ),
        (
            "method=html|encoding=us-ascii",
            "<p>&lt;&amp;é<script>&lt;&amp;é</script><STYLE>&gt;<b>&gt;</b></STYLE><?raw <?></p>",
            "<p>&lt;&amp;&#233;<script><&&#233;</script><STYLE>><b>&gt;</b>\n</STYLE><</p>\n",
        ),
        ("method=html", "x<p/>", "x<p></p>\n"),
    ]);
}

#[test]
fn html_attributes() {
    for (attribute, want) in [
        ("t=\"&lt;>&amp;'&#10;&#13;é\"", "t=\"&lt;&gt;&amp;'\n\ré\""),
        ("t='\"'", "t='\"'"),
        ("t=\"&quot;&apos;\"", "t=\"&quot;'\""),
        ("t=\"\"", "t=\"\""),
        ("t=\"&amp;{x&amp;}&amp;{\"", "t=\"&{x&}&amp;{\""),
        ("t=\"&lt;!--x&lt;-->&lt;!--\"", "t=\"<!--x<-->&lt;!--\""),
        ("checked=\"x\"", "checked"),
        ("NoWrap=\"\"", "NoWrap"),
        ("hidden=\"\"", "hidden=\"\""),
        ("href=\" é x&amp;y%20#$[&quot;\"", "href=\"%C3%A9%20x&amp;y%20#%24%5B%22\""),
        ("SRC=\"a{b}\"", "SRC=\"a%7Bb%7D\""),
        ("action=\"&#x2003;\"", "action=\"%E2%80%83\""),
        ("name=\"a b\"", "name=\"a%20b\""),
        ("id=\"a b\"", "id=\"a b\""),
        ("x:href=\"a b\" xmlns:x=\"u\"", "xmlns:x=\"u\" x:href=\"a b\""),
    ] {
        let got = written("method=html", &format!("<a {attribute}/>"));
        assert_eq!(got, format!("<a {want}></a>\n"), "{attribute}");
    }
    check(&[
        ("method=html", "<p name=\"a b\"/>", "<p name=\"a b\"></p>\n"),
        ("method=html", "<a xmlns=\"u\" href=\"a b\"/>", "<a xmlns=\"u\" href=\"a b\"></a>\n"),
    ]);
}

#[test]
fn the_meta_of_html() {
    let meta = "<meta http-equiv=\"Content-Type\" content=\"text/html; charset=utf-8\">";
    for (inside, want) in [
        ("<html><head/></html>", format!("<html><head>{meta}</head></html>")),
        ("<html><HEAD>x</HEAD></html>", format!("<html><HEAD>{meta}x</HEAD></html>")),
        ("<head/>", format!("<head>{meta}</head>")),
        (
            "<x/><html><head/><head/></html>",
            format!("<x></x><html><head>{meta}</head><head></head></html>"),
        ),
        ("<html><x><head/></x></html>", "<html><x><head></head></x></html>".to_owned()),
        ("<html><meta name=\"a\"/></html>", format!("<html>{meta}<meta name=\"a\"></html>")),
        (
            "<html><head><title/><meta content=\"a\" http-equiv=\"content-type\"/></head></html>",
            "<html><head><title></title><meta content=\"text/html; charset=utf-8\" \
                http-equiv=\"content-type\"></head></html>"
                .to_owned(),
        ),
        (
            "<html><head><meta http-equiv=\"content-type\" content=\"a; Charset=UTF-8 ;b\"/>\
                </head></html>",
            "<html><head><meta http-equiv=\"content-type\" content=\"a; Charset=UTF-8 ;b\">\
                </head></html>"
                .to_owned(),
        ),
        (
            "<html><head><meta http-equiv=\"content-type\"/></head></html>",
            format!("<html><head>{meta}<meta http-equiv=\"content-type\"></head></html>"),
        ),
    ] {
        let got = written("method=html|encoding=utf-8|indent=no", inside);
        assert_eq!(got, want + "\n", "{inside}");
    }
}

#[test]
fn the_doctype_of_html() {
    for (said, want) in [
        ("method=html|doctype-public=p", " PUBLIC \"p\""),
        ("method=html|doctype-system=s|version=4.0", " SYSTEM \"s\""),
        ("method=html|doctype-system=s|doctype-public=p", " PUBLIC \"p\" \"s\""),
        ("method=html|version=3.2", " PUBLIC \"-//W3C//DTD HTML 3.2//EN\""),
        (
            "method=html|version=4.01strict",
            " PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \
                \"http://www.w3.org/TR/1999/REC-html401-19991224/strict.dtd\"",
        ),
        (
            "method=html|version=5.0",
            " PUBLIC \"-//W3C//DTD HTML 4.0 Transitional//EN\" \
                \"http://www.w3.org/TR/REC-html40/loose.dtd\"",
        ),
    ] {
        let want = format!("<!DOCTYPE html{want}>\n<HTML></HTML>\n");
        assert_eq!(written(said, "<HTML/>"), want, "{said}");
    }
    let of_root = "<!DOCTYPE HTML SYSTEM \"s\">\n<HTML></HTML>\n";
    assert_eq!(written("doctype-system=s", "<HTML/>"), of_root);
}

#[test]
fn xhtml() {
    let html = |inside: &str| format!("<html xmlns=\"{XHTML}\">{inside}</html>");
    for (inside, want) in [
        (
            html("<br/><p/><x:br xmlns:x=\"u\"/><BR/>"),
            html("<br /><p></p><x:br xmlns:x=\"u\"></x:br><BR></BR>"),
        ),
        ("<html><br/></html>".to_owned(), html("<br />")),
        (html("<input checked=\"\" t=\"\"/>"), html("<input checked=\"checked\" t=\"\" />")),
        (
            html("<a name=\"x\"/><b name=\"x\"/>"),
            html("<a name=\"x\" id=\"x\"></a><b name=\"x\"></b>"),
        ),
        (
            html("<p lang=\"e\"/><p xml:lang=\"e\"/>"),
            html("<p lang=\"e\" xml:lang=\"e\"></p><p xml:lang=\"e\" lang=\"e\"></p>"),
        ),
        (html("<script>&lt;</script>"), html("<script>&lt;</script>")),
        (
            html("<head/>"),
            html(
                "<head><meta http-equiv=\"Content-Type\" \
            content=\"text/html; charset=utf-8\" /></head>",
            ),
        ),
        (
            html("<head><meta http-equiv=\"content-type\"/></head>"),
            html("<head><meta http-equiv=\"content-type\" /></head>"),
        ),
    ] {
        let got = written(&format!("{XHTML_SAID}|method=xml"), &inside);
        assert_eq!(got, format!("{XHTML_TOP}{want}\n"), "{inside}");
    }
    let got = written(&format!("{XHTML_SAID}|indent=yes"), &html("<head/>"));
    let want = html(
        "\n  <head>\n    <meta http-equiv=\"Content-Type\" content=\"text/html; \
            charset=utf-8\" />\n</head>\n",
    );
    assert_eq!(got, format!("{XHTML_TOP}{want}\n"));
    let got = written(&format!("{XHTML_SAID}|indent=yes"), &html("<!--c--><p><b/></p>"));
    let want = html("\n<!--c-->\n  <p>\n    <b></b>\n  </p>\n");
    assert_eq!(got, format!("{XHTML_TOP}{want}\n"));
}

#[test]
fn text() {
    check(&[
        ("method=text", "<a>&lt;é<b>x</b><!--c--><?raw &amp;?>\n</a>&#13;", "<éx&amp;\n\r"),
        ("method=text|encoding=iso-8859-1", "<a>é€</a>", "é&#8364;"),
    ]);
}

#[test]
fn bounds() {
    let atoms = Atoms::default();
    let doc = doc_of(&atoms, &("<a>".repeat(200) + &"</a>".repeat(200)));
    for method in [Method::Xml, Method::Html, Method::Text] {
        let output = Output {
            method: Some(method),
            omit_xml_declaration: Some(true),
            indent: Some(false),
            ..Output::default()
        };
        let len = write(&output, &atoms, &doc, MAX).unwrap().len();
        assert!(write(&output, &atoms, &doc, len).is_ok(), "{method:?}");
        if len > 0 {
            assert!(write(&output, &atoms, &doc, len - 1).is_err(), "{method:?}");
        }
    }
    let output = Output { encoding: Some("utf-7".to_owned()), ..Output::default() };
    assert!(write(&output, &atoms, &doc, MAX).is_err());
}
