//! The functions as stylesheets call them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::tests::{Folder, made, run, stylesheet};
use crate::{Bounds, Parsing};

const DOC: &str = "<r><n>1</n><n>5</n><n>-3</n><n>5</n><x>abc</x><n2>2</n2><n2>2</n2>\
                   <a id='q'>z</a><a>y</a><a>z</a><d>P1D</d><d>PT5H</d></r>";

/// The stylesheet whose template has this body.
fn tops(body: &str) -> String {
    format!(
        "<xsl:variable name='t'><b>1</b><c>2</c></xsl:variable>\
         <xsl:param name='given' select='7'/>\
         <f:function xmlns:f='http://exslt.org/functions' xmlns:own='urn:own' name='own:twice'>\
         <xsl:param name='of'/><f:result select='2 * $of'/></f:function>\
         <xsl:template match='/' xmlns:e='http://exslt.org/common' xmlns:own='urn:own' \
         xmlns:s='http://exslt.org/strings' xmlns:m='http://exslt.org/math' \
         xmlns:set='http://exslt.org/sets' xmlns:d='http://exslt.org/dates-and-times' \
         xmlns:dyn='http://exslt.org/dynamic' xmlns:sx='http://icl.com/saxon' \
         xmlns:l='http://xmlsoft.org/XSLT/namespace' xmlns:xt='http://www.jclark.com/xt'>\
         <xsl:element name='o'>{body}</xsl:element></xsl:template>"
    )
}

fn value_of(expression: &str, document: &str) -> Result<String, String> {
    let expression = expression.replace('<', "&lt;").replace('"', "&quot;");
    let made = made(&tops(&format!("<xsl:value-of select=\"{expression}\"/>")), document)?;
    let made = made.trim_start_matches("<o>").trim_end_matches("</o>");
    Ok(if made == "<o/>" { String::new() } else { made.to_owned() })
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (expression, want) in cases {
        assert_eq!(value_of(expression, DOC).as_deref(), Ok(*want), "{expression}");
    }
}

/// Where nodes are needed, other values are an error.
#[track_caller]
fn check_errors(expressions: &[&str]) {
    for expression in expressions {
        let got = value_of(expression, DOC);
        assert!(got.as_ref().is_err_and(|e| e.contains("node")), "{expression}: {got:?}");
    }
}

#[test]
fn common() {
    check(&[
        ("e:object-type(/)", "node-set"),
        ("e:object-type($t)", "RTF"),
        ("e:object-type(1)", "number"),
        ("e:object-type('a')", "string"),
        ("e:object-type(true())", "boolean"),
        ("count(e:node-set($t)/*)", "2"),
        ("count(e:node-set(//n))", "4"),
        ("count(e:node-set('abc')/self::text())", "1"),
        ("e:node-set(1.5)", "1.5"),
        ("count(e:node-set(''))", "1"),
        ("count(l:node-set($t)/*)", "2"),
        ("count(sx:node-set(//n))", "4"),
        ("count(xt:node-set($t)/b)", "1"),
        ("function-available('e:node-set')", "true"),
        ("function-available('e:nodes')", "false"),
    ]);
    check_errors(&["l:node-set('a')"]);
}

#[test]
fn strings() {
    check(&[
        ("count(s:tokenize('a b  c'))", "3"),
        ("name(s:tokenize('a b', ' ')[2]/preceding-sibling::*)", "token"),
        ("s:tokenize('2001-06-03T11:40:23', '-T:')[4]", "11"),
        ("count(s:split('a, b', ', ')/../*)", "2"),
        ("count(s:tokenize('', 'x'))", "0"),
        ("s:concat(//n)", "15-35"),
        ("s:concat($t)", "12"),
        ("s:concat(/none)", ""),
        ("s:padding(3)", "   "),
        ("string-length(s:padding(1000000000, 'ab'))", "100000"),
        ("s:align('abc', '-----', 'right')", "--abc"),
        ("s:encode-uri('a b/é', true())", "a%20b%2F%C3%A9"),
        ("s:encode-uri('a b/é', false(), 'utf-8')", "a%20b/%C3%A9"),
        ("s:encode-uri('a', false(), 'ISO-8859-1')", ""),
        ("s:decode-uri('a%20b%C3%A9')", "a bé"),
        ("s:decode-uri('a', 'x')", ""),
        ("s:replace('abcabc', 'b', 'X')", "aXcaXc"),
        ("s:replace('abcabc', '', 'X')", "aXbXcXaXbXc"),
        ("s:replace('abc', 'b', '')", "ac"),
        ("s:replace('', 'b', 'c')", ""),
        ("count(s:replace('', 'b', 'c'))", "1"),
        ("s:replace('aaa', 'aa', 'b')", "ba"),
        ("s:replace('x12y', $t, 'b')", "xby"),
        ("s:replace('abc', 'b', //n)", "a1c"),
        ("s:replace('a1b', 1, 2)", "a2b"),
        ("s:replace('abc', /none, 'X')", "abc"),
        ("s:replace('1-5-3-2', //n, //n2)", "2-2-2"),
        ("s:replace('1-5-3-2-abc', //n | //x, 'X')", "X--2-"),
        ("s:replace('abcd', s:split('ab abc b'), s:split('1 2 3'))", "2d"),
        ("s:replace('éà', s:split('à x'), s:split('a b'))", "éa"),
    ]);
    check_errors(&["s:concat('a')"]);
}

