//! Checks of the values of annotations and of the ConfigMap's keys.

use std::net::IpAddr;

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// `true` or `false`, also as Go writes them (`1`, `T`, `True`, …).
    Bool,
    /// A whole number, not negative.
    Int,
    /// A whole number.
    SignedInt,
    /// A number with an optional point.
    Float,
    /// A size: digits and `k`, `m` or `g`.
    Size,
    /// A time as nginx has it: `10s`, `1h30m`, or seconds.
    Time,
    /// One of these words.
    Of(&'static [&'static str]),
    /// The same without regard to case.
    OfAnyCase(&'static [&'static str]),
    /// Letters, digits and `-._~/:`.
    Basic,
    /// The same and spaces.
    BasicSpaced,
    /// The same and commas.
    BasicList,
    /// A URL without variables.
    Url,
    /// A URL or path with variables.
    UrlWithVariables,
    /// Letters, digits, `-_` and variables.
    Variables,
    /// A path or a part of one, in which `$1` is a capture.
    CapturePath,
    /// Field names with commas between them.
    HeaderList,
    /// The same, or `*`.
    BasicOrStar,
    /// Addresses and ranges with commas between them.
    Cidrs,
    /// Host names, wildcards or expressions with commas between them.
    ServerNames,
    /// One of those, or a target URL with variables.
    ServerName,
    /// A regular expression.
    Regex,
    /// `CN=` and a regular expression.
    CommonName,
    /// Origins of CORS with commas between them.
    Origins,
    /// Methods with commas between them.
    Methods,
    /// Statuses from 400 to 599 with commas between them.
    ErrorCodes,
    /// The name of a Service.
    ServiceName,
    /// Conditions of `proxy_next_upstream`.
    NextUpstream,
    /// `off`, or two words.
    CookieDomain,
    /// Versions of TLS that the server has.
    TlsVersions,
    /// Cipher suites, in OpenSSL's syntax.
    Ciphers,
    /// `STATUS… TIME` with commas between them.
    CacheDurations,
    /// Two words: a number and a size.
    Buffers,
    /// A named location, a path or a URL.
    ErrorPage,
    /// Any text; where it stands decides what it may contain.
    Text,
}

const BASIC: &[u8] = b"-._~/:";

fn all_of(text: &str, more: &[u8]) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
}

fn each(text: &str, check: impl Fn(&str) -> bool) -> bool {
    text.split(',').map(str::trim).all(check)
}

/// Go's `ParseBool`.
pub fn bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether the text has no control characters and nothing that the configuration's parser itself
/// would replace.
pub fn is_clean(text: &str) -> bool {
    !text.contains("${env:") && !text.chars().any(|c| c.is_control())
}

/// A DNS name, with `*` as its first label if `wildcard`.
pub fn is_host(text: &str, wildcard: bool) -> bool {
    let text = match text.strip_prefix("*.") {
        Some(rest) if wildcard => rest,
        _ => text,
    };
    text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && all_of(label, b"-_")
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

/// An address or a range in CIDR form, as the configuration takes it.
pub fn cidr(text: &str) -> Option<String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        None => Some(address.to_string()),
        Some(bits) => {
            let bits: u8 = bits.parse().ok().filter(|b| *b <= most)?;
            Some(format!("{address}/{bits}"))
        }
    }
}

/// The parts of a list with commas, without blanks and empty parts.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// A size of nginx's `size` (without `g`) or `offset`.
pub fn is_size(text: &str) -> bool {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    text.len() - digits.len() <= 1
        && (1..=15).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A time of nginx: seconds, or numbers with units.
pub fn is_time(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b"mshdwMy ".contains(&b))
}

fn is_origin(text: &str) -> bool {
    if text == "*" || text == "null" {
        return true;
    }
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        Some(_) => return false,
        None => host,
    };
    !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_lowercase()) && is_host(host, true)
}

