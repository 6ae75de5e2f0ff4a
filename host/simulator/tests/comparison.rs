//! Schedulers compared in virtual time, where figures are exact: the same
//! options give the same report on any machine.

use std::io::BufReader;
use treadle_core::{CoreConfig, Mode};
use treadle_engine_model::engine::EngineProfile;
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{
    ClusterOptions, EngineRanks, Environment, NoObserver, RankChoice, Report, TransferOptions,
    simulate, simulate_within,
};
use treadle_simulator::workload::{
    AgentRun, LognormalAgents, TraceOptions, load_trace, peak_demand_tokens,
};

/// KV memory as a share of what the programs would need at their peak.
const KV_FRACTION: f64 = 0.33;
const MINUTE_US: u64 = 60_000_000;

struct Scenario {
    runs: Vec<AgentRun>,
    live: usize,
    minutes: u64,
    audit: bool,
    tool_cores: Option<u64>,
}

impl Scenario {
    fn run(&self, mode: Mode) -> Report {
        let profile = EngineProfile::glm46_8xh100();
        let peak = peak_demand_tokens(&self.runs, self.live, &profile);
        let kv_tokens = (peak as f64 * KV_FRACTION / 2.0) as u64;
        let options = ClusterOptions {
            core: CoreConfig {
                mode,
                explain: false,
                ..CoreConfig::default()
            },
            policy: NativeEviction::default(),
            engines: 2,
            profile: profile.with_kv_tokens(kv_tokens),
            transfers: TransferOptions::default(),
            reports_prefixes: true,
            concurrency: self.live,
            seed: 1,
            audit: self.audit,
            stop_at_us: Some((self.minutes + 5) * MINUTE_US),
            count_from_us: 5 * MINUTE_US,
        };
        let around = Environment {
            tool_cores: self.tool_cores,
            ..Environment::default()
        };
        let mut policy = options.policy.clone();
        simulate_within(&self.runs, &options, &mut policy, around, &mut NoObserver)
    }
}

fn generated(programs: usize, seed: u64) -> Vec<AgentRun> {
    LognormalAgents {
        programs,
        seed,
        ..LognormalAgents::default()
    }
    .generate()
    .unwrap()
}

#[test]
fn what_is_seen_of_engines_is_what_they_are() {
    let scenario = Scenario {
        // Runs to their end, so that engines are observed with many and with few programs.
        runs: generated(40, 11),
        live: 32,
        minutes: 8,
        audit: false,
        tool_cores: None,
    };
    let report = scenario.run(Mode::ProgramAware);
    let is_close = |seen: f64, truth: f64| (seen / truth - 1.0).abs() < 0.1;
    // GLM-4.6: 22 ms for the weights; for each step 60 us and 14 us per thousand tokens of context.
    let step_us = 60.0 + 14.0 * 12.0;
    for speed in &report.speeds {
        let seen = |value: Option<u64>| value.expect("enough was seen") as f64;
        let (token_us, further_us) = (seen(speed.token_us), seen(speed.step_us));
        assert!(
            is_close(seen(speed.prefill_tokens_per_s), 15_000.0),
            "{speed:?}"
        );
        assert!(is_close(token_us, 22_000.0 + step_us), "{speed:?}");
        let eight_us = token_us + 7.0 * further_us;
        assert!(is_close(eight_us, 22_000.0 + 8.0 * step_us), "{speed:?}");
    }
}

#[test]
fn the_same_options_give_the_same_report() {
    let scenario = Scenario {
        runs: generated(60, 3),
        live: 24,
        minutes: 5,
        audit: false,
        tool_cores: None,
    };
    assert_eq!(
        scenario.run(Mode::ProgramAware),
        scenario.run(Mode::ProgramAware)
    );
}

#[test]
fn invariants_hold_through_a_whole_run_and_no_step_is_refused() {
    let scenario = Scenario {
        runs: generated(80, 5),
        live: 32,
        minutes: 6,
        audit: true,
        tool_cores: None,
    };
    let report = scenario.run(Mode::ProgramAware);
    assert_eq!(report.refused, 0);
    assert!(report.steps > 300, "{report:?}");
    assert!(report.pauses > 0, "memory was short: {report:?}");
}

#[test]
fn under_pressure_programs_finish_more_steps_than_with_sticky_routing_at_a_bounded_tail() {
    let scenario = Scenario {
        runs: generated(1_500, 1),
        live: 144,
        minutes: 20,
        audit: false,
        tool_cores: None,
    };
    let sticky = scenario.run(Mode::Sticky);
    let treadle = scenario.run(Mode::ProgramAware);
    let gain = treadle.steps_per_min / sticky.steps_per_min;
    assert!(gain >= 1.8, "{gain:.2}x: {treadle:?} against {sticky:?}");
    let tail = treadle.step_p99_s / sticky.step_p99_s;
    assert!(tail <= 1.1, "{tail:.2}x: {treadle:?} against {sticky:?}");
    assert!(treadle.hit_rate > 2.0 * sticky.hit_rate);
}

