use super::*;

fn store(kind: Kind) -> Store {
    Store::new(kind, 256 << 10).unwrap()
}

fn set(store: &Store, key: &str, value: &str) -> Result<(), Refused> {
    store.put(Change::Set, false, &Pair::new(key.as_bytes(), value.as_bytes()))
}

fn found(store: &Store, text: &str) -> Option<String> {
    let pair = store.find(text.as_bytes());
    assert_eq!(store.value(text.as_bytes()), pair.as_ref().map(|pair| pair.value.clone().into()));
    pair.map(|pair| String::from_utf8(pair.value).unwrap())
}

#[test]
fn texts_are_found_exactly() {
    let store = store(Kind::Text);
    assert!(store.is_empty() && found(&store, "a").is_none());
    set(&store, "a", "1").unwrap();
    set(&store, "", "empty").unwrap();
    set(&store, "a", &"long".repeat(1000)).unwrap();
    let add = |key: &[u8]| store.put(Change::Add, false, &Pair::new(key, b"2"));
    assert_eq!((add(b"a"), add(b"b")), (Err(Refused::Exists), Ok(())));
    assert_eq!(found(&store, "a"), Some("long".repeat(1000)));
    assert_eq!((found(&store, ""), found(&store, "b")), (Some("empty".into()), Some("2".into())));
    assert_eq!(found(&store, "ab"), None);
    let version = store.version();
    assert!(store.remove(b"a") && !store.remove(b"a"));
    assert!(store.version() > version && found(&store, "a").is_none());
    assert!(!store.is_empty() && store.clear_some(1) && !store.clear_some(9));
    assert!(store.is_empty());
    assert_eq!(set(&store, "k", &"x".repeat(70_000)), Err(Refused::TooLong));
}

/// What a variable is given, without [`Store::find`] before it, which takes out what has expired.
#[test]
fn a_value_is_as_its_pair() {
    let store = store(Kind::Text);
    let value = |key: &str| store.value(key.as_bytes());
    set(&store, "a", "").unwrap();
    set(&store, "b", &"long".repeat(1000)).unwrap();
    assert_eq!(value("a"), Some(Bytes::new()));
    assert_eq!(value("b"), Some("long".repeat(1000).into()));
    // The room for a long one is used again for a short one.
    assert_eq!((value("a"), value("c")), (Some(Bytes::new()), None));
    let now_ms = base::time::unix_ms();
    assert!(store.set_expiry(b"a", now_ms + 1_000_000) && value("a").is_some());
    assert!(store.set_expiry(b"b", now_ms - 1));
    let entries = || store.lock().len();
    assert_eq!((entries(), value("b"), entries()), (2, None, 1));
}

#[test]
fn the_longest_network_is_found() {
    let store = store(Kind::Ip);
    for (key, value) in [
        ("10.0.0.0/8", "8"),
        ("10.1.0.0/16", "16"),
        ("10.1.2.3", "host"),
        ("0.0.0.0/0", "any"),
        ("2001:db8::/32", "six"),
        ("2001:db8::1", "one"),
    ] {
        set(&store, key, value).unwrap();
    }
    for (text, value) in [
        ("10.1.2.3", "host"),
        ("10.1.2.4", "16"),
        ("10.2.0.0", "8"),
        ("10.1.0.0/12", "8"),
        ("11.0.0.1", "any"),
        ("2001:db8::1", "one"),
        ("2001:DB8:0::2", "six"),
    ] {
        assert_eq!(found(&store, text).as_deref(), Some(value), "{text}");
    }
    assert_eq!((found(&store, "2001:db9::1"), found(&store, "x")), (None, None));
    assert_eq!(set(&store, "10.0.0.0/33", "x"), Err(Refused::BadKey));
    // Another way to write a network that is there.
    set(&store, "10.1.7.9/16", "new").unwrap();
    assert_eq!(found(&store, "10.1.2.4").as_deref(), Some("new"));
    assert!(store.remove(b"10.1.0.0/255.255.0.0") && store.remove(b"0.0.0.0/0"));
    assert_eq!(found(&store, "10.1.2.4").as_deref(), Some("8"));
    assert_eq!(found(&store, "11.0.0.1"), None);
}

