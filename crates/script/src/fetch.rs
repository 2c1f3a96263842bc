//! `ngx.fetch`, `Headers`, `Request` and `Response`.

use rquickjs::{Ctx, Result};

/// Sends requests of scripts.
pub trait FetchHost {}

/// Adds `ngx.fetch` and its classes.
pub fn install(_ctx: &Ctx<'_>) -> Result<()> {
    Ok(())
}