fn is_next_upstream(text: &str) -> bool {
    const CONDITIONS: [&str; 12] = [
        "error",
        "timeout",
        "invalid_header",
        "http_500",
        "http_502",
        "http_503",
        "http_504",
        "http_403",
        "http_404",
        "http_429",
        "non_idempotent",
        "off",
    ];
    let mut words = text.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| CONDITIONS.contains(&word))
}

/// `200 202 10m, 401 5m`: each part ends in a time.
fn is_cache_durations(text: &str) -> bool {
    list(text).all(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        let Some((time, codes)) = words.split_last() else { return false };
        let is_code = |c: &&str| c.len() == 3 && c.bytes().all(|b| b.is_ascii_digit());
        is_time(time)
            && time.ends_with(char::is_alphabetic)
            && codes.iter().all(|c| is_code(c) || *c == "any")
    })
}

fn is_error_page(text: &str) -> bool {
    match text.strip_prefix('@') {
        Some(name) => !name.is_empty() && all_of(name, b"-_"),
        None => !text.is_empty() && all_of(text, BASIC),
    }
}

impl Check {
    /// Whether a value passes.
    pub fn accepts(self, text: &str) -> bool {
        let bare = text.trim();
        match self {
            Check::Bool => bool(text).is_some(),
            Check::Int => bare.parse::<u32>().is_ok(),
            Check::SignedInt => bare.parse::<i32>().is_ok(),
            Check::Float => bare.parse::<f64>().is_ok_and(f64::is_finite),
            Check::Size => is_size(bare),
            Check::Time => is_time(bare),
            Check::Of(words) => words.contains(&bare),
            Check::OfAnyCase(words) => words.iter().any(|word| word.eq_ignore_ascii_case(bare)),
            Check::Basic => all_of(bare, BASIC),
            Check::BasicSpaced => all_of(text, b"-._~/: "),
            Check::BasicList => all_of(text, b"-._~/:, "),
            Check::Url => all_of(bare, b"-._~/:,?&=%"),
            Check::UrlWithVariables => all_of(bare, b"-._~/:,?&=%$ "),
            Check::Variables => all_of(bare, b"-_${}"),
            Check::CapturePath => all_of(bare, b"-._~/:$"),
            Check::HeaderList => all_of(text, b"-_, "),
            Check::BasicOrStar => all_of(text, b"-_*, "),
            Check::Cidrs => list(text).all(|part| cidr(part).is_some()),
            Check::ServerNames => each(text, |part| all_of(part, b"-._~/:^$[](){}*+?|&=\\")),
            Check::ServerName | Check::Regex => all_of(bare, b"-._~/:^$[](){}*+?|&=\\"),
            Check::CommonName => text.starts_with("CN="),
            Check::Origins => list(text).all(is_origin),
            Check::Methods => each(text, |m| m.bytes().all(|b| b.is_ascii_alphabetic())),
            Check::ErrorCodes => list(text).all(|code| {
                code.len() == 3 && code.parse::<u16>().is_ok_and(|c| (400..600).contains(&c))
            }),
            Check::ServiceName => text.len() <= 63 && is_host(text, false) && !text.contains('.'),
            Check::NextUpstream => is_next_upstream(text),
            Check::CookieDomain => {
                bare == "off" || (bare.split_whitespace().count() == 2 && all_of(bare, b"-._~/: "))
            }
            Check::TlsVersions => bare.split_whitespace().all(|v| v == "TLSv1.2" || v == "TLSv1.3"),
            Check::Ciphers => all_of(bare, b"!:+-_@="),
            Check::CacheDurations => is_cache_durations(text),
            Check::Buffers => bare
                .split_once(' ')
                .is_some_and(|(count, size)| count.parse::<u32>().is_ok() && is_size(size.trim())),
            Check::ErrorPage => is_error_page(bare),
            Check::Text => true,
        }
    }

