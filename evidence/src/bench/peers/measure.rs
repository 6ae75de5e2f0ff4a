//! One system in front of fresh engines, and the agents that use it.

use super::first::First;
use super::load::Load;
use crate::bench::BenchError;
use crate::bench::real_engines::RealEngines;
use crate::bench::routers::front::{Behind, Front};
use crate::bench::routers::systems::System;
use serde::Serialize;
use treadle_demo::agents::{Crowd, CrowdOptions};
use treadle_demo::engines;
use treadle_demo::run_counters::{Measured, Window};
use treadle_demo::workload::{self, Fitted, Memory};
use treadle_engine_model::engine::{EngineProfile, content_hash};
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};
use treadle_report::table::number;
use treadle_systems::pressure::rank_profile;

/// No agent asks for a stream, so the engines need not stop at each token.
const TOKENS_PER_EVENT: u32 = 1_024;

/// Memory, as shares of the peak demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// KV memory of all engines together.
    pub(super) kv: f64,
    /// Host memory that they offload to by themselves.
    pub(super) host: f64,
}

/// What all runs have in common.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    /// Engines in each.
    pub(super) engines: u32,
    /// Ranks of each simulated one.
    pub(super) ranks: u32,
    /// Those engines, if they are not simulated.
    pub(super) real_engines: Option<RealEngines>,
    /// What simulated ones are like.
    pub(super) profile: EngineProfile,
    /// Agents at once.
    pub(super) live: usize,
    /// What is measured.
    pub(super) window: Window,
    /// Scaled seconds in a real one.
    pub(super) time_scale: f64,
    /// What comes before the agents.
    pub(super) first: First,
    /// What the engines add to each prompt.
    pub(super) template_tokens: u32,
}

/// Which run it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RunKey {
    pub(super) system: String,
    pub(super) kv: f64,
    pub(super) host: f64,
    pub(super) seed: u64,
}

impl RunKey {
    /// Whether it is of a system in a cell.
    pub(super) fn is_of(&self, system: &str, cell: Cell) -> bool {
        self.system == system
            && Cell {
                kv: self.kv,
                host: self.host,
            } == cell
    }
}

/// The result of one system with one seed. Times are scaled unless noted otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) key: RunKey,
    pub(super) kv_tokens_per_engine: u64,
    pub(super) steps_per_min: f64,
    /// Of steps answered within the window, and the ages of those still open at its end.
    pub(super) step_p50_s: f64,
    pub(super) step_p99_s: f64,
    pub(super) failures: u64,
    pub(super) first_failure: Option<String>,
    /// Why the request before the agents was not answered.
    pub(super) first_refused: Option<String>,
    /// Share of prompt tokens found in caches, as the answers say, host memory included.
    pub(super) hit_rate: f64,
    /// Share of prompt tokens that came from host memory, as the engines say, warm-up included.
    pub(super) host_hit_rate: f64,
    /// CPU time of the system's processes for a thousand answered steps, in real seconds.
    pub(super) cpu_s_per_1000: f64,
    /// 99th percentile of how much the agents overslept, in real milliseconds.
    pub(super) lag_p99_ms: f64,
    /// How far the engines were behind their clocks at worst.
    pub(super) engine_late_s: f64,
}

impl Outcome {
    /// A few of its figures, for people.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} steps/min, p99 {} s, {} failures",
            number(self.steps_per_min),
            number(self.step_p99_s),
            self.failures
        )
    }
}

/// What was seen of a run from outside of the engines.
struct Observation {
    measured: Measured,
    /// CPU time of the system's processes, in real seconds.
    cpu_s: f64,
    first_refused: Option<String>,
}

/// What simulated engines counted; real ones are not asked.
#[derive(Clone, Copy, Debug, Default)]
struct EngineCounts {
    /// Prompt tokens.
    asked: u64,
    /// Those of them that came from host memory.
    from_host: u64,
    late_us: u64,
}

impl EngineCounts {
    async fn of(engines: &[EngineSimHandle]) -> Self {
        let mut counts = Self::default();
        for engine in engines {
            let counters = engine.snapshot().await.counters;
            counts.asked += counters.prefix_queries_tokens;
            counts.from_host += counters.host_hits_tokens;
            counts.late_us = counts.late_us.max(engine.late_us());
        }
        counts
    }
}

impl Conditions {
    /// Runs the agents against a system.
    pub(super) async fn measure(
        &self,
        system: &System,
        cell: Cell,
        seed: u64,
        load: Load,
    ) -> Result<Outcome, BenchError> {
        let key = RunKey {
            system: system.name.clone(),
            kv: cell.kv,
            host: cell.host,
            seed,
        };
        match &self.real_engines {
            Some(real_engines) => self.on_real_engines(real_engines, system, key, load).await,
            None => self.on_simulated(system, key, load).await,
        }
    }

