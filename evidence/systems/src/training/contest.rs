//! Whole systems at equal cost, each with its best settings.
//!
//! Settings are chosen on some seeds and figures are of others. Systems differ in their coordination
//! only: prefix caches, routing, serverless judges, transfers of weights beside the rollout and, in
//! the second contest, redundant members are everybody's.

use super::hardware::{ETHERNET, EngineClass, Hardware, RDMA, Sharing};
use super::outcome::Outcome;
use super::shaper::Shaping;
use super::simulation::SetupError;
use super::suite::{Options, Suite, by_seed, ratios, run_all, seeded};
use super::system::{Affinity, Setup, System};
use super::table::Row;
use super::workload::{Domain, FROZEN_LAKE, Failures, GAME, Lengths, MATH, SWE, WEB, Workload};
use serde_json::json;
use treadle_engine_model::hardware::{H20, H800, LanguageModel, QWEN3_32B};

/// Accelerators of a contest: an eighth of the paper's.
const GPUS: u32 = 16;

/// Work of these domains, all alike.
pub(super) fn work(domains: &[Domain], prompts: u64) -> Workload {
    Workload {
        domains: domains.to_vec(),
        prompts,
        lengths: Lengths::default(),
        failures: Failures {
            reset_share: 0.0,
            timeout_s: 0.0,
        },
        context_tokens: 32_768,
    }
}

/// H800 for rollouts and for training, in one cluster.
pub(super) fn h800(model: LanguageModel, degree: u32, rollout: u32, train: u32) -> Hardware {
    Hardware {
        model,
        classes: vec![EngineClass {
            gpu: H800,
            engines: rollout / degree,
            degree,
        }],
        train_gpus: train,
        sharing: Sharing::Apart,
        judge_gpus: 0,
        path: RDMA,
    }
}

/// A batch of 8 groups of 8: an eighth of the paper's 512.
pub(super) fn setup(workload: Workload, hardware: Hardware, system: System, quick: bool) -> Setup {
    let (groups, steps, warmup) = if quick { (2, 4, 1) } else { (8, 12, 4) };
    Setup {
        seed: 0,
        workload,
        hardware,
        system,
        groups,
        members: if quick { 4 } else { 8 },
        steps,
        warmup,
        audited: false,
    }
}

/// A system, and the settings that it may have.
pub(super) struct Entrant {
    name: &'static str,
    settings: Vec<Setting>,
}

struct Setting {
    label: String,
    setup: Setup,
}

/// An entrant with the setting that was best on the tuning seeds.
pub(super) struct Finalist {
    pub(super) name: &'static str,
    pub(super) label: String,
    pub(super) outcomes: Vec<Outcome>,
}

impl Entrant {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            settings: Vec::new(),
        }
    }

    fn may(mut self, label: String, setup: Setup) -> Self {
        self.settings.push(Setting { label, setup });
        self
    }

    /// Redundant members as a further setting.
    fn redundant(self) -> Self {
        let mut all = Self::new(self.name);
        for setting in self.settings {
            for config in [r#"{"ratio": 1.25}"#, r#"{"ratio": 1.5}"#] {
                let mut setup = setting.setup.clone();
                setup.system.shaping = Shaping::with("uniform", config);
                all = all.may(format!("{}, uniform {config}", setting.label), setup);
            }
            all = all.may(setting.label, setting.setup);
        }
        all
    }

    fn finalist(&self, options: &Options) -> Result<Finalist, SetupError> {
        let seeds = &options.tuning_seeds;
        let all = self.settings.iter();
        let all = all.flat_map(|setting| seeded(&setting.setup, seeds));
        let outcomes = run_all(&all.collect::<Vec<Setup>>(), options.jobs)?;
        let costs = outcomes.chunks(seeds.len().max(1));
        let costs = costs.map(|of| of.iter().map(|outcome| outcome.step_cost).sum::<f64>());
        let tried = self.settings.iter().zip(costs);
        let best = tried.min_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((best, _)) = best else {
            return Ok(Finalist {
                name: self.name,
                label: String::new(),
                outcomes: Vec::new(),
            });
        };
        let outcomes = by_seed(std::slice::from_ref(&best.setup), options)?;
        Ok(Finalist {
            name: self.name,
            label: best.label.clone(),
            outcomes: outcomes.into_iter().next().unwrap_or_default(),
        })
    }
}

