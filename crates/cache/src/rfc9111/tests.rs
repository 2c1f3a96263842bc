use super::*;
use http_wire::h1::{ResponseParser, ResponseStep};

const NOW: i64 = 1_000_000_000;
/// `NOW` as a field.
const DATE: &str = "Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n";
const KEY: &[u8] = b"http://a/b";

fn parse(text: &str) -> ResponseHead {
    let mut head = ResponseHead::new();
    let step = ResponseParser::new().parse(text.as_bytes(), &mut head);
    assert!(matches!(step, ResponseStep::Done { .. }), "{text}");
    head
}

fn reply(fields: &str) -> Reply {
    let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    Reply::read(&parse(&text), text.as_bytes(), 0)
}

fn asked(control: &str) -> Asked {
    Asked::read([control.as_bytes()].into_iter(), None, false)
}

fn rules_of(status: u16, fields: &str, asked: &Asked, said: u64) -> Rules {
    let facts = Facts { status, key: KEY, said, delay: 0 };
    reply(fields).rules(&facts, asked, NOW)
}

/// The freshness lifetime of a response; `None` where it is not kept.
fn fresh(status: u16, fields: &str) -> Option<i64> {
    let rules = rules_of(status, fields, &Asked::default(), 0);
    (!rules.forbidden).then(|| rules.valid - NOW)
}

#[test]
fn section_3_what_may_be_kept() {
    for (fields, kept) in [
        ("Cache-Control: max-age=5\r\n", true),
        ("Cache-Control: max-age=5, no-store\r\n", false),
        ("Cache-Control: max-age=5, private\r\n", false),
        ("Cache-Control: max-age=5, private=\"X-A\"\r\n", true),
        ("Cache-Control: max-age=5\r\nVary: *\r\n", false),
        ("Cache-Control: max-age=5\r\nVary: Accept, *\r\n", false),
        ("Cache-Control: max-age=5\r\nVary: Accept\r\nVary: Accept-Language\r\n", true),
        ("Cache-Control: max-age=5\r\nSet-Cookie: a=b\r\n", false),
        ("Cache-Control: max-age=5, no-cache=\"Set-Cookie\"\r\nSet-Cookie: a=b\r\n", true),
        ("Cache-Control: max-age=5\r\nX-Accel-Expires: 0\r\n", false),
        ("", false),
        // Stale from the beginning, and of use only where it can be validated.
        ("Cache-Control: no-cache\r\n", false),
        ("Cache-Control: no-cache\r\nETag: \"x\"\r\n", true),
        ("Cache-Control: max-age=0\r\nLast-Modified: Sat, 08 Sep 2001 01:46:40 GMT\r\n", true),
        ("Cache-Control: max-age=0, stale-while-revalidate=9\r\n", true),
        ("Cache-Control: max-age=0, must-revalidate, stale-while-revalidate=9\r\n", false),
    ] {
        assert_eq!(fresh(200, fields).is_some(), kept, "{fields}");
    }
    // Statuses that say nothing by themselves want a lifetime.
    for (status, kept) in [(200, true), (302, true), (404, true), (304, false), (206, false)] {
        assert_eq!(fresh(status, "Cache-Control: max-age=5\r\n").is_some(), kept, "{status}");
    }
    assert!(rules_of(200, "Cache-Control: max-age=5\r\n", &asked("no-store"), 0).forbidden);
}

