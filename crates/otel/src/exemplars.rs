//! Exemplars: for each bucket of a zone's histogram of times the last traced request of this
//! worker that fell into it, so that a dashboard leads from a slow bucket to a trace.

use std::cell::RefCell;
use std::collections::HashMap;

use engine::metrics::{RowId, word};
use http::request::Request;
use http::server::HttpMain;

use crate::Otel;

/// The number of zones that have exemplars; others have none.
const ZONES_MAX: usize = 1_000;

/// Buckets of a scraped histogram, the one without a bound among them.
const BUCKETS: usize = word::SCRAPED_US.len() + 1;

/// A traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// The id of its trace.
    pub trace_id: [u8; 16],
    /// Its time, microseconds.
    pub us: u64,
    /// Its end, milliseconds since 1970.
    pub unix_ms: u64,
}

/// The exemplars of a worker, by zone.
#[derive(Default)]
pub(crate) struct Exemplars(RefCell<HashMap<RowId, Box<[Option<Exemplar>; BUCKETS]>>>);

impl Exemplars {
    /// The request is over, and its trace was sampled.
    pub fn keep(&self, r: &mut Request, trace_id: [u8; 16]) {
        if !r.main.metrics.is_on() {
            return;
        }
        let (server, loc) = (r.server.clone(), r.loc.clone());
        let (us, unix_ms) = (r.account.elapsed_us(), base::time::unix_ms());
        let exemplar = Exemplar { trace_id, us, unix_ms };
        for row in [server.zone.row(r), loc.zone.row(r)].into_iter().flatten() {
            self.put(row, exemplar);
        }
    }

    fn put(&self, row: RowId, exemplar: Exemplar) {
        let mut all = self.0.borrow_mut();
        if all.len() < ZONES_MAX || all.contains_key(&row) {
            let of_row = all.entry(row).or_insert_with(|| Box::new([None; BUCKETS]));
            of_row[word::SCRAPED_US.partition_point(|bound| *bound < exemplar.us)] = Some(exemplar);
        }
    }
}

/// The exemplar of a bucket: the last request of this worker in it that was traced.
pub fn exemplar(main: &HttpMain, row: RowId, bucket: usize) -> Option<Exemplar> {
    let batches = main.confs.get::<Otel>()?.batches.as_ref()?;
    *batches.exemplars.0.borrow().get(&row)?.get(bucket)?
}
