//! Where the two differ and ours is right, or no worse: each with its reason.

use std::collections::BTreeSet;

use super::exchange::{Answer, Outcome};
use super::generate::{BAD_HOSTS, Case};

/// One known difference.
pub struct Allowed {
    /// Why it is there.
    pub reason: &'static str,
    /// Whether such a difference is the reason's.
    pub kind: Kind,
}

/// Takes out of an outcome what differs for the reason.
pub type Take = fn(&mut Outcome);

/// The form of a known difference.
pub enum Kind {
    /// A part that is removed from both answers in the cases concerned: it may differ.
    Less(fn(&Case) -> bool, Take),
    /// Whether a difference is this one.
    Is(fn(&Case, nginx: &Outcome, weir: &Outcome) -> bool),
}

use Kind::{Is, Less};

/// The most that is received of a request before it is answered.
const RECEIVED: usize = 16 << 10;

/// Whether the header section of a request has a line that is no field.
fn has_line_without_colon(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    text.split("\n\n").any(|section| {
        let mut lines = section.lines().skip_while(|line| line.is_empty());
        // What does not begin with a request line is a body.
        lines.next().is_some_and(|line| line.contains(" HTTP/"))
            && lines.any(|line| !line.contains(':'))
    })
}

/// Whether a request moves or copies a folder into itself. Both servers answer 403, but nginx
/// before 1.31.0 only after it has made changes.
pub fn goes_into_itself(case: &Case) -> bool {
    let text = String::from_utf8_lossy(&case.bytes);
    let mut source = "";
    text.lines().any(|line| {
        if let Some(rest) = line.strip_prefix("MOVE ").or_else(|| line.strip_prefix("COPY ")) {
            source = rest.split(' ').next().unwrap_or_default();
        }
        let to = line.strip_prefix("Destination: ");
        source.ends_with('/') && to.is_some_and(|to| to.starts_with(source))
    })
}

/// Whether a request without a version asks for a status that the upstream then garbles: the
/// version belongs to the path, as in `GET /pxnopass/status/299HTTP/1.1`.
fn has_garbled_status(case: &Case) -> bool {
    let text = String::from_utf8_lossy(&case.bytes);
    case.cut
        && text.split("/status/").skip(1).any(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("HTTP/1.")
        })
}

/// Removes the tab at the front of the value of `X-Tab` from pages that show forwarded fields.
fn untab(answer: &mut Answer) {
    let tabs = answer.body.windows(9).filter(|w| w == b"X-Tab: \tx").count();
    if answer.body.is_empty() {
        // An answer to HEAD, with the length of such a page.
        answer.without("Content-Length");
    }
    let long = answer.body.len();
    for _ in 0..tabs {
        answer.replace("X-Tab: \tx", "X-Tab: x");
    }
    for (name, value) in &mut answer.fields {
        if name == "Content-Length" && *value == long.to_string() {
            *value = (long - tabs).to_string();
        }
    }
}

/// Why the two differ, as places in [`ALLOWED`]: one reason, or else several at once, none of them
/// needlessly.
pub fn reasons(
    known: &[Allowed],
    case: &Case,
    nginx: &Outcome,
    weir: &Outcome,
) -> Option<Vec<usize>> {
    let is = |n: &Outcome, w: &Outcome| {
        known.iter().position(|a| matches!(a.kind, Is(is) if is(case, n, w)))
    };
    if let Some(at) = is(nginx, weir) {
        return Some(vec![at]);
    }
    let takes = known.iter().enumerate().filter_map(|(at, allowed)| match allowed.kind {
        Less(about, take) if about(case) => Some((at, take)),
        _ => None,
    });
    let mut takes: Vec<_> = takes.collect();
    let with = |takes: &[(usize, Take)]| {
        let (mut n, mut w) = (nginx.clone(), weir.clone());
        for (_, take) in takes {
            take(&mut n);
            take(&mut w);
        }
        if n == w { Some(None) } else { is(&n, &w).map(Some) }
    };
    let mut whole = with(&takes)?;
    // The broader ones stand behind the narrower ones, and are tried first.
    for at in (0..takes.len()).rev() {
        let one = takes.remove(at);
        match with(&takes) {
            Some(less) => whole = less,
            None => takes.insert(at, one),
        }
    }
    Some(takes.into_iter().map(|(at, _)| at).chain(whole).collect())
}

