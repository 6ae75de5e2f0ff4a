//! Host memory: which copies are evicted for others, and which programs are prefetched.

use crate::Programs;
use crate::memory::Direction;
use crate::programs::ProgramCommand;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use treadle_model::{Phase, ProgramId, Span};

impl Programs {
    /// Evicts copies that are needed later than this one until it fits; false if that is not
    /// enough.
    pub(super) fn make_room_in_host(&mut self, program: ProgramId, tokens: u64) -> bool {
        let most = self.config.kv.host_tokens_max;
        let offloads = self.state.memory.offloads();
        if offloads.taken_tokens() + tokens <= most {
            return true;
        }
        let mine = self.needed_in(program);
        let held = offloads.held().keys().copied();
        let idle = held.filter(|held| !offloads.is_returning(*held));
        let mut later: Vec<(Span, ProgramId)> = idle
            .map(|held| (self.needed_in(held), held))
            .filter(|(needed, _)| *needed > mine)
            .collect();
        later.sort_unstable();
        let later: Vec<ProgramId> = later.into_iter().map(|(_, held)| held).collect();
        let Some(evicted) = offloads.plan_room(tokens, most, &later) else {
            return false;
        };
        for held in evicted {
            self.state.counters.copies_lost += 1;
            self.drop_copy(held);
        }
        true
    }

    /// When a program's cache will be needed: at once if a step of it waits.
    fn needed_in(&self, program: ProgramId) -> Span {
        let p = self.state.live.get(&program);
        p.filter(|p| p.phase == Phase::Acting)
            .map_or(Span(0), |p| self.remaining_tool_time(p).mean)
    }

    /// Frees a program's copy in host memory, if there is one.
    pub(crate) fn drop_copy(&mut self, program: ProgramId) {
        if let Some(held) = self.state.memory.offloads_mut().release(program) {
            let copy = held.copy;
            self.command(ProgramCommand::DropCopy { program, copy });
        }
    }

    /// A gateway that was disconnected may relay a step that it sent by itself: the program's
    /// context is then longer than its copy.
    pub(crate) fn drop_outgrown_copy(&mut self, program: ProgramId) {
        let context = self.state.live.get(&program).map(|p| p.context_tokens);
        let held = self.state.memory.copy_of(program).map(|c| c.tokens);
        if held < context && !self.state.memory.offloads().is_returning(program) {
            self.drop_copy(program);
        }
    }

    /// Loads caches that are needed soon, if no program waits and there is room.
    pub(crate) fn prefetch(&mut self) {
        let offloads = self.state.memory.offloads();
        if offloads.held().is_empty() || self.has_unplaced() {
            return;
        }
        let mut busy = offloads.busy(Direction::Back);
        let mut soon: Vec<(Span, ProgramId)> = offloads
            .held()
            .iter()
            .filter_map(|(program, held)| self.due_back(*program, held.tokens))
            .collect();
        soon.sort_unstable();
        for (_, program) in soon {
            let Some(worker) = self.worker_for_prefetch(program) else {
                continue;
            };
            if !busy.insert(worker) {
                continue;
            }
            let explanation = Explanation::new(DecisionKind::Prefetch, Because::ToolAboutToEnd);
            self.explain(program, worker, &explanation);
            self.place(program, worker);
            if self.begin_load(program) {
                self.state.counters.prefetches += 1;
            }
        }
    }

    /// When a stored cache is needed, if that is before the next tick.
    fn due_back(&self, program: ProgramId, tokens: u64) -> Option<(Span, ProgramId)> {
        let p = self.state.live.get(&program)?;
        if p.phase != Phase::Acting || p.placement.is_some() || !p.is_between_steps() {
            return None;
        }
        let remaining_tool_time = self.remaining_tool_time(p);
        let back = self.load_time(tokens);
        if back > self.prefill_time(tokens) {
            return None;
        }
        let lead = back.micros().saturating_add(self.config.tick.micros());
        (remaining_tool_time.mean.micros() <= lead).then_some((remaining_tool_time.mean, program))
    }
}
