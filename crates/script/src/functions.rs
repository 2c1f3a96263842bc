//! The functions that directives name: an import, then properties.

use std::rc::Rc;

use rquickjs::{Ctx, Function, Persistent, Result, Value};

use crate::raw::Name;
use crate::state::State;

/// A name, taken apart. What the properties hold is looked up in each call: a script may assign to
/// them.
pub(crate) struct Path {
    text: String,
    import: Persistent<Value<'static>>,
    properties: Vec<Name>,
}

/// The function of a path, for example `main.hello`, if there is one.
pub(crate) fn find<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    path: &str,
) -> Result<Option<Function<'js>>> {
    let Some(path) = known(ctx, state, path)? else { return Ok(None) };
    let mut value = path.import.clone().restore(ctx)?;
    for name in &path.properties {
        if !value.is_object() {
            return Ok(None);
        }
        value = name.of(&value)?;
    }
    Ok(value.into_function())
}

/// A path that was taken apart before, or is now.
fn known(ctx: &Ctx<'_>, state: &State, text: &str) -> Result<Option<Rc<Path>>> {
    if let Some(known) = state.paths.borrow().iter().find(|known| known.text == text) {
        return Ok(Some(known.clone()));
    }
    let mut parts = text.split('.');
    let first = parts.next().unwrap_or_default();
    let import = state.imports.borrow().iter().find(|(name, _)| name == first).map(|i| i.1.clone());
    let Some(import) = import else { return Ok(None) };
    let properties = parts.map(|part| Name::new(ctx, part)).collect::<Result<Vec<Name>>>()?;
    let path = Rc::new(Path { text: text.to_owned(), import, properties });
    state.paths.borrow_mut().push(path.clone());
    Ok(Some(path))
}
