//! What must be true while weights are updated, by what engines really have.

use super::engines::{Content, Engine, Seen};
use crate::plan::SECOND_US;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use treadle_core::Core;
use treadle_core::weights::{Holding, JobWeights, Stage, Weights};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{Timestamp, WorkerId};

/// How long a pause waits for steps that were cut.
const CUTS_US: u64 = 10 * SECOND_US;

/// A version of the weights.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Version {
    pub(super) lineage: u32,
    pub(super) number: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lineage, self.number)
    }
}

impl Version {
    pub(super) fn of(weights: &Weights) -> Self {
        Self {
            lineage: weights.lineage,
            number: weights.version,
        }
    }

    /// The name that a trainer gives it which drives updates by itself.
    pub(super) fn plain_name(self) -> Box<str> {
        self.number.to_string().into()
    }
}

/// A token, as it was sampled.
#[derive(Clone, Debug)]
pub(super) struct Sampled {
    pub(super) content: Content,
    /// The version that the engine named for it.
    pub(super) name: Box<str>,
    /// The engine had lied, and nothing could show it.
    pub(super) excused: bool,
}

/// What is kept to check the next event against.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The newest version in service so far, of weights and of the run.
    served: Version,
    told: Version,
    /// The batch that each lineage but the first began at.
    began_at: Vec<u64>,
}

impl Model {
    pub(super) fn went_back(&mut self, batch: u64) {
        self.began_at.push(batch);
    }

    /// Whether a number means this version in a lineage: lineages share what was trained before
    /// they parted.
    fn is_same(&self, version: Version, lineage: u32, number: u64) -> bool {
        let (first, last) = (version.lineage.min(lineage), version.lineage.max(lineage));
        let parted = self
            .began_at
            .iter()
            .take(last as usize)
            .skip(first as usize);
        version.number == number && parted.min().is_none_or(|parted| number <= *parted)
    }

    /// A captured token was sampled by a version within the bounds that were recorded for it.
    pub(super) fn captured(
        &self,
        token: &Sampled,
        lineage: u32,
        oldest: u64,
        newest: u64,
    ) -> Checked {
        let is_known = match token.content {
            Content::Whole(version) => {
                (oldest..=newest).contains(&version.number)
                    && self.is_same(version, lineage, version.number)
            }
            Content::Torn(_) | Content::Open(_) => false,
        };
        if is_known || token.excused {
            return Ok(());
        }
        let what = format!("{token:?} is captured as {oldest} to {newest} of lineage {lineage}");
        broken("spans", what)
    }

    /// A step is sent to an engine, which really has what is on record, with caches of it.
    pub(super) fn starts(worker: WorkerId, engine: &Engine, core: &Core) -> Checked {
        if !engine.up || engine.seen != Seen::Known {
            return Ok(());
        }
        let holding = core.weights().holding(worker);
        let held = holding.and_then(|holding| holding.held.as_ref());
        let held = Content::Whole(held.map(Version::of).unwrap_or_default());
        if engine.content == held && engine.caches == held && !engine.paused {
            return Ok(());
        }
        broken(
            "start",
            format!("{worker} has {engine:?} instead of {held:?}"),
        )
    }

    /// Weights are replaced only while their engine is paused.
    pub(super) fn loads(worker: WorkerId, engine: &Engine) -> Checked {
        if engine.paused || engine.seen == Seen::Unnoticed {
            return Ok(());
        }
        broken("paused", format!("{worker} is loaded while it generates"))
    }

    /// An engine is about to be paused.
    pub(super) fn pauses(now_us: u64, worker: WorkerId, engine: &Engine, cut: bool) -> Checked {
        if !cut || now_us >= engine.fenced_us + CUTS_US {
            return Ok(());
        }
        broken(
            "cuts",
            format!("{worker} is paused before a step that was cut has ended"),
        )
    }

    /// After each event: what is fenced says why, what waits goes on, and versions only rise.
    pub(super) fn settled(
        &mut self,
        core: &Core,
        engines: &BTreeMap<WorkerId, Engine>,
        awaited: &BTreeSet<u64>,
    ) -> Checked {
        let weights = core.weights();
        for worker in core
            .programs()
            .workers
            .values()
            .filter(|worker| worker.fenced)
        {
            let why = weights.why_fenced(worker.id);
            if why.is_none_or(|why| why.is_empty()) {
                return broken(
                    "reasons",
                    format!("{} does not say why it is fenced", worker.id),
                );
            }
        }
        for (worker, holding) in &weights.holdings {
            if let Some(call) = holding.call.filter(|call| !awaited.contains(&call.number)) {
                return broken(
                    "calls",
                    format!("{worker} waits for {call:?}, which was not made"),
                );
            }
        }
        for (name, job) in &weights.jobs {
            goes_on(core, name, job)?;
        }
        self.rises(core, engines)
    }

    fn rises(&mut self, core: &Core, engines: &BTreeMap<WorkerId, Engine>) -> Checked {
        for job in core.weights().jobs.values() {
            let Some(serving) = job.serving.as_ref().map(Version::of) else {
                continue;
            };
            if serving < self.served {
                return broken("versions", format!("{serving} follows {}", self.served));
            }
            let has = |engine: &Engine| {
                engine.content == Content::Whole(serving) || engine.seen != Seen::Known
            };
            // Its engines may be lost by the time that their answers arrive.
            let is_there = |engine: &Engine| has(engine) || !engine.up;
            if serving > self.served && !engines.values().any(is_there) {
                return broken("versions", format!("no engine has {serving}"));
            }
            self.served = serving;
        }
        for job in core.training().jobs.values() {
            let Some(number) = job.version else { continue };
            let told = Version {
                lineage: job.lineage,
                number,
            };
            if told < self.told {
                return broken(
                    "versions",
                    format!("the run has {told} after {}", self.told),
                );
            }
            self.told = told;
        }
        Ok(())
    }
}

/// Whether an engine has something under way, or a time at which it goes on.
fn is_under_way(now: Timestamp, holding: &Holding) -> bool {
    let is_called = holding.trainer.as_ref().is_some_and(|t| t.call.is_some());
    let waits = holding.rests_until > now || holding.cuts_until.is_some_and(|until| until > now);
    holding.call.is_some() || is_called || waits
}

/// An update, or an engine that it left behind, waits for something that comes.
fn goes_on(core: &Core, name: &str, job: &JobWeights) -> Checked {
    let (now, weights) = (core.now(), core.weights());
    let stuck = |what: String| broken("waits", what);
    if let Some(update) = job.update.as_ref().filter(|u| u.stage != Stage::Driven) {
        let cut_by = update.fenced.map(|at| at.0 + CUTS_US);
        let own = update.workers.iter().filter_map(|w| weights.holding(*w));
        let is_late = match update.stage {
            Stage::Preparing => now >= update.ready_by(),
            Stage::Cutting => cut_by.is_none_or(|by| now.0 >= by),
            _ => !own.into_iter().any(|holding| is_under_way(now, holding)),
        };
        if is_late {
            return stuck(format!("nothing goes on with {update:?}"));
        }
    }
    if job.update.is_some() || job.driven || job.serving.is_none() {
        return Ok(());
    }
    for (worker, holding) in weights.of_job(name) {
        let found = core.programs().workers.get(&worker);
        let is_mended = found.is_some_and(|worker| worker.is_healthy() && worker.fenced);
        if is_mended && !is_under_way(now, holding) {
            return stuck(format!("{worker} is not mended: {holding:?}"));
        }
    }
    Ok(())
}
