//! A new plan whenever a rollout has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::client::{Client, escaped};
use super::super::error::CliError;
use super::plan::Plan;
use super::question;

/// Pause between two looks at the job's programs.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Looks without a live program after which a rollout has ended.
const LOOKS_WITHOUT: u32 = 3;
/// Columns with an entry for each degree.
const OF_DEGREE: [&str; 4] = ["token_us", "step_us", "prefill_us", "capacity_tokens"];
/// Programs that live.
const LIVE: [&str; 3] = ["queued", "active", "paused"];

/// Follows the rollouts of a job.
pub(super) struct Replanner {
    pub(super) client: Arc<Client>,
    pub(super) job: String,
    /// Devices of each plan.
    pub(super) gpus: u64,
    /// The columns' entries of degrees that engines were seen with: those of a plan before this one
    /// are no longer there.
    pub(super) seen: BTreeMap<u64, Map<String, Value>>,
}

impl Replanner {
    /// Waits for the end of a rollout that begins from now on or is under way; the plan for the next
    /// one. A daemon that does not answer, or has nothing to plan with, is asked again after the next
    /// rollout.
    pub(super) async fn next(&mut self) -> Plan {
        loop {
            self.until(true, 1).await;
            self.until(false, LOOKS_WITHOUT).await;
            match self.plan().await {
                Ok(plan) => return plan,
                Err(error) => {
                    tracing::warn!(job = self.job, %error, "the plan stays as it is");
                }
            }
        }
    }

    async fn plan(&mut self) -> Result<Plan, CliError> {
        let gpus = json!({"gpus": self.gpus});
        let answer = question(&self.client, Some(&self.job), &gpus).await?;
        self.see(&answer["filled"]["columns"]);
        let columns = self.columns();
        let answer = question(&self.client, Some(&self.job), &columns).await?;
        Plan::of_answer(&columns, &answer)
    }

    /// Keeps the entries of each degree.
    fn see(&mut self, columns: &Value) {
        let degrees = columns["degree"].as_array();
        for (row, degree) in degrees.into_iter().flatten().enumerate() {
            let entries = OF_DEGREE.map(|name| (name.to_owned(), columns[name][row].clone()));
            if let Some(degree) = degree.as_u64() {
                self.seen.insert(degree, Map::from_iter(entries));
            }
        }
    }

    /// The columns of all degrees that were seen.
    fn columns(&self) -> Value {
        let mut columns =
            json!({"gpus": self.gpus, "degree": self.seen.keys().collect::<Vec<_>>()});
        for name in OF_DEGREE {
            let entries = self.seen.values().map(|entries| entries[name].clone());
            columns[name] = entries.collect();
        }
        columns
    }

    /// Waits until so many looks in turn have found live programs, or none.
    async fn until(&self, live: bool, looks: u32) {
        let mut found = 0;
        while found < looks {
            tokio::time::sleep(LOOK_PAUSE).await;
            match self.lives().await {
                Ok(lives) if lives == live => found += 1,
                Ok(_) => found = 0,
                Err(error) => tracing::debug!(%error, "a look at the job failed"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_earlier_plans_are_not_forgotten() {
        let mut replanner = Replanner {
            client: Arc::new(Client::of("http://127.0.0.1:1", None, None)),
            job: "j".into(),
            gpus: 8,
            seen: BTreeMap::new(),
        };
        let columns = |degrees: &[u64], token_us: &[f64]| {
            json!({
                "degree": degrees, "token_us": token_us, "step_us": token_us,
                "prefill_us": token_us, "capacity_tokens": degrees,
            })
        };
        replanner.see(&columns(&[1, 4], &[30.0, 10.0]));
        replanner.see(&columns(&[4], &[9.0]));
        let asked = replanner.columns();
        assert_eq!(asked["degree"], json!([1, 4]));
        assert_eq!(asked["token_us"], json!([30.0, 9.0]));
        assert_eq!(asked["capacity_tokens"], json!([1, 4]));
    }
}
