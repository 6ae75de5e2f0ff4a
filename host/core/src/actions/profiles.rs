//! How long actions last: learnt by job, kind and units from those that ran to their end.

use crate::distribution::Distribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{Span, Timestamp};

/// Jobs that are followed; the one that was used least recently makes room.
const JOBS_MAX: usize = 1_024;
/// Kinds of one job; further ones are not followed.
const KINDS_MAX: usize = 256;
/// Amounts of one kind; further ones are not followed.
const AMOUNTS_MAX: usize = 64;

/// What is known of a kind with so many units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// How many ran to their end.
    pub finished: u64,
    /// Their mean, lately.
    pub mean: Span,
    /// All of them, in microseconds.
    pub times: Distribution,
}

/// What is known of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct JobProfiles {
    used: Timestamp,
    kinds: BTreeMap<Box<str>, BTreeMap<u64, Profile>>,
}

/// How long actions last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Profiles {
    jobs: BTreeMap<Box<str>, JobProfiles>,
}

/// Values of which the mean is exact; then it moves by a sixteenth with each.
const EXACT: u64 = 16;

impl Profiles {
    /// What is known of a kind, by units of its key resource.
    pub fn of(&self, job: &str, kind: &str) -> Option<&BTreeMap<u64, Profile>> {
        self.jobs.get(job)?.kinds.get(kind)
    }

    /// The mean time of a kind with so many units.
    pub fn mean(&self, job: &str, kind: &str, units: u64) -> Option<Span> {
        self.of(job, kind)?.get(&units).map(|known| known.mean)
    }

    pub(crate) fn learn(&mut self, job: &str, kind: &str, units: u64, took: Span, now: Timestamp) {
        if !self.jobs.contains_key(job) && self.jobs.len() >= JOBS_MAX {
            let oldest = self.jobs.iter().min_by_key(|(_, known)| known.used);
            let oldest = oldest.map(|(job, _)| job.clone());
            oldest.map(|job| self.jobs.remove(&job));
        }
        let of_job = self.jobs.entry(job.into()).or_default();
        of_job.used = now;
        if !of_job.kinds.contains_key(kind) && of_job.kinds.len() >= KINDS_MAX {
            return;
        }
        let of_kind = of_job.kinds.entry(kind.into()).or_default();
        if !of_kind.contains_key(&units) && of_kind.len() >= AMOUNTS_MAX {
            return;
        }
        let known = of_kind.entry(units).or_default();
        known.finished += 1;
        let weight = known.finished.min(EXACT);
        let (mean, took) = (known.mean.0, took.0.min(1 << 50));
        known.mean = Span(if took >= mean {
            mean + (took - mean) / weight
        } else {
            mean - (mean - took) / weight
        });
        known.times.learn(took);
    }
}
