//! Stylesheets: what they are compiled to.
//!
//! [`load`] reads a file and all that it includes and imports, [`declare`] takes the elements at
//! the top, [`body`] compiles what templates do, and [`rules`] orders the templates by what they
//! match.

mod avt;
mod body;
mod declare;
mod load;
mod rules;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::atoms::{Atom, Atoms, Name, Shared};
use crate::error::{Error, Result};
use crate::number::DecimalFormat;
use crate::output::Output;
use crate::xpath::{Namespaces, Pattern, Test, XPath};

pub(crate) use avt::Avt;
pub(crate) use load::beside;
pub(crate) use rules::{Mode, Rule};

/// A compiled stylesheet, with all that it includes and imports. Threads may share it.
#[derive(Debug)]
pub struct Sheet {
    pub(crate) atoms: Arc<Shared>,
    pub(crate) output: Output,
    pub(crate) templates: Vec<Template>,
    /// The templates with a pattern, by mode; that of no mode is [`Name::default`].
    pub(crate) modes: HashMap<Name, Mode>,
    pub(crate) globals: Vec<Global>,
    pub(crate) keys: HashMap<Name, Vec<Key>>,
    /// The decimal formats; the default one is that of [`Name::default`].
    pub(crate) formats: HashMap<Name, DecimalFormat>,
    /// The attribute sets, parts of the same name in the order in which they are applied.
    pub(crate) sets: HashMap<Name, Vec<AttributeSet>>,
    pub(crate) functions: Vec<OwnFunction>,
    /// What strips or keeps white space: the last one that fits an element decides.
    pub(crate) spaces: Vec<(Test, bool)>,
    /// The file that it was read from.
    pub(crate) file: Arc<str>,
}

impl Sheet {
    /// Reads and compiles a stylesheet. An error names the file and line where it is.
    pub fn read(path: &Path) -> std::result::Result<Sheet, Error> {
        declare::compile(load::load(path)?)
    }

    /// A stylesheet that says nothing.
    pub(crate) fn empty() -> Sheet {
        Sheet {
            atoms: Atoms::default().freeze(),
            output: Output::default(),
            templates: Vec::new(),
            modes: HashMap::new(),
            globals: Vec::new(),
            keys: HashMap::new(),
            formats: HashMap::from([(Name::default(), DecimalFormat::default())]),
            sets: HashMap::new(),
            functions: Vec::new(),
            spaces: Vec::new(),
            file: "".into(),
        }
    }

    /// What `xsl:output` says.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Whether text nodes of white space are stripped from an element of a source document.
    pub(crate) fn strips(&self, element: Name) -> bool {
        let fits = |test: &Test| match test {
            Test::Any => true,
            Test::Namespace(uri) => *uri == element.uri,
            Test::Name(name) => *name == element,
            _ => false,
        };
        let mut all = self.spaces.iter().rev();
        all.find(|(test, _)| fits(test)).is_some_and(|(_, strips)| *strips)
    }
}

#[derive(Debug)]
pub(crate) struct Template {
    /// How many variables it has.
    pub(crate) slots: u32,
    pub(crate) body: Body,
    /// The import precedence of its stylesheet, and the lowest one of what that imports.
    pub(crate) precedence: u32,
    pub(crate) lowest: u32,
}

/// Instructions, one after another.
pub(crate) type Body = Vec<Instruction>;

/// An instruction and its place.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) what: Instr,
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
}

/// What gives a variable its value.
#[derive(Debug)]
pub(crate) enum Binding {
    Select(XPath),
    /// A result tree fragment.
    Body(Body),
    /// The empty text.
    Nothing,
}

/// Parameters that are passed on.
pub(crate) type WithParams = Vec<(Name, Binding)>;

