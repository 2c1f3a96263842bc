//! Stylesheets, good and bad ones.

use crate::Parameter;
use crate::tests::{Folder, made, parameter, run, stylesheet};

fn text(done: Result<crate::Transformed, crate::Error>) -> String {
    String::from_utf8(done.unwrap().body).unwrap().trim_end().to_owned()
}

#[test]
fn includes_and_imports() {
    let main = stylesheet(
        r#"<xsl:import href="base.xsl"/><xsl:include href="more.xsl"/>
        <xsl:template match="a">[<xsl:apply-imports/>]</xsl:template>"#,
    );
    let base = stylesheet(
        r#"<xsl:variable name="v" select="'base'"/>
        <xsl:template match="/"><o v="{$v}"><xsl:apply-templates/></o></xsl:template>
        <xsl:template match="a" priority="5">base</xsl:template>"#,
    );
    let more = stylesheet(r#"<xsl:variable name="v" select="'more'"/>"#);
    let files = [("main.xsl", &*main), ("base.xsl", &base), ("more.xsl", &more)];
    let folder = Folder::with(&files);
    let sheet = folder.sheet("main.xsl").unwrap();
    assert_eq!(text(run(&sheet, "<a/>", Vec::new())), r#"<o v="more">[base]</o>"#);
}

#[test]
fn errors_name_their_place() {
    let broken = stylesheet("\n<xsl:template match='/'>\n<xsl:if test='1 +'/></xsl:template>");
    let includes = stylesheet("\n<xsl:include href='broken.xsl'/>");
    let circle = stylesheet("<xsl:include href='circle.xsl'/>");
    let missing = stylesheet("\n\n<xsl:import href='nothing.xsl'/>");
    let folder = Folder::with(&[
        ("broken.xsl", &*broken),
        ("includes.xsl", &includes),
        ("circle.xsl", &circle),
        ("missing.xsl", &missing),
        ("other.xsl", "<html/>"),
        ("bad.xsl", "<xsl:stylesheet>"),
    ]);
    for (file, place, want) in [
        ("broken.xsl", Some(("broken.xsl", 4)), "\"1 +\" is no expression"),
        ("includes.xsl", Some(("broken.xsl", 4)), "\"1 +\" is no expression"),
        ("circle.xsl", Some(("circle.xsl", 2)), "includes or imports itself"),
        ("missing.xsl", Some(("missing.xsl", 4)), "open() "),
        ("other.xsl", Some(("other.xsl", 1)), "no stylesheet"),
        ("none.xsl", None, "open() "),
        (".", None, "no regular file"),
    ] {
        let e = folder.sheet(file).unwrap_err();
        assert!(e.message.contains(want), "{file}: {e}");
        let found = e.place.as_ref().map(|(file, line)| (file.rsplit('/').next().unwrap(), *line));
        assert_eq!(found, place, "{file}: {e}");
    }
    assert!(folder.sheet("bad.xsl").is_err());
}

#[test]
fn what_is_refused() {
    for (tops, want) in [
        ("<xsl:template/>", "neither \"match\" nor \"name\""),
        ("<xsl:template match='a/..'/>", "no pattern"),
        ("<xsl:template match='a' priority='high'/>", "no priority"),
        ("<xsl:template name='a b'/>", "no name"),
        ("<xsl:template name='a'/><xsl:template name='a'/>", "a second template"),
        ("<xsl:variable name='a'/><xsl:param name='a'/>", "a second variable"),
        ("<xsl:nonsense/>", "xsl:nonsense stands where it may not"),
        ("<xsl:output method='pdf'/>", "unknown output method \"pdf\""),
        ("<xsl:output encoding='klingon'/>", "klingon"),
        ("<xsl:output indent='maybe'/>", "\"yes\" or \"no\""),
        ("<xsl:decimal-format decimal-separator=',,'/>", "one character"),
        ("<xsl:template match='/'><xsl:value-of/></xsl:template>", "\"select\" is missing"),
        ("<xsl:template match='/'><a b='{'/></xsl:template>", "brace"),
        ("<xsl:template match='/'><xsl:choose><a/></xsl:choose></xsl:template>", "xsl:choose"),
        ("<xsl:template match='/'><xsl:document href='x'/></xsl:template>", "write no files"),
        (
            "<xsl:template match='/'><e:document xmlns:e='http://exslt.org/common' href='x'/>\
             </xsl:template>",
            "write no files",
        ),
        ("<xsl:attribute-set name='s'>text</xsl:attribute-set>", "xsl:attribute-set has"),
        ("<xsl:strip-space/>", "\"elements\" is missing"),
        ("<xsl:key name='k' match='a'/>", "\"use\" is missing"),
    ] {
        let e = made(tops, "<r/>").unwrap_err();
        assert!(e.contains(want), "{tops}: {e}");
    }
}

#[test]
fn parameters_are_expressions_or_texts() {
    let sheet = stylesheet(
        r#"<xsl:param name="a" select="'none'"/><xsl:param name="b"/><xsl:variable name="c">c</xsl:variable>
        <xsl:template match="/"><o a="{$a}" b="{$b}" c="{$c}"/></xsl:template>"#,
    );
    let folder = Folder::with(&[("a.xsl", &sheet)]);
    let sheet = folder.sheet("a.xsl").unwrap();
    let told = |name: &str, value: &str| Parameter { is_text: true, ..parameter(name, value) };
    for (parameters, want) in [
        (vec![], r#"<o a="none" b="" c="c"/>"#),
        (vec![parameter("a", "/r/x + 1"), parameter("b", "'t'")], r#"<o a="2" b="t" c="c"/>"#),
        (
            vec![told("a", "/r/x"), told("b", "it's \"so\"")],
            r#"<o a="/r/x" b="it's &quot;so&quot;" c="c"/>"#,
        ),
        // Variables are not parameters, and unknown parameters are nobody's.
        (vec![told("c", "x"), told("d", "x")], r#"<o a="none" b="" c="c"/>"#),
    ] {
        assert_eq!(text(run(&sheet, "<r><x>1</x></r>", parameters)), want);
    }
    let e = run(&sheet, "<r/>", vec![parameter("a", "1 +")]).unwrap_err();
    assert!(e.message.contains("parameter \"a\""), "{e}");
}

#[test]
fn a_literal_element_is_a_stylesheet() {
    let text_of = r#"<o xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:value-of select="/r"/></o>"#;
    let folder = Folder::with(&[("a.xsl", text_of)]);
    let done = text(run(&folder.sheet("a.xsl").unwrap(), "<r>x</r>", Vec::new()));
    assert!(done.ends_with("<o>x</o>"), "{done}");
}

#[test]
fn stylesheets_have_entities_of_files() {
    let tops = stylesheet("<xsl:template match='/'><o>&own;&shared;</o></xsl:template>");
    let sheet = |subset: &str| format!("<!DOCTYPE xsl:stylesheet {subset}>{tops}");
    let inner = "SYSTEM 'shared.dtd' [<!ENTITY own 'own'>]";
    let (good, broken) = (sheet(inner), sheet(&inner.replace("shared.dtd", "broken.dtd")));
    let folder = Folder::with(&[
        ("good.xsl", &*good),
        ("broken.xsl", &broken),
        ("shared.dtd", "<!ENTITY own 'not this'><!ENTITY shared ' shared'>"),
        ("broken.dtd", "<!ENTITY"),
    ]);
    let done = run(&folder.sheet("good.xsl").unwrap(), "<r/>", Vec::new());
    assert_eq!(text(done), "<o>own shared</o>");
    let e = folder.sheet("broken.xsl").unwrap_err();
    assert!(e.message.contains("broken.dtd"), "{e}");
    // That of a document is left alone.
    let document = "<!DOCTYPE r SYSTEM 'shared.dtd'><r>&shared;</r>";
    assert_eq!(
        text(run(&folder.sheet("good.xsl").unwrap(), document, Vec::new())),
        "<o>own shared</o>"
    );
    let document = "<!DOCTYPE r [<!ENTITY e SYSTEM '/etc/hostname'>]><r>&e;&e;</r>";
    let done = run(&folder.sheet("good.xsl").unwrap(), document, Vec::new()).unwrap();
    let note = "external entity \"/etc/hostname\" is not read (xml_external_entities)";
    assert_eq!(done.messages, [note]);
}

#[test]
fn white_space_is_stripped_where_it_is_said() {
    let tops = "<xsl:strip-space elements='*'/><xsl:preserve-space elements='keep'/>\
                <xsl:template match='/'><o><xsl:copy-of select='.'/></o></xsl:template>";
    let doc = "<r> <keep> </keep> <a xml:space='preserve'> <b> </b></a> t </r>";
    let want = "<o><r><keep> </keep><a xml:space=\"preserve\"> <b> </b></a> t </r></o>";
    assert_eq!(made(tops, doc), Ok(want.to_owned()));
}
