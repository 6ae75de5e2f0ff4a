//! What the gateway, the core, events, placement and policies cost, as figures that other
//! machines and versions can be compared by; and how rollouts are shortened, in virtual time.
//!
//! Engines are simulated and answer at once, so that what is measured is
//! treadle. Targets are what the project aims at; references are figures of others.

mod actions;
mod batches;
mod core;
mod error;
mod events;
mod eviction;
mod eviction_ranks;
mod folder;
mod gateway;
mod jobs;
mod loopback;
mod peers;
mod placement;
mod policy;
mod prediction;
mod program;
mod real_engines;
mod restart;
mod rollout;
mod routers;
mod sandboxes;
mod server;
mod shell_actions;
mod simulated;
mod training;
mod usage;
mod weights;
mod whatif;

use clap::{Args, Subcommand};
pub(crate) use treadle_report::{figures, latencies, machine};

pub use error::BenchError;
use figures::{Report, print};

/// Measure what the gateway, the core and policies cost.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure; everything by default.
    #[command(subcommand)]
    part: Option<Part>,
    /// Print one JSON object.
    #[arg(long, global = true)]
    json: bool,
    /// Fewer and shorter cases: to see that it works, not for figures.
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum Part {
    /// Actions that draw from cores, devices and quotas, under treadle and under what ARL-Tangram
    /// compares with, beside the paper's figures. In virtual time: the same on any machine. Takes
    /// minutes for each seed, and is not part of everything.
    Actions(actions::ActionsArgs),
    /// How a trainer is served while many samples wait for it: latency of batches, rate of
    /// payloads, memory while samples go by. Takes minutes, and is not part of everything.
    Batches(batches::BatchesArgs),
    /// CPU time, added latency and memory of the gateway beside the routers of others that
    /// `scripts/peers.sh` installs, in processes of their own on this machine (only on Linux).
    Gateway(gateway::GatewayArgs),
    /// Events a second that the core handles on one thread, and the time that
    /// policies take for their answers.
    Core(core::CoreArgs),
    /// Durable events a second through PostgreSQL and confirmed messages a second
    /// through RabbitMQ, beside a bare publisher.
    Events(events::EventsArgs),
    /// Agents that need more KV memory than there is, with foresight and with what others do.
    /// In virtual time: the same on any machine.
    Eviction(eviction::EvictionArgs),
    /// treadle and the routers of others in front of the same simulated engines, over HTTP, with
    /// agents that need more KV memory than there is. `scripts/peers.sh` installs the others. It
    /// takes hours, and is not part of everything.
    Peers(Box<peers::PeersArgs>),
    /// Jobs of several hundred agents on simulated engines of two kinds over HTTP, which nobody
    /// calibrated, and what is learnt of them. Takes a quarter of an hour, and is not part of
    /// everything.
    Jobs(jobs::JobsArgs),
    /// Times of partitions of programs over workers and of plans of parallelism, and
    /// how far they are from exhaustive ones.
    Placement(placement::PlacementArgs),
    /// What the sandbox costs: calls of policies in it beside the same policies
    /// linked natively, and how fast policies are stopped, swapped and taken in.
    /// Needs the built policies of a checkout (`make guests`).
    Policy(policy::PolicyArgs),
    /// How well predictors predict how long programs become, after none, one and two of their
    /// steps: recall of the long tail and correlation.
    Prediction(prediction::PredictionArgs),
    /// How long a daemon with many live programs takes to serve again after it was killed under
    /// load. Takes minutes, and is not part of everything.
    Restart(restart::RestartArgs),
    /// Simulated rollouts under treadle's policies and under those of other systems, beside
    /// the figures of Heddle's evaluation. In virtual time: the same on any machine.
    Rollout(rollout::RolloutArgs),
    /// Whether what-if replay predicts: workloads in real time under several sets of policies, and
    /// the changes in makespan that replays of the recordings predict. Takes a quarter of an hour.
    WhatIf(whatif::WhatIfArgs),
    /// Agents whose tools are shell commands on this machine, with cores shared per action by
    /// treadle and reserved per agent, and what treadle adds to a command. Takes a quarter of an
    /// hour, and is not part of everything.
    ShellActions(shell_actions::ShellActionsArgs),
    /// How long sandboxes take until a command has run in them, many at once, and what they leave on
    /// disk (Linux, as root). Takes minutes, and is not part of everything.
    Sandboxes(sandboxes::SandboxesArgs),
    /// Simulated training runs under the core's machine and its shaping policies, and under what
    /// `RollArt` and `DARTS` compare with, beside the papers' figures. In virtual time: the same on
    /// any machine. Takes minutes, and is not part of everything.
    Training(training::TrainingArgs),
    /// How fast versions of weights are published to a store and pulled by hosts, beside what the
    /// disk does with as many bytes; and how long simulated engines give no tokens during updates,
    /// in lockstep, one after the other and if all stop, with the share of RollArt's evaluation
    /// (`--parts exposed`). Takes 25 GB of disk and minutes, and is not part of everything.
    Weights(weights::WeightsArgs),
}

