//! One job to its end in real time: engines over HTTP, a daemon in front of them, and its agents.

use super::super::BenchError;
use super::super::simulated::daemon_config;
use super::JobsArgs;
use super::engines::{Engines, Kind, Serving};
use super::systems::System;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use treadle_config::{AnonymousScope, Config};
use treadle_core::Mode;
use treadle_demo::agents::ScaledClock;
use treadle_demo::exchange::{get, put, release, step};
use treadle_demo::naming::Naming;
use treadle_engine_model::engine::content_hash;
use treadle_http::Upstream;
use treadle_server::start::Daemon;
use treadle_simulator::workload::{AgentRun, ChatScript};

/// For a connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at what was learnt.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How far from the truth what was learnt may be.
const NEAR: f64 = 0.1;

/// A job, and what it runs on.
pub(super) struct Job<'a> {
    pub(super) args: &'a JobsArgs,
    pub(super) engines: &'a Engines,
    pub(super) seed: u64,
    pub(super) runs: Vec<AgentRun>,
    /// When each begins, in scaled seconds.
    pub(super) begins_s: Vec<f64>,
}

/// What became of a job.
pub(super) struct Ended {
    /// From the first request to the last answer, in scaled seconds.
    pub(super) makespan_s: f64,
    /// The 99th percentile of a step, in scaled seconds.
    pub(super) p99_s: f64,
    pub(super) learnt: Vec<Learnt>,
}

/// What was learnt of an engine.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    url: String,
    /// Scaled microseconds for a token of one sequence, as learnt by the end; 0 for nothing.
    pub(super) token_us: u64,
    pub(super) truth_us: u64,
    /// Steps that the job had finished when it was first within a tenth of the truth.
    pub(super) near_after: Option<u64>,
}

/// What the agents share.
struct Agents {
    /// The daemon, or the engines among which programs are pinned.
    urls: Vec<String>,
    is_daemon: bool,
    upstream: Upstream,
    model: String,
    seed: u64,
    time_scale: f64,
    clock: ScaledClock,
    /// Steps that have ended.
    steps: AtomicU64,
}

impl Job<'_> {
    /// Runs it under a system.
    pub(super) async fn run(&self, system: System) -> Result<Ended, BenchError> {
        let ended = |error: String| BenchError::Ended(error);
        let serving = self.engines.serve(self.args, self.seed).await?;
        let daemon = match system.mode() {
            None => None,
            Some(mode) => {
                let daemon = Daemon::start(&self.config(mode, &serving.urls)).await;
                Some(daemon.map_err(|e| ended(e.to_string()))?)
            }
        };
        let of_daemon = daemon.as_ref().map(|daemon| vec![daemon.url()]);
        let agents = Arc::new(Agents {
            is_daemon: daemon.is_some(),
            urls: of_daemon.unwrap_or_else(|| serving.urls.clone()),
            upstream: Upstream::new(CONNECT_TIMEOUT),
            model: serving.model.clone(),
            seed: self.seed_of_texts(system),
            time_scale: self.args.time_scale,
            clock: ScaledClock::begin(self.args.time_scale),
            steps: AtomicU64::new(0),
        });
        for (world, policy, config) in system.policies(&self.engines.kinds()) {
            let binding = json!({"world": world, "policy": policy, "config": config}).to_string();
            let bound = put(
                &agents.upstream,
                &agents.urls[0],
                "/api/v1/bindings",
                binding,
            )
            .await;
            bound.map_err(ended)?;
        }
        let over = Arc::new(Notify::new());
        let watch = tokio::spawn(watch(agents.clone(), self.unknown(&serving), over.clone()));
        let (makespan_s, p99_s) = self.play(&agents, system).await?;
        over.notify_one();
        let learnt = watch.await.map_err(|e| ended(e.to_string()))?;
        if let Some(daemon) = daemon {
            daemon.stop().await;
        }
        serving.stop().await;
        Ok(Ended {
            makespan_s,
            p99_s,
            learnt,
        })
    }

    /// All programs to their ends; gives the makespan and the 99th percentile of a step.
    async fn play(&self, agents: &Arc<Agents>, system: System) -> Result<(f64, f64), BenchError> {
        let began = std::time::Instant::now();
        let mut playing = JoinSet::new();
        for (number, (run, begins_s)) in self.runs.iter().zip(&self.begins_s).enumerate() {
            let begins = agents.clock.real((begins_s * 1e6) as u64);
            playing.spawn(agents.clone().play(number, run.clone(), begins));
        }
        let mut steps_s: Vec<f64> = Vec::new();
        while let Some(played) = playing.join_next().await {
            let played = played.map_err(|e| BenchError::Ended(e.to_string()))?;
            steps_s.extend(played.map_err(|cause| BenchError::Requests {
                case: system.name().to_owned(),
                count: 1,
                first: cause,
            })?);
        }
        let makespan_s = began.elapsed().as_secs_f64() * self.args.time_scale;
        steps_s.sort_by(f64::total_cmp);
        let p99_s = steps_s.get(steps_s.len() * 99 / 100).copied();
        Ok((makespan_s, p99_s.unwrap_or(0.0)))
    }

    /// Engines that run already keep the caches of the runs before, so each has texts of its own.
    fn seed_of_texts(&self, system: System) -> u64 {
        let run = [
            self.seed,
            system as u64,
            self.begins_s.iter().sum::<f64>() as u64,
        ];
        match self.engines {
            Engines::Simulated(_) => self.seed,
            Engines::Real(..) => content_hash(&run),
        }
    }

    fn unknown(&self, serving: &Serving) -> Vec<Learnt> {
        let unknown = |(url, kind): (&String, Kind)| Learnt {
            url: url.clone(),
            token_us: 0,
            truth_us: kind.token_us,
            near_after: None,
        };
        let engines = serving.urls.iter().zip(self.engines.kinds());
        engines.map(unknown).collect()
    }

    /// The daemon's defaults, except for the mode of plain routing.
    fn config(&self, mode: Mode, urls: &[String]) -> Config {
        let mut config = daemon_config(self.args.time_scale, urls);
        config.scheduler.mode = mode;
        // Policies are bound over HTTP.
        config.auth.anonymous_scope = AnonymousScope::Admin;
        // A prediction takes its time whatever the clocks do.
        config.rollout.gather_ms = (20.0 * self.args.time_scale) as u64;
        config
    }
}

