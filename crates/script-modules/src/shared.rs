//! `js_shared_dict_zone`: the dictionaries of `ngx.shared`, which are tables of `keyval`.

use std::rc::Rc;

use base::log::lossy;
use conf::{ConfError, Node, value};
use engine::zones::name_and_size;
use engine::{Cx, Session};
use keyval::directives::{TableSettings, define_table};
use keyval::{Change, Format, Pair, Refused, Zone};

use ::script::host::shared::{NoRoom, SharedHost, Store};

use crate::settings::Main;

/// A dictionary.
#[derive(Clone)]
pub struct Dict {
    /// Its name.
    pub name: String,
    /// Its table.
    pub zone: Rc<Zone>,
    /// Its values are numbers.
    pub is_number: bool,
}

/// The smallest zone, as in nginx: eight pages.
const BYTES_MIN: usize = 8 * 4096;

/// The directive's setter.
///
/// # Errors
/// A parameter is wrong, or the name is taken.
pub fn js_shared_dict_zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (mut named, mut table, mut is_number) = (None, TableSettings::default(), false);
    for word in &n.args {
        let text = word.bytes();
        let bad = |what: &str| ConfError::at(word, format!("invalid {what} \"{}\"", word.lossy()));
        if let Some(rest) = text.strip_prefix(b"zone=") {
            let (name, bytes) = name_and_size(word, rest)?;
            if bytes < BYTES_MIN {
                return Err(ConfError::at(word, format!("zone \"{}\" is too small", lossy(rest))));
            }
            named = Some((word, name, bytes));
        } else if let Some(time) = text.strip_prefix(b"timeout=") {
            let ms = value::parse_msec(time).filter(|ms| *ms > 0).ok_or_else(|| bad("timeout"))?;
            table.timeout_ms = Some(ms);
        } else if let Some(kind) = text.strip_prefix(b"type=") {
            is_number = match kind {
                b"string" => false,
                b"number" => true,
                _ => return Err(bad("dict type")),
            };
        } else if let Some(path) = text.strip_prefix(b"state=") {
            if path.is_empty() {
                return Err(bad("state"));
            }
            table.state = Some(cx.env.path(path));
        } else if text == b"evict" {
            table.evicts = true;
        } else {
            return Err(bad("parameter"));
        }
    }
    let Some((word, name, bytes)) = named.filter(|(_, name, _)| !name.is_empty()) else {
        return Err(ConfError::directive(n, "must have \"zone\" parameter"));
    };
    if table.evicts && table.timeout_ms.is_none() {
        return Err(ConfError::directive(n, "with \"evict\" requires timeout="));
    }
    table.bytes = bytes;
    table.format = Format::Script { numbers: is_number, timeout_ms: table.timeout_ms };
    let zone = define_table(cx, word, &name, table)?;
    let name = lossy(&name).into_owned();
    cx.main::<Main>().dicts.push(Dict { name, zone, is_number });
    Ok(())
}

/// The dictionaries of the configuration.
pub struct Dicts(pub Rc<[Dict]>);

impl Dicts {
    fn dict(&self, at: usize) -> Option<&Dict> {
        self.0.get(at)
    }

    /// Calls a function with each pair, at most `max`, until it returns false. The table is locked
    /// for some pairs at a time.
    fn each(&self, dict: usize, max: usize, mut f: impl FnMut(Pair) -> bool) {
        let Some(dict) = self.dict(dict) else { return };
        let (mut next, mut left) = (0, max);
        while left > 0
            && let Some(pairs) = dict.zone.store().some(&mut next, AT_ONCE)
        {
            for pair in pairs.into_iter().take(left) {
                left -= 1;
                if !f(pair) {
                    return;
                }
            }
        }
    }
}

/// The places of a table that are looked at under one lock.
const AT_ONCE: u32 = 256;

/// About the memory of an entry beside its bytes.
const ENTRY_BYTES: usize = 64;

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether a change was made, as scripts are told.
fn done(result: Result<(), Refused>) -> Result<bool, NoRoom> {
    match result {
        Ok(()) => Ok(true),
        Err(Refused::Exists | Refused::Missing) => Ok(false),
        Err(Refused::Full | Refused::TooLong | Refused::BadKey) => Err(NoRoom),
    }
}

