//! Exchanges with scripted servers in the same loop, on every event driver.

use std::cell::RefCell;
use std::rc::Rc;

use event::testing::{each_driver, listen, read_to_end, real_drivers};
use event::{Listener, Loop, Options};

use super::*;

/// Longer than any test takes, milliseconds.
const LONG: u64 = 600_000;

const CLIENT: Client = Client {
    connect_ms: LONG,
    timeout: Timeout::Exchange(LONG),
    head_max: 1000,
    body_max: Some(10_000),
};

/// The server's part once a request has arrived.
#[derive(Clone)]
enum Act {
    /// Answers.
    Say(Vec<u8>),
    /// Sends the text, then a byte at intervals of so many milliseconds, so many times.
    Trickle(&'static str, u64, usize),
    /// Waits for the end of the connection.
    Nothing,
}

fn say(text: &str) -> Act {
    Act::Say(text.into())
}

/// The requests that a server received, over all connections.
type Received = Rc<RefCell<Vec<String>>>;

async fn send_all(sock: &Sock, bytes: &[u8]) -> io::Result<()> {
    let mut out = Chain::new();
    out.write(bytes);
    sock.send(&mut out, Deadline::in_ms(LONG)).await
}

/// Receives a request without a body; false at the end of the connection.
async fn receive(sock: &Sock, received: &Received) -> bool {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        match sock.recv(1, Deadline::in_ms(LONG)).await {
            Ok(page) if !page.is_empty() => text.extend_from_slice(page.filled()),
            _ => return false,
        }
    }
    received.borrow_mut().push(String::from_utf8(text).unwrap());
    true
}

/// Serves one connection after the other: each has the acts of its list, one a request, and is
/// closed behind the last one.
async fn serve(listener: Listener, script: Vec<Vec<Act>>, received: Received) {
    for acts in script {
        let sock = listener.accept().await.unwrap().sock;
        for act in acts {
            assert!(receive(&sock, &received).await, "no request");
            match act {
                // A client that has seen enough closes.
                Act::Say(text) => drop(send_all(&sock, &text).await),
                Act::Nothing => assert_eq!(read_to_end(&sock, 0).await, b""),
                Act::Trickle(text, ms, times) => {
                    send_all(&sock, text.as_bytes()).await.unwrap();
                    for _ in 0..times {
                        event::sleep(ms).await;
                        if send_all(&sock, b"x").await.is_err() {
                            break;
                        }
                    }
                }
            }
        }
        sock.shutdown_write().unwrap();
        // Closing would reset the connection if bytes of the client were unread.
        event::spawn(async move { drop(sock.recv(1, Deadline::in_ms(LONG)).await) });
    }
}

fn server(script: Vec<Vec<Act>>) -> (SockAddr, Received) {
    let (listener, addr) = listen().unwrap();
    let received = Received::default();
    event::spawn(serve(listener, script, received.clone()));
    (addr, received)
}

fn each_real_driver<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        event_loop.block_on(body()).unwrap();
    }
}

fn get(method: &'static str, keeps_connection: bool) -> Message {
    let request =
        Request { method, target: b"/t", host: b"h", fields: &[], body: None, keeps_connection };
    request.to_message()
}

type Outcome = Result<(Response, Option<UpConn>), Error>;

async fn ask(client: Client, message: &Message, act: Act) -> Outcome {
    let (addr, _) = server(vec![vec![act]]);
    let conn = client.connect(&addr).await?;
    client.exchange(conn, message).await
}

