//! What became of the questions to all policies, and to each.

use super::PluginRegistry;
use super::RegistryError;
use super::bind::policy_ref;
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{
    PolicyEvaluator, PolicyStatistics, VersionEntry, VersionStatistics,
};
use treadle_store::PluginHead;

/// One version's statistics.
#[derive(Clone, Debug)]
pub struct VersionRow {
    /// The world that it answers for.
    pub world: World,
    /// The version.
    pub policy: PolicyRef,
    /// What the names of the tenant begin with in whose bindings it is asked.
    pub tenant: Box<str>,
    /// What became of its questions.
    pub statistics: VersionStatistics,
}

impl PluginRegistry {
    /// All policies together. Times are those of the policies that scheduling
    /// waits for.
    pub async fn totals(&self) -> Result<PolicyStatistics, RegistryError> {
        let in_place = self.driver.read(|view| view.policies.statistics().clone());
        let mut totals = in_place.await?;
        let background = self
            .background
            .read(|evaluator| evaluator.statistics().clone());
        totals.answered += background.answered;
        totals.fallbacks += background.fallbacks;
        totals.faults += background.faults;
        totals.swaps += background.swaps;
        totals.rollbacks += background.rollbacks;
        totals.latest_fault = totals.latest_fault.or(background.latest_fault);
        Ok(totals)
    }

    /// Version by version.
    pub async fn versions(&self) -> Result<Vec<VersionRow>, RegistryError> {
        let all = |evaluator: &PolicyEvaluator| {
            let versions = evaluator.versions();
            let row = |entry: VersionEntry<'_>| VersionRow {
                world: entry.world,
                policy: entry.policy.clone(),
                tenant: entry.tenant.into(),
                statistics: entry.statistics.clone(),
            };
            versions.map(row).collect::<Vec<_>>()
        };
        let mut versions = self.driver.read(move |view| all(view.policies)).await?;
        versions.extend(self.background.read(all));
        Ok(versions)
    }

    /// One upload's in the bindings of a tenant, if it was asked there lately.
    pub async fn statistics_of(
        &self,
        head: &PluginHead,
        tenant_prefix: &str,
    ) -> Result<Option<VersionStatistics>, RegistryError> {
        let policy = policy_ref(head);
        let versions = self.versions().await?;
        let is_it = |row: &VersionRow| row.policy == policy && &*row.tenant == tenant_prefix;
        let mut found = versions.into_iter().filter(is_it);
        Ok(found.next().map(|row| row.statistics))
    }
}
