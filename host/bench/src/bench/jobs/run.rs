//! One job to its end in real time: simulated engines of two kinds over HTTP, a daemon in front of
//! them, and its agents.

use super::super::BenchError;
use super::super::simulated::{daemon_config, start_engine};
use super::{JobsArgs, System, profiles};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use treadle_config::{AnonymousScope, Config};
use treadle_demo::agents::ScaledClock;
use treadle_demo::exchange::{get, put, release, step};
use treadle_demo::naming::Naming;
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};
use treadle_http::Upstream;
use treadle_server::start::Daemon;
use treadle_simulator::workload::{AgentRun, ChatScript};

/// For a connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at what was learnt.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How far from the truth what was learnt may be.
const NEAR: f64 = 0.1;

/// What became of a job.
pub(super) struct Ended {
    /// From the first request to the last answer, in scaled seconds.
    pub(super) makespan_s: f64,
    /// Of each step, in scaled seconds.
    pub(super) steps_s: Vec<f64>,
    pub(super) learnt: Vec<Learnt>,
}

/// What was learnt of an engine.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    url: String,
    /// Microseconds for a token alone, as learnt by the end.
    pub(super) token_us: Option<u64>,
    pub(super) truth_us: u64,
    /// Steps that the job had finished when it was first within a tenth of the truth.
    pub(super) near_after: Option<u64>,
}

/// What the agents share.
struct Agents {
    url: String,
    upstream: Upstream,
    model: String,
    seed: u64,
    time_scale: f64,
    clock: ScaledClock,
    /// Steps that have ended.
    steps: AtomicU64,
}

/// Runs a job under a system; each program begins at its time, in scaled seconds.
pub(super) async fn run(
    args: &JobsArgs,
    system: System,
    runs: &[AgentRun],
    begins_s: &[f64],
) -> Result<Ended, BenchError> {
    let ended = |error: String| BenchError::Ended(error);
    let profiles = profiles();
    let engines = start_engines(&profiles, args).await?;
    let config = config(args, system, &engines);
    let daemon = Daemon::start(&config).await;
    let daemon = daemon.map_err(|e| ended(e.to_string()))?;
    let agents = Arc::new(Agents {
        url: daemon.url(),
        upstream: Upstream::new(CONNECT_TIMEOUT),
        model: EngineSimOptions::default().model,
        seed: args.seed,
        time_scale: args.time_scale,
        clock: ScaledClock::begin(args.time_scale),
        steps: AtomicU64::new(0),
    });
    for (world, policy, config) in system.policies(&profiles) {
        let binding = json!({"world": world, "policy": policy, "config": config}).to_string();
        let bound = put(&agents.upstream, &agents.url, "/api/v1/bindings", binding).await;
        bound.map_err(ended)?;
    }
    let over = Arc::new(Notify::new());
    let unknown = |(engine, profile): (&EngineSimHandle, &EngineProfile)| Learnt {
        url: engine.url(),
        token_us: None,
        truth_us: profile.ideal_step_us(1, 1, 0, 1),
        near_after: None,
    };
    let unknown = engines.iter().zip(&profiles).map(unknown).collect();
    let watch = tokio::spawn(watch(agents.clone(), unknown, over.clone()));
    let began = std::time::Instant::now();
    let mut playing = JoinSet::new();
    for (run, begins_s) in runs.iter().zip(begins_s) {
        let begins = agents.clock.real((begins_s * 1e6) as u64);
        playing.spawn(agents.clone().play(run.clone(), begins));
    }
    let mut steps_s = Vec::new();
    while let Some(played) = playing.join_next().await {
        let played = played.map_err(|e| ended(e.to_string()))?;
        steps_s.extend(played.map_err(|cause| BenchError::Requests {
            case: system.name().to_owned(),
            count: 1,
            first: cause,
        })?);
    }
    let makespan_s = began.elapsed().as_secs_f64() * args.time_scale;
    over.notify_one();
    let learnt = watch.await.map_err(|e| ended(e.to_string()))?;
    daemon.stop().await;
    for engine in engines {
        engine.shutdown().await;
    }
    Ok(Ended {
        makespan_s,
        steps_s,
        learnt,
    })
}

impl Agents {
    /// A program to its end; gives the scaled seconds of each step.
    async fn play(self: Arc<Self>, run: AgentRun, begins: Duration) -> Result<Vec<f64>, String> {
        tokio::time::sleep(begins).await;
        let naming = Naming::default();
        let headers = naming.headers(run.id.as_str().into());
        let mut script = ChatScript::new(&run, self.seed);
        let mut steps_s = Vec::new();
        while let Some(index) = script.next_step() {
            let body = script.body(&self.model, false);
            let sent = std::time::Instant::now();
            let answer = step(&self.upstream, &self.url, &headers, body).await?;
            self.steps.fetch_add(1, Ordering::Relaxed);
            steps_s.push(sent.elapsed().as_secs_f64() * self.time_scale);
            script.push_answer(&answer.text);
            if index + 1 < run.steps.len() {
                tokio::time::sleep(self.clock.real(run.steps[index].tool_us)).await;
            }
        }
        release(&self.upstream, &self.url, &naming, run.id.as_str().into()).await?;
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
        self.token_us = token_us.or(self.token_us);
        let off = |us: u64| (us as f64 / self.truth_us as f64 - 1.0).abs();
        if self.near_after.is_none() && token_us.is_some_and(|us| off(us) <= NEAR) {
            self.near_after = Some(steps);
        }
    }
}

async fn look(agents: &Agents) -> Result<Value, String> {
    let body = get(&agents.upstream, &agents.url, "/api/v1/workers").await?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

async fn start_engines(
    profiles: &[EngineProfile],
    args: &JobsArgs,
) -> Result<Vec<EngineSimHandle>, BenchError> {
    let mut engines = Vec::new();
    for (number, profile) in (0..).zip(profiles) {
        let seed = args.seed.wrapping_add(number);
        engines.push(start_engine(profile, args.time_scale, seed).await?);
    }
    Ok(engines)
}

/// The daemon's defaults, except for the mode of plain routing.
fn config(args: &JobsArgs, system: System, engines: &[EngineSimHandle]) -> Config {
    let urls: Vec<String> = engines.iter().map(EngineSimHandle::url).collect();
    let mut config = daemon_config(args.time_scale, &urls);
    config.scheduler.mode = system.mode();
    // Policies are bound over HTTP.
    config.auth.anonymous_scope = AnonymousScope::Admin;
    // A prediction takes its time whatever the clocks do.
    config.rollout.gather_ms = (20.0 * args.time_scale) as u64;
    config
}