fn mixed_work() -> Workload {
    work(&[MATH, GAME, WEB, FROZEN_LAKE, SWE], 320)
}

/// How many accelerators train.
fn splits(quick: bool) -> &'static [u32] {
    if quick { &[4] } else { &[4, 8] }
}

fn on_h800(system: &System, train: u32, quick: bool) -> Setup {
    let hardware = h800(QWEN3_32B, 4, GPUS - train, train);
    setup(mixed_work(), hardware, system.clone(), quick)
}

fn in_turns(system: &System, quick: bool) -> Setup {
    let mut hardware = h800(QWEN3_32B, 4, GPUS, GPUS);
    hardware.sharing = Sharing::Turns;
    setup(mixed_work(), hardware, system.clone(), quick)
}

fn of_splits(name: &'static str, systems: &[(String, System)], quick: bool) -> Entrant {
    let mut entrant = Entrant::new(name);
    for (label, system) in systems {
        for train in splits(quick) {
            let label = format!("{label}{train} train");
            entrant = entrant.may(label, on_h800(system, *train, quick));
        }
    }
    entrant
}

fn plain(system: System) -> [(String, System); 1] {
    [(String::new(), system)]
}

fn sync(quick: bool) -> Entrant {
    // The cost of the judge is counted.
    let system = System::sync(1);
    let mut apart = on_h800(&system, 4, quick);
    apart.hardware.judge_gpus = 1;
    let mut in_turns = in_turns(&system, quick);
    in_turns.hardware.judge_gpus = 1;
    let entrant = Entrant::new("sync").may("4 train, 1 judge".to_owned(), apart);
    entrant.may("in turns, 1 judge".to_owned(), in_turns)
}

fn sync_plus(quick: bool) -> Entrant {
    let system = System::sync_plus();
    let entrant = of_splits("sync_plus", &plain(system.clone()), quick);
    entrant.may("in turns".to_owned(), in_turns(&system, quick))
}

/// Sync+ as the paper has it: trainer and engines never share accelerators.
fn sync_plus_apart(quick: bool) -> Entrant {
    of_splits("sync_plus_apart", &plain(System::sync_plus()), quick)
}

fn one_off(quick: bool) -> Entrant {
    of_splits("one_off", &plain(System::one_off()), quick)
}

fn areal(quick: bool) -> Entrant {
    let etas: &[u64] = if quick { &[1] } else { &[1, 2, 3] };
    let of = |eta: &u64| (format!("eta {eta}, "), System::areal(*eta));
    let systems: Vec<_> = etas.iter().map(of).collect();
    of_splits("areal", &systems, quick)
}

/// `AReaL` with its strictest bound.
fn areal_strict(quick: bool) -> Entrant {
    of_splits("areal_strict", &plain(System::areal(0)), quick)
}

/// A bound of the lag that groups of `AReaL` reach under its best one.
fn treadle_lag8(quick: bool) -> Entrant {
    let ahead: &[u64] = if quick { &[8] } else { &[1, 2, 4, 8] };
    let of = |pipeline: &u64| {
        let label = format!("lag 8, pipeline {pipeline}, ");
        (label, System::treadle(8, *pipeline))
    };
    let systems: Vec<_> = ahead.iter().map(of).collect();
    of_splits("treadle_lag8", &systems, quick)
}

/// The paper's alpha of 1 is a lag of 2.
fn treadle_systems(quick: bool) -> Vec<(String, System)> {
    let ahead: &[u64] = if quick { &[1] } else { &[1, 2] };
    let of = |pipeline: &u64| {
        let label = format!("lag 2, pipeline {pipeline}, ");
        (label, System::treadle(2, *pipeline))
    };
    ahead.iter().map(of).collect()
}

