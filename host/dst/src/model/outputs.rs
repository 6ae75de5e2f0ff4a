//! The core's output for an event: decisions, then commands, each checked against the model's state
//! at that moment.

use super::Model;
use treadle_core::programs::{Because, Decision, DecisionKind};
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_core::{Command, Core, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, WorkerId};

fn refused(command: &Command) -> Option<StepId> {
    match command {
        Command::Program(ProgramCommand::RefuseStep { step, .. }) => Some(*step),
        _ => None,
    }
}

impl Model {
    pub(super) fn hear(
        &mut self,
        core: &Core,
        event: &Event,
        commands: &[Command],
        decisions: &[Decision],
    ) -> Checked {
        // A step that is refused for the failures of engines ends before what
        // its end makes possible.
        let is_refusal = |command: &&Command| refused(command).is_some();
        let first = matches!(event, Event::Program(ProgramEvent::StepFailed { .. }));
        if first {
            self.settle_workers();
        }
        for command in commands.iter().filter(is_refusal).filter(|_| first) {
            self.commanded(event, command)?;
        }
        self.refused = commands.iter().filter_map(refused).collect();
        let resolved = decisions.iter().filter(|d| {
            !matches!(
                d.kind,
                DecisionKind::Migrate | DecisionKind::Preempt | DecisionKind::Prefill
            )
        });
        let resolved = resolved.map(|d| d.program).collect();
        self.end_placements(core, &resolved)?;
        for decision in decisions {
            self.decided(core, decision)?;
        }
        self.settle_workers();
        for command in commands.iter().filter(|c| !(first && is_refusal(c))) {
            self.commanded(event, command)?;
        }
        self.put_the_rest_into_the_queue();
        if let Some(step) = self.turned_away {
            return broken(
                "bounds",
                format!("{step} was to be turned away, and was not"),
            );
        }
        if let Some(program) = self.closed.first() {
            return broken(
                "programs",
                format!("{program} is over and was not forgotten"),
            );
        }
        Ok(())
    }

    fn decided(&mut self, core: &Core, decision: &Decision) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        if !self.programs.contains_key(&program) {
            return broken(
                "programs",
                format!("{decision:?} is about no known program"),
            );
        }
        if decision.kind == DecisionKind::Pause {
            return self.paused(program, worker);
        }
        if decision.because == Because::Adopted {
            self.place(core, program, worker);
            return Ok(());
        }
        match decision.kind {
            DecisionKind::Offload => return self.decided_to_offload(program, worker),
            // Intentions; their effects are shown by commands.
            DecisionKind::Migrate | DecisionKind::Preempt | DecisionKind::Prefill => {
                return Ok(());
            }
            DecisionKind::Route => return self.routed_to(core, decision),
            DecisionKind::Place
            | DecisionKind::Restore
            | DecisionKind::Pause
            | DecisionKind::Prefetch => {}
        }
        // A placement that ended with this event, without a decision of its own.
        self.leave(program)?;
        let p = &self.programs[&program];
        let again = decision.kind != DecisionKind::Place;
        if again != p.placed_before && self.is_aware() {
            return broken(
                "placement",
                format!(
                    "{program}: {:?}, placed before: {}",
                    decision.kind, p.placed_before
                ),
            );
        }
        if !self.workers.get(&worker).is_some_and(|w| w.healthy) {
            return broken(
                "placement",
                format!("{program} is placed on {worker}, which is lost"),
            );
        }
        self.check_in_service(program, worker)?;
        if self.is_aware() {
            self.is_admitted(program, worker)?;
            self.check_turn(core, program)?;
        }
        if decision.kind == DecisionKind::Prefetch {
            self.caches.early.insert(program);
        } else {
            self.placed_now.insert(program);
        }
        self.place(core, program, worker);
        Ok(())
    }

    fn paused(&mut self, program: ProgramId, worker: WorkerId) -> Checked {
        let p = &self.programs[&program];
        // A program whose last step is refused now is between steps already.
        let mut open = p.steps.iter().filter(|step| !self.refused.contains(step));
        if p.place != Some(worker) || open.next().is_some() {
            return broken(
                "placement",
                format!(
                    "{program} is paused, but is at {:?} with steps {:?}",
                    p.place, p.steps
                ),
            );
        }
        self.leave(program)
    }
}