#[test]
fn section_3_1_fields_that_are_not_kept() {
    let text = "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Own: 2\r\n\
                Keep-Alive: 5\r\nTE: x\r\nTransfer-Encoding: chunked\r\nUpgrade: a\r\n\
                Proxy-Authenticate: a\r\nProxy-Authentication-Info: b\r\nProxy-Connection: c\r\n\
                Cache-Control: private=\"x-p\", no-cache=\"set-cookie\"\r\nX-P: 1\r\n\
                Set-Cookie: a=b\r\nAge: 5\r\n\r\n";
    let head = parse(text);
    let reply = Reply::read(&head, text.as_bytes(), 0);
    let kept = head_text(&head, text.as_bytes(), &reply, 7, NOW);
    let expected = format!(
        "HTTP/1.1 200 OK\r\nX-Own: 2\r\n\
         Cache-Control: private=\"x-p\", no-cache=\"set-cookie\"\r\n{DATE}Age: 7\r\n\r\n"
    );
    assert_eq!(kept, expected.as_bytes());
    assert!(reply.is_of_hop(b"x-hop") && reply.is_of_hop(b"Upgrade") && !reply.is_of_hop(b"x-p"));
}

#[test]
fn section_3_2_fields_are_updated() {
    let old = "HTTP/1.1 200 OK\r\nDate: Sat, 08 Sep 2001 01:46:40 GMT\r\nAge: 9\r\nX-A: 1\r\n\
               X-B: 1\r\nX-B: 2\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n";
    let new = format!(
        "HTTP/1.1 304 Not Modified\r\n{DATE}x-b: 3\r\nX-C: 4\r\nContent-Length: 0\r\n\
         Content-Encoding: br\r\nSet-Cookie: a=b\r\nConnection: X-Hop\r\nX-Hop: 1\r\nAge: 2\r\n\r\n"
    );
    let (old_head, new_head) = (parse(old), parse(&new));
    let reply = Reply::read(&new_head, new.as_bytes(), 0);
    let got = freshened((&old_head, old.as_bytes()), (&new_head, new.as_bytes()), &reply, 2, NOW);
    let expected = format!(
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n{DATE}\
         x-b: 3\r\nX-C: 4\r\nAge: 2\r\n\r\n"
    );
    assert_eq!(std::str::from_utf8(&got), Ok(&expected[..]));
    // A head without a date is of now.
    let bare = "HTTP/1.1 304 Not Modified\r\n\r\n";
    let (head, reply) = (parse(bare), Reply::default());
    let got = freshened((&old_head, old.as_bytes()), (&head, bare.as_bytes()), &reply, 0, NOW);
    assert!(memchr::memmem::find(&got, DATE.as_bytes()).is_some());
    assert!(memchr::memmem::find(&got, b"Age:").is_none());
}

#[test]
fn section_3_4_parts() {
    let fields = "Cache-Control: max-age=5\r\nContent-Range: bytes 100-199/1000\r\n";
    let of = |key: &[u8]| {
        let facts = Facts { status: 206, key, said: 0, delay: 0 };
        reply(fields).rules(&facts, &Asked::default(), NOW).forbidden
    };
    assert!(of(b"/a") && of(b"/abytes=0-99") && of(b"/abytes=1000-1099"));
    assert!(!of(b"/abytes=100-199"));
}

#[test]
fn section_3_5_credentials() {
    let closed = Asked { authorized: true, ..Asked::default() };
    for (control, kept) in [
        ("max-age=5", false),
        ("max-age=5, public", true),
        ("s-maxage=5", true),
        ("max-age=5, must-revalidate", true),
        ("max-age=5, proxy-revalidate", false),
    ] {
        let rules = rules_of(200, &format!("Cache-Control: {control}\r\n"), &closed, 0);
        assert_eq!(!rules.forbidden, kept, "{control}");
    }
}