/// All of them, the narrower first.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        reason: "nginx asks for a body with 100 Continue although nobody wants it (RFC 9110 \
            10.1.1)",
        kind: Less(|_| true, |o| o.answers.retain(|a| a.status() != "100")),
    },
    Allowed {
        reason: "fields of different names stand in another order, which means nothing (RFC \
            9110 5.3)",
        kind: Less(
            |_| true,
            |o| {
                // Fields of one name stay in their order: the sort is stable.
                o.answers.iter_mut().for_each(|a| a.fields.sort_by(|(a, _), (b, _)| a.cmp(b)));
            },
        ),
    },
    Allowed {
        reason: "merge_slashes is that of the server that was asked, not of the default one",
        kind: Less(
            |case| has(case, b"//") && (has(case, b"two.test") || has(case, b"re42.test")),
            |o| {
                // Its page, or the length of its page for HEAD.
                let page = |a: &&mut Answer| a.body.starts_with(b"two ") || a.body.is_empty();
                for answer in o.answers.iter_mut().filter(page) {
                    answer.body.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
                    answer.without("Content-Length");
                }
            },
        ),
    },
    Allowed {
        reason: "a line without a colon is no field, and its request is refused (RFC 9112 5)",
        kind: Is(|case, nginx, weir| {
            let Some((last, before)) = weir.answers.split_last() else { return false };
            has_line_without_colon(&case.bytes)
                && last.status() == "400"
                && nginx.answers.starts_with(before)
        }),
    },
    Allowed {
        reason: "nginx closes behind a 412 of a file, though it said it would keep the connection",
        // Unread bytes reset the connection: answers before that may be lost, too.
        kind: Is(|_, nginx, weir| {
            let (some, all) = (&nginx.answers, &weir.answers);
            (all.len() > some.len() || !weir.rest.is_empty())
                && all.starts_with(some)
                && all[some.len().saturating_sub(1)..].iter().any(|a| a.status() == "412")
        }),
    },
    Allowed {
        reason: "a 416 has not the fields that expires and add_header give to good answers",
        kind: Less(
            |_| true,
            |o| {
                for answer in o.answers.iter_mut().filter(|a| a.status() == "416") {
                    answer.fields.retain(|(name, _)| {
                        !name.starts_with("X-")
                            && !matches!(
                                &name[..],
                                "Expires" | "Cache-Control" | "Set-Cookie" | "P3P"
                            )
                    });
                }
            },
        ),
    },
    Allowed {
        reason: "a 404 where only a compressed file is says that it depends on Accept-Encoding",
        kind: Less(
            |case| has(case, b"/gs/b.txt"),
            |o| {
                o.answers
                    .iter_mut()
                    .filter(|a| a.status() == "404")
                    .for_each(|a| a.without("Vary"));
            },
        ),
    },
    Allowed {
        reason: "an interim answer of the upstream's is not its answer (RFC 9110 15.2)",
        kind: Is(|case, nginx, weir| {
            let interim = nginx.answers.iter().any(|a| a.status() == "100");
            // A request without a version gets no head; nginx gives it that of the final answer.
            let bare = nginx.answers.last().is_some_and(|a| a.body == weir.rest);
            has(case, b"/continue") && (interim || bare && weir.answers.is_empty())
        }),
    },
    Allowed {
        reason: "what an upstream says without a status line is 502, and no body of HTTP/0.9",
        kind: Is(|case, nginx, weir| {
            let asked = has(case, b"/bad HTTP/1.") || has(case, b"/bad?") || has(case, b"/bad\r");
            let text = nginx.rest.starts_with(b"this is not HTTP");
            let same = nginx.answers.iter().zip(&weir.answers).take_while(|(n, w)| n == w).count();
            let refused = weir.answers.get(same).map_or_else(
                // To a request without version: the page alone.
                || weir.rest.windows(15).any(|text| text == b"502 Bad Gateway"),
                |answer| answer.status() == "502",
            );
            // For HEAD nginx sends nothing at all, nor if it waits for the end of such a body and
            // the client closes first.
            let waits = has_garbled_status(case) && nginx.rest.is_empty();
            refused && (asked && (text || has(case, b"HEAD ")) || waits)
        }),
    },
    Allowed {
        reason: "a space behind the request's version is no part of $server_protocol",
        kind: Less(
            |case| has(case, b"HTTP/1.1 \r"),
            |o| {
                for answer in &mut o.answers {
                    answer.replace(".1 |http", ".1|http");
                    answer.without("Content-Length");
                }
            },
        ),
    },
    Allowed {
        reason: "close and keep-alive are words of Connection, not parts of others (RFC 9110 \
            7.6.1)",
        kind: Less(
            |case| case.cut,
            |o| {
                for answer in &mut o.answers {
                    answer.without("Connection");
                    answer.without("Keep-Alive");
                }
                o.answers.truncate(1);
            },
        ),
    },
    Allowed {
        reason: "a Host that is no name is refused, and CONNECT, as nginx does it since 1.29.4",
        kind: Is(|case, nginx, weir| {
            let last = weir.answers.last().is_some_and(|a| a.status() == "400");
            let text = String::from_utf8_lossy(&case.bytes).to_ascii_lowercase();
            let mut hosts = text.lines().filter_map(|line| line.strip_prefix("host:"));
            let host = hosts.any(|host| {
                let host = host.trim_matches(' ');
                let odd = |c: char| !(c.is_ascii_alphanumeric() || ".-:[]".contains(c));
                let open = host.starts_with('[') && !host.contains(']');
                BAD_HOSTS.contains(&host) || host.contains(odd) || open || has_odd_port(host)
            });
            let connect = case.methods.iter().any(|m| m == "CONNECT");
            last && (host || connect) && nginx.answers.len() + 1 >= weir.answers.len()
        }),
    },
    Allowed {
        reason: "nothing is copied onto itself or into itself, as in nginx since 1.31.0",
        kind: Is(|case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            (has(case, b"COPY ") || has(case, b"MOVE "))
                && matches!(last(nginx), 200..300 | 404 | 409 | 500)
                && last(weir) == 403
        }),
    },
    Allowed {
        reason: "files that were compressed before have ranges, as in nginx since 1.23.4",
        kind: Less(
            |case| has(case, b"/gs/") || has(case, b"/gsalways/"),
            |o| {
                let whole = [&b"compressed before\n"[..], b"only compressed\n"];
                let of_them = |a: &Answer| {
                    let range = a.field("Content-Range").is_some_and(|r| r.ends_with("/36"));
                    // An answer to HEAD.
                    let bare = a.status() == "200"
                        && a.body.is_empty()
                        && a.field("Content-Encoding") == Some("gzip");
                    a.status() == "206" || whole.contains(&&a.body[..]) || range || bare
                };
                o.answers.retain(|a| !of_them(a));
                o.answers.iter_mut().for_each(|a| a.without("Accept-Ranges"));
            },
        ),
    },
    Allowed {
        reason: "If-Unmodified-Since means nothing where there is no date (RFC 9110 13.1.4)",
        kind: Is(|case, nginx, weir| {
            let refused = nginx.answers.iter().any(|a| a.status() == "412");
            let teapot = weir.answers.iter().any(|a| a.body.starts_with(b"teapot"));
            has(case, b"/named") && refused && teapot
        }),
    },
    Allowed {
        reason: "a tab in front of a client's value is white space, and not forwarded (RFC 9110 \
            5.5)",
        kind: Less(|case| has(case, b"\nX-Tab:\tx\t\r"), |o| o.answers.iter_mut().for_each(untab)),
    },
    Allowed {
        reason: "fields for the upstream stand in another order, which means nothing",
        kind: Less(
            |_| true,
            |o| {
                for answer in &mut o.answers {
                    let lines: BTreeSet<_> = answer.body.split(|b| *b == b'\n').collect();
                    answer.body = lines.into_iter().collect::<Vec<_>>().join(&b'\n');
                }
            },
        ),
    },
    Allowed {
        reason: "the tag of a part of a film is that of the film: the part is named by the address",
        kind: Less(
            |case| has(case, b".flv?start="),
            |o| o.answers.iter_mut().for_each(|a| a.without("ETag")),
        ),
    },
    Allowed {
        reason: "$http_ of a field that came twice has both values, as in nginx since 1.23.0",
        kind: Is(|case, nginx, weir| {
            let text = String::from_utf8_lossy(&case.bytes).to_ascii_lowercase();
            let twice = |name: &&str| text.matches(&format!("\n{name}:")).count() > 1;
            ["x-kind", "x-under_score", "referer"].iter().any(twice) && lines(nginx) == lines(weir)
        }),
    },
    Allowed {
        reason: "of a body that broke off more or less was compressed before",
        kind: Is(|case, nginx, weir| has(case, b"/gzproxied/short") && lines(nginx) == lines(weir)),
    },
    Allowed {
        reason: "a charset whose variable has no value is none; nginx closes the connection",
        kind: Is(|case, nginx, weir| {
            has(case, b"/charsetvar/") && weir.answers.starts_with(&nginx.answers)
        }),
    },
    Allowed {
        reason: "a Destination that leaves the alias is refused before its source is looked for",
        kind: Is(|case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            // nginx takes the part behind the alias from any path, other folders' as well.
            let elsewhere = !has(case, b"\nDestination: /dav/") && last(nginx) == 204;
            has(case, b"\nDestination: ") && (last(nginx) >= 400 || elsewhere) && last(weir) == 400
        }),
    },
    Allowed {
        reason: "a body whose framing is broken is answered with 400 whatever is to become of it; \
            nginx lets a byte behind a chunk pass",
        kind: Is(|case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            case.cut
                && has(case, b"\nTransfer-Encoding: chunked")
                && last(nginx) >= 200
                && last(weir) == 400
        }),
    },
    Allowed {
        reason: "a body that is not needed is checked as far as it came with its request's header; \
            nginx reads on before it answers",
        kind: Is(|case, nginx, weir| {
            let (Some((n, before)), Some((w, same))) =
                (nginx.answers.split_last(), weir.answers.split_last())
            else {
                return false;
            };
            case.cut
                && has(case, b"\nTransfer-Encoding: chunked")
                && case.bytes.len() > RECEIVED
                && (n.status(), before) == ("400", same)
                && status(w) < 400
        }),
    },
    Allowed {
        reason: "nginx says 0, or what came, for the length of a body that it has thrown away",
        kind: Less(
            |case| has(case, b"\nTransfer-Encoding: chunked") || has(case, b"\nContent-Length: "),
            |o| {
                for answer in &mut o.answers {
                    answer.replace("|127.0.0.1|0|", "|127.0.0.1||");
                    answer.replace("|192.0.2.1|2048|", "|192.0.2.1||");
                    answer.replace("\nContent-Length: 0\n", "\n");
                    answer.without("Content-Length");
                }
            },
        ),
    },
    Allowed {
        reason: "a CR that ends no line is refused (RFC 9112 2.2)",
        kind: Is(|case, nginx, weir| {
            let Some((last, before)) = weir.answers.split_last() else { return false };
            let instead = nginx.answers.len() <= weir.answers.len();
            case.cut
                && has(case, b"\r\r")
                && last.status() == "400"
                && nginx.answers.starts_with(before)
                && instead
        }),
    },
    Allowed {
        reason: "a bucket has room for what was refused before, for a reason that is known",
        kind: Less(
            |case| has(case, b"/ratefile/"),
            |o| o.answers.iter_mut().for_each(|a| a.without("X-Limit")),
        ),
    },
    Allowed {
        reason: "a request line without version that is no GET of HTTP/0.9 is refused with a head",
        kind: Is(|_, nginx, weir| {
            let page = |body: &[u8]| body.starts_with(b"<html>\r\n<head><title>4");
            let last = weir.answers.last();
            page(&nginx.rest)
                && last.is_some_and(|a| {
                    a.status() == "400" && (a.body.is_empty() || a.body == nginx.rest)
                })
        }),
    },
    Allowed {
        reason: "what stands behind the month of a date is a space: another date is none",
        kind: Is(|case, nginx, weir| {
            let odd = has(case, b": Wed Jan") && !has(case, b": Wed Jan  1 00");
            let refused = weir.answers.last().is_some_and(|a| a.status() == "412");
            case.cut && odd && refused && nginx.answers.len() == weir.answers.len()
        }),
    },
    Allowed {
        reason: "a part of a page has no body: its upstream is told no length, and does not wait \
            for one",
        kind: Is(|case, nginx, weir| {
            let waited = |a: &Answer| String::from_utf8_lossy(&a.body).contains("504 Gateway");
            has(case, b"/ssi/")
                && has(case, b"\nContent-Length: ")
                && nginx.answers.iter().any(waited)
                && !weir.answers.iter().any(waited)
                && lines(nginx) == lines(weir)
        }),
    },
];

