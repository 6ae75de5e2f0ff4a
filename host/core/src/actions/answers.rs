//! Answers of the allocation policy, and the core's own where none came or it does not hold.

use crate::actions::Actions;
use crate::actions::question::ElasticAnswer;
use crate::actions::state::{Ask, Timer};
use crate::actions::trial::Trial;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ActionId, AskId, PolicyRef};

/// What each candidate is to start with; none for those that wait.
type Plan = Vec<(ActionId, Option<u64>)>;

impl Actions {
    pub(crate) fn elastic_answered(
        &mut self,
        ask: AskId,
        policy: &PolicyRef,
        answer: &ElasticAnswer,
    ) {
        // An answer that comes after the deadline finds its question gone.
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

    /// No answer came in time.
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

    /// Everybody with the least that it can do with.
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

    /// What an answer comes to: amounts that an action can do with, and the least for those that may
    /// not wait. Whether anything of it had to be put right.
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

    /// Its key resource; where groups share, with its group: the first of each goes in any case.
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

    /// What can be started of a plan; none where it takes more than there is. Nobody is started
    /// after one that waits for the same key resource.
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

    /// The most that an action can have of its key resource within its group's share.
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
        // What changed since the question was asked may make more of them possible.
        if !self.state.pass_wanted {
            self.state.held_back = left_out;
        }
        self.state.pass_wanted = true;
    }
}
