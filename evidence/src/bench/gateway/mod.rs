//! `treadle-bench gateway`: what a request through the gateway costs, beside its plain modes and the
//! routers of others.

mod capture;
mod load;

use super::figures::{Figure, Report, Target};
use super::latencies::Latencies;
use super::routers::front::{Behind, Front};
use super::routers::systems::{System, Systems, SystemsArgs, TREADLE};
use super::server::{KV_TOKENS, Server};
use super::{BenchError, report_progress};
use clap::Args;
use load::{Load, Until, chat_body, send};
use std::time::Duration;
use treadle_demo::naming::Naming;
use treadle_report::table::number;

/// Most clients at once, where each program has one.
const CLIENTS_MAX: usize = 256;
/// Programs of the cases that have no number of their own.
const PROGRAMS: usize = 64;
/// The case that must cost the same whatever the number of programs.
const SMALL: &str = "small";
/// Prompt of a small body, in bytes.
const SMALL_PROMPT_BYTES: usize = 200;
/// Prompt of a large one.
const LARGE_PROMPT_BYTES: usize = 32 << 10;
/// Output of a small answer, in tokens.
const SMALL_OUTPUT_TOKENS: u32 = 16;
/// Output of a streamed answer: as many tokens as events.
const STREAM_OUTPUT_TOKENS: u32 = 64;
/// Live programs while memory is looked at.
const RESIDENT_PROGRAMS: usize = 10_000;
/// Load before each case that does not count.
const SETTLE: Duration = Duration::from_millis(500);
/// What a router that must be told is told of an engine that answers at once.
const PREFILL_TOKENS_PER_S: f64 = 1e6;

/// Arguments of `treadle-bench gateway`.
#[derive(Args, Clone, Debug)]
pub(super) struct GatewayArgs {
    /// Seconds of load in each case.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds_per_case: u64,
    #[command(flatten)]
    systems: SystemsArgs,
}

impl Default for GatewayArgs {
    fn default() -> Self {
        Self {
            seconds_per_case: 5,
            systems: SystemsArgs::default(),
        }
    }
}

/// One case of CPU time: programs that send one body again and again, each with a client of its own
/// up to [`CLIENTS_MAX`].
struct Case {
    name: &'static str,
    programs: usize,
    body: String,
    /// Seconds for a thousand requests.
    target: Option<f64>,
}

impl Case {
    fn all(quick: bool) -> Vec<Self> {
        let sizes: &[usize] = if quick {
            &[PROGRAMS]
        } else {
            &[64, 256, 1_024]
        };
        let streams = chat_body(SMALL_PROMPT_BYTES, STREAM_OUTPUT_TOKENS, true);
        let case = |name, programs, body: &str, target| Self {
            name,
            programs,
            body: body.to_owned(),
            target,
        };
        let mut cases = Vec::new();
        cases.extend(sizes.iter().map(|&n| case(SMALL, n, &small(), Some(0.2))));
        cases.extend(sizes.iter().map(|&n| case("sse64", n, &streams, Some(0.6))));
        let large = chat_body(LARGE_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false);
        cases.push(case("body32k", PROGRAMS, &large, None));
        cases
    }

    fn figure_name(&self) -> String {
        format!("cpu_s_per_1000.{}.programs{}", self.name, self.programs)
    }

    fn load(&self, naming: &Naming) -> Load {
        let clients = self.programs.min(CLIENTS_MAX);
        Load::new(clients, self.programs, &self.body, naming)
    }
}

