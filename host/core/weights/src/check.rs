//! What is refused before it becomes an event.

use crate::call::Call;
use crate::event::WeightsEvent;
use crate::holding::{Holding, Phase};
use crate::job::JobWeights;
use crate::state::State;
use crate::trainer::{Extent, TrainerCall};
use crate::version::Weights;
use crate::{Engines, WeightsMachine};
use std::collections::BTreeSet;
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
    #[error("{0} is not registered, or is not the first rank of its address; name that one")]
    UnknownWorker(WorkerId),
    /// More engines would have to be ready than there are.
    #[error("`quorum` is {quorum}, but the job has {engines} engines; ask for at most that many")]
    Quorum {
        /// Engines that would have to be ready.
        quorum: u16,
        /// The job's engines.
        engines: usize,
    },
    /// The job has other engines.
    #[error("the job has other engines; release its weights first to load them elsewhere")]
    OtherEngines,
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
    /// A trainer loads the job's weights.
    #[error(
        "a trainer updates the engines of the job through treadle; release the job's weights first \
         to publish versions"
    )]
    Driven,
    /// treadle loads the job's weights.
    #[error(
        "treadle loads the weights of the job; publish the version, or release the job's weights \
         first to update its engines by their own protocols"
    )]
    Loads,
    /// A call of the trainer is under way.
    #[error("another call to {0} is under way; wait for its answer, and don't repeat it")]
    Calls(WorkerId),
    /// An engine that generates.
    #[error("{0} is not paused; pause it first, so that no token is sampled from a mixture")]
    NotPaused(WorkerId),
    /// An end without a beginning.
    #[error("no update of {0} has begun; begin one, and send it all of the weights")]
    NotBegun(WorkerId),
    /// An update that was begun and has not ended.
    #[error(
        "an update of {0} has begun and has not ended, so its weights are a mixture; end it, or \
         pause the engine and update it as a whole"
    )]
    Unfinished(WorkerId),
    /// An update in parts that its trainer left.
    #[error(
        "{0} may have only a part of the weights: it refused one, or was paused again before it was \
         to resume; begin anew and send it all of them"
    )]
    Left(WorkerId),
    /// An engine whose weights may be a mixture.
    #[error(
        "{worker} does not generate, because its weights may be a mixture: {cause}; pause it and \
         update it as a whole, or restart it"
    )]
    Torn {
        /// The engine.
        worker: WorkerId,
        /// Why.
        cause: Box<str>,
    },
    /// Two names for one update.
    #[error("other engines have this update as version `{0}`; give all the same name")]
    OtherVersion(Box<str>),
    /// treadle does not load the job's weights.
    #[error("treadle loads no weights for job `{0}`; publish a version first")]
    NoWeights(Box<str>),
}

impl WeightsMachine {
    /// Checks whether an event may be handled.
    pub fn check(&self, event: &WeightsEvent, engines: &dyn Engines) -> Result<(), WeightsError> {
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
                self.state.check_engines(job, workers, plan.quorum, engines)
            }
            WeightsEvent::WeightsReleased { job } => match self.state.jobs.get(job) {
                None => Err(WeightsError::NoWeights(job.clone())),
                Some(known) => known.check_idle(),
            },
            WeightsEvent::WeightsRelayed {
                job, worker, call, ..
            } => self.state.check_called(job, *worker, call, engines),
            WeightsEvent::WeightsCallEnded { .. } | WeightsEvent::WeightsRelayEnded { .. } => {
                Ok(())
            }
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
        if job.driven {
            return Err(WeightsError::Driven);
        }
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
        quorum: u16,
        engines: &dyn Engines,
    ) -> Result<(), WeightsError> {
        let present: BTreeSet<WorkerId> = engines.engines().into_iter().collect();
        for worker in workers {
            self.check_owner(job, *worker, &present)?;
        }
        let named: BTreeSet<WorkerId> = workers.iter().copied().collect();
        let is_own = |w: &&WorkerId| self.owner(**w).is_none_or(|owner| *owner == *job);
        let own: BTreeSet<WorkerId> = match self.jobs.get(job) {
            Some(known) if !known.all => self.of_job(job).map(|(worker, _)| worker).collect(),
            None if !named.is_empty() => named.clone(),
            _ => present.iter().filter(is_own).copied().collect(),
        };
        if !named.is_empty() && named != own {
            return Err(WeightsError::OtherEngines);
        }
        if own.is_empty() {
            return Err(WeightsError::NoEngines);
        }
        let engines = own.len();
        if usize::from(quorum) > engines {
            return Err(WeightsError::Quorum { quorum, engines });
        }
        Ok(())
    }
}

impl State {
    /// The job whose weights an engine has.
    pub fn owner(&self, worker: WorkerId) -> Option<&str> {
        let holding = self.holdings.get(&worker)?;
        let is_loaded = self.jobs.contains_key(&holding.job);
        is_loaded.then_some(&holding.job)
    }