    async fn on_real_engines(
        &self,
        real_engines: &RealEngines,
        system: &System,
        key: RunKey,
        mut load: Load,
    ) -> Result<Outcome, BenchError> {
        load.scale_to(self.live, key.kv, real_engines.planned_tokens());
        load.truncate_at(real_engines.planned_context_tokens());
        let behind = Behind {
            engines: &real_engines.urls,
            capacity_tokens: real_engines.tokens,
            prefill_tokens_per_s: real_engines.prefill_tokens_per_s,
            time_scale: self.time_scale,
        };
        // Engines keep the caches of the systems before: each system gets texts of its own.
        let salt = content_hash(&system.name.bytes().map(u64::from).collect::<Vec<_>>());
        let model = real_engines.model.clone();
        let run = self.observe(system, &behind, model, key.seed ^ salt, load);
        Ok(self.outcome(
            key,
            real_engines.tokens,
            run.await?,
            EngineCounts::default(),
        ))
    }

    async fn on_simulated(
        &self,
        system: &System,
        key: RunKey,
        mut load: Load,
    ) -> Result<Outcome, BenchError> {
        let memory = Memory {
            engines: self.engines * self.ranks,
            kv_share: key.kv,
            host_share: key.host,
            template_tokens: self.template_tokens,
        };
        let each = rank_profile(&self.profile, self.ranks);
        let runs = std::mem::take(&mut load.runs);
        let Fitted { runs, profile, .. } = workload::fit(runs, self.live, &each, &memory)?;
        load.runs = runs.to_vec();
        load.truncate_at(
            profile
                .sequence_limit_tokens()
                .saturating_sub(self.template_tokens),
        );
        let kv_tokens = profile.kv_tokens() * u64::from(self.ranks);
        let prefill = self.profile.prefill_tokens_per_s as f64;
        let options = EngineSimOptions {
            profile,
            ranks: self.ranks,
            template_tokens: self.template_tokens,
            time_scale: self.time_scale,
            tokens_per_event: TOKENS_PER_EVENT,
            seed: key.seed,
            ..EngineSimOptions::default()
        };
        let engines = engines::start(self.engines, &options).await?;
        let urls: Vec<String> = engines.iter().map(EngineSimHandle::url).collect();
        let behind = Behind {
            engines: &urls,
            capacity_tokens: kv_tokens,
            prefill_tokens_per_s: prefill,
            time_scale: self.time_scale,
        };
        let run = self.observe(system, &behind, options.model, key.seed, load);
        let run = run.await;
        let counts = EngineCounts::of(&engines).await;
        for engine in engines {
            engine.shutdown().await;
        }
        Ok(self.outcome(key, kv_tokens, run?, counts))
    }

    /// What is seen of a system in front of engines, from its start to its end.
    async fn observe(
        &self,
        system: &System,
        behind: &Behind<'_>,
        model: String,
        seed: u64,
        load: Load,
    ) -> Result<Observation, BenchError> {
        let front = Front::start(system, behind).await?;
        let first_refused = self.first.send(&front, &model).await.err();
        let before_s = front.cpu_s()?;
        let crowd = Crowd::begin(CrowdOptions {
            url: front.url.clone(),
            naming: front.naming.clone(),
            model,
            stream: false,
            seed,
            time_scale: self.time_scale,
            runs: load.runs.into(),
            subagents: load.subagents,
            slots: self.live,
            window: self.window,
        });
        let measured = crowd.until_end(|_| {}).await;
        // A system that has ended by then has failed every step since; its use is not known.
        let cpu_s = front.cpu_s().map_or(f64::NAN, |after_s| after_s - before_s);
        crowd.leave().await;
        front.stop().await;
        Ok(Observation {
            measured,
            cpu_s,
            first_refused,
        })
    }

    fn outcome(
        &self,
        key: RunKey,
        kv_tokens_per_engine: u64,
        seen: Observation,
        counts: EngineCounts,
    ) -> Outcome {
        let (cpu_s, first_refused) = (seen.cpu_s, seen.first_refused);
        let mut seen = seen.measured;
        Outcome {
            key,
            kv_tokens_per_engine,
            first_refused,
            steps_per_min: seen.steps as f64 / self.window.minutes(),
            step_p50_s: seen.latencies.percentile(0.50).as_secs_f64(),
            step_p99_s: seen.latencies.percentile(0.99).as_secs_f64(),
            failures: seen.failures,
            first_failure: seen.first_failure,
            hit_rate: seen.prompt.cached as f64 / seen.prompt.all.max(1) as f64,
            host_hit_rate: counts.from_host as f64 / counts.asked.max(1) as f64,
            cpu_s_per_1000: cpu_s / seen.answered.max(1) as f64 * 1e3,
            lag_p99_ms: seen.lag.percentile_ms(0.99),
            engine_late_s: counts.late_us as f64 / 1e6,
        }
    }
}
