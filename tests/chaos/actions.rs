//! Tools that the daemon runs: each first writes a line, so that the checker can count its runs.
//! Half of them are requested over REST and followed to their end, every other one of these in its
//! program's sandbox; the others are sent over the broker without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use treadle_broker::{Broker, Letter, Queue};

use crate::agents::Shared;
use crate::error::ChaosError;
use crate::exchange::Outcome;

/// File in their working folder that each appends a line to.
pub(crate) const RAN: &str = "ran";
const ACTIONS: &str = "/api/v1/actions";
const SANDBOXES: &str = "/api/v1/sandboxes";
/// How long one runs.
const RUN_MS: std::ops::Range<u64> = 20..600;
/// Pause before a request is tried again.
const RETRY: Duration = Duration::from_millis(300);
/// Maximum number of attempts: minutes in all.
const ATTEMPTS_MAX: u32 = 1_000;

/// Runs a program's actions.
pub(crate) struct Actor {
    program: String,
    job: String,
    shared: Arc<Shared>,
    random: Pcg64Mcg,
    count: u32,
    /// Its sandbox, once it has needed one.
    sandbox: Option<String>,
}

/// An action request.
struct ActionRequest {
    key: String,
    is_idempotent: bool,
    by_broker: bool,
    body: Value,
}

impl Actor {
    pub(crate) fn new(program: &str, job: &str, shared: &Arc<Shared>, seed: u64) -> Self {
        Self {
            program: program.to_owned(),
            job: job.to_owned(),
            shared: shared.clone(),
            random: Pcg64Mcg::seed_from_u64(seed),
            count: 0,
            sandbox: None,
        }
    }

    /// Runs an action; returns whether it was accepted and, if followed, came to its end.
    pub(crate) async fn act(&mut self) -> Result<bool, ChaosError> {
        let asked = self.next().await?;
        let Some(answer) = self.ask(&asked).await? else {
            return Ok(false);
        };
        if asked.by_broker {
            self.shared.pulse.sent.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let Some(action) = answer["action"].as_u64() else {
            return Err(ChaosError::Nonsense(format!(
                "an action's answer: {answer}"
            )));
        };
        self.follow(&asked, action).await
    }

    async fn next(&mut self) -> Result<ActionRequest, ChaosError> {
        self.count += 1;
        let key = format!("{}/{}", self.program, self.count);
        let is_idempotent = self.random.random_ratio(1, 2);
        let by_broker = self.shared.runs.is_some() && self.random.random_ratio(1, 2);
        let ms = self.random.random_range(RUN_MS);
        let script = format!("echo {key} >> {RAN}; sleep 0.{ms:03}; echo done");
        let mut body = json!({
            "kind": "chaos",
            "idempotent": is_idempotent,
            "idempotency_key": key,
            "run": {"process": {"command": ["sh", "-c", script]}},
        });
        if by_broker {
            // Nobody waits for it: it must not end with its program.
            body["job"] = json!(self.job);
        } else {
            body["program_id"] = json!(self.program);
            if self.random.random_ratio(1, 2)
                && let Some(sandbox) = self.sandbox().await?
            {
                let mut run = body["run"]["process"].take();
                run["id"] = json!(sandbox);
                body["run"] = json!({"sandbox": run});
            }
        }
        Ok(ActionRequest {
            key,
            is_idempotent,
            by_broker,
            body,
        })
    }

    /// The program's sandbox. It does not end with the program: its files are read at the end.
    async fn sandbox(&mut self) -> Result<Option<String>, ChaosError> {
        let body = json!({"job": self.job});
        for _ in 0..ATTEMPTS_MAX {
            if self.sandbox.is_some() {
                break;
            }
            let base = &self.shared.daemons[0];
            let made = self.shared.client.post(base, SANDBOXES, &self.job, &body);
            match made.await {
                Outcome::Complete { answer, .. } => {
                    self.sandbox = answer["id"].as_str().map(str::to_owned);
                }
                Outcome::Refused(why) => return Err(ChaosError::Nonsense(why)),
                Outcome::Broken(_) => tokio::time::sleep(RETRY).await,
            }
        }
        Ok(self.sandbox.clone())
    }

    /// Retries until it is acknowledged; returns the answer, which is null over the broker. `None`
    /// if it was refused.
    async fn ask(&self, asked: &ActionRequest) -> Result<Option<Value>, ChaosError> {
        for _ in 0..ATTEMPTS_MAX {
            let outcome = match &self.shared.runs {
                Some(broker) if asked.by_broker => send(broker, asked).await,
                _ => {
                    let base = &self.shared.daemons[0];
                    let posted = self
                        .shared
                        .client
                        .post(base, ACTIONS, &self.job, &asked.body);
                    posted.await
                }
            };
            let (told, why) = match &outcome {
                Outcome::Complete { .. } => ("complete", None),
                Outcome::Broken(why) => ("broken", Some(why)),
                Outcome::Refused(why) => ("refused", Some(why)),
            };
            self.shared.record.add(&json!({
                "kind": "action",
                "program": self.program,
                "key": asked.key,
                "idempotent": asked.is_idempotent,
                "outcome": told,
                "why": why,
            }))?;
            match outcome {
                Outcome::Complete { answer, .. } => return Ok(Some(answer)),
                Outcome::Refused(_) => return Ok(None),
                Outcome::Broken(_) => tokio::time::sleep(RETRY).await,
            }
        }
        Ok(None)
    }

    /// Follows it to its end.
    async fn follow(&self, asked: &ActionRequest, action: u64) -> Result<bool, ChaosError> {
        let path = format!("{ACTIONS}/{action}?wait_s=1");
        for _ in 0..ATTEMPTS_MAX {
            let base = &self.shared.daemons[0];
            let view = self.shared.client.get(base, &path, None).await;
            let view: Value = view
                .and_then(|view| serde_json::from_str(&view).ok())
                .unwrap_or_default();
            if view["status"] == "ended" {
                let outcome = &view["outcome"]["outcome"];
                let line = json!({"kind": "action_end", "key": asked.key, "outcome": outcome});
                self.shared.record.add(&line)?;
                return Ok(true);
            }
            if view.is_null() {
                tokio::time::sleep(RETRY).await;
            }
        }
        Ok(false)
    }
}

async fn send(broker: &treadle_broker::RabbitMq, asked: &ActionRequest) -> Outcome {
    let letter = Letter {
        id: asked.key.clone(),
        body: asked.body.to_string().into_bytes(),
        ..Letter::default()
    };
    match broker.send(Queue::Runs, &letter).await {
        Ok(()) => Outcome::Complete {
            answer: Value::Null,
            text: String::new(),
        },
        Err(error) => Outcome::Broken(error.to_string()),
    }
}
