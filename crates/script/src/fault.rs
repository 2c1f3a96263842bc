//! Why a script failed, and where.

use std::fmt;

use rquickjs::{Ctx, Error, Type, Value};

/// How the names of modules begin that are ours.
const OURS: &str = "weir:";

/// A position in a script; lines and columns from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The module's path, as it was found.
    pub file: String,
    /// The line in the file, from 1.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The kinds of failure that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The script threw.
    Thrown,
    /// A promise was rejected, and nobody handled it.
    Rejected,
    /// The text is no JavaScript, or an import names nothing.
    Load,
    /// There is no function of that name.
    NoFunction,
    /// One stretch of the script took more processor time than `js_time_limit`.
    Stretch,
    /// All stretches of a request together took more than `js_cpu_limit`.
    Cpu,
    /// The engine could not be made: not enough memory.
    Memory,
    /// The instance was ended by an earlier fault.
    Ended,
}

/// A failure. Displayed as `MESSAGE` and, on lines of their own, the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The text of the exception, for example `TypeError: not a function`.
    pub message: String,
    /// The stack as the engine writes it, one frame a line, or nothing.
    pub stack: String,
    /// The innermost function of the script on the stack.
    pub function: Option<String>,
    /// The innermost position on the stack.
    pub place: Option<Place>,
}

impl Fault {
    /// A fault without a position.
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        let message = message.into();
        Fault { kind, message, stack: String::new(), function: None, place: None }
    }

    /// The fault for an error of the engine; takes the pending exception.
    pub(crate) fn caught(ctx: &Ctx<'_>, kind: FaultKind, error: &Error) -> Fault {
        if matches!(error, Error::Exception) {
            Fault::thrown(&ctx.catch(), kind)
        } else {
            Fault::new(kind, error.to_string())
        }
    }

    /// The fault for the reason of a rejection that nobody handled.
    pub(crate) fn rejected(reason: &Value<'_>) -> Fault {
        Fault::thrown(reason, FaultKind::Rejected)
    }

    /// The fault for a thrown value.
    pub(crate) fn thrown(value: &Value<'_>, kind: FaultKind) -> Fault {
        // The engine has no exception left when memory runs out while it makes one.
        let message = match value.type_of() {
            Type::Uninitialized => "InternalError: out of memory".to_owned(),
            Type::Null => "null (or memory ran out while an exception was made)".to_owned(),
            _ => crate::value::describe(value),
        };
        let mut fault = Fault::new(kind, message);
        if let Some(object) = value.as_object().filter(|_| value.is_error()) {
            let stack = object.get::<_, Option<String>>("stack").unwrap_or_else(|_| {
                // A getter of the script, or memory ran out.
                value.ctx().catch();
                None
            });
            let stack = stack.unwrap_or_default();
            // It begins with the text of the error.
            let stack =
                stack.strip_prefix(&fault.message).unwrap_or(&stack).trim_start_matches('\n');
            // Frames of code of ours that is written in JavaScript say nothing to users.
            let shown = stack
                .lines()
                .filter(|line| frame(line).is_none_or(|(_, place)| !place.file.starts_with(OURS)));
            fault.stack = shown.collect::<Vec<&str>>().join("\n");
            if let Some((function, place)) = fault.stack.lines().find_map(frame) {
                fault.function = function;
                fault.place = Some(place);
            }
        }
        fault
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.stack.is_empty() {
            write!(f, "\n{}", self.stack.trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Reads a line of a stack, `    at name (file:line:column)` or `    at file:line:column`.
/// Frames of natives have no position.
fn frame(line: &str) -> Option<(Option<String>, Place)> {
    let text = line.trim().strip_prefix("at ")?;
    let (function, place) = match text.strip_suffix(')').and_then(|t| t.rsplit_once(" (")) {
        Some((function, place)) => (Some(function.to_owned()), place),
        None => (None, text),
    };
    let mut parts = place.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    let file = parts.next()?.to_owned();
    Some((function.filter(|f| f != "<anonymous>"), Place { file, line, column }))
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn frames_name_function_and_place() {
        let (function, place) = frame("    at handler (/a/b.js:3:14)").unwrap();
        assert_eq!((function.as_deref(), place.line, place.column), (Some("handler"), 3, 14));
        assert_eq!(place.file, "/a/b.js");
        let (function, place) = frame("    at <anonymous> (main.js:1:2)").unwrap();
        assert_eq!((function, place.to_string().as_str()), (None, "main.js:1:2"));
        assert_eq!(frame("    at main.js:4:5").unwrap().1.line, 4);
        assert!(frame("    at parse (native)").is_none());
    }
}
