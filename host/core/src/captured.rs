//! Which weights sampled a step that is captured.

use crate::Core;
use crate::training::{History, JobSettings};
use crate::weights::{Holding, Phase, Weights};
use std::collections::BTreeMap;
use thiserror::Error;
use treadle_model::WorkerId;

/// What an engine has of a job, as far as it is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedVersion {
    /// The lineage of the job's run.
    pub lineage: u32,
    /// The version that the lineage began with.
    pub rolled_back_to: u64,
    /// The version in service; absent after the trainer went back, until it reports one.
    pub version: Option<u64>,
    /// Versions that the engine may have: what it was last proven to have, and what it is loading.
    /// Empty if treadle has no part in what it loads.
    pub held: Vec<u64>,
    /// Lineage and version that it has by proof, of whichever lineage; absent while that may change.
    pub proven: Option<(u32, u64)>,
    /// Nobody knows what it has: an update began there, and neither ended nor goes on.
    pub unknown: bool,
    /// Another number each time that the record of what the engine has was dropped, as when a job's
    /// weights are released.
    pub given_up: u64,
    /// Versions of the lineage by the names that engines have for them.
    pub named: BTreeMap<Box<str>, u64>,
    /// Which prompts its job wants to continue captured answers.
    pub history: History,
    /// The model that its job trains, if it says so.
    pub model: Option<Box<str>>,
}

/// Why it is not known which version sampled a step.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UnknownVersion {
    /// No version is in service.
    #[error("the trainer went back and has not reported a version since")]
    WentBack,
    /// The trainer went back while the step ran.
    #[error("the trainer went back while it ran, and abandoned version {0}")]
    Abandoned(u64),
    /// The engine was lost, or the job let go of it.
    #[error("it is not known which version the engine had when the answer ended")]
    Lost,
    /// The engine has other weights than those on record.
    #[error("the answer names version `{0}`, which is not on record for its engine")]
    Named(Box<str>),
}

/// The oldest and the newest version that may have sampled a range of tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VersionBounds {
    /// The oldest one; at most the one in service.
    pub oldest: u64,
    /// The newest one.
    pub newest: u64,
}

/// What an engine had when a step was sent there, and when its answer was whole.
#[derive(Clone, Debug)]
pub struct ServedVersions {
    /// When it was sent.
    pub begun: CapturedVersion,
    /// When it ended.
    pub ended: CapturedVersion,
}

impl Core {
    /// What an engine has of a job; `None` if the job is not declared.
    pub fn captured_version(&self, job: &str, worker: Option<WorkerId>) -> Option<CapturedVersion> {
        let weights = self.weights();
        let found = self.training().jobs.get(job)?;
        let own = |of: &&Weights| of.lineage == found.lineage;
        // The ranks of an endpoint share its weights.
        let worker = worker.map(|worker| self.programs.first_rank(worker));
        let holding = worker.and_then(|worker| weights.holding(worker));
        let holding = holding.filter(|holding| *holding.job == *job);
        let held = holding.and_then(|holding| holding.held.as_ref());
        // What it is asked about, or paused for, it does not serve yet.
        let is_changing = |h: &&Holding| !matches!(h.phase, Phase::Held | Phase::Paused);
        let loading = holding.filter(is_changing);
        let loading = loading.and_then(|holding| holding.loading.as_ref());
        // Nobody knows what one has whose update broke off.
        let unknown = holding.is_some_and(|holding| !holding.sound) && loading.is_none();
        let proven = held.filter(|_| loading.is_none() && !unknown);
        let proven = proven.map(|weights| (weights.lineage, weights.version));
        let held = held.filter(|_| !unknown).into_iter().chain(loading);
        let held: Vec<&Weights> = held.filter(own).collect();
        let of_job = weights.jobs.get(job).into_iter().flat_map(|of_job| {
            let update = of_job.update.as_ref().map(|update| &update.weights);
            let last = of_job.last.as_ref().map(|last| &last.weights);
            of_job.serving.iter().chain(update).chain(last)
        });
        let known = of_job.filter(own).chain(held.iter().copied());
        let JobSettings { history, model, .. } = &found.settings;
        Some(CapturedVersion {
            lineage: found.lineage,
            rolled_back_to: found.rolled_back_to,
            version: found.version,
            proven,
            unknown,
            given_up: worker.map_or(0, |worker| weights.given_up(worker)),
            history: *history,
            model: model.clone(),
            held: held.iter().map(|weights| weights.version).collect(),
            named: known
                .map(|weights| (weights.name.clone(), weights.version))
                .collect(),
        })
    }
}

impl ServedVersions {
    /// What may have sampled the step.
    ///
    /// # Errors
    /// It is not known.
    pub fn bounds(&self) -> Result<VersionBounds, UnknownVersion> {
        let of = |read: &CapturedVersion| {
            let held = read.held.iter().copied();
            let held = held.clone().min().zip(held.max());
            held.or(read.version.map(|version| (version, version)))
        };
        let begun = of(&self.begun).zip(self.in_service());
        let ((oldest, newest), in_service) = begun.ok_or(UnknownVersion::WentBack)?;
        let (begun, ended) = (&self.begun, &self.ended);
        let parted = begun.lineage != ended.lineage;
        // It may have been loaded meanwhile, also more than once.
        let is_other = begun.proven != ended.proven;
        if parted && (is_other || newest > ended.rolled_back_to) {
            return Err(UnknownVersion::Abandoned(newest));
        }
        // Or have a version that is on record nowhere: also one that had what it came with, for
        // which there is no proof that could be missing.
        let was_held = !begun.held.is_empty() && ended.held.is_empty();
        let is_given_up = begun.given_up != ended.given_up;
        if ended.unknown || is_given_up || !parted && was_held {
            return Err(UnknownVersion::Lost);
        }
        let ended = of(&self.ended).map_or(newest, |(_, newest)| newest);
        Ok(VersionBounds {
            oldest: oldest.min(in_service),
            newest: newest.max(ended),
        })
    }

