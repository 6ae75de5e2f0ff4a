//! Pressure: when a worker's programs need more than it holds, some are paused, in the order that
//! the eviction policy gives (`ThunderAgent` §4.3.1).
//!
//! Only programs between steps are paused. A running step is never interrupted: its program can be
//! paused the moment the step ends, when the worker is checked again.

use crate::actions::RankInputs;
use crate::programs::asks::Ask;
use crate::programs::explain::Because;
use crate::programs::program::Program;
use crate::programs::question::ProgramColumns;
use crate::programs::ranking::Ranking;
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::timers::Timer;
use crate::programs::worker::Worker;
use crate::programs::{ProgramCommand, Purpose, Question};
use crate::{Mode, Programs};
use treadle_model::{Phase, ProgramId, WorkerId};

impl Programs {
    /// The memory that a program holds and others need, and its remaining length; `unplaced` is
    /// whether any program waits for placement.
    pub(crate) fn memory_of(&self, program: &str, unplaced: bool) -> RankInputs {
        let id = self.state.keys.get(program);
        let Some(p) = id.and_then(|id| self.state.live.get(id)) else {
            return RankInputs::default();
        };
        let place = p.placement.map(|place| place.worker);
        let worker = place.and_then(|worker| self.state.workers.get(&worker));
        let is_short = |w: &&Worker| unplaced || w.used_tokens() >= self.fill_tokens(w);
        let held = worker.filter(is_short).map(|_| p.context_tokens);
        let copy = self.state.memory.copy_of(p.id).map(|copy| copy.tokens);
        let taken = self.state.memory.offloads().taken_tokens();
        let is_full = |tokens: &u64| taken.saturating_add(*tokens) > self.config.kv.host_tokens_max;
        RankInputs {
            held_up_tokens: held.unwrap_or(0),
            host_tokens: copy.filter(is_full).unwrap_or(0),
            remaining_tokens: p.remaining_tokens.unwrap_or(0),
        }
    }

    /// Asks which programs to pause if the worker is above its high watermark.
    pub(crate) fn relieve(&mut self, worker: WorkerId) {
        let excess = self.excess_tokens(worker);
        if excess > 0 && self.config.mode == Mode::ProgramAware {
            self.ask_pause(worker, excess);
        }
    }

    /// Asks how much acting programs count on the worker, if it matters there.
    pub(crate) fn ask_weigh(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        let tight = w.used_tokens() >= w.watermark_tokens(self.config.low_watermark_ppm);
        if !tight && self.state.waiting.queue().is_empty() {
            return;
        }
        let candidates = w.idle.iter().copied().collect();
        self.ask(Purpose::Weigh { worker }, candidates);
    }

    pub(super) fn ask_pause(&mut self, worker: WorkerId, excess_tokens: u64) {
        let candidates = self.pausable(worker);
        self.ask(
            Purpose::Pause {
                worker,
                excess_tokens,
            },
            candidates,
        );
    }

    /// Programs that could be paused on a worker, the shortest first. This is the core's own order,
    /// used if no answer comes in time.
    pub(crate) fn pausable(&self, worker: WorkerId) -> Vec<ProgramId> {
        let Some(w) = self.state.workers.get(&worker) else {
            return Vec::new();
        };
        // Without overflow, memory is only taken for fairness.
        let overflows = self.excess_tokens(worker) > 0;
        let lasted = |p: &&Program| overflows || self.has_lasted(p);
        let at_rest = w
            .idle
            .iter()
            .filter(|id| self.state.memory.is_at_rest(**id));
        let idle = at_rest.filter_map(|id| self.state.live.get(id));
        let mut shortest: Vec<(u64, ProgramId)> = idle
            .filter(lasted)
            .map(|p| (p.private_tokens(), p.id))
            .collect();
        let most = self.config.candidates_max.max(1) * 4;
        if shortest.len() > most {
            shortest.select_nth_unstable(most);
            shortest.truncate(most);
        }
        shortest.sort_unstable();
        shortest.into_iter().map(|(_, program)| program).collect()
    }

    /// True if a program's placement has lasted long enough to be worth its prefill.
    fn has_lasted(&self, p: &Program) -> bool {
        let since = p.placement.map(|place| place.since).unwrap_or_default();
        self.state.now.since(since) >= self.quantum()
    }

    /// Asks a question, unless it is empty or one of the same kind is open; true if it was asked.
    pub(crate) fn ask(&mut self, purpose: Purpose, candidates: Vec<ProgramId>) -> bool {
        let same = |asked| same_subject(asked, purpose);
        if candidates.is_empty() || self.state.asks.has(same) {
            return false;
        }
        let deadline = self.state.now + self.config.ask_deadline;
        let mut programs = self.columns(&candidates);
        if let Some(slot) = self.slot_tokens_of(purpose) {
            programs.tokens.fill(slot);
        }
        let ask = self.state.asks.add(Ask {
            purpose,
            candidates,
            deadline,
        });
        self.state.timers.arm(deadline, Timer::Ask(ask));
        self.command(ProgramCommand::AskPolicy {
            ask,
            question: Question { purpose, programs },
            deadline,
        });
        true
    }

