//! Faults at the loading of weights, beside the kills: each is set at an engine and happens at its
//! next load. Kills go on meanwhile, except for a lie: it is only found by comparison with engines
//! that have proven the version (`docs/weights.md`), so others must be there until the engine was
//! loaded again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::Method;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use treadle_engine_sim::LoadFault;

use super::api::Api;
use crate::error::ChaosError;
use crate::fixture::{Fixture, engine_record};
use crate::options::Options;
use crate::record::Record;

/// The record of what was set, in the folder of the run.
pub(crate) const LOAD_FAULTS: &str = "load-faults.jsonl";
/// Where a simulated engine is told how its next load fails.
const PATH: &str = "/sim/load-fault";
const KINDS: [LoadFault; 4] = [
    LoadFault::Refuse,
    LoadFault::Tear,
    LoadFault::Lose,
    LoadFault::Lie,
];
/// How long kills wait for a fault.
const WAIT_MAX: Duration = Duration::from_mins(2);

/// A fault that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    /// The number of the kill that follows it.
    before: usize,
    engine: usize,
    fault: LoadFault,
}

/// A fault that was set and is not over.
#[derive(Clone, Copy)]
struct Pending {
    due: Due,
    /// How often it had happened there before.
    happened: usize,
}

/// The faults of a run.
pub(crate) struct LoadFaults {
    daemon: Api,
    engines: Vec<Api>,
    folder: PathBuf,
    record: Record,
    left: VecDeque<Due>,
    pending: Option<Pending>,
    /// Since when a kill waits.
    waits_since: Option<Instant>,
}

impl LoadFaults {
    /// Each kind as often as other processes are killed, spread over the kills.
    pub(crate) fn new(
        fixture: &Fixture,
        options: &Options,
        folder: &Path,
        kills: usize,
    ) -> Result<Self, ChaosError> {
        let (engines, _) = fixture.sizes();
        Ok(Self {
            daemon: super::api(fixture),
            engines: fixture.engine_urls().into_iter().map(Api::new).collect(),
            folder: folder.to_owned(),
            record: Record::create(&folder.join(LOAD_FAULTS))?,
            left: plan(options.seed, options.kills, kills, engines),
            pending: None,
            waits_since: None,
        })
    }

