//! Differences in the treatment of an upstream's head where ours is right, or no worse.

use std::sync::atomic::{AtomicBool, Ordering};

use super::allowed::Allowed;
use super::allowed::Kind::{Is, Less};
use super::exchange::{Answer, Outcome};

/// The nginx of this run is older than 1.23.0.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// Records the output of `nginx -v`.
pub fn note_version(said: &str) {
    let version = said.split("nginx/").nth(1).unwrap_or_default();
    let mut numbers = version.split(['.', ' ', '\n']).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    IS_OLD.store(version < (1_u32, 23_u32), Ordering::Relaxed);
}

/// Whether a body is shorter than its head declares.
fn is_cut(said: &[u8]) -> bool {
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let behind =
        |end: &&[u8]| said.windows(end.len()).position(|w| w == *end).map(|at| at + end.len());
    let body = ends.iter().filter_map(behind).min().map_or(0, |at| said.len() - at);
    let text = String::from_utf8_lossy(said);
    let length = text.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
    length.and_then(|len| len.parse::<usize>().ok()).is_some_and(|len| len != body)
}

/// Whether a head has a field twice, or a length that is none, or one beside chunks.
fn is_odd(said: &[u8]) -> bool {
    let text = String::from_utf8_lossy(said).to_ascii_lowercase().replace('_', "-");
    let head = text.split("\r\n\r\n").next().and_then(|head| head.split("\n\n").next());
    let names: Vec<&str> = head
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|l| l.0)
        .collect();
    let twice = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    // Of fields that say how long to keep a response, the order counted.
    let keeping = ["expires", "cache-control", "x-accel-expires"];
    let orders = names.iter().filter(|name| keeping.contains(name)).count() > 1;
    twice
        || orders
        || length.is_some_and(|len| len.is_empty() || !len.bytes().all(|b| b.is_ascii_digit()))
}

