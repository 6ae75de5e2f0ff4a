//! A machine of actions as plain as can be: first come, first served, one resource for each action,
//! nothing that fails. It is independent of the core's, to compare that one with.

mod devices;
mod sharing;

pub use sharing::Greedy;

use super::machine::Machine;
use devices::Devices;
use std::collections::{BTreeMap, VecDeque};
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Chunk, ElasticAnswer, ElasticQuestion, Grant, Load,
    Supply,
};
use treadle_model::{ActionId, AskId, Timestamp};

/// Candidates that a question has at most, as the core's by default.
const CANDIDATES_MAX: usize = 64;
/// Waiting actions behind them.
const FOLLOWERS_MAX: usize = 64;

#[derive(Debug)]
enum Stock {
    Units(u64),
    Devices(Devices),
    Quota {
        concurrent: u64,
        requests_max: Option<u64>,
        period_us: u64,
        recent: VecDeque<u64>,
    },
}

#[derive(Debug)]
struct Pool {
    name: Box<str>,
    stock: Stock,
    waiting: VecDeque<u64>,
}

#[derive(Debug)]
struct Running {
    pool: usize,
    units: u64,
    chunk: Option<Chunk>,
    began_us: u64,
    expected_us: u64,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Plain {
    pools: Vec<Pool>,
    loads_us: BTreeMap<Box<str>, u64>,
    specs: BTreeMap<u64, (ActionSpec, u64)>,
    running: BTreeMap<u64, Running>,
    /// Number and sum of the times of each kind.
    known: BTreeMap<Box<str>, (u64, u64)>,
    commands: VecDeque<ActionCommand>,
    asks: u64,
    now_us: u64,
}

impl Machine for Plain {
    fn handle(&mut self, now: Timestamp, event: &ActionEvent) {
        self.now_us = self.now_us.max(now.0);
        match event {
            ActionEvent::ResourcesSet { resources } => {
                let pool = |resource: &treadle_core::actions::Resource| Pool {
                    name: resource.name.clone(),
                    stock: stock(&resource.supply),
                    waiting: VecDeque::new(),
                };
                self.pools = resources.iter().map(pool).collect();
            }
            ActionEvent::ServiceDeclared { service, load } => {
                self.loads_us.insert(service.clone(), load.micros());
            }
            ActionEvent::ActionSubmitted { action, spec } => {
                let wanted = &spec.demands[0].resource;
                let Some(pool) = self.pools.iter().position(|pool| pool.name == *wanted) else {
                    return;
                };
                self.specs.insert(action.0, ((**spec).clone(), self.now_us));
                self.pools[pool].waiting.push_back(action.0);
                self.settle(pool);
            }
            ActionEvent::ActionEnded { action, .. } => self.ended(action.0),
            ActionEvent::ElasticAnswered { answer, .. } => self.answered(answer),
            ActionEvent::ActionBegan { .. }
            | ActionEvent::ActionCancelled { .. }
            | ActionEvent::QuotaRefused { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<ActionCommand> {
        self.commands.pop_front()
    }

    fn deadline(&self) -> Option<Timestamp> {
        let opens = |pool: &Pool| match &pool.stock {
            Stock::Quota {
                recent, period_us, ..
            } if !pool.waiting.is_empty() => recent.front().map(|at| Timestamp(at + period_us)),
            _ => None,
        };
        self.pools.iter().filter_map(opens).min()
    }

    fn wake(&mut self, now: Timestamp) {
        self.now_us = self.now_us.max(now.0);
        for pool in 0..self.pools.len() {
            self.settle(pool);
        }
    }
}

fn stock(supply: &Supply) -> Stock {
    match supply {
        Supply::Units { total } => Stock::Units(*total),
        Supply::Devices { nodes } => Stock::Devices(Devices::new(nodes)),
        Supply::Quota {
            concurrent_max,
            requests_max,
            period,
        } => Stock::Quota {
            concurrent: concurrent_max.unwrap_or(u64::MAX / 2),
            requests_max: *requests_max,
            period_us: period.micros(),
            recent: VecDeque::new(),
        },
    }
}

impl Plain {
    /// Units that a pool has left.
    fn free(&mut self, pool: usize) -> u64 {
        let now_us = self.now_us;
        match &mut self.pools[pool].stock {
            Stock::Units(free) => *free,
            Stock::Devices(devices) => u64::from(devices.free_units()),
            Stock::Quota {
                concurrent,
                requests_max,
                period_us,
                recent,
            } => {
                while recent.front().is_some_and(|at| at + *period_us <= now_us) {
                    recent.pop_front();
                }
                let left = requests_max.map(|most| most.saturating_sub(recent.len() as u64));
                left.map_or(*concurrent, |left| left.min(*concurrent))
            }
        }
    }

    /// Starts what can start at once; asks where some could have more than the least.
    fn settle(&mut self, pool: usize) {
        let mut free = self.free(pool);
        let mut candidates = 0;
        let mut elastic = false;
        for id in self.pools[pool].waiting.iter().take(CANDIDATES_MAX) {
            let options = &self.specs[id].0.demands[0].options;
            if options[0] > free {
                break;
            }
            free -= options[0];
            candidates += 1;
            elastic |= options.len() > 1;
        }
        if candidates == 0 {
            return;
        }
        if elastic {
            let question = Box::new(self.question(pool, candidates));
            self.asks += 1;
            let ask = AskId(self.asks);
            self.commands
                .push_back(ActionCommand::AskElastic { ask, question });
            return;
        }
        for _ in 0..candidates {
            if let Some(id) = self.pools[pool].waiting.pop_front() {
                self.start(pool, id, None);
            }
        }
    }

    fn question(&mut self, pool: usize, candidates: usize) -> ElasticQuestion {
        let mut question = ElasticQuestion {
            option_start: vec![0],
            free_units: vec![self.free(pool) as u32],
            ..ElasticQuestion::default()
        };
        let waiting = self.pools[pool].waiting.iter();
        for (row, id) in waiting.take(candidates + FOLLOWERS_MAX).enumerate() {
            let (spec, since_us) = &self.specs[id];
            question.action.push(ActionId(*id));
            question.pool.push(0);
            question.candidate.push(u8::from(row < candidates));
            question.waited_us.push(self.now_us - since_us);
            for (index, units) in spec.demands[0].options.iter().enumerate() {
                let known = self.expected_us(spec, index);
                question.option_units.push(*units as u32);
                question.option_us.push(known.map_or(-1, u64::cast_signed));
                question
                    .option_load_us
                    .push(self.load_us(pool, spec, *units as u32));
            }
            question
                .option_start
                .push(question.option_units.len() as u32);
        }
        let chunks = match &self.pools[pool].stock {
            Stock::Devices(devices) => Some(devices.free_chunks()),
            Stock::Units(_) | Stock::Quota { .. } => None,
        };
        question.chunked = vec![u8::from(chunks.is_some())];
        question.free_chunks = chunks.unwrap_or_default().to_vec();
        for running in self.running.values().filter(|running| running.pool == pool) {
            let ends_us = running.began_us + running.expected_us;
            question.running_pool.push(0);
            question.running_units.push(running.units as u32);
            question
                .running_left_us
                .push(ends_us.saturating_sub(self.now_us));
        }
        question
    }

    fn expected_us(&self, spec: &ActionSpec, option: usize) -> Option<u64> {
        let told = spec.durations.get(option).map(|span| span.micros());
        let learnt = || {
            let (count, sum_us) = self.known.get(&spec.kind)?;
            Some(sum_us / count)
        };
        told.or_else(learnt)
    }

    fn load_us(&self, pool: usize, spec: &ActionSpec, units: u32) -> u64 {
        match (&self.pools[pool].stock, &spec.service) {
            (Stock::Devices(devices), Some(service)) if !devices.has(units, service) => {
                self.loads_us.get(service).copied().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn answered(&mut self, answer: &ElasticAnswer) {
        let mut last = None;
        for (action, units) in &answer.start {
            let found = (0..self.pools.len()).find_map(|pool| {
                let waiting = &self.pools[pool].waiting;
                let place = waiting.iter().position(|id| *id == action.0)?;
                Some((pool, place))
            });
            if let Some((pool, place)) = found
                && self.start(pool, action.0, Some(u64::from(*units)))
            {
                self.pools[pool].waiting.remove(place);
                last = Some(pool);
            }
        }
        // There may be more behind those that were asked for.
        if let Some(pool) = last
            && answer.start.len() == CANDIDATES_MAX
        {
            self.settle(pool);
        }
    }

    /// Starts an action with so many units, with the least where none are given.
    fn start(&mut self, pool: usize, id: u64, units: Option<u64>) -> bool {
        let (spec, _) = &self.specs[&id];
        let options = &spec.demands[0].options;
        let units = units.unwrap_or(options[0]);
        let option = options.iter().position(|option| *option == units);
        let expected_us = option.and_then(|option| self.expected_us(spec, option));
        let service = spec.service.clone().unwrap_or_default();
        let (mut chunk, mut load) = (None, None);
        let now_us = self.now_us;
        match &mut self.pools[pool].stock {
            Stock::Units(free) if *free >= units => *free -= units,
            Stock::Units(_) => return false,
            Stock::Devices(devices) => {
                let Some((taken, evicted)) = devices.take(units as u32, &service) else {
                    return false;
                };
                chunk = Some(taken);
                load = evicted.map(|evicted| Load {
                    service: service.clone(),
                    evicted,
                });
            }
            Stock::Quota {
                concurrent, recent, ..
            } => {
                *concurrent -= 1;
                recent.push_back(now_us);
            }
        }
        self.running.insert(
            id,
            Running {
                pool,
                units,
                chunk,
                began_us: now_us,
                expected_us: expected_us.unwrap_or(0),
            },
        );
        self.commands.push_back(ActionCommand::StartAction {
            action: ActionId(id),
            attempt: 1,
            grants: vec![Grant {
                resource: self.pools[pool].name.clone(),
                units,
                chunk,
            }],
            load,
        });
        true
    }

    fn ended(&mut self, id: u64) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        match (&mut self.pools[running.pool].stock, running.chunk) {
            (Stock::Units(free), _) => *free += running.units,
            (Stock::Devices(devices), Some(chunk)) => devices.give_back(chunk),
            (Stock::Quota { concurrent, .. }, _) => *concurrent += 1,
            (Stock::Devices(_), None) => {}
        }
        if let Some((spec, _)) = self.specs.remove(&id) {
            let (count, sum_us) = self.known.entry(spec.kind).or_default();
            *count += 1;
            *sum_us += self.now_us - running.began_us;
        }
        self.commands.push_back(ActionCommand::AnswerAction {
            action: ActionId(id),
        });
        self.settle(running.pool);
    }
}

#[cfg(test)]
mod tests;
