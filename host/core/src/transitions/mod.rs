//! What each event changes: one file per subject.

mod actions;
mod answers;
mod configured;
mod gateways;
mod programs;
mod steps;
mod timeouts;
mod workers;

use crate::{Core, Due, Event};

impl Core {
    #[allow(clippy::too_many_lines, reason = "one line or call for each event")]
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::WorkerAdded {
                worker,
                url,
                engine,
                capacity,
            } => {
                self.worker_added(*worker, url, *engine, *capacity);
            }
            Event::WorkerCapacityRead {
                worker,
                engine,
                capacity,
            } => {
                self.worker_capacity_read(*worker, *engine, *capacity);
            }
            Event::PromptCounted {
                model,
                size,
                tokens,
            } => self.state.token_models.learn(model, *size, *tokens),
            Event::WorkerUseRead {
                worker,
                untracked_tokens,
            } => self.worker_use_read(*worker, *untracked_tokens),
            Event::WorkerLost { worker, cause } => self.worker_lost(*worker, cause),
            Event::WorkerRecovered { worker } => self.worker_recovered(*worker),
            Event::WorkerRemoved { worker } => self.worker_removed(*worker),
            Event::StepArrived(arrival) => self.step_arrived(arrival),
            Event::StepFirstToken { step } => self.step_first_token(*step),
            Event::StepProgressed {
                step,
                output_tokens,
            } => {
                self.step_progressed(*step, *output_tokens);
            }
            Event::StepFinished { step, tokens, .. } => self.step_finished(*step, *tokens),
            Event::StepFailed { step, failure } => self.step_failed(*step, failure),
            Event::StepCancelled { step } => self.step_cancelled(*step),
            Event::StepAdopted { step, worker } => self.step_adopted(*step, *worker),
            Event::GatewayLost { gateway } => self.gateway_lost(*gateway),
            Event::ActionStarted {
                program,
                action,
                tool,
            } => self.action_started(program, action, tool),
            Event::ActionFinished {
                program,
                action,
                ok,
            } => self.action_finished(program, action, *ok),
            Event::ProgramReleased { program } => self.program_released(program),
            Event::PolicyAnswered {
                ask,
                policy,
                answer,
                attribution,
            } => self.policy_answered(*ask, policy, answer, attribution),
            Event::ProgramMigrated { program, to } => self.program_migrated(*program, *to),
            Event::MigrationFailed { program, .. } => self.migration_failed(*program),
            Event::ProgramOffloaded {
                program,
                copy,
                tokens,
                bytes,
            } => self.program_offloaded(*program, copy, *tokens, *bytes),
            Event::OffloadFailed { program, .. } => self.offload_failed(*program),
            Event::ProgramLoaded { program, to } => self.program_loaded(*program, *to),
            Event::LoadFailed { program, .. } => self.load_failed(*program),
            Event::CopyLost { program, copy } => self.copy_lost(*program, copy),
            Event::TimerFired => self.timer_fired(),
            Event::Configured { config } => self.configured(config),
            Event::DaemonRestarted => self.daemon_restarted(),
            Event::RecordRefused { .. } => {}
            Event::Binding(event) => self.state.bindings.apply(self.state.now, event),
        }
    }

    /// What every event may have made possible or necessary.
    pub(crate) fn settle(&mut self) {
        self.settle_workers();
        if self.is_rollout() {
            self.settle_rollout();
        } else {
            self.settle_transfers();
        }
        self.due = Due::default();
        self.settle_restores();
        self.settle_tick();
    }
}
