//! The effect of each event, one file per subject.

mod actions;
mod answers;
mod configured;
mod cordons;
mod gateways;
mod programs;
mod steps;
mod subagents;
mod timeouts;
mod weights;
mod workers;

use crate::estimates::DecodeTime;
use crate::programs::{ProgramEvent, Programs};
use treadle_model::Span;

impl Programs {
    #[allow(clippy::too_many_lines, reason = "one line or call for each event")]
    pub(crate) fn transition(&mut self, event: &ProgramEvent) {
        match event {
            ProgramEvent::WorkerAdded {
                worker,
                url,
                engine,
                capacity,
                role,
            } => {
                self.worker_added(*worker, url, *engine, *capacity, *role);
            }
            ProgramEvent::WorkerCapacityRead {
                worker,
                engine,
                capacity,
            } => {
                self.worker_capacity_read(*worker, *engine, *capacity);
            }
            ProgramEvent::PromptCounted {
                model,
                size,
                tokens,
            } => self.state.estimates.prompt_counted(model, *size, *tokens),
            ProgramEvent::WorkerUseRead {
                worker,
                untracked_tokens,
            } => self.worker_use_read(*worker, *untracked_tokens),
            ProgramEvent::WorkerSpeedRead {
                worker,
                prefill_tokens_per_s,
                token_us,
                step_us,
                declared,
            } => {
                let time = DecodeTime {
                    alone: Span(*token_us),
                    further: (*step_us > 0).then_some(Span(*step_us)),
                };
                if *declared {
                    self.worker_speed_declared(*worker, *prefill_tokens_per_s, time);
                } else {
                    self.worker_speed_read(*worker, *prefill_tokens_per_s, time);
                }
            }
            ProgramEvent::WorkerModelRead { worker, model } => {
                self.worker_model_read(*worker, model);
            }
            ProgramEvent::WorkerOtherModelsRead { worker, models } => {
                self.worker_other_models_read(*worker, models);
            }
            ProgramEvent::WorkerLost { worker, cause } => self.worker_lost(*worker, cause),
            ProgramEvent::WorkerRecovered { worker } => self.worker_recovered(*worker),
            ProgramEvent::WorkerRemoved { worker } => self.worker_removed(*worker),
            ProgramEvent::WorkerStateSet { worker, state } => {
                self.worker_state_set(*worker, *state);
            }
            ProgramEvent::WorkerClassSet { worker, class } => {
                self.worker_class_set(*worker, class.as_deref());
            }
            ProgramEvent::WorkerRoleSet {
                worker,
                role,
                bootstrap_port,
            } => self.worker_role_set(*worker, *role, *bootstrap_port),
            ProgramEvent::WorkerRestRead { worker, rest } => {
                self.worker_rest_read(*worker, *rest);
            }
            ProgramEvent::StepArrived(arrival) => self.step_arrived(arrival),
            ProgramEvent::StepPrefilled {
                step,
                prompt_tokens,
                cached_tokens,
            } => self.step_prefilled(*step, *prompt_tokens, *cached_tokens),
            ProgramEvent::StepPrefillFailed { step, .. } => self.step_prefill_failed(*step),
            ProgramEvent::StepFirstToken { step } => self.step_first_token(*step),
            ProgramEvent::StepProgressed {
                step,
                output_tokens,
            } => {
                self.step_progressed(*step, *output_tokens);
            }
            ProgramEvent::StepFinished {
                step,
                tokens,
                weights,
                ..
            } => {
                self.weights_named(*step, weights.as_deref());
                self.step_finished(*step, *tokens);
            }
            ProgramEvent::StepFailed { step, failure } => self.step_failed(*step, failure),
            ProgramEvent::StepCancelled { step } => self.step_cancelled(*step),
            ProgramEvent::StepInterrupted { step } => self.step_interrupted(*step),
            ProgramEvent::StepRunsOn { step } => self.step_runs_on(*step),
            ProgramEvent::StepAdopted { step, worker } => self.step_adopted(*step, *worker),
            ProgramEvent::ActionStarted {
                program,
                action,
                tool,
            } => self.action_started(program, action, tool),
            ProgramEvent::ActionFinished {
                program,
                action,
                ok,
            } => self.action_finished(program, action, *ok),
            ProgramEvent::ProgramReleased { program, aborted } => {
                self.program_released(program, *aborted);
            }
            ProgramEvent::ProgramRewarded {
                program,
                reward_millionths,
            } => self.program_rewarded(program, *reward_millionths),
            ProgramEvent::PolicyAnswered {
                ask,
                policy,
                answer,
                attribution,
            } => self.policy_answered(*ask, policy, answer, attribution),
            ProgramEvent::ProgramMigrated { program, to } => self.program_migrated(*program, *to),
            ProgramEvent::MigrationFailed { program, .. } => self.migration_failed(*program),
            ProgramEvent::ProgramOffloaded {
                program,
                copy,
                tokens,
                bytes,
            } => self.program_offloaded(*program, copy, *tokens, *bytes),
            ProgramEvent::OffloadFailed { program, .. } => self.offload_failed(*program),
            ProgramEvent::ProgramLoaded { program, to } => self.program_loaded(*program, *to),
            ProgramEvent::LoadFailed { program, .. } => self.load_failed(*program),
            ProgramEvent::CopyLost { program, copy } => self.copy_lost(*program, copy),
        }
    }
}
