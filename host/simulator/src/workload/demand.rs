//! The memory that a workload needs so that no program has to wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::AgentRun;
use treadle_engine_model::engine::EngineProfile;

/// Peak demand of a workload for KV memory, in tokens: the largest sum, over time, of the contexts
/// of the programs that are live at once, were memory unlimited and every step undisturbed.
///
/// `concurrency` slots take the runs in order; a slot's next run starts when its last one ends. A
/// program weighs the prompt and answer of its current step from that step's start to the next
/// one's, tools included. A step takes [`EngineProfile::ideal_step_us`] for its fresh tokens in a
/// batch of one. Prompts that runs share are counted for each of them, so an engine that shares
/// blocks needs less.
pub fn peak_demand_tokens(runs: &[AgentRun], concurrency: usize, profile: &EngineProfile) -> u64 {
    let mut waiting = runs.iter().filter(|run| !run.steps.is_empty());
    // (time, run's index in the order of starting, step to start)
    let mut due = BinaryHeap::new();
    let mut live: Vec<(&AgentRun, u64)> = Vec::new();
    for run in waiting.by_ref().take(concurrency) {
        due.push(Reverse((0_u64, live.len(), 0_usize)));
        live.push((run, 0));
    }
    let (mut demand, mut peak) = (0_u64, 0_u64);
    while let Some(Reverse((at_us, place, index))) = due.pop() {
        let (run, held) = &mut live[place];
        demand -= std::mem::take(held);
        if let Some(step) = run.steps.get(index) {
            *held = u64::from(step.context_tokens());
            demand += *held;
            peak = peak.max(demand);
            let fresh = u64::from(step.fresh_tokens());
            let answer = u64::from(step.output_tokens);
            let step_us = profile.ideal_step_us(fresh, answer, *held, 1);
            due.push(Reverse((at_us + step_us + step.tool_us, place, index + 1)));
        } else if let Some(next) = waiting.next() {
            due.push(Reverse((at_us, live.len(), 0)));
            live.push((next, 0));
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::super::AgentStep;
    use super::*;

    fn run(id: &str, contexts: &[(u32, u64)]) -> AgentRun {
        let steps = contexts
            .iter()
            .map(|&(input_tokens, tool_us)| AgentStep {
                input_tokens,
                reused_tokens: 0,
                output_tokens: 1,
                tool_us,
                ..AgentStep::default()
            })
            .collect();
        AgentRun {
            id: id.to_owned(),
            group: 0,
            system_tokens: 0,
            group_tokens: 0,
            steps,
        }
    }

    #[test]
    fn slots_bound_the_live_programs() {
        let runs = [
            run("a", &[(99, 0)]),
            run("b", &[(199, 50)]),
            run("c", &[(299, 0)]),
        ];
        let peak = |slots| peak_demand_tokens(&runs, slots, &EngineProfile::instant());
        assert_eq!((peak(0), peak(1), peak(2), peak(3)), (0, 300, 500, 600));
    }

    #[test]
    fn a_program_weighs_through_its_tools() {
        let runs = [
            run("a", &[(99, 1_000), (499, 0)]),
            run("b", &[(799, 400), (9, 10_000)]),
        ];
        // a holds 100 while b holds 800; by the time a holds 500, b is down to 10.
        assert_eq!(peak_demand_tokens(&runs, 2, &EngineProfile::instant()), 900);
    }
}
