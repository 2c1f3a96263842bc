//! Access logs and error logs whose destination is `otel:NAME`: their lines wait in batches like
//! spans, with limits of their own.

use std::rc::Rc;

use conf::ConfError;
use engine::Seat;
use engine::logs::{Outbox, Record};
use http::server::HttpMain;

use crate::Otel;
use crate::batches::Batches;
use crate::collector::Protocol;
use crate::counts::Counts;
use crate::otlp::{Signal, write_record};

/// The exporter takes logs, unless its endpoint does not tell where they go.
///
/// # Errors
/// Some log goes there all the same, or counters cannot be made.
pub fn offer(otel: &mut Otel, outbox: &Rc<Outbox>, slots: usize) -> Result<(), ConfError> {
    let Some(exporter) = &otel.exporter else { return Ok(()) };
    let target = &exporter.target;
    if target.protocol == Protocol::Http && Signal::Logs.path(&target.path).is_none() {
        return Ok(());
    }
    outbox.has_exporter();
    let counts = Counts::new(slots);
    let counts = counts.map_err(|e| ConfError::new(format!("counters of otel: {e}")))?;
    otel.logs = Some(Rc::new(Batches::new(exporter.limits, counts)));
    otel.outbox = Some(outbox.clone());
    Ok(())
}

/// In a worker: takes lines from now on.
pub fn start(main: &Rc<HttpMain>, seat: &Seat) {
    let Some(otel) = main.confs.get::<Otel>() else { return };
    let (Some(exporter), Some(logs), Some(outbox)) = (&otel.exporter, &otel.logs, &otel.outbox)
    else {
        return;
    };
    if !outbox.is_used() {
        return;
    }
    let resource = otel.resource_of_host();
    crate::send(main, seat, exporter, logs, (resource, Signal::Logs));
    let (main, logs) = (Rc::downgrade(main), logs.clone());
    outbox.open(Rc::new(move |record: &Record<'_>| {
        let Some(main) = main.upgrade() else { return };
        if !logs.has_room() {
            return logs.drop_record();
        }
        let bytes = write_record(record, base::time::unix_ms() * 1_000_000);
        if !logs.push(&main, bytes.len(), |open| open.extend_from_slice(&bytes)) {
            logs.drop_record();
        }
    }));
}
