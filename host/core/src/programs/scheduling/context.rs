//! Contexts that are too long: a step goes only to a worker that takes its prompt, and is refused
//! if none ever will.

use crate::Programs;
use crate::programs::Refusal;
use crate::programs::program::Program;
use crate::programs::step::Step;
use crate::programs::worker::Worker;
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// The longest context that any registered worker takes; `None` without workers. A leaving
    /// worker takes no new steps, though its last ones may still run.
    pub(crate) fn context_tokens_max(&self) -> Option<u64> {
        let workers = self.state.workers.values();
        let workers = workers.filter(|w| !w.leaving && w.holds_programs());
        workers.map(Worker::context_tokens_max).max()
    }

    /// Refuses a step that is not running if no worker can ever hold it.
    pub(crate) fn refuse_if_too_long(&mut self, step: StepId) -> bool {
        let counted = self.state.steps.get(&step).filter(|s| !s.estimated);
        let (Some(s), Some(tokens_max)) = (counted, self.context_tokens_max()) else {
            return false;
        };
        let prompt_tokens = s.prompt_tokens;
        let too_long = prompt_tokens > tokens_max;
        if too_long {
            let refusal = Refusal::ContextTooLong {
                prompt_tokens,
                tokens_max,
            };
            self.close_with(step);
            self.refuse(step, refusal);
        }
        too_long
    }

    /// Refuses waiting steps that no longer fit anywhere, after a worker left, came back, or
    /// changed its capacity or models.
    pub(crate) fn refuse_waiting_too_long(&mut self) {
        let programs = self.state.waiting.programs();
        let waiting: Vec<StepId> = programs
            .filter_map(|program| self.state.live.get(&program))
            .flat_map(|p| p.waiting.iter().copied())
            .collect();
        for step in waiting {
            if !self.refuse_if_unserved(step) {
                self.refuse_if_too_long(step);
            }
        }
    }

    /// The minimum number of prompt tokens assumed when choosing a step's worker: all counted ones;
    /// half of an estimate, and never more than some worker takes.
    fn least_tokens(&self, step: &Step) -> u64 {
        if !step.estimated {
            return step.prompt_tokens;
        }
        let most = self.context_tokens_max().unwrap_or(u64::MAX);
        (step.prompt_tokens / 2).min(most)
    }

    /// The longest minimum prompt of the program's waiting steps; 0 if none waits.
    pub(crate) fn prompt_tokens_least(&self, program: &Program) -> u64 {
        let steps = program.waiting.iter();
        let steps = steps.filter_map(|s| self.state.steps.get(s));
        steps.map(|s| self.least_tokens(s)).max().unwrap_or(0)
    }

    /// True if a step may go to its program's worker. While another step of the program runs there
    /// the program cannot leave, and the engine itself refuses a prompt that is too long.
    pub(super) fn holds_context(&self, worker: WorkerId, step: StepId, program: ProgramId) -> bool {
        let p = self.state.live.get(&program);
        p.is_some_and(|p| !p.running.is_empty()) || self.takes_prompt(worker, step)
    }

    /// True if a worker serves a step's model, and takes its prompt.
    pub(super) fn takes_prompt(&self, worker: WorkerId, step: StepId) -> bool {
        let s = self.state.steps.get(&step);
        let known = s.zip(self.state.workers.get(&worker));
        known.is_some_and(|(s, w)| self.least_tokens(s) <= w.context_tokens_max())
            && self.serves_step(worker, step)
    }
}