    fn check_owner(
        &self,
        job: &str,
        worker: WorkerId,
        present: &BTreeSet<WorkerId>,
    ) -> Result<(), WeightsError> {
        if !present.contains(&worker) {
            return Err(WeightsError::UnknownWorker(worker));
        }
        match self.owner(worker).filter(|owner| *owner != job) {
            Some(other) => Err(WeightsError::OtherJob {
                worker,
                job: other.into(),
            }),
            None => Ok(()),
        }
    }

    fn check_called(
        &self,
        job: &str,
        worker: WorkerId,
        call: &TrainerCall,
        engines: &dyn Engines,
    ) -> Result<(), WeightsError> {
        let present: BTreeSet<WorkerId> = engines.engines().into_iter().collect();
        self.check_owner(job, worker, &present)?;
        if let Some(name) = call.name() {
            if !(1..=WEIGHTS_BYTES_MAX).contains(&name.len()) {
                return Err(WeightsError::Name);
            }
            let update = self.jobs.get(job).and_then(|job| job.update.as_ref());
            let update = update.filter(|update| *update.weights.name != *name);
            if let Some(update) = update
                && self.is_fixed(job)
                && !self.begins_anew(job, worker, call)
            {
                return Err(WeightsError::OtherVersion(update.weights.name.clone()));
            }
        }
        if self.jobs.get(job).is_some_and(|known| !known.driven) {
            return Err(WeightsError::Loads);
        }
        // One whose job let go of it is no more in the update that was begun there.
        let is_owned = self.owner(worker).is_some();
        match self.holdings.get(&worker) {
            _ if !is_owned && !is_for_any(call) => Err(WeightsError::NotPaused(worker)),
            Some(holding) => holding.check_called(worker, call),
            None => Ok(()),
        }
    }
}

/// Whether a call may be made to an engine that nothing is known of.
fn is_for_any(call: &TrainerCall) -> bool {
    matches!(
        call,
        TrainerCall::Pause { .. } | TrainerCall::Join | TrainerCall::Resume
    )
}

impl Holding {
    fn check_called(&self, worker: WorkerId, call: &TrainerCall) -> Result<(), WeightsError> {
        let trainer = self.trainer.clone().unwrap_or_default();
        let is_resuming = self.phase == Phase::Resuming && self.call.is_some();
        let must_wait = is_resuming && *call != TrainerCall::Resume;
        // Of a job that was released: treadle loads it.
        let is_loading = self.call.is_some_and(|pending| pending.call == Call::Apply);
        if trainer.call.is_some() || must_wait || is_loading {
            return Err(WeightsError::Calls(worker));
        }
        let torn = || WeightsError::Torn {
            worker,
            cause: self.cause.clone().unwrap_or_default(),
        };
        let is_torn = matches!(self.phase, Phase::Torn | Phase::Unknown);
        // One that answers again is asked what it has, and generates meanwhile.
        let is_asked = self.trainer.is_none();
        let is_asked = is_asked && matches!(self.phase, Phase::Verifying | Phase::Clearing);
        let is_paused = !is_torn && !is_asked && self.phase != Phase::Held;
        // A resume that failed may have been carried out.
        let was_resumed = self.phase == Phase::Resuming && self.failures > 0;
        let may_generate = trainer.may_generate || was_resumed;
        match call {
            TrainerCall::Pause { .. } | TrainerCall::Join => Ok(()),
            TrainerCall::Resume | TrainerCall::Part { .. } | TrainerCall::End { .. } if is_torn => {
                Err(torn())
            }
            TrainerCall::Resume if !is_paused => Ok(()),
            TrainerCall::Resume => match trainer.extent {
                Extent::Open | Extent::Own => Err(WeightsError::Unfinished(worker)),
                Extent::Left => Err(WeightsError::Left(worker)),
                Extent::Nothing if !self.sound => Err(torn()),
                Extent::Nothing | Extent::Parts | Extent::All => Ok(()),
            },
            _ if !is_paused || may_generate => Err(WeightsError::NotPaused(worker)),
            TrainerCall::End { .. } if trainer.extent == Extent::Nothing => {
                Err(WeightsError::NotBegun(worker))
            }
            TrainerCall::End { .. } if trainer.extent == Extent::Left => {
                Err(WeightsError::Left(worker))
            }
            _ => Ok(()),
        }
    }
}

impl JobWeights {
    /// Checks that no update of treadle's is under way.
    pub(crate) fn check_idle(&self) -> Result<(), WeightsError> {
        match self.update.as_ref().filter(|_| !self.driven) {
            Some(update) => Err(WeightsError::Busy(update.weights.version)),
            None => Ok(()),
        }
    }
}
