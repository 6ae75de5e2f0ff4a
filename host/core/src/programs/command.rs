//! What to do: everything the core asks of its surroundings, in the imperative.

use crate::actions::ActionCommand;
use crate::programs::program::Program;
use crate::programs::question::Question;
use serde::{Deserialize, Serialize};
use treadle_model::{AskId, ProgramId, StepId, Timestamp, WorkerId};

/// Why a step is refused.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum Refusal {
    /// No worker can ever hold the prompt.
    ContextTooLong {
        /// Tokens that the prompt is taken to have.
        prompt_tokens: u64,
        /// The most that any worker holds.
        tokens_max: u64,
    },
    /// It waited as long as the bound allows.
    QueueWaitExceeded {
        /// The bound.
        waited_ms: u64,
        /// Workers that were healthy when it gave up.
        healthy_workers: u32,
        /// Those of them that took no programs, since an operator had taken them out of service.
        #[serde(default)]
        cordoned_workers: u32,
    },
    /// The waiting queue is full.
    QueueFull {
        /// Its bound, in steps.
        steps_max: u64,
    },
    /// Too many programs are live.
    ProgramsFull {
        /// The bound.
        programs_max: u64,
    },
    /// Engines failed it as often as the retry bound allows.
    EngineFailed {
        /// The last cause.
        cause: Box<str>,
        /// How often it was tried.
        attempts: u32,
    },
    /// Its program was released while it waited.
    ProgramReleased,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send the step to the worker.
    DispatchStep {
        /// The step.
        step: StepId,
        /// Where to.
        worker: WorkerId,
        /// The slot to pin it to, on engines that have slots.
        slot: Option<u32>,
        /// How urgent it is, for engines that order their steps: the greater
        /// goes first.
        priority: i32,
    },
    /// Take a running step back from its engine so that a more urgent one can
    /// run; what it has generated stays with it, and a later dispatch goes on
    /// from there.
    PreemptStep {
        /// The step.
        step: StepId,
    },
    /// Move a program's KV cache, and report [`ProgramEvent::ProgramMigrated`]
    /// or [`ProgramEvent::MigrationFailed`].
    MigrateProgram {
        /// The program, between two steps.
        program: ProgramId,
        /// Where its cache is.
        from: WorkerId,
        /// Where it should be.
        to: WorkerId,
        /// Its slot there, on engines that have slots.
        from_slot: Option<u32>,
        /// The slot that is kept for it.
        to_slot: Option<u32>,
        /// Its context, in tokens.
        tokens: u64,
    },
    /// Copy a program's KV cache to host memory, free it at the engine, and
    /// report [`ProgramEvent::ProgramOffloaded`] or
    /// [`ProgramEvent::OffloadFailed`].
    OffloadProgram {
        /// The program, between two steps.
        program: ProgramId,
        /// Where its cache is.
        from: WorkerId,
        /// Its slot there, on engines that have slots.
        slot: Option<u32>,
        /// Its context, in tokens.
        tokens: u64,
    },
    /// Bring a program's KV cache back from host memory, and report
    /// [`ProgramEvent::ProgramLoaded`] or [`ProgramEvent::LoadFailed`].
    LoadProgram {
        /// The program, of which nothing runs.
        program: ProgramId,
        /// Where to.
        to: WorkerId,
        /// Its slot there, on engines that have slots.
        slot: Option<u32>,
        /// Context that the copy holds, in tokens.
        tokens: u64,
        /// The copy, as it was reported.
        copy: Box<str>,
    },
    /// Free a copy in host memory; nothing needs to be reported.
    DropCopy {
        /// The program.
        program: ProgramId,
        /// The copy, as it was reported.
        copy: Box<str>,
    },
    /// Give a move, an offload or a load up; nothing needs to be reported. What
    /// was there before stays valid.
    CancelTransfer {
        /// The program.
        program: ProgramId,
    },
    /// Answer the step with an error; it is over.
    RefuseStep {
        /// The step.
        step: StepId,
        /// Why.
        refusal: Refusal,
    },
    /// Drop the engine's request and report [`ProgramEvent::StepFailed`].
    AbortStep {
        /// The step.
        step: StepId,
        /// Why, for people.
        cause: Box<str>,
    },
    /// Put a question to the policy bound to its world.
    AskPolicy {
        /// The question's id.
        ask: AskId,
        /// The question.
        question: Question,
        /// After this the core answers it itself.
        deadline: Timestamp,
    },
    /// The program is over, in this last state: forget what is kept of it
    /// outside the core.
    ForgetProgram {
        /// The program.
        program: Box<Program>,
    },
    /// Something about an action that treadle runs.
    Action(ActionCommand),
}