fn treadle(quick: bool) -> Entrant {
    of_splits("treadle", &treadle_systems(quick), quick)
}

/// Where prefill-heavy and decoding-heavy domains run.
pub(super) fn bindings() -> Vec<Affinity> {
    let to = |domain: &Domain, gpu: &'static str| Affinity {
        domain: domain.name,
        gpu,
    };
    vec![
        to(&MATH, H20.name),
        to(&GAME, H20.name),
        to(&WEB, H800.name),
        to(&FROZEN_LAKE, H800.name),
        to(&SWE, H800.name),
    ]
}

/// The paper's own mix, 96 H800 and 32 H20, an eighth of it: it costs 0.84 of what the others have.
fn treadle_mixed(quick: bool, is_bound: bool) -> Entrant {
    let name = if is_bound {
        "treadle_affinity"
    } else {
        "treadle_mixed"
    };
    let mut entrant = Entrant::new(name);
    for (label, mut system) in treadle_systems(quick) {
        for train in splits(quick) {
            if is_bound {
                system.affinity = bindings();
            }
            let mut hardware = h800(QWEN3_32B, 4, 12 - train, *train);
            hardware.classes.push(EngineClass {
                gpu: H20,
                engines: 1,
                degree: 4,
            });
            hardware.path = ETHERNET;
            let setup = setup(mixed_work(), hardware, system.clone(), quick);
            entrant = entrant.may(format!("{label}{train} train"), setup);
        }
    }
    entrant
}

const WHY_SYNC_PLUS: &str = "the paper's Sync+ is kept on accelerators of its own; the model's \
                             rollouts have fewer stragglers";
const WHY_SHARED: &str = "trainer and engines may take turns here, which the paper does not try";
const WHY_ONE_OFF: &str = "on one kind of accelerator, without affinity";
const WHY_AREAL: &str = "its bound is on the sum of groups: some are older than 2 steps (lag_max)";
const WHY_AFFINITY: &str = "at 0.84 of the cost; the same weights go over the slow link";
const WHY_LAG: &str =
    "8 bounds each group here, and no group there; what age costs is not modelled";

/// Contests with and without redundant members.
pub(super) fn end_to_end(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let quick = options.quick;
    let entrants = [
        sync(quick),
        sync_plus(quick),
        sync_plus_apart(quick),
        one_off(quick),
        areal(quick),
        areal_strict(quick),
        treadle(quick),
        treadle_lag8(quick),
        treadle_mixed(quick, false),
        treadle_mixed(quick, true),
    ];
    let finalists: Result<Vec<_>, _> = entrants.iter().map(|of| of.finalist(options)).collect();
    push(suite, "end_to_end", &finalists?);
    if quick {
        return Ok(());
    }
    let entrants = [
        sync_plus(quick),
        one_off(quick),
        areal(quick),
        treadle(quick),
    ];
    let entrants = entrants.map(Entrant::redundant);
    let finalists: Result<Vec<_>, _> = entrants.iter().map(|of| of.finalist(options)).collect();
    push(suite, "end_to_end_redundant", &finalists?);
    Ok(())
}

fn paper(name: &str) -> (&'static str, &'static str) {
    match name {
        "sync" => (
            "2.65 to 4.58",
            "judges, turns and batches are modelled, their sizes chosen",
        ),
        "sync_plus" => ("2.05", WHY_SHARED),
        "sync_plus_apart" => ("2.05", WHY_SYNC_PLUS),
        "one_off" => ("1.35", WHY_ONE_OFF),
        "areal_strict" => ("1.31", "its strictest bound: no batch is begun ahead"),
        "areal" => ("1.31", WHY_AREAL),
        _ => ("", ""),
    }
}

