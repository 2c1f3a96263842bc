//! `browser`: variables that tell modern browsers from ancient ones by `User-Agent`.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, Node, Word};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, Module};
use http::request::Request;
use http::vars::VarDef;
use http_wire::h1::FieldId;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[
        VarDef::kept("msie", msie).changeable(),
        VarDef::kept("modern_browser", |r, out| variable(r, out, Age::Modern)).changeable(),
        VarDef::kept("ancient_browser", |r, out| variable(r, out, Age::Ancient)).changeable(),
    ],
    ..Module::with_conf::<BrowserConf>("browser", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "modern_browser",
        HSL,
        Args::T12,
        "",
        "A browser and its first modern version; `unlisted`: unlisted browsers are modern.",
        modern_browser,
    ),
    directive(
        "ancient_browser",
        HSL,
        Args::ONE_MORE,
        "",
        "User-Agent substrings that mark a browser as ancient; netscape4: Mozilla/1 to Mozilla/4.",
        ancient_browser,
    ),
    directive(
        "modern_browser_value",
        HSL,
        Args::T1,
        "1",
        "The value of $modern_browser for modern browsers.",
        |cx, n| {
            cx.loc::<BrowserConf>().modern_value = Some(n.arg(0)?.text.clone());
            Ok(())
        },
    ),
    directive(
        "ancient_browser_value",
        HSL,
        Args::T1,
        "1",
        "The value of $ancient_browser for ancient browsers.",
        |cx, n| {
            cx.loc::<BrowserConf>().ancient_value = Some(n.arg(0)?.text.clone());
            Ok(())
        },
    ),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Age {
    Modern,
    Ancient,
}

/// The mark of a browser and its version in `User-Agent`.
struct Mark {
    name: &'static str,
    /// The least length of the text before it, which is not searched.
    skip: usize,
    text: &'static str,
    /// From where `text` begins to the version.
    version_at: usize,
}

/// In the order in which they are looked for. Opera has said of itself that it was others.
const MARKS: [Mark; 5] = [
    // Opera/9.01 (X11; FreeBSD 6 i386; U; en)
    // Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0; en) Opera 8.0
    Mark { name: "opera", skip: 0, text: "Opera", version_at: "Opera ".len() },
    // Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)
    Mark {
        name: "msie",
        skip: "Mozilla/4.0 (compatible; ".len(),
        text: "MSIE ",
        version_at: "MSIE ".len(),
    },
    // Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.0.0) Gecko/20020610
    Mark { name: "gecko", skip: "Mozilla/5.0 (".len(), text: "rv:", version_at: "rv:".len() },
    // Mozilla/5.0 (Macintosh; U; PPC Mac OS X; en) AppleWebKit/418 (KHTML, like Gecko) Safari/417.9
    Mark {
        name: "safari",
        skip: "Mozilla/5.0 (".len(),
        text: "Safari/",
        version_at: "Safari/".len(),
    },
    // Mozilla/5.0 (compatible; Konqueror/3.5; FreeBSD) KHTML/3.5.1 (like Gecko)
    Mark {
        name: "konqueror",
        skip: "Mozilla/5.0 (compatible; ".len(),
        text: "Konqueror/",
        version_at: "Konqueror/".len(),
    },
];

/// Higher than any version that is written.
const NEVER: u64 = u64::MAX;

#[derive(Default)]
struct BrowserConf {
    /// Indices of [`MARKS`], each with the first version that is modern.
    modern: Option<Rc<Vec<(usize, u64)>>>,
    unlisted: bool,
    ancient: Option<Rc<Vec<Bytes>>>,
    netscape4: bool,
    modern_value: Option<Bytes>,
    ancient_value: Option<Bytes>,
}

impl Conf for BrowserConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        match &mut self.modern {
            None if !self.unlisted => {
                self.modern.clone_from(&prev.modern);
                self.unlisted = prev.unlisted;
            }
            None => {}
            Some(list) => {
                let mut sorted = list.to_vec();
                // One that is not listed must not be taken for MSIE.
                if !sorted.iter().any(|(mark, _)| MARKS[*mark].name == "opera") {
                    sorted.push((0, NEVER));
                }
                sorted.sort_by_key(|(mark, _)| *mark);
                *list = Rc::new(sorted);
            }
        }
        if self.ancient.is_none() && !self.netscape4 {
            self.ancient.clone_from(&prev.ancient);
            self.netscape4 = prev.netscape4;
        }
        if self.modern_value.is_none() {
            self.modern_value.clone_from(&prev.modern_value);
        }
        if self.ancient_value.is_none() {
            self.ancient_value.clone_from(&prev.ancient_value);
        }
        Ok(())
    }
}

