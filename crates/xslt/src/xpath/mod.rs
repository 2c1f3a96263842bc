//! Expressions of XPath 1.0 (<https://www.w3.org/TR/1999/REC-xpath-19991116>).

mod axes;
mod eval;
pub(crate) mod functions;
mod lexer;
mod parser;

use std::rc::Rc;
use std::sync::Arc;

use crate::atoms::{Atom, Name};
use crate::error::Result;
use crate::tree::Builder;
use crate::value::{N, Value};

pub(crate) use eval::Cx;
pub(crate) use lexer::is_ncname;
pub(crate) use parser::{Scope, parse, parse_pattern};

/// The namespaces in scope at an expression: prefix and URI. Names without a prefix are in none,
/// whatever the default namespace is; it is there for what names elements of the stylesheet.
pub(crate) type Namespaces = Vec<(String, Atom)>;

/// An expression, and the namespaces that its functions may ask for.
#[derive(Clone, Debug)]
pub(crate) struct XPath {
    pub(crate) expr: Expr,
    pub(crate) namespaces: Arc<Namespaces>,
    /// The file that it stands in: `document()` begins there.
    pub(crate) file: Arc<str>,
}

/// A variable's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Var {
    /// In the frame of the template.
    Local(u32),
    /// Among the variables of the stylesheet.
    Global(u32),
}

pub(crate) struct Function {
    /// The URI of its namespace.
    pub(crate) uri: &'static str,
    pub(crate) name: &'static str,
    /// The least and the greatest number of arguments.
    pub(crate) args: (usize, usize),
    pub(crate) call: fn(&Cx, &[Value]) -> Result<Value>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Number(f64),
    Text(Arc<str>),
    Variable(Var),
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Compare(Compare, Box<(Expr, Expr)>),
    Arithmetic(Arithmetic, Box<(Expr, Expr)>),
    Minus(Box<Expr>),
    Union(Vec<Expr>),
    Path(Box<Path>),
    /// An expression's nodes that meet predicates.
    Filter(Box<Expr>, Vec<Expr>),
    Position,
    Last,
    Call(&'static Function, Vec<Expr>),
    /// A function that the stylesheet defines (`func:function`).
    Own(u32, Vec<Expr>),
    /// An error where it is evaluated: a function or variable that nobody has. A stylesheet may ask
    /// before whether there is one.
    Fault(Arc<str>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The operations on numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// A location path.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) start: Start,
    pub(crate) steps: Vec<Step>,
}

/// Where a path begins.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// At the context node.
    Context,
    /// At the root of its document.
    Root,
    /// At the nodes of an expression.
    Expr(Expr),
}

/// A step of a path.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) axis: Axis,
    pub(crate) test: Test,
    pub(crate) predicates: Vec<Expr>,
    /// Whether a predicate asks for the number of nodes: all have to be found before.
    pub(crate) needs_size: bool,
}

/// The axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Namespace,
    Parent,
    Preceding,
    PrecedingSibling,
    SelfNode,
}

impl Axis {
    /// Whether its nodes come backwards in document order.
    fn is_reverse(self) -> bool {
        use Axis::{Ancestor, AncestorOrSelf, Preceding, PrecedingSibling};
        matches!(self, Ancestor | AncestorOrSelf | Preceding | PrecedingSibling)
    }
}

/// A node test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// `*`: any node of the axis's principal type.
    Any,
    /// `prefix:*`
    Namespace(Atom),
    Name(Name),
    Node,
    Text,
    Comment,
    /// `processing-instruction()`, of any or of one target.
    Pi(Option<Atom>),
}

/// A pattern (XSLT, section 5.2): alternatives, each of which is a path.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) namespaces: Arc<Namespaces>,
}

/// A path of a pattern: its steps from the last one to the first.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub(crate) start: PatternStart,
    pub(crate) steps: Vec<PatternStep>,
    /// The priority where the template states none.
    pub(crate) priority: f64,
}

/// What comes before the first step of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum PatternStart {
    /// Anything.
    Anywhere,
    Root,
    /// Nodes that `id()` or `key()` names.
    Nodes(Expr),
}

/// A step of a pattern.
#[derive(Clone, Debug)]
pub(crate) struct PatternStep {
    /// Of children, or of attributes.
    pub(crate) axis: Axis,
    pub(crate) test: Test,
    pub(crate) predicates: Vec<Expr>,
    /// Whether a predicate asks for the place among siblings.
    pub(crate) is_positional: bool,
    /// Whether what is before it may be any ancestor (`//`), not the parent alone.
    pub(crate) is_below: bool,
}

impl Expr {
    /// Whether the value depends on the context's position or size, or may be a number, which
    /// stands for a position.
    pub(crate) fn is_positional(&self) -> bool {
        self.may_be_number() || self.asks_position()
    }

    fn may_be_number(&self) -> bool {
        match self {
            Expr::Number(_)
            | Expr::Variable(_)
            | Expr::Arithmetic(..)
            | Expr::Minus(_)
            | Expr::Position
            | Expr::Last
            | Expr::Own(..)
            | Expr::Fault(_) => true,
            Expr::Call(function, _) => !functions::is_never_number(function),
            _ => false,
        }
    }

    fn asks_position(&self) -> bool {
        self.has(&|expr| matches!(expr, Expr::Position | Expr::Last))
    }

    /// Whether the value depends on the context's size. Functions of a stylesheet and those that
    /// evaluate texts may ask for it, too.
    fn asks_size(&self) -> bool {
        self.has(&|expr| match expr {
            Expr::Last | Expr::Own(..) => true,
            Expr::Call(function, _) => !function.uri.is_empty(),
            _ => false,
        })
    }

    /// Whether a condition holds for a part that is evaluated in the same context.
    fn has(&self, is_it: &dyn Fn(&Expr) -> bool) -> bool {
        is_it(self)
            || match self {
                Expr::Compare(_, sides) | Expr::Arithmetic(_, sides) => {
                    sides.0.has(is_it) || sides.1.has(is_it)
                }
                Expr::Or(all) | Expr::And(all) | Expr::Union(all) => {
                    all.iter().any(|e| e.has(is_it))
                }
                Expr::Minus(inner) | Expr::Filter(inner, _) => inner.has(is_it),
                Expr::Path(path) => matches!(&path.start, Start::Expr(e) if e.has(is_it)),
                Expr::Call(_, args) | Expr::Own(_, args) => args.iter().any(|a| a.has(is_it)),
                _ => false,
            }
    }
}

impl XPath {
    pub(crate) fn eval(&self, cx: &Cx) -> Result<Value> {
        self.expr.eval(&self.within(cx))
    }

    /// The value as `boolean()` makes it.
    pub(crate) fn bool(&self, cx: &Cx) -> Result<bool> {
        self.expr.bool(&self.within(cx))
    }

    /// The value as `string()` makes it.
    pub(crate) fn text(&self, cx: &Cx) -> Result<Rc<str>> {
        self.expr.text(&self.within(cx))
    }

    /// Adds the value as text to a tree.
    pub(crate) fn write(&self, cx: &Cx, raw: bool, out: &mut Builder) -> Result<()> {
        self.expr.write(&self.within(cx), raw, out)
    }

    /// The nodes; an error where it is of another type.
    pub(crate) fn nodes(&self, cx: &Cx) -> Result<Rc<Vec<N>>> {
        self.expr.nodes(&self.within(cx))
    }

    fn within<'r>(&'r self, cx: &Cx<'r>) -> Cx<'r> {
        Cx { namespaces: &self.namespaces, file: &self.file, ..*cx }
    }
}

#[cfg(test)]
mod tests;
