//! The request object `r`.

use rquickjs::{Ctx, Result, Value};

/// What `r` reaches of a request.
pub trait HttpHost {}

/// Adds what HTTP handlers have beside the common objects.
pub fn install(_ctx: &Ctx<'_>) -> Result<()> {
    Ok(())
}

/// The `r` object of the request that the host lends; the same object for each call.
pub fn request<'js>(ctx: &Ctx<'js>) -> Result<Value<'js>> {
    Ok(Value::new_undefined(ctx.clone()))
}
