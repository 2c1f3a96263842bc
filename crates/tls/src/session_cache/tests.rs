use super::*;
use crate::tests::pair::{client, connect, server};
use rustls::HandshakeKind::{Full, Resumed};
use rustls::version::{TLS12, TLS13};
use shm::ZoneState;

const NOW: u64 = 1_800_000_000;
const ZONE: usize = 32 << 10;

fn context(text: &str) -> SessionContext {
    SessionContext::new([text.as_bytes()])
}

fn zone() -> SharedSessions {
    SharedSessions::new(b"one", ZONE).unwrap()
}

fn caches() -> [SessionCache; 2] {
    let shared = SessionCache::shared(&zone(), context("a"), 10);
    [shared, SessionCache::builtin(100, context("a"), 10)]
}

#[test]
fn sessions_come_back_until_they_expire() {
    for cache in caches() {
        assert!(cache.put(NOW, b"id", b"secret"));
        assert!(cache.put(NOW, b"", b""));
        assert_eq!(cache.get(NOW + 9, b"id").unwrap(), b"secret");
        assert_eq!(cache.get(NOW + 9, b"").unwrap(), b"");
        assert_eq!(cache.get(NOW, b"i"), None);
        assert_eq!(cache.get(NOW, &[7; 1000]), None);
        assert_eq!(cache.get(NOW + 10, b"id"), None);
        assert_eq!(cache.get(NOW, b"id"), None, "kept when it had expired");
        assert!(cache.put(NOW, b"id", b"one") && cache.put(NOW + 5, b"id", b"two"));
        assert_eq!(cache.get(NOW + 14, b"id").unwrap(), b"two");
    }
}

#[test]
fn taken_once() {
    for cache in caches() {
        assert!(cache.put(NOW, b"id", b"secret") && cache.put(NOW, b"late", b"secret"));
        assert_eq!(cache.take(NOW, b"id").unwrap(), b"secret");
        assert_eq!((cache.take(NOW, b"id"), cache.get(NOW, b"id")), (None, None));
        assert_eq!(cache.take(NOW + 10, b"late"), None);
        assert_eq!(cache.get(NOW, b"late"), None);
    }
}

#[test]
fn servers_share_a_zone_and_no_session() {
    let zone = zone();
    let one = SessionCache::shared(&zone, context("one"), 10);
    let other = SessionCache::shared(&zone, context("other"), 10);
    assert!(one.put(NOW, b"id", b"of one"));
    assert_eq!((other.get(NOW, b"id"), other.take(NOW, b"id")), (None, None));
    assert!(other.put(NOW, b"id", b"of other"));
    assert_eq!(one.take(NOW, b"id").unwrap(), b"of one");
    assert_eq!(other.take(NOW, b"id").unwrap(), b"of other");
    assert!(zone.is_empty());
    // A configuration with the same settings, after a reload.
    assert!(one.put(NOW, b"id", b"before"));
    let again = SessionCache::shared(&zone.clone(), context("one"), 10);
    assert_eq!(again.get(NOW, b"id").unwrap(), b"before");
}

#[test]
fn the_least_recently_used_makes_room() {
    let cache = SessionCache::builtin(3, context("a"), 10);
    for id in [b"1", b"2", b"3"] {
        assert!(cache.put(NOW, id, id));
    }
    assert!(cache.get(NOW, b"1").is_some() && cache.put(NOW, b"4", b"4"));
    let kept = |cache: &SessionCache, id: &[u8]| cache.get(NOW, id).is_some();
    assert!(kept(&cache, b"1") && !kept(&cache, b"2") && kept(&cache, b"3") && kept(&cache, b"4"));

    let zone = zone();
    let cache = SessionCache::shared(&zone, context("a"), 10);
    let session = [7; 150];
    let fill = |from: u32, to: u32| {
        for id in from..to {
            assert!(cache.put(NOW, &id.to_be_bytes(), &session));
            assert!(kept(&cache, &0u32.to_be_bytes()), "{id}");
        }
    };
    fill(0, 1000);
    let room = zone.len();
    // 192 bytes a session of this length, and something for the table.
    assert!(room > 90 && room < ZONE / 192, "{room}");
    let gone = (1..1000u32).find(|id| kept(&cache, &id.to_be_bytes())).unwrap();
    assert_eq!(gone as usize, 1000 - (room - 1));
}

