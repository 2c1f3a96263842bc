//! Requests that have been used to make two servers disagree about where a request ends.

use super::*;

/// Refused with 400 when behind a Host field in a POST.
fn assert_refused(fields: &str, want: &str) {
    let buf = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    assert_eq!(refused(&buf), format!("400 {want}"), "{fields:?}");
}

#[test]
fn by_framing_that_contradicts_itself() {
    for (fields, want) in [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time",
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "client sent duplicate header line: \"Content-Length: 5\", \
             previous value: \"Content-Length: 5\"",
        ),
        (
            "content-length: 5\r\nCONTENT-LENGTH: 6\r\n",
            "client sent duplicate header line: \"CONTENT-LENGTH: 6\", \
             previous value: \"content-length: 5\"",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "client sent duplicate header line: \"Transfer-Encoding: identity\", \
             previous value: \"Transfer-Encoding: chunked\"",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "client sent duplicate header line: \"Transfer-Encoding: chunked\", \
             previous value: \"Transfer-Encoding: chunked\"",
        ),
        (
            "Host: b\r\n",
            "client sent duplicate host header: \"Host: b\", \
             previous value: \"Host: a\"",
        ),
    ] {
        assert_refused(fields, want);
    }
}

#[test]
fn by_lengths_that_are_no_numbers() {
    for field in [
        "Content-Length: \r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length: \u{ff15}\r\n",
    ] {
        assert_refused(field, "client sent invalid \"Content-Length\" header");
    }
}

/// Spaces, folds and control characters that one parser skips and another does not.
#[test]
fn by_odd_characters() {
    for (fields, shown) in [
        ("Content-Length : 5\r\n", "Content-Length\\x20..."),
        ("Content-Length\t: 5\r\n", "Content-Length\\x09..."),
        (" Content-Length: 5\r\n", "\\x20..."),
        ("\tContent-Length: 5\r\n", "\\x09..."),
        ("X: a\r\n Content-Length: 5\r\n", "\\x20..."),
        ("X: a\r\n\tb\r\n", "\\x09..."),
        ("Content Length: 5\r\n", "Content\\x20..."),
        ("Content-Length\0: 5\r\n", "Content-Length\\x00..."),
        ("Content-Length\x0b: 5\r\n", "Content-Length\\x0b..."),
        ("\0Content-Length: 5\r\n", "\\x00..."),
        ("\x7fA: 5\r\n", "\\x7f..."),
        (": 5\r\n", "\\x3a..."),
        ("X: a\0b\r\n", "X: a\\x00..."),
        ("X: \0\r\n", "X: \\x00..."),
        ("X: a \0\r\n", "X: a \\x00..."),
        ("X: a\rContent-Length: 5\r\n", "X: a\\x0d..."),
        ("X: a\r\rb: c\r\n", "X: a\\x0d..."),
        ("X: a\r\r\nContent-Length: 5\r\n", "X: a\\x0d..."),
        ("X\rContent-Length: 5\r\n", "X\\x0d..."),
        ("\rX: a\r\n", "\\x0d..."),
    ] {
        assert_refused(fields, &format!("client sent invalid header line: \"{shown}\""));
    }
}

#[test]
fn by_transfer_codings_and_hosts() {
    for value in [
        "",
        "gzip",
        "identity",
        "chunked, chunked",
        "gzip, chunked",
        "chunked,",
        ",chunked",
        "xchunked",
        "chunked;q=1",
        "\x0bchunked",
        "chunked\x0c",
        "chun ked",
        "\"chunked\"",
    ] {
        let buf = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {value}\r\n\r\n");
        assert!(refused(&buf).starts_with("501 client sent unknown \"Transfer-Encoding\": \""));
    }
    assert_eq!(
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "400 client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
    );
    for host in ["", ".", "a b", "a/b", "a,b:c", "[::1", "a:99999", "a..b", "[]", "[12345]", "a@b"]
    {
        let buf = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(refused(&buf), "400 client sent invalid host header", "{host:?}");
    }
    let no_host = "400 client sent HTTP/1.1 request without \"Host\" header";
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), no_host);
    assert_eq!(refused("GET http://a/ HTTP/1.1\r\n\r\n"), no_host);
}
