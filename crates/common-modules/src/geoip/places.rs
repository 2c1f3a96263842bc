//! Countries in the order of the older format, which names them by number, and names of the regions
//! whose codes there are those of ISO 3166-2: of the United States and Canada. Elsewhere the
//! format's codes are of a standard that was withdrawn; databases of the present format have names
//! of their own.

use std::sync::LazyLock;

/// A country as databases of the older format know it.
pub(crate) struct Country {
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

static REGIONS: &str = include_str!("regions.txt");

/// The country of a number.
pub fn country(number: usize) -> Option<&'static Country> {
    COUNTRIES.get(number)
}

/// The country of a code of two letters.
pub(crate) fn country_of_code(code: &str) -> Option<&'static Country> {
    COUNTRIES.iter().find(|c| c.code == code)
}

/// The name of a country's region, where the table has it.
pub fn region(country: &str, code: &str) -> Option<&'static str> {
    let mut lines = REGIONS.lines();
    lines.find_map(|line| {
        let (of, rest) = line.split_once(' ')?;
        let (region, name) = rest.split_once(' ')?;
        (of == country && region == code).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_whole() {
        assert_eq!(COUNTRIES.len(), 256);
        assert!(COUNTRIES.iter().all(|c| c.code.len() == 2 && !c.name.is_empty()));
        assert_eq!(REGIONS.lines().count(), 57 + 13);
        let us = country(225).unwrap();
        assert_eq!((us.code, us.code3, us.continent), ("US", "USA", "NA"));
        assert_eq!(us.name, "United States");
        assert_eq!(country_of_code("RU").unwrap().code3, "RUS");
        assert_eq!(region("RU", "48"), None);
        assert_eq!(region("CA", "NL"), Some("Newfoundland and Labrador"));
        assert_eq!(region("US", "AK"), Some("Alaska"));
        assert_eq!(region("US", "48"), None);
    }
}