#[test]
fn expired_sessions_make_room_first() {
    let zone = zone();
    let short = SessionCache::shared(&zone, context("a"), 10);
    for id in 0..100u8 {
        assert!(short.put(NOW, &[id], b"short"));
    }
    for id in 100..150u8 {
        assert!(short.put(NOW + 10, &[id], b"short"));
    }
    assert_eq!(zone.len(), 50);
}

#[test]
fn a_session_too_long_is_not_kept_and_logged_once_a_second() {
    let (log, lines) = base::log::capture(base::log::Level::Warn);
    base::log::set_default(log);
    for cache in caches() {
        assert!(cache.put(NOW, b"small", b"small"));
        let long = vec![1; SESSION_MAX + 1];
        assert!(!cache.put(NOW, b"id", &long) && !cache.put(NOW, b"id", &long));
        assert_eq!(cache.get(NOW, b"id"), None);
        assert_eq!(cache.get(NOW, b"small").unwrap(), b"small");
        assert!(cache.put(NOW, b"id", &long[1..]));
        assert_eq!(cache.get(NOW, b"id").unwrap(), long[1..]);
    }
    let text = lines.take();
    let message = "could not allocate new session in SSL session shared cache \"one\"";
    assert_eq!(text.matches(message).count(), 1, "{text}");
}

#[test]
fn off_and_none() {
    for (cache, told) in [(SessionCache::off(), false), (SessionCache::none(), true)] {
        assert!(!cache.put(NOW, b"id", b"secret"));
        assert_eq!((cache.get(NOW, b"id"), cache.take(NOW, b"id")), (None, None));
        assert_eq!(cache.can_cache(), told);
    }
}

#[test]
fn threads_take_each_session_once() {
    const SESSIONS: u32 = 2000;
    let cache =
        SessionCache::shared(&SharedSessions::new(b"one", 1 << 20).unwrap(), context("a"), 10);
    for id in 0..SESSIONS {
        assert!(cache.put(NOW, &id.to_be_bytes(), &id.to_be_bytes()));
    }
    let taken = std::thread::scope(|scope| {
        let take = || {
            let ids = (0..SESSIONS).map(u32::to_be_bytes);
            ids.filter(|id| cache.take(NOW, id).is_some_and(|session| session == *id)).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(taken, SESSIONS as usize);
}

#[test]
fn a_zone_whose_process_died_goes_on() {
    let zone = zone();
    let cache = SessionCache::shared(&zone, context("a"), 10);
    assert!(cache.put(NOW, b"id", b"secret"));
    zone.died(os::process::id() + 1, 0);
    assert_eq!(cache.get(NOW, b"id").unwrap(), b"secret");
}

#[test]
fn handshakes_resume_from_the_cache() {
    for version in [&TLS12, &TLS13] {
        let zone = zone();
        let of = |cache: SessionCache| {
            let mut server = server(version);
            server.session_storage = cache.store();
            Arc::new(server)
        };
        let shared = |name| of(SessionCache::shared(&zone, context(name), 300));
        let (one, same, other) = (shared("one"), shared("one"), shared("other"));
        let resuming = Arc::new(client(version));
        assert_eq!(connect(&resuming, &one), Full);
        assert_eq!(connect(&resuming, &same), Resumed);
        assert_eq!(connect(&resuming, &other), Full);
        let builtin = of(SessionCache::builtin(10, context("one"), 300));
        let resuming = Arc::new(client(version));
        assert_eq!(connect(&resuming, &builtin), Full);
        assert_eq!(connect(&resuming, &builtin), Resumed);
        for cache in [SessionCache::off(), SessionCache::none()] {
            let (server, resuming) = (of(cache), Arc::new(client(version)));
            assert_eq!(connect(&resuming, &server), Full);
            assert_eq!(connect(&resuming, &server), Full);
        }
    }
}
