//! One workload to its end in real time: engines over HTTP, simulated or not, a daemon in front of them, and
//! agents as its clients; and what the daemon's journal has of it.

use super::super::BenchError;
use super::super::simulated::{daemon_config, start_engine};
use super::cases::{Case, Set};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use treadle_config::Config;
use treadle_demo::agents::ScaledClock;
use treadle_demo::exchange::{release, step};
use treadle_demo::naming::Naming;
use treadle_engine_model::engine::content_hash;
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};
use treadle_http::Upstream;
use treadle_server::start::Daemon;
use treadle_simulator::workload::{AgentRun, ChatScript};
use treadle_whatif::recorded::{RecorderOptions, Workload};
use treadle_whatif::request::WindowSpec;
use treadle_whatif::window;

/// For a connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For the journal to be written.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at it.
const JOURNAL_PAUSE: Duration = Duration::from_millis(20);
/// Longest lag between the end of a program and the beginning of the one that takes its slot, in
/// real seconds.
const SLOT_LAG_S: f64 = 0.25;

/// The result of a real run.
pub(super) struct RealRun {
    /// What the journal has of it.
    pub(super) workload: Workload,
    /// Real seconds from the first request to the last answer.
    pub(super) took_s: f64,
}

/// What the agents of a run share.
struct Crowd {
    url: String,
    upstream: Upstream,
    model: String,
    seed: u64,
    clock: ScaledClock,
    left: Mutex<VecDeque<AgentRun>>,
}

/// Runs a workload to its end under a set of policies, for the `number`th time.
pub(super) async fn run(
    case: &Case,
    set: &Set,
    time_scale: f64,
    number: u32,
) -> Result<RealRun, BenchError> {
    let (engines, urls, model, time_scale) = if let Some(real_engines) = &case.real_engines {
        (
            Vec::new(),
            real_engines.urls.clone(),
            real_engines.model.clone(),
            1.0,
        )
    } else {
        let engines = start_engines(case, time_scale).await?;
        let urls = engines.iter().map(EngineSimHandle::url).collect();
        let model = EngineSimOptions::default().model;
        (engines, urls, model, time_scale)
    };
    let config = config(case, set, time_scale, &urls);
    let ended = |error: &dyn std::fmt::Display| BenchError::Ended(error.to_string());
    let daemon = Daemon::start(&config).await.map_err(|e| ended(&e))?;
    let started = Instant::now();
    let crowd = Arc::new(Crowd {
        url: daemon.url(),
        upstream: Upstream::new(CONNECT_TIMEOUT),
        model,
        seed: seed(case, set, number),
        clock: ScaledClock::begin(time_scale),
        left: Mutex::new(case.runs.clone().into()),
    });
    let mut slots = JoinSet::new();
    for _ in 0..case.slots {
        slots.spawn(crowd.clone().sit());
    }
    while let Some(sat) = slots.join_next().await {
        let sat = sat.map_err(|e| ended(&e))?;
        sat.map_err(|cause| BenchError::Requests {
            case: format!("{} under {}", case.name, set.name),
            count: 1,
            first: cause,
        })?;
    }
    let took_s = started.elapsed().as_secs_f64();
    let workload = recorded(&daemon, time_scale).await?;
    daemon.stop().await;
    for engine in engines {
        engine.shutdown().await;
    }
    Ok(RealRun { workload, took_s })
}

/// The seed of what is said. Engines that run already keep the caches of the runs before, so each
/// has texts of its own there.
fn seed(case: &Case, set: &Set, number: u32) -> u64 {
    if case.real_engines.is_none() {
        return case.seed;
    }
    let name = set.name.bytes().map(u64::from);
    let run: Vec<u64> = name.chain([case.seed, u64::from(number)]).collect();
    content_hash(&run)
}

impl Crowd {
    /// One slot: run after run, until none is left.
    async fn sit(self: Arc<Self>) -> Result<(), String> {
        loop {
            let next = {
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                left.pop_front()
            };
            let Some(run) = next else {
                return Ok(());
            };
            self.play(&run).await?;
        }
    }

    async fn play(&self, run: &AgentRun) -> Result<(), String> {
        let naming = Naming::default();
        let headers = naming.headers(run.id.as_str().into());
        let mut script = ChatScript::new(run, self.seed);
        while let Some(index) = script.next_step() {
            let body = script.body(&self.model, false);
            let answer = step(&self.upstream, &self.url, &headers, body).await?;
            script.push_answer(&answer.text);
            if index + 1 < run.steps.len() {
                tokio::time::sleep(self.clock.real(run.steps[index].tool_us)).await;
            }
        }
        release(&self.upstream, &self.url, &naming, run.id.as_str().into()).await
    }
}

/// The workload as the daemon's journal has it, once all of it is written.
async fn recorded(daemon: &Daemon, time_scale: f64) -> Result<Workload, BenchError> {
    let overview = daemon.app.driver.overview().await;
    let seq = overview
        .map_err(|stopped| BenchError::Ended(stopped.to_string()))?
        .seq;
    let began = Instant::now();
    while daemon.app.store.last_seq().await? < seq {
        if began.elapsed() > JOURNAL_TIMEOUT {
            return Err(BenchError::Ended("the journal was not written".into()));
        }
        tokio::time::sleep(JOURNAL_PAUSE).await;
    }
    let options = RecorderOptions {
        slot_lag_us: (SLOT_LAG_S * time_scale * 1e6) as u64,
        ..RecorderOptions::default()
    };
    let window = WindowSpec::default();
    let loaded = window::load(&*daemon.app.store, &window, None, options, &|| true).await;
    loaded.map_err(|failure| BenchError::Ended(failure.to_string()))
}

async fn start_engines(case: &Case, time_scale: f64) -> Result<Vec<EngineSimHandle>, BenchError> {
    let mut engines = Vec::new();
    for number in 0..case.engines {
        let seed = case.seed.wrapping_add(u64::from(number));
        engines.push(start_engine(&case.profile, time_scale, seed).await?);
    }
    Ok(engines)
}

/// The daemon's defaults, except for the set's settings.
fn config(case: &Case, set: &Set, time_scale: f64, engines: &[String]) -> Config {
    let mut config = daemon_config(time_scale, engines);
    config.scheduler.mode = set.mode;
    let kv = case.kv(set);
    config.kv.retention = kv.retention;
    config.kv.host_tokens_max = kv.host_tokens_max;
    config.kv.host_tokens_per_s = kv.host_tokens_per_s;
    config.kv.migration_tokens_per_s = kv.migration_tokens_per_s;
    config.kv.prefill_tokens_per_s = kv.prefill_tokens_per_s;
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::whatif::cases::cases;

    #[test]
    fn what_is_run_and_what_is_replayed_have_the_same_means() {
        for case in cases(false, &[]).unwrap() {
            for set in case.sets {
                let core = config(&case, set, 1.0, &[]).core();
                assert_eq!(core.kv, case.kv(set), "{}", set.name);
                assert_eq!(core.mode, set.mode);
            }
        }
    }
}
