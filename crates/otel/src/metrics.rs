//! `otel_metrics`: where metrics go, and how often. The crate that knows the counters encodes and
//! sends them; see `otlp::MetricWriter`.

use base::log::{Level, Log};
use bytes::Bytes;
use conf::{ConfError, Node, Word, value};
use http::cx::Cx;
use http::server::HttpMain;

use crate::Otel;
use crate::batches::Batch;
use crate::collector::{Link, Protocol};
use crate::exporter_block::Exporter;
use crate::otlp::Signal;
use crate::outcome::Told;

/// The default interval, milliseconds: that of OpenTelemetry's libraries.
const INTERVAL_MS: u64 = 60_000;

/// `otel_metrics on`
pub struct Plan {
    interval_ms: u64,
    at: Word,
}

/// `otel_metrics on | off [interval=TIME]`
pub fn otel_metrics(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.main::<Otel>().metrics.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let mut interval_ms = INTERVAL_MS;
    if let Some(word) = n.args.get(1) {
        let invalid = || {
            let m = format!("invalid parameter \"{}\" of \"otel_metrics\"", word.lossy());
            ConfError::at(word, m)
        };
        let text = word.bytes().strip_prefix(b"interval=").ok_or_else(invalid)?;
        interval_ms = value::parse_msec(text).filter(|ms| *ms > 0).ok_or_else(invalid)?;
    }
    let plan = match n.arg(0)?.bytes() {
        b"on" => Some(Plan { interval_ms, at: n.arg(0)?.clone() }),
        b"off" => None,
        _ => {
            let m = format!("invalid value \"{}\" in \"otel_metrics\"", n.arg(0)?.lossy());
            return Err(ConfError::at(n.arg(0)?, format!("{m}, it must be \"on\" or \"off\"")));
        }
    };
    if plan.is_some() {
        cx.env.metrics.show();
        engine::status::show();
    }
    cx.main::<Otel>().metrics = Some(plan);
    Ok(())
}

/// Checks that there is an exporter, and that its endpoint tells where metrics go.
pub fn check(otel: &Otel) -> Result<(), ConfError> {
    let Some(Some(plan)) = &otel.metrics else { return Ok(()) };
    let Some(Exporter { target, .. }) = &otel.exporter else {
        return Err(ConfError::at(&plan.at, "\"otel_exporter\" block is missing"));
    };
    if target.protocol == Protocol::Http && Signal::Metrics.path(&target.path).is_none() {
        let m = "\"otel_metrics\" needs an \"endpoint\" whose path ends in \"/traces\"";
        return Err(ConfError::at(&plan.at, m));
    }
    Ok(())
}

/// Sends metrics to the collector.
pub struct MetricsExporter {
    link: Link,
    interval_ms: u64,
    log: Log,
    failures: Told,
    partials: Told,
}

impl MetricsExporter {
    /// The exporter of a configuration; `None` if metrics are not exported.
    pub fn new(main: &HttpMain, log: &Log) -> Option<MetricsExporter> {
        let otel = main.confs.get::<Otel>()?;
        let plan = otel.metrics.as_ref()?.as_ref()?;
        let target = &otel.exporter.as_ref()?.target;
        Some(MetricsExporter {
            link: Link::new(target, otel.resource_of_host(), Signal::Metrics),
            interval_ms: plan.interval_ms,
            log: log.clone(),
            failures: Told::default(),
            partials: Told::default(),
        })
    }

    /// The time between two exports, milliseconds.
    pub fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// Sends encoded metrics once. If the collector does not take them, the error log has a line
    /// about it, one a minute; nothing is lost, as the next export has the sums again.
    pub async fn send(&mut self, metrics: Vec<u8>) {
        let batch = Batch { spans: Bytes::from(metrics), count: 1 };
        let (told, level, why) = match self.link.export(&batch).await {
            Ok(None) => return,
            Ok(Some(partial)) => {
                let why = format!("rejected {} points: {}", partial.rejected, partial.message);
                (&self.partials, Level::Warn, why)
            }
            Err(failure) => (&self.failures, Level::Error, failure.message),
        };
        if told.may_tell() {
            let (why, endpoint) = (base::log::lossy(why.as_bytes()), self.link.shown());
            base::log!(
                self.log,
                level,
                None,
                "OTel export of metrics failed: {why}, endpoint: \"{endpoint}\""
            );
        }
    }
}

/// The resource of metrics and logs names its host: several servers of a service would be one
/// series.
const HOST: Bytes = Bytes::from_static(b"host.name");

impl Otel {
    pub(crate) fn resource_of_host(&self) -> crate::otlp::Resource {
        self.resource_with([(HOST, Bytes::from(os::process::hostname()))])
    }
}
