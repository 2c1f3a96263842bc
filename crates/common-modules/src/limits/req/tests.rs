use shm::Table;

use super::*;

fn limit(rate: i64, burst: i64, delay: i64) -> ReqLimit {
    let zone = Zone::for_tests(rate);
    ReqLimit { zone, burst: burst * 1000, delay: delay * 1000 }
}

/// The excess for one request of `key`, or that of the refusal.
fn request(
    table: &Table<Bucket>,
    limit: &ReqLimit,
    key: &[u8],
    now: u64,
) -> Result<i64, Option<i64>> {
    let fits = table.fits(key.len());
    match ask(&mut table.lock(), table.key(key), fits, limit.terms(), now, true) {
        Answer::Counted { excess, .. } => Ok(excess),
        Answer::Over(excess) => Err(Some(excess)),
        Answer::Fits(_) => panic!("was to be counted"),
        Answer::NoRoom => Err(None),
    }
}

#[test]
fn thousandths_of_requests() {
    let table = Table::new(1 << 16).unwrap();
    let limit = limit(2000, 2, 0);
    let t0 = 3_600_000;
    assert_eq!(request(&table, &limit, b"a", t0), Ok(0));
    assert_eq!(request(&table, &limit, b"a", t0 + 250), Ok(500));
    assert_eq!(request(&table, &limit, b"a", t0 + 250), Ok(1500));
    assert_eq!(request(&table, &limit, b"a", t0 + 250), Err(Some(2500)));
    assert_eq!(request(&table, &limit, b"b", t0 + 250), Ok(0));
    // Refused requests are not in the bucket.
    assert_eq!(request(&table, &limit, b"a", t0 + 500), Ok(2000));
    assert_eq!(request(&table, &limit, b"a", t0 + 60_000), Ok(0));
}

#[test]
fn times_that_go_back() {
    let bucket = Bucket { last: 100_000, excess: 700 };
    assert_eq!(bucket.age(99_990), 0);
    assert_eq!(bucket.with_one_more(99_990, 1000), 1700);
    assert_eq!(bucket.reckoned(99_990, 1700), Bucket { last: 100_000, excess: 1700 });
    assert_eq!(bucket.age(30_000), 1);
    assert_eq!(bucket.reckoned(30_000, 1), Bucket { last: 30_000, excess: 1 });
}

#[test]
fn no_numbers_overflow() {
    for bucket in [
        Bucket { last: 0, excess: i64::MAX },
        Bucket { last: u64::MAX, excess: i64::MIN },
        Bucket { last: 1 << 63, excess: -1 },
    ] {
        for now in [0, 5, 1 << 62, u64::MAX] {
            assert!(bucket.with_one_more(now, i64::MAX) >= 0);
            bucket.is_stale(now, i64::MAX);
            assert_eq!(Bucket::from_words(bucket.to_words()), bucket);
        }
    }
    let limit = limit(16, 5, 0);
    assert!(limit.delay_ms(i64::MAX) > 0);
}

#[test]
fn delays() {
    let limit = limit(500, 5, 1);
    assert_eq!(limit.delay_ms(0), 0);
    assert_eq!(limit.delay_ms(1000), 0);
    assert_eq!(limit.delay_ms(1500), 1000);
    let nodelay = ReqLimit { delay: i64::MAX, ..limit };
    assert_eq!(nodelay.delay_ms(5000), 0);
}

#[test]
fn asking_does_not_count() {
    let table = Table::new(1 << 16).unwrap();
    let shared = Shared { key: bytes::Bytes::new(), table, journal: None, touched: None };
    let table = &shared.table;
    let limit = limit(1000, 0, 0);
    let t0 = 3_600_000;
    for _ in 0..3 {
        let key = table.key(b"a");
        let Answer::Fits(entry) = ask(&mut table.lock(), key, true, limit.terms(), t0, false)
        else {
            panic!("nothing was counted yet");
        };
        assert_eq!(table.lock().value(entry), Some(Bucket::default()));
    }
    let key = table.key(b"a");
    let Answer::Fits(entry) = ask(&mut table.lock(), key, true, limit.terms(), t0, false) else {
        panic!("nothing was counted yet");
    };
    assert_eq!(limit.count(&shared, entry, t0), 0);
    assert_eq!(request(table, &limit, b"a", t0), Err(Some(1000)));
}

#[test]
fn a_full_zone_forgets_the_oldest() {
    let table = Table::new(4096).unwrap();
    let limit = limit(1000, 0, 0);
    let t0 = 3_600_000;
    let count = table.capacity() as u64 + 5;
    for n in 0..count {
        assert_eq!(request(&table, &limit, &n.to_le_bytes(), t0), Ok(0));
    }
    assert_eq!(table.lock().len(), table.capacity());
    assert_eq!(request(&table, &limit, &(count - 1).to_le_bytes(), t0), Err(Some(1000)));
    assert_eq!(request(&table, &limit, &0u64.to_le_bytes(), t0), Ok(0));
    // A key that needs many cells drives out as many entries as it must, and no zone for one it
    // cannot hold.
    assert_eq!(request(&table, &limit, &[7; 400], t0), Ok(0));
    assert!(table.lock().len() > 20);
    let before = table.lock().len();
    assert_eq!(request(&table, &limit, &[7; 60_000], t0), Err(None));
    assert_eq!(table.lock().len(), before);
}

#[test]
fn empty_buckets_go_by_themselves() {
    let table = Table::new(1 << 16).unwrap();
    let limit = limit(1000, 0, 0);
    let t0 = 3_600_000;
    for n in 0..10u64 {
        let _ = request(&table, &limit, &n.to_le_bytes(), t0);
    }
    let _ = request(&table, &limit, b"x", t0 + 59_999);
    assert_eq!(table.lock().len(), 11);
    let _ = request(&table, &limit, b"y", t0 + 60_000);
    assert_eq!(table.lock().len(), 10);
}