impl GatewayArgs {
    /// Runs all cases, one after another.
    pub(super) async fn run(self, quick: bool) -> Result<Report, BenchError> {
        let time = if quick {
            Duration::from_secs(1)
        } else {
            Duration::from_secs(self.seconds_per_case)
        };
        let systems = self.systems.choose()?;
        let engine = Server::engine().await?;
        let mut report = Report::new("gateway");
        report.setting("seconds_per_case", time.as_secs());
        report.setting("versions", systems.versions());
        report.setting("clients_max", CLIENTS_MAX);
        report.setting("journal", "SQLite file");
        report.setting("engine", "simulated, answers at once");
        report.setting("small_output_tokens", SMALL_OUTPUT_TOKENS);
        report.setting("small_body_bytes", small().len());
        let fixture = Fixture {
            engine: &engine,
            time,
        };
        fixture.cpu(&mut report, &systems, quick).await?;
        for clients in [1, 64, 256] {
            fixture.added_latency(&mut report, clients).await?;
        }
        fixture.resident(&mut report).await?;
        fixture.captures(&mut report).await?;
        engine.stop().await;
        report.note(
            "With capture on and off the engine is SIMULATED too, at a thousand times the clock, \
             gives tokens as vLLM does, and each program is a member of a group: with capture on, \
             its tokens are stored and on record before its client has the end of its answer.",
        );
        if let Some(note) = systems.note() {
            report.note(note);
        }
        report.note(
            "The engine is SIMULATED and answers at once. Engine, gateway and load each run in a \
             process of their own on this machine; CPU time is the gateway's alone, user and system.",
        );
        report.note(
            "Added latency is the difference between the percentiles through the gateway and \
             straight to the engine, under the same clients who take both in turn. Clients send \
             without pauses, so where they are many the wait for a core is part of it.",
        );
        report.note(
            "treadle keeps its journal in a SQLite file, as it does by default; writing it is part \
             of its CPU time. Systems take turns within each case; what others use is the reference \
             beside treadle's figure.",
        );
        Ok(report)
    }
}

fn small() -> String {
    chat_body(SMALL_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false)
}

struct Fixture<'a> {
    engine: &'a Server,
    time: Duration,
}

