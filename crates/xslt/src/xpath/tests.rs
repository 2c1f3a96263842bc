//! Expressions as stylesheets see them.

use crate::tests::value;

const DOC: &str = "<r xml:lang='en-GB'><a n='1'>one<b>x</b></a><a n='2'>two<b>y</b><b>z</b></a>\
                   <c>3</c><!--note--><?pi data?><d xmlns:p='urn:p'><p:e>deep</p:e></d></r>";

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (expression, want) in cases {
        assert_eq!(value(expression, DOC), Ok((*want).to_owned()), "{expression}");
    }
}

#[test]
fn paths() {
    check(&[
        ("/r/a[2]/b[2]", "z"),
        ("//b[last()]", "x"),
        ("(//b)[last()]", "z"),
        ("count(//b[1])", "2"),
        ("count(//a/ancestor-or-self::*)", "3"),
        ("/r/c/preceding-sibling::a[1]/@n", "2"),
        ("(/r/c/preceding-sibling::a)[1]/@n", "1"),
        ("name(/r/c/following-sibling::*)", "d"),
        ("count(/r/a[1]/following::node())", "13"),
        ("count(/r/d/preceding::b)", "3"),
        ("/r/a[@n = 2]/b", "y"),
        ("/r/*[self::c]", "3"),
        ("count(/r/a/@*)", "2"),
        ("count(/r/node())", "6"),
        ("//comment()", "note"),
        ("//processing-instruction('pi')", "data"),
        ("//processing-instruction('other')", ""),
        ("name(//*[local-name() = 'e'])", "p:e"),
        ("namespace-uri(//*[local-name() = 'e'])", "urn:p"),
        ("count(//*[local-name() = 'e']/namespace::*)", "2"),
        ("count(/r/a | /r/a[1] | //b/..)", "2"),
        ("/r/a[position() = last()]/@n", "2"),
        ("/r/a[b[2]]/@n", "2"),
        ("//b[../@n='2'][2]", "z"),
        ("count(/r/a/b/../../c)", "1"),
        ("string(/r/a[1]/text())", "one"),
        ("count(/descendant-or-self::node()/b)", "3"),
        ("/", "onextwoyz3deep"),
    ]);
}

#[test]
fn operators_and_comparisons() {
    check(&[
        ("1 + 2 * 3 - 4 div 2", "5"),
        ("-7 mod 3", "-1"),
        ("7 mod -3", "1"),
        ("1 div 0", "Infinity"),
        ("0 div 0", "NaN"),
        ("--2", "2"),
        ("1 < 2 and 2 <= 2 or false()", "true"),
        ("1 < 2 < 3", "true"),
        ("//b = 'z'", "true"),
        ("//b != 'z'", "true"),
        ("//b = //c", "false"),
        ("//a/@n < //c", "true"),
        ("//c > //a/@n", "true"),
        ("//c <= //a/@n", "false"),
        ("//a/@n != //a/@n", "true"),
        ("//c != //c", "false"),
        ("//none = //none", "false"),
        ("//none != 1", "false"),
        ("//none = false()", "true"),
        ("'1.0' = 1", "true"),
        ("'a' < 'b'", "false"),
        ("true() = 'x'", "true"),
        ("true() > 0", "true"),
    ]);
}

#[test]
fn core_functions() {
    check(&[
        ("concat('a', 1, true())", "a1true"),
        ("starts-with('abc', '')", "true"),
        ("contains('abc', 'bc')", "true"),
        ("substring-before('a-b', '-')", "a"),
        ("substring-after('a-b', '')", "a-b"),
        ("substring('12345', 2, 3)", "234"),
        ("substring('12345', 1.5, 2.6)", "234"),
        ("substring('12345', 0, 3)", "12"),
        ("substring('12345', 0 div 0, 3)", ""),
        ("substring('12345', -42, 1 div 0)", "12345"),
        ("substring('12345', -1 div 0, 1 div 0)", ""),
        ("substring('añb', 2, 1)", "ñ"),
        ("string-length('añb')", "3"),
        ("normalize-space('  a \t\n b ')", "a b"),
        ("translate('bar', 'abc', 'AB')", "BAr"),
        ("translate('--aaa--', 'abc-', 'ABC')", "AAA"),
        ("sum(//a/@n)", "3"),
        ("sum(//none)", "0"),
        ("floor(-1.5)", "-2"),
        ("ceiling(1.2)", "2"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-2"),
        ("round(0.49999999999999994)", "0"),
        ("number(' 12 ')", "12"),
        ("number('x')", "NaN"),
        ("boolean('false')", "true"),
        ("not(//none)", "true"),
        ("/r/a[lang('en')]/@n", "1"),
        ("count(/r/a[lang('en-us')])", "0"),
        ("string(1 = 1)", "true"),
        ("local-name(//@n)", "n"),
        ("0.1 + 0.2", "0.3"),
        ("generate-id(//a[1]) = generate-id(//a[@n = 1])", "true"),
        ("function-available('key')", "true"),
        ("function-available('nothing')", "false"),
        ("element-available('xsl:if')", "true"),
        ("element-available('xsl:iff')", "false"),
        ("system-property('xsl:version')", "1"),
    ]);
}

#[test]
fn what_is_no_expression() {
    for text in ["", "1 +", "a[", "a]", "(a", "foo::a", "a b", "$", "concat('a')", "x:a", "@", "//"]
    {
        assert!(value(text, "<r/>").is_err(), "{text}");
    }
    let chain = format!("1{}", "+1".repeat(1001));
    assert!(value(&chain, "<r/>").unwrap_err().contains("too long"));
    let chain = format!("1{}", " or 1".repeat(10_000));
    assert!(value(&chain, "<r/>").unwrap_err().contains("tokens"));
    let nested = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    assert!(value(&nested, "<r/>").unwrap_err().contains("nested too deep"));
    let long = format!("1{}", "+1".repeat(900));
    assert_eq!(value(&long, "<r/>"), Ok("901".to_owned()));
    let long = format!("//none{}", " or //none".repeat(1900));
    assert_eq!(value(&long, "<r/>"), Ok("false".to_owned()));
}

#[test]
fn what_nobody_has_is_an_error_where_it_is_reached() {
    assert_eq!(value("function-available('x') and nothing()", "<r/>"), Ok("false".to_owned()));
    assert!(value("nothing()", "<r/>").unwrap_err().contains("unknown function nothing()"));
    assert!(value("$v", "<r/>").unwrap_err().contains("unknown variable \"$v\""));
}
