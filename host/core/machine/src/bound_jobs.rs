//! Which jobs have a policy of a world.

use std::collections::BTreeMap;
use treadle_model::tenant::all_jobs_of;

/// The scope of all jobs without a binding of their own.
pub const EVERYONE: &str = "*";

/// The jobs that have a policy of one world other than its built-in default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BoundJobs {
    /// Scopes with a binding of their own, and whether its policy is another than the default.
    pub scopes: BTreeMap<Box<str>, bool>,
}

impl BoundJobs {
    /// True if no job has one.
    pub fn is_empty(&self) -> bool {
        !self.scopes.values().any(|bound| *bound)
    }

    /// Whether this job has one: its own binding decides, otherwise its tenant's, otherwise
    /// everyone's.
    pub fn contains(&self, job: &str) -> bool {
        if self.scopes.is_empty() {
            return false;
        }
        let of_tenant = || self.scopes.get(all_jobs_of(job)?.as_str());
        let own = self.scopes.get(job).or_else(of_tenant);
        let bound = own.or_else(|| self.scopes.get(EVERYONE));
        bound.copied().unwrap_or(false)
    }
}
