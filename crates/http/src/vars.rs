//! Variables of HTTP: those of [`engine::vars`] for requests.

use bytes::Bytes;
use conf::template::{VarId, VarSource};
use engine::vars;

use crate::request::Request;

/// A built-in variable of HTTP or a family of them.
pub type VarDef = vars::VarDef<Request>;
/// The registry of variables while loading.
pub type Registry = vars::Registry<Request>;
/// See [`vars::ValueFn`].
pub type ValueFn = vars::ValueFn<Request>;
/// See [`vars::SetFn`].
pub type SetFn = vars::SetFn<Request>;

impl Request {
    /// Stores a value, as `set` and named captures do.
    pub fn set_var(&mut self, id: VarId, value: Option<Bytes>) {
        vars::store(self, id, value);
    }

    /// The value of a variable; `None` where it has none.
    pub fn var(&mut self, id: VarId) -> Option<Bytes> {
        vars::value(self, id)
    }

    /// Appends a variable's value to `out`; `false` where it has none.
    pub fn write_var(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        vars::write(self, id, out)
    }

    /// The value of a variable with a name known at run time only, in lower case; `None` where it
    /// has none, or there is no such variable.
    pub fn var_named(&mut self, name: &[u8]) -> Option<Bytes> {
        vars::value_of_name(self, name)
    }
}

impl VarSource for Request {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        self.var(id)
    }

    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        self.write_var(id, out)
    }
}
