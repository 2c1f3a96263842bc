//! Values that cross the border, in the engine and outside of it.

use rquickjs::{Array, Ctx, Object, Result, String as JsString, Value};

use crate::value::Data;

impl Data {
    /// The value in the engine.
    pub(crate) fn to_js<'js>(&self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let ctx = ctx.clone();
        Ok(match self {
            Data::Undefined => Value::new_undefined(ctx),
            Data::Null => Value::new_null(ctx),
            Data::Bool(b) => Value::new_bool(ctx, *b),
            Data::Number(n) => Value::new_number(ctx, *n),
            Data::Text(text) => JsString::from_str(ctx, text)?.into_value(),
            Data::Bytes(bytes) => crate::buffer::new(&ctx, bytes)?,
            Data::List(list) => {
                let array = Array::new(ctx.clone())?;
                for (i, item) in list.iter().enumerate() {
                    array.set(i, item.to_js(&ctx)?)?;
                }
                array.into_value()
            }
            Data::Object(entries) => {
                let object = Object::new(ctx.clone())?;
                for (name, value) in entries {
                    object.set(name.as_str(), value.to_js(&ctx)?)?;
                }
                object.into_value()
            }
        })
    }

    /// The value outside the engine. Bytes and scalars keep their type, everything else is
    /// converted to a string as `String(value)` does, which may run the script's own `toString`.
    pub(crate) fn from_js(value: &Value<'_>) -> Result<Data> {
        if value.is_undefined() {
            return Ok(Data::Undefined);
        }
        if value.is_null() {
            return Ok(Data::Null);
        }
        if let Some(b) = value.as_bool() {
            return Ok(Data::Bool(b));
        }
        if let Some(n) = value.as_number() {
            return Ok(Data::Number(n));
        }
        if let Some(bytes) = crate::raw::bytes(value) {
            return Ok(Data::Bytes(bytes));
        }
        crate::value::text(value).map(Data::Text)
    }
}