    /// The newest version that was in service; `None` if none was at the start.
    fn in_service(&self) -> Option<u64> {
        self.begun.version?;
        self.begun.version.max(self.ended.version)
    }

    /// What sampled a range of tokens, by the name that the engine gave for them. A name is that of
    /// a version that treadle knows, or the number or the usual name of one that was in service
    /// meanwhile. A version that is not in service yet counts as the one that is. `None` if the name
    /// says nothing: only of an engine that had what it came with.
    ///
    /// # Errors
    /// It is not known.
    pub fn named(&self, name: &str) -> Result<Option<VersionBounds>, UnknownVersion> {
        let VersionBounds { oldest, newest } = self.bounds()?;
        let known = [&self.begun, &self.ended].map(|read| read.named.get(name).copied());
        let usual = name.split_once('.');
        let usual = usual.filter(|(of, _)| of.parse() == Ok(self.begun.lineage));
        let numbered = usual.map_or(name, |(_, number)| number).parse().ok();
        let numbered = numbered.filter(|number| (oldest..=newest).contains(number));
        // Trainers need not name versions: then two may have the same name.
        let least = known.into_iter().flatten().min().or(numbered);
        let most = known.into_iter().flatten().max().or(numbered);
        match (least.zip(most), self.in_service()) {
            (Some((least, most)), Some(in_service)) => Ok(Some(VersionBounds {
                oldest: least.min(in_service),
                newest: most,
            })),
            _ if self.begun.held.is_empty() => Ok(None),
            _ => Err(UnknownVersion::Named(name.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It had been proven to have a version, and then did not answer in time.
    #[test]
    fn a_step_of_an_engine_that_was_lost_meanwhile_is_not_captured() {
        let read = |held: &[u64]| CapturedVersion {
            version: Some(4),
            held: held.to_vec(),
            ..CapturedVersion::default()
        };
        let bounds = |begun: &[u64], ended: &[u64]| {
            let (begun, ended) = (read(begun), read(ended));
            ServedVersions { begun, ended }.bounds()
        };
        let known = |oldest, newest| Ok(VersionBounds { oldest, newest });
        assert_eq!(bounds(&[4], &[]), Err(UnknownVersion::Lost));
        assert_eq!(bounds(&[4], &[5]), known(4, 5));
        assert_eq!(bounds(&[], &[]), known(4, 4), "treadle loads nothing");
        assert_eq!(bounds(&[], &[5]), known(4, 5));
    }

    /// It came with version 0, and was given up while it was loaded for the first time.
    #[test]
    fn a_step_of_an_engine_whose_first_update_broke_off_is_not_captured() {
        for lineage in [0, 1] {
            let begun = CapturedVersion {
                version: Some(0),
                ..CapturedVersion::default()
            };
            let ended = CapturedVersion {
                lineage,
                version: (lineage == 0).then_some(0),
                unknown: true,
                ..CapturedVersion::default()
            };
            let bounds = ServedVersions { begun, ended }.bounds();
            assert_eq!(bounds, Err(UnknownVersion::Lost), "lineage {lineage}");
        }
    }

    /// It came with version 0, and the record of what it was loaded with meanwhile is gone.
    #[test]
    fn a_step_is_not_captured_if_the_record_of_its_engine_is_gone() {
        let read = |given_up| CapturedVersion {
            version: Some(0),
            given_up,
            ..CapturedVersion::default()
        };
        let bounds = |given_up| {
            let (begun, ended) = (read(3), read(given_up));
            ServedVersions { begun, ended }.bounds()
        };
        assert!(bounds(3).is_ok(), "it was before the step began");
        assert_eq!(bounds(4), Err(UnknownVersion::Lost));
    }

    /// An engine may have a version before it is in service, and the trainer may abandon it.
    #[test]
    fn a_step_that_an_abandoned_version_may_have_sampled_is_not_captured() {
        let read = |lineage: u32, held: u64| CapturedVersion {
            lineage,
            rolled_back_to: if lineage == 0 { 0 } else { 6 },
            version: (lineage == 0).then_some(6),
            held: vec![held],
            proven: Some((0, held)),
            ..CapturedVersion::default()
        };
        let bounds = |held: u64, lineage: u32| {
            let (begun, ended) = (read(0, held), read(lineage, held));
            ServedVersions { begun, ended }.bounds()
        };
        let loaded = CapturedVersion {
            proven: Some((1, 6)),
            ..read(1, 6)
        };
        let (begun, ended) = (read(0, 6), loaded);
        let reloaded = ServedVersions { begun, ended }.bounds();
        assert_eq!(reloaded, Err(UnknownVersion::Abandoned(6)));
        assert_eq!(bounds(7, 1), Err(UnknownVersion::Abandoned(7)));
        let known = |oldest, newest| Ok(VersionBounds { oldest, newest });
        assert_eq!(bounds(6, 1), known(6, 6));
        assert_eq!(bounds(7, 0), known(6, 7));
    }
}
