//! Dictionaries that all workers see.

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Whatever is there.
    Set,
    /// The key must be new.
    Add,
    /// The key must be there.
    Replace,
}

/// The dictionary has no room, or the entry is too long for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The dictionaries of `js_shared_dict_zone`, by number. Values are texts, also those of numbers.
pub trait SharedHost {
    /// The names of all, in the order of their numbers.
    fn names(&self) -> Vec<String>;

    /// Bytes that the configuration gives it.
    fn capacity(&self, dict: usize) -> usize;

    /// Bytes that no entry uses.
    fn free(&self, dict: usize) -> usize;

    /// Whether its values are numbers.
    fn is_number(&self, dict: usize) -> bool;

    /// Whether entries expire.
    fn has_timeout(&self, dict: usize) -> bool;

    /// A value with the milliseconds that are left of its life, if it expires.
    fn get(&self, dict: usize, key: &str) -> Option<(String, Option<u64>)>;

    /// The same, and takes it out.
    fn take(&mut self, dict: usize, key: &str) -> Option<String>;

    /// Stores a value, with a lifetime of its own in milliseconds; false: the key is there, or is
    /// not.
    ///
    /// # Errors
    /// There is no room.
    fn store(
        &mut self,
        dict: usize,
        how: Store,
        key: &str,
        value: &str,
        lifetime_ms: Option<u64>,
    ) -> std::result::Result<bool, NoRoom>;

    /// Adds to a number, or to `init` if there is none; returns the sum. Without a lifetime of its
    /// own an entry that is there keeps its end.
    ///
    /// # Errors
    /// There is no room.
    fn increment(
        &mut self,
        dict: usize,
        key: &str,
        delta_and_init: (f64, f64),
        lifetime_ms: Option<u64>,
    ) -> std::result::Result<f64, NoRoom>;

    /// Takes all entries out.
    fn clear(&mut self, dict: usize);

    /// The number of entries.
    fn count(&self, dict: usize) -> usize;

    /// The keys, at most `max`, and at most `bytes_max` bytes; `None`: they are more.
    fn keys(&self, dict: usize, max: usize, bytes_max: usize) -> Option<Vec<String>>;

    /// The entries, at most `max`, and at most `bytes_max` bytes of keys and values; `None`: they
    /// are more.
    fn entries(&self, dict: usize, max: usize, bytes_max: usize) -> Option<Vec<(String, String)>>;
}
