//! `RollArt`'s parts in isolation (§3, §7.3, §7.4).

use super::contest::{bindings, h800, setup, work};
use super::hardware::{ETHERNET, EngineClass, Hardware};
use super::judges::Judges;
use super::outcome::Outcome;
use super::shaper::Shaping;
use super::simulation::SetupError;
use super::suite::{Options, Suite, by_seed, ratios};
use super::system::{Interaction, Setup, System, Transfer};
use super::table::Row;
use super::workload::{Domain, FROZEN_LAKE, Failures, GAME, MATH, SWE, StepTime, WEB, Workload};
use treadle_engine_model::hardware::{
    Gpu, H20, H800, LanguageModel, QWEN3_8B, QWEN3_14B, QWEN3_32B,
};

fn with_rollout(train: u32, classes: &[(Gpu, u32)]) -> Hardware {
    let engines = classes.iter().map(|(gpu, engines)| EngineClass {
        gpu: *gpu,
        engines: *engines,
        degree: 1,
    });
    Hardware {
        classes: engines.collect(),
        ..h800(QWEN3_8B, 1, 1, train)
    }
}

const WHY_TASK: &str = "rollouts of 8 x 8; observations of 280 tokens, chosen, are mostly cached, so nothing \
                        is heavy in prefill here";
const WHY_MIX: &str =
    "an eighth of the paper's accelerators, at 26 of its cost units each; lengths are chosen";

/// Which accelerators suit which domain, and a mix of both at equal cost.
pub(super) fn affinity(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    for (domain, paper) in [
        (FROZEN_LAKE, "1.89 (0.53 of the time)"),
        (MATH, "0.49 to 0.79"),
    ] {
        let on = |gpu, engines| Setup {
            groups: 8,
            ..setup(
                work(&[domain], 64),
                with_rollout(4, &[(gpu, engines)]),
                System::sync_plus(),
                options.quick,
            )
        };
        let outcomes = by_seed(&[on(H20, 6), on(H800, 2)], options)?;
        let values = ratios(&outcomes[0], &outcomes[1], |of| of.rollout_s);
        let name = format!("affinity.rollout.h20_over_h800.{}", domain.name);
        suite.push(Row::of(name, "x", &values).beside(paper, WHY_TASK));
    }
    let mixed = work(&[MATH, GAME, WEB, FROZEN_LAKE], 320);
    let on = |classes: &[(Gpu, u32)], is_bound: bool| {
        let mut system = System::treadle(2, 1);
        if is_bound {
            system.affinity = bindings();
        }
        let hardware = with_rollout(4, classes);
        setup(mixed.clone(), hardware, system, options.quick)
    };
    let setups = [
        on(&[(H800, 8), (H20, 3)], true),
        on(&[(H20, 26)], false),
        on(&[(H800, 9)], false),
        on(&[(H800, 8), (H20, 3)], false),
    ];
    let outcomes = by_seed(&setups, options)?;
    let papers = [
        ("h20_only", "1.30 to 1.68"),
        ("h800_only", "1.12 to 1.37"),
        ("mix_unbound", ""),
    ];
    for ((name, paper), other) in papers.iter().zip(&outcomes[1..]) {
        let values = ratios(other, &outcomes[0], |of| of.step_s);
        let name = format!("affinity.step.{name}_over_bound_mix");
        suite.push(Row::of(name, "x", &values).beside(paper, WHY_MIX));
    }
    suite.detail("affinity", &outcomes);
    Ok(())
}

const WHY_TURNS: &str = "5 to 30 turns are chosen; the paper names no task";

