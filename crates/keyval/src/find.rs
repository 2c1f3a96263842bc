//! Pairs are found: by their key, or by the text that it matches.

use bytes::Bytes;
use net::Cidr;

use crate::store::{HASH, Kind, Pair, Store, TOMBSTONE, first_of, form_of, is_over, parts};

/// What a table has for a text.
enum Look {
    Missing,
    Found(Bytes),
    /// It has expired, and is to be taken out.
    Expired,
}

impl Store {
    /// The value of the pair whose key matches a text: what a variable asks for. Of a text, nothing
    /// of the entry is copied but its value, and no clock is read for a pair that stays.
    pub fn value(&self, text: &[u8]) -> Option<Bytes> {
        if self.kind == Kind::Text {
            match self.look(text) {
                Some(Look::Found(value)) => return Some(value),
                Some(Look::Missing) => return None,
                // An entry that is malformed counts as any that has to be taken out.
                Some(Look::Expired) | None => {}
            }
        }
        self.find(text).map(Pair::into_value)
    }

    fn look(&self, text: &[u8]) -> Option<Look> {
        let hash = self.hash(text);
        let key = self.table.key(&hash);
        let mut bytes = self.room.try_borrow_mut().ok()?;
        {
            let t = self.lock();
            let Some(entry) = t.find(key) else { return Some(Look::Missing) };
            let meta = self.meta(&t, entry)?;
            if meta.has(TOMBSTONE) {
                return Some(Look::Missing);
            }
            if meta.expires_ms != 0 && is_over(meta.expires_ms, base::time::unix_ms()) {
                return Some(Look::Expired);
            }
            t.copy(entry, &mut bytes).then_some(())?;
        }
        let (key, value) = parts(bytes.get(HASH..)?)?;
        Some(match key == text {
            true => Look::Found(Bytes::copy_from_slice(value)),
            false => Look::Missing,
        })
    }

    /// The pair whose key matches a text.
    pub fn find(&self, text: &[u8]) -> Option<Pair> {
        let now_ms = base::time::unix_ms();
        match self.kind {
            Kind::Text => self.get(text),
            Kind::Prefix => {
                let mut t = self.lock();
                let mut lengths = self.lengths.within(0, text.len());
                let found = lengths.find_map(|length| self.entry(&mut t, &text[..length], now_ms));
                Some(found?.1)
            }
            Kind::Ip => {
                let (network, _) = Cidr::parse(text)?;
                let first = first_of(network.network().is_ipv4());
                let mut t = self.lock();
                let mut lengths = self.lengths.within(first, first + usize::from(network.bits()));
                let found = lengths.find_map(|length| {
                    let around = Cidr::new(network.network(), (length - first) as u8)?;
                    self.entry(&mut t, &form_of(around), now_ms)
                });
                Some(found?.1)
            }
        }
    }

    /// The pair of exactly this key.
    pub fn get(&self, key: &[u8]) -> Option<Pair> {
        let form = self.form(key)?;
        Some(self.entry(&mut self.lock(), &form, base::time::unix_ms())?.1)
    }
}
