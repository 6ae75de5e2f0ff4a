//! `treadle-bench shell-actions`: agents whose tools are shell commands on this machine, with cores
//! shared per action by treadle, and reserved per program; and what treadle adds to a command.

mod systems;
mod work;

use super::figures::{Figure, Report, Target};
use super::latencies::Latencies;
use super::server::Server;
use super::{BenchError, report_progress};
use clap::Args;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use systems::{Reserved, Shared};
use work::{Ended, System, Workload};

/// Of an agent's time, what its tools take where nothing waits (`ARL-Tangram` §2.3).
const ACTIVE_SHARE: f64 = 0.47;

/// Enough that no command waits for one.
const FREE_CORES: u64 = 65_536;

const NOTE: &str = "Real processes of this machine. An agent takes turns between thinking, which \
    needs no core, and a shell command that keeps one busy; its tools take 0.47 of its time where \
    nothing waits, as in the paper's §2.3, so that sharing cores per action can't be better than \
    1/0.47 = 2.13 times as fast as reserving them. exclusive gives each agent a core for its life; \
    requests gives it some thousandths of one and runs its commands at once, the best of several \
    amounts. In both the commands are children of the benchmark itself, so that what treadle adds to each is \
    in treadle's figures alone; with --sandboxes they run in the same sandboxes through a daemon \
    that begins each at once. makespan and completion times are in seconds; ratio.* is the time of \
    the system over treadle's. overhead.* is from the client's request until the command itself \
    reads the clock, of one action at a time.";

/// Arguments of `treadle-bench shell-actions`.
#[derive(Args, Clone, Debug)]
pub(super) struct ShellActionsArgs {
    /// Agents.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    programs: u32,
    /// Commands of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    actions: u32,
    /// Time that a command keeps a core busy, in milliseconds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    action_ms: u32,
    /// Actions for the overhead.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    overhead_actions: u32,
    /// URL of a PostgreSQL database for the daemon's state; a SQLite file without it.
    #[arg(long, env = "TREADLE_BENCH_POSTGRES_URL")]
    postgres: Option<String>,
    /// Measure only what treadle adds to a command.
    #[arg(long)]
    overhead: bool,
    /// Run all commands in sandboxes, one for each agent, under the others as under treadle.
    #[arg(long)]
    sandboxes: bool,
}