/// Turns of each trajectory, or of all together, by the spread of environments.
pub(super) fn trajectory(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let sigmas: &[f64] = if options.quick {
        &[1.0, 10.0]
    } else {
        &[1.0, 2.0, 5.0, 10.0]
    };
    for sigma in sigmas {
        let step_s = StepTime::Normal {
            mean: 10.0,
            sigma: *sigma,
        };
        let domain = Domain { step_s, ..WEB };
        let of = |interaction| {
            let system = System {
                interaction,
                ..System::sync_plus()
            };
            let hardware = h800(QWEN3_8B, 1, 12, 4);
            setup(work(&[domain], 320), hardware, system, options.quick)
        };
        let setups = [of(Interaction::Batched), of(Interaction::Trajectory)];
        let outcomes = by_seed(&setups, options)?;
        let values = ratios(&outcomes[0], &outcomes[1], |of| of.step_s);
        let paper = match *sigma as u64 {
            1 => "1.23",
            10 => "2.27",
            _ => "",
        };
        let name = format!("trajectory.step.batched_over_each.sigma{sigma}");
        suite.push(Row::of(name, "x", &values).beside(paper, WHY_TURNS));
    }
    Ok(())
}

const WHY_REWARDS: &str = "one job of 256 instead of three of 84; judgements of 4 s, 8 at once, are \
                           chosen";
const WHY_BUSY: &str = "any judgement counts as busy; the paper's is a device's utilisation";

/// Judges on accelerators that are held, or on demand.
pub(super) fn rewards(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let of = |rollout, judges| {
        let system = System {
            judges,
            ..System::sync_plus()
        };
        let mut hardware = h800(QWEN3_8B, 1, rollout, 8);
        if let Judges::Held(gpus) = judges {
            hardware.judge_gpus = gpus;
        }
        let workload = Workload {
            context_tokens: 16_384,
            ..work(&[MATH], 320)
        };
        Setup {
            groups: if options.quick { 4 } else { 32 },
            ..setup(workload, hardware, system, options.quick)
        }
    };
    let outcomes = by_seed(
        &[of(4, Judges::Held(4)), of(8, Judges::Serverless)],
        options,
    )?;
    let values = ratios(&outcomes[0], &outcomes[1], |of| of.rollout_s);
    let row = Row::of("rewards.rollout.held_over_serverless", "x", &values);
    suite.push(row.beside("2.05 (158 s, 77 s)", WHY_REWARDS));
    let names = [("held", "6%"), ("serverless", "88%")];
    for ((name, paper), of) in names.iter().zip(&outcomes) {
        let busy: Vec<f64> = of.iter().map(|of| of.judges_busy * 100.0).collect();
        let row = Row::of(format!("rewards.judges_busy.{name}"), "%", &busy);
        suite.push(row.beside(paper, WHY_BUSY));
    }
    Ok(())
}

/// Work with environments that fail.
fn failing(mut workload: Workload, reset_share: f64, timeout_s: f64) -> Workload {
    workload.failures = Failures {
        reset_share,
        timeout_s,
    };
    workload
}

const WHY_REDUNDANT: &str = "the best of 1.25, 1.5 and 2 times the members; 2% of resets fail after \
                             60 s, which is chosen: the paper's failures are not printed";