#[test]
fn math_and_sets() {
    check(&[
        ("m:min(//n)", "-3"),
        ("m:max(//n)", "5"),
        ("m:max($t)", "12"),
        ("m:min(/none)", "NaN"),
        ("m:max(//n | //x)", "NaN"),
        ("count(m:highest(//n))", "2"),
        ("m:lowest(//n)", "-3"),
        ("count(m:lowest(//n | //x))", "0"),
        ("m:abs('-2')", "2"),
        ("m:sqrt(9)", "3"),
        ("m:power(2, 10)", "1024"),
        ("m:constant('PI', 5)", "3.141"),
        ("m:log(0)", "-Infinity"),
        ("m:exp(0)", "1"),
        ("m:sin(0)", "0"),
        ("m:atan2(0, 1)", "0"),
        ("m:random() < 1", "true"),
        ("count(set:difference(//n | //n2, //n))", "2"),
        ("count(set:intersection(//*, //n2 | //x))", "3"),
        ("count(set:distinct(//n))", "3"),
        ("s:concat(set:distinct(//a))", "zy"),
        ("set:has-same-node(//*, //n2)", "true"),
        ("set:has-same-node(//n, //n2)", "false"),
        ("s:concat(set:leading(//n, //n[3]))", "15"),
        ("s:concat(set:trailing(//n, //n[3]))", "5"),
        ("count(set:leading(//n, /none))", "4"),
    ]);
    check_errors(&["m:min(1)", "m:highest('a')", "set:distinct('a')", "set:leading(//n, 1)"]);
}

#[test]
fn dates() {
    check(&[
        ("string-length(d:date-time())", "20"),
        ("concat(string-length(d:date()), ' ', string-length(d:time()))", "10 8"),
        ("d:year() = substring(d:date(), 1, 4)", "true"),
        ("d:seconds() > 1700000000", "true"),
        ("starts-with(d:duration(), 'P')", "true"),
        ("d:year('-0001-10-29')", "-1"),
        ("d:leap-year('2000')", "true"),
        ("d:leap-year('x')", "NaN"),
        ("d:month-in-year('--10-29')", "10"),
        ("d:month-in-year('2001')", "NaN"),
        ("d:month-name('2001-10')", "October"),
        ("d:month-abbreviation('2001-09-29')", "Sep"),
        ("d:week-in-year('2001-10-29')", "44"),
        ("d:week-in-month('2001-10-29')", "5"),
        ("d:day-in-year('2001-10-29')", "302"),
        ("d:day-in-month('---29')", "29"),
        ("d:day-of-week-in-month('2001-10-29')", "5"),
        ("d:day-in-week('2001-10-28')", "1"),
        ("d:day-in-week('2001-10-29')", "2"),
        ("d:day-name('2001-10-29')", "Monday"),
        ("d:day-abbreviation('2001-10')", ""),
        ("d:hour-in-day('2001-10-29T10:31:07.25')", "10"),
        ("d:minute-in-hour('10:31:07')", "31"),
        ("d:second-in-minute('10:31:07.25')", "7.25"),
        ("d:hour-in-day('2001-10-29')", "NaN"),
        ("d:seconds('1970-01-02')", "86400"),
        ("d:duration(90061.5)", "P1DT1H1M1.5S"),
        ("d:add('2001-10-29', 'P1D')", "2001-10-30"),
        ("d:add-duration('P1D', '-PT1H')", "PT23H"),
        ("d:difference('2001', '2005')", "P4Y"),
        ("d:sum(//d)", "P1DT5H"),
        ("d:sum(//d | //x)", ""),
    ]);
    check_errors(&["d:sum('P1D')"]);
}

