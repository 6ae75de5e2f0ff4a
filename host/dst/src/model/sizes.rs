//! Sizes of prompts and of shared prefixes. Only the core knows estimates, so the model adopts them
//! and checks their consequences.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::{StepFacts, WorkerFacts};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::{Core, Event, PrefixSegment, ProgramEvent};
use treadle_model::{ProgramId, WorkerId};

/// The core's values for the sizes in an event.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreSizes {
    /// Tokens of the prompt that arrived.
    pub(super) prompt_tokens: Option<u64>,
    /// The prefix of the program concerned.
    pub(super) prefix: Option<Vec<PrefixSegment>>,
    /// Tokens of its parts at its placement.
    pub(super) shared: Vec<(u64, u64)>,
    /// Prefixes of other programs: a fork shares its parent's history, until it ends.
    pub(super) forked: Vec<(ProgramId, Vec<PrefixSegment>)>,
}

impl Model {
    /// Adopts the core's values for the sizes in an event.
    pub(crate) fn hear_of_sizes(&mut self, core: &Core, event: &Event) {
        let state = core.programs();
        self.core_sizes = CoreSizes::default();
        let program = match event {
            Event::Program(ProgramEvent::StepArrived(arrival)) => {
                let step = state.steps.get(&arrival.step);
                // A step that was refused may have cost its program its placement before.
                let tokens = step.map_or_else(|| core.prompt_tokens(arrival), |s| s.prompt_tokens);
                self.core_sizes.prompt_tokens = Some(tokens);
                state.keys.get(&arrival.program).copied()
            }
            Event::Program(ProgramEvent::StepFinished { step, .. }) => {
                let program = self.steps.get(step).map(|s| s.program);
                self.core_sizes.shared = self.shared_by(core, program);
                program
            }
            _ => None,
        };
        self.core_sizes.forked = self.forked(core, program);
        let program = program.and_then(|program| state.live.get(&program));
        self.core_sizes.prefix = program.map(|p| p.prefix.clone());
    }

    /// What engines are taken to keep beyond their KV memory, in host memory of their own, is learnt:
    /// the model takes it over.
    pub(super) fn hear_of_reuse(&mut self, core: &Core) {
        for (id, known) in &core.programs().workers {
            if let Some(w) = self.workers.get_mut(id) {
                w.beyond_tokens = known.ledger.engine().beyond_tokens();
            }
        }
    }

    /// Several deadlines may have passed at once, and placements changed hands in an order that is
    /// not reported: what each shared part takes now is known to the core only.
    pub(super) fn hear_of_shared(&mut self, core: &Core) {
        for (id, known) in &core.programs().workers {
            let Some(w) = self.workers.get_mut(id) else {
                continue;
            };
            let shared = known.ledger.shared().iter();
            w.shared.extend(shared.map(|(hash, s)| (*hash, s.tokens)));
        }
    }

    /// Minimum number of tokens of a step's prompt. Nothing is refused because of an estimate.
    pub(super) fn least_of(&self, step: &StepFacts) -> u64 {
        if step.exact {
            return step.prompt_tokens;
        }
        (step.prompt_tokens / 2).min(self.longest_context())
    }

    fn forked(
        &self,
        core: &Core,
        concerned: Option<ProgramId>,
    ) -> Vec<(ProgramId, Vec<PrefixSegment>)> {
        let live = core.programs().live.iter();
        let others = live.filter(|(id, _)| Some(**id) != concerned);
        let changed = others.filter(|(id, p)| {
            let known = self.programs.get(id);
            known.is_some_and(|known| known.prefix != p.prefix)
        });
        changed.map(|(id, p)| (*id, p.prefix.clone())).collect()
    }

    /// What others share changes with it. What is new where they are placed is charged as they
    /// report.
    pub(super) fn take_over_forked(&mut self) {
        for (id, prefix) in std::mem::take(&mut self.core_sizes.forked) {
            let at = self.programs.get(&id).and_then(|p| p.place);
            let there = at.map(|at| self.programs_on(at)).unwrap_or_default();
            let there = there.iter().flat_map(|id| &self.programs[id].prefix);
            let there: BTreeSet<u64> = there.map(|segment| segment.hash).collect();
            let new = prefix.iter().filter(|s| !there.contains(&s.hash));
            if let Some(w) = at.and_then(|at| self.workers.get_mut(&at)) {
                w.shared.extend(new.map(|s| (s.hash, s.tokens)));
            }
            if let Some(p) = self.programs.get_mut(&id) {
                p.prefix = prefix;
            }
        }
    }

    fn shared_by(&self, core: &Core, program: Option<ProgramId>) -> Vec<(u64, u64)> {
        let p = program.and_then(|program| self.programs.get(&program));
        let Some((p, at)) = p.and_then(|p| Some((p, p.place?))) else {
            return Vec::new();
        };
        let known = core.programs().workers.get(&at).map(|w| w.ledger.shared());
        let tokens = |hash: u64| Some((hash, known?.get(&hash)?.tokens));
        p.prefix.iter().filter_map(|s| tokens(s.hash)).collect()
    }

    /// An engine has counted a prompt: its program's prefix is no more than that.
    pub(super) fn recount_prefix(&mut self, program: ProgramId, counted: u64) -> Checked {
        let (core_sizes, Some(p)) = (
            std::mem::take(&mut self.core_sizes),
            self.programs.get_mut(&program),
        ) else {
            return Ok(());
        };
        if let Some(w) = p.place.and_then(|at| self.workers.get_mut(&at)) {
            w.shared.extend(core_sizes.shared);
        }
        let Some(prefix) = core_sizes.prefix else {
            return Ok(());
        };
        p.prefix = prefix;
        let shared = p.prefix_tokens();
        if shared > counted {
            return broken(
                "sizes",
                format!("{program} shares {shared} tokens of a prompt of {counted}"),
            );
        }
        Ok(())
    }

    /// A program is placed: what only it shares there is charged as it reports.
    pub(super) fn share(&mut self, program: ProgramId, worker: WorkerId, prefix: &[PrefixSegment]) {
        let others = self.programs_on(worker).into_iter();
        let others = others.filter(|other| *other != program);
        let mut shared = BTreeMap::new();
        if let Some(w) = self.workers.get(&worker) {
            for s in others.flat_map(|other| &self.programs[&other].prefix) {
                shared.extend(w.shared.get(&s.hash).map(|tokens| (s.hash, *tokens)));
            }
        }
        for segment in prefix {
            shared.entry(segment.hash).or_insert(segment.tokens);
        }
        if let Some(w) = self.workers.get_mut(&worker) {
            w.shared = shared;
        }
    }

    /// Tokens of all prefixes of programs on a worker, each counted once.
    pub(super) fn shared_tokens(&self, w: &WorkerFacts, placed: &[ProgramId]) -> u64 {
        let prefixes = placed.iter().flat_map(|id| &self.programs[id].prefix);
        let shared: BTreeMap<u64, u64> = prefixes
            .map(|s| (s.hash, w.shared.get(&s.hash).copied().unwrap_or(s.tokens)))
            .collect();
        shared.values().sum()
    }
}
