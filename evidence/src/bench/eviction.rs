//! `treadle-bench eviction`: agents under memory pressure in virtual time, with foresight and with
//! what others do, beside the same agents with room for all.

use super::figures::{Figure, Report, Target};
use super::{BenchError, eviction_ranks, report_progress};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::cluster::Report as SimulationReport;
use treadle_simulator::workload::{
    AgentRun, AgentTask, LognormalAgents, RolloutWorkload, TraceOptions, load_trace,
};
use treadle_systems::pressure::{
    ABLATIONS, BASELINES, FORESIGHT, Goal, LIMITS, LIVE, NO_TIER, Outcome, SHARES, Scenario,
    System, figures,
};

/// Live agents, minutes and slots of a quick run.
const QUICK: (usize, u64) = (32, 3);
/// Built-in agents, by name.
const BUILT_IN: [&str; 5] = ["agents", "slow-tools", "coding", "search", "math"];
/// Median of a slow tool.
const SLOW_TOOL_MS: f64 = 12_000.0;
/// Live agents of a trace.
const TRACE_LIVE: usize = 192;
/// Programs that run to their ends where ranks are compared, as a multiple of those at once.
const WAVES: usize = 4;
/// Prompts of a rollout, with 16 programs each.
const PROMPTS: u32 = 125;

/// Arguments of `treadle-bench eviction`.
#[derive(Args, Clone, Debug)]
pub(super) struct EvictionArgs {
    /// A trace file of agents (docs/traces.md), beside the built-in agents.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Built-in agents: `agents`, of chats and tools of two seconds; the same with tools of twelve;
    /// and those of rollouts, whose tools take about a second.
    #[arg(long, value_delimiter = ',', default_value = "agents",
        value_parser = PossibleValuesParser::new(BUILT_IN))]
    scenes: Vec<String>,
    /// Minutes of virtual time that count, after 5 that do not.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Seed of the built-in agents and of the trace's sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds from that one on; figures are between their means.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=32))]
    seeds: u64,
    /// Host memory that the engines themselves offload to, as a share of the peak demand; it is
    /// there for all systems.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = share)]
    engine_host: f64,
    /// Instead of all this: the agents on one engine that is split into this many ranks, which step
    /// together, under treadle, rank-blind routing and programs that are pinned to ranks.
    #[arg(long, value_name = "RANKS", conflicts_with_all = ["minutes", "engine_host"],
        value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,
    /// Threads. Figures do not depend on them.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
}

impl Default for EvictionArgs {
    fn default() -> Self {
        Self {
            trace: None,
            scenes: vec![BUILT_IN[0].to_owned()],
            minutes: 30,
            seed: 1,
            seeds: 1,
            engine_host: 0.0,
            ranks: None,
            jobs: 2,
        }
    }
}

/// What one thread is to run.
struct RunTask<'a> {
    scene: &'a Scenario,
    share: &'static str,
    system: &'a System,
    kv_tokens: u64,
}

