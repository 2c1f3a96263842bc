//! `otel`: sends spans, metrics and logs to OpenTelemetry collectors. Directives and
//! variables are those of nginx-otel.
//!
//! ```text
//!  rewrite phase ─▶ Trace (ids, sampled) ─▶ traceparent of the request, which upstreams get
//!                      │
//!  log phase ──────────┴─▶ span ─▶ Batches ─(full, or `interval` over)─▶ task ─▶ collector
//! ```
//!
//! | file | concern |
//! | --- | --- |
//! | [`exporter_block`] | `otel_exporter` |
//! | [`context`] | a request's place in its trace |
//! | [`span`] | a request's span |
//! | [`tries`] | spans of its tries at upstream servers |
//! | [`batches`] | spans that wait |
//! | [`counts`] | counters of spans |
//! | [`exemplars`] | traced requests in histograms |
//! | [`exporter`] | the task that sends them |
//! | [`collector`] | calls to a collector, by gRPC or by HTTP |
//! | [`logs`] | logs that go to `otel:` |
//! | [`metrics`] | `otel_metrics` |
//! | [`otlp`] | OTLP's messages, sans-IO |
#![forbid(unsafe_code)]

mod batches;
mod collector;
mod context;
mod counts;
mod exemplars;
mod exporter;
mod exporter_block;
mod logs;
mod metrics;
pub mod otlp;
mod outcome;
mod span;
mod tries;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::otlp::{Resource, Signal};
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{set_enum, set_once};
use conf::{ConfError, Node, Word, value};
use engine::logs::Outbox;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;
use http::server::HttpMain;
use http::vars::VarDef;

pub use counts::{log_sums, sums};
pub use exemplars::{Exemplar, exemplar};
pub use metrics::MetricsExporter;

use batches::Batches;
use context::Propagation;
use counts::Counts;
use exporter_block::Exporter;

/// The module's table.
pub static MODULE: Module = Module {
    name: "otel",
    directives: DIRECTIVES,
    variables: &[
        VarDef::new("otel_trace_id", context::trace_id),
        VarDef::new("otel_span_id", context::span_id),
        VarDef::new("otel_parent_id", context::parent_id),
        VarDef::new("otel_parent_sampled", context::parent_sampled),
    ],
    confs: &[
        ConfType::of::<Otel>(Scope::Main),
        ConfType::of::<TraceConf>(Scope::Location),
        ConfType::of::<exporter_block::Draft>(Scope::Location),
    ],
    init: Some(init),
    install: Some(install),
    start: Some(start),
    status: Some(counts::status),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "otel_exporter",
        C::HTTP,
        Args::BLOCK.or(Args::NONE),
        "",
        "The exporter of spans: its collector and batching.",
        exporter_block::otel_exporter,
    ),
    exporter_block::ENDPOINT,
    exporter_block::TRUSTED_CERTIFICATE,
    exporter_block::HEADER,
    exporter_block::INTERVAL,
    exporter_block::BATCH_SIZE,
    exporter_block::BATCH_COUNT,
    directive(
        "otel_service_name",
        C::HTTP,
        Args::T1,
        "unknown_service:nginx",
        "The `service.name` resource attribute.",
        |cx, n| set_once(&mut cx.main::<Otel>().service_name, n, |n| Ok(n.arg(0)?.text.clone())),
    ),
    directive(
        "otel_resource_attr",
        C::HTTP,
        Args::T2,
        "",
        "Sets a resource attribute of all spans and metrics.",
        |cx, n| {
            let (name, value) = (n.arg(0)?.text.clone(), n.arg(1)?.text.clone());
            cx.main::<Otel>().attributes.insert(name, value);
            Ok(())
        },
    ),
    directive(
        "otel_metrics",
        C::HTTP,
        Args::T1.or(Args::T2),
        "off",
        "Whether to export metrics: on or off, and their interval (interval=60s).",
        metrics::otel_metrics,
    ),
    directive(
        "otel_trace",
        HSL,
        Args::T1,
        "off",
        "Whether to create spans for requests: on, off, or a variable whose value is on or 1.",
        otel_trace,
    ),
    directive(
        "otel_trace_context",
        HSL,
        Args::T1,
        "ignore",
        "Trace context (traceparent, tracestate): ignore, extract, inject or propagate.",
        |cx, n| set_enum(&mut cx.loc::<TraceConf>().context, n, Propagation::VALUES),
    ),
    directive(
        "otel_upstream_spans",
        HSL,
        Args::FLAG,
        "off",
        "Whether a traced request has a span for each try at an upstream server, too.",
        |cx, n| value::set_flag(&mut cx.loc::<TraceConf>().upstream, n),
    ),
    directive(
        "otel_span_name",
        HSL,
        Args::T1,
        "the location's name",
        "The name of a request's span.",
        |cx, n| cx.set_template(n, |c: &mut TraceConf| &mut c.name),
    ),
    directive(
        "otel_span_attr",
        HSL,
        Args::T2,
        "",
        "Adds an attribute to a request's span.",
        otel_span_attr,
    ),
];