    /// Goes on with the faults that are due before a kill; whether it need not wait for them.
    pub(crate) async fn look(&mut self, kill: usize) -> Result<bool, ChaosError> {
        if self.go_on(kill).await? {
            self.waits_since = None;
            return Ok(true);
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() > WAIT_MAX {
            self.waits_since = None;
            self.give_up().await?;
        }
        Ok(false)
    }

    /// Clears faults that were set and have not happened.
    pub(crate) async fn calm(&self) {
        for engine in &self.engines {
            engine.once(Method::DELETE, PATH, &[], &Value::Null).await;
        }
    }

    async fn go_on(&mut self, kill: usize) -> Result<bool, ChaosError> {
        while let Some(due) = self.left.front().copied() {
            if due.before > kill {
                break;
            }
            if !self.is_settled().await? || !self.set(due).await? {
                return Ok(false);
            }
        }
        let is_last = kill == usize::MAX;
        let is_waited_for = |pending: Pending| is_last || is_compared(pending.due.fault);
        if self.pending.is_some_and(is_waited_for) {
            return self.is_settled().await;
        }
        Ok(true)
    }

    /// Sets a fault; one that is found by comparison once all engines serve.
    async fn set(&mut self, due: Due) -> Result<bool, ChaosError> {
        let weights = self.weights().await?;
        if is_compared(due.fault) && !self.all_serve(&weights) {
            return Ok(false);
        }
        let happened = self.happened(due)?;
        if !self.tell(due).await {
            return Ok(false);
        }
        self.left.pop_front();
        self.pending = Some(Pending { due, happened });
        let (engine, fault) = (due.engine, due.fault);
        let line = json!({"kind": "set", "engine": engine, "fault": fault});
        self.record.add(&line)?;
        Ok(true)
    }

    /// Whether the last one has happened, and what must follow it.
    async fn is_settled(&mut self) -> Result<bool, ChaosError> {
        let Some(Pending { due, happened }) = self.pending else {
            return Ok(true);
        };
        self.weights().await?;
        // First what it is about to do: what it has done since is on record.
        let shown = self.shown(due.engine).await;
        if self.happened(due)? == happened {
            if shown["fault"] == json!(LoadFault::None) {
                // It was killed, and has forgotten it.
                self.tell(due).await;
            }
            return Ok(false);
        }
        if is_compared(due.fault) && self.shown(due.engine).await["whole"] != true {
            return Ok(false);
        }
        self.pending = None;
        Ok(true)
    }

    /// The engines' weights as the daemon shows them. One that gets no steps has to say why.
    async fn weights(&self) -> Result<Value, ChaosError> {
        let shown = show(&self.daemon, "weights").await;
        for worker in silent(&shown) {
            let what = format!("an engine gets no steps and does not say why: {worker}");
            let line = json!({"kind": "violation", "what": what});
            self.record.add(&line)?;
        }
        Ok(shown)
    }

    fn all_serve(&self, weights: &Value) -> bool {
        let workers = weights["workers"].as_array().map_or(&[][..], Vec::as_slice);
        let all_serve = workers.iter().all(|worker| worker["fenced"] == false);
        all_serve && workers.len() == self.engines.len()
    }

    async fn tell(&self, due: Due) -> bool {
        let body = json!({"fault": due.fault});
        let told = self.engines[due.engine].once(Method::PUT, PATH, &[], &body);
        told.await.is_some_and(|reply| reply.status.is_success())
    }

    /// The fault of an engine's next load, and whether its weights are whole.
    async fn shown(&self, engine: usize) -> Value {
        show(&self.engines[engine], PATH).await
    }

    /// How often an engine has failed like this.
    fn happened(&self, due: Due) -> Result<usize, ChaosError> {
        let path = engine_record(&self.folder, due.engine);
        let lines = std::fs::read_to_string(&path);
        let lines = lines.map_err(ChaosError::file(path.display().to_string()))?;
        let mark = format!("\"fault\":{}", json!(due.fault));
        Ok(lines.lines().filter(|line| line.contains(&mark)).count())
    }

    async fn give_up(&mut self) -> Result<(), ChaosError> {
        let due = self.pending.take().map(|pending| pending.due);
        let due = due.or_else(|| self.left.pop_front());
        let weights = self.weights().await?;
        let what = format!("after {WAIT_MAX:?} {due:?} is not over: {weights}");
        self.record.add(&json!({"kind": "stuck", "what": what}))
    }
}

/// Whether only a comparison with other engines finds a fault.
fn is_compared(fault: LoadFault) -> bool {
    fault == LoadFault::Lie
}

/// A page, or nothing.
async fn show(api: &Api, path: &str) -> Value {
    let reply = api.once(Method::GET, path, &[], &Value::Null).await;
    reply.map(|reply| reply.json()).unwrap_or_default()
}

/// Engines that get no steps and give no reason.
fn silent(weights: &Value) -> impl Iterator<Item = &Value> {
    let workers = weights["workers"].as_array().into_iter().flatten();
    workers.filter(|worker| worker["fenced"] == true && worker["cause"].is_null())
}

/// Each kind `each` times, in a seeded order, at seeded engines.
fn plan(seed: u64, each: u32, kills: usize, engines: usize) -> VecDeque<Due> {
    // Another stream than that of the kills.
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ (1 << 40));
    let kinds = KINDS.into_iter();
    let mut faults: Vec<LoadFault> = kinds
        .flat_map(|fault| std::iter::repeat_n(fault, each as usize))
        .collect();
    faults.shuffle(&mut random);
    let count = faults.len();
    let due = |(at, fault): (usize, LoadFault)| Due {
        before: kills * (at + 1) / (count + 1),
        engine: random.random_range(0..engines),
        fault,
    };
    faults.into_iter().enumerate().map(due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_each_kind_its_share() {
        let faults = plan(7, 3, 145, 3);
        assert_eq!(faults, plan(7, 3, 145, 3));
        assert_ne!(faults, plan(8, 3, 145, 3));
        for kind in KINDS {
            assert_eq!(faults.iter().filter(|due| due.fault == kind).count(), 3);
        }
        assert!(faults.iter().all(|due| due.before < 145 && due.engine < 3));
        assert!(faults.iter().is_sorted_by_key(|due| due.before));
        assert!(plan(7, 0, 1, 3).is_empty());
    }

    #[test]
    fn an_engine_that_gets_no_steps_says_why() {
        let weights = |fenced: bool, cause: Value| {
            let worker = json!({"fenced": fenced, "cause": cause});
            silent(&json!({"workers": [worker]})).count()
        };
        assert_eq!(weights(true, json!("it lied")), 0);
        assert_eq!(weights(false, Value::Null), 0);
        assert_eq!(weights(true, Value::Null), 1);
    }
}