fn modern_browser(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let conf = cx.loc::<BrowserConf>();
    let [name, version] = &n.args[..] else {
        let word = n.arg(0)?;
        if word.bytes() != b"unlisted" {
            let m = format!("invalid parameter \"{}\"", word.lossy());
            return Err(ConfError::at(word, m)
                .with_help("it is \"unlisted\", or a browser with its version"));
        }
        conf.unlisted = true;
        return Ok(());
    };
    let named = |m: &Mark| name.text.eq_ignore_ascii_case(m.name.as_bytes());
    let mark = MARKS
        .iter()
        .position(named)
        .ok_or_else(|| ConfError::at(name, format!("unknown browser name \"{}\"", name.lossy())))?;
    let version = configured(version)?;
    let list = conf.modern.get_or_insert_default();
    Rc::make_mut(list).push((mark, version));
    Ok(())
}

fn ancient_browser(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let conf = cx.loc::<BrowserConf>();
    for word in &n.args {
        if word.bytes() == b"netscape4" {
            conf.netscape4 = true;
        } else {
            Rc::make_mut(conf.ancient.get_or_insert_default()).push(word.text.clone());
        }
    }
    Ok(())
}

/// A version while it is read: of `1.2.3.4`, each part but the last has two places.
struct Version {
    sum: u64,
    part: u64,
    scale: u64,
}

impl Version {
    fn new() -> Version {
        Version { sum: 0, part: 0, scale: 1_000_000 }
    }

    fn digit(&mut self, digit: u8) {
        self.part = self.part.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }

    fn end_part(&mut self) -> u64 {
        self.sum = self.sum.saturating_add(self.part.saturating_mul(self.scale));
        self.part = 0;
        self.scale /= 100;
        self.sum
    }
}

