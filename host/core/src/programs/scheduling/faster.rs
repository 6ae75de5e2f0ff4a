//! Leaving a slow engine: when its step arrives, a program goes to a faster engine with room if its
//! remaining tokens take so much longer here that recomputing its context there pays off. A rollout
//! is over when its longest program is, and engines of different kinds differ by several times in
//! the time per token.
//!
//! Ranks of one endpoint step together, so none of them is faster than another.
//!
//! A program on the class of hardware that it prefers stays there. One that fell back to another
//! class returns under the same bounds, and then any gain will do.

use crate::Programs;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::scheduling::ranks::step_together;
use crate::programs::worker::Worker;
use treadle_model::{ProgramId, StepId, WorkerId};

/// An engine is faster if its time per token is at most this part, both at present loads and at
/// equal load: load alone changes from step to step, and a lost cache costs all programs that are
/// there.
const FASTER_PART: u64 = 2;
/// The gain must be this many times the cost, as the remaining length is a guess.
const GAIN_LEAST: u128 = 2;

impl Programs {
    /// Moves a program to a faster worker, if it gains by that. Returns its worker.
    pub(super) fn or_faster(
        &mut self,
        step: StepId,
        program: ProgramId,
        here: WorkerId,
    ) -> WorkerId {
        let Some(there) = self.faster(step, program, here) else {
            return here;
        };
        // Going back would leave its class: it is returning to that.
        let because = if self.leaves_class(program, there, here) {
            Because::ClassHasRoom
        } else {
            Because::FasterWorker
        };
        let explanation = Explanation::new(DecisionKind::Route, because);
        self.explain(program, there, &explanation);
        self.unplace(program);
        self.place(program, there);
        self.state.counters.moves += 1;
        there
    }

    fn faster(&self, step: StepId, program: ProgramId, here: WorkerId) -> Option<WorkerId> {
        let p = self.state.live.get(&program)?;
        let is_free = p.running.is_empty() && p.waiting.is_empty();
        if !is_free || self.has_unplaced() || self.state.memory.copy_of(program).is_some() {
            return None;
        }
        // Without a prediction the remaining length is assumed to equal the length so far.
        let rest = p.remaining_tokens.unwrap_or(p.output_tokens_total);
        let here = self.state.workers.get(&here)?;
        let time_here = self.token_ns(here, here.running_steps)?;
        let least = self.prompt_tokens_least(p);
        // The new worker's ledger contains the step once it is sent.
        let demand = self.state.steps.get(&step)?.demand_tokens();
        let private = demand
            .max(p.demand_tokens)
            .saturating_sub(p.prefix_tokens());
        let mut fastest: Option<(bool, u64, WorkerId)> = None;
        let others = self.state.workers.values();
        let others = others.filter(|w| w.id != here.id && !p.would_leave_class(here, w));
        for w in others {
            let Some(time) = self.token_ns(w, w.running_steps) else {
                continue;
            };
            let same_load = here.running_steps.max(w.running_steps);
            let same_load = [here, w].map(|each| self.token_ns(each, same_load));
            let [Some(loaded_here), Some(loaded)] = same_load else {
                continue;
            };
            let returns = p.is_of_class(w) && !p.is_of_class(here);
            let is_faster = time.saturating_mul(FASTER_PART) <= time_here
                && loaded.saturating_mul(FASTER_PART) <= loaded_here;
            let is_best = fastest.is_none_or(|(other, least, _)| (!returns, time) < (other, least));
            if !(is_faster || returns) || !is_best || step_together(here, w) {
                continue;
            }
            let mut gained = u128::from(rest) * u128::from(time_here.saturating_sub(time));
            if returns {
                gained += self.gained_by_prompts_ns(p, rest, [here, w]);
            }
            let prefill = self.prefill_time_at(w, p.context_tokens);
            let pays = gained > u128::from(prefill.0) * 1_000 * GAIN_LEAST;
            if pays && self.admits_with(w, p, private, least) && self.takes_prompt(w.id, step) {
                fastest = Some((!returns, time, w.id));
            }
        }
        fastest.map(|(_, _, worker)| worker)
    }

    /// The time per token there for one more step beside `steps`.
    pub(super) fn token_ns(&self, worker: &Worker, steps: u32) -> Option<u64> {
        let time = self.state.decode_time_of(worker)?;
        Some(time.with_steps(u64::from(steps) + 1))
    }
}
