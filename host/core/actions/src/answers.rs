//! Answers of the allocation policy, and the core's own answer if none came or it is not feasible.

use crate::Actions;
use crate::question::ElasticAnswer;
use crate::state::{Ask, Timer};
use crate::trial::Trial;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ActionId, AskId, PolicyRef};

/// Units of the key resource for each candidate; none for those that wait.
type Plan = Vec<(ActionId, Option<u64>)>;

impl Actions {
    pub(crate) fn elastic_answered(
        &mut self,
        ask: AskId,
        policy: &PolicyRef,
        answer: &ElasticAnswer,
    ) {
        // The question of a late answer is gone.
        let Some(open) = self.state.ask.take_if(|open| open.ask == ask) else {
            return;
        };
        self.state.timers.disarm(open.deadline, Timer::Ask(ask));
        let rows = self.still_waiting(&open);
        let (plan, mut corrected) = self.plan(&rows, answer);
        if let Some(starts) = self.try_out(&plan, &mut corrected) {
            self.state.counters.corrected += u64::from(corrected);
            self.carry_out(&rows, &starts, Some(policy));
        } else {
            self.state.counters.corrected += 1;
            self.answer_self(&rows);
        }
    }

    /// No answer came in time: the core answers itself.
    pub(crate) fn ask_expired(&mut self, ask: AskId) {
        if let Some(open) = self.state.ask.take_if(|open| open.ask == ask) {
            self.state.counters.unanswered += 1;
            let rows = self.still_waiting(&open);
            self.answer_self(&rows);
        }
    }

    fn still_waiting(&self, open: &Ask) -> Vec<ActionId> {
        let waits = |id: &ActionId| {
            let action = self.state.live.get(id);
            action.is_some_and(|action| action.rank().is_some())
        };
        let rows = open.candidates.iter().copied();
        rows.filter(waits).collect()
    }

    /// Starts every candidate with its minimum.
    fn answer_self(&mut self, rows: &[ActionId]) {
        let mut trial = Trial::of(self);
        let mut starts = Vec::new();
        for id in rows {
            let Some(needs) = self.index.needs.get(id) else {
                continue;
            };
            let least = needs.least_of_key();
            if trial.take(needs, least) {
                starts.push((*id, least));
            } else {
                trial.block(needs);
            }
        }
        self.carry_out(rows, &starts, None);
    }

    /// Turns an answer into a plan: amounts that each action accepts, and the minimum for those
    /// that may not wait. Also returns whether the answer had to be corrected.
    fn plan(&self, rows: &[ActionId], answer: &ElasticAnswer) -> (Plan, bool) {
        let asked: BTreeSet<ActionId> = rows.iter().copied().collect();
        let mut named: BTreeMap<ActionId, u64> = BTreeMap::new();
        let mut corrected = false;
        for (id, units) in &answer.start {
            if !asked.contains(id) || named.contains_key(id) {
                corrected = true;
            } else {
                named.insert(*id, u64::from(*units));
            }
        }
        let mut firsts = BTreeSet::new();
        let mut plan = Plan::new();
        for id in rows {
            let least = self.least(*id);
            let is_first = firsts.insert(self.queue_of(*id));
            let units = match named.get(id) {
                Some(units) if self.can_do_with(*id, *units) => Some(*units),
                None if !is_first && !self.is_starved(*id) => None,
                _ => {
                    corrected = true;
                    Some(least)
                }
            };
            plan.push((*id, units));
        }
        (plan, corrected)
    }

    /// Its key resource; if groups share, with its group. The head of each starts in any case.
    fn queue_of(&self, id: ActionId) -> Option<(u32, &str)> {
        let needs = self.index.needs.get(&id)?;
        let group = self.state.shares.as_ref().map_or("", |_| &*needs.group);
        Some((needs.key, group))
    }

    fn can_do_with(&self, id: ActionId, units: u64) -> bool {
        let action = self.state.live.get(&id);
        let demand = action.and_then(|a| a.spec.demands.get(a.spec.key_demand()));
        demand.is_some_and(|demand| demand.options.contains(&units))
    }

    pub(crate) fn is_starved(&self, id: ActionId) -> bool {
        let action = self.state.live.get(&id);
        let waited = action.map(|action| self.state.now.since(action.submitted));
        waited.is_some_and(|waited| waited >= self.config.starvation)
    }

    /// The part of a plan that can be started; none if it exceeds what is free. Nothing is started
    /// behind an action that waits for the same key resource.
    fn try_out(&self, plan: &Plan, corrected: &mut bool) -> Option<Vec<(ActionId, u64)>> {
        let mut trial = Trial::of(self);
        let mut starts = Vec::new();
        for (id, units) in plan {
            let Some(needs) = self.index.needs.get(id) else {
                continue;
            };
            let Some(units) = units else {
                trial.set_aside(needs);
                continue;
            };
            if trial.is_blocked(needs) {
                *corrected = true;
                trial.set_aside(needs);
            } else if trial.take(needs, *units) {
                starts.push((*id, *units));
            } else if trial.is_within_share(needs, *units) {
                return None;
            } else {
                *corrected = true;
                match self.most_within_share(&trial, *id) {
                    Some(units) if trial.take(needs, units) => starts.push((*id, units)),
                    _ => trial.set_aside(needs),
                }
            }
        }
        Some(starts)
    }

    /// The largest amount of its key resource that an action can get within its group's share.
    fn most_within_share(&self, trial: &Trial<'_>, id: ActionId) -> Option<u64> {
        let needs = self.index.needs.get(&id)?;
        let spec = &self.state.live.get(&id)?.spec;
        let options = spec.demands.get(needs.key_demand)?.options.iter().rev();
        let mut options = options.filter(|units| trial.short_of(needs, **units).is_none());
        options
            .find(|units| trial.is_within_share(needs, **units))
            .copied()
    }

    fn carry_out(
        &mut self,
        rows: &[ActionId],
        starts: &[(ActionId, u64)],
        policy: Option<&PolicyRef>,
    ) {
        let mut left_out: BTreeSet<ActionId> = rows.iter().copied().collect();
        for (id, units) in starts {
            self.start(*id, *units, policy);
            left_out.remove(id);
        }
        // Changes since the question was asked may allow more of them to start.
        if !self.state.pass_wanted {
            self.state.held_back = left_out;
        }
        self.state.pass_wanted = true;
    }
}