impl ShellActionsArgs {
    /// Runs the agents under each system.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("shell-actions");
        report.note(NOTE);
        report.setting(
            "store",
            if self.postgres.is_some() {
                "postgresql"
            } else {
                "sqlite"
            },
        );
        let engine = Server::engine().await?;
        let daemon = Server::gateway(&engine.url, &self.settings(None)).await?;
        let mut shared = Shared::new(&daemon.url);
        if self.sandboxes {
            report_progress("shell-actions: sandboxes ...");
            let programs = if quick { 4 } else { self.programs };
            shared = shared.with_sandboxes(programs).await.map_err(failed)?;
        }
        let shared = Arc::new(shared);
        report_progress("shell-actions: overhead ...");
        let count = if quick { 10 } else { self.overhead_actions };
        push_overhead(&mut report, shared.overhead(count).await?);
        if !self.overhead {
            let workload = self.workload(quick, &mut report).await?;
            report_progress("shell-actions: treadle ...");
            let treadle = workload.run(usize::MAX, shared.clone()).await?;
            push(&mut report, "treadle", &treadle, None);
            if self.sandboxes {
                // One that begins every command at once, in sandboxes as treadle's.
                let free = Server::gateway(&engine.url, &self.settings(Some(FREE_CORES))).await?;
                let others = Shared::new(&free.url)
                    .with_sandboxes(workload.programs)
                    .await;
                let others = Arc::new(others.map_err(failed)?);
                self.others(&workload, &others, &treadle, &mut report)
                    .await?;
                free.stop().await;
            } else {
                let others = Arc::new(Reserved);
                self.others(&workload, &others, &treadle, &mut report)
                    .await?;
            }
        }
        daemon.stop().await;
        engine.stop().await;
        Ok(report)
    }

    fn settings(&self, cores: Option<u64>) -> Vec<String> {
        let mut settings = vec![
            "actions.enabled=true".to_owned(),
            "auth.anonymous_scope=admin".to_owned(),
        ];
        settings.extend(cores.map(|cores| format!("actions.cores={cores}")));
        if self.sandboxes {
            settings.push("sandboxes.enabled=true".to_owned());
        }
        if let Some(url) = &self.postgres {
            let which = if cores.is_some() { "free" } else { "own" };
            let schema = format!("bench_actions_{}_{which}", std::process::id());
            settings.push(format!("store.url={url}"));
            settings.push(format!("store.schema={schema}"));
        }
        settings
    }

    async fn workload(&self, quick: bool, report: &mut Report) -> Result<Workload, BenchError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let busy = Duration::from_millis(self.action_ms.into());
        let workload = Workload {
            programs: if quick { 4 } else { self.programs },
            actions: if quick { 2 } else { self.actions },
            think: busy.mul_f64((1.0 - ACTIVE_SHARE) / ACTIVE_SHARE),
            script: work::script(busy).await?,
        };
        report.setting("cores", cores);
        report.setting("programs", workload.programs);
        report.setting("actions", workload.actions);
        report.setting("action_ms", self.action_ms);
        report.setting("think_ms", workload.think.as_secs_f64() * 1e3);
        report.setting("sandboxes", self.sandboxes);
        let bound = workload.least(cores, busy);
        report.push(Figure::new("makespan.least", bound.as_secs_f64(), "s"));
        report.detail("ceiling", json!(1.0 / ACTIVE_SHARE));
        Ok(workload)
    }

    /// Cores reserved for each agent, and requests of less than one.
    async fn others<S: System>(
        &self,
        workload: &Workload,
        system: &Arc<S>,
        treadle: &Ended,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        report_progress("shell-actions: exclusive ...");
        let exclusive = workload.run(cores, system.clone()).await?;
        push(report, "exclusive", &exclusive, Some(treadle));
        let mut requests: Option<(u32, Ended)> = None;
        for thousandths in [750, 500, 333, 250] {
            report_progress(&format!("shell-actions: requests of {thousandths} ..."));
            let at_once = cores * 1_000 / thousandths as usize;
            let ended = workload.run(at_once, system.clone()).await?;
            let is_better = |(_, best): &(u32, Ended)| ended.makespan < best.makespan;
            if requests.as_ref().is_none_or(is_better) {
                requests = Some((thousandths, ended));
            }
        }
        if let Some((thousandths, best)) = requests {
            report.setting("requests_best_thousandths", thousandths);
            push(report, "requests", &best, Some(treadle));
        }
        Ok(())
    }
}

fn failed(first: String) -> BenchError {
    BenchError::Requests {
        case: "shell-actions".to_owned(),
        count: 1,
        first,
    }
}

fn push_overhead(report: &mut Report, mut overhead: Latencies) {
    for (name, share, target) in [("p50", 0.5, 5.0), ("p99", 0.99, 25.0)] {
        let figure = Figure::new(
            format!("overhead.{name}"),
            overhead.percentile_ms(share),
            "ms",
        );
        report.push(figure.target(Target::AtMost(target)));
    }
}

fn push(report: &mut Report, system: &str, ended: &Ended, treadle: Option<&Ended>) {
    let mut times = ended.times.clone();
    let makespan_s = ended.makespan.as_secs_f64();
    report.push(Figure::new(format!("makespan.{system}"), makespan_s, "s"));
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("completion.{system}.{name}");
        let seconds = times.percentile(share).as_secs_f64();
        report.push(Figure::new(name, seconds, "s"));
    }
    let mean = ended.mean().as_secs_f64();
    report.push(Figure::new(format!("completion.{system}.mean"), mean, "s"));
    if let Some(treadle) = treadle {
        let ratio = makespan_s / treadle.makespan.as_secs_f64();
        report.push(Figure::new(format!("ratio.makespan.{system}"), ratio, "x"));
        let waited = ended.per_program().as_secs_f64() / treadle.per_program().as_secs_f64();
        report.push(Figure::new(
            format!("ratio.completion.{system}"),
            waited,
            "x",
        ));
    }
}
