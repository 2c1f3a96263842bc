//! <https://exslt.org/exsl/>: nodes of fragments, and the types of values.

use super::{function, tree_of};
use crate::error::Result;
use crate::tree::ROOT;
use crate::value::{N, Value};
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function};

const COMMON: &str = "http://exslt.org/common";

/// The functions; `node-set()` has the names that libxslt knows it by, too.
pub(super) static FUNCTIONS: &[Function] = &[
    function(COMMON, "node-set", (1, 1), node_set),
    function(COMMON, "object-type", (1, 1), |_, args| Ok(Value::text(object_type(&args[0])))),
    function("http://icl.com/saxon", "node-set", (1, 1), fragment_nodes),
    function("http://www.jclark.com/xt", "node-set", (1, 1), fragment_nodes),
    function("http://xmlsoft.org/XSLT/namespace", "node-set", (1, 1), fragment_nodes),
];

/// The root of a fragment, nodes as they are, and a text node of anything else.
fn node_set(cx: &Cx, args: &[Value]) -> Result<Value> {
    if matches!(args[0], Value::Nodes(_) | Value::Tree(_)) {
        return fragment_nodes(cx, args);
    }
    let root = cx.run.docs.add(tree_of(cx, &cx.text_of(&args[0]))?);
    // There is no text node of an empty text: the root has the same value.
    let text = cx.run.docs.doc(root).children(ROOT).next();
    Ok(Value::nodes(vec![N { id: text.unwrap_or(ROOT), ..root }]))
}

fn fragment_nodes(cx: &Cx, args: &[Value]) -> Result<Value> {
    Ok(Value::Nodes(nodes(cx, &args[0])?))
}

fn object_type(value: &Value) -> &'static str {
    match value {
        Value::Nodes(_) => "node-set",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::Text(_) => "string",
        Value::Tree(_) => "RTF",
    }
}
