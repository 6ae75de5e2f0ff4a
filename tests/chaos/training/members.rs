//! The agents: half of them begin members, sample them themselves and report the tokens; the others
//! know only an OpenAI endpoint and three headers, and their tokens are captured.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::Method;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::api::Api;
use super::{BATCH_GROUPS, GROUP_SIZE, JOB, content_of, info_of, lognormal, number_of, reward_of};
use crate::agents::{MODEL, Shared};
use crate::error::ChaosError;
use crate::exchange::Reply;
use crate::options::Options;

/// Pause before a request is tried again, and between two looks at whether the run is over.
const PAUSE: Duration = Duration::from_millis(50);
/// Groups that have not begun, of both kinds of agents: with fewer, more are submitted.
const QUEUED_MIN: u64 = 8;
/// Ways in which a member fails.
const FAILURES: [&str; 4] = [
    "environment_failed",
    "engine_failed",
    "client_failed",
    "aborted",
];

/// Runs the agents, and what submits groups, until the run is over.
pub(crate) fn start(shared: &Arc<Shared>, options: &Options) -> JoinSet<Result<(), ChaosError>> {
    let agent = |number: u32| Agent {
        api: Api::new(shared.daemons[0].clone()),
        shared: shared.clone(),
        number,
        random: Pcg64Mcg::seed_from_u64(options.seed ^ (u64::from(number) << 20)),
    };
    let mut agents = JoinSet::new();
    let submitter = agent(options.programs);
    agents.spawn(submitter.submit());
    let direct = options.programs / 2;
    for number in 0..options.programs {
        agents.spawn(agent(number).work(number < direct));
    }
    agents
}

struct Agent {
    api: Api,
    shared: Arc<Shared>,
    number: u32,
    random: Pcg64Mcg,
}

impl Agent {
    /// Samples one member after another.
    async fn work(mut self, direct: bool) -> Result<(), ChaosError> {
        for run in 0.. {
            if self.is_over() {
                break;
            }
            if direct {
                self.sample(run).await?;
            } else {
                self.converse(run).await?;
            }
        }
        self.shared.pulse.ended.fetch_add(1, Relaxed);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.shared.ending.load(Relaxed)
    }

