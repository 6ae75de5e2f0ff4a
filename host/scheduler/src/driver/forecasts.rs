//! The channel from the driver to the predictors.

use crate::scheduler::Observation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of observations in the channel; further ones are dropped, and their programs are
/// predicted after a later step.
const OBSERVATIONS_MAX: usize = 8_192;

/// The driver's end.
pub struct ForecastFeed {
    observations: Sender<Observation>,
    /// Whether any policy uses predictions.
    wanted: Arc<AtomicBool>,
}

impl ForecastFeed {
    /// Creates a feed, its receiver, and the switch that turns it on; it is off at first.
    pub fn new() -> (Self, Receiver<Observation>, Arc<AtomicBool>) {
        let (observations, received) = channel(OBSERVATIONS_MAX);
        let wanted = Arc::new(AtomicBool::new(false));
        let feed = Self {
            observations,
            wanted: wanted.clone(),
        };
        (feed, received, wanted)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(super) fn send(&self, observation: Observation) {
        let _ = self.observations.try_send(observation);
    }
}
