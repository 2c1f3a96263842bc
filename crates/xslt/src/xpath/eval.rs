//! Evaluates expressions.

use std::borrow::Cow;
use std::rc::Rc;

use super::axes::{meets, walk};
use super::{
    Alternative, Arithmetic, Axis, Compare, Expr, Namespaces, Path, Pattern, PatternStart,
    PatternStep, Start, Step, Test, Var,
};
use crate::error::{Error, Result};
use crate::run::Run;
use crate::tree::{Builder, Kind, NONE, ROOT};
use crate::value::{N, Value, order};

/// The context of an expression (XPath, section 1).
#[derive(Clone, Copy)]
pub(crate) struct Cx<'r> {
    pub(crate) run: &'r Run<'r>,
    /// The context node, its position among those of the context, and their number.
    pub(crate) node: N,
    pub(crate) position: usize,
    pub(crate) size: usize,
    /// The node that `current()` gives.
    pub(crate) current: N,
    /// The variables of the template.
    pub(crate) locals: &'r [Option<Value>],
    pub(crate) namespaces: &'r Namespaces,
    /// The file that the expression stands in.
    pub(crate) file: &'r str,
}

impl Cx<'_> {
    /// The same with another node, the only one of its context.
    fn at(&self, node: N) -> Self {
        Cx { node, position: 1, size: 1, ..*self }
    }

    pub(crate) fn text_of<'v>(&'v self, value: &'v Value) -> Cow<'v, str> {
        value.to_text(&self.run.docs)
    }

    /// A value as a number.
    pub(crate) fn number_of(&self, value: &Value) -> f64 {
        value.to_number(&self.run.docs)
    }

    fn variable(&self, var: Var) -> Result<Value> {
        match var {
            Var::Local(slot) => {
                let value = self.locals.get(slot as usize).cloned().flatten();
                value.ok_or_else(|| Error::new("a variable is used before it has a value"))
            }
            Var::Global(place) => self.run.global(place),
        }
    }
}

impl Expr {
    pub(crate) fn eval(&self, cx: &Cx) -> Result<Value> {
        cx.run.tick()?;
        match self {
            Expr::Number(number) => return Ok(Value::Number(*number)),
            Expr::Text(text) => return Ok(Value::text(text)),
            Expr::Variable(var) => return cx.variable(*var),
            Expr::Position => return Ok(Value::Number(cx.position as f64)),
            Expr::Last => return Ok(Value::Number(cx.size as f64)),
            _ => {}
        }
        let _deeper = cx.run.deeper()?;
        self.compound(cx)
    }

    /// The value of what has parts.
    fn compound(&self, cx: &Cx) -> Result<Value> {
        Ok(match self {
            Expr::Or(_) | Expr::And(_) => Value::Bool(self.bool(cx)?),
            Expr::Compare(compare, sides) => {
                Value::Bool(compared(cx, *compare, &sides.0.eval(cx)?, &sides.1.eval(cx)?))
            }
            Expr::Arithmetic(..) | Expr::Minus(_) => Value::Number(self.number(cx)?),
            Expr::Union(sets) => {
                let mut all = Vec::new();
                for set in sets {
                    all.extend_from_slice(&set.nodes(cx)?);
                }
                Value::unordered(all)
            }
            Expr::Path(path) => Value::nodes(path.nodes(cx, false)?),
            Expr::Filter(inner, predicates) => {
                let mut nodes = inner.nodes(cx)?.to_vec();
                for predicate in predicates {
                    filter(cx, &mut nodes, predicate)?;
                }
                Value::nodes(nodes)
            }
            Expr::Call(function, args) => {
                let args = values(args, cx)?;
                (function.call)(cx, &args)?
            }
            Expr::Own(place, args) => {
                let args = values(args, cx)?;
                cx.run.own_function(cx, *place, args)?
            }
            Expr::Fault(message) => return Err(Error::new(&**message)),
            Expr::Number(_) | Expr::Text(_) | Expr::Variable(_) | Expr::Position | Expr::Last => {
                return self.eval(cx);
            }
        })
    }

