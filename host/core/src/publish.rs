//! Why a version can't be loaded: two machines have a say.

use crate::training::TrainingError;
use crate::weights::WeightsError;
use thiserror::Error;

/// Why something can't happen to the weights of a job's engines.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PublishError {
    /// The job's run does not admit the version.
    #[error(transparent)]
    Run(#[from] TrainingError),
    /// Its engines don't.
    #[error(transparent)]
    Engines(#[from] WeightsError),
}
