//! The trace context of a request: its ids, its parent, and the header fields for upstreams.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use base::ascii::write_hex;
use bytes::Bytes;
use engine::logs::{TraceIds, Traced};
use http::module::Verdict;
use http::request::{FieldEdit, Request};
use proto::trace_context::{TRACEPARENT, TRACESTATE, TraceParent, is_state};

use crate::{Otel, TraceConf};

/// `otel_trace_context`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Propagation {
    /// Continue the client's trace.
    extract: bool,
    /// Send the trace context to upstreams.
    inject: bool,
}

impl Propagation {
    pub const IGNORE: Propagation = Propagation { extract: false, inject: false };

    /// The words of the directive.
    pub const VALUES: &[(&str, Propagation)] = &[
        ("ignore", Propagation::IGNORE),
        ("extract", Propagation { extract: true, inject: false }),
        ("inject", Propagation { extract: false, inject: true }),
        ("propagate", Propagation { extract: true, inject: true }),
    ];
}

/// The trace context shared by a client's request and its subrequests.
#[derive(Default)]
pub struct Trace(OnceCell<RefCell<Context>>);

/// The trace context of a request.
#[derive(Clone, Debug)]
pub struct Context {
    /// The request's own span: the ids and whether it is sampled.
    pub own: TraceParent,
    /// The client's span, if its trace is continued.
    pub parent: Option<TraceParent>,
    /// The client's `tracestate`, if its trace is continued.
    pub state: Bytes,
}

impl Trace {
    /// The request's context, if it has one.
    pub fn context(&self) -> Option<&RefCell<Context>> {
        self.0.get()
    }
}

/// Whether a value of `otel_trace` enables tracing: `on` or `1`.
pub fn is_on(value: &[u8]) -> bool {
    matches!(value, b"on" | b"1")
}

/// Runs before the rewrite phase: decides whether the request is sampled, and sets the header
/// fields for upstreams. Internal redirects and subrequests keep the first decision.
pub fn begin(r: &mut Request, conf: &TraceConf) -> Verdict {
    if r.flags.internal || r.is_subrequest() {
        return Verdict::Next;
    }
    let sampled = match &conf.trace {
        Some(trace) => is_on(&r.eval(trace)),
        None => false,
    };
    let propagation = conf.context.unwrap_or(Propagation::IGNORE);
    if propagation == Propagation::IGNORE && !sampled {
        return Verdict::Next;
    }
    let trace = of(r);
    let Some(context) = trace.context() else { return Verdict::Next };
    context.borrow_mut().own.sampled = sampled;
    if sampled && r.main.confs.get::<Otel>().is_some_and(|otel| otel.logs.is_some()) {
        let TraceParent { trace_id, span_id, .. } = context.borrow().own;
        r.shared::<Traced>().0.set(Some(TraceIds { trace_id, span_id }));
    }
    if propagation.inject {
        let (value, state) = {
            let context = context.borrow();
            (context.own.write(), context.state.clone())
        };
        set(r, TRACEPARENT, &value);
        set(r, TRACESTATE, &state);
    }
    Verdict::Next
}

fn set(r: &mut Request, name: &str, value: &[u8]) {
    r.edit_header(FieldEdit {
        name: name.as_bytes(),
        is_prefix: false,
        value,
        replace_only: false,
    });
}

/// The request's trace, created if there is none.
fn of(r: &mut Request) -> Rc<Trace> {
    let trace = r.shared::<Trace>();
    trace.0.get_or_init(|| {
        let conf = r.loc.confs.get::<TraceConf>();
        let extracts = conf.and_then(|conf| conf.context).is_some_and(|context| context.extract);
        RefCell::new(if extracts { extract(r) } else { new(None, Bytes::new()) })
    });
    trace
}

/// Reads the client's `traceparent` and `tracestate`. More than one `traceparent` counts as none
/// (W3C Trace Context section 3.2 allows one).
fn extract(r: &Request) -> Context {
    let mut parents = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
    let parent = match (parents.next(), parents.next()) {
        (Some((_, value)), None) => TraceParent::parse(value),
        _ => None,
    };
    if parent.is_none() {
        return new(None, Bytes::new());
    }
    let mut state = Vec::new();
    for (_, value) in r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"tracestate")) {
        if !state.is_empty() {
            state.push(b',');
        }
        state.extend_from_slice(value);
    }
    if !is_state(&state) {
        state.clear();
    }
    new(parent, state.into())
}

fn new(parent: Option<TraceParent>, state: Bytes) -> Context {
    let trace_id = parent.map_or_else(id, |parent| parent.trace_id);
    let own = TraceParent { trace_id, span_id: id(), sampled: false };
    Context { own, parent, state }
}

/// The number of random bytes that are fetched at once.
const DRAWN: usize = 1536;

thread_local! {
    /// A pool of random bytes, and the number of used ones. It is filled by the first request, not
    /// in the master, because all workers would inherit the same bytes.
    static RANDOM: RefCell<(Vec<u8>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// A random id that is not all zeroes, which the specification forbids.
pub fn id<const N: usize>() -> [u8; N] {
    RANDOM.with(|random| {
        let (bytes, used) = &mut *random.borrow_mut();
        loop {
            if bytes.len() < *used + N {
                bytes.resize(DRAWN, 0);
                os::random::fill(bytes);
                *used = 0;
            }
            let mut id = [0; N];
            id.copy_from_slice(&bytes[*used..*used + N]);
            *used += N;
            if id != [0; N] {
                return id;
            }
        }
    })
}

fn write(r: &mut Request, read: impl FnOnce(&Context) -> bool) -> bool {
    of(r).context().is_some_and(|context| read(&context.borrow()))
}

pub fn trace_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write(r, |context| {
        write_hex(out, &context.own.trace_id);
        true
    })
}

pub fn span_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write(r, |context| {
        write_hex(out, &context.own.span_id);
        true
    })
}

pub fn parent_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write(r, |context| match &context.parent {
        Some(parent) => {
            write_hex(out, &parent.span_id);
            true
        }
        None => false,
    })
}

pub(crate) fn parent_sampled(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write(r, |context| {
        out.push(if context.parent.is_some_and(|parent| parent.sampled) { b'1' } else { b'0' });
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_not_zero() {
        let ids: std::collections::HashSet<[u8; 8]> = (0..1000).map(|_| id()).collect();
        assert_eq!(ids.len(), 1000);
        let context = new(None, Bytes::new());
        assert!(context.own.trace_id != [0; 16] && context.own.span_id != [0; 8]);
        let parent = Some(context.own);
        assert_eq!(new(parent, Bytes::new()).own.trace_id, context.own.trace_id);
        assert_ne!(new(parent, Bytes::new()).own.span_id, context.own.span_id);
    }

    #[test]
    fn values_of_otel_trace() {
        assert!(is_on(b"on") && is_on(b"1"));
        for off in [&b"off"[..], b"", b"0", b"ON", b"true"] {
            assert!(!is_on(off), "{off:?}");
        }
    }
}
