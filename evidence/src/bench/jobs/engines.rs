//! The engines of a job, and what they are in truth.

use super::JobsArgs;
use crate::bench::BenchError;
use crate::bench::real_engines::RealEngines;
use crate::bench::simulated::start_engine;
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};
use treadle_simulator::workload::AgentRun;

/// Simulated engines of each kind.
const ENGINES: usize = 2;
/// The kinds: presets whose tokens take different times.
pub(super) const KINDS: [&str; 2] = ["qwen3-8b-h100", "qwen3-32b-h100"];
/// Sequences at once at which a token's time is part of a calibration by hand.
const BATCHES: [u64; 3] = [8, 32, 128];
/// The same for engines that run already; most have few slots here.
const BATCHES_OF_GIVEN: [u64; 2] = [2, 4];

/// What an engine is in truth.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// Its KV memory, in tokens.
    pub(super) tokens: u64,
    /// Scaled microseconds for a token of one sequence.
    pub(super) token_us: u64,
    /// Sequences at once, and how many times as long a token then takes.
    pub(super) slowdowns: Vec<(u64, f64)>,
}

/// Engines that can be put behind a system.
pub(super) enum Engines {
    Simulated(Vec<EngineProfile>),
    /// Real ones, with their truth as measured beforehand.
    Real(RealEngines, Kind),
}

/// Engines that serve.
pub(super) struct Serving {
    pub(super) urls: Vec<String>,
    pub(super) model: String,
    simulated: Vec<EngineSimHandle>,
}

impl Engines {
    /// Those that were named, or simulated ones: those of one kind beside each other.
    pub(super) async fn meet(args: &JobsArgs) -> Result<Self, BenchError> {
        let Some(real_engines) = args.real_engines.meet(args.time_scale).await? else {
            let kinds = KINDS.iter().filter_map(|name| EngineProfile::named(name));
            let each = kinds.flat_map(|profile| std::iter::repeat_n(profile, ENGINES));
            return Ok(Self::Simulated(each.collect()));
        };
        let alone = real_engines.token_us(1, args.time_scale).await?;
        let mut slowdowns = Vec::new();
        for batch in BATCHES_OF_GIVEN {
            let of_batch = real_engines.token_us(batch, args.time_scale).await?;
            slowdowns.push((batch, of_batch / alone));
        }
        let kind = Kind {
            tokens: real_engines.tokens,
            token_us: alone as u64,
            slowdowns,
        };
        Ok(Self::Real(real_engines, kind))
    }

    /// Whether they are models.
    pub(super) const fn are_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Names of the simulated kinds, or the model of those that run already.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Simulated(_) => KINDS.to_vec(),
            Self::Real(real_engines, _) => vec![&real_engines.model],
        }
    }

    /// What each is in truth.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Simulated(profiles) => profiles.iter().map(of_profile).collect(),
            Self::Real(real_engines, kind) => vec![kind.clone(); real_engines.urls.len()],
        }
    }

    /// Scales the runs of a job until the longest fits into engines that run already; simulated ones
    /// take them as they are.
    pub(super) fn fit(&self, runs: &mut [AgentRun]) {
        let Self::Real(real_engines, _) = self else {
            return;
        };
        let longest = runs.iter().map(AgentRun::final_context_tokens).max();
        let factor =
            f64::from(real_engines.planned_context_tokens()) / f64::from(longest.unwrap_or(1));
        for run in runs {
            run.scale_tokens(factor);
        }
    }

    /// Starts those that don't run already.
    pub(super) async fn serve(&self, args: &JobsArgs, seed: u64) -> Result<Serving, BenchError> {
        let profiles = match self {
            Self::Simulated(profiles) => profiles,
            Self::Real(real_engines, _) => {
                return Ok(Serving {
                    urls: real_engines.urls.clone(),
                    model: real_engines.model.clone(),
                    simulated: Vec::new(),
                });
            }
        };
        let mut simulated = Vec::new();
        for (number, profile) in (0..).zip(profiles) {
            let seed = seed.wrapping_add(number);
            simulated.push(start_engine(profile, args.time_scale, seed).await?);
        }
        Ok(Serving {
            urls: simulated.iter().map(EngineSimHandle::url).collect(),
            model: EngineSimOptions::default().model,
            simulated,
        })
    }
}

impl Serving {
    /// Ends those that were started.
    pub(super) async fn stop(self) {
        for engine in self.simulated {
            engine.shutdown().await;
        }
    }
}

fn of_profile(profile: &EngineProfile) -> Kind {
    let token_us = |batch: u64| profile.ideal_step_us(1, 1, 0, batch);
    let slowdown = |batch| (batch, token_us(batch) as f64 / token_us(1) as f64);
    Kind {
        tokens: profile.kv_tokens(),
        token_us: token_us(1),
        slowdowns: BATCHES.map(slowdown).to_vec(),
    }
}
