//! The functions that XSLT adds (section 12).

use std::path::Path;

use crate::atoms::{Atom, Name};
use crate::error::{Error, Result};
use crate::number::format_number;
use crate::sheet::beside;
use crate::value::{N, Value};
use crate::xpath::functions::{find, nodes};
use crate::xpath::{Cx, Function};

pub(crate) static FUNCTIONS: &[Function] = &[
    added("current", (0, 0), |cx, _| Ok(Value::nodes(vec![cx.current]))),
    added("document", (1, 2), document),
    added("element-available", (1, 1), element_available),
    added("format-number", (2, 3), formatted),
    added("function-available", (1, 1), function_available),
    added("generate-id", (0, 1), generate_id),
    added("key", (2, 2), key),
    added("system-property", (1, 1), system_property),
    added("unparsed-entity-uri", (1, 1), |cx, args| {
        let unparsed = &cx.run.docs.doc(cx.node).unparsed;
        Ok(Value::text(unparsed.get(&*cx.text_of(&args[0])).map_or("", |uri| uri)))
    }),
];

const fn added(
    name: &'static str,
    args: (usize, usize),
    call: fn(&Cx, &[Value]) -> Result<Value>,
) -> Function {
    Function { uri: "", name, args, call }
}

/// The name of a text at an expression: URI and local part.
fn named<'a>(cx: &'a Cx, text: &'a str) -> Result<(&'a str, &'a str)> {
    let Some((prefix, local)) = text.split_once(':') else { return Ok(("", text)) };
    let found = cx.namespaces.iter().find(|(known, _)| known == prefix);
    let unknown = || Error::new(format!("unknown prefix \"{prefix}\" of \"{text}\""));
    let (_, uri) = found.ok_or_else(unknown)?;
    Ok((cx.run.atoms.text(*uri), local))
}

fn name_of(cx: &Cx, value: &Value) -> Result<Name> {
    let text = cx.text_of(value);
    let (uri, local) = named(cx, &text)?;
    Ok(cx.run.atoms.name(uri, local))
}

fn key(cx: &Cx, args: &[Value]) -> Result<Value> {
    let name = name_of(cx, &args[0])?;
    let mut found = Vec::new();
    match &args[1] {
        Value::Nodes(nodes) => {
            for n in nodes.iter() {
                found.extend(cx.run.key(name, cx.node, &cx.run.docs.value(*n))?);
            }
        }
        value => found = cx.run.key(name, cx.node, &cx.text_of(value))?,
    }
    Ok(Value::unordered(found))
}

/// `document()`: files alone; what cannot be read is said, and gives no nodes (section 12.1).
fn document(cx: &Cx, args: &[Value]) -> Result<Value> {
    let docs = &cx.run.docs;
    // The file of a node's document, or that of the stylesheet.
    let base_of = |n: N| docs.doc(n).base.as_deref().unwrap_or(cx.file).to_owned();
    let base = match args.get(1) {
        Some(value) => {
            Some(nodes(cx, value)?.first().map_or_else(|| cx.file.to_owned(), |n| base_of(*n)))
        }
        None => None,
    };
    let mut found = Vec::new();
    let mut add = |href: &str, base: &str| {
        let path = beside(Path::new(base), href.trim());
        match path.filter(|_| !base.is_empty()) {
            Some(path) => {
                let root = cx.run.document(path);
                // A fragment is the element of that ID.
                found.extend(root.and_then(|root| match href.split_once('#') {
                    Some((_, id)) if !id.is_empty() => {
                        docs.doc(root).ids.get(id).map(|id| N { id: *id, ..root })
                    }
                    _ => Some(root),
                }));
            }
            None => cx.run.message(&format!("document(\"{href}\") is no file, and is not read")),
        }
    };
    match &args[0] {
        Value::Nodes(nodes) => {
            for n in nodes.iter() {
                let own = base.clone().unwrap_or_else(|| base_of(*n));
                add(&docs.value(*n), &own);
            }
        }
        value => add(&cx.text_of(value), base.as_deref().unwrap_or(cx.file)),
    }
    Ok(Value::unordered(found))
}

fn formatted(cx: &Cx, args: &[Value]) -> Result<Value> {
    let name = match args.get(2) {
        Some(name) => name_of(cx, name)?,
        None => Name::default(),
    };
    let Some(format) = cx.run.sheet.formats.get(&name) else {
        let name = cx.run.atoms.text(name.local);
        return Err(Error::new(format!("no xsl:decimal-format is named \"{name}\"")));
    };
    let text = format_number(cx.number_of(&args[0]), &cx.text_of(&args[1]), format)?;
    Ok(Value::text(&text))
}

fn generate_id(cx: &Cx, args: &[Value]) -> Result<Value> {
    let n = match args {
        [value] => nodes(cx, value)?.first().copied(),
        _ => Some(cx.node),
    };
    Ok(Value::text(&n.map_or(String::new(), |n| format!("id{}n{}", n.doc, n.id))))
}

fn system_property(cx: &Cx, args: &[Value]) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    Ok(match named(cx, &text)? {
        (crate::XSL, "version") => Value::Number(1.0),
        (crate::XSL, "vendor") => Value::text("weir"),
        _ => Value::text(""),
    })
}

/// The instructions of XSLT.
const INSTRUCTIONS: &[&str] = &[
    "apply-imports",
    "apply-templates",
    "attribute",
    "call-template",
    "choose",
    "comment",
    "copy",
    "copy-of",
    "element",
    "fallback",
    "for-each",
    "if",
    "message",
    "number",
    "processing-instruction",
    "text",
    "value-of",
    "variable",
];

fn element_available(cx: &Cx, args: &[Value]) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    let (uri, local) = match text.contains(':') {
        true => named(cx, &text)?,
        // Names of elements are in the default namespace.
        false => {
            let default = cx.namespaces.iter().find(|(prefix, _)| prefix.is_empty());
            (default.map_or("", |(_, uri)| cx.run.atoms.text(*uri)), &*text)
        }
    };
    Ok(Value::Bool(match uri {
        crate::XSL => INSTRUCTIONS.contains(&local),
        crate::sheet::FUNC => local == "result",
        _ => false,
    }))
}

fn function_available(cx: &Cx, args: &[Value]) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    let (uri, local) = named(cx, &text)?;
    let is_core = uri.is_empty() && matches!(local, "position" | "last");
    let own = cx.run.sheet.functions.iter().any(|function| {
        function.name == cx.run.atoms.name(uri, local) && function.name.uri != Atom::EMPTY
    });
    Ok(Value::Bool(is_core || own || find(uri, local).is_some()))
}
