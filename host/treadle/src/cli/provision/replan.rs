//! Makes a new plan after each rollout.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::super::client::{Client, escaped};
use super::super::error::CliError;
use super::plan::Plan;
use super::question;

/// Pause between two polls of the job's programs.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Consecutive polls without a live program after which a rollout has ended.
const LOOKS_WITHOUT: u32 = 3;
/// States of live programs.
const LIVE: [&str; 3] = ["queued", "active", "paused"];

/// Follows the rollouts of a job.
pub(super) struct Replanner {
    pub(super) client: Arc<Client>,
    pub(super) job: String,
    /// Number of GPUs of each plan.
    pub(super) gpus: u64,
}

impl Replanner {
    /// Waits for the end of the current or next rollout and returns the plan for the one after it.
    /// If the daemon does not answer or has no data to plan with, the next rollout is waited for.
    pub(super) async fn next(&self) -> Plan {
        loop {
            self.until(true, 1).await;
            self.until(false, LOOKS_WITHOUT).await;
            match self.plan().await {
                Ok(plan) => return plan,
                Err(error) => {
                    tracing::warn!(job = self.job, %error, "no new plan; the current one is kept");
                }
            }
        }
    }

    /// Requests a plan; the daemon knows the degrees of earlier plans, too.
    async fn plan(&self) -> Result<Plan, CliError> {
        let columns = json!({"gpus": self.gpus});
        let answer = question(&self.client, Some(&self.job), &columns).await?;
        Plan::of_answer(&columns, &answer)
    }

    /// Waits until `looks` consecutive polls have found live programs, or none.
    async fn until(&self, live: bool, looks: u32) {
        let mut found = 0;
        while found < looks {
            tokio::time::sleep(LOOK_PAUSE).await;
            match self.lives().await {
                Ok(lives) if lives == live => found += 1,
                Ok(_) => found = 0,
                Err(error) => tracing::debug!(%error, "a poll of the job failed"),
            }
        }
    }

    async fn lives(&self) -> Result<bool, CliError> {
        for status in LIVE {
            let job = escaped(&self.job);
            let path = format!("/api/v1/programs?job={job}&status={status}&limit=1");
            let page = self.client.get(&path).await?;
            if page["programs"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
