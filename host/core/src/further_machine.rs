//! A further machine, next to that of programs: it needs its own module and nothing of theirs.

use super::{DaemonEvent, Machine, Notified, deliver};
use crate::actions::Actions;
use crate::bindings::{BindingMachine, Bindings};
use crate::programs::Programs;
use crate::programs::{ProgramEvent, StepArrival};
use crate::{ActionsConfig, CoreConfig};
use std::convert::Infallible;
use treadle_machine::Notice;
use treadle_model::StepId;
use treadle_model::Timestamp;

/// Counts the programs that are over since it was last reset.
#[derive(Default)]
struct Tally {
    now: Timestamp,
    over: Vec<(Timestamp, Box<str>)>,
}

enum TallyEvent {
    Reset,
}

impl Machine for Tally {
    type Event = TallyEvent;
    type Command = Infallible;
    type View = ();

    fn advance(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn apply(&mut self, event: &TallyEvent, (): &()) {
        match event {
            TallyEvent::Reset => self.over.clear(),
        }
    }

    fn daemon(&mut self, _: &DaemonEvent) {}

    fn settle(&mut self, (): &()) {}

    fn poll_command(&mut self) -> Option<Infallible> {
        None
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn assert_invariants(&self) {}
}

impl Notified for Tally {
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    fn notice(&mut self, notice: &Notice) {
        if let Notice::ProgramOver { program, .. } = notice {
            self.over.push((self.now, program.clone()));
        }
    }
}

fn arrival(program: &str) -> StepArrival {
    StepArrival {
        step: StepId(1),
        program: program.into(),
        job: "default".into(),
        prompt_tokens: 10,
        exact: true,
        prompt_bytes: 40,
        text: None,
        output_tokens_max: None,
        prefix: vec![],
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    }
}

#[test]
fn a_further_machine_hears_what_concerns_it() {
    let bindings = Bindings::default();
    let mut programs = Programs::with_state(
        CoreConfig::default(),
        crate::programs::State::default(),
        &bindings,
    );
    let mut actions =
        Actions::with_state(ActionsConfig::default(), crate::actions::State::default());
    let mut bindings = BindingMachine::with_state(bindings);
    let mut tally = Tally::default();
    let released = ProgramEvent::ProgramReleased {
        program: "a".into(),
        aborted: false,
    };
    for (at, event) in [(1, ProgramEvent::StepArrived(arrival("a"))), (2, released)] {
        tally.advance(Timestamp(at));
        programs.advance(Timestamp(at));
        programs.apply(&event, &());
        programs.settle(&());
        deliver(&mut [&mut bindings, &mut programs, &mut actions, &mut tally]);
    }
    assert_eq!(tally.over, [(Timestamp(2), "a".into())]);
    tally.apply(&TallyEvent::Reset, &());
    assert!(tally.over.is_empty());
}
