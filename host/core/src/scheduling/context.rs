//! Contexts that are too long: a step goes only to a worker that takes its
//! prompt, and is refused where none ever will.

use crate::program::Program;
use crate::worker::Worker;
use crate::{Core, Refusal};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Core {
    /// The most that any registered worker takes; `None` without workers.
    fn context_tokens_max(&self) -> Option<u64> {
        let workers = self.state.workers.values();
        workers.map(Worker::context_tokens_max).max()
    }

    /// Refuses a step that is not running if no worker can ever hold it.
    pub(crate) fn refuse_if_too_long(&mut self, step: StepId) -> bool {
        let least = self.state.steps.get(&step).map(|s| s.prompt_tokens_least);
        let (Some(prompt_tokens), Some(tokens_max)) = (least, self.context_tokens_max()) else {
            return false;
        };
        let too_long = prompt_tokens > tokens_max;
        if too_long {
            let refusal = Refusal::ContextTooLong {
                prompt_tokens,
                tokens_max,
            };
            self.refuse(step, refusal);
        }
        too_long
    }

    /// After a worker went or holds less: whoever waits and fits nowhere any
    /// more is told so, instead of waiting for nothing.
    pub(crate) fn refuse_waiting_too_long(&mut self) {
        let programs = self.state.queue.oldest().map(|(_, program)| program);
        let waiting: Vec<StepId> = programs
            .filter_map(|program| self.state.programs.get(&program))
            .flat_map(|p| p.waiting.iter().copied())
            .collect();
        for step in waiting {
            self.refuse_if_too_long(step);
        }
    }

    /// The longest prompt that waits of the program has at least so many
    /// tokens; 0 if none waits.
    pub(crate) fn prompt_tokens_least(&self, program: &Program) -> u64 {
        let steps = program.waiting.iter();
        let least = steps.filter_map(|s| self.state.steps.get(s));
        least.map(|s| s.prompt_tokens_least).max().unwrap_or(0)
    }

    /// True if a step may go to its program's worker. While another step of
    /// the program runs there the program cannot leave, and the engine says
    /// itself what it does not take.
    pub(crate) fn holds_context(&self, worker: WorkerId, step: StepId, program: ProgramId) -> bool {
        let s = self.state.steps.get(&step);
        let w = self.state.workers.get(&worker);
        let runs = self
            .state
            .programs
            .get(&program)
            .is_some_and(|p| !p.running.is_empty());
        runs || s
            .zip(w)
            .is_some_and(|(s, w)| s.prompt_tokens_least <= w.context_tokens_max())
    }
}