    /// The value as `boolean()` makes it: of a path, the first node is enough.
    pub(crate) fn bool(&self, cx: &Cx) -> Result<bool> {
        match self {
            Expr::Or(sides) => {
                for side in sides {
                    if side.bool(cx)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::And(sides) => {
                for side in sides {
                    if !side.bool(cx)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Path(path) => Ok(!path.nodes(cx, true)?.is_empty()),
            _ => Ok(self.eval(cx)?.to_bool()),
        }
    }

    fn number(&self, cx: &Cx) -> Result<f64> {
        Ok(match self {
            Expr::Number(number) => *number,
            Expr::Minus(inner) => -inner.number(cx)?,
            Expr::Arithmetic(operation, sides) => {
                let _deeper = cx.run.deeper()?;
                let (left, right) = (sides.0.number(cx)?, sides.1.number(cx)?);
                match operation {
                    Arithmetic::Add => left + right,
                    Arithmetic::Subtract => left - right,
                    Arithmetic::Multiply => left * right,
                    Arithmetic::Divide => left / right,
                    Arithmetic::Modulo => left % right,
                }
            }
            _ => cx.number_of(&self.eval(cx)?),
        })
    }

    /// The value as `string()` makes it.
    pub(crate) fn text(&self, cx: &Cx) -> Result<Rc<str>> {
        match self {
            Expr::Path(path) => {
                let first = path.first(cx)?;
                Ok(first.map_or_else(Rc::default, |n| Rc::from(&*cx.run.docs.value(n))))
            }
            _ => match self.eval(cx)? {
                Value::Text(text) => Ok(text),
                value => Ok(Rc::from(&*cx.text_of(&value))),
            },
        }
    }

    /// Adds the value as `string()` makes it to a tree, `raw` where it is written as it is.
    pub(crate) fn write(&self, cx: &Cx, raw: bool, out: &mut Builder) -> Result<()> {
        match self {
            Expr::Path(path) => match path.first(cx)? {
                Some(n) => out.text(&cx.run.docs.value(n), raw),
                None => Ok(()),
            },
            _ => {
                let value = self.eval(cx)?;
                out.text(&cx.text_of(&value), raw)
            }
        }
    }

    /// The nodes; an error where it is of another type.
    pub(crate) fn nodes(&self, cx: &Cx) -> Result<Rc<Vec<N>>> {
        match self.eval(cx)? {
            Value::Nodes(nodes) => Ok(nodes),
            // As node-set() does: libxslt and those who write for it take it so.
            Value::Tree(doc) => Ok(Rc::new(vec![cx.run.docs.add(doc)])),
            _ => Err(Error::new("an expression gives no nodes where nodes are needed")),
        }
    }
}

impl Expr {
    /// Whether it holds as a predicate: a number is a position.
    fn holds(&self, cx: &Cx) -> Result<bool> {
        if !self.may_be_number() {
            return self.bool(cx);
        }
        match self.eval(cx)? {
            Value::Number(number) => Ok(number == cx.position as f64),
            value => Ok(value.to_bool()),
        }
    }
}

/// Leaves the nodes that meet a predicate; positions count as the nodes come.
fn filter(cx: &Cx, nodes: &mut Vec<N>, predicate: &Expr) -> Result<()> {
    if let Expr::Number(number) = predicate {
        let at = (*number - 1.0) as usize;
        let one = (*number >= 1.0 && *number == number.trunc()).then(|| nodes.get(at).copied());
        *nodes = one.flatten().into_iter().collect();
        return Ok(());
    }
    let size = nodes.len();
    let mut kept = 0;
    for at in 0..size {
        let within = Cx { node: nodes[at], position: at + 1, size, ..*cx };
        if predicate.holds(&within)? {
            nodes[kept] = nodes[at];
            kept += 1;
        }
    }
    nodes.truncate(kept);
    Ok(())
}

/// The values of arguments.
fn values(args: &[Expr], cx: &Cx) -> Result<Vec<Value>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(cx)?);
    }
    Ok(values)
}

impl Path {
    /// The first node in document order.
    fn first(&self, cx: &Cx) -> Result<Option<N>> {
        let Start::Context = self.start else { return Ok(self.nodes(cx, false)?.first().copied()) };
        let [step] = self.steps.as_slice() else {
            return Ok(self.nodes(cx, false)?.first().copied());
        };
        if step.axis == Axis::SelfNode && step.test == Test::Node && step.predicates.is_empty() {
            return Ok(Some(cx.node));
        }
        // The first one that is found, where the axis goes forwards.
        Ok(self.nodes(cx, !step.axis.is_reverse())?.first().copied())
    }

    /// The nodes in document order; with `any`, one of them is enough.
    fn nodes(&self, cx: &Cx, any: bool) -> Result<Vec<N>> {
        let mut nodes = match &self.start {
            Start::Context => vec![cx.node],
            Start::Root => vec![N { id: ROOT, ..cx.node }],
            Start::Expr(expr) => expr.nodes(cx)?.to_vec(),
        };
        for (at, step) in self.steps.iter().enumerate() {
            let is_last = at + 1 == self.steps.len();
            nodes = step.nodes(cx, &nodes, any && is_last)?;
        }
        Ok(nodes)
    }
}

impl Step {
    fn nodes(&self, cx: &Cx, from: &[N], any: bool) -> Result<Vec<N>> {
        let mut found = Vec::new();
        for from in from {
            cx.run.tick()?;
            if self.needs_size {
                self.all_of(cx, *from, &mut found)?;
            } else {
                self.some_of(cx, *from, any, &mut found)?;
            }
            if any && !found.is_empty() {
                break;
            }
        }
        order(&mut found);
        Ok(found)
    }

