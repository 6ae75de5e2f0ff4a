//! Host memory: which copies are evicted for others, and which programs are prefetched.

use crate::programs::explain::{Because, DecisionKind};
use crate::programs::offload::Direction;
use crate::programs::scheduling::explanation::Explanation;
use crate::{ProgramCommand, Programs};
use treadle_model::{Phase, ProgramId, Span};

impl Programs {
    /// Evicts copies that are needed later than this one until it fits; false if that is not
    /// enough.
    pub(crate) fn make_room_in_host(&mut self, program: ProgramId, tokens: u64) -> bool {
        let most = self.config.kv.host_tokens_max;
        let taken = |core: &Self| {
            let offloads = &core.state.offloads;
            offloads.held_tokens + offloads.leaving_tokens + tokens
        };
        if taken(self) <= most {
            return true;
        }
        let mine = self.needed_in(program);
        let held = self.state.offloads.held.keys().copied();
        let idle = held.filter(|held| !self.state.offloads.is_returning(*held));
        let mut later: Vec<(Span, ProgramId)> = idle
            .map(|held| (self.needed_in(held), held))
            .filter(|(needed, _)| *needed > mine)
            .collect();
        later.sort_unstable();
        let size = |held: &ProgramId| self.state.offloads.held.get(held).map_or(0, |c| c.tokens);
        let droppable: u64 = later.iter().map(|(_, held)| size(held)).sum();
        if taken(self).saturating_sub(droppable) > most {
            return false;
        }
        while taken(self) > most
            && let Some((_, last)) = later.pop()
        {
            self.state.counters.copies_lost += 1;
            self.drop_copy(last);
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
        if let Some(held) = self.state.offloads.release(program) {
            let copy = held.copy;
            self.command(ProgramCommand::DropCopy { program, copy });
        }
    }

    /// A gateway that was disconnected may relay a step that it sent by itself: the program's
    /// context is then longer than its copy.
    pub(crate) fn drop_outgrown_copy(&mut self, program: ProgramId) {
        let context = self.state.live.get(&program).map(|p| p.context_tokens);
        let held = self.state.offloads.held.get(&program).map(|c| c.tokens);
        if held < context && !self.state.offloads.is_returning(program) {
            self.drop_copy(program);
        }
    }

    /// Loads caches that are needed soon, if no program waits and there is room.
    pub(crate) fn prefetch(&mut self) {
        let offloads = &self.state.offloads;
        if offloads.held.is_empty() || self.has_unplaced() {
            return;
        }
        let mut busy = offloads.busy(Direction::Back);
        let mut soon: Vec<(Span, ProgramId)> = offloads
            .held
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