/// The status lines of all answers.
fn lines(outcome: &Outcome) -> Vec<String> {
    let final_ones = outcome.answers.iter().filter(|a| a.status() != "100");
    final_ones.map(|a| a.line.clone()).collect()
}

fn status(answer: &Answer) -> u16 {
    answer.status().parse().unwrap_or(0)
}

/// Whether the text behind a name and a colon is no number.
fn has_odd_port(host: &str) -> bool {
    let port = host.split_once(':').map_or("", |(_, port)| port);
    !host.starts_with('[') && port.contains(|c: char| !c.is_ascii_digit())
}

fn has(case: &Case, text: &[u8]) -> bool {
    case.bytes.windows(text.len()).any(|w| w == text)
}

#[cfg(test)]
mod tests {
    use super::super::exchange::End;
    use super::*;

    fn case(text: &str) -> Case {
        Case {
            number: 0,
            bytes: text.into(),
            methods: vec!["GET".to_owned(); 3],
            cut: false,
            said: Vec::new(),
        }
    }

    type Text<'a> = (u16, &'a [(&'a str, &'a str)], &'a str);

    fn outcome(answers: &[Text<'_>]) -> Outcome {
        let answer = |(status, fields, body): &Text<'_>| Answer {
            line: format!("HTTP/1.1 {status} X"),
            fields: fields.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
            body: body.as_bytes().to_vec(),
            trailers: Vec::new(),
            whole: true,
        };
        let answers = answers.iter().map(answer).collect();
        Outcome { answers, rest: Vec::new(), end: End::Closed }
    }