impl Fixture<'_> {
    /// CPU time of all systems in all cases.
    async fn cpu(
        &self,
        report: &mut Report,
        systems: &Systems,
        quick: bool,
    ) -> Result<(), BenchError> {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for case in Case::all(quick) {
            let (mut own, mut others, mut reference) = (None, Vec::new(), Vec::new());
            for system in &systems.all {
                let name = format!("{}.{}", case.figure_name(), system.name);
                match self.cpu_s_per_1000(system, &case).await {
                    Ok(cpu_s) if system.name == TREADLE => own = Some(cpu_s),
                    Ok(cpu_s) => {
                        reference.push(format!("{} {}", system.name, number(cpu_s)));
                        others.push(Figure::new(name, cpu_s, "s"));
                    }
                    // The others can be compared without it.
                    Err(error) if system.is_peer() => {
                        others.push(Figure::absent(name, "s", error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(cpu_s) = own {
                if case.name == SMALL {
                    (least, most) = (least.min(cpu_s), most.max(cpu_s));
                }
                let mut figure = Figure::new(case.figure_name(), cpu_s, "s");
                if let Some(target) = case.target {
                    figure = figure.target(Target::AtMost(target));
                }
                report.push(figure.reference(reference.join(", ")));
            }
            for figure in others {
                report.push(figure);
            }
        }
        if most > 0.0 {
            let flatness = Figure::new("flatness.small", most / least, "max/min");
            report.push(flatness.target(Target::AtMost(1.5)));
        }
        Ok(())
    }

    /// CPU time of a fresh process of a system for a thousand requests, in seconds.
    async fn cpu_s_per_1000(&self, system: &System, case: &Case) -> Result<f64, BenchError> {
        let name = format!("{}, {} programs, {}", case.name, case.programs, system.name);
        report_progress(&format!("gateway: {name} ..."));
        let engines = [self.engine.url.clone()];
        let behind = Behind {
            engines: &engines,
            capacity_tokens: KV_TOKENS,
            prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
            time_scale: 1.0,
        };
        let front = Front::start(system, &behind).await?;
        let measured = self.cpu_s_of(&front, case, &name).await;
        front.stop().await;
        measured
    }

    async fn cpu_s_of(&self, front: &Front, case: &Case, name: &str) -> Result<f64, BenchError> {
        let load = case.load(&front.naming);
        self.settle(&front.url, &load, name).await?;
        let before = front.cpu_s()?;
        let answers = send(&[&front.url], &load, Until::Elapsed(self.time)).await;
        let used = front.cpu_s()? - before;
        Ok(used / answers.checked(name)?.count() as f64 * 1e3)
    }

    /// Makes every program live and everything warm.
    async fn settle(&self, url: &str, load: &Load, name: &str) -> Result<(), BenchError> {
        let first = Until::Requests(load.programs());
        send(&[url], load, first).await.checked(name)?;
        let warm = Until::Elapsed(SETTLE.min(self.time));
        send(&[url], load, warm).await.checked(name)?;
        Ok(())
    }

    async fn added_latency(&self, report: &mut Report, clients: usize) -> Result<(), BenchError> {
        let name = format!("added latency, {clients} clients");
        report_progress(&format!("gateway: {name} ..."));
        let gateway = Server::gateway(&self.engine.url, &[]).await?;
        let load = Load::new(clients, PROGRAMS.max(clients), &small(), &Naming::default());
        self.settle(&gateway.url, &load, &name).await?;
        let servers = [gateway.url.as_str(), self.engine.url.as_str()];
        let answers = send(&servers, &load, Until::Elapsed(self.time)).await;
        let mut answers = answers.checked(&name)?;
        gateway.stop().await;
        if let [through, direct] = answers.latencies.as_mut_slice() {
            for (label, share) in [("p50", 0.50), ("p99", 0.99)] {
                let added = added_ms(through, direct, share);
                let name = format!("added_latency_{label}_ms.c{clients}");
                report.push(Figure::new(name, added, "ms"));
            }
        }
        Ok(())
    }

    async fn resident(&self, report: &mut Report) -> Result<(), BenchError> {
        let name = format!("memory with {RESIDENT_PROGRAMS} programs");
        report_progress(&format!("gateway: {name} ..."));
        let gateway = Server::gateway(&self.engine.url, &[]).await?;
        let load = Load::new(PROGRAMS, RESIDENT_PROGRAMS, &small(), &Naming::default());
        let first = Until::Requests(RESIDENT_PROGRAMS);
        send(&[&gateway.url], &load, first).await.checked(&name)?;
        let resident = gateway.resident_mib()?;
        gateway.stop().await;
        let figure = Figure::new("resident_mb.programs10000", resident, "MiB");
        report.push(figure.target(Target::AtMost(100.0)));
        Ok(())
    }
}

fn added_ms(through: &mut Latencies, direct: &mut Latencies, share: f64) -> f64 {
    through.percentile_ms(share) - direct.percentile_ms(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_client_up_to_a_bound_and_each_case_a_name() {
        let cases = Case::all(false);
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::figure_name).collect();
        assert_eq!(names.len(), cases.len());
        let sizes = cases.iter().map(|case| {
            let load = case.load(&Naming::default());
            (load.programs(), load.concurrency)
        });
        let small: Vec<_> = sizes.take(3).collect();
        assert_eq!(small, [(64, 64), (256, 256), (1_024, CLIENTS_MAX)]);
    }

    #[test]
    fn added_latency_is_the_difference_of_percentiles() {
        let latencies = |times: [u64; 3]| times.map(Duration::from_micros).into_iter().collect();
        let mut through: Latencies = latencies([2_000, 3_000, 9_000]);
        let mut direct: Latencies = latencies([1_000, 1_500, 2_000]);
        assert!((added_ms(&mut through, &mut direct, 0.5) - 1.5).abs() < 1e-9);
        assert!((added_ms(&mut through, &mut direct, 0.99) - 7.0).abs() < 1e-9);
    }
}
