use super::*;
use crate::tests::pair::{client, connect, server};
use rustls::HandshakeKind::{Full, Resumed};
use rustls::version::{TLS12, TLS13};

const NOW: u64 = 1_800_000_000;
const TIMEOUT: u32 = 300;
const SESSION: &[u8] = b"a session with its secret";

fn context(text: &str) -> SessionContext {
    SessionContext::new([text.as_bytes()])
}

fn key(fill: u8, len: usize) -> TicketKey {
    TicketKey::from_bytes(&vec![fill; len]).unwrap()
}

fn with_keys(keys: Vec<TicketKey>) -> Tickets {
    Tickets::with_keys(keys, context("a"), TIMEOUT).unwrap()
}

#[test]
fn what_is_sealed_opens_until_it_expires() {
    for len in [48, 80] {
        let tickets = with_keys(vec![key(1, len)]);
        let ticket = tickets.seal(NOW, SESSION).unwrap();
        assert_eq!(ticket.len(), 16 + 12 + 8 + SESSION.len() + 16);
        assert_ne!(ticket, tickets.seal(NOW, SESSION).unwrap());
        let last = NOW + u64::from(TIMEOUT) - 1;
        for now in [NOW, last, NOW - 1000] {
            assert_eq!(tickets.open(now, &ticket).unwrap(), SESSION);
        }
        assert_eq!(tickets.open(last + 1, &ticket), None);
    }
    assert!(Tickets::with_keys(Vec::new(), context("a"), TIMEOUT).is_none());
}

#[test]
fn changed_and_cut_tickets_do_not_open() {
    let tickets = with_keys(vec![key(1, 80)]);
    let ticket = tickets.seal(NOW, SESSION).unwrap();
    for n in 0..ticket.len() {
        assert_eq!(tickets.open(NOW, &ticket[..n]), None, "cut to {n}");
        for bit in 0..8 {
            let mut forged = ticket.clone();
            forged[n] ^= 1 << bit;
            assert_eq!(tickets.open(NOW, &forged), None, "byte {n}, bit {bit}");
        }
    }
    let mut longer = ticket.clone();
    longer.push(0);
    assert_eq!(tickets.open(NOW, &longer), None);
    assert_eq!(tickets.open(NOW, &[]), None);
}

#[test]
fn a_session_of_one_server_is_none_of_another() {
    let shared = SharedKeys::new().unwrap();
    let both = |name| {
        let files = Tickets::with_keys(vec![key(1, 48)], context(name), TIMEOUT).unwrap();
        [files, Tickets::with_shared(&shared, context(name), TIMEOUT)]
    };
    let (one, other) = (both("one"), both("other"));
    for (one, other) in one.iter().zip(&other) {
        let ticket = one.seal(NOW, SESSION).unwrap();
        assert!(one.open(NOW, &ticket).is_some());
        assert_eq!(other.open(NOW, &ticket), None);
    }
    let ticket = one[0].seal(NOW, SESSION).unwrap();
    assert_eq!(one[1].open(NOW, &ticket), None);
}

#[test]
fn the_first_file_encrypts_and_all_decrypt() {
    let old = with_keys(vec![key(1, 48)]).seal(NOW, SESSION).unwrap();
    let both = with_keys(vec![key(2, 80), key(1, 48)]);
    assert_eq!(both.open(NOW, &old).unwrap(), SESSION);
    let new = both.seal(NOW, SESSION).unwrap();
    assert_eq!(new[..16], [2; 16]);
    let after = with_keys(vec![key(2, 80)]);
    assert_eq!(after.open(NOW, &new).unwrap(), SESSION);
    assert_eq!(after.open(NOW, &old), None);
    // Keys of one name whose secrets differ.
    let (mut a, mut b) = ([7; 48], [7; 48]);
    (a[20], b[20]) = (1, 2);
    let of = |content: &[u8]| TicketKey::from_bytes(content).unwrap();
    let ticket = with_keys(vec![of(&a)]).seal(NOW, SESSION).unwrap();
    assert_eq!(with_keys(vec![of(&b)]).open(NOW, &ticket), None);
    assert!(with_keys(vec![of(&b), of(&a)]).open(NOW, &ticket).is_some());
}

#[test]
fn files_in_nginx_s_words() {
    let folder = testkit::Folder::new("ticket-keys");
    let path = folder.join("key");
    let shown = path.display().to_string();
    let load = || TicketKey::load(&path).err().map(|e| e.to_string());
    let missing = format!("open() \"{shown}\" failed (2: No such file or directory)");
    assert_eq!(load(), Some(missing));
    for len in [0, 47, 49, 64, 79, 81, 4096] {
        std::fs::write(&path, vec![1; len]).unwrap();
        assert_eq!(load(), Some(format!("\"{shown}\" must be 48 or 80 bytes")), "{len}");
    }
    for len in [48, 80] {
        std::fs::write(&path, vec![1; len]).unwrap();
        let ticket = with_keys(vec![TicketKey::load(&path).unwrap()]).seal(NOW, SESSION).unwrap();
        assert!(with_keys(vec![key(1, len)]).open(NOW, &ticket).is_some());
    }
}

fn name_of(ticket: &[u8]) -> [u8; 16] {
    *ticket.first_chunk().unwrap()
}