/// The module's settings in `http`: the exporter, and the resource attributes of all spans.
#[derive(Default)]
struct Otel {
    exporter: Option<Exporter>,
    service_name: Option<Bytes>,
    attributes: BTreeMap<Bytes, Bytes>,
    /// The log records of this worker, if some log goes to the collector.
    logs: Option<Rc<Batches>>,
    outbox: Option<Rc<Outbox>>,
    /// `otel_metrics`: `Some(None)` is `off`.
    metrics: Option<Option<metrics::Plan>>,
    /// The position of the first `otel_trace`, for an error if there is no exporter.
    traced_at: Option<Word>,
    /// The batches of this worker; `None` if no request can have a span.
    batches: Option<Rc<Batches>>,
}

impl Conf for Otel {}

engine::settings! {
    /// The directives of a level.
    struct TraceConf {
        /// `otel_trace`
        trace: Option<Template>,
        /// `otel_trace_context`
        context: Option<Propagation>,
        /// `otel_upstream_spans`
        upstream: Option<bool>,
        /// `otel_span_name`
        name: Option<Template>,
        /// `otel_span_attr`: a level with any replaces those of outer levels.
        attributes: Option<Rc<Vec<Attribute>>>,
    }
}

/// `otel_span_attr`
struct Attribute {
    name: Bytes,
    value: Template,
}

fn otel_trace(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?.clone();
    cx.main::<Otel>().traced_at.get_or_insert(word);
    cx.set_template(n, |c: &mut TraceConf| &mut c.trace)
}

fn otel_span_attr(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let attribute = Attribute { name: n.arg(0)?.text.clone(), value: cx.template(n.arg(1)?)? };
    let list = cx.loc::<TraceConf>().attributes.get_or_insert_default();
    // The list is not shared before the levels are merged.
    let list = Rc::get_mut(list).ok_or_else(|| ConfError::directive(n, "is late"))?;
    list.push(attribute);
    Ok(())
}

/// The default of `service.name`; the same as nginx-otel's, because existing dashboards use it.
const SERVICE: &[u8] = b"unknown_service:nginx";

fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let slots = cx.env.slots();
    let outbox = cx.env.logs.outbox().clone();
    let otel = cx.main::<Otel>();
    if let (Some(at), None) = (&otel.traced_at, &otel.exporter) {
        return Err(ConfError::at(at, "\"otel_exporter\" block is missing"));
    }
    metrics::check(otel)?;
    let Some(exporter) = &otel.exporter else { return Ok(()) };
    if otel.traced_at.is_some() {
        let counts = Counts::new(slots);
        let counts = counts.map_err(|e| ConfError::new(format!("counters of otel: {e}")))?;
        otel.batches = Some(Rc::new(Batches::new(exporter.limits, counts)));
    }
    // Blocks behind this one may have such logs, too.
    logs::offer(otel, &outbox, slots)
}

impl Otel {
    /// The encoded resource of all spans.
    fn resource(&self) -> Resource {
        self.resource_with([])
    }

    /// The same with attributes that the configuration may replace.
    fn resource_with<const N: usize>(&self, defaults: [(Bytes, Bytes); N]) -> Resource {
        let mut all: BTreeMap<Bytes, Bytes> = defaults.into();
        all.extend(self.attributes.clone());
        let service = Bytes::from_static(b"service.name");
        match &self.service_name {
            Some(name) => drop(all.insert(service, name.clone())),
            None => drop(all.entry(service).or_insert(Bytes::from_static(SERVICE))),
        }
        let attributes = all.iter().map(|(name, value)| (&name[..], &value[..]));
        Resource::new(attributes, "weir", env!("CARGO_PKG_VERSION"))
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<TraceConf>();
    let off = |t: &Template| t.as_const().is_some_and(|value| !context::is_on(value));
    let traces = conf.trace.as_ref().is_some_and(|t| !off(t));
    let passes = conf.context.is_some_and(|context| context != Propagation::IGNORE);
    if traces || passes {
        let conf = conf.clone();
        p.rewrite.push(Box::new(move |r: &mut Request| context::begin(r, &conf)));
    }
    // Installed in every location, because an internal redirect may end a traced request in any of
    // them.
    if let Some(batches) = l.conf::<Otel>().batches.clone() {
        p.log.push(Box::new(move |r: &mut Request| {
            span::end(r, &conf, &batches);
            Verdict::Next
        }));
    }
    Ok(())
}

fn start(main: &Rc<HttpMain>, seat: &engine::Seat) -> io::Result<()> {
    logs::start(main, seat);
    if let Some(otel) = main.confs.get::<Otel>()
        && let (Some(exporter), Some(batches)) = (&otel.exporter, &otel.batches)
    {
        send(main, seat, exporter, batches, (otel.resource(), Signal::Traces));
    }
    Ok(())
}

/// Starts the task that sends the batches of a signal.
fn send(
    main: &Rc<HttpMain>,
    seat: &engine::Seat,
    exporter: &Exporter,
    batches: &Rc<Batches>,
    kind: (Resource, Signal),
) {
    batches.counts.use_slot(seat.slot);
    let task = exporter::Task::new(main, exporter, batches, kind, &seat.log);
    event::spawn(task.run());
    let (gate, batches) = (main.life.gate.clone(), batches.clone());
    main.life.at_end(move || {
        let batches = Some(batches.clone()).filter(|batches| !batches.is_empty())?;
        // Makes the task send its pending spans before the worker exits.
        gate.close();
        Some(Box::pin(async move { batches.emptied().await }))
    });
}
