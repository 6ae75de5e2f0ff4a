//! Passes over the waiting actions, and questions to the allocation policy.

use crate::Actions;
use crate::action::Action;
use crate::command::ActionCommand;
use crate::index::Needs;
use crate::pool::Pool;
use crate::question::{ElasticQuestion, RUNNING_MAX};
use crate::spec::ActionSpec;
use crate::state::{Ask, Timer};
use crate::trial::Trial;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ActionId, AskId, Span};

impl Actions {
    /// Starts the actions that can start, or asks the allocation policy about them.
    pub(crate) fn start_waiting(&mut self) {
        while self.state.pass_wanted && self.state.ask.is_none() {
            self.state.pass_wanted = false;
            self.pass();
        }
    }

    fn pass(&mut self) {
        let found = self.candidates();
        let elastic: BTreeSet<u32> = found
            .rows
            .iter()
            .filter_map(|id| self.choice(*id))
            .collect();
        let has_choice = |id: &ActionId| {
            let needs = self.index.needs.get(id);
            needs.is_some_and(|needs| elastic.contains(&needs.key))
        };
        let (asked, plain): (Vec<_>, Vec<_>) = found.rows.into_iter().partition(has_choice);
        for id in plain {
            let least = self.least(id);
            self.start(id, least, None);
        }
        if asked.is_empty() {
            self.state.pass_wanted |= found.more;
            self.watch_quotas(&found.short);
        } else {
            // The answer is followed by another pass.
            self.ask_elastic(asked);
        }
    }

    /// The key resource of an action that accepts several amounts of it.
    fn choice(&self, id: ActionId) -> Option<u32> {
        let spec = &self.state.live.get(&id)?.spec;
        let needs = self.index.needs.get(&id)?;
        let options = &spec.demands.get(needs.key_demand)?.options;
        (options.len() > 1).then_some(needs.key)
    }

    pub(crate) fn least(&self, id: ActionId) -> u64 {
        let needs = self.index.needs.get(&id);
        needs.map_or(0, Needs::least_of_key)
    }

    fn ask_elastic(&mut self, candidates: Vec<ActionId>) {
        let ask = AskId(self.state.next_ask);
        self.state.next_ask += 1;
        self.state.counters.asked += 1;
        let deadline = self.state.now + self.config.ask_deadline;
        let question = Box::new(self.question(&candidates));
        self.state.timers.arm(deadline, Timer::Ask(ask));
        self.state.ask = Some(Ask {
            ask,
            candidates,
            deadline,
        });
        self.command(ActionCommand::AskElastic {
            ask,
            question,
            deadline,
        });
    }

    /// The question about candidates, with those that come after them.
    pub(crate) fn question(&self, candidates: &[ActionId]) -> ElasticQuestion {
        let mut of_pool: BTreeMap<u32, usize> = BTreeMap::new();
        for needs in candidates.iter().filter_map(|id| self.index.needs.get(id)) {
            *of_pool.entry(needs.key).or_default() += 1;
        }
        let beyond: Vec<_> = of_pool.iter().map(|(pool, n)| (*pool, *n)).collect();
        let numbers: BTreeMap<u32, u32> = of_pool.keys().copied().zip(0..).collect();
        let mut question = ElasticQuestion {
            option_start: vec![0],
            ..ElasticQuestion::default()
        };
        for id in candidates {
            self.add_row(&mut question, *id, 1, &numbers);
        }
        for id in self.followers(&beyond) {
            self.add_row(&mut question, id, 0, &numbers);
        }
        self.add_pools(&mut question, candidates, &numbers);
        question
    }

    fn add_row(
        &self,
        question: &mut ElasticQuestion,
        id: ActionId,
        candidate: u8,
        numbers: &BTreeMap<u32, u32>,
    ) {
        let (Some(action), Some(needs)) = (self.state.live.get(&id), self.index.needs.get(&id))
        else {
            return;
        };
        let (spec, Some(number)) = (&*action.spec, numbers.get(&needs.key)) else {
            return;
        };
        question.action.push(id);
        question.pool.push(*number);
        question.candidate.push(candidate);
        let waited = self.state.now.since(action.submitted);
        question.waited_us.push(waited.micros());
        let known = self.state.profiles.of(&spec.job, &spec.kind);
        let total = self
            .state
            .pools
            .get(needs.key as usize)
            .map_or(0, Pool::total);
        let most = self.most_of(&needs.group, total).max(needs.least_of_key());
        let options = spec.demands[needs.key_demand].options.iter().enumerate();
        for (option, units) in options.filter(|(_, units)| **units <= most) {
            let said = spec.durations.get(option).copied();
            let learnt = || known?.get(units).map(|known| known.mean);
            let expected = said.or_else(learnt);
            question.option_units.push(count(*units));
            let expected = expected.and_then(|span| i64::try_from(span.micros()).ok());
            question.option_us.push(expected.unwrap_or(-1));
            let load = self.load_time(spec, needs.with(*units));
            question.option_load_us.push(load.micros());
        }
        question
            .option_start
            .push(question.option_units.len() as u32);
    }

    /// The time to load the service of an action that takes these resources onto its devices.
    pub(crate) fn load_time(
        &self,
        spec: &ActionSpec,
        takes: impl Iterator<Item = (u32, u64)>,
    ) -> Span {
        let Some(service) = &spec.service else {
            return Span(0);
        };
        let mut takes = takes.filter_map(|(pool, units)| {
            let devices = self.state.pools.get(pool as usize)?.devices.as_ref()?;
            Some((devices, units))
        });
        match (takes.next(), self.state.services.get(service)) {
            (Some((devices, units)), Some(known)) if !devices.is_held(service, units) => {
                known.load_on(units)
            }
            _ => Span(0),
        }
    }

    /// Adds what the resources have left for the rows: the candidates' minimum demands for non-key
    /// resources are subtracted.
    fn add_pools(
        &self,
        question: &mut ElasticQuestion,
        candidates: &[ActionId],
        numbers: &BTreeMap<u32, u32>,
    ) {
        let mut trial = Trial::of(self);
        for needs in candidates.iter().filter_map(|id| self.index.needs.get(id)) {
            for (demand, (pool, units)) in needs.least.iter().enumerate() {
                if demand != needs.key_demand {
                    trial.take_of(*pool, *units);
                }
            }
        }
        for (pool, number) in numbers {
            let (units, chunks) = trial.rest(*pool);
            question.free_units.push(count(units));
            question.chunked.push(u8::from(chunks.is_some()));
            question.free_chunks.extend(chunks.unwrap_or_default());
            let running = self.index.running.get(pool).into_iter().flatten();
            for (expected, id, units) in running.take(RUNNING_MAX) {
                let left = if expected.0 > 0 {
                    expected.since(self.state.now)
                } else {
                    self.state.live.get(id).map_or(Span(0), |a| self.elapsed(a))
                };
                question.running_pool.push(*number);
                question.running_units.push(count(*units));
                question.running_left_us.push(left.micros());
            }
        }
    }

    /// An action without statistics is expected to run for as long again.
    fn elapsed(&self, action: &Action) -> Span {
        let started = action.started();
        started.map_or(Span(0), |started| self.state.now.since(started.since))
    }
}

/// Units in the 32 bits that policies get.
fn count(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