#[test]
fn shared_keys_are_replaced_in_time() {
    let keys = SharedKeys::new().unwrap();
    let tickets = Tickets::with_shared(&keys, context("a"), TIMEOUT);
    let timeout = u64::from(TIMEOUT);
    let first = tickets.seal(NOW, SESSION).unwrap();
    let late = tickets.seal(NOW + timeout - 1, SESSION).unwrap();
    assert_eq!(name_of(&first), name_of(&late));
    let second = tickets.seal(NOW + timeout, SESSION).unwrap();
    assert_ne!(name_of(&first), name_of(&second));
    // The previous key decrypts what has not expired.
    assert_eq!(tickets.open(NOW + timeout, &first), None);
    assert!(tickets.open(NOW + timeout, &late).is_some());
    assert!(tickets.open(NOW + timeout * 2 - 2, &late).is_some());
    assert_eq!(tickets.open(NOW + timeout * 2 - 1, &late), None);
    // Nothing is left of a key after that, for whatever timeout a ticket is opened.
    let third = tickets.seal(NOW + timeout * 2, SESSION).unwrap();
    let opens = |now, ticket: &[u8]| {
        let keys = keys.carried_over();
        Tickets::with_shared(&keys, context("a"), u32::MAX).open(now, ticket).is_some()
    };
    assert!(!opens(NOW + timeout * 2, &late));
    assert!(opens(NOW + timeout * 2, &second) && opens(NOW + timeout * 2, &third));
    // Nor after a long time in which no key was needed.
    let fourth = tickets.seal(NOW + timeout * 9, SESSION).unwrap();
    assert!(!opens(NOW + timeout * 9, &third) && opens(NOW + timeout * 9, &fourth));
}

#[test]
fn the_longest_timeout_decides_and_a_reload_may_shorten_it() {
    let keys = SharedKeys::new().unwrap();
    let short = Tickets::with_shared(&keys, context("a"), 10);
    let long = Tickets::with_shared(&keys, context("b"), 1000);
    let ticket = long.seal(NOW, SESSION).unwrap();
    assert_eq!(name_of(&short.seal(NOW + 999, SESSION).unwrap()), name_of(&ticket));
    assert!(long.open(NOW + 999, &ticket).is_some());
    assert_eq!((short.lifetime(), long.lifetime()), (10, 1000));
    let next = keys.carried_over();
    let short = Tickets::with_shared(&next, context("a"), 10);
    let ticket = short.seal(NOW + 5, SESSION).unwrap();
    assert_eq!(name_of(&ticket), name_of(&long.seal(NOW + 5, SESSION).unwrap()));
    assert_ne!(name_of(&ticket), name_of(&short.seal(NOW + 15, SESSION).unwrap()));
    assert!(short.open(NOW + 14, &ticket).is_some());
}

#[test]
fn processes_that_share_keys_see_each_other_s_replacements() {
    let mine = SharedKeys::new().unwrap();
    let other = mine.carried_over();
    let of = |keys| Tickets::with_shared(keys, context("a"), TIMEOUT);
    let (mine, other) = (of(&mine), of(&other));
    for step in 0..10 {
        let now = NOW + step * u64::from(TIMEOUT);
        let ticket = mine.seal(now, SESSION).unwrap();
        // By the other's clock the key that it has seen need not be replaced yet.
        assert_eq!(other.open(now - 1, &ticket).unwrap(), SESSION);
        assert_eq!(name_of(&other.seal(now - 1, SESSION).unwrap()), name_of(&ticket));
    }
}

#[test]
fn a_clock_that_was_set_back_ends_no_rotation() {
    let keys = SharedKeys::new().unwrap();
    let tickets = Tickets::with_shared(&keys, context("a"), TIMEOUT);
    let future = tickets.seal(NOW * 2, SESSION).unwrap();
    let today = tickets.seal(NOW, SESSION).unwrap();
    assert_ne!(name_of(&future), name_of(&today));
    let tomorrow = tickets.seal(NOW + 86400, SESSION).unwrap();
    assert_ne!(name_of(&tomorrow), name_of(&today));
}

#[test]
fn what_is_too_long_makes_no_ticket() {
    let tickets = with_keys(vec![key(1, 80)]);
    let long = vec![0; SESSION_MAX + 1];
    assert_eq!(tickets.seal(NOW, &long), None);
    let ticket = tickets.seal(NOW, &long[1..]).unwrap();
    assert_eq!(tickets.open(NOW, &ticket).unwrap(), long[1..]);
    let week = Tickets::with_keys(vec![key(1, 80)], context("a"), u32::MAX).unwrap();
    assert_eq!(week.lifetime(), 604_800);
}

#[test]
fn handshakes_resume_with_tickets() {
    for version in [&TLS12, &TLS13] {
        let keys = SharedKeys::new().unwrap();
        let of = |name: &str| {
            let mut server = server(version);
            server.ticketer = Tickets::with_shared(&keys, context(name), TIMEOUT).producer();
            Arc::new(server)
        };
        let (one, same, other) = (of("one"), of("one"), of("other"));
        let client = Arc::new(client(version));
        assert_eq!(connect(&client, &one), Full);
        assert_eq!(connect(&client, &same), Resumed);
        assert_eq!(connect(&client, &other), Full);
    }
}
