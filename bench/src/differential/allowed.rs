//! Where the two differ and ours is right, or no worse: each with its reason.

use super::exchange::Outcome;
use super::generate::Case;

/// One known difference.
pub struct Allowed {
    /// Why it is there.
    pub reason: &'static str,
    /// Whether a difference is this one.
    pub is: fn(&Case, nginx: &Outcome, weir: &Outcome) -> bool,
}

/// All of them, the narrower first.
pub const ALLOWED: &[Allowed] = &[];
