//! What the scheduler reports of programs to the predictors. No decision waits for a prediction: it
//! is there when the next one is due, or it is not.

use super::profile::Profiles;
use treadle_core::program::Program;
use treadle_core::{Core, Event, ProgramEvent};
use treadle_model::{ProgramId, StepId};
use treadle_policy::columns::{EXTRA_COLUMNS, extra_columns, group_of};

/// A program as it was when one of its steps ended, or before its first.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The program.
    pub program: ProgramId,
    /// Its job.
    pub job: Box<str>,
    /// The same for programs with the same prompt.
    pub group: u64,
    /// Context length.
    pub tokens: u64,
    /// Tokens generated so far.
    pub output_tokens: u64,
    /// Steps finished so far.
    pub steps: u32,
    /// Time in tools so far.
    pub tool_ms: u64,
    /// What else is known of it: its row of [`EXTRA_COLUMNS`].
    pub extra: [f32; EXTRA_COLUMNS.len()],
    /// True if it is the last: the program is over.
    pub is_over: bool,
}

impl Observation {
    pub(super) fn of(program: &Program, profiles: &Profiles, is_over: bool) -> Self {
        Self {
            program: program.id,
            job: program.job.clone(),
            group: group_of(program),
            // A program without a finished step is known by its first prompt.
            tokens: program.context_tokens.max(program.demand_tokens),
            output_tokens: program.output_tokens_total,
            steps: program.steps_finished,
            tool_ms: profiles
                .get(&program.key)
                .map_or(0, super::Profile::tool_ms),
            extra: extra_columns(program),
            is_over,
        }
    }
}

/// The program that an event is about to open, whose steps a policy ranks: where it goes is
/// settled before its first step, so something should be expected of it by then.
pub(super) fn opened_program(core: &Core, event: &Event) -> Option<ProgramId> {
    match event {
        Event::Program(ProgramEvent::StepArrived(arrival))
            if core.bindings().ranks(&arrival.job) =>
        {
            let is_new = core.programs().program(&arrival.program).is_none();
            // A new program gets the next id.
            is_new.then_some(ProgramId(core.programs().next_program))
        }
        _ => None,
    }
}

/// The program whose step an event ends.
pub(super) fn ended_step(event: &Event) -> Option<StepId> {
    match event {
        Event::Program(ProgramEvent::StepFinished { step, .. }) => Some(*step),
        _ => None,
    }
}