    /// Keeps the queue short, so that groups of both kinds of agents get their turns.
    async fn submit(mut self) -> Result<(), ChaosError> {
        for run in 0.. {
            loop {
                let Some(job) = self.ask(Method::GET, "", &[], &Value::Null).await else {
                    return Ok(());
                };
                if job.json()["queued"].as_u64() < Some(QUEUED_MIN) {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            let keys = (0..BATCH_GROUPS).map(|n| format!("group-{run}-{n}"));
            let groups = keys.map(|key| json!({"group": key, "content": content_of(&key)}));
            let groups = json!({"groups": groups.collect::<Vec<_>>()});
            for _ in 0..=u32::from(self.random.random_ratio(1, 5)) {
                self.tell("submitted", "", Method::POST, "groups", &groups)
                    .await?;
            }
        }
        Ok(())
    }

    /// A member that the agent begins, and samples itself.
    async fn sample(&mut self, run: u32) -> Result<(), ChaosError> {
        let program = format!("direct-{}-{run}", self.number);
        let Some(version) = self.begin(&program).await? else {
            return Ok(());
        };
        self.pause(300.0).await;
        let path = format!("members/{program}");
        let fate = self.random.random_range(0..100);
        if fate < 3 {
            // Its agent is lost, and so is the member in the end.
            return Ok(());
        }
        if fate < 12 {
            let end = FAILURES[self.random.random_range(0..FAILURES.len())];
            let report = json!({"end": end});
            self.tell("ended", &program, Method::PUT, &path, &report)
                .await?;
            return Ok(());
        }
        let mut report = json!({
            "end": if fate < 20 { "truncated" } else { "completed" },
            "sample": sample_of(&program, version),
            "info": info_of(&program),
        });
        let rewards = self.random.random_bool(0.5);
        if rewards {
            report["reward"] = json!(reward_of(&program));
        }
        let repeats = self.random.random_ratio(1, 5);
        for _ in 0..=u32::from(repeats) {
            let told = self.tell("ended", &program, Method::PUT, &path, &report);
            if !told.await? {
                return Ok(());
            }
        }
        if !rewards {
            self.reward(&program).await?;
        }
        Ok(())
    }

    /// Begins a member of the next group that needs one; the version that engines have then.
    async fn begin(&mut self, program: &str) -> Result<Option<u64>, ChaosError> {
        let body = json!({"program": program, "wait_s": 2});
        loop {
            let Some(reply) = self.ask(Method::POST, "members", &[], &body).await else {
                return Ok(None);
            };
            let answer = reply.json();
            match reply.status.as_u16() {
                200 => return Ok(answer["version"].as_u64()),
                202 => {}
                _ => {
                    self.refused("begun", program, &answer)?;
                    return Ok(None);
                }
            }
        }
    }

    /// A member whose requests the daemon forwards. Agents of a team sample the same group.
    async fn converse(&mut self, run: u32) -> Result<(), ChaosError> {
        let program = format!("forwarded-{}-{run}", self.number);
        let group = format!("team-{}-{run}", self.number / GROUP_SIZE);
        let headers = [
            ("x-treadle-job", JOB),
            ("x-treadle-group", &*group),
            ("x-program-id", &*program),
        ];
        let mut messages = vec![json!({"role": "user", "content": format!("task {group}")})];
        for _ in 0..self.random.random_range(1..4) {
            let tokens = lognormal(&mut self.random, 12.0, 0.7).as_millis() + 1;
            let body = json!({"model": MODEL, "messages": messages, "max_tokens": tokens as u64});
            let path = "/v1/chat/completions";
            let Some(reply) = self.ask(Method::POST, path, &headers, &body).await else {
                return Ok(());
            };
            let answer = reply.json();
            let Some(message) = answer["choices"][0].get("message") else {
                self.refused("step", &program, &answer)?;
                break;
            };
            messages.push(message.clone());
            messages.push(json!({"role": "user", "content": "go on"}));
            self.pause(60.0).await;
        }
        if self.random.random_ratio(1, 12) {
            let end = FAILURES[self.random.random_range(0..FAILURES.len())];
            let (path, report) = (format!("members/{program}"), json!({"end": end}));
            self.tell("ended", &program, Method::PUT, &path, &report)
                .await?;
        }
        let path = format!("/api/v1/programs/{program}");
        self.tell("released", &program, Method::DELETE, &path, &Value::Null)
            .await?;
        self.reward(&program).await
    }

    /// Reports the reward of a member, or that none could be computed.
    async fn reward(&mut self, program: &str) -> Result<(), ChaosError> {
        self.pause(80.0).await;
        let body = if self.random.random_ratio(1, 25) {
            json!({"failed": "the judge timed out"})
        } else {
            json!({"reward": reward_of(program)})
        };
        let path = format!("members/{program}/reward");
        self.tell("reward", program, Method::PUT, &path, &body)
            .await?;
        Ok(())
    }

    /// Reports something and records the answer; returns whether it was accepted.
    async fn tell(
        &mut self,
        kind: &str,
        program: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<bool, ChaosError> {
        let Some(reply) = self.ask(method, path, &[], body).await else {
            return Ok(false);
        };
        let answer = reply.json();
        if !reply.status.is_success() {
            self.refused(kind, program, &answer)?;
            return Ok(false);
        }
        let line = json!({"kind": kind, "program": program, "sent": body, "answer": answer});
        self.shared.record.add(&line)?;
        Ok(true)
    }

    fn refused(&self, what: &str, program: &str, answer: &Value) -> Result<(), ChaosError> {
        let (kind, error) = ("refused", &answer["error"]);
        let line = json!({"kind": kind, "what": what, "program": program, "error": error});
        self.shared.record.add(&line)
    }

    /// Repeats a request until it is answered; `None` if the run is over before that.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Option<Reply> {
        while !self.is_over() {
            let began = Instant::now();
            self.shared.pulse.requests.fetch_add(1, Relaxed);
            let sent = self.api.once(method.clone(), path, headers, body);
            tokio::select! {
                reply = sent => if let Some(reply) = reply {
                    self.shared.pulse.answer(began);
                    return Some(reply);
                },
                () = self.over() => return None,
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    async fn over(&self) {
        while !self.is_over() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn pause(&mut self, median_ms: f64) {
        tokio::time::sleep(lognormal(&mut self.random, median_ms, 1.0)).await;
    }
}

/// Two steps of a program that form one sequence, and sometimes a third that begins another.
fn sample_of(program: &str, version: u64) -> Value {
    let number = number_of(program);
    let (first, second) = (number % 1_000, number % 7);
    let mut steps = vec![
        json!({"prompt": [1, first], "output": [2, second], "logprobs": [-0.5, -0.25],
            "version": version}),
        json!({"prompt": [1, first, 2, second, 9], "output": [3], "logprobs": [-0.125],
            "version": version}),
    ];
    if number.is_multiple_of(3) {
        steps.push(
            json!({"prompt": [5, first], "output": [4, 4, 4], "logprobs": [-1.5, -0.75, -3.0],
            "version": version}),
        );
    }
    json!({"steps": steps})
}
