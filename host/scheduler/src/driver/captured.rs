//! Which weights sample a step that is captured.

use super::DriverHandle;
use crate::recording::DriverStopped;
use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::training::{History, MemberRef};
use treadle_core::weights::{Holding, Phase, Weights};
use treadle_model::WorkerId;

/// What a member's engine has, as far as it is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedVersion {
    /// The version in service; absent after the trainer went back, until it reports one.
    pub version: Option<u64>,
    /// Versions that the engine may have: what it was last proven to have, and what it is loading.
    /// Empty if treadle does not load it.
    pub held: Vec<u64>,
    /// Versions of the lineage by the names that engines have for them.
    pub named: BTreeMap<Box<str>, u64>,
    /// Which prompts its job wants to continue captured answers.
    pub history: History,
}

impl CapturedVersion {
    fn of(core: &Core, name: &str, worker: Option<WorkerId>) -> Option<Self> {
        let (training, weights) = (core.training(), core.weights());
        let job = training.jobs.get(name)?;
        let own = |found: &&Weights| found.lineage == job.lineage;
        let holding = worker.and_then(|worker| weights.holding(worker));
        let holding = holding.filter(|holding| *holding.job == *name);
        let held = holding.and_then(|holding| holding.held.as_ref());
        // What it is asked about, or paused for, it does not serve yet.
        let is_changing = |h: &&Holding| !matches!(h.phase, Phase::Held | Phase::Paused);
        let loading = holding.filter(is_changing);
        let loading = loading.and_then(|holding| holding.loading.as_ref());
        let held: Vec<&Weights> = held.into_iter().chain(loading).filter(own).collect();
        let job_weights = weights.jobs.get(name);
        let known = job_weights.into_iter().flat_map(|found| {
            let update = found.update.as_ref().map(|update| &update.weights);
            let last = found.last.as_ref().map(|last| &last.weights);
            found.serving.iter().chain(update).chain(last)
        });
        let known = known.filter(own).chain(held.iter().copied());
        Some(Self {
            version: job.version,
            history: job.settings.history,
            held: held.iter().map(|weights| weights.version).collect(),
            named: known
                .map(|weights| (weights.name.clone(), weights.version))
                .collect(),
        })
    }
}

impl DriverHandle {
    /// What a worker has of the job of a member whose steps are captured; `None` if they are not. It
    /// need not be on record yet.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn captured_version(
        &self,
        member: MemberRef,
        worker: Option<WorkerId>,
    ) -> Result<Option<CapturedVersion>, DriverStopped> {
        self.read(move |view| {
            let is_captured = view.core.training().captures(&member);
            let read = || CapturedVersion::of(view.core, &member.job, worker);
            is_captured.then(read).flatten()
        })
        .await
    }

    /// What a worker has of a job; `None` for a job that is not declared any more.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn served_version(
        &self,
        job: Box<str>,
        worker: WorkerId,
    ) -> Result<Option<CapturedVersion>, DriverStopped> {
        self.read(move |view| CapturedVersion::of(view.core, &job, Some(worker)))
            .await
    }
}
