//! The body filter of all codings: one response being compressed, here or in a thread.

use std::cell::RefCell;
use std::rc::Rc;

use event::Pool;
use http::output::{self, BodyFilter, FilterStep, Piece};
use http::request::Request;
use mem::Chain;

use super::coder::{Broken, Coder, Job, Until};
use super::{Coding, Ratio};

/// Less than this is compressed at once even where a thread could: it takes no longer than to ask
/// one.
const THREAD_MIN: u64 = 8 << 10;

/// The plan for compressing a body.
#[derive(Clone)]
pub struct Plan {
    /// The length of compressed output that is made before it is sent.
    pub output_max: usize,
    /// Compressing begins when so much is there.
    pub postpone: u64,
    /// Each piece goes out with what it was made from.
    pub no_buffer: bool,
    /// The pool that does it, where it takes long.
    pub pool: Option<Pool>,
}

/// Makes the compressor when the first bytes come.
pub type Make = Box<dyn FnOnce() -> Result<Box<dyn Coder>, Broken>>;

/// The result of work in a thread.
struct Worked {
    coder: Box<dyn Coder>,
    input: Chain,
    out: Chain,
    result: Result<bool, Broken>,
}

/// The compression of one response: the coder, its input and what the location asks for.
pub struct Body {
    coding: Coding,
    plan: Plan,
    /// Input that waits for more (`postpone_gzipping`).
    postponed: Chain,
    make: Option<Make>,
    /// `None` before the first bytes, while a thread has it, and behind the end.
    coder: Option<Box<dyn Coder>>,
    worked: Rc<RefCell<Option<Worked>>>,
}

impl Body {
    /// One that has not begun.
    pub fn new(coding: Coding, plan: Plan, make: Make) -> Body {
        let worked = Rc::default();
        Body { coding, plan, postponed: Chain::new(), make: Some(make), coder: None, worked }
    }

    fn until(&self, r: &Request, last: bool) -> Until {
        if last {
            Until::Ended
        } else if r.out.flush || self.plan.no_buffer {
            Until::Flushed
        } else {
            Until::Free
        }
    }

    /// Has a thread do it; the compressor and the input come back with the output.
    fn hand_over(
        &self,
        mut coder: Box<dyn Coder>,
        pool: &Pool,
        mut input: Chain,
        until: Until,
    ) -> FilterStep {
        let limit = self.plan.output_max;
        let work = pool.run(move || {
            let mut out = Chain::new();
            let result = coder.run(Job { input: &mut input, until, out: &mut out, limit });
            Worked { coder, input, out, result }
        });
        let worked = self.worked.clone();
        FilterStep::Wait(Box::pin(async move {
            // The pool logs the reason of a failure.
            let done = work.await.map_err(|_| output::Broken)?;
            *worked.borrow_mut() = Some(done);
            Ok(())
        }))
    }

    fn done(
        &mut self,
        r: &mut Request,
        coder: Box<dyn Coder>,
        result: Result<bool, Broken>,
    ) -> FilterStep {
        match result {
            Ok(false) => {
                self.coder = Some(coder);
                return FilterStep::More;
            }
            Ok(true) if !coder.ended() => self.coder = Some(coder),
            Ok(true) => {
                let (before, after) = coder.totals();
                *r.ctx_mut() = Ratio { coding: Some(self.coding), before, after };
            }
            Err(Broken) => return failed(r, self.coding),
        }
        FilterStep::Go
    }
}

#[cold]
fn failed(r: &Request, coding: Coding) -> FilterStep {
    let what = match coding {
        Coding::Gzip => "deflate()",
        Coding::Brotli => "brotli",
        Coding::Zstd => "zstd",
    };
    r.log(base::log::Level::Alert, format_args!("{what} failed"));
    FilterStep::Fail
}

impl BodyFilter for Body {
    fn is_coding(&self) -> bool {
        true
    }

    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let worked = self.worked.borrow_mut().take();
        if let Some(mut worked) = worked {
            out.append(&mut worked.out);
            worked.input.append(input);
            *input = worked.input;
            match self.done(r, worked.coder, worked.result) {
                // The input that came meanwhile is still to be compressed, be it only the end.
                FilterStep::Go if self.coder.is_some() => {}
                step => return step,
            }
        }
        let until = self.until(r, last);
        if self.make.is_some() {
            self.postponed.append(input);
            if until == Until::Free && self.postponed.len() < self.plan.postpone {
                return FilterStep::Go;
            }
            *input = self.postponed.take();
        }
        if let Some(make) = self.make.take() {
            match make() {
                Ok(coder) => self.coder = Some(coder),
                Err(Broken) => return failed(r, self.coding),
            }
        }
        let Some(mut coder) = self.coder.take() else {
            // The stream has ended.
            input.clear();
            return FilterStep::Go;
        };
        match &self.plan.pool {
            Some(pool) if input.len() >= THREAD_MIN => {
                self.hand_over(coder, pool, input.take(), until)
            }
            _ => {
                let result = coder.run(Job { input, until, out, limit: self.plan.output_max });
                self.done(r, coder, result)
            }
        }
    }
}