impl EvictionArgs {
    /// Runs all systems on all scenarios.
    pub(super) async fn run(self, quick: bool) -> Result<Report, BenchError> {
        // They keep their threads busy for as long as they run.
        let done = tokio::task::spawn_blocking(move || self.measure(quick));
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))?
    }

    fn measure(&self, quick: bool) -> Result<Report, BenchError> {
        let mut scenes = Vec::new();
        for further in 0..self.seeds {
            scenes.extend(self.scenes(self.seed.wrapping_add(further), quick)?);
        }
        if let Some(ranks) = self.ranks {
            let mut report = eviction_ranks::measure(&scenes, ranks, self.jobs);
            report.setting("seed", self.seed);
            report.setting("seeds", self.seeds);
            return Ok(report);
        }
        let mut report = Report::new("eviction");
        report.setting("seed", self.seed);
        report.setting("seeds", self.seeds);
        report.setting("engine", EngineProfile::glm46_8xh100().name.as_ref());
        report.setting("engines", 2);
        report.setting("engine_host", self.engine_host);
        let outcomes = self.outcomes(&scenes);
        let mut free = Vec::new();
        let names = scenes.len() / self.seeds as usize;
        for scene in &scenes[..names] {
            report.setting(&format!("live.{}", scene.name), scene.live as u64);
            report.setting(&format!("minutes.{}", scene.name), scene.minutes);
            let of_name: Vec<&Scenario> = scenes.iter().filter(|s| s.name == scene.name).collect();
            let without: Vec<SimulationReport> =
                of_name.iter().map(|s| s.without_pressure()).collect();
            let bounds = SHARES.map(|(_, share)| {
                let bounds = of_name.iter().map(|s| s.bound(s.kv_tokens(share)));
                bounds.sum::<f64>() / of_name.len() as f64
            });
            for figure in figures(scene.name, &outcomes, &without, &bounds) {
                let shown = Figure::new(figure.name, figure.value, "ratio");
                report.push(match figure.goal {
                    Some(Goal::AtLeast(least)) => shown.target(Target::AtLeast(least)),
                    Some(Goal::AtMost(most)) => shown.target(Target::AtMost(most)),
                    None => shown,
                });
            }
            free.push(json!({"scene": scene.name, "reports": without, "bounds": bounds}));
        }
        report.detail("outcomes", json!(outcomes));
        report.detail("no_pressure", json!(free));
        report.note(NOTE);
        Ok(report)
    }

    /// The built-in agents, and those of the trace.
    fn scenes(&self, seed: u64, quick: bool) -> Result<Vec<Scenario>, BenchError> {
        let mut scenes = Vec::new();
        for name in BUILT_IN {
            if self.scenes.iter().any(|wanted| wanted == name) {
                let runs = built_in(name, seed)?;
                scenes.push(self.scene(name, runs, LIVE, seed, quick));
            }
        }
        if let Some(path) = &self.trace {
            let runs = recorded(path, seed)?;
            scenes.push(self.scene("trace", runs, TRACE_LIVE, seed, quick));
        }
        Ok(scenes)
    }

    fn scene(
        &self,
        name: &'static str,
        runs: Vec<AgentRun>,
        live: usize,
        seed: u64,
        quick: bool,
    ) -> Scenario {
        if let Some(ranks) = self.ranks {
            let live = if quick { QUICK.0 } else { live };
            let runs = runs.into_iter().take(live * WAVES).collect();
            return Scenario {
                live,
                ..Scenario::on_ranks(name, runs, seed, ranks)
            };
        }
        Scenario {
            live: if quick { QUICK.0 } else { live },
            host_share: self.engine_host,
            minutes: if quick { QUICK.1 } else { self.minutes },
            ..Scenario::on_two_engines(name, runs, seed)
        }
    }

    /// Everything that is to run, in an order that does not depend on threads.
    fn outcomes(&self, scenes: &[Scenario]) -> Vec<Outcome> {
        let systems = || {
            BASELINES
                .iter()
                .chain(&ABLATIONS)
                .chain(&LIMITS)
                .chain([&FORESIGHT, &NO_TIER])
        };
        let mut run_tasks = Vec::new();
        for scene in scenes {
            for (share, of_peak) in SHARES {
                let kv_tokens = scene.kv_tokens(of_peak);
                run_tasks.extend(systems().map(|system| RunTask {
                    scene,
                    share,
                    system,
                    kv_tokens,
                }));
            }
        }
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, SimulationReport)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while let Some((index, run_task)) = take(&next, &run_tasks) {
                        report_progress(&format!("eviction: {}", run_task.title()));
                        let report = run_task.scene.run(run_task.system, run_task.kv_tokens);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((index, report));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        done.into_iter()
            .map(|(index, report)| Outcome {
                scene: run_tasks[index].scene.name,
                share: run_tasks[index].share,
                system: run_tasks[index].system.name,
                report,
            })
            .collect()
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=16.0).contains(&share) => Ok(share),
        _ => Err("give a share of the peak demand from 0 to 16, such as 0.333".to_owned()),
    }
}

fn built_in(name: &str, seed: u64) -> Result<Vec<AgentRun>, BenchError> {
    let generated = if let Some(task) = AgentTask::named(name) {
        let rollout = RolloutWorkload {
            task,
            prompts: PROMPTS,
            seed,
            ..RolloutWorkload::default()
        };
        rollout.generate()
    } else {
        let mut agents = LognormalAgents {
            programs: 1_500,
            seed,
            ..LognormalAgents::default()
        };
        if name == "slow-tools" {
            agents.tool_ms.median = SLOW_TOOL_MS;
        }
        agents.generate()
    };
    generated.map_err(|error| BenchError::Ended(error.to_string()))
}

