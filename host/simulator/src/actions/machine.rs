//! What gives actions what they draw from: the daemon's core, or a plain machine that is written
//! for comparison.

use treadle_core::actions::{ActionCommand, ActionEvent, ElasticAnswer, ElasticQuestion};
use treadle_model::Timestamp;

/// A machine of actions.
pub trait Machine {
    /// Handles an event.
    fn handle(&mut self, now: Timestamp, event: &ActionEvent);

    /// The next thing to do, if any.
    fn poll(&mut self) -> Option<ActionCommand>;

    /// When [`Machine::wake`] is due.
    fn deadline(&self) -> Option<Timestamp>;

    /// A deadline has passed.
    fn wake(&mut self, now: Timestamp);
}

/// An allocation policy.
pub trait Allocator {
    /// Which of the waiting actions start, and with how much.
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer;
}