#[test]
fn expressions_of_texts() {
    check(&[
        ("dyn:evaluate('1 + 2')", "3"),
        ("count(dyn:evaluate('//n'))", "4"),
        ("dyn:evaluate(//n)", "1"),
        ("dyn:evaluate('m:abs(-3)')", "3"),
        ("dyn:evaluate('$given')", "7"),
        ("dyn:evaluate('own:twice(4)')", "8"),
        ("dyn:evaluate(\"dyn:evaluate('7')\")", "7"),
        ("count(dyn:evaluate('1 +'))", "0"),
        ("count(dyn:evaluate('nobody:abs(1)'))", "0"),
        ("count(dyn:evaluate(''))", "0"),
        ("s:concat(dyn:map(//n, '. * 2'))", "210-610"),
        ("s:concat(dyn:map(//n, 'position() = last()'))", "true"),
        ("name(dyn:map(//n, '\"a\"'))", "exsl:string"),
        ("namespace-uri(dyn:map(//n, '1'))", "http://exslt.org/common"),
        ("count(dyn:map(//n, '. | ../n2'))", "6"),
        ("count(dyn:map($t, '*'))", "2"),
        ("count(dyn:map((//n)[1] | //x | //a, '//n | .'))", "8"),
        ("count(dyn:map(//n, '1 +'))", "0"),
        ("count(dyn:map(/none, '1'))", "0"),
        ("sx:evaluate('//n[2]')", "5"),
        ("sx:eval(sx:expression('1 + 2'))", "3"),
    ]);
    for expression in ["dyn:evaluate('$nobody')", "sx:evaluate('1 +')", "sx:expression('')"] {
        assert!(value_of(expression, DOC).is_err(), "{expression}");
    }
    check_errors(&["dyn:map('a', '1')"]);
}

#[test]
fn the_same_nodes_many_times() {
    let document = format!("<r>{}</r>", "<i/>".repeat(500));
    let got = value_of("count(dyn:map(//i, '//i'))", &document);
    assert_eq!(got.as_deref(), Ok("500"));
}

#[test]
fn what_is_no_expression_is_said() {
    let sheet = stylesheet(&tops("<xsl:value-of select=\"dyn:evaluate('1 +')\"/>"));
    let folder = Folder::with(&[("a.xsl", &sheet)]);
    let done = run(&folder.sheet("a.xsl").unwrap(), DOC, Vec::new()).unwrap();
    assert_eq!(done.messages.len(), 1);
    assert!(done.messages[0].contains("1 +"), "{:?}", done.messages);
}

#[test]
fn evaluation_without_an_end() {
    let again = "dyn:evaluate(string(/r))";
    assert!(value_of(again, &format!("<r>{again}</r>")).is_err());
    // Each level is as deep as expressions may be.
    let deep = format!("{}{again}{}", "1 + (".repeat(90), ")".repeat(90));
    assert!(value_of(again, &format!("<r>{deep}</r>")).is_err());
}

/// Runs an expression with this much memory.
fn bounded(expression: &str, document: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
    let sheet = stylesheet(&tops(&format!("<xsl:value-of select=\"{expression}\"/>")));
    let folder = Folder::with(&[("a.xsl", &sheet)]);
    let sheet = folder.sheet("a.xsl").unwrap();
    let parsing = Parsing { entities: None, external_entities: false, bytes_max: 1 << 30 };
    let is_cancelled = AtomicBool::new(false);
    is_cancelled.store(bytes_max == 0, Ordering::Relaxed);
    let bounds = Bounds { bytes_max: bytes_max.max(1 << 20), is_cancelled: &is_cancelled };
    let done =
        crate::tests::transform(document.as_bytes(), &parsing, &[(&sheet, Vec::new())], &bounds);
    done.map(|done| done.body).map_err(|e| e.message)
}

#[test]
fn bounds() {
    let document = format!("<r>{}</r>", "a".repeat(100_000));
    for (expression, bytes_max) in [
        // Elements and texts of each character.
        ("count(s:tokenize(/r, ''))", 4 << 20),
        ("count(s:split(/r, ''))", 4 << 20),
        // 100,000 texts of 100,000 characters, and of as many nodes.
        ("string-length(s:replace(/r, 'a', /r))", 64 << 20),
        ("string-length(s:replace(/r, s:split('a b'), s:tokenize(/r)))", 64 << 20),
        // Given up.
        ("count(s:tokenize(/r, ''))", 0),
        ("string-length(s:replace(/r, s:split('ab ac'), 'b'))", 0),
    ] {
        let got = bounded(expression, &document, bytes_max);
        let wanted = if bytes_max == 0 { "given up" } else { "memory" };
        assert!(got.as_ref().is_err_and(|e| e.contains(wanted)), "{expression}: {got:?}");
    }
}
