//! Statistics of the questions to policies, in total and by version.

use super::PluginRegistry;
use super::RegistryError;
use super::bind::policy_ref;
use treadle_policy::evaluator::{PolicyEvaluator, PolicyStatistics, VersionRow, VersionStatistics};
use treadle_store::PluginHead;

impl PluginRegistry {
    /// All policies together. Times are those of the policies that scheduling waits for.
    pub async fn totals(&self) -> Result<PolicyStatistics, RegistryError> {
        let mut totals = self.driver.policy_statistics().await?;
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

    /// Statistics by version.
    pub async fn versions(&self) -> Result<Vec<VersionRow>, RegistryError> {
        let mut versions = self.driver.policy_versions().await?;
        versions.extend(self.background.read(PolicyEvaluator::version_rows));
        Ok(versions)
    }

    /// The statistics of one upload in the bindings of a tenant, if it was asked there recently.
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
