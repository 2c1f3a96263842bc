//! `xsl:key` (XSLT, section 12.2).

use std::collections::HashMap;
use std::rc::Rc;

use super::Run;
use super::exec::{Focus, Frame};
use crate::atoms::Name;
use crate::error::Result;
use crate::tree::ROOT;
use crate::value::{N, Value};

/// The nodes of a document by the values of a key.
pub(super) type Index = HashMap<Box<str>, Vec<N>>;

impl Run<'_> {
    /// The nodes of a node's document that have a value of a key.
    pub(super) fn key(&self, name: Name, of: N, value: &str) -> Result<Vec<N>> {
        let known = self.keys.borrow().get(&(name, of.doc)).cloned();
        let index = match known {
            Some(index) => index,
            None => {
                let index = Rc::new(self.index(name, of)?);
                self.keys.borrow_mut().insert((name, of.doc), index.clone());
                index
            }
        };
        Ok(index.get(value).cloned().unwrap_or_default())
    }

    fn index(&self, name: Name, of: N) -> Result<Index> {
        let Some(keys) = self.sheet.keys.get(&name) else {
            let name = self.atoms.text(name.local);
            self.message(&format!("no xsl:key is named \"{name}\""));
            return Ok(Index::new());
        };
        let _deeper = self.deeper()?;
        let mut index = Index::new();
        let frame = Frame::new(0, Vec::new());
        for id in ROOT..self.docs.doc(of).len() {
            let n = N { id, ..of };
            let cx = self.cx(&frame, Focus::alone(n));
            for key in keys {
                if !key.pattern.matches(&cx, n)? {
                    continue;
                }
                let mut add = |value: &str| {
                    let nodes = index.entry(value.into()).or_default();
                    if nodes.last() != Some(&n) {
                        nodes.push(n);
                    }
                };
                match key.value.eval(&cx)? {
                    Value::Nodes(nodes) => nodes.iter().for_each(|n| add(&self.docs.value(*n))),
                    value => add(&value.to_text(&self.docs)),
                }
            }
        }
        Ok(index)
    }
}
