//! Caches as JSON.

use base::json::Object;
use cache::{Cache, CacheStatus};
use engine::metrics::{Kind, Metrics, Zone, word};

/// The words that hold the requests at the last reset.
const BASE: usize = word::TIMES;

fn zone<'a>(metrics: &'a Metrics, cache: &Cache) -> Zone<'a> {
    metrics.any(Kind::Cache, &cache.name)
}

/// Requests of a cache with this part of it in the response, and bytes sent.
pub(crate) fn requests(metrics: &Metrics, cache: &Cache, status: CacheStatus) -> (u64, u64) {
    let (zone, status) = (zone(metrics, cache), status as usize);
    let requests = cache.keys.counted(status).wrapping_sub(zone.base(BASE + status));
    (requests, zone.read().get(word::CACHE_BYTES + status))
}

pub(super) fn write(o: &mut Object<'_>, metrics: &Metrics, cache: &Cache) {
    let report = cache.report();
    o.number("size", report.bytes);
    if let Some(max) = report.max_bytes {
        o.number("max_size", max);
    }
    o.flag("cold", !report.is_loaded);
    for status in CacheStatus::ALL {
        let name = status.text().unwrap_or_default().to_ascii_lowercase();
        let (requests, bytes) = requests(metrics, cache, status);
        o.object(&name, |o| {
            o.number("responses", requests);
            o.number("bytes", bytes);
        });
    }
}

/// Begins to count from 0 again.
pub(super) fn reset(metrics: &Metrics, cache: &Cache) {
    let zone = zone(metrics, cache);
    zone.reset();
    for status in CacheStatus::ALL {
        let status = status as usize;
        zone.set_base(BASE + status, cache.keys.counted(status));
    }
}
