//! What became of the questions to all policies, and to each.

use super::PolicyShelf;
use super::ShelfError;
use super::bind::policy_ref;
use crate::driver::{PolicyDesk, PolicyStatistics, VersionStatistics};
use treadle_model::{PolicyRef, World};
use treadle_store::PluginHead;

impl PolicyShelf {
    /// All policies together. Times are those of the policies that scheduling
    /// waits for.
    pub async fn totals(&self) -> Result<PolicyStatistics, ShelfError> {
        let in_place = self.driver.read(|view| view.policies.statistics().clone());
        let mut totals = in_place.await?;
        let background = self.background.read(|desk| desk.statistics().clone());
        totals.answered += background.answered;
        totals.fallbacks += background.fallbacks;
        totals.faults += background.faults;
        totals.swaps += background.swaps;
        totals.rollbacks += background.rollbacks;
        totals.latest_fault = totals.latest_fault.or(background.latest_fault);
        Ok(totals)
    }

    /// Version by version.
    pub async fn versions(&self) -> Result<Vec<(World, PolicyRef, VersionStatistics)>, ShelfError> {
        let all = |desk: &PolicyDesk| {
            let versions = desk.versions();
            versions
                .map(|(world, policy, statistics)| (world, policy.clone(), statistics.clone()))
                .collect::<Vec<_>>()
        };
        let mut versions = self.driver.read(move |view| all(view.policies)).await?;
        versions.extend(self.background.read(all));
        Ok(versions)
    }

    /// One upload's, if it was asked lately.
    pub async fn statistics_of(
        &self,
        head: &PluginHead,
    ) -> Result<Option<VersionStatistics>, ShelfError> {
        let policy = policy_ref(head);
        let versions = self.versions().await?;
        let mut found = versions
            .into_iter()
            .filter(|(_, known, _)| *known == policy);
        Ok(found.next().map(|(_, _, statistics)| statistics))
    }
}
