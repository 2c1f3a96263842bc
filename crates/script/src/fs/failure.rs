//! Errors of the system as scripts get them.

use std::io;

use rquickjs::{Ctx, Exception, Result, String as JsString, Value};

/// Why an operation has no result.
pub enum Problem {
    /// The arguments are wrong: an exception is pending.
    Thrown(rquickjs::Error),
    /// The system refused.
    Failed(Failure),
}

/// A refusal of the system.
pub struct Failure {
    syscall: &'static str,
    message: String,
    errno: i32,
    path: Option<String>,
}

impl From<rquickjs::Error> for Problem {
    fn from(error: rquickjs::Error) -> Problem {
        Problem::Thrown(error)
    }
}

/// The problem of a system call.
pub fn failed(syscall: &'static str, path: Option<&[u8]>, error: &io::Error) -> Problem {
    let text = error.to_string();
    let message = match error.raw_os_error() {
        // "No such file or directory (os error 2)"
        Some(_) => {
            text.rsplit_once(" (os error").map_or(text.as_str(), |(text, _)| text).to_owned()
        }
        None => text,
    };
    let errno = error.raw_os_error().unwrap_or_default();
    let path = path.map(|path| String::from_utf8_lossy(path).into_owned());
    Problem::Failed(Failure { syscall, message, errno, path })
}

/// A problem that no error number says.
pub fn other(syscall: &'static str, path: Option<&[u8]>, message: &str) -> Problem {
    failed(syscall, path, &io::Error::other(message.to_owned()))
}

impl Failure {
    /// An `Error` with `code`, `errno`, `path` and `syscall`.
    pub(crate) fn to_js<'js>(&self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let error = Exception::from_message(ctx.clone(), &self.message)?.into_object();
        if self.errno != 0 {
            error.set("errno", self.errno)?;
            error.set("code", os::errno::name(self.errno).unwrap_or("UNKNOWN"))?;
        }
        if let Some(path) = &self.path {
            error.set("path", JsString::from_str(ctx.clone(), path)?)?;
        }
        error.set("syscall", self.syscall)?;
        Ok(error.into_value())
    }
}
