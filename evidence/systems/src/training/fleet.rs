//! Engines of several classes: where programs run, and what an update of the weights does to their
//! requests.
//!
//! A program stays on the engine with the fewest programs when it begins, among those of the class
//! that its domain is bound to. That is the smallest router that keeps prefixes, and all systems have
//! it.

use super::hardware::Hardware;
use std::collections::{BTreeMap, BTreeSet};
use treadle_engine_model::engine::{Engine, Output, RequestId, RequestSpec};
use treadle_engine_model::hardware::HardwareError;

/// A request that an engine has, or gets once it has its weights.
#[derive(Clone, Debug)]
struct Request {
    prompt: u32,
    output: u32,
    /// Tokens that it had sampled when weights changed under it.
    kept: u32,
    /// Tokens that were reported since.
    seen: u32,
}

struct Unit {
    engine: Engine,
    /// The accelerator's name.
    class: &'static str,
    programs: BTreeSet<usize>,
    requests: BTreeMap<RequestId, Request>,
}

/// What an engine reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Report {
    /// The first token of a program's request.
    First(usize),
    /// Tokens that a program's request has sampled so far.
    Tokens(usize, u64),
    /// The request of a program is complete.
    Done(usize),
}

/// All engines.
pub(super) struct Fleet {
    units: Vec<Unit>,
    /// Engine of each program.
    homes: BTreeMap<usize, usize>,
    /// Engines load weights.
    paused: bool,
    /// What prefixes depend on: caches of other weights are never reused.
    salt: u64,
}

impl Fleet {
    /// Engines that report the tokens of running steps in pieces of this size.
    pub(super) fn new(hardware: &Hardware, report_tokens: u32) -> Result<Self, HardwareError> {
        let mut units = Vec::new();
        for class in &hardware.classes {
            let mut profile = hardware.profile(class)?;
            profile.stream_interval_tokens = report_tokens;
            for _ in 0..class.engines {
                units.push(Unit {
                    engine: Engine::new(profile.clone()),
                    class: class.gpu.name,
                    programs: BTreeSet::new(),
                    requests: BTreeMap::new(),
                });
            }
        }
        Ok(Self {
            units,
            homes: BTreeMap::new(),
            paused: false,
            salt: 0,
        })
    }

    /// A program begins; `class` is what its domain is bound to.
    pub(super) fn admit(&mut self, program: usize, class: Option<&str>) {
        let fewest = |only: Option<&str>| {
            let units = self.units.iter().enumerate();
            let open = units.filter(|(_, unit)| only.is_none_or(|class| unit.class == class));
            let least = open.min_by_key(|(at, unit)| (unit.programs.len(), *at));
            least.map(|(at, _)| at)
        };
        let Some(home) = class
            .and_then(|class| fewest(Some(class)))
            .or_else(|| fewest(None))
        else {
            return;
        };
        self.homes.insert(program, home);
        self.units[home].programs.insert(program);
    }

    /// A program is over: what it still runs is ended.
    pub(super) fn release(&mut self, program: usize, now_us: u64) {
        let Some(home) = self.homes.remove(&program) else {
            return;
        };
        let unit = &mut self.units[home];
        unit.programs.remove(&program);
        if unit.requests.remove(&(program as u64)).is_some() && !self.paused {
            unit.engine.advance(now_us, &mut Vec::new());
            unit.engine.abort(now_us, program as u64);
        }
    }

    /// A program's next step.
    pub(super) fn submit(&mut self, program: usize, prompt: u32, output: u32, now_us: u64) {
        let Some(home) = self.homes.get(&program) else {
            return;
        };
        let request = Request {
            prompt,
            output,
            kept: 0,
            seen: 0,
        };
        let unit = &mut self.units[*home];
        if !self.paused {
            unit.send(program as u64, &request, self.salt, now_us);
        }
        unit.requests.insert(program as u64, request);
    }

    /// When an engine has something to report.
    pub(super) fn next_at(&self) -> Option<u64> {
        let units = self.units.iter().filter(|_| !self.paused);
        units.filter_map(|unit| unit.engine.next_event_at()).min()
    }

    /// Lets all engines run up to now.
    pub(super) fn advance(&mut self, now_us: u64) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut outputs = Vec::new();
        for unit in &mut self.units {
            let is_due = unit.engine.next_event_at().is_some_and(|at| at <= now_us);
            if !is_due || self.paused {
                continue;
            }
            unit.engine.advance(now_us, &mut outputs);
            for output in outputs.drain(..) {
                reports.extend(unit.read(&output));
            }
        }
        reports
    }

    /// Engines stop; what they sampled so far is kept.
    pub(super) fn pause(&mut self, now_us: u64) {
        for unit in &mut self.units {
            unit.engine.advance(now_us, &mut Vec::new());
            for (id, request) in &mut unit.requests {
                if let Some(ended) = unit.engine.abort(now_us, *id) {
                    // One token is always left: its end is reported after the update.
                    let sampled = request.kept + ended.output_tokens;
                    request.kept = sampled.min(request.output - 1);
                    request.seen = 0;
                }
            }
        }
        self.paused = true;
    }

    /// Engines run on with new weights; prefixes of all requests are computed again.
    pub(super) fn resume(&mut self, salt: u64, now_us: u64) {
        self.paused = false;
        self.salt = salt;
        for unit in &mut self.units {
            let requests = std::mem::take(&mut unit.requests);
            for (id, request) in &requests {
                unit.send(*id, request, salt, now_us);
            }
            unit.requests = requests;
        }
    }

    /// Share of the engines' time that they computed.
    pub(super) fn busy_share(&self, now_us: u64) -> f64 {
        let busy = self
            .units
            .iter()
            .map(|of| of.engine.snapshot().counters.busy_us);
        busy.sum::<u64>() as f64 / (now_us.max(1) * self.units.len().max(1) as u64) as f64
    }
}

impl Unit {
    fn send(&mut self, id: RequestId, request: &Request, salt: u64, now_us: u64) {
        let (prompt, output) = (request.prompt + request.kept, request.output - request.kept);
        let block_tokens = self.engine.profile().block_tokens.max(1);
        let blocks = (prompt + output) / block_tokens;
        let of_program = (id << 32) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let spec = RequestSpec {
            id,
            prompt_tokens: prompt.max(1),
            output_tokens: output.max(1),
            blocks: (0..u64::from(blocks)).map(|at| of_program ^ at).collect(),
            priority: 0,
        };
        self.engine.advance(now_us, &mut Vec::new());
        // Trajectories are shorter than any engine's longest context.
        let sent = self.engine.submit(now_us, spec);
        debug_assert!(sent.is_ok(), "{sent:?}");
    }

    fn read(&mut self, output: &Output) -> Option<Report> {
        match output {
            Output::FirstToken { id, .. } => {
                self.requests.get_mut(id)?.seen += 1;
                Some(Report::First(*id as usize))
            }
            Output::Tokens { id, count, .. } => {
                let request = self.requests.get_mut(id)?;
                request.seen += count;
                let tokens = u64::from(request.kept + request.seen);
                Some(Report::Tokens(*id as usize, tokens))
            }
            Output::Preempted { .. } => None,
            Output::Finished(finished) => {
                self.requests.remove(&finished.id)?;
                Some(Report::Done(finished.id as usize))
            }
        }
    }
}
