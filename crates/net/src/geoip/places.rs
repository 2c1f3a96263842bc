//! Countries in the order of the older format, which names them by number, and their regions (by
//! FIPS 10-4; those of the United States and Canada by ISO 3166-2).

use std::collections::HashMap;
use std::sync::LazyLock;

/// A country as databases of the older format know it.
pub struct Country {
    pub code: &'static str,
    pub code3: &'static str,
    pub continent: &'static str,
    pub name: &'static str,
}

static COUNTRIES: LazyLock<Vec<Country>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().unwrap_or_default();
        Country { code: next(), code3: next(), continent: next(), name: next() }
    };
    include_str!("countries.txt").lines().map(line).collect()
});

type Regions = HashMap<(&'static str, &'static str), &'static str>;

static REGIONS: LazyLock<Regions> = LazyLock::new(|| {
    let mut regions = Regions::new();
    for line in include_str!("regions.txt").lines() {
        let mut parts = line.split('\t');
        let Some(country) = parts.next() else { continue };
        for (code, name) in parts.filter_map(|part| part.split_at_checked(2)) {
            regions.insert((country, code), name);
        }
    }
    regions
});

/// The country of a number.
pub fn country(number: usize) -> Option<&'static Country> {
    COUNTRIES.get(number)
}

/// The country of a code of two letters.
pub fn country_of_code(code: &str) -> Option<&'static Country> {
    COUNTRIES.iter().find(|c| c.code == code)
}

/// The name of a country's region.
pub fn region(country: &str, code: &str) -> Option<&'static str> {
    REGIONS.get(&(country, code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_whole() {
        assert_eq!(COUNTRIES.len(), 256);
        assert!(COUNTRIES.iter().all(|c| c.code.len() == 2 && !c.name.is_empty()));
        assert!(REGIONS.len() > 4000);
        let us = country(225).unwrap();
        assert_eq!((us.code, us.code3, us.continent), ("US", "USA", "NA"));
        assert_eq!(us.name, "United States");
        assert_eq!(country_of_code("RU").unwrap().code3, "RUS");
        assert_eq!(region("RU", "48"), Some("Moscow City"));
        assert_eq!(region("US", "AK"), Some("Alaska"));
        assert_eq!(region("US", "48"), None);
    }
}
