//! A function that a directive names.

use std::rc::Rc;

use base::log::lossy;
use conf::value::set_once;
use conf::{ConfError, Node, Word};
use engine::metrics::functions::FunctionCounts;
use engine::{Cx, Session};

/// A function that a directive names, as `MODULE.FUNCTION`.
#[derive(Clone)]
pub struct Function {
    /// Its name.
    pub name: Rc<str>,
    /// The place of the name.
    pub word: Word,
    /// Its calls.
    pub counts: Rc<FunctionCounts>,
}

impl Function {
    /// The function that a word of a directive names.
    ///
    /// # Errors
    /// There is no memory for its counters.
    pub fn of<S: Session>(
        cx: &Cx<S>,
        directive: &'static str,
        word: &Word,
    ) -> Result<Function, ConfError> {
        let engine = if S::HAS_HEADS { "http" } else { "stream" };
        let (env, of) = (&cx.env, (engine, directive));
        let counts = FunctionCounts::of(&env.metrics, env.slots(), of, &word.lossy());
        let counts = counts.map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(word, format!("memory for counters of a script {e}"))
        })?;
        Ok(Function { name: lossy(&word.text).into(), word: word.clone(), counts })
    }

    /// The same for a directive with one argument, which is not repeated.
    ///
    /// # Errors
    /// `is duplicate`, and as for [`Function::of`].
    pub fn set<S: Session>(
        cx: &mut Cx<S>,
        directive: &'static str,
        n: &Node,
        field: fn(&mut Cx<S>) -> &mut Option<Function>,
    ) -> Result<(), ConfError> {
        let function = Function::of(cx, directive, n.arg(0)?)?;
        set_once(field(cx), n, |_| Ok(function))
    }

    /// Its name as text.
    pub fn lossy(&self) -> String {
        self.name.as_ref().to_owned()
    }
}
