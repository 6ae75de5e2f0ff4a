//! What a policy would do if it knew the future: how much is lost by predictions, apart from memory
//! and from bounds on waits.

use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::programs::Question;
use treadle_model::{Phase, Span};
use treadle_simulator::cluster::{Answered, Answers};
use treadle_simulator::workload::AgentRun;

/// Tells a policy when each tool call ends, and what each program has yet to generate.
pub(super) struct Oracle<'a> {
    runs: BTreeMap<&'a str, &'a AgentRun>,
    policy: Box<dyn Answers>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(runs: &'a [AgentRun], policy: Box<dyn Answers>) -> Self {
        Self {
            runs: runs.iter().map(|run| (run.id.as_str(), run)).collect(),
            policy,
        }
    }
}

impl Answers for Oracle<'_> {
    fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answered {
        let mut question = question.clone();
        let programs = &mut question.programs;
        for (row, id) in programs.program.iter().enumerate() {
            let Some(program) = core.programs().live.get(id) else {
                continue;
            };
            let Some(run) = self.runs.get(&*program.key) else {
                continue;
            };
            let finished = program.steps_finished as usize;
            let costs = &mut programs.costs;
            if program.phase == Phase::Acting && program.is_between_steps() {
                let call = finished.checked_sub(1).and_then(|last| run.steps.get(last));
                let ends = program.phase_since.0 + call.map_or(0, |step| step.tool_us);
                let rest = Span(ends.saturating_sub(now_ms * 1_000));
                costs.idle[row] = rest;
                costs.soonest[row] = rest;
                costs.price[row] = rest;
            }
            let to_come = run.steps.iter().skip(finished);
            costs.remaining_tokens[row] = to_come.map(|step| i64::from(step.output_tokens)).sum();
        }
        self.policy.answer(core, &question, now_ms)
    }
}
