//! The weights of one job: what serves, and the update that is under way.

use crate::call::Call;
use crate::event::UpdatePlan;
use crate::group::Group;
use crate::holding::{CUTS_WAIT, Holding, Phase};
use crate::version::{Checksums, Weights};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Span, Timestamp, WorkerId};

/// How far an update is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Engines serve, and are asked whether they can be loaded.
    Preparing,
    /// No step begins; steps that were cut are waited for.
    Cutting,
    /// Engines are paused, load and prove it.
    Loading,
    /// All proved it and generate again.
    Resuming,
    /// The job's trainer pauses and loads its engines by itself.
    Driven,
}

impl Stage {
    /// The stage's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Cutting => "cutting",
            Self::Loading => "loading",
            Self::Resuming => "resuming",
            Self::Driven => "driven",
        }
    }
}

/// An update that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The version.
    pub weights: Weights,
    /// How.
    pub plan: UpdatePlan,
    /// When it began.
    pub began: Timestamp,
    /// Calls made before it began: how they end does not matter to it.
    pub calls_before: u64,
    /// How far it is.
    pub stage: Stage,
    /// Since when no step begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<Timestamp>,
    /// The engines that take part.
    pub workers: BTreeSet<WorkerId>,
    /// Those that were left behind, with the reason.
    pub behind: BTreeMap<WorkerId, Box<str>>,
    /// Checksums of the version, as far as they are known.
    pub checksums: Checksums,
}

impl Update {
    /// Until when engines may become ready.
    pub fn ready_by(&self) -> Timestamp {
        self.began + Span::from_secs(self.plan.ready_s)
    }

    /// Until when it waits for engines, or for steps that were cut.
    pub(crate) fn waits_until(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Preparing => Some(self.ready_by()),
            Stage::Cutting => self.fenced.map(|at| at + CUTS_WAIT),
            Stage::Loading | Stage::Resuming | Stage::Driven => None,
        }
    }

    /// Engines that must be ready.
    pub(crate) fn quorum(&self) -> usize {
        let all = self.workers.len() + self.behind.len();
        match self.plan.quorum {
            0 => all / 2 + 1,
            quorum => usize::from(quorum),
        }
    }
}

/// How an update ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedUpdate {
    /// The version.
    pub weights: Weights,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How long no step began because of it.
    pub exposed: Span,
    /// Engines that serve the version since then; none if the update failed.
    pub held: u32,
    /// Engines that were left behind, with the reason.
    pub behind: BTreeMap<WorkerId, Box<str>>,
}

/// The weights of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobWeights {
    /// All engines are the job's, also those that come later.
    pub all: bool,
    /// Its trainer drives the updates.
    #[serde(default)]
    pub driven: bool,
    /// The version that serves; absent before the first, and after the run went back.
    pub serving: Option<Weights>,
    /// Its checksums.
    pub checksums: Checksums,
    /// The run went back to a checkpoint, and no version was published since.
    pub went_back: bool,
    /// The update that is under way.
    pub update: Option<Update>,
    /// The last update that ended.
    pub last: Option<EndedUpdate>,
    /// The process group in which its trainer sends weights.
    #[serde(default)]
    pub group: Group,
}

impl JobWeights {
    /// Whether an engine gets steps: it serves an admitted version, and is not about to be paused.
    pub(crate) fn admits(&self, worker: WorkerId, holding: &Holding) -> bool {
        let pending = holding.call.map(|pending| pending.call);
        if holding.is_joining() || pending == Some(Call::Pause) {
            return false;
        }
        let update = self.update.as_ref();
        let is_rolled = update.filter(|u| u.plan.rolling || u.stage == Stage::Driven);
        if is_rolled.is_some_and(|update| holding.serves(Some(&update.weights))) {
            return true;
        }
        let is_paused = update.is_some_and(|update| {
            let takes_part = update.workers.contains(&worker);
            let is_next = !update.plan.rolling || update.next() == Some(worker);
            let is_open = matches!(update.stage, Stage::Preparing | Stage::Driven);
            takes_part && is_next && !is_open
        });
        !is_paused && !self.went_back && holding.serves(self.serving.as_ref())
    }
}

impl Update {
    /// The engine whose turn it is, one after the other.
    pub(crate) fn next(&self) -> Option<WorkerId> {
        self.workers.first().copied()
    }
}

/// A job on record, or one that was released while an engine finishes what was begun.
pub(crate) fn record<'s>(
    jobs: &'s BTreeMap<Box<str>, JobWeights>,
    released: &'s BTreeMap<Box<str>, JobWeights>,
    name: &str,
) -> Option<&'s JobWeights> {
    jobs.get(name).or_else(|| released.get(name))
}

/// Engines whose checksums differ from what most have, and what most have.
pub(crate) fn compare<'h>(
    holdings: impl Iterator<Item = (WorkerId, &'h Holding)>,
) -> (Vec<WorkerId>, Checksums) {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut reported = Vec::new();
    for (worker, holding) in holdings {
        let Some(sum) = &holding.checksum else {
            continue;
        };
        let values = counts.entry(&sum.layout).or_default();
        *values.entry(&sum.value).or_default() += usize::from(holding.confirmed);
        reported.push((worker, sum));
    }
    let mut agreed = Checksums::new();
    for (layout, values) in counts {
        let all: usize = values.values().sum();
        let most = values.into_iter().find(|(_, count)| count * 2 > all);
        agreed.extend(most.map(|(value, _)| (layout.into(), value.into())));
    }
    let differs = |(_, sum): &(WorkerId, &crate::call::Checksum)| {
        agreed
            .get(&sum.layout)
            .is_none_or(|most| *most != sum.value)
    };
    let differing = reported.into_iter().filter(differs);
    (differing.map(|(worker, _)| worker).collect(), agreed)
}

/// Whether an engine has to be paused before it loads, or is at the update's phases already.
pub(crate) fn is_before_pause(phase: Phase) -> bool {
    matches!(phase, Phase::Held | Phase::Torn | Phase::Unknown)
}
