//! The module `xml`: documents as objects whose properties are tags, attributes and text.

mod c14n;
mod objects;
mod parse;
mod tree;

use rquickjs::{Ctx, Exception, Object, Result, Value};

use crate::buffer;
use crate::native::{self, Call, to_bool};
use crate::value::text;
use crate::{raw, state};
use c14n::Form;
use objects::NodeRef;

/// What the module exports.
pub(crate) const EXPORTS: &[&str] =
    &["parse", "c14n", "exclusiveC14n", "serialize", "serializeToString"];

/// About the memory that a node takes, in bytes.
const NODE_BYTES: usize = 256;

pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    objects::install(ctx)?;
    let module = Object::new(ctx.clone())?;
    native::methods(
        &module,
        &[
            ("parse", 1, parse_document),
            ("c14n", 4, |call| {
                let written = canonical(call, false)?;
                buffer::new(call.ctx(), written.as_bytes())
            }),
            ("exclusiveC14n", 4, |call| {
                let written = canonical(call, true)?;
                buffer::new(call.ctx(), written.as_bytes())
            }),
            ("serialize", 4, |call| {
                let written = canonical(call, false)?;
                buffer::new(call.ctx(), written.as_bytes())
            }),
            ("serializeToString", 4, |call| {
                let written = canonical(call, false)?;
                call.text(&written)
            }),
        ],
    )?;
    Ok(module)
}

/// How many nodes a document may have: as many as the script's memory would hold.
fn nodes_max(ctx: &Ctx<'_>) -> usize {
    state::of(ctx).memory_max() / NODE_BYTES
}

/// `xml.parse(text)`
fn parse_document<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let bytes = buffer::bytes_of(&call.arg(0))?;
    let nodes_max = u32::try_from(nodes_max(ctx)).unwrap_or(u32::MAX);
    match parse::parse(&bytes, nodes_max) {
        Ok(tree) => objects::document(ctx, tree),
        Err(wrong) => {
            let parse::Wrong { message, line, column } = wrong;
            let message = format!("failed to parse XML (\"{message}\" at {line}:{column})");
            Err(Exception::throw_syntax(ctx, &message))
        }
    }
}

/// `xml.c14n(node, excluding, withComments, prefixes)`
fn canonical(call: &Call<'_, '_>, exclusive: bool) -> Result<String> {
    let node = NodeRef::of(&call.arg(0))
        .ok_or_else(|| call.type_error("value is not XMLNode or XMLDoc"))?;
    let mut form = Form { exclusive, comments: to_bool(&call.arg(2))?, ..Form::default() };
    let excluding = call.arg(1);
    if !excluding.is_undefined() && !excluding.is_null() {
        let excluded = objects::node(&excluding)
            .ok_or_else(|| call.type_error("\"excluding\" argument is not a XMLNode object"))?;
        // A node of another document is not in this one.
        form.excluding = node.is_of_same_document(&excluded).then_some(excluded.id);
    }
    let prefixes = call.arg(3);
    if !prefixes.is_undefined() && !prefixes.is_null() {
        if !prefixes.is_string() {
            return Err(call.type_error("\"prefixes\" argument is not a string"));
        }
        form.prefixes = text(&prefixes)?.split_ascii_whitespace().map(str::to_owned).collect();
    }
    let tree = node.tree();
    let (ctx, state) = (call.ctx(), state::of(call.ctx()));
    let max = state.memory_max();
    let goes_on = |steps: usize, length: usize| length <= max && native::goes_on(ctx, steps);
    c14n::write(&tree, node.id, &form, &goes_on).ok_or_else(|| match state.meter.ended() {
        Some(_) => raw::interrupt(ctx),
        None => state::out_of_memory(ctx),
    })
}
