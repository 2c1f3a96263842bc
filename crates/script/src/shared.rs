//! `ngx.shared`: dictionaries that all workers see.

use rquickjs::{Ctx, Result};

/// The dictionaries of `js_shared_dict_zone`.
pub trait SharedHost {}

/// Adds `ngx.shared`.
pub fn install(_ctx: &Ctx<'_>) -> Result<()> {
    Ok(())
}
