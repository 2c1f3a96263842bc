//! The core functions (XPath, section 4), and the way to all others.

use super::{Cx, Function};
use crate::error::{Error, Result};
use crate::tree::{Id, Kind};
use crate::value::{N, Value};

/// The functions that are no extensions.
static CORE: &[Function] = &[
    core("count", (1, 1), |cx, args| Ok(Value::Number(nodes(cx, &args[0])?.len() as f64))),
    core("id", (1, 1), id),
    core("local-name", (0, 1), |cx, args| named(cx, args, |_, local| local.to_owned())),
    core("namespace-uri", (0, 1), |cx, args| named(cx, args, |uri, _| uri.to_owned())),
    core("name", (0, 1), name),
    core("string", (0, 1), |cx, args| Ok(Value::text(&own_or(cx, args)))),
    core("concat", (2, usize::MAX), concat),
    core("starts-with", (2, 2), |cx, args| two(cx, args, |a, b| Value::Bool(a.starts_with(b)))),
    core("contains", (2, 2), |cx, args| two(cx, args, |a, b| Value::Bool(a.contains(b)))),
    core("substring-before", (2, 2), |cx, args| {
        two(cx, args, |a, b| Value::text(a.split_once(b).map_or("", |(before, _)| before)))
    }),
    core("substring-after", (2, 2), |cx, args| {
        two(cx, args, |a, b| Value::text(a.split_once(b).map_or("", |(_, after)| after)))
    }),
    core("substring", (2, 3), substring),
    core("string-length", (0, 1), |cx, args| {
        Ok(Value::Number(own_or(cx, args).chars().count() as f64))
    }),
    core("normalize-space", (0, 1), |cx, args| {
        let text = own_or(cx, args);
        let words = text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty());
        Ok(Value::text(&words.collect::<Vec<_>>().join(" ")))
    }),
    core("translate", (3, 3), translate),
    core("boolean", (1, 1), |_, args| Ok(Value::Bool(args[0].to_bool()))),
    core("not", (1, 1), |_, args| Ok(Value::Bool(!args[0].to_bool()))),
    core("true", (0, 0), |_, _| Ok(Value::Bool(true))),
    core("false", (0, 0), |_, _| Ok(Value::Bool(false))),
    core("lang", (1, 1), lang),
    core("number", (0, 1), |cx, args| {
        Ok(Value::Number(match args {
            [value] => cx.number_of(value),
            _ => crate::value::text_number(&cx.run.docs.value(cx.node)),
        }))
    }),
    core("sum", (1, 1), |cx, args| {
        let all = nodes(cx, &args[0])?;
        let numbers = all.iter().map(|n| crate::value::text_number(&cx.run.docs.value(*n)));
        // Not Iterator::sum: that of nothing is -0.
        Ok(Value::Number(numbers.fold(0.0, |sum, number| sum + number)))
    }),
    core("floor", (1, 1), |cx, args| Ok(Value::Number(cx.number_of(&args[0]).floor()))),
    core("ceiling", (1, 1), |cx, args| Ok(Value::Number(cx.number_of(&args[0]).ceil()))),
    core("round", (1, 1), |cx, args| Ok(Value::Number(round(cx.number_of(&args[0]))))),
];

const fn core(
    name: &'static str,
    args: (usize, usize),
    call: fn(&Cx, &[Value]) -> Result<Value>,
) -> Function {
    Function { uri: "", name, args, call }
}

/// The function of a name in a namespace.
pub(crate) fn find(uri: &str, name: &str) -> Option<&'static Function> {
    let extensions = crate::exslt::FUNCTIONS.iter().copied();
    let mut all = [CORE, crate::run::functions::FUNCTIONS].into_iter().chain(extensions).flatten();
    all.find(|function| function.name == name && function.uri == uri)
}

/// Whether a function gives no number: as a predicate, it does not ask for a position.
pub(super) fn is_never_number(function: &Function) -> bool {
    const NEVER: &[&str] = &[
        "boolean",
        "contains",
        "current",
        "document",
        "false",
        "id",
        "key",
        "lang",
        "local-name",
        "name",
        "namespace-uri",
        "normalize-space",
        "not",
        "starts-with",
        "string",
        "substring",
        "substring-after",
        "substring-before",
        "translate",
        "true",
    ];
    function.uri.is_empty() && NEVER.contains(&function.name)
}

/// The nodes of an argument; an error where it is of another type.
pub(crate) fn nodes(cx: &Cx, value: &Value) -> Result<std::rc::Rc<Vec<N>>> {
    match value {
        Value::Nodes(nodes) => Ok(nodes.clone()),
        Value::Tree(doc) => Ok(std::rc::Rc::new(vec![cx.run.docs.add(doc.clone())])),
        _ => Err(Error::new("an argument is no node-set where one is needed")),
    }
}

