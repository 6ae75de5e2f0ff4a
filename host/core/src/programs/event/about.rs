//! What an event is about.

use super::{ProgramEvent, StepArrival};
use treadle_model::{ProgramId, StepId, WorkerId};

impl ProgramEvent {
    /// The subject of the event.
    pub fn about(&self) -> About<'_> {
        match self {
            Self::StepArrived(arrival) => About::Arrival(arrival),
            Self::StepFirstToken { step }
            | Self::StepPrefilled { step, .. }
            | Self::StepPrefillFailed { step, .. }
            | Self::StepProgressed { step, .. }
            | Self::StepFinished { step, .. }
            | Self::StepFailed { step, .. }
            | Self::StepAdopted { step, .. }
            | Self::StepInterrupted { step }
            | Self::StepRunsOn { step }
            | Self::StepCancelled { step } => About::Step(*step),
            Self::ActionStarted { program, .. }
            | Self::ActionFinished { program, .. }
            | Self::ProgramReleased { program, .. }
            | Self::ProgramRewarded { program, .. } => About::Key(program),
            Self::ProgramMigrated { program, .. }
            | Self::MigrationFailed { program, .. }
            | Self::ProgramOffloaded { program, .. }
            | Self::OffloadFailed { program, .. }
            | Self::ProgramLoaded { program, .. }
            | Self::LoadFailed { program, .. }
            | Self::CopyLost { program, .. } => About::Program(*program),
            Self::WorkerAdded { worker, .. }
            | Self::WorkerCapacityRead { worker, .. }
            | Self::WorkerUseRead { worker, .. }
            | Self::WorkerSpeedRead { worker, .. }
            | Self::WorkerModelRead { worker, .. }
            | Self::WorkerOtherModelsRead { worker, .. }
            | Self::WorkerLost { worker, .. }
            | Self::WorkerRecovered { worker }
            | Self::WorkerStateSet { worker, .. }
            | Self::WorkerClassSet { worker, .. }
            | Self::WorkerRoleSet { worker, .. }
            | Self::WorkerRestRead { worker, .. }
            | Self::WorkerRemoved { worker } => About::Worker(*worker),
            Self::PolicyAnswered { .. } | Self::PromptCounted { .. } => About::Daemon,
        }
    }
}

/// The subject of an event.
#[derive(Clone, Copy, Debug)]
pub enum About<'e> {
    /// An arriving step, possibly with a new program.
    Arrival(&'e StepArrival),
    /// A step.
    Step(StepId),
    /// A program.
    Program(ProgramId),
    /// A program, by its key.
    Key(&'e str),
    /// A worker.
    Worker(WorkerId),
    /// None of the above.
    Daemon,
}
