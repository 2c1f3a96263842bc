//! Where the two differ in what they make of an upstream's head, and ours is right, or no worse.

use super::allowed::Allowed;
use super::allowed::Kind::Less;

/// All of them, the narrower first.
pub const ALLOWED: &[Allowed] = &[Allowed {
    reason: "fields of different names stand in another order, which means nothing (RFC 9110 5.3)",
    kind: Less(
        |_| true,
        |o| o.answers.iter_mut().for_each(|a| a.fields.sort_by(|(a, _), (b, _)| a.cmp(b))),
    ),
}];
