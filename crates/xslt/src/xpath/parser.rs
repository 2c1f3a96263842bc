//! Reads expressions and patterns.

use std::sync::Arc;

use super::lexer::{Token, tokens};
use super::{
    Alternative, Arithmetic, Axis, Compare, Expr, Namespaces, Path, Pattern, PatternStart,
    PatternStep, Start, Step, Test, Var, XPath, functions,
};
use crate::atoms::{Atom, Atoms, Name};
use crate::error::{Error, Result};

/// How deep expressions may be nested: each level takes stack.
const DEPTH_MAX: usize = 100;

/// The most comparisons and operations on numbers of an expression.
const LINKS_MAX: usize = 1000;

/// What the names in an expression stand for.
pub(crate) trait Scope {
    /// The table of names.
    fn atoms(&self) -> &Atoms;
    /// The namespaces by their prefixes.
    fn namespaces(&self) -> Arc<Namespaces>;
    /// A variable's place.
    fn variable(&self, name: Name) -> Option<Var>;
    /// A function of the stylesheet: its place, and the most arguments that it takes.
    fn own_function(&self, name: Name) -> Option<(u32, usize)>;
    /// The file that the expression stands in.
    fn file(&self) -> Arc<str> {
        Arc::default()
    }
}

/// Reads an expression.
pub(crate) fn parse(text: &str, scope: &dyn Scope) -> Result<XPath> {
    let mut parser = Parser::new(text, scope)?;
    let expr = parser.expr()?;
    parser.finished()?;
    Ok(XPath { expr, namespaces: parser.namespaces, file: scope.file() })
}

/// Reads a pattern.
pub(crate) fn parse_pattern(text: &str, scope: &dyn Scope) -> Result<Pattern> {
    let mut parser = Parser::new(text, scope)?;
    let mut alternatives = vec![parser.alternative()?];
    while parser.takes_operator("|") {
        alternatives.push(parser.alternative()?);
    }
    parser.finished()?;
    Ok(Pattern { alternatives, namespaces: parser.namespaces })
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    links: usize,
    scope: &'a dyn Scope,
    namespaces: Arc<Namespaces>,
}

