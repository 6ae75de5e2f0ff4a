//! What a scheduler asks, and what may watch it.

use treadle_core::explain::Decision;
use treadle_core::{Command, Core, Event, Origin, Question};
use treadle_model::{AskId, ProgramId, Timestamp};
use treadle_policy::evaluator::{Forecast, PolicyEvaluator};

/// Answers the questions of a core.
pub trait Policies {
    /// Answers a question with [`Event::PolicyAnswered`]; `None` if that event comes later, or
    /// never.
    fn answer(
        &mut self,
        core: &Core,
        ask: AskId,
        question: &Question,
        now_ms: u64,
    ) -> Option<Event>;

    /// Learns what is expected of a program.
    fn expect(&mut self, _program: ProgramId, _forecast: Forecast) {}

    /// Learns how long a step took that is about to end.
    fn observe_step(&mut self, _core: &Core, _program: ProgramId, _step_ms: f64) {}

    /// Forgets a program that is over.
    fn forget(&mut self, _program: ProgramId) {}
}

impl Policies for PolicyEvaluator {
    fn answer(
        &mut self,
        core: &Core,
        ask: AskId,
        question: &Question,
        now_ms: u64,
    ) -> Option<Event> {
        let answer = self.answer(core, question, now_ms);
        Some(Event::PolicyAnswered {
            ask,
            policy: answer.policy,
            verdict: answer.verdict,
            voices: answer.voices,
        })
    }

    fn expect(&mut self, program: ProgramId, forecast: Forecast) {
        self.expect(program, forecast);
    }

    fn observe_step(&mut self, core: &Core, program: ProgramId, step_ms: f64) {
        self.observe_step(core, program, step_ms);
    }

    fn forget(&mut self, program: ProgramId) {
        self.forget(program);
    }
}

/// An event that the core has handled.
#[derive(Debug)]
pub struct Handled<'a> {
    /// Its position in the journal.
    pub seq: u64,
    /// When it was handled.
    pub at: Timestamp,
    /// The event.
    pub event: &'a Event,
    /// The gateway in another process that relayed it.
    pub origin: Option<Origin>,
    /// What the core decided.
    pub decisions: &'a [Decision],
}

/// Sees each event after the core has handled it, before the core's commands are carried out. A
/// simulation checks both here, and changes them where it tests its own rules.
pub trait Observer {
    /// An event was handled, and came to these commands.
    fn handled(&mut self, core: &mut Core, handled: &Handled<'_>, commands: &mut Vec<Command>);
}

/// Nobody watches.
impl Observer for () {
    fn handled(&mut self, _: &mut Core, _: &Handled<'_>, _: &mut Vec<Command>) {}
}
