//! Commands: everything that the core asks its environment to do.

use crate::actions::ActionCommand;
use crate::programs::ProgramCommand;
use crate::training::TrainingCommand;
use crate::weights::WeightsCommand;

/// A command to the environment, by the machine that gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A command for a program, a step or a worker.
    Program(ProgramCommand),
    /// A command for an action that treadle runs.
    Action(ActionCommand),
    /// A command for a training run.
    Training(TrainingCommand),
    /// A command for the weights of an engine.
    Weights(WeightsCommand),
}

impl From<ProgramCommand> for Command {
    fn from(command: ProgramCommand) -> Self {
        Self::Program(command)
    }
}

impl From<ActionCommand> for Command {
    fn from(command: ActionCommand) -> Self {
        Self::Action(command)
    }
}

impl From<TrainingCommand> for Command {
    fn from(command: TrainingCommand) -> Self {
        Self::Training(command)
    }
}

impl From<WeightsCommand> for Command {
    fn from(command: WeightsCommand) -> Self {
        Self::Weights(command)
    }
}