fn configured(word: &Word) -> Result<u64, ConfError> {
    let mut version = Version::new();
    for &byte in word.bytes() {
        match byte {
            b'0'..=b'9' => version.digit(byte),
            b'.' => drop(version.end_part()),
            _ => {
                let m = format!("invalid browser version \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
        }
    }
    Ok(version.end_part().min(NEVER - 1))
}

/// Whether a version that a browser says is at least `modern`. It ends where neither digit nor dot
/// stands.
fn is_modern(text: &[u8], modern: u64) -> bool {
    let mut version = Version::new();
    for &byte in text {
        match byte {
            b'0'..=b'9' => version.digit(byte),
            b'.' => {
                if version.end_part() > modern {
                    return true;
                }
            }
            _ => break,
        }
    }
    version.end_part() >= modern
}

impl BrowserConf {
    fn age(&self, agent: Option<&[u8]>) -> Age {
        let unlisted = if self.unlisted { Age::Modern } else { Age::Ancient };
        let Some(agent) = agent else { return unlisted };
        if let Some(list) = &self.modern {
            for (mark, version) in list.iter() {
                let mark = &MARKS[*mark];
                let Some(rest) = agent.get(mark.skip..) else { continue };
                let Some(at) = memchr::memmem::find(rest, mark.text.as_bytes()) else { continue };
                match rest.get(at + mark.version_at..) {
                    None | Some([]) => continue,
                    Some(text) if is_modern(text, *version) => return Age::Modern,
                    Some(_) => return Age::Ancient,
                }
            }
            if !self.unlisted {
                return Age::Ancient;
            }
        }
        if self.netscape4 && is_netscape4(agent) {
            return Age::Ancient;
        }
        let has = |text: &Bytes| memchr::memmem::find(agent, text).is_some();
        if self.ancient.as_ref().is_some_and(|list| list.iter().any(has)) {
            return Age::Ancient;
        }
        unlisted
    }
}

/// Netscape up to version 4, and all that said they were it.
fn is_netscape4(agent: &[u8]) -> bool {
    agent.len() > "Mozilla/4.72 ".len()
        && agent.strip_prefix(b"Mozilla/").is_some_and(|v| matches!(v, [b'1'..=b'4', ..]))
}

fn variable(r: &mut Request, out: &mut Vec<u8>, age: Age) -> bool {
    if let Some(conf) = r.loc.confs.get::<BrowserConf>()
        && conf.age(r.header(FieldId::UserAgent)) == age
    {
        let value = match age {
            Age::Modern => &conf.modern_value,
            Age::Ancient => &conf.ancient_value,
        };
        out.extend_from_slice(value.as_deref().unwrap_or(b"1"));
    }
    true
}

/// `$msie`: 1 for MSIE of any version.
fn msie(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.header(FieldId::UserAgent).is_some_and(is_msie) {
        out.push(b'1');
    }
    true
}

fn is_msie(agent: &[u8]) -> bool {
    let find = |text: &[u8]| memchr::memmem::find(agent, text);
    find(b"MSIE ").is_some_and(|at| at + 7 < agent.len()) && find(b"Opera").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(modern: &[(&str, u64)], unlisted: bool, ancient: &[&str]) -> BrowserConf {
        let mark = |name: &str| MARKS.iter().position(|m| m.name == name).unwrap();
        let list: Vec<_> = modern.iter().map(|(name, v)| (mark(name), *v)).collect();
        let texts: Vec<_> = ancient.iter().filter(|t| **t != "netscape4").collect();
        let mut conf = BrowserConf {
            modern: (!list.is_empty()).then(|| Rc::new(list)),
            unlisted,
            netscape4: ancient.contains(&"netscape4"),
            ancient: (!texts.is_empty()).then(|| {
                Rc::new(texts.iter().map(|t| Bytes::copy_from_slice(t.as_bytes())).collect())
            }),
            ..BrowserConf::default()
        };
        conf.merge(&BrowserConf::default()).unwrap();
        conf
    }

    const MSIE6: &str = "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)";
    const OPERA8: &str = "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0; en) Opera 8.0";
    const GECKO: &str = "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.8.0.5) Gecko/20060729";

    #[test]
    fn versions() {
        let of = |text: &str| is_modern(text.as_bytes(), 5_050_000);
        assert!(of("5.5") && !of("5.4") && of("5.5.1") && !of("5") && of("10") && of("5.5; x"));
        assert!(of("99999999999999999999999999.1") && !of("") && !of("x"));
    }

    #[test]
    fn ages() {
        let listed = conf(&[("msie", 5_050_000), ("gecko", 1_000_000)], false, &[]);
        for (agent, want) in [
            (Some(MSIE6), Age::Modern),
            (Some("Mozilla/4.0 (compatible; MSIE 5.0; Windows)"), Age::Ancient),
            (Some(GECKO), Age::Modern),
            // Not listed, whatever else it says.
            (Some(OPERA8), Age::Ancient),
            (Some("Mozilla/4.0 (compatible; MSIE "), Age::Ancient),
            (Some("curl"), Age::Ancient),
            (Some(""), Age::Ancient),
            (None, Age::Ancient),
        ] {
            assert_eq!(listed.age(agent.map(str::as_bytes)), want, "{agent:?}");
        }
        let unlisted = conf(&[("opera", 9_000_000)], true, &["Links", "netscape4"]);
        for (agent, want) in [
            (Some(OPERA8), Age::Ancient),
            (Some("Opera/9.01 (X11; FreeBSD 6 i386; U; en)"), Age::Modern),
            (Some(MSIE6), Age::Ancient),
            (Some(GECKO), Age::Modern),
            (Some("Links (0.9)"), Age::Ancient),
            (Some("Mozilla/4.7"), Age::Modern),
            (None, Age::Modern),
        ] {
            assert_eq!(unlisted.age(agent.map(str::as_bytes)), want, "{agent:?}");
        }
    }

    #[test]
    fn levels() {
        let outer = conf(&[("msie", 1)], false, &["Links"]);
        let mut inner = BrowserConf::default();
        inner.merge(&outer).unwrap();
        assert_eq!(inner.age(Some(MSIE6.as_bytes())), Age::Modern);
        let mut inner = BrowserConf { unlisted: true, ..BrowserConf::default() };
        inner.merge(&outer).unwrap();
        assert_eq!(inner.age(Some(b"Links")), Age::Ancient);
        assert_eq!(inner.age(Some(b"other")), Age::Modern);
    }

    #[test]
    fn msie_of_any_version() {
        assert!(is_msie(MSIE6.as_bytes()));
        assert!(!is_msie(OPERA8.as_bytes()) && !is_msie(b"MSIE 6") && !is_msie(b""));
    }
}
