//! CUBIC congestion control (RFC 9438) that also counts acknowledged bytes, because quinn-proto
//! does not expose their number otherwise.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, Cubic, CubicConfig};

/// Creates a controller for each new path.
#[derive(Default)]
pub(crate) struct Counting(Arc<CubicConfig>);

impl ControllerFactory for Counting {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Counted { cubic: Cubic::new(self.0.clone(), now, mtu), confirmed: 0 })
    }
}

/// quinn-proto's CUBIC, and the byte count.
#[derive(Clone)]
struct Counted {
    cubic: Cubic,
    /// Acknowledged bytes of ack-eliciting packets.
    confirmed: u64,
}

/// The number of bytes acknowledged on a path since its controller was created; 0 for a controller
/// of another type.
pub(crate) fn confirmed(controller: &dyn Controller) -> u64 {
    let counted = controller.clone_box().into_any().downcast::<Counted>();
    counted.map_or(0, |counted| counted.confirmed)
}

impl Controller for Counted {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        limited: bool,
        rtt: &RttEstimator,
    ) {
        self.confirmed += bytes;
        self.cubic.on_ack(now, sent, bytes, limited, rtt);
    }

    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool, largest: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, limited, largest);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.cubic.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
