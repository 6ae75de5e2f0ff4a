//! `treadle-bench policy`: what the sandbox costs. The same policies, as metered
//! components and linked natively, answer the same questions in turn; then how fast
//! a policy is stopped, swapped and taken in.

mod ab_timer;
mod comparison;
mod endless;
mod guests;
mod kills;
mod rows;
mod swaps;
mod uploads;

use super::figures::{Figure, Report, Target};
use super::{BenchError, report_progress};
use ab_timer::{Times, singles, time_ab};
use clap::Args;
pub(super) use comparison::{Comparison, arrangement, load};
use comparison::{comparison, idle, policy_of};
pub(super) use guests::GuestFolder;
use std::time::Duration;
use treadle_model::World;
use treadle_policy_runtime::{Limits, PolicyEngine, PolicyFault, PolicyModule};

/// Rows of the questions.
const ROWS: [usize; 4] = [1, 100, 1_000, 6_400];
/// The size that targets are for.
const TARGET_ROWS: usize = 1_000;
/// Policies in other languages, with the time from upload to decisions that is
/// aimed at, in seconds.
const UPLOADS: [Upload; 3] = [
    Upload {
        language: "rust",
        policy: "default-priority",
        target_s: 0.5,
    },
    Upload {
        language: "typescript",
        policy: "shortest-remaining-priority",
        target_s: 5.0,
    },
    Upload {
        language: "python",
        policy: "longest-waiting-priority",
        target_s: 20.0,
    },
];

/// A policy that is uploaded, and the target for the time until it is active.
struct Upload {
    language: &'static str,
    policy: &'static str,
    target_s: f64,
}

/// Arguments of `treadle-bench policy`.
#[derive(Args, Clone, Debug)]
pub(super) struct PolicyArgs {
    #[command(flatten)]
    guests: GuestFolder,
    /// Milliseconds that each world and number of rows is measured for.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    case_ms: u64,
    /// Calls of a policy that never answers.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kills: u32,
    /// Versions that are published one after another.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    swaps: u32,
}

impl Default for PolicyArgs {
    fn default() -> Self {
        Self {
            guests: GuestFolder::default(),
            case_ms: 500,
            kills: 500,
            swaps: 1_000,
        }
    }
}

