//! When a certificate is renewed: the server's word (RFC 9773), else its age.

use super::json::Object;
use super::{Malformed, base64url, parse_rfc3339};

/// The server's word on the renewal of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalInfo {
    /// The first and the last second since 1970 in which to renew.
    pub window: (i64, i64),
    /// A page that tells why.
    pub explanation: Option<String>,
}

impl RenewalInfo {
    /// Reads it.
    ///
    /// # Errors
    /// It is none, or the window ends before it begins.
    pub fn parse(body: &[u8]) -> Result<RenewalInfo, Malformed> {
        let o = Object::parse(body)?;
        let window = o.object("suggestedWindow").ok_or(Malformed("no window for renewal"))?;
        let time = |name| window.text(name).and_then(parse_rfc3339);
        match (time("start"), time("end")) {
            (Some(start), Some(end)) if start < end => Ok(RenewalInfo {
                window: (start, end),
                explanation: o.text("explanationURL").map(str::to_owned),
            }),
            _ => Err(Malformed("no window for renewal")),
        }
    }
}

/// The identifier of a certificate (section 4.1), by the key identifier of its issuer and by its
/// serial number, both the contents in DER.
pub fn certificate_id(authority: &[u8], serial: &[u8]) -> String {
    format!("{}.{}", base64url(authority), base64url(serial))
}

/// The seconds of ten days: certificates that live no longer are renewed at half of their life.
const SHORT: i64 = 10 * 86_400;

/// The window for a certificate of which the server says nothing: around two thirds of its life.
pub fn window_of(not_before: i64, not_after: i64) -> (i64, i64) {
    let life = not_after.saturating_sub(not_before).max(0);
    let middle = if life > SHORT { life / 3 * 2 } else { life / 2 };
    let spread = life / 50;
    let at = |offset: i64| not_before.saturating_add(offset);
    (at(middle - spread), at(middle + spread))
}

/// A moment of the window, by a random number.
pub fn moment(window: (i64, i64), random: u64) -> i64 {
    let width = u64::try_from(window.1.saturating_sub(window.0)).unwrap_or(0);
    let offset = random % width.saturating_add(1).max(1);
    window.0.saturating_add(i64::try_from(offset).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        let authority = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0,
            0xae, 0x2c, 0xde, 0x01, 0xc8, 0xd4,
        ];
        let serial = [0x00, 0x87, 0x65, 0x43, 0x21];
        assert_eq!(certificate_id(&authority, &serial), "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
        let body = br#"{"suggestedWindow":{"start":"2025-01-02T04:00:00Z",
            "end":"2025-01-03T04:00:00Z"},"explanationURL":"https://acme.example.com/docs/ari"}"#;
        let info = RenewalInfo::parse(body).unwrap();
        assert_eq!(info.window, (1_735_790_400, 1_735_876_800));
        assert_eq!(info.explanation.as_deref(), Some("https://acme.example.com/docs/ari"));
    }

    #[test]
    fn windows_without_sense_are_refused() {
        for body in [
            "{}",
            r#"{"suggestedWindow":{"start":"2025-01-02T04:00:00Z"}}"#,
            r#"{"suggestedWindow":{"start":"2025-01-02T04:00:00Z","end":"2025-01-02T04:00:00Z"}}"#,
            r#"{"suggestedWindow":{"start":1,"end":2}}"#,
        ] {
            assert!(RenewalInfo::parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn ages() {
        const DAY: i64 = 86_400;
        let (from, to) = window_of(0, 90 * DAY);
        assert!(from < 60 * DAY && 60 * DAY < to && to - from < 4 * DAY);
        let (from, to) = window_of(0, 6 * DAY);
        assert!(from < 3 * DAY && 3 * DAY < to);
        assert_eq!(window_of(100, 50), (100, 100));
        assert_eq!(moment((10, 20), 0), 10);
        assert_eq!(moment((10, 20), 10), 20);
        assert_eq!(moment((10, 20), 11), 10);
        assert_eq!(moment((20, 10), 5), 20);
        assert_eq!(moment((i64::MIN, i64::MAX), 0), i64::MIN);
    }
}
