//! The core's output for an event: decisions, then commands, each checked against the model's state
//! at that moment.

use super::super::outcome::{Checked, broken};
use super::Model;
use treadle_core::programs::{Because, Decision, DecisionKind};
use treadle_core::{Command, DaemonEvent, Event, ProgramCommand, ProgramEvent};
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
        event: &Event,
        commands: &[Command],
        decisions: &[Decision],
    ) -> Checked {
        // Several deadlines may pass at once; how their effects interleave is not reported, so that
        // sums in between are not known.
        let several = matches!(event, Event::Daemon(DaemonEvent::TimerFired))
            && commands.iter().any(|c| {
                matches!(
                    c,
                    Command::Program(
                        ProgramCommand::ForgetProgram { .. }
                            | ProgramCommand::RefuseStep { .. }
                            | ProgramCommand::CancelTransfer { .. }
                    )
                )
            });
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
        for decision in decisions {
            self.decided(decision, !several)?;
        }
        self.decided_prompts.clear();
        if let Some((step, worker)) = self.adopted.take() {
            self.prompt_sent(step, worker, self.cached_tokens(step));
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

    fn decided(&mut self, decision: &Decision, sums_are_known: bool) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        let Some(p) = self.programs.get(&program) else {
            return broken(
                "programs",
                format!("{decision:?} is about no known program"),
            );
        };
        if decision.kind == DecisionKind::Pause {
            return self.paused(program, worker);
        }
        if decision.because == Because::Adopted {
            self.take_placement(program);
            self.place(program, worker);
            return Ok(());
        }
        match decision.kind {
            DecisionKind::Offload => return self.decided_to_offload(program, worker),
            // Intentions; their effects are shown by commands.
            DecisionKind::Migrate | DecisionKind::Preempt => return Ok(()),
            DecisionKind::Route => return self.routed_to(decision),
            DecisionKind::Place
            | DecisionKind::Restore
            | DecisionKind::Pause
            | DecisionKind::Prefetch => {}
        }
        // A plain router moves a program from a dead worker without a decision.
        if p.place.is_some() && self.is_aware() {
            return broken(
                "placement",
                format!(
                    "{program} is placed at {:?} and is placed at {worker}",
                    p.place
                ),
            );
        }
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
        if self.is_aware() && sums_are_known {
            self.check_admission(program, worker)?;
            self.check_turn(program)?;
        }
        if decision.kind == DecisionKind::Prefetch {
            self.caches.early.insert(program);
        } else if self.is_aware() {
            self.learn_wait(program);
            if self.config.kv.retention && self.config.kv.backlog_max.0 > 0 {
                self.prompts_are_decided(program, worker);
            }
        }
        self.place(program, worker);
        if self.waits_in_line(program) {
            self.sent_on_together(program);
        }
        Ok(())
    }

    /// Moves the mean wait by a sixty-fourth of the difference.
    fn learn_wait(&mut self, program: ProgramId) {
        if let Some(since) = self.waits_since(program) {
            let waited = self.now.since(since).micros();
            self.wait_mean_us = self.wait_mean_us - self.wait_mean_us / 64 + waited / 64;
        }
    }

    fn paused(&mut self, program: ProgramId, worker: WorkerId) -> Checked {
        let p = &self.programs[&program];
        if p.place.is_none() && self.caches.gone.contains(&program) {
            // It lost its placement with the cache that was on its way there; its slot there is
            // gone too, which is reported of programs between steps.
            return Ok(());
        }
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
        self.take_placement(program);
        Ok(())
    }

    pub(super) fn place(&mut self, program: ProgramId, worker: WorkerId) {
        let now = self.now;
        if let Some(p) = self.programs.get_mut(&program) {
            p.place = Some(worker);
            p.placed_at = now;
            p.placed_before = true;
            p.is_warm = false;
            p.idle_since_us = self.settled_us;
            let prefix = p.prefix.clone();
            self.newly_shared
                .extend(prefix.iter().map(|segment| segment.hash));
            self.share(program, worker, &prefix);
        }
    }
}