#[test]
fn section_4_2_1_lifetimes() {
    for (fields, expected) in [
        ("Cache-Control: max-age=60\r\n", Some(60)),
        ("Cache-Control: max-age=60, s-maxage=5\r\n", Some(5)),
        ("Cache-Control: max-age=60\r\nExpires: 0\r\n", Some(60)),
        ("Expires: Sun, 09 Sep 2001 01:46:45 GMT\r\n", Some(5)),
        (
            "Expires: Sun, 09 Sep 2001 01:46:45 GMT\r\nETag: \"a\"\r\nDate: Sun, 09 Sep 2001 \
          01:46:38 GMT\r\n",
            Some(5),
        ),
        ("Expires: 0\r\n", None),
        ("Expires: 0\r\nETag: \"a\"\r\n", Some(0)),
        ("Cache-Control: max-age=60\r\nAge: 20\r\n", Some(40)),
        ("Cache-Control: max-age=60\r\nAge: 70\r\n", None),
        ("Cache-Control: max-age=60\r\nDate: Sun, 09 Sep 2001 01:46:30 GMT\r\n", Some(50)),
        ("Cache-Control: max-age=x\r\n", None),
        ("X-Accel-Expires: 9\r\nCache-Control: max-age=60\r\n", Some(9)),
        ("X-Accel-Expires: @1000000008\r\nExpires: 0\r\n", Some(8)),
        ("X-Accel-Expires: 9\r\nCache-Control: no-store\r\n", None),
        ("X-Accel-Expires: 9\r\nCache-Control: no-cache\r\nETag: \"a\"\r\n", Some(-1)),
    ] {
        assert_eq!(fresh(200, fields), expected, "{fields}");
    }
}

#[test]
fn section_4_2_2_what_is_only_supposed() {
    let changed = "Last-Modified: Sat, 08 Sep 2001 01:46:40 GMT\r\n";
    assert_eq!(fresh(200, changed), Some(8640));
    assert_eq!(fresh(404, changed), Some(8640));
    assert_eq!(fresh(302, changed), None);
    assert_eq!(fresh(302, &format!("{changed}Cache-Control: public\r\n")), Some(8640));
    assert_eq!(fresh(200, "Last-Modified: Sat, 08 Sep 1990 01:46:40 GMT\r\n"), Some(86_400));
    // The configuration's word comes before it, and behind the response's.
    let none = Asked::default();
    assert_eq!(rules_of(200, changed, &none, 7).valid, NOW + 7);
    assert_eq!(rules_of(500, "", &none, 7).valid, NOW + 7);
    assert_eq!(rules_of(200, "Cache-Control: max-age=3\r\n", &none, 7).valid, NOW + 3);
}

#[test]
fn section_4_2_3_age() {
    let age = |fields: &str, delay| reply(fields).initial_age(delay, NOW);
    assert_eq!(age("", 0), 0);
    assert_eq!(age("Age: 5\r\n", 3), 8);
    assert_eq!(age("Age: 5, 9\r\n", 0), 5);
    assert_eq!(age("Age: -5\r\n", 0), 0);
    assert_eq!(age("Date: Sun, 09 Sep 2001 01:46:30 GMT\r\n", 3), 10);
    assert_eq!(age("Date: Sun, 09 Sep 2001 01:46:50 GMT\r\n", 3), 3);
    let header = header("");
    assert_eq!(current_age(&header, 5, NOW + 7), 12);
    assert_eq!(current_age(&header, 5, NOW - 7), 5);
}

fn header(fields: &str) -> Header {
    let rules = rules_of(200, fields, &Asked::default(), 0);
    Header {
        valid: rules.valid,
        updating: rules.updating,
        error: rules.error,
        last_modified: -1,
        date: NOW,
        etag: Bytes::from_static(b"\"e\""),
        vary: Bytes::new(),
        variant: [0; 16],
        key: Bytes::from_static(KEY),
        head: None,
        body_len: 5,
        family: 0,
        rfc9111: true,
        room: 0,
    }
}

/// The verdict for a request so many seconds after a response came.
fn used(fields: &str, wish: &str, later: i64) -> Reuse {
    let fields = format!("{fields}ETag: \"e\"\r\n");
    reuse(&header(&fields), || reply(&fields), &asked(wish), NOW + later)
}

const fn ask(updating: bool, error: bool, strict: bool) -> Reuse {
    Reuse::Ask { updating, error, strict }
}