/// All of them, the narrower first.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        reason: "fields of different names stand in another order, which means nothing (RFC 9110 \
            5.3)",
        kind: Less(
            |_| true,
            |o| o.answers.iter_mut().for_each(|a| a.fields.sort_by(|(a, _), (b, _)| a.cmp(b))),
        ),
    },
    Allowed {
        reason: "a tab beside a value is white space, and no part of it (RFC 9110 5.5)",
        kind: Less(
            |case| has(&case.said, b"X-One:\ttab\t"),
            |o| {
                for (_, value) in o.answers.iter_mut().flat_map(|a| &mut a.fields) {
                    value.retain(|c| c != '\t');
                }
            },
        ),
    },
    Allowed {
        reason: "a field that the upstream's Connection names is for us alone (RFC 9110 7.6.1)",
        kind: Less(
            |case| has(&case.said, b"Connection: X-One"),
            |o| {
                let named = |name: &str| name.eq_ignore_ascii_case("X-One");
                o.answers.iter_mut().for_each(|a| a.fields.retain(|(name, _)| !named(name)));
            },
        ),
    },
    Allowed {
        reason: "what came chunked has a length when it is served from the cache",
        kind: Less(
            |case| has(&case.bytes, b"-kept/"),
            |o| {
                for answer in o.answers.iter_mut().skip(1) {
                    answer.without("Content-Length");
                    answer.without("Transfer-Encoding");
                    // A length has ranges.
                    answer.without("Accept-Ranges");
                }
            },
        ),
    },
    Allowed {
        reason: "names are written as they are known: their letters' case means nothing (RFC 9110 \
            5.1)",
        kind: Less(
            |case| has(&case.said, b"LAST-MODIFIED"),
            |o| {
                for (name, _) in o.answers.iter_mut().flat_map(|a| &mut a.fields) {
                    if name == "LAST-MODIFIED" {
                        *name = "Last-Modified".into();
                    }
                }
                o.answers.iter_mut().for_each(|a| a.fields.sort_by(|(a, _), (b, _)| a.cmp(b)));
            },
        ),
    },
    Allowed {
        reason: "a 204 has no Content-Length (RFC 9110 8.6)",
        kind: Less(
            |case| has(&case.said, b" 204"),
            |o| {
                let empty = |a: &&mut Answer| a.status() == "204";
                o.answers.iter_mut().filter(empty).for_each(|a| a.without("Content-Length"));
            },
        ),
    },
    Allowed {
        reason: "of a head that is refused nothing is known",
        kind: Less(
            |_| true,
            |o| {
                for answer in o.answers.iter_mut().filter(|a| is_of_ours(a, "|502|")) {
                    answer.without("X-Said");
                    answer.without("X-Upstream");
                    // Of X-Accel-Charset.
                    answer.without("Content-Type");
                    answer.without("Content-Length");
                    answer.without("Transfer-Encoding");
                    answer.without("X-Sent");
                }
            },
        ),
    },
    Allowed {
        reason: "what answers the client's own condition or range is not kept for others",
        kind: Less(
            |case| {
                let asks = [&b"\r\nRange: "[..], b"\r\nIf-"].iter().any(|f| has(&case.bytes, f));
                let answers = [&b" 206 "[..], b" 304 ", b" 412 ", b" 416 "];
                asks && has(&case.bytes, b"-kept/") && answers.iter().any(|s| has(&case.said, s))
            },
            |o| {
                for answer in &mut o.answers {
                    answer.without("X-Upstream");
                    answer.without("Accept-Ranges");
                }
            },
        ),
    },
    Allowed {
        reason: "a status without a text has the usual one: its space must be there (RFC 9112 4)",
        kind: Less(
            |case| {
                let codes = ["200", "404", "404 "];
                codes.iter().any(|code| {
                    let ends = ["\r", "\n"].map(|end| format!(" {code}{end}"));
                    ends.iter().any(|line| has(&case.said, line.as_bytes()))
                })
            },
            |o| {
                for answer in &mut o.answers {
                    match answer.status() {
                        "200" => answer.line = "HTTP/1.1 200 OK".into(),
                        "404" => answer.line = "HTTP/1.1 404 Not Found".into(),
                        _ => {}
                    }
                }
            },
        ),
    },
    Allowed {
        reason: "a page of ours is not in the charset of the response that it stands for",
        kind: Less(
            |case| has(&case.said, b"X-Accel-Redirect") || has(&case.bytes, b"-pages/"),
            |o| {
                // The answer to HEAD has no body to recognise it by.
                let texts = ["<html>", "inner", "named"];
                let ours = |a: &&mut Answer| {
                    a.body.is_empty()
                        || texts.iter().any(|text| a.body.starts_with(text.as_bytes()))
                };
                for answer in o.answers.iter_mut().filter(ours) {
                    answer.without("Content-Type");
                    answer.without("Content-Length");
                    answer.without("Transfer-Encoding");
                    answer.without("X-Sent");
                }
            },
        ),
    },
    Allowed {
        reason: "a Date or Server without a value says nothing: ours is sent",
        kind: Less(
            |case| {
                ["Date: \r", "Date: \n", "Server: \r", "Server: \n"]
                    .iter()
                    .any(|line| has(&case.said, line.as_bytes()))
            },
            |o| {
                for answer in &mut o.answers {
                    answer.without("Date");
                    answer.without("Server");
                }
            },
        ),
    },
    Allowed {
        reason: "of bytes that are no UTF-8, each is a question mark of its own",
        kind: Less(
            |case| has(&case.bytes, b"-charset/") || has(&case.said, b"X-Accel-Charset: koi8-r"),
            |o| o.answers.iter_mut().for_each(|a| a.body.dedup_by(|a, b| (*a, *b) == (b'?', b'?'))),
        ),
    },
    Allowed {
        reason: "a HEAD is answered before its upstream's connection ends, and only then it is \
            kept",
        kind: Less(
            |case| has(&case.bytes, b"HEAD ") && has(&case.bytes, b"-kept/"),
            |o| o.answers.iter_mut().skip(1).for_each(|a| a.without("X-Upstream")),
        ),
    },
    Allowed {
        reason: "Accept-Ranges goes where the body is recoded, and stays as it is with the answer \
            of another location",
        kind: Less(
            |case| {
                let recoded = has(&case.bytes, b"-charset/") || has(&case.said, b"X-Accel-Charset");
                let elsewhere = has(&case.said, b"X-Accel-Redirect");
                has(&case.said, b"Accept-Ranges") && (recoded || elsewhere)
            },
            |o| o.answers.iter_mut().for_each(|a| a.without("Accept-Ranges")),
        ),
    },
    Allowed {
        reason: "a part has one Content-Range, which is ours",
        kind: Less(
            |case| has(&case.said, b"Content-Range") && has(&case.bytes, b"Range: "),
            |o| o.answers.iter_mut().for_each(|a| a.without("Content-Range")),
        ),
    },
    Allowed {
        reason: "the head of a gzip stream may name the effort that was made",
        kind: Less(
            |case| {
                has(&case.said, b"Content-Encoding: \r") || has(&case.said, b"Content-Encoding: \n")
            },
            |o| {
                for answer in o.answers.iter_mut().filter(|a| a.body.starts_with(b"\x1f\x8b")) {
                    answer.body.iter_mut().skip(8).take(1).for_each(|byte| *byte = 0);
                }
            },
        ),
    },
    Allowed {
        reason: "what another location answers has that location's ranges",
        kind: Is(|case, nginx, weir| {
            let bodies = |o: &Outcome, text: &[u8]| o.answers.iter().all(|a| a.body == text);
            has(&case.said, b"X-Accel-Redirect: /inner")
                && has(&case.said, b"Accept-Ranges")
                && bodies(nginx, b"inne")
                && bodies(weir, b"inner a=b\n")
        }),
    },
    Allowed {
        reason: "what came chunked has ranges when it is served from the cache",
        kind: Is(|case, nginx, weir| {
            let second = |o: &Outcome| o.answers.get(1).map(|a| a.status().to_owned());
            has(&case.bytes, b"-kept/")
                && has(&case.bytes, b"Range: ")
                && second(nginx).as_deref() == Some("200")
                && matches!(second(weir).as_deref(), Some("206"))
        }),
    },
    Allowed {
        reason: "a 204 or 304 that says it is gzip has no body to unpack; nginx closes the \
            connection",
        kind: Is(|case, nginx, weir| {
            has(&case.bytes, b"-filters/")
                && nginx.answers.is_empty()
                && weir.answers.iter().all(|a| matches!(a.status(), "204" | "304"))
        }),
    },
    Allowed {
        reason: "of a body that broke off more or less was coded, and its head sent, before; a 304 \
            does not need it",
        kind: Is(|case, nginx, weir| {
            let filters = has(&case.bytes, b"-filters/");
            // The bytes before the end are the same, or were not sent.
            let begins = weir.answers.iter().zip(&nginx.answers).all(|(w, n)| w.line == n.line);
            let begun = nginx.answers.len() < weir.answers.len()
                && weir.answers.starts_with(&nginx.answers)
                && weir.answers.iter().all(|a| a.status() == "304");
            is_cut(&case.said) && (filters && begins || begun)
        }),
    },
    Allowed {
        reason: "of fields that come twice one counts or both are joined, and a length that is no \
            number, or one beside chunks, is refused, as in nginx since 1.23.0",
        kind: Is(|case, _, _| IS_OLD.load(Ordering::Relaxed) && is_odd(&case.said)),
    },
    Allowed {
        reason: "what a refused head said about keeping does not count",
        kind: Is(|case, nginx, weir| {
            let refused = nginx.answers.iter().all(|a| a.status() == "502");
            let lines = |o: &Outcome| o.answers.iter().map(|a| a.line.clone()).collect::<Vec<_>>();
            has(&case.bytes, b"fastcgi-kept/") && refused && lines(nginx) == lines(weir)
        }),
    },
];

/// Whether an answer is one of ours that stands for an attempt with this status.
fn is_of_ours(answer: &Answer, status: &str) -> bool {
    let seen = answer.field("X-Upstream").unwrap_or_default();
    format!("|{seen}").starts_with(status)
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|w| w == text)
}
