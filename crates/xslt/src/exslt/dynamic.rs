//! <https://exslt.org/dyn/> and functions of Saxon's that libxslt has: expressions that are texts.
//!
//! They may use the variables of the stylesheet and its functions, but not those of templates,
//! which have no names any more when it runs.

use std::sync::Arc;

use super::{function, tree};
use crate::atoms::{Atoms, Name};
use crate::error::Result;
use crate::run::Deeper;
use crate::tree::ROOT;
use crate::value::{N, Value, order};
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function, Namespaces, Scope, Var, XPath, parse};

const DYNAMIC: &str = "http://exslt.org/dynamic";
const SAXON: &str = "http://icl.com/saxon";
const COMMON: &str = "http://exslt.org/common";

pub(super) static FUNCTIONS: &[Function] = &[
    function(DYNAMIC, "evaluate", (1, 1), |cx, args| {
        compiled_or_said(cx, &args[0])?.map_or(none(), |expr| evaluated(cx, &expr))
    }),
    function(DYNAMIC, "map", (2, 2), map),
    function(SAXON, "expression", (1, 1), |cx, args| {
        compiled(cx, &args[0])?;
        Ok(Value::text(&cx.text_of(&args[0])))
    }),
    function(SAXON, "eval", (1, 1), saxon_evaluate),
    function(SAXON, "evaluate", (1, 1), saxon_evaluate),
];

/// The levels of nesting that an evaluation counts as: its expression may be deep itself.
const LEVELS: usize = 100;

/// The names at the context of a function.
struct Names<'c> {
    cx: &'c Cx<'c>,
}

impl Scope for Names<'_> {
    fn atoms(&self) -> &Atoms {
        &self.cx.run.atoms
    }

    fn namespaces(&self) -> Arc<Namespaces> {
        Arc::new(self.cx.namespaces.clone())
    }

    fn variable(&self, name: Name) -> Option<Var> {
        let place = self.cx.run.sheet.globals.iter().position(|known| known.name == name)?;
        u32::try_from(place).ok().map(Var::Global)
    }

    fn own_function(&self, name: Name) -> Option<(u32, usize)> {
        let functions = &self.cx.run.sheet.functions;
        let place = functions.iter().position(|known| known.name == name)?;
        Some((u32::try_from(place).ok()?, functions[place].params.len()))
    }

    fn file(&self) -> Arc<str> {
        self.cx.file.into()
    }
}

fn compiled(cx: &Cx, text: &Value) -> Result<XPath> {
    parse(&cx.text_of(text), &Names { cx })
}

/// The levels of an evaluation, until they are dropped; an error where too many are within one
/// another.
fn levels<'c>(cx: &Cx<'c>) -> Result<Vec<Deeper<'c>>> {
    (0..LEVELS).map(|_| cx.run.deeper()).collect()
}

fn evaluated(cx: &Cx, expr: &XPath) -> Result<Value> {
    let _levels = levels(cx)?;
    expr.eval(cx)
}

/// `None` for what is no expression: that is said, except of an empty text.
fn compiled_or_said(cx: &Cx, text: &Value) -> Result<Option<XPath>> {
    if cx.text_of(text).is_empty() {
        return Ok(None);
    }
    let expr = compiled(cx, text);
    if let Err(e) = &expr {
        cx.run.message(&e.message);
    }
    Ok(expr.ok())
}

fn none() -> Result<Value> {
    Ok(Value::nodes(Vec::new()))
}

fn saxon_evaluate(cx: &Cx, args: &[Value]) -> Result<Value> {
    evaluated(cx, &compiled(cx, &args[0])?)
}

/// Nodes that are brought into order and made unique only at the end.
const FEW: usize = 1000;

/// `map()`: the nodes of an expression's values at some nodes, and an element of each value that is
/// not of nodes: `exsl:number`, `exsl:string`, or `exsl:boolean`, which is empty if false.
fn map(cx: &Cx, args: &[Value]) -> Result<Value> {
    let from = nodes(cx, &args[0])?;
    let Some(expr) = compiled_or_said(cx, &args[1])? else { return none() };
    let _levels = levels(cx)?;
    let mut found: Vec<N> = Vec::new();
    let mut few = FEW;
    let doc = tree(cx, |out| {
        for (at, node) in from.iter().enumerate() {
            let here = Cx { node: *node, position: at + 1, size: from.len(), ..*cx };
            let value = expr.eval(&here)?;
            let local = match &value {
                Value::Nodes(_) | Value::Tree(_) => {
                    found.extend(nodes(cx, &value)?.iter());
                    // They may be the same ones each time.
                    if found.len() > few {
                        order(&mut found);
                        few = 2 * found.len() + FEW;
                    }
                    continue;
                }
                Value::Number(_) => "number",
                Value::Text(_) => "string",
                Value::Bool(_) => "boolean",
            };
            out.start(cx.run.atoms.name(COMMON, local), cx.run.atoms.get("exsl"))?;
            if !matches!(value, Value::Bool(false)) {
                out.text(&cx.text_of(&value), false)?;
            }
            out.end();
        }
        Ok(())
    })?;
    if doc.children(ROOT).next().is_some() {
        let root = cx.run.docs.add(doc);
        let doc = cx.run.docs.doc(root);
        found.extend(doc.children(ROOT).map(|id| N { id, ..root }));
    }
    Ok(Value::unordered(found))
}