impl SharedHost for Dicts {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|dict| dict.name.clone()).collect()
    }

    fn capacity(&self, dict: usize) -> usize {
        self.dict(dict).map_or(0, |dict| dict.zone.capacity())
    }

    fn free(&self, dict: usize) -> usize {
        let Some(dict) = self.dict(dict) else { return 0 };
        let usage = dict.zone.store().usage();
        let free = usage.capacity.saturating_sub(usage.used);
        // The share of its units, so that the result is at most the capacity.
        dict.zone.capacity() / usage.capacity.max(1) * free
    }

    fn is_number(&self, dict: usize) -> bool {
        self.dict(dict).is_some_and(|dict| dict.is_number)
    }

    fn has_timeout(&self, dict: usize) -> bool {
        self.dict(dict).is_some_and(|dict| dict.zone.has_timeout())
    }

    fn get(&self, dict: usize, key: &str) -> Option<(String, Option<u64>)> {
        let pair = self.dict(dict)?.zone.store().get(key.as_bytes())?;
        let left = pair.expires_ms.saturating_sub(base::time::unix_ms());
        Some((text(pair.value), (pair.expires_ms != 0).then_some(left)))
    }

    fn take(&mut self, dict: usize, key: &str) -> Option<String> {
        let dict = self.dict(dict)?;
        let pair = dict.zone.store().take(key.as_bytes())?;
        dict.zone.save_soon();
        Some(text(pair.value))
    }

    fn store(
        &mut self,
        dict: usize,
        how: Store,
        key: &str,
        value: &str,
        lifetime_ms: Option<u64>,
    ) -> Result<bool, NoRoom> {
        let Some(dict) = self.dict(dict) else { return Err(NoRoom) };
        let change = match how {
            Store::Set => Change::Set,
            Store::Add => Change::Add,
            Store::Replace => Change::Replace,
        };
        let expires_ms = dict.zone.expiry(lifetime_ms);
        let pair = Pair { expires_ms, ..Pair::new(key.as_bytes(), value.as_bytes()) };
        let is_stored = done(dict.zone.put(change, &pair))?;
        if is_stored {
            dict.zone.save_soon();
        }
        Ok(is_stored)
    }

    fn increment(
        &mut self,
        dict: usize,
        key: &str,
        (delta, init): (f64, f64),
        lifetime_ms: Option<u64>,
    ) -> Result<f64, NoRoom> {
        let Some(dict) = self.dict(dict) else { return Err(NoRoom) };
        let (zone, mut sum) = (&dict.zone, 0.0);
        let expires_ms = zone.expiry(lifetime_ms);
        let changed = zone.store().update(key.as_bytes(), zone.evicts(), |before| {
            let old = before.and_then(|pair| std::str::from_utf8(&pair.value).ok()?.parse().ok());
            sum = old.unwrap_or(init) + delta;
            let kept = before.filter(|_| lifetime_ms.is_none()).map(|pair| pair.expires_ms);
            let expires_ms = kept.unwrap_or(expires_ms);
            Ok(Pair { expires_ms, ..Pair::new(key.as_bytes(), sum.to_string().as_bytes()) })
        });
        done(changed)?;
        zone.save_soon();
        Ok(sum)
    }

    fn clear(&mut self, dict: usize) {
        let Some(dict) = self.dict(dict) else { return };
        while dict.zone.store().clear_some(1024) {}
        dict.zone.save_soon();
    }

    fn count(&self, dict: usize) -> usize {
        let Some(dict) = self.dict(dict) else { return 0 };
        let (mut next, mut sum) = (0, 0);
        while let Some(count) = dict.zone.store().count_some(&mut next, AT_ONCE) {
            sum += count;
        }
        sum
    }

    fn keys(&self, dict: usize, max: usize, bytes_max: usize) -> Option<Vec<String>> {
        let (mut all, mut bytes) = (Vec::new(), 0_usize);
        self.each(dict, max, |pair| {
            bytes += pair.key.len() + ENTRY_BYTES;
            all.push(text(pair.key));
            bytes <= bytes_max
        });
        (bytes <= bytes_max).then_some(all)
    }

    fn entries(&self, dict: usize, max: usize, bytes_max: usize) -> Option<Vec<(String, String)>> {
        let (mut all, mut bytes) = (Vec::new(), 0_usize);
        self.each(dict, max, |pair| {
            bytes += pair.key.len() + pair.value.len() + ENTRY_BYTES;
            all.push((text(pair.key), text(pair.value)));
            bytes <= bytes_max
        });
        (bytes <= bytes_max).then_some(all)
    }
}
