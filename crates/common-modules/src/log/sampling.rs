//! `sample=`, `slow=` and `failed` of `access_log`: a share of all lines, and those that matter.

use base::dice::Dice;
use conf::shares::{WHOLE, percent};
use conf::table::Contexts;
use conf::template::{VarId, VarNames};
use conf::{ConfError, Word, value};
use engine::vars;
use engine::{Cx, Session};

/// Statuses from here on are failures.
const FAILED: u64 = 500;

/// Which sessions have a line: a share of all, and those that were slow or failed.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// The share in hundredths of a percent; `None` without `sample=`.
    share: Option<u64>,
    /// The variable of the time, and the limit in milliseconds.
    slow: Option<(VarId, u64)>,
    /// The variable of the status.
    failed: Option<VarId>,
    dice: Dice,
}

impl Sampling {
    /// Reads a parameter; false if it is not one of sampling.
    ///
    /// # Errors
    /// Its value is wrong.
    pub fn parse<S: Session>(&mut self, cx: &mut Cx<S>, word: &Word) -> Result<bool, ConfError> {
        let text = word.bytes();
        let bad = |what: &str, v: &[u8]| {
            ConfError::at(word, format!("invalid {what} \"{}\"", String::from_utf8_lossy(v)))
        };
        if let Some(v) = text.strip_prefix(b"sample=") {
            self.share = Some(percent(v).ok_or_else(|| bad("share of lines", v))?);
        } else if let Some(v) = text.strip_prefix(b"slow=") {
            let ms = value::parse_msec(v).ok_or_else(|| bad("time", v))?;
            let is_stream = S::BLOCK.intersects(Contexts::STREAM);
            let time: &[u8] = if is_stream { b"session_time" } else { b"request_time" };
            self.slow = Some((cx.vars.var_id(time, word)?, ms));
        } else if text == b"failed" {
            self.failed = Some(cx.vars.var_id(b"status", word)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether a session that is over has a line.
    pub fn takes<S: Session>(&self, s: &mut S) -> bool {
        match self.share {
            None if self.slow.is_none() && self.failed.is_none() => return true,
            Some(share) if self.dice.hits(share, WHOLE) => return true,
            _ => {}
        }
        self.failed.is_some_and(|id| number(s, id).is_some_and(|status| status >= FAILED))
            || self.slow.is_some_and(|(id, ms)| number(s, id).is_some_and(|time| time >= ms))
    }
}

/// The digits of a variable as a number: a time with three decimals in milliseconds.
fn number<S: Session>(s: &mut S, id: VarId) -> Option<u64> {
    let mut text = Vec::new();
    if !vars::write(s, id, &mut text) {
        return None;
    }
    text.retain(|b| *b != b'.');
    base::ascii::parse_u64(&text)
}
