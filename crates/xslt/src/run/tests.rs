//! Instructions, and the bounds of a run.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::tests::{Folder, made, run, stylesheet, transform};
use crate::{Bounds, Parsing};

const DOC: &str = "<r><i k='b' n='10'>x</i><i k='a' n='9'>y</i><i k='b' n='1'>z</i></r>";

/// Compares the results of instructions in the root's template.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (body, want) in cases {
        let template = format!("<xsl:template match='/'><o>{body}</o></xsl:template>");
        let want = format!("<o>{want}</o>").replace("<o></o>", "<o/>");
        assert_eq!(made(&template, DOC), Ok(want), "{body}");
    }
}

#[test]
fn instructions() {
    let sort = "<xsl:for-each select='//i'><xsl:sort select='@n'";
    let end = "<xsl:value-of select='@n'/>,</xsl:for-each>";
    check(&[
        (&format!("{sort}/>{end}"), "1,10,9,"),
        (&format!("{sort} data-type='number' order='descending'/>{end}"), "10,9,1,"),
        (
            "<xsl:for-each select='//i'><xsl:sort select='@k'/>\
             <xsl:sort select='@n' data-type='number'/>\
             <xsl:value-of select='concat(position(), .)'/></xsl:for-each>",
            "1y2z3x",
        ),
        (
            "<xsl:choose><xsl:when test='//none'>a</xsl:when><xsl:when test='//i'>b</xsl:when>\
             <xsl:otherwise>c</xsl:otherwise></xsl:choose>",
            "b",
        ),
        ("<xsl:if test='//none'>a</xsl:if><xsl:if test='//i'>b</xsl:if>", "b"),
        (
            "<xsl:element name='e{1 + 1}'><xsl:attribute name='a'>v</xsl:attribute>t</xsl:element>",
            "<e2 a=\"v\">t</e2>",
        ),
        (
            "<e a='0'><xsl:attribute name='a'>1</xsl:attribute>\
             <xsl:attribute name='a'>2</xsl:attribute></e>",
            "<e a=\"2\"/>",
        ),
        ("<e>t<xsl:attribute name='a'>late</xsl:attribute></e>", "<e>t</e>"),
        ("<xsl:element name='p:e' namespace='urn:p'/>", "<p:e xmlns:p=\"urn:p\"/>"),
        (
            "<e><xsl:attribute name='a' namespace='urn:p'>v</xsl:attribute></e>",
            "<e xmlns:ns_1=\"urn:p\" ns_1:a=\"v\"/>",
        ),
        ("<xsl:comment>a--b-</xsl:comment>", "<!--a- -b- -->"),
        ("<xsl:processing-instruction name='p'>a?>b</xsl:processing-instruction>", "<?p a? >b?>"),
        ("<xsl:copy-of select='//i[2]'/>", "<i k=\"a\" n=\"9\">y</i>"),
        (
            "<xsl:variable name='t'><b>1</b><b>2</b></xsl:variable><xsl:copy-of select='$t'/>\
             <xsl:value-of select='$t'/>",
            "<b>1</b><b>2</b>12",
        ),
        ("<a x='{{{//i[1]}}}'/>", "<a x=\"{x}\"/>"),
        (
            "<xsl:for-each select='//i'><xsl:number/>.<xsl:number value='position() * 2'/>,\
             </xsl:for-each>",
            "1.2,2.4,3.6,",
        ),
        ("<xsl:message>said</xsl:message>", ""),
        ("<xsl:value-of select=\"format-number(1234.5, '#,##0.00')\"/>", "1,234.50"),
    ]);
}