    /// What it wants, for a message.
    pub fn wanted(self) -> String {
        let fixed = match self {
            Check::Bool => "\"true\" or \"false\"",
            Check::Int => "a whole number from 0",
            Check::SignedInt => "a whole number",
            Check::Float => "a number",
            Check::Size => "a size such as 8k or 1m",
            Check::Time => "a time such as 30s",
            Check::Of(words) | Check::OfAnyCase(words) => {
                return format!("one of {}", words.join(", "));
            }
            Check::Basic => "letters, digits and -._~/:",
            Check::BasicSpaced => "letters, digits, spaces and -._~/:",
            Check::BasicList => "letters, digits, spaces, commas and -._~/:",
            Check::Url => "a URL without variables",
            Check::UrlWithVariables => "a URL",
            Check::Variables => "letters, digits, - and _, and variables",
            Check::CapturePath => "a path, in which $1 is a capture",
            Check::HeaderList => "field names with commas between them",
            Check::BasicOrStar => "field names or * with commas between them",
            Check::Cidrs => "addresses or ranges (10.0.0.0/8) with commas between them",
            Check::ServerNames => "host names with commas between them",
            Check::ServerName => "a host name or a URL",
            Check::Regex => "a regular expression of plain characters",
            Check::CommonName => "\"CN=\" and a regular expression",
            Check::Origins => "origins such as https://*.example.com with commas between them",
            Check::Methods => "methods with commas between them",
            Check::ErrorCodes => "statuses from 400 to 599 with commas between them",
            Check::ServiceName => "the name of a Service",
            Check::NextUpstream => "conditions of proxy_next_upstream",
            Check::CookieDomain => "\"off\", or two domains",
            Check::TlsVersions => "TLSv1.2 and TLSv1.3: older versions are not available",
            Check::Ciphers => "cipher suites in OpenSSL's syntax",
            Check::CacheDurations => "statuses and a time, such as 200 202 10m",
            Check::Buffers => "a number and a size",
            Check::ErrorPage => "a URL, a path, or a named location",
            Check::Text => "text",
        };
        fixed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_and_refuses() {
        let cases: &[(Check, &[&str], &[&str])] = &[
            (Check::Bool, &["true", "0", "T"], &["yes", "", " true"]),
            (Check::Int, &["0", "42"], &["-1", "1.5", "", "4294967296"]),
            (Check::Size, &["8k", "1M", "0", "10g"], &["k", "1kk", "1t", "-1", "1 k"]),
            (Check::Time, &["30s", "1h30m", "5"], &["s", "", "1x;"]),
            (Check::Cidrs, &["10.0.0.0/8, ::1", "1.2.3.4"], &["10.0.0.0/33", "host", "1.2.3.4;"]),
            (Check::Origins, &["*", "https://*.a.example:8443,null"], &["a.example", "x://a b"]),
            (Check::ErrorCodes, &["404,503", ""], &["200", "4040", "404;"]),
            (Check::NextUpstream, &["error timeout", "off"], &["", "error; x", "http_501"]),
            (Check::CookieDomain, &["off", "a.example b.example"], &["a", "a b c", "a; b"]),
            (Check::CacheDurations, &["200 202 10m, 401 5m", "1h"], &["200", "10m 200", "200 x;"]),
            (Check::ErrorPage, &["@x", "https://a.example/b", "/e.html"], &["@", "a b", "/;"]),
            (Check::Basic, &["ns/name"], &["a b", "a;b", "$x"]),
            (Check::TlsVersions, &["TLSv1.2 TLSv1.3"], &["TLSv1.1"]),
            (Check::CommonName, &["CN=(a|b)"], &["O=x"]),
            (Check::ServiceName, &["a-b"], &["a.b", "-a", "a b"]),
        ];
        for (check, good, bad) in cases {
            for text in *good {
                assert!(check.accepts(text), "{check:?} {text:?}");
            }
            for text in *bad {
                assert!(!check.accepts(text), "{check:?} {text:?}");
            }
        }
    }

    #[test]
    fn hosts() {
        assert!(is_host("a.example.com", false) && is_host("*.example.com", true));
        for bad in ["*.example.com", "a..b", "-a.b", "a b", "a;b", "", "a/b", "${env:x}"] {
            assert!(!is_host(bad, false), "{bad:?}");
        }
        assert!(!is_host("a.*.b", true));
    }
}
