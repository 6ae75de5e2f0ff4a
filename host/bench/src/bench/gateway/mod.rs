//! `treadle-bench gateway`: what a request through the gateway costs.

mod load;

use super::figures::{Figure, Report, Target};
use super::latencies::Latencies;
use super::server::Server;
use super::{BenchError, report_progress};
use bytes::Bytes;
use clap::Args;
use load::{Load, Until, chat_body, send};
use std::time::Duration;

/// Concurrent clients, unless the figure has its own.
const CONCURRENCY: usize = 64;
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

const SMALL_REFERENCE: &str = "vllm-router 0.23-0.34, ThunderAgent 8.7-11";
const STREAM_REFERENCE: &str = "vllm-router 0.67, ThunderAgent 6.2";
const FLATNESS_REFERENCE: &str = "vllm-router rises tenfold at 256 programs";

/// Arguments of `treadle-bench gateway`.
#[derive(Args, Clone, Debug)]
pub(super) struct GatewayArgs {
    /// Seconds of load in each case.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds_per_case: u64,
}

impl Default for GatewayArgs {
    fn default() -> Self {
        Self {
            seconds_per_case: 5,
        }
    }
}

/// One case of CPU time.
struct Case {
    name: &'static str,
    programs: usize,
    body: Bytes,
}

impl GatewayArgs {
    /// Runs all cases, one after another.
    pub(super) async fn run(self, quick: bool) -> Result<Report, BenchError> {
        let time = if quick {
            Duration::from_secs(1)
        } else {
            Duration::from_secs(self.seconds_per_case)
        };
        let engine = Server::engine().await?;
        let fixture = Fixture {
            engine: &engine,
            time,
        };
        let mut report = Report::new("gateway");
        report.setting("seconds_per_case", time.as_secs());
        report.setting("concurrency", CONCURRENCY);
        report.setting("journal", "SQLite file");
        report.setting("engine", "simulated, answers at once");
        report.setting("small_output_tokens", SMALL_OUTPUT_TOKENS);
        report.setting("small_body_bytes", small().len());
        fixture.small(&mut report, quick).await?;
        fixture.streams(&mut report, quick).await?;
        fixture.large(&mut report).await?;
        for concurrency in [1, 64, 256] {
            fixture.added_latency(&mut report, concurrency).await?;
        }
        fixture.resident(&mut report).await?;
        engine.stop().await;
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
            "The gateway keeps its journal in a SQLite file, as it does by default; writing it is \
             part of its CPU time.",
        );
        report.note("References come from runs of their own, not from this one.");
        Ok(report)
    }
}

fn small() -> Bytes {
    chat_body(SMALL_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false)
}

struct Fixture<'a> {
    engine: &'a Server,
    time: Duration,
}

impl Fixture<'_> {
    async fn small(&self, report: &mut Report, quick: bool) -> Result<(), BenchError> {
        let all: &[usize] = if quick { &[64] } else { &[64, 256, 1_024] };
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for &programs in all {
            let name = "small";
            let body = small();
            let case = Case {
                name,
                programs,
                body,
            };
            let cpu_s = self.cpu_s_per_1000(&case).await?;
            (least, most) = (least.min(cpu_s), most.max(cpu_s));
            let name = format!("cpu_s_per_1000.small.programs{programs}");
            let figure = Figure::new(name, cpu_s, "s").target(Target::AtMost(0.2));
            report.push(figure.reference(SMALL_REFERENCE));
        }
        let flatness = Figure::new("flatness.small", most / least, "max/min");
        let flatness = flatness.target(Target::AtMost(1.5));
        report.push(flatness.reference(FLATNESS_REFERENCE));
        Ok(())
    }

    async fn streams(&self, report: &mut Report, quick: bool) -> Result<(), BenchError> {
        let all: &[usize] = if quick { &[64] } else { &[64, 1_024] };
        for &programs in all {
            let case = Case {
                name: "sse64",
                programs,
                body: chat_body(SMALL_PROMPT_BYTES, STREAM_OUTPUT_TOKENS, true),
            };
            let cpu_s = self.cpu_s_per_1000(&case).await?;
            let name = format!("cpu_s_per_1000.sse64.programs{programs}");
            let figure = Figure::new(name, cpu_s, "s").target(Target::AtMost(0.6));
            report.push(figure.reference(STREAM_REFERENCE));
        }
        Ok(())
    }

    async fn large(&self, report: &mut Report) -> Result<(), BenchError> {
        let case = Case {
            name: "body32k",
            programs: CONCURRENCY,
            body: chat_body(LARGE_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false),
        };
        let cpu_s = self.cpu_s_per_1000(&case).await?;
        report.push(Figure::new("cpu_s_per_1000.body32k", cpu_s, "s"));
        Ok(())
    }

    /// CPU time of a fresh gateway for a thousand requests, in seconds.
    async fn cpu_s_per_1000(&self, case: &Case) -> Result<f64, BenchError> {
        let Case { name, programs, .. } = case;
        let case_name = format!("{name}, {programs} programs");
        report_progress(&format!("gateway: {case_name} ..."));
        let gateway = Server::gateway(&self.engine.url, &[]).await?;
        let load = Load {
            concurrency: CONCURRENCY,
            programs: *programs,
            body: case.body.clone(),
        };
        self.settle(&gateway, &load, &case_name).await?;
        let before = gateway.cpu_s()?;
        let answers = send(&[&gateway.url], &load, Until::Elapsed(self.time)).await;
        let used = gateway.cpu_s()? - before;
        let answers = answers.checked(&case_name)?;
        gateway.stop().await;
        Ok(used / answers.count() as f64 * 1e3)
    }

    /// Makes every program live and everything warm.
    async fn settle(&self, gateway: &Server, load: &Load, name: &str) -> Result<(), BenchError> {
        let first = Until::Requests(load.programs);
        send(&[&gateway.url], load, first).await.checked(name)?;
        let warm = Until::Elapsed(SETTLE.min(self.time));
        send(&[&gateway.url], load, warm).await.checked(name)?;
        Ok(())
    }

    async fn added_latency(&self, report: &mut Report, clients: usize) -> Result<(), BenchError> {
        let name = format!("added latency, {clients} clients");
        report_progress(&format!("gateway: {name} ..."));
        let gateway = Server::gateway(&self.engine.url, &[]).await?;
        let load = Load {
            concurrency: clients,
            programs: CONCURRENCY.max(clients),
            body: small(),
        };
        self.settle(&gateway, &load, &name).await?;
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
        let load = Load {
            concurrency: CONCURRENCY,
            programs: RESIDENT_PROGRAMS,
            body: small(),
        };
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
    fn added_latency_is_the_difference_of_percentiles() {
        let latencies = |times: [u64; 3]| times.map(Duration::from_micros).into_iter().collect();
        let mut through: Latencies = latencies([2_000, 3_000, 9_000]);
        let mut direct: Latencies = latencies([1_000, 1_500, 2_000]);
        assert!((added_ms(&mut through, &mut direct, 0.5) - 1.5).abs() < 1e-9);
        assert!((added_ms(&mut through, &mut direct, 0.99) - 7.0).abs() < 1e-9);
    }
}