    /// Pauses programs that hardly count any more, while others wait: one that returns late then
    /// waits for its turn instead of overflowing the worker.
    pub(crate) fn pause_weightless(&mut self, worker: WorkerId, weights: &Ranking) {
        let w = self.state.workers.get(&worker);
        if self.state.waiting.queue().is_empty() || !w.is_some_and(Worker::takes_programs) {
            return;
        }
        let least = f64::from(self.config.pause_weight_ppm) / 1e6;
        for entry in &weights.entries {
            if entry.score < least && self.is_pausable_on(entry.program, worker) {
                let explanation =
                    Explanation::new(self.way_out(entry.program), Because::LongToolCall);
                self.explain(
                    entry.program,
                    worker,
                    &explanation.by(weights.evaluator(entry)),
                );
                self.send_away(entry.program);
            }
        }
    }

    pub(crate) fn pause(&mut self, program: ProgramId) {
        self.unplace(program);
        if let Some(p) = self.state.live.get_mut(&program) {
            p.pauses += 1;
        }
        self.state.counters.pauses += 1;
    }

    /// Pauses programs in the given order until enough room is free. The need may have changed
    /// since the question.
    pub(crate) fn pause_in_order(&mut self, worker: WorkerId, ranking: &Ranking) {
        let overflow = self.excess_tokens(worker);
        let wanted = overflow.max(self.lacking_for_starved(worker));
        let mut freed = 0;
        for (index, entry) in ranking.entries.iter().enumerate() {
            if freed >= wanted {
                break;
            }
            if !self.is_pausable_on(entry.program, worker) {
                continue;
            }
            let overflows = freed < overflow;
            let p = self.state.live.get(&entry.program);
            if !overflows && !p.is_some_and(|p| self.has_lasted(p)) {
                continue;
            }
            let because = if overflows {
                Because::MemoryPressure
            } else {
                Because::RoomForDeferred
            };
            let before = self.used_tokens(worker);
            let kind = self.way_out(entry.program);
            let explanation = Explanation::new(kind, because).by(ranking.evaluator(entry));
            self.explain(
                entry.program,
                worker,
                &explanation.among(&ranking.entries[index..]),
            );
            self.send_away(entry.program);
            freed += before.saturating_sub(self.used_tokens(worker));
        }
        // While this question was open, none could make room for the starved program; if memory
        // overflows at each tick, that is all the time.
        if overflow > 0 {
            self.make_room_for_starved();
        }
    }

    /// Tokens above the worker's high watermark, counting only programs that stay.
    pub(crate) fn excess_tokens(&self, worker: WorkerId) -> u64 {
        self.state.workers.get(&worker).map_or(0, |w| {
            self.staying_tokens(w)
                .saturating_sub(w.watermark_tokens(self.config.high_watermark_ppm))
        })
    }

    fn used_tokens(&self, worker: WorkerId) -> u64 {
        let w = self.state.workers.get(&worker);
        w.map_or(0, |w| self.staying_tokens(w))
    }

    pub(super) fn is_pausable_on(&self, program: ProgramId, worker: WorkerId) -> bool {
        self.state.live.get(&program).is_some_and(|p| {
            let here = p.placement.is_some_and(|place| place.worker == worker);
            here && p.is_between_steps() && self.state.memory.is_at_rest(program)
        })
    }

    /// The tokens of each cache at the question's worker, if it has slots.
    fn slot_tokens_of(&self, purpose: Purpose) -> Option<u64> {
        match purpose {
            Purpose::Retain { worker, .. } => {
                self.state.workers.get(&worker)?.capacity.slot_tokens()
            }
            _ => None,
        }
    }

    fn columns(&self, candidates: &[ProgramId]) -> ProgramColumns {
        let now = self.state.now;
        let mut columns = ProgramColumns::default();
        for p in candidates.iter().filter_map(|id| self.state.live.get(id)) {
            columns.program.push(p.id);
            columns.tokens.push(p.private_tokens());
            columns.acting.push(u8::from(p.phase == Phase::Acting));
            columns.phase.push(now.since(p.phase_since));
            columns.waited.push(self.waited(p).unwrap_or_default());
            columns.steps.push(p.steps_finished);
            self.foresee(p, &mut columns.costs);
        }
        columns
    }
}

fn same_subject(a: Purpose, b: Purpose) -> bool {
    match (a, b) {
        (Purpose::Weigh { worker: a }, Purpose::Weigh { worker: b })
        | (Purpose::Pause { worker: a, .. }, Purpose::Pause { worker: b, .. })
        | (Purpose::Retain { worker: a, .. }, Purpose::Retain { worker: b, .. })
        | (Purpose::Preempt { worker: a }, Purpose::Preempt { worker: b }) => a == b,
        (Purpose::Restore, Purpose::Restore) | (Purpose::Migrate, Purpose::Migrate) => true,
        (Purpose::Route { step: a }, Purpose::Route { step: b }) => a == b,
        _ => false,
    }
}