    fn why(text: &str, nginx: &Outcome, weir: &Outcome) -> Option<Vec<&'static str>> {
        let all = reasons(ALLOWED, &case(text), nginx, weir)?;
        Some(all.into_iter().map(|at| &ALLOWED[at].reason[..12]).collect())
    }

    #[test]
    fn what_has_no_reason_is_told() {
        let get = "GET /ratefile/ HTTP/1.1\r\nHost: two.test\r\n\r\n";
        let right = outcome(&[(200, &[("A", "b")], "body")]);
        for wrong in [
            outcome(&[(200, &[("A", "b")], "other")]),
            outcome(&[(200, &[("A", "c")], "body")]),
            outcome(&[(200, &[], "body")]),
            outcome(&[(404, &[("A", "b")], "body")]),
            outcome(&[]),
        ] {
            assert_eq!(why(get, &right, &wrong), None, "{wrong:?}");
            assert_eq!(why(get, &wrong, &right), None, "{wrong:?}");
        }
    }

    #[test]
    fn reasons_go_together() {
        let text = "GET //a HTTP/1.1\r\nHost: two.test\r\n\r\n";
        let merged = (200, &[("B", "2"), ("A", "1")][..], "two /a\n");
        let nginx = outcome(&[merged]);
        let weir = outcome(&[(200, &[("A", "1"), ("B", "2")], "two //a\n")]);
        assert_eq!(why(text, &nginx, &weir), Some(vec!["fields of di", "merge_slashe"]));
        let closed = (412, &[][..], "no");
        let more = (200, &[][..], "more");
        let nginx = outcome(&[merged, closed]);
        let weir = outcome(&[(200, &[("A", "1"), ("B", "2")], "two //a\n"), closed, more]);
        assert_eq!(
            why(text, &nginx, &weir),
            Some(vec!["fields of di", "merge_slashe", "nginx closes"])
        );
        assert_eq!(why("GET /a", &nginx, &weir), None);
    }

    #[test]
    fn a_tab_is_no_part_of_a_value_that_the_origin_shows() {
        let text = "GET /px/echo HTTP/1.1\r\nHost: one.test\r\nX-Tab:\tx\t\r\n\r\n";
        let page = |tab: &str, len: &str, more: &str| {
            outcome(&[(200, &[("Content-Length", len)], &format!("X-Tab: {tab}x\n{more}"))])
        };
        let nginx = page("\t", "10", "");
        assert_eq!(why(text, &nginx, &page("", "9", "")), Some(vec!["a tab in fro"]));
        // Not for a request without it, and nothing but the tab may differ.
        assert_eq!(why("GET /px/echo", &nginx, &page("", "9", "")), None);
        assert_eq!(why(text, &nginx, &page("", "11", "a\n")), None);
        assert_eq!(why(text, &nginx, &page("", "10", "")), None);
        // The length alone, for HEAD.
        let head = |len: &str| outcome(&[(200, &[("Content-Length", len)], "")]);
        assert_eq!(why(text, &head("10"), &head("9")), Some(vec!["a tab in fro"]));
    }

    #[test]
    fn a_head_for_a_compressed_file_may_have_a_range() {
        let text = "HEAD /gsalways/a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=-99999\r\n\r\n";
        let gzip = ("Content-Encoding", "gzip");
        let nginx = outcome(&[(200, &[gzip], "")]);
        let weir = outcome(&[(206, &[gzip, ("Content-Range", "bytes 0-37/38")], "")]);
        assert_eq!(why(text, &nginx, &weir), Some(vec!["files that w"]));
        assert_eq!(why(text, &outcome(&[(404, &[gzip], "")]), &weir), None);
    }

    #[test]
    fn a_garbled_status_is_a_bad_gateway() {
        let weir = Outcome { rest: b"502 Bad Gateway".to_vec(), ..outcome(&[]) };
        let why = |text: &str| {
            let case = Case { cut: true, ..case(text) };
            reasons(ALLOWED, &case, &outcome(&[]), &weir)
        };
        assert!(why("GET /pxnopass/status/299HTTP/1.1\r\nHost: a\r\n\r\n").is_some());
        assert!(why("GET /pxnopass/status/299 HTTP/1.1\r\nHost: a\r\n\r\n").is_none());
    }

    #[test]
    fn a_folder_goes_into_itself() {
        let moved = |from: &str, to: &str| {
            goes_into_itself(&case(&format!(
                "MOVE {from} HTTP/1.1\r\nHost: a\r\nDestination: {to}\r\n\r\n"
            )))
        };
        assert!(moved("/dav/", "/dav/copied/"));
        assert!(!moved("/dav/folder/", "/dav/copied/"));
        assert!(!moved("/dav/a.txt", "/dav/a.txt"));
        assert!(!goes_into_itself(&case("GET /dav/ HTTP/1.1\r\nDestination: /dav/x\r\n\r\n")));
    }

    #[test]
    fn a_broken_end_of_a_long_body_may_be_overlooked() {
        let why = |len: usize, weir: u16| {
            let begin = "POST /rw/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
            let case = Case { cut: true, ..case(&format!("{begin}{}", "x".repeat(len))) };
            reasons(ALLOWED, &case, &outcome(&[(400, &[], "")]), &outcome(&[(weir, &[], "ok")]))
        };
        assert!(why(20_000, 200).is_some());
        assert!(why(10_000, 200).is_none());
        assert!(why(20_000, 500).is_none());
    }
}
