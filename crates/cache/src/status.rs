//! The part that a cache had in a response.

/// `$upstream_cache_status`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(usize)]
pub enum CacheStatus {
    /// No cache is concerned.
    #[default]
    None,
    /// Nothing was kept.
    Miss,
    /// The kept response was not to be used.
    Bypass,
    /// The kept response is not fresh; the upstream is asked.
    Expired,
    /// The kept response is not fresh, and is served as the upstream failed, or will be asked
    /// later.
    Stale,
    /// The same while another request asks for it.
    Updating,
    /// The upstream says that the kept response is still good.
    Revalidated,
    /// The kept response is fresh.
    Hit,
}

impl CacheStatus {
    /// All but `None`.
    pub const ALL: [CacheStatus; 7] = [
        CacheStatus::Miss,
        CacheStatus::Bypass,
        CacheStatus::Expired,
        CacheStatus::Stale,
        CacheStatus::Updating,
        CacheStatus::Revalidated,
        CacheStatus::Hit,
    ];

    /// The variable's value; `None` where it has none.
    pub fn text(self) -> Option<&'static str> {
        Some(match self {
            CacheStatus::None => return None,
            CacheStatus::Miss => "MISS",
            CacheStatus::Bypass => "BYPASS",
            CacheStatus::Expired => "EXPIRED",
            CacheStatus::Stale => "STALE",
            CacheStatus::Updating => "UPDATING",
            CacheStatus::Revalidated => "REVALIDATED",
            CacheStatus::Hit => "HIT",
        })
    }
}