fn push(suite: &mut Suite, part: &str, finalists: &[Finalist]) {
    let Some(ours) = finalists.iter().find(|of| of.name == "treadle") else {
        return;
    };
    let step = |of: &Outcome| of.step_cost;
    let per_token = |of: &Outcome| of.step_cost / of.batch_tokens;
    for other in finalists.iter().filter(|of| of.name != "treadle") {
        let (paper, why) = paper(other.name);
        let values = ratios(&other.outcomes, &ours.outcomes, step);
        let name = format!("{part}.cost.{}_over_treadle", other.name);
        suite.push(Row::of(name, "x", &values).beside(paper, why));
        let values = ratios(&other.outcomes, &ours.outcomes, per_token);
        let name = format!("{part}.cost_per_token.{}_over_treadle", other.name);
        suite.push(Row::of(name, "x", &values));
    }
    let of = |name: &str| finalists.iter().find(|of| of.name == name);
    if let (Some(bound), Some(areal)) = (of("treadle_affinity"), of("areal")) {
        let values = ratios(&areal.outcomes, &bound.outcomes, |of| of.step_s);
        let name = format!("{part}.step.areal_over_treadle_affinity");
        suite.push(Row::of(name, "x", &values).beside("1.31", WHY_AFFINITY));
        let values = ratios(&areal.outcomes, &bound.outcomes, step);
        let name = format!("{part}.cost.areal_over_treadle_affinity");
        suite.push(Row::of(name, "x", &values).beside("1.56 (1.31 / 0.84)", WHY_AFFINITY));
    }
    if let (Some(loose), Some(areal)) = (of("treadle_lag8"), of("areal")) {
        let values = ratios(&areal.outcomes, &loose.outcomes, step);
        let name = format!("{part}.cost.areal_over_treadle_lag8");
        suite.push(Row::of(name, "x", &values).beside("", WHY_LAG));
    }
    for finalist in finalists {
        let all = |of: fn(&Outcome) -> f64| finalist.outcomes.iter().map(of).collect::<Vec<_>>();
        let name = |what: &str| format!("{part}.{what}.{}", finalist.name);
        suite.push(Row::of(name("step"), "s", &all(|of| of.step_s)));
        let lag = all(|of| of.lag_max as f64);
        suite.push(Row::of(name("lag_max"), "steps", &lag));
    }
    let shown = finalists.iter().map(|of| {
        json!({
            "system": of.name,
            "best_setting": of.label,
            "outcomes": of.outcomes,
        })
    });
    suite.detail(part, shown.collect::<Vec<_>>());
}

const WHY_BOUNDS: &str = "lag 2 to 7 are alpha 1 to 6; what a larger bound costs in quality is not \
                          modelled";

/// Larger bounds on the lag, over a lag of 2.
pub(super) fn bounds(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let lags: &[u64] = if options.quick {
        &[1, 2]
    } else {
        &[1, 2, 3, 4, 7]
    };
    let of = |lag: &u64| on_h800(&System::treadle(*lag, *lag), 4, options.quick);
    let setups: Vec<Setup> = lags.iter().map(of).collect();
    let outcomes = by_seed(&setups, options)?;
    let base = lags.iter().position(|lag| *lag == 2).unwrap_or(0);
    for (lag, of) in lags.iter().zip(&outcomes) {
        let values = ratios(&outcomes[base], of, |of| of.step_s);
        let name = format!("bounds.step.lag2_over_lag{lag}");
        suite.push(Row::of(name, "x", &values).beside("at most 1.22", WHY_BOUNDS));
        let lost = of
            .iter()
            .map(|of| of.sampled_per_trained)
            .collect::<Vec<_>>();
        let name = format!("bounds.sampled_per_trained.lag{lag}");
        suite.push(Row::of(name, "x", &lost));
        let lag_seen = of.iter().map(|of| of.lag_max as f64).collect::<Vec<_>>();
        suite.push(Row::of(
            format!("bounds.lag_max.lag{lag}"),
            "steps",
            &lag_seen,
        ));
    }
    Ok(())
}
