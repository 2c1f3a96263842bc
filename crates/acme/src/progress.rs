//! The persistent state of an order or an account, stored as JSON, so that a restarted process
//! continues an order and keeps the back-off.

use base::json::Object;
use proto::acme::Backoff;
use serde_json::Value;

/// The persistent state of an order or an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The URL of the order in progress.
    pub order: Option<String>,
    /// An order was requested, and the response with its URL may have been lost.
    pub asked: bool,
    /// The back-off after failed attempts.
    pub backoff: Backoff,
    /// The error of the last failed attempt.
    pub error: String,
    /// The back-off after early renewals in a row: a server that requests the replacement of each
    /// new certificate gets it, but with pauses.
    pub early: Backoff,
    /// The time of the renewal, in seconds since 1970; 0 if none was chosen.
    pub renew: i64,
    /// The next time to request renewal information (RFC 9773), in seconds since 1970.
    pub check: i64,
    /// The settings at that time. If they change, the state is discarded.
    pub settings: String,
}

impl Progress {
    /// Parses a state file. An unreadable one counts as the initial state.
    pub fn parse(text: &[u8]) -> Progress {
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return Progress::default() };
        let number = |name: &str| value.get(name).and_then(Value::as_i64).unwrap_or(0).max(0);
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let order = text("order");
        Progress {
            order: (!order.is_empty()).then(|| order.to_owned()),
            asked: value.get("asked").and_then(Value::as_bool).unwrap_or(false),
            backoff: Backoff {
                failures: u32::try_from(number("failures")).unwrap_or(u32::MAX),
                next: number("next"),
                since: number("since"),
            },
            error: text("error").to_owned(),
            early: Backoff {
                failures: u32::try_from(number("early")).unwrap_or(u32::MAX),
                next: number("early_next"),
                since: number("early_since"),
            },
            renew: number("renew"),
            check: number("check"),
            settings: text("settings").to_owned(),
        }
    }

    /// The content of a state file.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Object::write(&mut out, |o| {
            o.text("settings", self.settings.as_bytes());
            if let Some(order) = &self.order {
                o.text("order", order.as_bytes());
            }
            if self.asked {
                o.flag("asked", true);
            }
            if self.backoff != Backoff::default() {
                o.number("failures", self.backoff.failures.into());
                o.number("next", number(self.backoff.next));
                o.number("since", number(self.backoff.since));
                o.text("error", self.error.as_bytes());
            }
            if self.early != Backoff::default() {
                o.number("early", self.early.failures.into());
                o.number("early_next", number(self.early.next));
                o.number("early_since", number(self.early.since));
            }
            o.number("renew", number(self.renew));
            o.number("check", number(self.check));
        });
        out.push(b'\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read_again() {
        let full = Progress {
            order: Some("https://a.test/order/1".into()),
            asked: true,
            backoff: Backoff { failures: 3, next: 1_800_000_060, since: 1_800_000_000 },
            error: "dns: \"no\"\u{e4}".into(),
            early: Backoff { failures: 1, next: 1_800_000_061, since: 1_800_000_001 },
            renew: 1,
            check: 2,
            settings: "x".into(),
        };
        for progress in [full, Progress::default()] {
            assert_eq!(Progress::parse(&progress.to_text()), progress);
        }
        for text in ["", "[]", "{", "{\"failures\":-1,\"next\":\"x\",\"order\":\"\"}"] {
            assert_eq!(Progress::parse(text.as_bytes()), Progress::default(), "{text}");
        }
    }
}
