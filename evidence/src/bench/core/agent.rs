//! One agent of the load generator, with its position in its run.

use treadle_core::memory::PrefixSegment;
use treadle_core::programs::StepArrival;
use treadle_model::StepId;
use treadle_simulator::workload::AgentRun;

/// What an agent does next when its time has come.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Send a step.
    Send,
    /// See the first token of its step.
    FirstToken,
    /// See the first `done` tokens of it, or all.
    Decode { done: u64 },
}

/// One agent.
pub(super) struct Agent {
    /// Its program's key.
    pub(super) key: Box<str>,
    /// Its run's index in the workload.
    pub(super) run: usize,
    /// The step that it sends next.
    pub(super) next_step: usize,
    /// The step that it sent last.
    pub(super) step: StepId,
    pub(super) stage: Stage,
}

impl Agent {
    /// At the beginning of a run, which is used for the `lap`th time.
    pub(super) fn new(place: usize, run: &AgentRun, lap: usize) -> Self {
        Self {
            key: format!("{}+{lap}", run.id).into(),
            run: place,
            next_step: 0,
            step: StepId(0),
            stage: Stage::Send,
        }
    }

    /// Its next step arrives, under this id.
    pub(super) fn arrive(&mut self, step: StepId, run: &AgentRun) -> StepArrival {
        let call = run.steps[self.next_step];
        self.step = step;
        self.next_step += 1;
        let segment = |hash, tokens: u32| PrefixSegment {
            hash,
            tokens: u64::from(tokens),
        };
        StepArrival {
            step,
            program: self.key.clone(),
            job: "bench".into(),
            prompt_tokens: u64::from(call.input_tokens),
            exact: true,
            prompt_bytes: u64::from(call.input_tokens) * 4,
            text: None,
            output_tokens_max: None,
            prefix: vec![
                segment(1, run.system_tokens),
                segment(2 + u64::from(run.group), run.group_tokens),
            ],
            one_shot: false,
            inferred: false,
            parent: None,
            group: None,
            model: None,
        }
    }
}
