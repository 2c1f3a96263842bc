//! A directory that is away for a month, and clocks that jump: on a simulated clock.

use std::path::Path;

use base::log::{MemorySink, capture};
use event::sim::{self, Faults, Plan};
use event::testing::listen;
use event::{Deadline, Listener};
use mem::Chain;
use pki::issue::KeyKind;
use pki::pem::Secret;
use proto::acme::Identifier;
use testkit::certificates::{Draft, Key, KeyKind as TestKind, der};
use upstream::resolver::Resolving;
use upstream::ssl::SslDraft;

use super::*;
use crate::folder::tests::Scratch;
use crate::issuer::{AccountKey, Proof, Secrets};
use crate::zone::Shared;

const DAY: i64 = 86_400;

/// The first second of simulations: 14 November 2023.
const START: i64 = 1_700_000_000;

/// An issuer with one order and that folder; its directory is on this port.
pub(crate) fn issuer(folder: &Path, port: u16) -> Rc<Issuer> {
    let tls = SslDraft { verify: Some(false), ..SslDraft::default() };
    let names = vec![Identifier::Dns("a.test".to_owned())];
    let order = Rc::new(Order::new("one", names, KeyKind::Ecdsa(256)));
    Rc::new(Issuer {
        name: "one".to_owned(),
        uri: format!("http://127.0.0.1:{port}/dir"),
        account_key: AccountKey::Generate(KeyKind::Ecdsa(256)),
        proof: Proof::Http,
        contacts: Vec::new(),
        common_name_in_csr: false,
        external: None,
        preferred_chain: None,
        profile: None,
        tls: Rc::new(tls.finish("acme", &["http/1.1"]).unwrap()),
        folder: Some(folder.to_owned()),
        shared: None,
        agrees: true,
        lookup: Resolving::default().lookup(),
        orders: vec![order],
        secrets: Secrets::default(),
    })
}

/// Its keeper, and its view.
fn keeper(folder: &Path, port: u16) -> (Keeper, Rc<Board>, Rc<MemorySink>) {
    let (log, lines) = capture(Level::Notice);
    let issuer = issuer(folder, port);
    let key = &*issuer.orders[0].key;
    let board = Rc::new(Board::new(&Rc::new(Shared::of_tests()), &[key], &log));
    (Keeper::new(&issuer, &board, &log), board, lines)
}

/// A certificate from 1 October to 1 December 2023: its renewal is due, and it ends on the
/// seventeenth day.
fn put_certificate(keeper: &Keeper) -> Pair {
    let key = Key::generate(TestKind::P256);
    let mut draft = Draft::new("CN=a.test", "CN=a.test", &key);
    draft.validity = ("231001000000Z".to_owned(), "231201000000Z".to_owned());
    let chain = der::pem("CERTIFICATE", &draft.sign(&key)).into_bytes();
    let pair = Pair { chain, private: Secret::new(key.pem().into_bytes()) };
    let id = &keeper.issuer.orders[0].id;
    keeper.folder.prepare();
    keeper.folder.write(&format!("{id}.crt"), &pair.chain);
    keeper.folder.write(&format!("{id}.key"), &pair.private);
    pair
}

/// Notes the seconds of connections; answers once `answer` has something to say.
async fn directory(listener: Listener, asked: Rc<RefCell<Vec<i64>>>, answer: Rc<RefCell<String>>) {
    loop {
        let sock = listener.accept().await.unwrap().sock;
        asked.borrow_mut().push(now());
        let until = Deadline::in_ms(1000);
        let answer = answer.borrow().clone();
        if !answer.is_empty() {
            let _ = sock.recv(1, until).await;
            let mut chain = Chain::new();
            chain.write(answer.as_bytes());
            let _ = sock.send(&mut chain, until).await;
        }
    }
}

/// Runs a keeper for so long.
async fn run_for(keeper: Keeper, secs: i64) {
    let gate = Gate::new();
    let closing = gate.clone();
    event::spawn(async move {
        event::sleep(secs.cast_unsigned() * 1000).await;
        closing.close();
    });
    keeper.run(gate).await;
}

