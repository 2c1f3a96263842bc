//! The body filter of all codings: one response being compressed, here or in a thread.

use std::cell::RefCell;
use std::rc::Rc;

use event::Pool;
use http::output::{self, BodyFilter, FilterStep, Piece};
use http::request::Request;
use mem::Chain;

use super::coder::{Broken, Coder, Job, Until};
use super::{Coding, Ratio};

/// The plan for compressing a body.
#[derive(Clone)]
pub struct Plan {
    /// The length of compressed output that is made before it is sent.
    pub output_max: usize,
    /// Compressing begins when this number of bytes is there.
    pub postpone: u64,
    /// Each piece goes out with what it was made from.
    pub no_buffer: bool,
    /// The pool that does it, where it takes long: `None` for the default one.
    pub pool: Option<Pool>,
    /// So many bytes take long.
    pub thread_min: u64,
}

/// Makes the compressor when the first bytes come.
pub type Make = Box<dyn FnOnce() -> Result<Box<dyn Coder>, Broken>>;

/// The result of work in a thread.
struct Worked {
    coder: Box<dyn Coder>,
    input: Chain,
    /// The number of input bytes that were taken.
    bytes: u64,
    until: Until,
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
    /// Bytes that went in since something came out: a compressor may take them in for nearly
    /// nothing, and compress them all with those of a later call.
    held: u64,
}

impl Body {
    /// One that has not begun.
    pub fn new(coding: Coding, plan: Plan, make: Make) -> Body {
        let worked = Rc::default();
        Body {
            coding,
            plan,
            postponed: Chain::new(),
            make: Some(make),
            coder: None,
            worked,
            held: 0,
        }
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

    /// The pool for so much input, where that takes long and the pool has room.
    fn pool(&self, len: u64) -> Option<Pool> {
        if len + self.held < self.plan.thread_min {
            return None;
        }
        let pool = self.plan.pool.clone().unwrap_or_else(event::pool::default);
        (!pool.is_full()).then_some(pool)
    }

    fn took(&mut self, bytes: u64, has_given: bool) {
        self.held = if has_given { 0 } else { self.held + bytes };
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
            let (mut out, before) = (Chain::new(), input.len());
            let result = coder.run(Job { input: &mut input, until, out: &mut out, limit });
            let bytes = before - input.len();
            Worked { coder, input, bytes, until, out, result }
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

impl Drop for Body {
    fn drop(&mut self) {
        // To end a stream that nobody waits for may be work as well: Brotli compresses what it
        // holds.
        if let Some(coder) = self.coder.take()
            && self.held >= self.plan.thread_min
        {
            event::pool::elsewhere(move || drop(coder));
        }
    }
}

impl BodyFilter for Body {
    fn is_coding(&self) -> bool {
        true
    }

    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let worked = self.worked.borrow_mut().take();
        if let Some(mut worked) = worked {
            self.took(worked.bytes, !worked.out.is_empty());
            out.append(&mut worked.out);
            worked.input.append(input);
            *input = worked.input;
            match self.done(r, worked.coder, worked.result) {
                FilterStep::Go if input.is_empty() && self.until(r, last) == worked.until => {
                    return FilterStep::Go;
                }
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
        let (before, given) = (input.len(), out.len());
        match self.pool(before) {
            Some(pool) => self.hand_over(coder, &pool, input.take(), until),
            None => {
                let limit = self.plan.output_max;
                let result = coder.run(Job { input: &mut *input, until, out: &mut *out, limit });
                self.took(before - input.len(), out.len() > given);
                self.done(r, coder, result)
            }
        }
    }
}