/// The outcome of an exchange in a few words: status, body, and whether the connection is kept.
fn words(outcome: &Outcome) -> String {
    match outcome {
        Ok((response, conn)) => {
            let body = String::from_utf8_lossy(response.body.bytes());
            let missing = match &response.body {
                Body::Whole(_) => String::new(),
                Body::Part(_, missing) => format!(" {missing:?}"),
            };
            let kept = if conn.is_some() { " kept" } else { "" };
            format!("{} [{body}]{missing}{kept}", response.head.status)
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_framing_gives_the_whole_body() {
    each_driver(|| async {
        let keep = get("GET", true);
        for (message, text, result) in [
            (&keep, "200 X\r\nContent-Length: 3\r\n\r\nabc", "200 [abc] kept"),
            (&keep, "200 X\r\nContent-Length: 0\r\n\r\n", "200 [] kept"),
            (&keep, "404 X\r\nContent-Length: 3\r\n\r\nabcd", "404 [abc]"),
            (&keep, "200 X\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", "200 [abc]"),
            (
                &keep,
                "200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                "200 [abc] kept",
            ),
            (&keep, "200 X\r\n\r\nabc", "200 [abc]"),
            (&keep, "204 X\r\n\r\n", "204 [] kept"),
            (&get("HEAD", true), "200 X\r\nContent-Length: 3\r\n\r\n", "200 [] kept"),
            (&get("GET", false), "200 X\r\nContent-Length: 3\r\n\r\nabc", "200 [abc]"),
        ] {
            // Where a server's bytes come in one piece, what is surplus comes with the body.
            let outcome = ask(CLIENT, message, say(&format!("HTTP/1.1 {text}"))).await;
            let got = words(&outcome);
            assert!(got == result || text.ends_with("abcd") && got == "404 [abc] kept", "{got}");
        }
        let outcome = ask(CLIENT, &keep, say("HTTP/1.0 200 X\r\nContent-Length: 1\r\n\r\na")).await;
        assert_eq!(words(&outcome), "200 [a]");
    });
}

#[test]
fn requests_arrive_and_heads_are_parsed() {
    each_driver(|| async {
        let (addr, received) = server(vec![vec![say("HTTP/1.1 200 X\r\nX-A:  b\r\n\r\n")]]);
        let conn = CLIENT.connect(&addr).await.unwrap();
        let (response, _) = CLIENT.exchange(conn, &get("GET", false)).await.unwrap();
        let field = &response.head.fields[0];
        assert_eq!(
            (field.name.of(&response.text), field.value.of(&response.text)),
            (&b"X-A"[..], &b"b"[..])
        );
        let request = "GET /t HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert_eq!(*received.borrow(), [request]);
    });
}

#[test]
fn bodies_that_are_not_whole_say_why() {
    each_driver(|| async {
        let long = "x".repeat(10_001);
        for (text, result) in [
            ("Content-Length: 4\r\n\r\nabc".to_owned(), "200 [abc] Closed".to_owned()),
            ("Transfer-Encoding: chunked\r\n\r\n4\r\nabc".into(), "200 [abc] Closed".into()),
            ("Transfer-Encoding: chunked\r\n\r\n3\r\nabc!".into(), "200 [abc] Malformed".into()),
            (
                format!("Content-Length: 10001\r\n\r\n{long}"),
                format!("200 [{}] TooLong", &long[1..]),
            ),
            (format!("A: b\r\n\r\n{long}"), format!("200 [{}] TooLong", &long[1..])),
        ] {
            let text = format!("HTTP/1.1 200 X\r\n{text}");
            assert_eq!(words(&ask(CLIENT, &get("GET", true), say(&text)).await), result);
        }
    });
}

#[test]
fn heads_that_are_none_fail() {
    each_driver(|| async {
        let long = "x".repeat(1000);
        let keep = get("GET", true);
        for (text, result) in [
            ("", "the connection was closed"),
            ("HTTP/1.1 200 X\r\nA: b\r\n", "the connection was closed"),
            ("220 mail ESMTP\r\n", "upstream sent no valid HTTP/1.0 header"),
            (&format!("HTTP/1.1 200 X\r\nA: {long}"), "the head of the response is too long"),
            (
                &format!("HTTP/1.1 200 X\r\nA: {long}\r\n\r\n"),
                "the head of the response is too long",
            ),
            (
                &"HTTP/1.1 103 X\r\nLink: a\r\n\r\n".repeat(50),
                "the head of the response is too long",
            ),
        ] {
            assert_eq!(words(&ask(CLIENT, &keep, say(text)).await), result, "{text}");
        }
        let head = format!("HTTP/1.1 200 X\r\nContent-Length: 0\r\nA: {}\r\n\r\n", &long[42..]);
        assert_eq!(head.len(), 1000);
        assert_eq!(words(&ask(CLIENT, &keep, say(&head)).await), "200 [] kept");
    });
}

#[test]
fn interim_responses_are_left_out() {
    each_driver(|| async {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: a\r\n\r\n\
                    HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\na";
        let outcome = ask(CLIENT, &get("GET", true), say(text)).await;
        assert_eq!(words(&outcome), "200 [a] kept");
        assert_eq!(outcome.unwrap().0.head.fields.len(), 1);
        let alone = say("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(
            words(&ask(CLIENT, &get("GET", true), alone).await),
            "the connection was closed"
        );
    });
}

/// The server says nothing more, and would keep the connection open.
#[test]
fn without_a_body_max_the_head_is_enough() {
    each_driver(|| async {
        let client = Client { body_max: None, timeout: Timeout::Exchange(10_000), ..CLIENT };
        let acts = vec![Act::Trickle("HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\n", LONG, 1)];
        let (addr, _) = server(vec![acts]);
        let conn = client.connect(&addr).await.unwrap();
        let outcome = client.exchange(conn, &get("GET", true)).await;
        assert_eq!(words(&outcome), "500 [] NotAwaited");
        let whole = say("HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(words(&ask(client, &get("GET", true), whole).await), "200 [] kept");
    });
}

fn is_timed_out(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Error::Recv(e)) if e.kind() == io::ErrorKind::TimedOut)
}

#[test]
fn a_server_that_is_silent_times_out() {
    each_driver(|| async {
        for timeout in [Timeout::Exchange(200), Timeout::Operation(200)] {
            let client = Client { timeout, ..CLIENT };
            let outcome = ask(client, &get("GET", true), Act::Nothing).await;
            assert!(is_timed_out(&outcome), "{}", words(&outcome));
            let begun = Act::Trickle("HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\n", LONG, 1);
            let outcome = ask(client, &get("GET", true), begun).await;
            assert!(is_timed_out(&outcome), "{}", words(&outcome));
        }
    });
}

/// Every byte comes in time for itself, and the body does not for the whole exchange.
#[test]
fn the_limit_of_an_exchange_is_not_renewed() {
    each_driver(|| async {
        let trickle = Act::Trickle("HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n", 10, 100);
        let client = Client { timeout: Timeout::Exchange(300), ..CLIENT };
        let outcome = ask(client, &get("GET", true), trickle).await;
        assert!(is_timed_out(&outcome), "{}", words(&outcome));
    });
}

/// The whole takes longer than one operation may.
#[test]
fn the_limit_of_an_operation_is_renewed() {
    let ran = event::sim::run(event::sim::Plan::new(1, event::sim::Faults::NONE), async {
        let trickle = Act::Trickle("HTTP/1.1 200 X\r\nContent-Length: 20\r\n\r\n", 50, 20);
        let client = Client { timeout: Timeout::Operation(100), ..CLIENT };
        let outcome = ask(client, &get("GET", true), trickle).await;
        assert_eq!(words(&outcome), format!("200 [{}] kept", "x".repeat(20)));
    });
    ran.unwrap();
}

#[test]
fn a_kept_connection_carries_another_exchange() {
    each_driver(|| async {
        let ok = |text: &str| say(&format!("HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\n{text}"));
        let (addr, received) = server(vec![vec![ok("a"), ok("b")], vec![ok("c")]]);
        let keep = get("GET", true);
        let conn = CLIENT.connect(&addr).await.unwrap();
        let (response, conn) = CLIENT.exchange(conn, &keep).await.unwrap();
        assert_eq!(response.body, Body::Whole(b"a".to_vec()));
        let conn = conn.expect("the connection is kept");
        assert_eq!(conn.requests, 1);
        let (response, conn) = CLIENT.exchange(conn, &keep).await.unwrap();
        assert_eq!(response.body, Body::Whole(b"b".to_vec()));
        let conn = conn.expect("the connection is kept");
        // The server has closed it, or is about to.
        let outcome = CLIENT.exchange(conn, &keep).await;
        assert!(matches!(outcome, Err(Error::Closed | Error::Send(_) | Error::Recv(_))));
        let conn = CLIENT.connect(&addr).await.unwrap();
        let (response, _) = CLIENT.exchange(conn, &keep).await.unwrap();
        assert_eq!(response.body, Body::Whole(b"c".to_vec()));
        assert_eq!(received.borrow().len(), 3);
    });
}

/// On the kernel's sockets, as the tests of [`Transport::is_quiet`].
#[test]
fn an_unasked_response_is_not_taken_for_the_next_one() {
    each_real_driver(|| async {
        let (addr, received) = server(vec![vec![
            Act::Trickle("HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n", 1, 1),
            say("HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n"),
        ]]);
        let conn = CLIENT.connect(&addr).await.unwrap();
        let (_, conn) = CLIENT.exchange(conn, &get("GET", true)).await.unwrap();
        let conn = conn.expect("the connection is kept");
        conn.sock.readable(Deadline::in_ms(LONG)).await.unwrap();
        let outcome = CLIENT.exchange(conn, &get("GET", true)).await;
        assert!(matches!(outcome, Err(Error::Closed)), "{}", words(&outcome));
        assert_eq!(received.borrow().len(), 1);
    });
}

#[test]
fn nobody_listens() {
    each_driver(|| async {
        let any = SockAddr::ip(std::net::Ipv4Addr::LOCALHOST.into(), 0);
        let fd = os::socket::socket(&any, os::socket::Kind::Stream).unwrap();
        os::socket::bind(&fd, &any).unwrap();
        let addr = os::socket::local_addr(&fd).unwrap();
        let Err(error) = CLIENT.connect(&addr).await else { panic!("connected") };
        let message = error.to_string();
        assert!(message.starts_with("connect() failed (111: "), "{message}");
    });
}

/// A request under TLS does not wait for the acknowledgement of the handshake's end.
#[test]
fn small_writes_are_sent_at_once() {
    each_driver(|| async {
        let (_listener, addr) = listen().unwrap();
        let sock = CLIENT.connect_sock(&addr).await.unwrap();
        let fd = sock.fd().try_clone_to_owned().unwrap();
        assert!(std::net::TcpStream::from(fd).nodelay().unwrap());
    });
}