#[test]
fn a_directory_that_is_away_for_thirty_days() {
    let ran = sim::run(Plan::new(0, Faults::NONE), async {
        let scratch = Scratch::new("away");
        let (listener, addr) = listen().unwrap();
        let port = addr.port();
        let (asked, answer) =
            (Rc::<RefCell<Vec<i64>>>::default(), Rc::<RefCell<String>>::default());
        event::spawn(directory(listener, asked.clone(), answer.clone()));
        let (first, _, lines) = keeper(&scratch.0, port);
        let pair = put_certificate(&first);
        // A restart on the third day changes nothing.
        run_for(first, 3 * DAY).await;
        let told = lines.take();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("[warn]") && told.contains("reading the directory: "), "{told}");
        let (second, board, lines) = keeper(&scratch.0, port);
        let order = second.issuer.orders[0].clone();
        run_for(second, 27 * DAY).await;
        let told = lines.take();
        let kinds = ["ends soon (Fri, 01 Dec 2023 00:00:00 GMT)", "has expired, and is served on"];
        for (line, kind) in told.lines().zip(kinds) {
            assert!(line.contains(kind) && line.contains("reading the directory: "), "{told}");
        }
        assert_eq!(told.lines().count(), kinds.len(), "{told}");
        // It was served all the time, and the view says what is wrong.
        let shown = board.shown(&order.key).unwrap();
        assert_eq!((&shown.chain, &shown.private), (&pair.chain, &pair.private));
        assert!(shown.state.contains("next attempt in"), "{}", shown.state);
        // Requests follow the back-off: a minute, ten, a hundred, then a day, each up to a tenth
        // longer.
        let times = asked.take();
        assert_eq!(times[0], START);
        let pauses: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let wanted = [60, 600, 6000].into_iter().chain(std::iter::repeat(DAY));
        for (pause, wanted) in pauses.iter().zip(wanted) {
            assert!((wanted..=wanted * 11 / 10 + 1).contains(pause), "{pauses:?}");
        }
        assert!((30..=34).contains(&times.len()), "{} requests", times.len());
        assert_eq!(shown.failures, i64::try_from(times.len()).unwrap());
        // It is back.
        let url = |path: &str| format!("http://127.0.0.1:{port}/{path}");
        let functions = ["newNonce", "newAccount", "newOrder"];
        let members: Vec<_> = functions.map(|name| format!("\"{name}\":\"{}\"", url(name))).into();
        let body = format!("{{{}}}", members.join(","));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
        answer.replace(format!("{head}Connection: close\r\n\r\n{body}"));
        let (third, board, lines) = keeper(&scratch.0, port);
        third.folder.write("account.url", url("account").as_bytes());
        run_for(third, 2 * DAY).await;
        let told = lines.take();
        assert!(told.contains("the server of \"one\" answers again"), "{told}");
        // The directory is one, and nothing else of it works: that is the order's own failure.
        let shown = board.shown(&order.key).unwrap();
        assert!(!shown.state.contains("reading the directory"), "{}", shown.state);
        assert!(shown.failures < 8, "{} failures", shown.failures);
    });
    ran.unwrap();
}

#[test]
fn who_leads_removes_what_was_left_unfinished() {
    let scratch = Scratch::new("left");
    let (keeper, _, _) = keeper(&scratch.0, 1);
    let pair = put_certificate(&keeper);
    let left = scratch.0.join(".account.key.123");
    std::fs::write(&left, &*pair.private).unwrap();
    keeper.lead();
    assert!(!left.exists());
}