#[test]
fn templates() {
    for (tops, want) in [
        // Priorities, and the last one of the same.
        (
            "<xsl:template match='/'><o><xsl:apply-templates select='//i'/></o></xsl:template>\
             <xsl:template match='i'>a</xsl:template><xsl:template match='*'>b</xsl:template>\
             <xsl:template match='i[@k=\"a\"]'>c</xsl:template>\
             <xsl:template match='i[3]'>d</xsl:template>",
            "<o>acd</o>",
        ),
        // Modes, parameters, the built-in rules.
        (
            "<xsl:template match='r'><o><xsl:apply-templates select='i[1]' mode='m'>\
             <xsl:with-param name='p' select='5'/></xsl:apply-templates>\
             <xsl:apply-templates/></o></xsl:template>\
             <xsl:template match='i' mode='m'><xsl:param name='p'/><xsl:param name='q' select='$p+1'/>\
             <xsl:value-of select='concat($p, $q)'/>-</xsl:template>",
            "<o>56-xyz</o>",
        ),
        // A call keeps the current node; its variables are its own.
        (
            "<xsl:template match='r'><o><xsl:variable name='v' select='1'/>\
             <xsl:call-template name='t'/><xsl:value-of select='$v'/></o></xsl:template>\
             <xsl:template name='t'><xsl:variable name='v' select='count(i)'/>\
             <xsl:value-of select='$v'/>,</xsl:template>",
            "<o>3,1</o>",
        ),
        // Keys, and grouping with them.
        (
            "<xsl:key name='k' match='i' use='@k'/><xsl:template match='r'><o>\
             <xsl:for-each select='i[generate-id() = generate-id(key(\"k\", @k)[1])]'>\
             <g k='{@k}'><xsl:value-of select='count(key(\"k\", @k))'/></g></xsl:for-each></o>\
             </xsl:template>",
            "<o><g k=\"b\">2</g><g k=\"a\">1</g></o>",
        ),
        // Attribute sets: those used first, then their own, then the element's.
        (
            "<xsl:attribute-set name='s' use-attribute-sets='u'><xsl:attribute name='a'>s\
             </xsl:attribute></xsl:attribute-set><xsl:attribute-set name='u'>\
             <xsl:attribute name='a'>u</xsl:attribute><xsl:attribute name='b'>u</xsl:attribute>\
             </xsl:attribute-set><xsl:template match='/'>\
             <o xsl:use-attribute-sets='s' c='o'/></xsl:template>",
            "<o a=\"s\" b=\"u\" c=\"o\"/>",
        ),
        // Functions of the stylesheet.
        (
            "<func:function xmlns:func='http://exslt.org/functions' name='m:f' xmlns:m='urn:m'>\
             <xsl:param name='n'/><xsl:choose><xsl:when test='$n &lt; 2'><func:result select='1'/>\
             </xsl:when><xsl:otherwise><func:result select='$n * m:f($n - 1)'/></xsl:otherwise>\
             </xsl:choose></func:function><xsl:template match='/'><o xmlns:m='urn:m'>\
             <xsl:value-of select='m:f(5)'/></o></xsl:template>",
            "<o xmlns:m=\"urn:m\">120</o>",
        ),
        // Excluded and aliased namespaces.
        (
            "<xsl:namespace-alias stylesheet-prefix='x' result-prefix='xsl' xmlns:x='urn:x'/>\
             <xsl:template match='/'><x:o xmlns:x='urn:x' xmlns:y='urn:y' \
             xsl:exclude-result-prefixes='y'/></xsl:template>",
            "<x:o xmlns:x=\"http://www.w3.org/1999/XSL/Transform\"/>",
        ),
        // What a later version has is skipped for its fallback.
        (
            "<xsl:template match='/'><o><xsl:later xsl:version='2.0'><xsl:fallback>f</xsl:fallback>\
             </xsl:later></o></xsl:template>",
            "<o>f</o>",
        ),
    ] {
        assert_eq!(made(tops, DOC), Ok(want.to_owned()), "{tops}");
    }
}

#[test]
fn globals_are_evaluated_when_they_are_asked_for() {
    let tops = "<xsl:variable name='a' select='$b + 1'/><xsl:variable name='b' select='count(//i)'/>\
                <xsl:template match='/'><o><xsl:value-of select='$a'/></o></xsl:template>";
    assert_eq!(made(tops, DOC), Ok("<o>4</o>".to_owned()));
    let circle = tops.replace("count(//i)", "$a");
    assert!(made(&circle, DOC).unwrap_err().contains("depends on itself"));
}

#[test]
fn other_documents_are_files_beside_the_stylesheet() {
    let sheet = stylesheet(
        "<xsl:template match='/'><o><xsl:value-of select='document(\"b.xml\")/b'/>,\
         <xsl:value-of select='count(document(\"\")//xsl:template)'/>,\
         <xsl:value-of select='count(document(\"none.xml\") | document(\"http://a/b\"))'/></o>\
         </xsl:template>",
    );
    let folder = Folder::with(&[("a.xsl", &sheet), ("b.xml", "<b>beside</b>")]);
    let done = run(&folder.sheet("a.xsl").unwrap(), "<r/>", Vec::new()).unwrap();
    assert_eq!(String::from_utf8_lossy(&done.body).trim_end(), "<o>beside,1,0</o>");
    assert_eq!(done.messages.len(), 2, "{:?}", done.messages);
    assert!(done.messages[0].contains("none.xml"), "{:?}", done.messages);
    assert!(done.messages[1].contains("http://a/b"), "{:?}", done.messages);
}