#[test]
fn without_pressure_no_program_is_paused() {
    let runs = generated(100, 2);
    let scenario = Scenario {
        runs,
        live: 4,
        minutes: 10,
        audit: true,
        tool_cores: None,
    };
    let profile = EngineProfile::glm46_8xh100();
    let options = ClusterOptions {
        core: CoreConfig::default(),
        policy: NativeEviction::default(),
        engines: 2,
        profile,
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: scenario.live,
        seed: 1,
        audit: true,
        stop_at_us: Some(10 * MINUTE_US),
        count_from_us: 0,
    };
    let report = simulate(&scenario.runs, &options);
    assert_eq!(
        (report.pauses, report.preemptions, report.refused),
        (0, 0, 0),
        "{report:?}"
    );
    let kv = report.kv;
    let work = kv.decode + kv.prefill + kv.recompute;
    let all = work + kv.caching + kv.transfer + kv.shared + kv.unused;
    assert!((all - 1.0).abs() < 1e-9, "{kv:?}");
    assert!(kv.recompute < kv.prefill && kv.transfer == 0.0, "{kv:?}");
    assert!(kv.unused > 0.5 && kv.caching > 0.0, "{kv:?}");
}

#[test]
fn programs_that_stay_at_a_rank_find_their_caches_there() {
    let runs = generated(60, 3);
    let count = 4;
    let profile = EngineProfile::glm46_8xh100();
    let options = ClusterOptions {
        core: CoreConfig {
            mode: Mode::Sticky,
            ..CoreConfig::default()
        },
        policy: NativeEviction::default(),
        engines: 2,
        profile: profile.with_kv_tokens(200_000),
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: 30,
        seed: 1,
        audit: false,
        stop_at_us: None,
        count_from_us: 0,
    };
    let run = |chosen_by| {
        let around = Environment {
            ranks: Some(EngineRanks { count, chosen_by }),
            ..Environment::default()
        };
        let mut policy = options.policy.clone();
        simulate_within(&runs, &options, &mut policy, around, &mut NoObserver)
    };
    let spread = run(RankChoice::Engine);
    for chosen_by in [RankChoice::Scheduler, RankChoice::Program] {
        let pinned = run(chosen_by);
        assert_eq!(pinned.steps, spread.steps);
        assert!(
            pinned.hit_rate > spread.hit_rate + 0.2,
            "{pinned:?} {spread:?}"
        );
        assert!(pinned.steps_per_min > spread.steps_per_min, "{chosen_by:?}");
    }
    assert_eq!(
        run(RankChoice::Scheduler).speeds.len(),
        8,
        "each is a worker"
    );
    assert_eq!(spread.speeds.len(), 2);
}

/// On recorded coding agents with 192 live programs: at least 2.1 times the steps of sticky
/// routing, with no worse a tail. The trace is not part of the repository; `TREADLE_TRACE` sets its
/// path.
#[test]
fn on_recorded_agents_the_gain_holds_and_the_tail_is_no_worse() {
    let path = std::env::var("TREADLE_TRACE").unwrap_or_else(|_| {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../shared/traces/coding-agent-runs.jsonl"
        )
        .into()
    });
    let Ok(file) = std::fs::File::open(&path) else {
        return eprintln!("skipped: there is no trace at {path}");
    };
    let options = TraceOptions {
        programs: 2_304,
        ..TraceOptions::default()
    };
    let runs = load_trace(BufReader::new(file), &options).unwrap().runs;
    let scenario = Scenario {
        runs,
        live: 192,
        minutes: 30,
        audit: false,
        tool_cores: None,
    };
    let sticky = scenario.run(Mode::Sticky);
    let treadle = scenario.run(Mode::ProgramAware);
    let gain = treadle.steps_per_min / sticky.steps_per_min;
    assert!(gain >= 2.1, "{gain:.2}x: {treadle:?} against {sticky:?}");
    assert!(
        treadle.step_p99_s <= sticky.step_p99_s,
        "{treadle:?} against {sticky:?}"
    );
}

#[test]
fn tools_wait_for_cores() {
    let mut runs = generated(400, 7);
    for step in runs.iter_mut().flat_map(|run| &mut run.steps) {
        step.tool_us = 6_000_000;
    }
    let steps_per_min = |tool_cores| {
        let scenario = Scenario {
            runs: runs.clone(),
            live: 16,
            minutes: 5,
            audit: true,
            tool_cores,
        };
        let report = scenario.run(Mode::ProgramAware);
        assert_eq!(report.refused, 0);
        report.steps_per_min
    };
    let (scarce, ample) = (steps_per_min(Some(2)), steps_per_min(Some(16)));
    // Two cores finish 20 tools a minute, and the last step of a run has none.
    assert!((10.0..30.0).contains(&scarce), "{scarce}");
    assert!(
        ample > 1.5 * scarce,
        "{ample} with a core for each, {scarce}"
    );
}
