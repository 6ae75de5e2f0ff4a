//! How long actions last: learnt by job, kind and units from those that ran to completion.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_estimates::Distribution;
use treadle_model::{Span, Timestamp};

/// Maximum number of jobs; the least recently used one is replaced.
const JOBS_MAX: usize = 1_024;
/// Maximum number of kinds per job; further ones are not recorded.
const KINDS_MAX: usize = 256;
/// Maximum number of amounts per kind; further ones are not recorded.
const AMOUNTS_MAX: usize = 64;

/// Statistics of a kind with one amount of units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Number that ran to completion.
    pub finished: u64,
    /// Moving average of their times.
    pub mean: Span,
    /// Distribution of their times, in microseconds.
    pub times: Distribution,
}

/// Statistics of a job.
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

/// Number of values up to which the mean is exact; each further value moves it by a sixteenth.
const EXACT: u64 = 16;

impl Profiles {
    /// Statistics of a kind, by units of its key resource.
    pub fn of(&self, job: &str, kind: &str) -> Option<&BTreeMap<u64, Profile>> {
        self.jobs.get(job)?.kinds.get(kind)
    }

    /// The mean time of a kind with these units.
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