#[test]
fn section_4_and_4_2_4_what_is_served() {
    let five = "Cache-Control: max-age=5\r\n";
    assert_eq!(used(five, "", 4), Reuse::Fresh);
    assert_eq!(used(five, "", 5), ask(false, false, false));
    for strict in ["must-revalidate", "proxy-revalidate", "s-maxage=5"] {
        let fields = format!("Cache-Control: max-age=5, {strict}, stale-if-error=100\r\n");
        assert_eq!(used(&fields, "", 4), Reuse::Fresh);
        for wish in ["", "max-stale", "stale-if-error=100"] {
            assert_eq!(used(&fields, wish, 6), ask(false, false, true), "{strict} {wish}");
        }
    }
    assert_eq!(used("Cache-Control: no-cache\r\n", "max-stale", 0), ask(false, false, true));
    // Kept while other rules held.
    let other = Header { rfc9111: false, ..header(five) };
    assert_eq!(reuse(&other, || reply(five), &asked(""), NOW), ask(false, false, true));
}

#[test]
fn section_5_2_1_wishes_of_clients() {
    let ten = "Cache-Control: max-age=10\r\nAge: 2\r\n";
    let old = |fields: &str| format!("{fields}ETag: \"e\"\r\n");
    assert_eq!(used(ten, "no-cache", 1), ask(false, false, true));
    assert_eq!(used(ten, "max-age=5", 3), Reuse::Fresh);
    assert_eq!(used(ten, "max-age=5", 4), ask(false, true, false));
    assert_eq!(used(ten, "max-age=0", 1), ask(false, true, false));
    assert_eq!(used(ten, "min-fresh=3", 5), Reuse::Fresh);
    assert_eq!(used(ten, "min-fresh=4", 5), ask(false, true, false));
    assert_eq!(used(ten, "max-stale", 100), Reuse::Accepted);
    assert_eq!(used(ten, "max-stale=3", 11), Reuse::Accepted);
    assert_eq!(used(ten, "max-stale=3", 12), ask(false, false, false));
    assert_eq!(used(ten, "max-stale=3, max-age=5", 11), ask(false, false, false));
    assert!(asked("only-if-cached").only_if_cached());
    // Section 5.4.
    let pragma = |lines: &[&'static str]| {
        let lines = lines.iter().map(|l| l.as_bytes());
        let asked = Asked::read(lines, Some(b"no-cache"), false);
        reuse(&header(&old(ten)), || reply(ten), &asked, NOW)
    };
    assert_eq!(pragma(&[]), ask(false, false, true));
    assert_eq!(pragma(&["max-stale=1"]), Reuse::Fresh);
}

#[test]
fn section_5_2_2_3_must_understand() {
    let fields = "Cache-Control: must-understand, no-store, max-age=5\r\n";
    assert_eq!(fresh(200, fields), Some(5));
    assert_eq!(fresh(599, fields), None);
    assert_eq!(fresh(599, "Cache-Control: must-understand, max-age=5\r\n"), None);
    assert_eq!(fresh(599, "Cache-Control: max-age=5\r\n"), Some(5));
}

#[test]
fn rfc_5861_stale_responses() {
    let fields = "Cache-Control: max-age=5, stale-while-revalidate=10\r\n";
    assert_eq!(used(fields, "", 14), ask(true, false, false));
    assert_eq!(used(fields, "", 15), ask(false, false, false));
    assert_eq!(used(fields, "max-age=1", 6), ask(false, false, false));
    let fields = "Cache-Control: max-age=5, stale-if-error=10\r\n";
    assert_eq!(used(fields, "", 14), ask(false, true, false));
    assert_eq!(used(fields, "", 15), ask(false, false, false));
    assert_eq!(used(fields, "stale-if-error=20", 24), ask(false, true, false));
}

#[test]
fn rfc_9213_targeted_fields() {
    let fresh = |fields: &str| fresh(200, fields);
    assert_eq!(fresh("CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n"), Some(60));
    assert_eq!(fresh("CDN-Cache-Control: no-store\r\nCache-Control: max-age=60\r\n"), None);
    // Of no use, and therefore not there.
    assert_eq!(fresh("CDN-Cache-Control: max-age=\r\nCache-Control: max-age=60\r\n"), Some(60));
    assert_eq!(fresh("CDN-Cache-Control: \r\nCache-Control: max-age=60\r\n"), Some(60));
    assert_eq!(
        fresh(
            "CDN-Cache-Control: must-revalidate\r\nCDN-Cache-Control: max-age=7\r\n\
               Expires: 0\r\n"
        ),
        Some(7)
    );
}

