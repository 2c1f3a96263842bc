//! The state that variables and modules keep with a request.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use engine::regex::Captures;
use engine::vars::Values;

use super::Request;

/// The state of one request.
#[derive(Default)]
pub struct State {
    /// Groups of the last regular expression that matched.
    pub captures: Captures,
    pub(crate) values: Values,
    /// Modules' own, one of each type; an internal redirect forgets them.
    pub(crate) ctx: Vec<Box<dyn Any>>,
    /// Futures to wait for behind the log phase; see [`Request::before_close`].
    pub(crate) settling: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    /// Functions to call behind the log phase; see [`Request::at_end`].
    pub(crate) endings: Vec<Ending>,
}

/// See [`Request::at_end`].
pub type Ending = Box<dyn FnOnce(&mut Request)>;

impl State {
    /// For the next request.
    pub(super) fn clear(&mut self) {
        self.captures.clear();
        self.values.clear();
        self.ctx.clear();
        self.settling.clear();
        self.endings.clear();
    }
}

impl Request {
    /// A module's state of this request, if it made one.
    pub fn ctx<T: 'static>(&self) -> Option<&T> {
        self.state.ctx.iter().find_map(|b| b.downcast_ref())
    }

    /// A module's state of this request, made now if there is none.
    pub fn ctx_mut<T: Default + 'static>(&mut self) -> &mut T {
        let ctx = &mut self.state.ctx;
        let i = ctx.iter().position(|b| b.is::<T>()).unwrap_or(ctx.len());
        if i == ctx.len() {
            ctx.push(Box::new(T::default()));
        }
        ctx[i].downcast_mut().expect("found or stored under this type just now")
    }

    /// Calls `ending` when the log phase is over, or a subrequest has its response. A redirect
    /// inside the server does not forget it. It is dropped uncalled if the request's task is.
    pub fn at_end(&mut self, ending: Ending) {
        self.state.endings.push(ending);
    }

    /// Calls what [`Request::at_end`] was given.
    pub(crate) fn call_endings(&mut self) {
        let mut endings = std::mem::take(&mut self.state.endings);
        endings.drain(..).for_each(|ending| ending(self));
        // The memory of the list is for the next request.
        endings.append(&mut self.state.endings);
        self.state.endings = endings;
    }

    /// The n-th group of the last regular expression that matched.
    pub fn capture(&self, n: usize) -> Option<&[u8]> {
        self.state.captures.get(n)
    }
}