#[test]
fn the_longest_prefix_is_found() {
    let store = store(Kind::Prefix);
    for key in ["/", "/img/", "/img/big"] {
        set(&store, key, key).unwrap();
    }
    for (text, key) in [("/img/bigger", "/img/big"), ("/img/x", "/img/"), ("/img", "/"), ("/", "/")]
    {
        assert_eq!(found(&store, text).as_deref(), Some(key), "{text}");
    }
    assert_eq!(found(&store, "img"), None);
    set(&store, "", "all").unwrap();
    assert_eq!(found(&store, "img").as_deref(), Some("all"));
    assert_eq!(set(&store, &"x".repeat(5000), ""), Err(Refused::BadKey));
}

#[test]
fn entries_expire() {
    base::time::pin(1000, 1_000_000);
    base::time::update();
    let store = store(Kind::Prefix);
    let put = |key: &[u8], expires_ms| {
        store.put(Change::Set, false, &Pair { expires_ms, ..Pair::new(key, b"v") }).unwrap();
    };
    put(b"a", 1_000_500);
    put(b"b", 1_000_000);
    assert!(store.get(b"a").is_some() && store.get(b"b").is_none());
    assert!(store.set_expiry(b"a", 1_002_000) && !store.set_expiry(b"b", 1));
    base::time::pin(1000, 1_001_999);
    base::time::update();
    assert!(store.find(b"abc").is_some());
    base::time::pin(1000, 1_002_000);
    base::time::update();
    assert!(store.is_empty() && store.find(b"abc").is_none());
}

#[test]
fn a_full_table_refuses_or_evicts_the_oldest() {
    let store = Store::new(Kind::Text, 64 << 10).unwrap();
    let value = "v".repeat(1000);
    let mut n = 0;
    while set(&store, &format!("k{n}"), &value).is_ok() {
        n += 1;
    }
    assert!(n > 20, "{n}");
    // A value that is replaced by one for which there is no room stays.
    assert_eq!(set(&store, "k0", &"w".repeat(9000)), Err(Refused::Full));
    assert_eq!(found(&store, "k0").as_deref(), Some(&*value));
    let pair = Pair::new(b"new", value.as_bytes());
    assert_eq!(store.put(Change::Set, false, &pair), Err(Refused::Full));
    assert_eq!(store.put(Change::Set, true, &pair), Ok(()));
    assert_eq!(found(&store, "new").as_deref(), Some(&*value));
    assert!(found(&store, "k1").is_none() && found(&store, "k2").is_some());
}

#[test]
fn expired_entries_make_room() {
    base::time::pin(1000, 1_000_000);
    base::time::update();
    let store = Store::new(Kind::Text, 64 << 10).unwrap();
    let value = vec![b'v'; 1000];
    let put = |n: usize, expires_ms| {
        let key = format!("k{n}").into_bytes();
        store.put(Change::Set, false, &Pair { key, value: value.clone(), expires_ms })
    };
    let count = (0..).take_while(|n| put(*n, 1_000_100).is_ok()).count();
    base::time::pin(1000, 1_000_100);
    base::time::update();
    assert!((0..count).all(|n| put(1000 + n, 0).is_ok()));
}

#[test]
fn pages_have_every_pair_once() {
    let store = store(Kind::Text);
    for n in 0..100 {
        set(&store, &format!("k{n}"), &"v".repeat(n)).unwrap();
    }
    let (mut next, mut keys) = (0, Vec::new());
    while let Some(pairs) = store.some(&mut next, 7) {
        keys.extend(pairs.into_iter().map(|pair| pair.key));
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}

#[test]
fn a_configuration_that_is_refused_changes_nothing() {
    let running = store(Kind::Text);
    running.put(Change::Set, false, &Pair::new(b"a", b"1")).unwrap();
    let refused = running.again();
    refused.set_synced(true).unwrap();
    assert_eq!(refused.get(b"a").map(|pair| pair.value), Some(b"1".to_vec()));
    running.remove(b"a");
    assert!(running.lock().is_empty(), "a tombstone would stay for a fleet that there is not");
    assert_eq!(refused.get(b"a"), None);
}