    /// Adds the nodes from one on: all those of the axis first, then those that predicates leave.
    fn all_of(&self, cx: &Cx, from: N, found: &mut Vec<N>) -> Result<()> {
        let doc = cx.run.docs.doc(from);
        let mut nodes = Vec::new();
        let mut visited = 0_u32;
        walk(doc, from.id, self.axis, &mut |id| {
            visited += 1;
            if meets(doc, id, self.axis, &self.test) {
                nodes.push(N { id, ..from });
            }
            true
        });
        cx.run.ticks(visited)?;
        for predicate in &self.predicates {
            filter(cx, &mut nodes, predicate)?;
        }
        found.append(&mut nodes);
        Ok(())
    }

    /// Adds the nodes from one on, each tested by all predicates as it comes: behind `[1]`, or
    /// behind the first one where `any` will do, there is no need to look.
    fn some_of(&self, cx: &Cx, from: N, any: bool, found: &mut Vec<N>) -> Result<()> {
        let doc = cx.run.docs.doc(from);
        let mut positions = [0_usize; 4];
        let mut more = Vec::new();
        let positions = match positions.get_mut(..self.predicates.len()) {
            Some(positions) => positions,
            None => {
                more.resize(self.predicates.len(), 0);
                &mut more[..]
            }
        };
        let mut visited = 0_u32;
        let mut failed = None;
        walk(doc, from.id, self.axis, &mut |id| {
            visited += 1;
            if !meets(doc, id, self.axis, &self.test) {
                return true;
            }
            let n = N { id, ..from };
            match self.passes(cx, n, positions) {
                Ok((true, goes_on)) => {
                    found.push(n);
                    goes_on && !any
                }
                Ok((false, goes_on)) => goes_on,
                Err(e) => {
                    failed = Some(e);
                    false
                }
            }
        });
        cx.run.ticks(visited)?;
        failed.map_or(Ok(()), Err)
    }

