//! What updates of weights ask of their environment.

use crate::call::Call;
use crate::version::Weights;
use treadle_model::WorkerId;

/// A command for the weights of an engine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WeightsCommand {
    /// Make this call, once: it is never repeated, because an engine may have carried it out though
    /// its answer was lost. Calls to one engine are made one after the other.
    Call {
        /// The job.
        job: Box<str>,
        /// The engine.
        worker: WorkerId,
        /// Number of the call, for its answer.
        number: u64,
        /// The call.
        call: Call,
        /// The weights that it is about.
        weights: Weights,
    },
}