#[test]
fn section_4_3_4_what_a_304_is_about() {
    let about = |fields: &str, of_head| {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        is_about(&header(""), &parse(&text), text.as_bytes(), of_head)
    };
    assert!(about("ETag: \"e\"\r\n", false) && about("ETag: W/\"e\"\r\n", false));
    assert!(about("", false));
    assert!(!about("ETag: \"f\"\r\n", false));
    assert!(!about("Last-Modified: Sat, 08 Sep 2001 01:46:40 GMT\r\n", false));
    // Section 4.3.5.
    assert!(about("ETag: \"e\"\r\nContent-Length: 5\r\n", true));
    assert!(!about("ETag: \"e\"\r\nContent-Length: 6\r\n", true));
    assert!(!about("Content-Length: 5\r\n", true));
}

#[test]
fn section_4_4_invalidation() {
    for (method, status, expected) in [
        (Method::Post, 200, true),
        (Method::Other, 303, true),
        (Method::Delete, 204, true),
        (Method::Put, 404, false),
        (Method::Get, 200, false),
        (Method::Options, 200, false),
    ] {
        assert_eq!(invalidates(method, status), expected, "{method:?} {status}");
    }
    let hosts: &[&[u8]] = &[b"a.example:80", b"backend", b""];
    let other = |value: &str| {
        same_origin(value.as_bytes(), b"/x/y?z", hosts).map(|p| String::from_utf8(p).unwrap())
    };
    for (value, expected) in [
        ("/b?c#d", Some("/b?c")),
        ("http://A.example:80/b", Some("/b")),
        ("https://backend", Some("/")),
        ("//backend?x", Some("/?x")),
        ("http://b.example/b", None),
        ("http:///b", None),
        ("w", Some("/x/w")),
        ("../w?q", Some("/w?q")),
        ("../../w", None),
        ("mailto:x", None),
        ("", None),
    ] {
        assert_eq!(other(value).as_deref(), expected, "{value}");
    }
    let key = |own: &[u8], other: &[u8]| key_of_other(b"httpa/b?c", own, other);
    assert_eq!(key(b"/b?c", b"/d").as_deref(), Some(&b"httpa/d"[..]));
    assert_eq!(key(b"/x", b"/d"), None);
    assert_eq!(key(b"", b"/d"), None);
}

#[test]
fn expiry_is_in_gmt_and_the_first_age_counts() {
    for (value, lifetime) in [
        ("Sun, 09 Sep 2001 01:46:45 GMT", 5),
        ("Sun, 09 SEP 2001 01:46:45 gmt", 5),
        ("Sun Sep  9 01:46:45 2001", 5),
        ("Sunday, 09-Sep-01 01:46:45 GMT", 5),
        ("Sun, 09 Sep 2001 01:46:45 UTC", -1),
        ("Sun, 09 Sep 2001 01:46:45 AEST", -1),
        ("Sun, 09 Sep 2001 01:46:45", -1),
    ] {
        let fields = format!("{DATE}Expires: {value}\r\nETag: \"x\"\r\n");
        let fresh = fresh(200, &fields);
        assert_eq!(fresh.is_some_and(|secs| secs == 5), lifetime == 5, "{value}: {fresh:?}");
    }
    for (ages, lifetime) in [("Age: 0\r\nAge: 50\r\n", 60), ("Age: 50\r\nAge: 0\r\n", 10)] {
        let fields = format!("{DATE}Cache-Control: max-age=60\r\n{ages}");
        assert_eq!(fresh(200, &fields), Some(lifetime), "{ages}");
    }
}
