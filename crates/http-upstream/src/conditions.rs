//! Conditions of some directives: met if any of the texts is neither empty nor `0`.

use std::rc::Rc;

use conf::template::Template;
use conf::{ConfError, Node};

use http::cx::Cx;
use http::module::Conf;
use http::request::Request;

/// Adds a directive's arguments to a list of conditions.
///
/// # Errors
/// See [`Cx::template`].
pub fn add<C: Conf>(
    cx: &mut Cx,
    n: &Node,
    list: fn(&mut C) -> &mut Option<Rc<Vec<Template>>>,
) -> Result<(), ConfError> {
    let texts = n.args.iter().map(|w| cx.template(w)).collect::<Result<Vec<_>, ConfError>>()?;
    Rc::make_mut(list(cx.loc()).get_or_insert_default()).extend(texts);
    Ok(())
}

/// Whether one of these is there and not `0`.
pub fn any_set(r: &mut Request, list: &[Template]) -> bool {
    list.iter().any(|t| {
        let value = t.eval(r);
        !value.is_empty() && &value[..] != b"0"
    })
}
