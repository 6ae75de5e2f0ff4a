//! What is refused before it becomes an event.

use crate::training::TrainingError;
use crate::weights::event::WeightsEvent;
use crate::weights::state::State;
use crate::weights::version::Weights;
use crate::weights::{Engines, WeightsMachine};
use thiserror::Error;
use treadle_model::{WEIGHTS_BYTES_MAX, WorkerId};

/// Most engines that an update can require to be ready.
pub const QUORUM_MAX: u16 = 10_000;
/// Most seconds that engines can have to become ready.
pub const READY_MAX_S: u64 = 86_400;

/// Why a version can't be published.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum WeightsError {
    /// Another update of the job is under way.
    #[error("version {0} of the job is being loaded; wait until it serves, or has failed")]
    Busy(u64),
    /// An older version.
    #[error("version {version} is older than {serving}, which serves; use resume to go back")]
    Falls {
        /// The version.
        version: u64,
        /// The one that serves.
        serving: u64,
    },
    /// The version in service has another name or folder.
    #[error("version {0} serves already, with another name or from another folder")]
    Conflict(u64),
    /// A name that no engine could report.
    #[error("the name of a version has 1 to {WEIGHTS_BYTES_MAX} bytes")]
    Name,
    /// The job has no engines.
    #[error("no engine is registered that the job could use; register one")]
    NoEngines,
    /// An engine that is not there.
    #[error("{0} is not registered")]
    UnknownWorker(WorkerId),
    /// An engine of another job.
    #[error("{worker} has the weights of job `{job}`; release that job's weights first")]
    OtherJob {
        /// The engine.
        worker: WorkerId,
        /// Its job.
        job: Box<str>,
    },
    /// A plan that is out of bounds.
    #[error("`quorum` is at most {QUORUM_MAX}, and `ready_s` is from 1 to {READY_MAX_S} seconds")]
    Plan,
    /// treadle does not load the job's weights.
    #[error("treadle loads no weights for job `{0}`; publish a version first")]
    NoWeights(Box<str>),
}

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

impl WeightsMachine {
    /// Checks whether an event may be handled.
    pub(crate) fn check(
        &self,
        event: &WeightsEvent,
        engines: &dyn Engines,
    ) -> Result<(), WeightsError> {
        match event {
            WeightsEvent::WeightsPublished {
                job,
                weights,
                workers,
                plan,
            } => {
                let is_within =
                    plan.quorum <= QUORUM_MAX && (1..=READY_MAX_S).contains(&plan.ready_s);
                if !is_within {
                    return Err(WeightsError::Plan);
                }
                self.state.check_version(job, weights)?;
                self.state.check_engines(job, workers, engines)
            }
            WeightsEvent::WeightsReleased { job } if !self.state.jobs.contains_key(job) => {
                Err(WeightsError::NoWeights(job.clone()))
            }
            WeightsEvent::WeightsCallEnded { .. } | WeightsEvent::WeightsReleased { .. } => Ok(()),
        }
    }
}

impl State {
    fn check_version(&self, job: &str, weights: &Weights) -> Result<(), WeightsError> {
        if !(1..=WEIGHTS_BYTES_MAX).contains(&weights.name.len()) {
            return Err(WeightsError::Name);
        }
        let Some(job) = self.jobs.get(job) else {
            return Ok(());
        };
        if let Some(update) = job.update.as_ref().filter(|u| u.weights != *weights) {
            return Err(WeightsError::Busy(update.weights.version));
        }
        let Some(serving) = job.serving.as_ref().filter(|serving| *serving != weights) else {
            return Ok(());
        };
        let (version, serving) = (weights.version, serving.version);
        if version == serving {
            return Err(WeightsError::Conflict(version));
        }
        if version < serving {
            return Err(WeightsError::Falls { version, serving });
        }
        Ok(())
    }

    fn check_engines(
        &self,
        job: &str,
        workers: &[WorkerId],
        engines: &dyn Engines,
    ) -> Result<(), WeightsError> {
        let present = engines.engines();
        for worker in workers {
            if !present.contains(worker) {
                return Err(WeightsError::UnknownWorker(*worker));
            }
            let other = self.holdings.get(worker).filter(|h| *h.job != *job);
            if let Some(other) = other {
                return Err(WeightsError::OtherJob {
                    worker: *worker,
                    job: other.job.clone(),
                });
            }
        }
        let is_own = |w: &WorkerId| self.holdings.get(w).is_none_or(|h| *h.job == *job);
        if present.iter().any(is_own) {
            return Ok(());
        }
        Err(WeightsError::NoEngines)
    }
}