impl Agents {
    /// A program to its end; gives the scaled seconds of each step.
    async fn play(
        self: Arc<Self>,
        number: usize,
        run: AgentRun,
        begins: Duration,
    ) -> Result<Vec<f64>, String> {
        tokio::time::sleep(begins).await;
        let naming = Naming::default();
        let url = &self.urls[number % self.urls.len()];
        let headers = naming.headers(run.id.as_str().into());
        let mut script = ChatScript::new(&run, self.seed);
        let mut steps_s = Vec::new();
        while let Some(index) = script.next_step() {
            let body = script.body(&self.model, false);
            let sent = std::time::Instant::now();
            let answer = step(&self.upstream, url, &headers, body).await?;
            self.steps.fetch_add(1, Ordering::Relaxed);
            steps_s.push(sent.elapsed().as_secs_f64() * self.time_scale);
            script.push_answer(&answer.text);
            if index + 1 < run.steps.len() {
                tokio::time::sleep(self.clock.real(run.steps[index].tool_us)).await;
            }
        }
        if self.is_daemon {
            release(&self.upstream, url, &naming, run.id.as_str().into()).await?;
        }
        Ok(steps_s)
    }
}

/// Looks at what the daemon has learnt of its engines until the job is over.
async fn watch(agents: Arc<Agents>, mut learnt: Vec<Learnt>, over: Arc<Notify>) -> Vec<Learnt> {
    loop {
        let steps = agents.steps.load(Ordering::Relaxed);
        if let Ok(seen) = look(&agents).await {
            let rows = seen["workers"].as_array();
            for row in rows.into_iter().flatten() {
                let known = learnt.iter_mut().find(|known| row["url"] == *known.url);
                if let Some(known) = known {
                    known.see(row["token_us"].as_u64(), steps);
                }
            }
        }
        if tokio::time::timeout(LOOK_PERIOD, over.notified())
            .await
            .is_ok()
        {
            return learnt;
        }
    }
}

impl Learnt {
    fn see(&mut self, token_us: Option<u64>, steps: u64) {
        self.token_us = token_us.unwrap_or(self.token_us);
        let off = |us: u64| (us as f64 / self.truth_us as f64 - 1.0).abs();
        if self.near_after.is_none() && token_us.is_some_and(|us| off(us) <= NEAR) {
            self.near_after = Some(steps);
        }
    }
}

async fn look(agents: &Agents) -> Result<Value, String> {
    let body = get(&agents.upstream, &agents.urls[0], "/api/v1/workers").await?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}
