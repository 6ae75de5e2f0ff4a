//! Compares schedulers on a trace or on generated agents, in virtual time.
use std::io::BufReader;
use treadle_core::{CoreConfig, Mode};
use treadle_model::Span;
use treadle_simulator::cluster::{ClusterOptions, simulate};
use treadle_simulator::engine::EngineProfile;
use treadle_simulator::native::NativeEviction;
use treadle_simulator::workload::*;

fn main() {
    let mut args = std::env::args().skip(1);
    let trace = args.next();
    let live: usize = args.next().map_or(48, |a| a.parse().unwrap());
    let minutes: u64 = args.next().map_or(30, |a| a.parse().unwrap());
    let profile = args.next().unwrap_or("qwen3-32b-h100".into());
    let seeds: u64 = args.next().map_or(2, |a| a.parse().unwrap());
    for seed in 1..=seeds {
        let programs = live * 12;
        let runs = match &trace {
            Some(path) if path != "-" => {
                let file = BufReader::new(std::fs::File::open(path).unwrap());
                load_trace(
                    file,
                    &TraceOptions {
                        seed,
                        programs,
                        ..TraceOptions::default()
                    },
                )
                .unwrap()
                .runs
            }
            _ => LognormalAgents {
                seed,
                programs,
                ..LognormalAgents::default()
            }
            .generate()
            .unwrap(),
        };
        let base = EngineProfile::named(&profile).unwrap();
        let peak = peak_demand_tokens(&runs, live, &base);
        let steps: usize = runs.iter().map(|r| r.steps.len()).sum();
        println!(
            "seed {seed}: {} runs {steps} steps, peak {peak}",
            runs.len()
        );
        let sticky = std::cell::Cell::new(0.0f64);
        let go = |name: &str, mode: Mode, config: &str, f: f64, edit: &dyn Fn(&mut CoreConfig)| {
            let mut core = CoreConfig {
                mode,
                explain: false,
                ..CoreConfig::default()
            };
            edit(&mut core);
            let options = ClusterOptions {
                core,
                policy: NativeEviction::with_config(
                    thunderagent_eviction::Config::parse(config).unwrap(),
                ),
                engines: 2,
                profile: base.clone().with_kv_tokens((peak as f64 * f / 2.0) as u64),
                concurrency: live,
                seed,
                audit: false,
                stop_at_us: Some((minutes + 5) * 60_000_000),
                count_from_us: 5 * 60_000_000,
            };
            let t = std::time::Instant::now();
            let r = simulate(&runs, &options);
            if name == "sticky" {
                sticky.set(r.steps_per_min);
            }
            println!(
                "{name:28} steps/min {:6.1} x{:.2} p50 {:6.1} p95 {:6.1} p99 {:6.1} hit {:.3} pref {:5.1}M pre {:4} pauses {:4} moves {:4} refused {} span {:6.0} cpu {:.2}",
                r.steps_per_min,
                r.steps_per_min / sticky.get(),
                r.step_p50_s,
                r.step_p95_s,
                r.step_p99_s,
                r.hit_rate,
                r.prefilled_tokens as f64 / 1e6,
                r.preemptions,
                r.pauses,
                r.moves,
                r.refused,
                r.makespan_s,
                t.elapsed().as_secs_f64()
            );
        };
        let none = |_: &mut CoreConfig| {};
        let d = "{}";
        go("sticky", Mode::Sticky, d, 0.33, &none);
        go("no pressure", Mode::Sticky, d, 10.0, &none);
        go("least-load", Mode::LeastLoad, d, 0.33, &none);
        go(
            "paper",
            Mode::ProgramAware,
            r#"{"profile":"paper"}"#,
            0.33,
            &none,
        );
        go("default", Mode::ProgramAware, d, 0.33, &none);
        for low in [0.95, 0.9] {
            for hold in [5.0, 10.0, 20.0] {
                for (defer, q) in [(180, 60), (240, 120), (300, 60), (300, 120)] {
                    go(
                        &format!("low {low} hold {hold} defer {defer} q {q}"),
                        Mode::ProgramAware,
                        &format!(
                            r#"{{"decay":"exponential","half_life_s":0.1,"hold_s":{hold},"restore":"waiting"}}"#
                        ),
                        0.33,
                        &|c| {
                            c.deferral_max = Span::from_secs(defer);
                            c.quantum = Span::from_secs(q);
                            c.low_watermark_ppm = (low * 1e6) as u32;
                        },
                    );
                }
            }
        }
    }
}
