//! What the driver tells of programs to those who predict what is still to come.
//! Nobody waits for a prediction: it is there when the next decision is due, or it
//! is not.

use super::profile::Profiles;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use treadle_core::{Core, Event, Mode};
use treadle_model::{ProgramId, StepId};
use treadle_policy::columns::{EXTRA_COLUMNS, extra_columns, group_of};

/// Sightings on their way; more are dropped, and their programs are predicted
/// after a later step.
const SIGHTINGS_MAX: usize = 8_192;

/// A program as it was when one of its steps ended, or before its first.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
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

/// The driver's end.
pub struct ForecastFeed {
    sightings: Sender<Sighting>,
    /// Whether anybody makes use of predictions.
    wanted: Arc<AtomicBool>,
}

impl ForecastFeed {
    /// A feed, its other end, and the switch that turns it on; it begins turned off.
    pub fn new() -> (Self, Receiver<Sighting>, Arc<AtomicBool>) {
        let (sightings, received) = channel(SIGHTINGS_MAX);
        let wanted = Arc::new(AtomicBool::new(false));
        let feed = Self {
            sightings,
            wanted: wanted.clone(),
        };
        (feed, received, wanted)
    }

    /// Tells of a program that has just been opened, or whose step has ended.
    pub(super) fn sighted(&self, core: &Core, profiles: &Profiles, program: ProgramId) {
        if self.wanted.load(Ordering::Relaxed)
            && let Some(program) = core.state().programs.get(&program)
        {
            self.tell(program, profiles, false);
        }
    }

    /// Tells that a program is over.
    pub(super) fn program_ended(
        &self,
        program: &treadle_core::program::Program,
        profiles: &Profiles,
    ) {
        if self.wanted.load(Ordering::Relaxed) {
            self.tell(program, profiles, true);
        }
    }

    fn tell(&self, program: &treadle_core::program::Program, profiles: &Profiles, is_over: bool) {
        let _ = self.sightings.try_send(Sighting {
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
        });
    }
}

/// The program that an event is about to open, in a rollout: where it goes is
/// settled before its first step, so something should be expected of it by then.
pub(super) fn opened_program(core: &Core, event: &Event) -> Option<ProgramId> {
    match event {
        Event::StepArrived(arrival) if core.config().mode == Mode::Rollout => {
            let is_new = core.program(&arrival.program).is_none();
            // A new program gets the next id.
            is_new.then_some(ProgramId(core.state().next_program))
        }
        _ => None,
    }
}

/// The program whose step an event ends.
pub(super) fn ended_step(event: &Event) -> Option<StepId> {
    match event {
        Event::StepFinished { step, .. } => Some(*step),
        _ => None,
    }
}
