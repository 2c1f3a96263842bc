//! `Cache-Control` and its targeted kin.

use http_wire::cache_control::{CacheControl, Listed, SECONDS_MAX, delta_seconds};

/// Several lines mean the same as one that joins them; adding a directive never lifts a
/// prohibition; an accepted targeted field means the same as the plain one.
pub fn run(data: &[u8]) {
    let whole = read(&[data]);
    let of_numbers = |c: &CacheControl| {
        let fresh = [c.max_age, c.s_maxage, c.min_fresh];
        let stale = [c.max_stale, c.stale_while_revalidate, c.stale_if_error];
        fresh.into_iter().chain(stale).flatten()
    };
    assert!(of_numbers(&whole).all(|n| n <= SECONDS_MAX));
    if !data.contains(&b'"') {
        let lines: Vec<&[u8]> = data.split(|b| *b == b',').collect();
        assert_eq!(read(&lines), whole, "a line for each directive");
    }
    let more = read(&[data, b"no-store, private, max-age=1"]);
    assert!(more.no_store && more.private.is_all());
    assert_eq!(more.max_age, whole.max_age.or(Some(1)), "the first one counts");
    for listed in [&whole.private, &whole.no_cache] {
        if let Listed::Fields(names) = listed {
            assert!(names.iter().all(|name| !name.is_empty() && listed.names(name)));
        }
    }
    if let Some(targeted) = CacheControl::of_targeted(data) {
        assert!(of_numbers(&targeted).all(|n| n <= SECONDS_MAX));
        assert!(!data.trim_ascii().is_empty() && data.trim_ascii().iter().all(u8::is_ascii));
    }
    if let Some(n) = delta_seconds(data) {
        let text = std::str::from_utf8(data).expect("digits");
        assert_eq!(n, text.parse::<u64>().unwrap_or(SECONDS_MAX).min(SECONDS_MAX));
    }
}

fn read(lines: &[&[u8]]) -> CacheControl {
    let mut out = CacheControl::default();
    lines.iter().for_each(|line| out.read(line));
    out
}