    /// Whether a node meets the predicates, and whether another one behind it may. `positions` are
    /// those of the nodes before.
    fn passes(&self, cx: &Cx, n: N, positions: &mut [usize]) -> Result<(bool, bool)> {
        let mut goes_on = true;
        for (predicate, position) in self.predicates.iter().zip(positions) {
            *position += 1;
            if let Expr::Number(number) = predicate {
                let at = *position as f64;
                goes_on &= at < *number;
                if at != *number {
                    return Ok((false, goes_on));
                }
                continue;
            }
            let within = Cx { node: n, position: *position, size: 0, ..*cx };
            if !predicate.holds(&within)? {
                return Ok((false, goes_on));
            }
        }
        Ok((true, goes_on))
    }
}

/// Compares two values (XPath, section 3.4).
fn compared(cx: &Cx, compare: Compare, left: &Value, right: &Value) -> bool {
    let docs = &cx.run.docs;
    match (left, right) {
        (Value::Bool(_), _) | (_, Value::Bool(_)) => {
            let is_nodes = matches!(left, Value::Nodes(_)) || matches!(right, Value::Nodes(_));
            if is_nodes || matches!(compare, Compare::Equal | Compare::NotEqual) {
                let number = |value: &Value| f64::from(u8::from(value.to_bool()));
                return numbers(compare, number(left), number(right));
            }
            numbers(compare, left.to_number(docs), right.to_number(docs))
        }
        (Value::Nodes(some), Value::Nodes(others)) => of_nodes(cx, compare, some, others),
        (Value::Nodes(nodes), Value::Number(number)) => nodes
            .iter()
            .any(|n| numbers(compare, crate::value::text_number(&docs.value(*n)), *number)),
        (Value::Number(number), Value::Nodes(nodes)) => nodes
            .iter()
            .any(|n| numbers(compare, *number, crate::value::text_number(&docs.value(*n)))),
        (Value::Nodes(nodes), other) => {
            let other = other.to_text(docs);
            nodes.iter().any(|n| texts(compare, &docs.value(*n), &other))
        }
        (other, Value::Nodes(nodes)) => {
            let other = other.to_text(docs);
            nodes.iter().any(|n| texts(compare, &other, &docs.value(*n)))
        }
        (Value::Number(_), _) | (_, Value::Number(_)) => {
            numbers(compare, left.to_number(docs), right.to_number(docs))
        }
        _ => texts(compare, &left.to_text(docs), &right.to_text(docs)),
    }
}

/// Whether a comparison holds for any node of one set and any of the other.
fn of_nodes(cx: &Cx, compare: Compare, some: &[N], others: &[N]) -> bool {
    let docs = &cx.run.docs;
    if compare == Compare::Equal {
        let (few, many) = if some.len() < others.len() { (some, others) } else { (others, some) };
        let few: std::collections::HashSet<_> = few.iter().map(|n| docs.value(*n)).collect();
        return many.iter().any(|n| few.contains(&docs.value(*n)));
    }
    if compare == Compare::NotEqual {
        // Some pair differs unless all are the same.
        let mut all = some.iter().chain(others).map(|n| docs.value(*n));
        let Some(first) = all.next() else { return false };
        return !some.is_empty() && !others.is_empty() && all.any(|value| value != first);
    }
    // The extremes decide: NaN compares with nothing.
    let range = |nodes: &[N]| {
        let numbers = nodes.iter().map(|n| crate::value::text_number(&docs.value(*n)));
        numbers.filter(|number| !number.is_nan()).fold(None, |range, number| match range {
            None => Some((number, number)),
            Some((least, most)) => Some((number.min(least), number.max(most))),
        })
    };
    let (Some(some), Some(others)) = (range(some), range(others)) else { return false };
    match compare {
        Compare::Less | Compare::LessOrEqual => numbers(compare, some.0, others.1),
        _ => numbers(compare, some.1, others.0),
    }
}

fn numbers(compare: Compare, left: f64, right: f64) -> bool {
    match compare {
        Compare::Equal => left == right,
        Compare::NotEqual => left != right,
        Compare::Less => left < right,
        Compare::LessOrEqual => left <= right,
        Compare::Greater => left > right,
        Compare::GreaterOrEqual => left >= right,
    }
}

fn texts(compare: Compare, left: &str, right: &str) -> bool {
    match compare {
        Compare::Equal => left == right,
        Compare::NotEqual => left != right,
        _ => {
            let number = crate::value::text_number;
            numbers(compare, number(left), number(right))
        }
    }
}

impl Pattern {
    /// Whether a node matches.
    pub(crate) fn matches(&self, cx: &Cx, n: N) -> Result<bool> {
        for alternative in &self.alternatives {
            if alternative.matches(&Cx { namespaces: &self.namespaces, ..*cx }, n)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Alternative {
    /// Whether a node matches.
    pub(crate) fn matches(&self, cx: &Cx, n: N) -> Result<bool> {
        self.matches_from(cx, n, 0)
    }

    /// Whether a node matches from a step on towards the first.
    fn matches_from(&self, cx: &Cx, n: N, at: usize) -> Result<bool> {
        cx.run.tick()?;
        let Some(step) = self.steps.get(at) else { return self.begins_at(cx, n) };
        if !step.matches(cx, n)? {
            return Ok(false);
        }
        let doc = cx.run.docs.doc(n);
        let mut above = doc.node(n.id).parent;
        if at + 1 == self.steps.len() && matches!(self.start, PatternStart::Anywhere) {
            return Ok(above != NONE);
        }
        while above != NONE {
            if self.matches_from(cx, N { id: above, ..n }, at + 1)? {
                return Ok(true);
            }
            if !step.is_below {
                break;
            }
            above = doc.node(above).parent;
        }
        Ok(false)
    }

    fn begins_at(&self, cx: &Cx, n: N) -> Result<bool> {
        match &self.start {
            PatternStart::Anywhere => Ok(true),
            PatternStart::Root => Ok(cx.run.docs.node(n).kind == Kind::Root),
            PatternStart::Nodes(nodes) => Ok(nodes.nodes(&cx.at(n))?.binary_search(&n).is_ok()),
        }
    }
}

impl PatternStep {
    fn matches(&self, cx: &Cx, n: N) -> Result<bool> {
        let doc = cx.run.docs.doc(n);
        let node = doc.node(n.id);
        let is_attribute = node.kind == Kind::Attribute;
        if is_attribute != (self.axis == Axis::Attribute)
            || matches!(node.kind, Kind::Root | Kind::Namespace)
            || !meets(doc, n.id, self.axis, &self.test)
        {
            return Ok(false);
        }
        if !self.is_positional {
            for predicate in &self.predicates {
                if !predicate.bool(&cx.at(n))? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let mut siblings = Vec::new();
        walk(doc, node.parent, self.axis, &mut |id| {
            if meets(doc, id, self.axis, &self.test) {
                siblings.push(N { id, ..n });
            }
            true
        });
        cx.run.ticks(siblings.len() as u32)?;
        for predicate in &self.predicates {
            filter(cx, &mut siblings, predicate)?;
        }
        Ok(siblings.contains(&n))
    }
}

/// What the nodes are that a step of a pattern matches, for tables of templates.
impl Test {
    /// Whether a test is for elements or attributes of a single name.
    pub(crate) fn single_name(&self) -> Option<crate::atoms::Name> {
        match self {
            Test::Name(name) => Some(*name),
            _ => None,
        }
    }
}
