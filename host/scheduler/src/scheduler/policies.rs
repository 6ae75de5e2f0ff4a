//! The interfaces of a scheduler to its policies and its observer.

use treadle_core::actions::{ElasticAnswer, ElasticQuestion};
use treadle_core::bindings::BindingEvent;
use treadle_core::programs::Decision;
use treadle_core::programs::{ProgramEvent, Question};
use treadle_core::training::{ShapingAnswer, ShapingQuestion};
use treadle_core::{Command, Core, Event, Origin};
use treadle_model::{AskId, PolicyRef, ProgramId, Timestamp};
use treadle_policy::evaluator::{
    BoundPolicy, Changed, Forecast, Notice, PolicyEvaluator, is_asked_in_place,
};

/// Answers the questions of a core.
pub trait Policies {
    /// A policy that is ready to be asked.
    type Loaded;

    /// Applies a change of a binding that the core has handled. `loaded` is the policy that got a
    /// role, with the binding's id. `None` if the scheduler does not ask this world.
    fn follow(
        &mut self,
        event: &BindingEvent,
        loaded: Option<(u64, Self::Loaded)>,
        now_ms: u64,
    ) -> Option<Changed>;

    /// The next policy that lost its role by its own fault, if any.
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// Answers a question with [`ProgramEvent::PolicyAnswered`]; `None` if that event comes later, or
    /// never.
    fn answer(
        &mut self,
        core: &Core,
        ask: AskId,
        question: &Question,
        now_ms: u64,
    ) -> Option<Event>;

    /// Which waiting actions start, and with which amount; `None` if no policy decides.
    fn arrange(
        &mut self,
        _question: &ElasticQuestion,
        _now_ms: u64,
    ) -> Option<(PolicyRef, ElasticAnswer)> {
        None
    }

    /// How the groups of a training run are shaped; `None` if no policy decides.
    fn shape(
        &mut self,
        _question: &ShapingQuestion,
        _now_ms: u64,
    ) -> Option<(PolicyRef, ShapingAnswer)> {
        None
    }

    /// Records the forecast for a program.
    fn expect(&mut self, _program: ProgramId, _forecast: Forecast) {}

    /// Records the duration of a step that is about to end.
    fn observe_step(&mut self, _core: &Core, _program: ProgramId, _step_ms: f64) {}

    /// Drops a program that is over.
    fn forget(&mut self, _program: ProgramId) {}
}

impl Policies for PolicyEvaluator {
    type Loaded = BoundPolicy;

    fn follow(
        &mut self,
        event: &BindingEvent,
        loaded: Option<(u64, BoundPolicy)>,
        now_ms: u64,
    ) -> Option<Changed> {
        let loaded = loaded.map(|(id, policy)| BoundPolicy { id, ..policy });
        let in_place = is_asked_in_place(event.target().0);
        in_place.then(|| self.follow(event, loaded, now_ms))
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.poll_notice()
    }

    fn answer(
        &mut self,
        core: &Core,
        ask: AskId,
        question: &Question,
        now_ms: u64,
    ) -> Option<Event> {
        let answer = self.answer(core, question, now_ms);
        Some(Event::Program(ProgramEvent::PolicyAnswered {
            ask,
            policy: answer.policy,
            answer: answer.answer,
            attribution: answer.attribution,
        }))
    }

    fn arrange(
        &mut self,
        question: &ElasticQuestion,
        now_ms: u64,
    ) -> Option<(PolicyRef, ElasticAnswer)> {
        self.arrange(question, now_ms)
    }

    fn shape(
        &mut self,
        question: &ShapingQuestion,
        now_ms: u64,
    ) -> Option<(PolicyRef, ShapingAnswer)> {
        self.shape(question, now_ms)
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
    /// The core's decisions.
    pub decisions: &'a [Decision],
}

/// Called with each event after the core has handled it, before the core's commands are carried
/// out. A simulation checks both here, and changes them to test its own rules.
pub trait Observer {
    /// Handles an event and the commands that it led to.
    fn handled(&mut self, core: &mut Core, handled: &Handled<'_>, commands: &mut Vec<Command>);
}

/// Does nothing.
impl Observer for () {
    fn handled(&mut self, _: &mut Core, _: &Handled<'_>, _: &mut Vec<Command>) {}
}