const RECURSION: &str = "<xsl:template match='/'><o><xsl:call-template name='t'>\
    <xsl:with-param name='n' select='NUMBER'/></xsl:call-template></o></xsl:template>\
    <xsl:template name='t'><xsl:param name='n'/><xsl:choose><xsl:when test='$n &gt; 0'>\
    <xsl:call-template name='t'><xsl:with-param name='n' select='$n - 1'/></xsl:call-template>\
    </xsl:when><xsl:otherwise>end</xsl:otherwise></xsl:choose></xsl:template>";

#[test]
fn recursion_is_bounded() {
    let deep = RECURSION.replace("NUMBER", "2990");
    assert_eq!(made(&deep, "<r/>"), Ok("<o>end</o>".to_owned()));
    let endless = RECURSION.replace("NUMBER", "1 div 0");
    assert!(made(&endless, "<r/>").unwrap_err().contains("too deep"));
}

#[test]
fn no_depth_exhausts_the_stack() {
    // Each level of a function is an expression that is nested itself.
    let call = format!("{}m:f($n){}", "string(concat('', ".repeat(40), "))".repeat(40));
    let tops = format!(
        "<func:function xmlns:func='http://exslt.org/functions' name='m:f' xmlns:m='urn:m'>\
         <xsl:param name='n'/><func:result select=\"{call}\"/></func:function>\
         <xsl:template match='/' xmlns:m='urn:m'><xsl:value-of select='m:f(1)'/></xsl:template>"
    );
    assert!(made(&tops, "<r/>").unwrap_err().contains("too deep"));
    // Each level of a template has bodies in bodies.
    let (open, close) = ("<xsl:for-each select='.'><xsl:if test='1'>", "</xsl:if></xsl:for-each>");
    let tops = format!(
        "<xsl:template match='/'><o>{}<xsl:call-template name='t'/>{}</o></xsl:template>\
         <xsl:template name='t'>{}<xsl:call-template name='t'/>{}</xsl:template>",
        open.repeat(50),
        close.repeat(50),
        open.repeat(50),
        close.repeat(50)
    );
    assert!(made(&tops, "<r/>").unwrap_err().contains("too deep"));
}

#[test]
fn what_is_not_wanted_any_more_ends() {
    // 10^12 rounds.
    let round = "<xsl:for-each select='//i'>";
    let tops = format!(
        "<xsl:template match='/'>{}{}</xsl:template>",
        round.repeat(12),
        "</xsl:for-each>".repeat(12)
    );
    let folder = Folder::with(&[("a.xsl", &stylesheet(&tops))]);
    let sheet = folder.sheet("a.xsl").unwrap();
    let document = format!("<r>{}</r>", "<i/>".repeat(10));
    let is_cancelled = AtomicBool::new(false);
    let bytes_max = 1 << 20;
    let parsing = Parsing { entities: None, external_entities: false, bytes_max };
    let bounds = Bounds { bytes_max, is_cancelled: &is_cancelled };
    let stages = [(&sheet, Vec::new())];
    let done = std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let run = || transform(document.as_bytes(), &parsing, &stages, &bounds);
        let thread = scope.spawn(move || {
            begin.send(()).unwrap();
            run()
        });
        begun.recv().unwrap();
        is_cancelled.store(true, Ordering::Relaxed);
        thread.join().unwrap()
    });
    assert!(done.unwrap_err().message.contains("given up"));
}

#[test]
fn memory_is_bounded() {
    // Each level has a variable with twice what the one above has.
    let tops = "<xsl:template match='/'><o><xsl:call-template name='t'>\
        <xsl:with-param name='s' select='\"0123456789\"'/></xsl:call-template></o></xsl:template>\
        <xsl:template name='t'><xsl:param name='s'/><xsl:variable name='v'><b><xsl:value-of \
        select='$s'/></b><xsl:value-of select='$s'/></xsl:variable><xsl:call-template name='t'>\
        <xsl:with-param name='s' select='string($v)'/></xsl:call-template></xsl:template>";
    let e = made(tops, "<r/>").unwrap_err();
    assert!(e.contains("more memory"), "{e}");
    let tops = tops.replace("string($v)", "concat($s, $s)");
    assert!(made(&tops, "<r/>").unwrap_err().contains("more memory"));
}

#[test]
fn messages_are_kept_for_the_log() {
    let tops = "<xsl:template match='/'><xsl:message>one <b>two</b></xsl:message>\
                <xsl:message terminate='yes'>the end</xsl:message></xsl:template>";
    assert!(made(tops, "<r/>").unwrap_err().contains("the end"));
    let sheet = stylesheet(&tops.replace("yes", "no"));
    let folder = Folder::with(&[("a.xsl", &sheet)]);
    let done = run(&folder.sheet("a.xsl").unwrap(), "<r/>", Vec::new()).unwrap();
    assert_eq!(done.messages, ["one two", "the end"]);
}