/// The instructions (XSLT, sections 5 to 13).
#[derive(Debug)]
pub(crate) enum Instr {
    Text {
        text: Arc<str>,
        raw: bool,
    },
    ValueOf {
        select: XPath,
        raw: bool,
    },
    Literal(Box<Literal>),
    Element(Box<Constructed>),
    Attribute(Box<Constructed>),
    Comment(Body),
    Pi {
        name: Avt,
        body: Body,
    },
    Copy {
        sets: Vec<Name>,
        body: Body,
    },
    CopyOf(XPath),
    Apply(Box<Apply>),
    Call {
        template: u32,
        params: WithParams,
    },
    ApplyImports,
    ForEach(Box<ForEach>),
    If {
        test: XPath,
        body: Body,
    },
    Choose {
        whens: Vec<(XPath, Body)>,
        otherwise: Body,
    },
    Variable {
        slot: u32,
        value: Binding,
    },
    Param {
        name: Name,
        slot: u32,
        default: Binding,
    },
    Number(Box<Numbering>),
    Message {
        body: Body,
        terminate: bool,
    },
    /// `func:result`
    Result(Binding),
    /// The fallbacks of an element that nobody knows.
    Fallback(Body),
    /// An error where it is reached: an element that nobody knows, or a template that is not there.
    Fault(String),
}

/// An element that stands for itself.
#[derive(Debug)]
pub(crate) struct Literal {
    pub(crate) name: Name,
    pub(crate) prefix: Atom,
    pub(crate) namespaces: Vec<(Atom, Atom)>,
    pub(crate) sets: Vec<Name>,
    pub(crate) attributes: Vec<(Name, Atom, Avt)>,
    pub(crate) body: Body,
}

/// `xsl:element` and `xsl:attribute`.
#[derive(Debug)]
pub(crate) struct Constructed {
    pub(crate) name: Avt,
    pub(crate) namespace: Option<Avt>,
    pub(crate) scope: Arc<Namespaces>,
    pub(crate) sets: Vec<Name>,
    pub(crate) body: Body,
}

/// `xsl:apply-templates`
#[derive(Debug)]
pub(crate) struct Apply {
    pub(crate) select: Option<XPath>,
    pub(crate) mode: Name,
    pub(crate) sorts: Vec<Sort>,
    pub(crate) params: WithParams,
}

/// `xsl:for-each`
#[derive(Debug)]
pub(crate) struct ForEach {
    pub(crate) select: XPath,
    pub(crate) sorts: Vec<Sort>,
    pub(crate) body: Body,
}

/// `xsl:sort`
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) select: Option<XPath>,
    pub(crate) data_type: Option<Avt>,
    pub(crate) order: Option<Avt>,
    pub(crate) case_order: Option<Avt>,
    pub(crate) lang: Option<Avt>,
}

/// `xsl:number`
#[derive(Debug)]
pub(crate) struct Numbering {
    pub(crate) value: Option<XPath>,
    pub(crate) level: Level,
    pub(crate) count: Option<Pattern>,
    pub(crate) from: Option<Pattern>,
    pub(crate) format: Option<Avt>,
    pub(crate) letter_value: Option<Avt>,
    pub(crate) grouping_separator: Option<Avt>,
    pub(crate) grouping_size: Option<Avt>,
}

/// What `xsl:number` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Single,
    Multiple,
    Any,
}

/// A variable or parameter of the stylesheet.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) name: Name,
    /// The name as `xsl:param` has it, for what the configuration passes; empty for a variable.
    pub(crate) parameter: String,
    pub(crate) value: Binding,
    pub(crate) slots: u32,
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
}

/// `xsl:key`
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) pattern: Pattern,
    pub(crate) value: XPath,
}

/// `xsl:attribute-set`
#[derive(Debug)]
pub(crate) struct AttributeSet {
    pub(crate) sets: Vec<Name>,
    pub(crate) slots: u32,
    pub(crate) body: Body,
}

/// `func:function`
#[derive(Debug, Default)]
pub(crate) struct OwnFunction {
    pub(crate) name: Name,
    pub(crate) slots: u32,
    /// The parameters in order.
    pub(crate) params: Vec<Name>,
    pub(crate) body: Body,
}

/// The namespace of functions that stylesheets define.
pub(crate) const FUNC: &str = "http://exslt.org/functions";

/// A shorthand for errors of this part.
pub(crate) fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(message))
}

#[cfg(test)]
mod tests;
