//! The state of an order, or of an account, that outlives the process, in JSON.

use base::json::Object;
use proto::acme::Backoff;
use serde_json::Value;

/// The progress of an order, or of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The address of the order under way.
    pub order: Option<String>,
    /// An order was asked for, and its address may not have come.
    pub asked: bool,
    /// Attempts that failed.
    pub backoff: Backoff,
    /// Why the last one did.
    pub error: String,
    /// Renewals long before the end, in a row: an authority that wants each certificate replaced at
    /// once gets its way, but not without pauses.
    pub early: Backoff,
    /// The second since 1970 in which to renew; 0 where none was chosen.
    pub renew: i64,
    /// The second since 1970 in which to ask the server for the next renewal.
    pub check: i64,
    /// The settings that all of this is for; others begin anew.
    pub settings: String,
}

impl Progress {
    /// Reads the text of a file. One that cannot be read is no progress.
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

    /// The text of a file.
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