impl BenchArgs {
    /// Measures and prints the figures.
    pub async fn run(self) -> Result<(), BenchError> {
        let report = match self.part {
            Some(Part::Actions(args)) => args.run(self.quick).await?,
            Some(Part::Batches(args)) => args.run(self.quick).await?,
            Some(Part::Gateway(args)) => args.run(self.quick).await?,
            Some(Part::Core(args)) => args.run(self.quick).await?,
            Some(Part::Events(args)) => args.run(self.quick).await?,
            Some(Part::Eviction(args)) => args.run(self.quick).await?,
            Some(Part::Peers(args)) => return args.run(self.quick, self.json).await,
            Some(Part::Jobs(args)) => Box::pin(args.run(self.quick)).await?,
            Some(Part::Placement(args)) => args.run(self.quick).await?,
            Some(Part::Policy(args)) => args.run(self.quick).await?,
            Some(Part::Prediction(args)) => args.run(self.quick).await?,
            Some(Part::Restart(args)) => args.run(self.quick).await?,
            Some(Part::Rollout(args)) => args.run(self.quick).await?,
            Some(Part::ShellActions(args)) => args.run(self.quick).await?,
            Some(Part::Sandboxes(args)) => args.run(self.quick).await?,
            Some(Part::Training(args)) => return args.run(self.quick, self.json).await,
            Some(Part::Weights(args)) => args.run(self.quick).await?,
            Some(Part::WhatIf(args)) => Box::pin(args.run(self.quick)).await?,
            None => {
                let mut report = Report::new("all");
                let gateway = gateway::GatewayArgs::default();
                report.absorb(gateway.run(self.quick).await?);
                report.absorb(core::CoreArgs::default().run(self.quick).await?);
                report.absorb(events::EventsArgs::default().run(self.quick).await?);
                report.absorb(eviction::EvictionArgs::default().run(self.quick).await?);
                report.absorb(placement::PlacementArgs::default().run(self.quick).await?);
                report.absorb(policy::PolicyArgs::default().run(self.quick).await?);
                report.absorb(
                    prediction::PredictionArgs::default()
                        .run(self.quick)
                        .await?,
                );
                report.absorb(rollout::RolloutArgs::default().run(self.quick).await?);
                let whatif = whatif::WhatIfArgs::default();
                report.absorb(Box::pin(whatif.run(self.quick)).await?);
                report
            }
        };
        let text = if self.json {
            report.to_json().to_string()
        } else {
            report.to_text()
        };
        Ok(print(&text)?)
    }
}

/// Reports progress on standard error.
fn report_progress(progress: &str) {
    use std::io::Write;
    // A closed output means that no report is wanted.
    let _ = writeln!(std::io::stderr(), "{progress}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn flags_are_accepted_before_and_after_the_part() {
        for line in [
            "x",
            "x --json",
            "x gateway --json --seconds-per-case 2 --systems treadle,sticky --peers p.json",
            "x --quick core --programs 100 --seconds 1",
            "x events --postgres postgres://a/b --amqp amqp://c --group 100",
            "x placement --json --seed 3",
            "x eviction --trace t.jsonl --minutes 10 --seed 2 --json",
            "x eviction --ranks 8 --seeds 5 --seed 11 --json",
            "x peers --json --seeds 2 --seed 7 --kv 0.333,0.25 --host 0,2 --systems treadle,sticky",
            "x peers --quick --first hostile --template-tokens 40 --peers p.json --trace t.jsonl",
            "x peers --time-scale 10 --minutes 4 --warmup-minutes 0 --live 16",
            "x peers --ranks 8 --systems treadle,sticky,smg-sticky-dp-aware",
            "x jobs --programs 64 --tasks search --time-scale 20 --json",
            "x jobs --seeds 2 --engines http://a:1,http://b:1 --engine-tokens 100 --engine-context 64",
            "x policy --guests elsewhere --json",
            "x actions --grids coding,search --seed 6 --seeds 5 --jobs 2 --json",
            "x actions --policy-config {\"depth\":3} --virtual-time",
            "x training --parts end_to_end,bias --seed 20 --seeds 5 --tuning-seeds 3 --jobs 2 --json",
            "x prediction --prompts 50 --samples 8 --json",
            "x restart --programs 1000 --kills 3 --seconds 2 --store postgres://a/b --json",
            "x weights --megabytes 500 --changed-percent 10 --density 50 --hosts 2 --json",
            "x weights --parts exposed --updates 3 --engines 2 --programs 8 --load-mb-per-s 500 --quick",
            "x what-if --time-scale 10 --seeds 3 --quick --json",
            "x rollout --tasks coding,math --models qwen3-8b --seeds 3 --jobs 2 --json",
        ] {
            let parsed = CommandLine::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "x gateway --seconds-per-case 0",
            "x wheels",
            "x eviction --ranks 1",
            "x peers --kv 0",
            "x peers --host=-1",
            "x peers --time-scale 0",
            "x peers --first loud",
            "x peers --live 0",
            "x peers --ranks 0",
            "x jobs --tasks chess",
            "x jobs --engines http://a:1",
            "x peers --engine-tokens 100",
            "x rollout --tasks chess",
            "x restart --kills 0",
            "x rollout --jobs 0",
            "x actions --grids chess",
            "x weights --density 0",
            "x weights --parts chess",
            "x weights --engines 1",
            "x training --parts chess",
            "x training --seed 1",
            "x actions --policy-config {\"deep\":3}",
            "x actions --decisions --virtual-time",
        ] {
            assert!(
                CommandLine::try_parse_from(line.split(' ')).is_err(),
                "{line}"
            );
        }
    }
}