fn recorded(path: &Path, seed: u64) -> Result<Vec<AgentRun>, BenchError> {
    let file = std::fs::File::open(path)
        .map_err(|error| BenchError::Ended(format!("{}: {error}", path.display())))?;
    let options = TraceOptions {
        programs: 2_304,
        seed,
        ..TraceOptions::default()
    };
    let sample = load_trace(std::io::BufReader::new(file), &options)
        .map_err(|error| BenchError::Ended(format!("{}: {error}", path.display())))?;
    Ok(sample.runs)
}

impl RunTask<'_> {
    fn title(&self) -> String {
        format!(
            "{}, {}, {} ...",
            self.scene.name, self.share, self.system.name
        )
    }
}

fn take<'a, 'b>(
    next: &AtomicUsize,
    run_tasks: &'b [RunTask<'a>],
) -> Option<(usize, &'b RunTask<'a>)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    run_tasks.get(index).map(|run_task| (index, run_task))
}

const NOTE: &str = "In virtual time, on simulated engines: figures are the same on any machine. \
    vs_* are steps a minute over the named system's at the same KV memory (half, a third, a \
    quarter of the peak demand of the live programs); ttl_pin is the best of five times to live. \
    share_of_no_pressure is of the same agents with four times the memory of their peak; \
    share_of_memory_estimate is of what the batch that fits into the memory can do, estimated from \
    the means of the workload: where running steps alone fill the memory no policy reaches the first. \
    no_tier is foresight without host memory, beside the fastest of the others. gain.* is what \
    foresight loses without one of its parts. limit.* is foresight without host memory if it knew when \
    tools end and what programs have yet to generate (truth), if programs could wait for five minutes \
    (patience), and both, over what it is.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there() {
        let json = EvictionArgs::default().measure(true).unwrap().to_json();
        for name in [
            "vs_least_load.kv_half.agents",
            "vs_sticky.kv_third.agents",
            "vs_ttl_pin.kv_quarter.agents",
            "vs_thunderagent.kv_third.agents",
            "step_p99_vs_sticky.kv_third.agents",
            "foresight_vs_thunderagent.kv_half.agents",
            "share_of_no_pressure.kv_third.agents",
            "share_of_memory_estimate.kv_third.agents",
            "no_tier.vs_best.kv_third.agents",
            "gain.hazard.kv_third.agents",
            "gain.offload.kv_third.agents",
            "gain.migration.kv_third.agents",
            "gain.prefixes.kv_third.agents",
            "gain.restore_order.kv_third.agents",
            "limit.truth.kv_third.agents",
            "step_p99.limit.both.kv_third.agents",
        ] {
            let value = json["figures"][name]["value"].as_f64();
            assert!(value > Some(0.0), "{name}");
        }
    }

    #[test]
    fn on_ranks_programs_that_find_their_caches_are_faster() {
        let args = EvictionArgs {
            ranks: Some(4),
            ..EvictionArgs::default()
        };
        let json = args.measure(true).unwrap().to_json();
        let value = |name: &str| json["figures"][name]["value"].as_f64();
        let faster = value("steps_vs_rank_blind.kv_enough.agents");
        assert!(faster > Some(1.2), "{faster:?}");
        for system in ["treadle", "rank_blind", "pinned_by_hash", "pinned_by_load"] {
            let steps = value(&format!("steps_per_min.{system}.kv_third.agents"));
            assert!(steps > Some(0.0), "{system}");
        }
        assert!(value("program_p99_vs_pinned_by_load.kv_half.agents") > Some(0.0));
        let outcomes = json["details"]["outcomes"].as_array().unwrap();
        let steps: Vec<u64> = outcomes
            .iter()
            .filter_map(|outcome| outcome["report"]["steps"].as_u64())
            .collect();
        assert_eq!(steps.len(), 12);
        // With less memory some steps don't fit any more; all systems run the same ones.
        let mut cells = steps.chunks(4);
        let same = |cell: &[u64]| cell.iter().all(|each| *each == cell[0]);
        assert!(cells.all(same), "{steps:?}");
    }

    #[test]
    fn a_trace_that_is_not_there_is_named() {
        let args = EvictionArgs {
            trace: Some("nowhere.jsonl".into()),
            ..EvictionArgs::default()
        };
        let error = args.measure(true).unwrap_err().to_string();
        assert!(error.contains("nowhere.jsonl"), "{error}");
    }
}
