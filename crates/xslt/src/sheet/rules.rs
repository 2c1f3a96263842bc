//! Templates by what they match (XSLT, sections 5.3 to 5.6).

use std::collections::HashMap;

use crate::atoms::Name;
use crate::error::Result;
use crate::tree::Kind;
use crate::value::N;
use crate::xpath::{Alternative, Axis, Cx, Namespaces};

/// The templates of a mode.
#[derive(Debug, Default)]
pub(crate) struct Mode {
    /// Those for elements of one name, and for attributes; the best first.
    elements: HashMap<Name, Vec<Rule>>,
    attributes: HashMap<Name, Vec<Rule>>,
    /// All others; the best first.
    others: Vec<Rule>,
}

/// A pattern of a template.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The place of the template.
    pub(crate) template: u32,
    pub(crate) alternative: Alternative,
    pub(crate) namespaces: std::sync::Arc<Namespaces>,
    /// The import precedence; rules of a higher one come first.
    pub(crate) precedence: u32,
    /// The order among all rules: the higher one is taken.
    pub(crate) rank: u32,
}

impl Mode {
    /// Adds a rule that is better than all before.
    pub(super) fn add(&mut self, rule: Rule) {
        let last = rule.alternative.steps.first();
        let name = last.and_then(|step| Some((step.axis, step.test.single_name()?)));
        let rules = match name {
            Some((Axis::Attribute, name)) => self.attributes.entry(name).or_default(),
            Some((_, name)) => self.elements.entry(name).or_default(),
            None => &mut self.others,
        };
        rules.push(rule);
    }

    /// Brings the best rules to the front.
    pub(super) fn finish(&mut self) {
        let named = self.elements.values_mut().chain(self.attributes.values_mut());
        named.for_each(|rules| rules.reverse());
        self.others.reverse();
    }

    /// The best rule that matches a node, among those whose precedence is in a range.
    pub(crate) fn find(
        &self,
        cx: &Cx,
        n: N,
        precedences: std::ops::Range<u32>,
    ) -> Result<Option<&Rule>> {
        let node = cx.run.docs.node(n);
        let named = match node.kind {
            Kind::Element => self.elements.get(&node.name),
            Kind::Attribute => self.attributes.get(&node.name),
            _ => None,
        };
        let mut named = named.map_or(&[][..], |rules| rules);
        let mut others = &self.others[..];
        loop {
            let rule = match (named, others) {
                ([first, rest @ ..], []) => {
                    named = rest;
                    first
                }
                ([first, rest @ ..], [other, ..]) if first.rank > other.rank => {
                    named = rest;
                    first
                }
                (_, [other, rest @ ..]) => {
                    others = rest;
                    other
                }
                ([], []) => return Ok(None),
            };
            if precedences.contains(&rule.precedence)
                && rule.alternative.matches(&Cx { namespaces: &rule.namespaces, ..*cx }, n)?
            {
                return Ok(Some(rule));
            }
        }
    }
}