impl PolicyArgs {
    /// Measures everything, one after another.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            (self.case_ms, self.kills, self.swaps) = (10, 20, 50);
        }
        let args = self.clone();
        // It keeps its thread busy for as long as it runs.
        let done = tokio::task::spawn_blocking(move || args.measure());
        let mut report = done
            .await
            .map_err(|error| BenchError::Ended(error.to_string()))??;
        for upload in UPLOADS {
            report.push(self.upload(upload, quick).await);
        }
        Ok(report)
    }

    fn measure(&self) -> Result<Report, BenchError> {
        let mut report = Report::new("policy");
        report.setting("case_ms", self.case_ms);
        report.setting("kills", self.kills);
        report.setting("swaps", self.swaps);
        let engine = PolicyEngine::new(Limits::default());
        let engine = engine.map_err(|error| BenchError::Policy(error.to_string()))?;
        self.calls(&engine, &mut report)?;
        self.kill(&engine, &mut report)?;
        self.swap(&mut report)?;
        Ok(report)
    }

    fn calls(&self, engine: &PolicyEngine, report: &mut Report) -> Result<(), BenchError> {
        self.fixed(engine, report)?;
        let mut least: Option<(World, f64)> = None;
        for world in World::ALL {
            let module = load(engine, &self.guests, policy_of(*world))?;
            report_progress(&format!("policy: {} ...", policy_of(*world)));
            let single = self.world(&module, *world, report)?;
            if least.is_none_or(|(_, known)| single.difference_ns() < known) {
                least = Some((*world, single.difference_ns()));
            }
        }
        if let Some((world, ns)) = least {
            report.push(Figure::new("fixed_one_row_ns", ns, "ns"));
            report.note(format!(
                "fixed_one_row_ns is what the sandbox adds to a call with one row in the world \
                 where it adds least, {world}."
            ));
        }
        report.note(
            "ratio_to_native is the median time of a metered call by that of the same source \
             linked natively, batches of both in turn; both give equal answers. call_us and \
             native_us are those medians.",
        );
        Ok(())
    }

    /// What a call costs in which next to nothing happens.
    fn fixed(&self, engine: &PolicyEngine, report: &mut Report) -> Result<(), BenchError> {
        let module = load(engine, &self.guests, policy_of(World::Eviction))?;
        let mut comparison = idle(&module)?;
        let times = self.time_ab(World::Eviction, &mut comparison)?;
        report.push(
            Figure::new("fixed_ns", times.difference_ns(), "ns")
                .target(Target::AtMost(250.0))
                .reference("a call without a result, unmetered: 126"),
        );
        report.note(
            "fixed_ns is what the sandbox adds to a call in which next to nothing happens: \
             thunderagent-eviction gives its snapshot, which is empty.",
        );
        Ok(())
    }

    /// The figures of a world. Gives the times for one row.
    fn world(
        &self,
        module: &PolicyModule,
        world: World,
        report: &mut Report,
    ) -> Result<Times, BenchError> {
        let mut of_one_row = None;
        for rows in ROWS {
            let mut comparison = comparison(module, world, rows)?;
            let times = self.time_ab(world, &mut comparison)?;
            of_one_row.get_or_insert(times);
            let figure = Figure::new(
                format!("ratio_to_native.{world}.n{rows}"),
                times.ratio(),
                "x",
            );
            report.push(if rows == TARGET_ROWS {
                let reference = "eviction, first prototype: 1.6-1.9";
                figure.target(Target::AtMost(2.0)).reference(reference)
            } else {
                figure
            });
            for (name, ns) in [
                ("call_us", times.sandboxed_ns),
                ("native_us", times.native_ns),
            ] {
                report.push(Figure::new(
                    format!("{name}.{world}.n{rows}"),
                    ns / 1e3,
                    "us",
                ));
            }
            if rows == TARGET_ROWS {
                let singles = singles(&mut comparison, self.case());
                let mut singles = singles.map_err(|fault| fell(world, &fault))?;
                let p99_us = singles.percentile(0.99).as_secs_f64() * 1e6;
                let figure = Figure::new(format!("p99_us.{world}.n{rows}"), p99_us, "us");
                report.push(figure.target(Target::AtMost(15.0)));
            }
        }
        of_one_row.ok_or_else(|| BenchError::Ended("nothing was measured".to_owned()))
    }

    fn time_ab(&self, world: World, comparison: &mut Comparison) -> Result<Times, BenchError> {
        time_ab(comparison, self.case()).map_err(|fault| fell(world, &fault))
    }

    const fn case(&self) -> Duration {
        Duration::from_millis(self.case_ms)
    }

    fn kill(&self, engine: &PolicyEngine, report: &mut Report) -> Result<(), BenchError> {
        report_progress(&format!("policy: {} endless loops ...", self.kills));
        let mut times = kills::kills(engine, self.kills as usize)?;
        let p50 = times.percentile_ms(0.50);
        report.push(Figure::new("kill_ms_p50", p50, "ms"));
        let p99 = Figure::new("kill_ms_p99", times.percentile_ms(0.99), "ms");
        report.push(p99.target(Target::AtMost(10.0)));
        report.note(format!(
            "kill_ms is the time from a call to its fault, for a policy in an endless loop and \
             a deadline of {} ms.",
            kills::DEADLINE_MS
        ));
        Ok(())
    }

    fn swap(&self, report: &mut Report) -> Result<(), BenchError> {
        report_progress(&format!("policy: {} swaps ...", self.swaps));
        let mut swaps = swaps::swaps(&self.guests, self.swaps as usize)?;
        let p50 = swaps.times.percentile_ms(0.50);
        report.push(Figure::new("swap_ms_p50", p50, "ms"));
        let p99 = Figure::new("swap_ms_p99", swaps.times.percentile_ms(0.99), "ms");
        report.push(p99.target(Target::AtMost(5.0)));
        let failed = Figure::new("swap_failed", swaps.failed as f64, "count");
        report.push(failed.target(Target::AtMost(0.0)));
        report.setting("swap_decisions", swaps.decisions);
        report.note(
            "swap_ms is the time from the publication of a compiled version to the end of its \
             first decision, the start of its instance included, while another thread decides \
             without a pause. swap_failed counts decisions that the bound version did not make.",
        );
        Ok(())
    }

    async fn upload(&self, upload: Upload, quick: bool) -> Figure {
        let Upload {
            language,
            policy,
            target_s,
        } = upload;
        let name = format!("upload_to_active_s.{language}");
        let target = Target::AtMost(target_s);
        if quick && language != "rust" {
            return Figure::absent(name, "s", "left out by --quick").target(target);
        }
        report_progress(&format!("policy: upload of {policy} ..."));
        match uploads::upload_to_active_s(&self.guests, policy).await {
            Ok(took_s) => Figure::new(name, took_s, "s").target(target),
            // The other figures are good without this one.
            Err(error) => Figure::absent(name, "s", error.to_string()).target(target),
        }
    }
}

fn fell(world: World, fault: &PolicyFault) -> BenchError {
    BenchError::Comparison {
        policy: policy_of(world).to_owned(),
        cause: fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there() {
        let args = PolicyArgs {
            guests: GuestFolder::of_checkout(),
            case_ms: 1,
            kills: 2,
            swaps: 3,
        };
        let json = args.measure().unwrap().to_json();
        let figures = json["figures"].as_object().unwrap();
        for world in World::ALL {
            for rows in ROWS {
                let name = format!("ratio_to_native.{world}.n{rows}");
                assert!(figures[&name]["value"].as_f64() > Some(0.0), "{name}");
            }
            let name = format!("p99_us.{world}.n1000");
            assert!(figures[&name]["value"].as_f64() > Some(0.0), "{name}");
        }
        for name in ["fixed_ns", "kill_ms_p99", "swap_ms_p99", "swap_failed"] {
            assert!(figures[name]["value"].is_number(), "{name}: {json}");
        }
    }
}