/// More members than are trained, by batch and by group.
pub(super) fn redundancy(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let shapes: &[(u32, u16)] = if options.quick {
        &[(4, 4)]
    } else {
        &[(8, 4), (8, 8), (16, 8), (32, 8), (16, 16)]
    };
    let ratios_tried: &[&str] = &[r#"{"ratio": 1.25}"#, r#"{"ratio": 1.5}"#, r#"{"ratio": 2}"#];
    for (groups, members) in shapes {
        let of = |shaping: Shaping| {
            let system = System {
                shaping,
                ..System::sync_plus()
            };
            let workload = failing(work(&[MATH], 320), 0.02, 60.0);
            Setup {
                groups: *groups,
                members: *members,
                ..setup(workload, h800(QWEN3_8B, 1, 12, 4), system, options.quick)
            }
        };
        let tried = ratios_tried
            .iter()
            .map(|config| Shaping::with("uniform", config));
        let setups: Vec<Setup> = std::iter::once(Shaping::default())
            .chain(tried)
            .map(of)
            .collect();
        let outcomes = by_seed(&setups, options)?;
        let mean = |of: &[Outcome]| of.iter().map(|of| of.rollout_s).sum::<f64>();
        let best = outcomes[1..]
            .iter()
            .min_by(|a, b| mean(a).total_cmp(&mean(b)));
        let Some(best) = best else { continue };
        let shape = format!("{groups}x{members}");
        let values = ratios(&outcomes[0], best, |of| of.rollout_s);
        let row = Row::of(format!("redundancy.rollout.{shape}"), "x", &values);
        suite.push(row.beside("up to 1.62", WHY_REDUNDANT));
        let lengths = ratios(best, &outcomes[0], |of| of.trained.mean);
        let row = Row::of(format!("redundancy.trained_length.{shape}"), "x", &lengths);
        suite.push(row);
    }
    Ok(())
}

const WHY_FAILURES: &str = "2% of resets fail after 150 s, which is chosen so that each batch has \
                            some; the paper's batch waits in turns";

/// What failing environments add to a step, and what of it is left.
pub(super) fn failures(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let of = |system: System, share| {
        let workload = failing(work(&[SWE], 320), share, 150.0);
        setup(workload, h800(QWEN3_8B, 1, 12, 4), system, options.quick)
    };
    let redundant = System {
        shaping: Shaping::of("uniform"),
        ..System::treadle(2, 1)
    };
    let batched = System {
        interaction: Interaction::Batched,
        ..System::sync_plus()
    };
    let systems = [
        ("batched", batched),
        ("sync_plus", System::sync_plus()),
        ("one_off", System::one_off()),
        ("treadle", System::treadle(2, 1)),
        ("treadle_redundant", redundant),
    ];
    for (name, system) in systems {
        let outcomes = by_seed(&[of(system.clone(), 0.02), of(system, 0.0)], options)?;
        let values = ratios(&outcomes[0], &outcomes[1], |of| of.step_s);
        let paper = match name {
            "batched" => "1.40 (366 s, 513 s)",
            _ => "",
        };
        let row = Row::of(format!("failures.step.{name}"), "x", &values);
        suite.push(row.beside(paper, WHY_FAILURES));
        let steps = outcomes[0].iter().map(|of| of.step_s).collect::<Vec<f64>>();
        suite.push(Row::of(format!("failures.step_s.{name}"), "s", &steps));
    }
    Ok(())
}

const WHY_HIDDEN: &str = "rates are the paper's; engines lose nothing while hosts pull, and load at \
                          25 GB/s";

/// Transfers beside the rollout, or before it.
pub(super) fn weights(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let models: [(LanguageModel, u32, &'static str); 3] = [
        (QWEN3_8B, 1, "77% (1.4 of 6.2 s)"),
        (QWEN3_14B, 2, "69% (5.1 of 16.3 s)"),
        (QWEN3_32B, 4, "68% (9.6 of 29.7 s)"),
    ];
    for (model, degree, paper) in models {
        let of = |transfer| {
            let system = System {
                transfer,
                ..System::treadle(2, 1)
            };
            let mut hardware = h800(model, degree, 12, 4);
            hardware.path = ETHERNET;
            let domains = [MATH, GAME, WEB, FROZEN_LAKE];
            setup(work(&domains, 320), hardware, system, options.quick)
        };
        let setups = [of(Transfer::Exposed), of(Transfer::Hidden)];
        let outcomes = by_seed(&setups, options)?;
        let values = ratios(&outcomes[0], &outcomes[1], |of| of.step_s);
        let row = Row::of(
            format!("weights.step.exposed_over_hidden.{}", model.name),
            "x",
            &values,
        );
        suite.push(row.beside("1.10 to 1.16", WHY_HIDDEN));
        let hardware = &setups[1].hardware;
        let bytes = (model.parameters * model.weight_bytes) as f64;
        let pull_s = bytes / hardware.path.pull_bytes_per_s;
        let load_s = hardware.load_us() as f64 / 1e6;
        let hidden = [100.0 * (1.0 - load_s / (pull_s + load_s))];
        let row = Row::of(format!("weights.pull_hidden.{}", model.name), "%", &hidden);
        suite.push(row.beside(paper, WHY_HIDDEN));
    }
    Ok(())
}
