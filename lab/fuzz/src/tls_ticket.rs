//! Session tickets that a client sends.

use std::sync::LazyLock;

use tls::{SessionContext, SharedKeys, TicketKey, Tickets};

const NOW: u64 = 1_800_000_000;
const TIMEOUT_S: u32 = 300;
const SESSION: &[u8] = b"a session with its secret";

/// Two kinds of keys, with a ticket of each.
static KINDS: LazyLock<Vec<(Tickets, Vec<u8>)>> = LazyLock::new(|| {
    let context = SessionContext::new([b"one".as_slice()]);
    let files = [[1; 80].as_slice(), &[2; 48]];
    let files = files.into_iter().filter_map(TicketKey::from_bytes).collect();
    let files = Tickets::with_keys(files, context, TIMEOUT_S).expect("two keys");
    let shared = SharedKeys::new().expect("memory can be mapped");
    let shared = Tickets::with_shared(&shared, context, TIMEOUT_S);
    let with_ticket = |tickets: Tickets| {
        let ticket = tickets.seal(NOW, SESSION).expect("there are random bytes");
        (tickets, ticket)
    };
    vec![with_ticket(files), with_ticket(shared)]
});

/// Nothing opens but a ticket as it was sealed, within its time; what is sealed comes back.
pub fn run(data: &[u8]) {
    if let Some(key) = TicketKey::from_bytes(data) {
        assert!(data.len() == 48 || data.len() == 80);
        let context = SessionContext::new([data]);
        let tickets = Tickets::with_keys(vec![key], context, TIMEOUT_S).expect("a key");
        let ticket = tickets.seal(NOW, data).expect("short enough");
        assert_eq!(tickets.open(NOW, &ticket).as_deref(), Some(data));
    }
    let Some((&kind, data)) = data.split_first() else { return };
    let (tickets, ticket) = &KINDS[usize::from(kind) % KINDS.len()];
    assert_eq!(tickets.open(NOW, data), None, "a forged ticket opens");

    let mut changed = ticket.clone();
    for edit in data.chunks_exact(2) {
        let at = usize::from(edit[0]) % changed.len();
        changed[at] ^= edit[1];
    }
    let (same, opened) = (changed == *ticket, tickets.open(NOW, &changed));
    assert_eq!(opened.as_deref(), same.then_some(SESSION));
    let cut = data.len().min(ticket.len() - 1);
    assert_eq!(tickets.open(NOW, &ticket[..cut]), None);

    if let Some(sealed) = tickets.seal(NOW, data) {
        let last = NOW + u64::from(TIMEOUT_S) - 1;
        assert_eq!(tickets.open(last, &sealed).as_deref(), Some(data));
        if kind & 2 == 0 {
            let key = vec![TicketKey::from_bytes(&[1; 80]).expect("the length of a key")];
            let other = SessionContext::new([b"other".as_slice()]);
            let other = Tickets::with_keys(key, other, TIMEOUT_S).expect("a key");
            assert_eq!(other.open(NOW, &sealed), None, "of another server");
        }
    }
}