fn step(axis: Axis, test: Test) -> Step {
    Step { axis, test, predicates: Vec::new(), needs_size: false }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, scope: &'a dyn Scope) -> Result<Self> {
        let namespaces = scope.namespaces();
        Ok(Parser { text, tokens: tokens(text)?, at: 0, depth: 0, links: 0, scope, namespaces })
    }

    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    fn fault(&self) -> Error {
        Error::new(format!("\"{}\" is no expression", self.text))
    }

    fn finished(&self) -> Result<()> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.fault()) }
    }

    fn takes(&mut self, token: &Token) -> bool {
        let is_it = self.peek() == Some(token);
        self.at += usize::from(is_it);
        is_it
    }

    fn takes_sign(&mut self, sign: &'static str) -> bool {
        self.takes(&Token::Sign(sign))
    }

    fn takes_operator(&mut self, operator: &'static str) -> bool {
        self.takes(&Token::Operator(operator))
    }

    fn expect(&mut self, sign: &'static str) -> Result<()> {
        if self.takes_sign(sign) { Ok(()) } else { Err(self.fault()) }
    }

    fn uri(&self, prefix: &str) -> Result<Atom> {
        if prefix.is_empty() {
            return Ok(Atom::EMPTY);
        }
        if prefix == "xml" {
            return Ok(self.scope.atoms().get(crate::XML));
        }
        let found = self.namespaces.iter().find(|(known, _)| known == prefix);
        let fault = || Error::new(format!("unknown prefix \"{prefix}\" in \"{}\"", self.text));
        found.map(|(_, uri)| *uri).ok_or_else(fault)
    }

    fn name(&self, prefix: &str, local: &str) -> Result<Name> {
        Ok(Name { uri: self.uri(prefix)?, local: self.scope.atoms().get(local) })
    }

    fn expr(&mut self) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::new(format!("\"{}\" is nested too deep", self.text)));
        }
        let expr = self.or();
        self.depth -= 1;
        expr
    }

    fn or(&mut self) -> Result<Expr> {
        let first = self.and()?;
        self.chain(first, "or", Self::and, Expr::Or)
    }

    fn and(&mut self) -> Result<Expr> {
        let first = self.equality()?;
        self.chain(first, "and", Self::equality, Expr::And)
    }

    /// A first expression and those that an operator joins to it; alone where there are none.
    fn chain(
        &mut self,
        first: Expr,
        operator: &'static str,
        next: fn(&mut Self) -> Result<Expr>,
        joined: fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let mut all = vec![first];
        while self.takes_operator(operator) {
            all.push(next(self)?);
        }
        match all.pop() {
            Some(only) if all.is_empty() => Ok(only),
            Some(last) => {
                all.push(last);
                Ok(joined(all))
            }
            None => Err(self.fault()),
        }
    }

    /// Counts an operator of a chain like `1 + 1 + …`, which is as deep as it is long.
    fn link(&mut self) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::new(format!("\"{}\" is too long", self.text)));
        }
        Ok(())
    }

    fn equality(&mut self) -> Result<Expr> {
        let mut left = self.relation()?;
        loop {
            let compare = match self.peek() {
                Some(Token::Operator("=")) => Compare::Equal,
                Some(Token::Operator("!=")) => Compare::NotEqual,
                _ => return Ok(left),
            };
            self.at += 1;
            self.link()?;
            left = Expr::Compare(compare, Box::new((left, self.relation()?)));
        }
    }

    fn relation(&mut self) -> Result<Expr> {
        let mut left = self.sum()?;
        loop {
            let compare = match self.peek() {
                Some(Token::Operator("<")) => Compare::Less,
                Some(Token::Operator("<=")) => Compare::LessOrEqual,
                Some(Token::Operator(">")) => Compare::Greater,
                Some(Token::Operator(">=")) => Compare::GreaterOrEqual,
                _ => return Ok(left),
            };
            self.at += 1;
            self.link()?;
            left = Expr::Compare(compare, Box::new((left, self.sum()?)));
        }
    }

    fn sum(&mut self) -> Result<Expr> {
        let mut left = self.product()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Operator("+")) => Arithmetic::Add,
                Some(Token::Operator("-")) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            self.link()?;
            left = Expr::Arithmetic(operation, Box::new((left, self.product()?)));
        }
    }

    fn product(&mut self) -> Result<Expr> {
        let mut left = self.unary()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Operator("*")) => Arithmetic::Multiply,
                Some(Token::Operator("div")) => Arithmetic::Divide,
                Some(Token::Operator("mod")) => Arithmetic::Modulo,
                _ => return Ok(left),
            };
            self.at += 1;
            self.link()?;
            left = Expr::Arithmetic(operation, Box::new((left, self.unary()?)));
        }
    }

    fn unary(&mut self) -> Result<Expr> {
        let mut signs = 0;
        while self.takes_operator("-") {
            signs += 1;
        }
        let inner = self.union()?;
        Ok(match signs {
            0 => inner,
            n if n % 2 == 1 => Expr::Minus(Box::new(inner)),
            _ => Expr::Minus(Box::new(Expr::Minus(Box::new(inner)))),
        })
    }

    fn union(&mut self) -> Result<Expr> {
        let first = self.path()?;
        self.chain(first, "|", Self::path, Expr::Union)
    }

    /// Whether a primary expression is next, not a step.
    fn is_primary_next(&self) -> bool {
        match self.peek() {
            Some(Token::Number(_) | Token::Text(_) | Token::Variable(..) | Token::Sign("(")) => {
                true
            }
            Some(Token::Name(prefix, local)) => {
                let is_call = self.tokens.get(self.at + 1) == Some(&Token::Sign("("));
                let is_test = prefix.is_empty()
                    && matches!(*local, "node" | "text" | "comment" | "processing-instruction");
                is_call && !is_test
            }
            _ => false,
        }
    }

    fn path(&mut self) -> Result<Expr> {
        let mut steps = Vec::new();
        let start = if self.is_primary_next() {
            let primary = self.primary()?;
            let predicates = self.predicates()?;
            let filtered = match predicates.is_empty() {
                true => primary,
                false => Expr::Filter(Box::new(primary), predicates),
            };
            if !self.takes_slash(&mut steps) {
                return Ok(filtered);
            }
            self.step(&mut steps)?;
            Start::Expr(filtered)
        } else if self.takes_operator("//") {
            steps.push(step(Axis::DescendantOrSelf, Test::Node));
            self.step(&mut steps)?;
            Start::Root
        } else if self.takes_operator("/") {
            if self.is_step_next() {
                self.step(&mut steps)?;
            } else {
                return Ok(Expr::Path(Box::new(Path { start: Start::Root, steps })));
            }
            Start::Root
        } else {
            self.step(&mut steps)?;
            Start::Context
        };
        while self.takes_slash(&mut steps) {
            self.step(&mut steps)?;
        }
        Ok(Expr::Path(Box::new(Path { start, steps })))
    }

    fn takes_slash(&mut self, steps: &mut Vec<Step>) -> bool {
        if self.takes_operator("//") {
            steps.push(step(Axis::DescendantOrSelf, Test::Node));
            return true;
        }
        self.takes_operator("/")
    }

    fn is_step_next(&self) -> bool {
        matches!(
            self.peek(),
            Some(Token::Name(..) | Token::AnyOf(_) | Token::Sign("*" | "@" | "." | ".."))
        )
    }

    /// Reads a step. `//x` becomes `descendant::x` where no position is asked for.
    fn step(&mut self, steps: &mut Vec<Step>) -> Result<()> {
        let mut next = self.single_step()?;
        let is_below = steps.last().is_some_and(|last| {
            last.axis == Axis::DescendantOrSelf
                && last.test == Test::Node
                && last.predicates.is_empty()
        });
        if is_below && next.axis == Axis::Child && !next.predicates.iter().any(Expr::is_positional)
        {
            steps.pop();
            next.axis = Axis::Descendant;
        }
        steps.push(next);
        Ok(())
    }

    fn single_step(&mut self) -> Result<Step> {
        if self.takes_sign(".") {
            return Ok(step(Axis::SelfNode, Test::Node));
        }
        if self.takes_sign("..") {
            return Ok(step(Axis::Parent, Test::Node));
        }
        let axis = self.axis()?;
        let test = self.test()?;
        let predicates = self.predicates()?;
        let needs_size = predicates.iter().any(Expr::asks_size);
        Ok(Step { axis, test, predicates, needs_size })
    }

    fn axis(&mut self) -> Result<Axis> {
        if self.takes_sign("@") {
            return Ok(Axis::Attribute);
        }
        let Some(Token::Name("", name)) = self.peek() else { return Ok(Axis::Child) };
        let name = *name;
        if self.tokens.get(self.at + 1) != Some(&Token::Sign("::")) {
            return Ok(Axis::Child);
        }
        self.at += 2;
        Ok(match name {
            "ancestor" => Axis::Ancestor,
            "ancestor-or-self" => Axis::AncestorOrSelf,
            "attribute" => Axis::Attribute,
            "child" => Axis::Child,
            "descendant" => Axis::Descendant,
            "descendant-or-self" => Axis::DescendantOrSelf,
            "following" => Axis::Following,
            "following-sibling" => Axis::FollowingSibling,
            "namespace" => Axis::Namespace,
            "parent" => Axis::Parent,
            "preceding" => Axis::Preceding,
            "preceding-sibling" => Axis::PrecedingSibling,
            "self" => Axis::SelfNode,
            _ => return Err(Error::new(format!("unknown axis \"{name}\" in \"{}\"", self.text))),
        })
    }

    fn test(&mut self) -> Result<Test> {
        let Some(token) = self.peek().cloned() else { return Err(self.fault()) };
        self.at += 1;
        match token {
            Token::Sign("*") => Ok(Test::Any),
            Token::AnyOf(prefix) => Ok(Test::Namespace(self.uri(prefix)?)),
            Token::Name(prefix, local) => {
                if !self.takes_sign("(") {
                    return Ok(Test::Name(self.name(prefix, local)?));
                }
                let test = match local {
                    "node" => Test::Node,
                    "text" => Test::Text,
                    "comment" => Test::Comment,
                    "processing-instruction" => {
                        let target = match self.peek() {
                            Some(Token::Text(target)) => Some(self.scope.atoms().get(target)),
                            _ => None,
                        };
                        self.at += usize::from(target.is_some());
                        Test::Pi(target)
                    }
                    _ => return Err(self.fault()),
                };
                self.expect(")")?;
                Ok(test)
            }
            _ => Err(self.fault()),
        }
    }

    fn predicates(&mut self) -> Result<Vec<Expr>> {
        let mut predicates = Vec::new();
        while self.takes_sign("[") {
            predicates.push(self.expr()?);
            self.expect("]")?;
        }
        Ok(predicates)
    }

    fn primary(&mut self) -> Result<Expr> {
        let Some(token) = self.peek().cloned() else { return Err(self.fault()) };
        self.at += 1;
        match token {
            Token::Number(number) => Ok(Expr::Number(number)),
            Token::Text(text) => Ok(Expr::Text(text.into())),
            Token::Variable(prefix, local) => {
                let found = self.scope.variable(self.name(prefix, local)?);
                Ok(found.map_or_else(
                    || {
                        let (name, text) = (functions::qualified(prefix, local), self.text);
                        Expr::Fault(format!("unknown variable \"${name}\" in \"{text}\"").into())
                    },
                    Expr::Variable,
                ))
            }
            Token::Sign("(") => {
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Name(prefix, local) => self.call(prefix, local),
            _ => Err(self.fault()),
        }
    }

    fn call(&mut self, prefix: &str, local: &str) -> Result<Expr> {
        self.expect("(")?;
        let mut args = Vec::new();
        if !self.takes_sign(")") {
            args.push(self.expr()?);
            while self.takes_sign(",") {
                args.push(self.expr()?);
            }
            self.expect(")")?;
        }
        let name = self.name(prefix, local)?;
        let uri = self.scope.atoms().text(name.uri);
        let check = |(least, most): (usize, usize)| {
            if (least..=most).contains(&args.len()) {
                return Ok(());
            }
            let m = format!("wrong number of arguments of {local}() in \"{}\"", self.text);
            Err(Error::new(m))
        };
        if prefix.is_empty() && matches!(local, "position" | "last") {
            check((0, 0))?;
            return Ok(if local == "last" { Expr::Last } else { Expr::Position });
        }
        if let Some((place, most)) = self.scope.own_function(name) {
            check((0, most))?;
            return Ok(Expr::Own(place, args));
        }
        let Some(function) = functions::find(uri, local) else {
            let (name, text) = (functions::qualified(prefix, local), self.text);
            return Ok(Expr::Fault(format!("unknown function {name}() in \"{text}\"").into()));
        };
        check(function.args)?;
        Ok(Expr::Call(function, args))
    }

    /// A path of a pattern: `id()` or `key()`, and steps along `child` and `attribute`.
    fn alternative(&mut self) -> Result<Alternative> {
        let mut steps: Vec<PatternStep> = Vec::new();
        let mut is_below = false;
        let start = if self.is_primary_next() {
            let nodes = self.primary()?;
            let names_nodes = match &nodes {
                Expr::Call(f, _) => f.uri.is_empty() && matches!(f.name, "id" | "key"),
                _ => false,
            };
            if !names_nodes {
                return Err(Error::new(format!("\"{}\" is no pattern", self.text)));
            }
            is_below = self.takes_operator("//");
            if is_below || self.takes_operator("/") {
                steps.push(self.pattern_step(is_below)?);
            }
            PatternStart::Nodes(nodes)
        } else if self.takes_operator("//") {
            steps.push(self.pattern_step(true)?);
            PatternStart::Root
        } else if self.takes_operator("/") {
            if self.is_step_next() {
                steps.push(self.pattern_step(false)?);
            }
            PatternStart::Root
        } else {
            steps.push(self.pattern_step(false)?);
            PatternStart::Anywhere
        };
        while !steps.is_empty() || is_below {
            is_below = self.takes_operator("//");
            if !is_below && !self.takes_operator("/") {
                break;
            }
            steps.push(self.pattern_step(is_below)?);
        }
        let priority = priority(&start, &steps);
        steps.reverse();
        Ok(Alternative { start, steps, priority })
    }

    fn pattern_step(&mut self, is_below: bool) -> Result<PatternStep> {
        let Step { axis, test, predicates, .. } = self.single_step()?;
        if !matches!(axis, Axis::Child | Axis::Attribute) {
            return Err(Error::new(format!("\"{}\" is no pattern", self.text)));
        }
        let is_positional = predicates.iter().any(Expr::is_positional);
        Ok(PatternStep { axis, test, predicates, is_positional, is_below })
    }
}

/// The priority of a pattern (XSLT, section 5.5).
fn priority(start: &PatternStart, steps: &[PatternStep]) -> f64 {
    match (start, steps) {
        (PatternStart::Anywhere, [step]) if step.predicates.is_empty() => match &step.test {
            Test::Name(_) | Test::Pi(Some(_)) => 0.0,
            Test::Namespace(_) => -0.25,
            _ => -0.5,
        },
        (PatternStart::Root, []) => -0.5,
        _ => 0.5,
    }
}
