//! `xsl:number` (XSLT, section 7.7): what it counts.

use super::Run;
use crate::error::Result;
use crate::number::{Grouping, format_numbers};
use crate::sheet::{Avt, Level, Numbering};
use crate::tree::{Kind, NONE};
use crate::value::N;
use crate::xpath::{Cx, Pattern};

impl Run<'_> {
    /// The text of a number.
    pub(super) fn number(&self, numbering: &Numbering, cx: &Cx) -> Result<String> {
        let text = |avt: &Option<Avt>| avt.as_ref().map(|avt| avt.eval(cx)).transpose();
        let numbers = match &numbering.value {
            Some(value) => {
                vec![crate::xpath::functions::round(cx.number_of(&value.eval(cx)?))]
            }
            None => self.counted(numbering, cx)?,
        };
        if numbers.is_empty() {
            return Ok(String::new());
        }
        let format = text(&numbering.format)?.unwrap_or_else(|| "1".into());
        let alphabetic = text(&numbering.letter_value)?.is_some_and(|v| &*v == "alphabetic");
        let separator = text(&numbering.grouping_separator)?;
        let size = text(&numbering.grouping_size)?;
        let grouping = separator.zip(size).map(|(separator, size)| Grouping {
            separator: separator.to_string(),
            size: crate::value::text_number(&size) as usize,
        });
        Ok(format_numbers(&numbers, &format, grouping.as_ref(), alphabetic))
    }

    fn counted(&self, numbering: &Numbering, cx: &Cx) -> Result<Vec<f64>> {
        let counts = |n: N| self.counts(numbering.count.as_ref(), cx, n);
        let from = |n: N| match &numbering.from {
            Some(pattern) => pattern.matches(cx, n),
            None => Ok(false),
        };
        let doc = self.docs.doc(cx.node);
        let of = |id| N { id, ..cx.node };
        let mut numbers = Vec::new();
        if numbering.level == Level::Any {
            // Backwards over all that is before it in the document, its ancestors among them.
            let mut count = 0;
            for id in (0..=cx.node.id).rev() {
                self.tick()?;
                if doc.node(id).kind.is_beside() && id != cx.node.id {
                    continue;
                }
                let is_own = id == cx.node.id;
                if !is_own && from(of(id))? {
                    break;
                }
                count += u32::from(counts(of(id))?);
                if is_own && from(of(id))? {
                    break;
                }
            }
            return Ok(vec![f64::from(count)]);
        }
        for id in std::iter::once(cx.node.id).chain(doc.ancestors(cx.node.id)) {
            if id != cx.node.id && from(of(id))? {
                break;
            }
            if !counts(of(id))? {
                continue;
            }
            let mut count = 1;
            let mut before = doc.node(id).prev;
            while before != NONE {
                self.tick()?;
                count += u32::from(counts(of(before))?);
                before = doc.node(before).prev;
            }
            numbers.push(f64::from(count));
            if numbering.level == Level::Single {
                break;
            }
        }
        numbers.reverse();
        Ok(numbers)
    }

    /// Whether a node counts: it matches the pattern, or is as the current node is.
    fn counts(&self, pattern: Option<&Pattern>, cx: &Cx, n: N) -> Result<bool> {
        if let Some(pattern) = pattern {
            return pattern.matches(cx, n);
        }
        let (one, other) = (self.docs.node(cx.node), self.docs.node(n));
        let is_named = matches!(one.kind, Kind::Element | Kind::Attribute | Kind::Pi);
        let is_same_kind = one.kind == other.kind || one.kind.is_text() && other.kind.is_text();
        Ok(is_same_kind && (!is_named || one.name == other.name))
    }
}