#[test]
fn a_program_that_hangs_does_not_hold_up_orders() {
    let ran = event::Loop::new(event::Options::default()).unwrap().block_on(async {
        let scratch = Scratch::new("hangs");
        let below = testkit::Folder::new("hangs-program");
        let program = below.join("dns.sh");
        testkit::write_script(&program, "#!/bin/sh\nexec sleep 1000\n");
        let (mut keeper, _, lines) = keeper(&scratch.0, 1);
        Rc::get_mut(&mut keeper.issuer).unwrap().proof = Proof::Dns(program);
        keeper.folder.prepare();
        let file = format!("{}.challenges", keeper.issuer.orders[0].id);
        keeper.folder.write(&file, b"dns-01 a.test x.y\ndns-01 b.test x.z\n");
        keeper.clean_up_within(20).await;
        assert!(lines.take().contains("TXT records are not removed after"));
        // The first was tried, and none is forgotten.
        let left = keeper.folder.read(&file).unwrap();
        assert_eq!(left[..], *b"dns-01 a.test x.y 1\ndns-01 b.test x.z\n");
    });
    ran.unwrap();
}

#[test]
fn files_of_orders_that_are_configured_no_more_go_after_their_end() {
    let scratch = Scratch::new("ended");
    let (keeper, _, _) = keeper(&scratch.0, 1);
    let at = |secs: i64| base::time::pin(1, secs.cast_unsigned() * 1000);
    at(START);
    let pair = put_certificate(&keeper);
    let (folder, settings) = (&keeper.folder, keeper.settings());
    let own = keeper.issuer.orders[0].id.clone();
    let progress = Progress { settings, ..Progress::default() };
    let other = Progress { settings: "https://other.test x".to_owned(), ..Progress::default() };
    let account = keeper.account.clone();
    for (id, progress) in
        [(&*own, &progress), ("gone", &progress), ("other", &other), (&account, &progress)]
    {
        folder.write(&format!("{id}.state"), &progress.to_text());
        folder.write(&format!("{id}.crt"), &pair.chain);
        folder.write(&format!("{id}.key"), &pair.private);
    }
    // Without a certificate, the age of the file counts, which is of the real clock.
    folder.write("never.state", &progress.to_text());
    // The certificate ends on the seventeenth day.
    at(START + 46 * DAY);
    keeper.drop_ended();
    assert_eq!(folder.list("").len(), 13);
    at(START + 48 * DAY);
    keeper.drop_ended();
    let mut left = folder.list("");
    left.sort();
    assert!(!left.iter().any(|name| name.starts_with("gone.")), "{left:?}");
    assert_eq!(left.len(), 10, "{left:?}");
    let real = folder.changed_at("never.state").unwrap();
    at(real + 29 * DAY);
    keeper.drop_ended();
    assert!(!folder.has("never.state", None));
    at(real + 31 * DAY);
    keeper.drop_ended();
    assert!(folder.has("never.state", None));
    base::time::unpin();
}

#[test]
fn clocks_that_jump() {
    const YEAR: i64 = 365 * DAY;
    let scratch = Scratch::new("jumps");
    let (keeper, _, _) = keeper(&scratch.0, 1);
    put_certificate(&keeper);
    let (settings, order) = (keeper.settings(), keeper.issuer.orders[0].clone());
    let at = |secs: i64| base::time::pin(1, secs.cast_unsigned() * 1000);
    // Of a time when the clock was a year ahead: all that was noted lies in the future.
    at(START + YEAR);
    let mut failed = keeper.progress(&order.id, &settings);
    failed.backoff.failed(now(), 0, None, false);
    failed.early.failed(now(), 0, None, false);
    (failed.check, failed.renew) = (now() + DAY, now() + DAY);
    keeper.save(&order.id, &failed);
    at(START);
    let mut progress = keeper.progress(&order.id, &settings);
    assert_eq!((progress.backoff.left(now()), progress.check), (60, 0));
    assert_eq!(keeper.due(&order, &mut progress), 60);
    assert!((START - 30 * DAY..START + 30 * DAY).contains(&progress.renew));
    // The pause goes by, though the file is read at each look.
    at(START + 61);
    assert_eq!(keeper.due(&order, &mut keeper.progress(&order.id, &settings)), 0);
    // Set forward, everything is due, and no more than that.
    at(START + 10 * YEAR);
    assert_eq!(keeper.due(&order, &mut keeper.progress(&order.id, &settings)), 0);
    base::time::unpin();
}
