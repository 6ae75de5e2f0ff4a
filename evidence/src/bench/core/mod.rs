//! `treadle-bench core`: the core and its policies without anything around
//! them, on one thread.

mod agent;
mod decisions;
mod load_generator;

use super::figures::{Figure, Report, Target};
use super::{BenchError, report_progress};
use clap::Args;
use decisions::{Questions, measure};
use load_generator::{LoadGenerator, LoadGeneratorOptions};
use std::time::{Duration, Instant};
use treadle_core::CoreConfig;

/// Programs whose arrival is spread before anything counts, in virtual time.
const WARMUP_US: u64 = 120_000_000;
/// Events between two looks at the clock.
const EVENTS_PER_LOOK: u64 = 10_000;

/// Arguments of `treadle-bench core`.
#[derive(Args, Clone, Debug)]
pub(super) struct CoreArgs {
    /// Live programs at once.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    programs: u32,
    /// Engines that they share.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    engines: u32,
    /// KV memory of all engines together, as a share of what the programs need
    /// at their peak.
    #[arg(long, default_value_t = 0.6)]
    kv_fraction: f64,
    /// Seconds that events are handled for.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Default for CoreArgs {
    fn default() -> Self {
        Self {
            programs: 10_000,
            engines: 32,
            kv_fraction: 0.6,
            seconds: 5,
            seed: 1,
        }
    }
}

impl CoreArgs {
    /// Handles events, then asks policies what the core asked.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            (self.seconds, self.programs) = (1, self.programs.min(1_000));
        }
        // It keeps its thread busy for as long as it runs.
        let done = tokio::task::spawn_blocking(move || self.measure());
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))?
    }

    fn measure(&self) -> Result<Report, BenchError> {
        report_progress(&format!("core: {} programs settle ...", self.programs));
        let mut load_generator = LoadGenerator::new(&LoadGeneratorOptions {
            core: CoreConfig::default(),
            programs: self.programs as usize,
            engines: self.engines,
            kv_fraction: self.kv_fraction,
            seed: self.seed,
        })?;
        load_generator.run_until(WARMUP_US);
        report_progress(&format!("core: events for {} s ...", self.seconds));
        let mut report = Report::new("core");
        self.handle_events(&mut load_generator, &mut report);
        self.ask_policies(&load_generator.into_questions(), &mut report)?;
        Ok(report)
    }

    fn handle_events(&self, load_generator: &mut LoadGenerator, report: &mut Report) {
        load_generator.forget_counts();
        let (began, time) = (Instant::now(), Duration::from_secs(self.seconds));
        while began.elapsed() < time {
            load_generator.run_events(EVENTS_PER_LOOK);
        }
        let rate = load_generator.events() as f64 / began.elapsed().as_secs_f64();
        report.push(Figure::new("events_per_s", rate, "1/s").target(Target::AtLeast(300_000.0)));
        report.setting("programs", self.programs);
        report.setting("engines", self.engines);
        report.setting("kv_fraction", self.kv_fraction);
        report.setting("seconds", self.seconds);
        report.setting("seed", self.seed);
        report.setting(
            "virtual_seconds_per_second",
            load_generator.virtual_s() / began.elapsed().as_secs_f64(),
        );
        report.setting("events", serde_json::json!(load_generator.mix()));
        let counters = load_generator.counters();
        report.setting("pauses", counters.pauses);
        report.setting("restores", counters.restores);
        report.note(
            "Events a second are those that one thread hands to the core, answers of the native \
             policy and timers among them; making the events and carrying out the commands in a \
             model of engines is part of the time.",
        );
    }

    fn ask_policies(&self, questions: &Questions, report: &mut Report) -> Result<(), BenchError> {
        report_progress("core: questions to policies ...");
        report.setting("questions", serde_json::json!(questions.sizes()));
        let time = Duration::from_secs(self.seconds);
        for kind in ["native", "wasm"] {
            let mut evaluator = decisions::evaluator(kind)?;
            let mut times = measure(&mut evaluator, questions, time);
            let p50 = times.percentile(0.50).as_secs_f64() * 1e6;
            let p99 = times.percentile(0.99).as_secs_f64() * 1e6;
            report.push(Figure::new(format!("decision_p50_us.{kind}"), p50, "us"));
            let figure = Figure::new(format!("decision_p99_us.{kind}"), p99, "us");
            report.push(figure.target(Target::AtMost(1_000.0)));
            if kind == "wasm" {
                let faults = evaluator.statistics().faults as f64;
                report.push(Figure::new("decision_faults.wasm", faults, "count"));
            }
        }
        report.note(
            "Decisions are the questions that the core asked meanwhile, put to the policy evaluator \
             again: weights, pause order, restore order. A fault is an answer that was not \
             there within the deadline of a hot call; the native default gives it instead.",
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there_and_memory_is_short() {
        let args = CoreArgs {
            programs: 200,
            engines: 2,
            seconds: 1,
            ..CoreArgs::default()
        };
        let json = args.measure().unwrap().to_json();
        for name in [
            "events_per_s",
            "decision_p99_us.native",
            "decision_p99_us.wasm",
        ] {
            assert!(
                json["figures"][name]["value"].as_f64() > Some(0.0),
                "{name}: {json}"
            );
        }
        assert!(json["settings"]["pauses"].as_u64() > Some(0), "{json}");
        assert!(json["settings"]["restores"].as_u64() > Some(0), "{json}");
    }
}