/// The text of the argument, or of the context node.
fn own_or<'a>(cx: &'a Cx, args: &'a [Value]) -> std::borrow::Cow<'a, str> {
    match args {
        [value] => cx.text_of(value),
        _ => cx.run.docs.value(cx.node),
    }
}

fn two(cx: &Cx, args: &[Value], of: impl Fn(&str, &str) -> Value) -> Result<Value> {
    Ok(of(&cx.text_of(&args[0]), &cx.text_of(&args[1])))
}

/// The node that a function of the name is about: the first of the argument, or the context node.
fn subject(cx: &Cx, args: &[Value]) -> Result<Option<N>> {
    match args {
        [value] => Ok(nodes(cx, value)?.first().copied()),
        _ => Ok(Some(cx.node)),
    }
}

fn named(cx: &Cx, args: &[Value], of: impl Fn(&str, &str) -> String) -> Result<Value> {
    let Some(n) = subject(cx, args)? else { return Ok(Value::text("")) };
    let node = cx.run.docs.node(n);
    let text = |atom| cx.run.atoms.text(atom);
    Ok(Value::text(&of(text(node.name.uri), text(node.name.local))))
}

fn name(cx: &Cx, args: &[Value]) -> Result<Value> {
    let Some(n) = subject(cx, args)? else { return Ok(Value::text("")) };
    let node = cx.run.docs.node(n);
    Ok(Value::text(&qualified(cx.run.atoms.text(node.prefix), cx.run.atoms.text(node.name.local))))
}

/// A name with its prefix.
pub(crate) fn qualified(prefix: &str, local: &str) -> String {
    if prefix.is_empty() { local.to_owned() } else { format!("{prefix}:{local}") }
}

fn id(cx: &Cx, args: &[Value]) -> Result<Value> {
    let doc = cx.run.docs.doc(cx.node);
    let texts: Vec<String> = match &args[0] {
        Value::Nodes(nodes) => nodes.iter().map(|n| cx.run.docs.value(*n).into_owned()).collect(),
        value => vec![cx.text_of(value).into_owned()],
    };
    let words = texts.iter().flat_map(|text| text.split_ascii_whitespace());
    let found = words.filter_map(|word| doc.ids.get(word));
    Ok(Value::unordered(found.map(|id| N { id: *id, ..cx.node }).collect()))
}

fn concat(cx: &Cx, args: &[Value]) -> Result<Value> {
    let texts: Vec<_> = args.iter().map(|arg| cx.text_of(arg)).collect();
    cx.run.fits(texts.iter().map(|text| text.len()).sum())?;
    Ok(Value::text(&texts.concat()))
}

/// The characters from a position on, which counts from 1; both numbers are rounded.
fn substring(cx: &Cx, args: &[Value]) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    let from = round(cx.number_of(&args[1]));
    let to = match args.get(2) {
        Some(length) => from + round(cx.number_of(length)),
        None => f64::INFINITY,
    };
    let mut part = String::new();
    for (at, c) in (1_u32..).zip(text.chars()) {
        let at = f64::from(at);
        if at >= to {
            break;
        }
        if at >= from && at < to {
            part.push(c);
        }
    }
    Ok(Value::text(&part))
}

fn translate(cx: &Cx, args: &[Value]) -> Result<Value> {
    let (text, from, to) = (cx.text_of(&args[0]), cx.text_of(&args[1]), cx.text_of(&args[2]));
    let mut map = std::collections::HashMap::new();
    let mut to = to.chars();
    for c in from.chars() {
        let other = to.next();
        map.entry(c).or_insert(other);
    }
    let changed = text.chars().filter_map(|c| map.get(&c).copied().unwrap_or(Some(c)));
    Ok(Value::text(&changed.collect::<String>()))
}

fn lang(cx: &Cx, args: &[Value]) -> Result<Value> {
    let wanted = cx.text_of(&args[0]);
    let doc = cx.run.docs.doc(cx.node);
    let name = cx.run.atoms.name(crate::XML, "lang");
    let is_element = |id: &Id| doc.node(*id).kind == Kind::Element;
    let mut all = std::iter::once(cx.node.id).chain(doc.ancestors(cx.node.id)).filter(is_element);
    let Some(lang) = all.find_map(|id| doc.attribute(id, name)) else {
        return Ok(Value::Bool(false));
    };
    let is_it = lang.get(..wanted.len()).is_some_and(|part| part.eq_ignore_ascii_case(&wanted));
    let rest = lang.get(wanted.len()..).unwrap_or_default();
    Ok(Value::Bool(is_it && (rest.is_empty() || rest.starts_with('-'))))
}

/// The nearest integer; of two, the greater one.
pub(crate) fn round(number: f64) -> f64 {
    // Adding a half and rounding down is wrong for what is just below a half.
    let below = number.floor();
    if number - below >= 0.5 { below + 1.0 } else { below }
}
