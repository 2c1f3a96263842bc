//! Where the two differ and ours is right, or no worse: each with its reason.

use std::collections::BTreeSet;

use super::exchange::{Answer, Outcome};
use super::generate::{BAD_HOSTS, Case};

/// One known difference.
pub struct Allowed {
    /// Why it is there.
    pub reason: &'static str,
    /// Whether a difference is this one.
    pub is: fn(&Case, nginx: &Outcome, weir: &Outcome) -> bool,
}

/// All of them, the narrower first.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        reason: "nginx asks for a body with 100 Continue although nobody wants it (RFC 9110 \
            10.1.1)",
        is: |_, nginx, weir| without_continue(nginx) == *weir,
    },
    Allowed {
        reason: "fields of different names stand in another order, which means nothing (RFC \
            9110 5.3)",
        is: |_, nginx, weir| sorted(&without_continue(nginx)) == sorted(weir),
    },
    Allowed {
        reason: "merge_slashes is that of the server that was asked, not of the default one",
        is: |case, nginx, weir| {
            let other = has(case, b"two.test") || has(case, b"re42.test");
            has(case, b"//") && other && lines(nginx) == lines(weir)
        },
    },
    Allowed {
        reason: "nginx closes behind a 412 of a file, though it said it would keep the connection",
        is: |_, nginx, weir| {
            let (some, all) = (sorted(&without_continue(nginx)).answers, sorted(weir).answers);
            let status = |n: usize| all.get(n).map_or("", |a| a.status());
            let at = some.len();
            all.len() > at
                && all.starts_with(&some)
                && (at > 0 && status(at - 1) == "412" || status(at) == "412")
        },
    },
    Allowed {
        reason: "a 416 has not the fields that expires and add_header give to good answers",
        is: |_, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                for answer in o.answers.iter_mut().filter(|a| a.status() == "416") {
                    answer.fields.retain(|(name, _)| {
                        !name.starts_with("X-")
                            && !matches!(
                                &name[..],
                                "Expires" | "Cache-Control" | "Set-Cookie" | "P3P"
                            )
                    });
                }
                sorted(&o)
            };
            strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "a 404 where only a compressed file is says that it depends on Accept-Encoding",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                o.answers.iter_mut().for_each(|a| a.fields.retain(|(name, _)| name != "Vary"));
                sorted(&o)
            };
            has(case, b"/gs/b.txt") && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "an interim answer of the upstream's is not its answer (RFC 9110 15.2)",
        is: |case, nginx, _| {
            has(case, b"/continue") && nginx.answers.iter().any(|a| a.status() == "100")
        },
    },
    Allowed {
        reason: "what an upstream says without a head ends with the connection: nothing else \
            ends it",
        is: |case, nginx, weir| {
            let text = b"this is not HTTP";
            let raw = |o: &Outcome| o.rest.starts_with(text);
            let head = has(case, b"HEAD ") && nginx.answers.starts_with(&weir.answers);
            has(case, b"/bad HTTP/1.1")
                && (head || raw(nginx) && raw(weir) && nginx.answers == weir.answers)
        },
    },
    Allowed {
        reason: "a space behind the request's version is no part of $server_protocol",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                for answer in &mut o.answers {
                    let text =
                        String::from_utf8_lossy(&answer.body).replacen(".1 |http", ".1|http", 1);
                    answer.body = text.into_bytes();
                    answer.fields.retain(|(name, _)| name != "Content-Length");
                }
                sorted(&o)
            };
            has(case, b"HTTP/1.1 \r") && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "close and keep-alive are words of Connection, not parts of others (RFC 9110 \
            7.6.1)",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                for answer in &mut o.answers {
                    answer
                        .fields
                        .retain(|(name, _)| !matches!(&name[..], "Connection" | "Keep-Alive"));
                }
                o.answers.truncate(1);
                sorted(&o)
            };
            case.cut && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "a Host that is no name is refused, and CONNECT, as nginx does it since 1.29.4",
        is: |case, nginx, weir| {
            let last = weir.answers.last().is_some_and(|a| a.status() == "400");
            let text = String::from_utf8_lossy(&case.bytes).to_ascii_lowercase();
            let mut hosts = text.lines().filter_map(|line| line.strip_prefix("host:"));
            let host = hosts.any(|host| {
                let host = host.trim_matches(' ');
                let odd = |c: char| !(c.is_ascii_alphanumeric() || ".-:[]".contains(c));
                BAD_HOSTS.contains(&host) || host.contains(odd) || has_odd_port(host)
            });
            let connect = case.methods.iter().any(|m| m == "CONNECT");
            last && (host || connect) && nginx.answers.len() + 1 >= weir.answers.len()
        },
    },
    Allowed {
        reason: "nothing is copied onto itself or into itself, as in nginx since 1.31.0",
        is: |case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            (has(case, b"COPY ") || has(case, b"MOVE "))
                && matches!(last(nginx), 200..300 | 404 | 409 | 500)
                && last(weir) == 403
        },
    },
    Allowed {
        reason: "files that were compressed before have ranges, as in nginx since 1.23.4",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                o.answers.retain(|a| a.status() != "206" && a.body != b"compressed before\n");
                o.answers
                    .iter_mut()
                    .for_each(|a| a.fields.retain(|(name, _)| name != "Accept-Ranges"));
                sorted(&o)
            };
            (has(case, b"/gs/") || has(case, b"/gsalways/")) && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "If-Unmodified-Since means nothing where there is no date (RFC 9110 13.1.4)",
        is: |case, nginx, weir| {
            let refused = nginx.answers.iter().any(|a| a.status() == "412");
            let teapot = weir.answers.iter().any(|a| a.body.starts_with(b"teapot"));
            has(case, b"/named") && refused && teapot
        },
    },
    Allowed {
        reason: "fields for the upstream stand in another order, which means nothing",
        is: |_, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                for answer in &mut o.answers {
                    answer.body = answer
                        .body
                        .split(|b| *b == b'\n')
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .collect::<Vec<_>>()
                        .join(&b'\n');
                }
                sorted(&o)
            };
            strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "the tag of a part of a film is that of the film: the part is named by the address",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                o.answers.iter_mut().for_each(|a| a.fields.retain(|(name, _)| name != "ETag"));
                sorted(&o)
            };
            has(case, b".flv?start=") && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "$http_ of a field that came twice has both values, as in nginx since 1.23.0",
        is: |case, nginx, weir| {
            let text = String::from_utf8_lossy(&case.bytes).to_ascii_lowercase();
            let twice = |name: &&str| text.matches(&format!("\n{name}:")).count() > 1;
            ["x-kind", "x-under_score", "referer"].iter().any(twice) && lines(nginx) == lines(weir)
        },
    },
    Allowed {
        reason: "of a body that broke off more or less was compressed before",
        is: |case, nginx, weir| has(case, b"/gzproxied/short") && lines(nginx) == lines(weir),
    },
    Allowed {
        reason: "a charset whose variable has no value is none; nginx closes the connection",
        is: |case, nginx, weir| {
            has(case, b"/charsetvar/") && weir.answers.starts_with(&without_continue(nginx).answers)
        },
    },
    Allowed {
        reason: "a Destination that leaves the alias is refused before its source is looked for",
        is: |case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            has(case, b"\nDestination: ") && last(nginx) >= 400 && last(weir) == 400
        },
    },
    Allowed {
        reason: "a body whose framing is broken is answered with 400 whatever is to become of it",
        is: |case, nginx, weir| {
            let last = |o: &Outcome| o.answers.last().map_or(0, status);
            case.cut
                && has(case, b"\nTransfer-Encoding: chunked")
                && last(nginx) >= 400
                && last(weir) == 400
        },
    },
    Allowed {
        reason: "nginx says 0 for the length of a body that it has thrown away",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                for answer in &mut o.answers {
                    let text = String::from_utf8_lossy(&answer.body);
                    let text = text.replacen("|127.0.0.1|0|", "|127.0.0.1||", 1);
                    answer.body = text.replacen("\nContent-Length: 0\n", "\n", 1).into_bytes();
                    answer.fields.retain(|(name, _)| name != "Content-Length");
                }
                sorted(&o)
            };
            let body =
                has(case, b"\nTransfer-Encoding: chunked") || has(case, b"\nContent-Length: ");
            body && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "a CR that ends no line is refused (RFC 9112 2.2)",
        is: |case, nginx, weir| {
            let refused = weir.answers.last().is_some_and(|a| a.status() == "400");
            case.cut && has(case, b"\r\r") && refused && weir.answers.starts_with(&nginx.answers)
        },
    },
    Allowed {
        reason: "a bucket has room for what was refused before, for a reason that is known",
        is: |case, nginx, weir| {
            let strip = |o: &Outcome| {
                let mut o = without_continue(o);
                o.answers.iter_mut().for_each(|a| a.fields.retain(|(name, _)| name != "X-Limit"));
                sorted(&o)
            };
            has(case, b"/ratefile/") && strip(nginx) == strip(weir)
        },
    },
    Allowed {
        reason: "a request line without version that is no GET of HTTP/0.9 is refused with a head",
        is: |_, nginx, weir| {
            let page = |body: &[u8]| body.starts_with(b"<html>\r\n<head><title>4");
            let last = weir.answers.last();
            page(&nginx.rest)
                && last.is_some_and(|a| {
                    a.status() == "400" && (a.body.is_empty() || a.body == nginx.rest)
                })
        },
    },
];

/// The status lines of all answers.
fn lines(outcome: &Outcome) -> Vec<String> {
    without_continue(outcome).answers.into_iter().map(|a| a.line).collect()
}

fn status(answer: &Answer) -> u16 {
    answer.status().parse().unwrap_or(0)
}

/// Whether what follows a name and a colon is no number.
fn has_odd_port(host: &str) -> bool {
    let port = host.split_once(':').map_or("", |(_, port)| port);
    !host.starts_with('[') && port.contains(|c: char| !c.is_ascii_digit())
}

fn has(case: &Case, text: &[u8]) -> bool {
    case.bytes.windows(text.len()).any(|w| w == text)
}

fn sorted(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    for answer in &mut outcome.answers {
        // Those of one name stay in their order: the sort is stable.
        answer.fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    outcome
}

fn without_continue(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    outcome.answers.retain(|a| a.status() != "100");
    outcome
}
