//! The words of `ssl_session_cache`, and how blocks inherit them.

use std::fmt;

use base::ascii::parse_i63;
use conf::value::parse_size;

/// The least size of a zone, in pages.
const PAGES_MIN: usize = 8;

/// Sessions of `builtin` without a number; OpenSSL's default.
const BUILTIN_SESSIONS: usize = 20 * 1024;

/// Sessions of `builtin:0`, which has no limit in OpenSSL.
const BUILTIN_SESSIONS_MAX: usize = 1 << 20;

/// A zone that `shared:NAME:SIZE` declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedZone {
    /// The name of the shared zone.
    pub name: Vec<u8>,
    /// Its size in bytes.
    pub bytes: usize,
}

/// The part of the setting that is not the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    /// `off`
    Off,
    /// `none`
    None,
    /// `shared` alone: the zone is used without a worker's own cache.
    Without,
    /// `builtin[:N]`: at most that many sessions.
    Sessions(usize),
}

/// `ssl_session_cache` of one block, as far as it is set there.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CacheSetting {
    /// `off`, `none` or `builtin`, whichever came last.
    pub builtin: Option<Builtin>,
    /// `shared`, the last one.
    pub shared: Option<SharedZone>,
}

/// Where a server keeps its sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheUse<'a> {
    /// Nowhere, and clients are told.
    Off,
    /// Nowhere.
    None,
    /// In each worker, at most that many.
    Builtin(usize),
    /// In the zone, also where `builtin` is given, too: a session that is in two places could be
    /// used twice.
    Shared(&'a SharedZone),
}

/// A word of the directive that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadWord {
    /// Its index among the arguments.
    pub index: usize,
    word: Vec<u8>,
    too_small: bool,
}

impl fmt::Display for BadWord {
    /// The message in nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = base::log::lossy(&self.word);
        match self.too_small {
            false => write!(f, "invalid session cache \"{word}\""),
            true => write!(f, "session cache \"{word}\" is too small"),
        }
    }
}

impl CacheSetting {
    /// Reads the arguments of one directive; later words replace earlier ones. Returns the zone
    /// that is to be declared for each word that names one.
    ///
    /// # Errors
    /// A word is none of the directive's, or a zone is too small.
    pub fn read<'w>(
        &mut self,
        words: impl IntoIterator<Item = &'w [u8]>,
    ) -> Result<Vec<(usize, SharedZone)>, BadWord> {
        let mut zones = Vec::new();
        for (index, word) in words.into_iter().enumerate() {
            let bad = |too_small| BadWord { index, word: word.to_vec(), too_small };
            if let Some(text) = word.strip_prefix(b"shared:") {
                let zone = zone(text).ok_or_else(|| bad(false))?;
                if zone.bytes < PAGES_MIN * os::limits::page_size() {
                    return Err(bad(true));
                }
                zones.push((index, zone.clone()));
                self.shared = Some(zone);
            } else {
                self.builtin = Some(builtin(word).ok_or_else(|| bad(false))?);
            }
        }
        if self.shared.is_some() {
            self.builtin.get_or_insert(Builtin::Without);
        }
        Ok(zones)
    }

    /// Takes what is not set from the block around.
    pub fn merge(&mut self, outer: &CacheSetting) {
        self.builtin = self.builtin.or(outer.builtin);
        if self.shared.is_none() {
            self.shared.clone_from(&outer.shared);
        }
    }

    /// Where sessions are kept, with nginx's default `none`.
    pub fn resolve(&self) -> CacheUse<'_> {
        match (self.builtin, &self.shared) {
            (Some(Builtin::Off), _) => CacheUse::Off,
            (None | Some(Builtin::None), _) | (Some(Builtin::Without), None) => CacheUse::None,
            (Some(_), Some(zone)) => CacheUse::Shared(zone),
            (Some(Builtin::Sessions(n)), None) => CacheUse::Builtin(n),
        }
    }
}

fn zone(text: &[u8]) -> Option<SharedZone> {
    let colon = text.iter().position(|byte| *byte == b':').filter(|at| *at > 0)?;
    let (name, size) = (text[..colon].to_vec(), &text[colon + 1..]);
    Some(SharedZone { name, bytes: parse_size(size)? })
}

fn builtin(word: &[u8]) -> Option<Builtin> {
    Some(match word {
        b"off" => Builtin::Off,
        b"none" => Builtin::None,
        b"builtin" => Builtin::Sessions(BUILTIN_SESSIONS),
        _ => {
            let number = parse_i63(word.strip_prefix(b"builtin:")?)?;
            let number = usize::try_from(number).ok().filter(|n| *n > 0);
            Builtin::Sessions(number.unwrap_or(BUILTIN_SESSIONS_MAX).min(BUILTIN_SESSIONS_MAX))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CacheSetting, String> {
        let mut setting = CacheSetting::default();
        let words = text.split(' ').map(str::as_bytes);
        setting.read(words).map_err(|bad| format!("{}: {bad}", bad.index))?;
        Ok(setting)
    }

    fn shared(name: &str, bytes: usize) -> Option<SharedZone> {
        Some(SharedZone { name: name.into(), bytes })
    }

    #[test]
    fn words() {
        let read = |text| read(text).map(|setting| (setting.builtin, setting.shared));
        let kept = Builtin::Sessions;
        for (text, builtin, zone) in [
            ("off", Builtin::Off, None),
            ("none", Builtin::None, None),
            ("off none", Builtin::None, None),
            ("builtin", kept(20480), None),
            ("builtin:7", kept(7), None),
            ("builtin:0", kept(1 << 20), None),
            ("shared:a:10m", Builtin::Without, shared("a", 10 << 20)),
            ("builtin:5 shared:a:32k", kept(5), shared("a", 32768)),
            ("shared:a:32k off", Builtin::Off, shared("a", 32768)),
            ("shared:a:32k shared:b:1m", Builtin::Without, shared("b", 1 << 20)),
        ] {
            assert_eq!(read(text), Ok((Some(builtin), zone)), "{text}");
        }
    }

    #[test]
    fn messages_in_nginx_s_words() {
        for word in [
            "",
            "on",
            "of",
            "builtin:",
            "builtin:x",
            "builtin:-1",
            "shared",
            "shared:",
            "shared:a",
            "shared::1m",
            "shared:a:",
            "shared:a:x",
            "shared:a:1m:2",
        ] {
            assert_eq!(read(word), Err(format!("0: invalid session cache \"{word}\"")));
        }
        let small = "1: session cache \"shared:a:31k\" is too small".to_owned();
        assert_eq!(read("off shared:a:31k"), Err(small));
    }

    #[test]
    fn blocks_inherit_each_part() {
        let merged = |inner: &str, outer: &str| {
            let mut setting = CacheSetting::default();
            if !inner.is_empty() {
                setting = read(inner).unwrap();
            }
            setting.merge(&read(outer).unwrap());
            setting
        };
        assert_eq!(merged("", "shared:a:1m"), read("shared:a:1m").unwrap());
        let used = |inner, outer| format!("{:?}", merged(inner, outer).resolve());
        let zone = used("", "shared:a:1m");
        assert!(zone.starts_with("Shared("));
        assert_eq!(used("off", "shared:a:1m"), "Off");
        assert_eq!(used("none", "shared:a:1m"), "None");
        assert_eq!(used("builtin", "shared:a:1m"), zone);
        assert_eq!(used("shared:a:1m", "off"), zone);
        assert_eq!(used("", "builtin:9"), "Builtin(9)");
        assert_eq!(CacheSetting::default().resolve(), CacheUse::None);
    }
}
