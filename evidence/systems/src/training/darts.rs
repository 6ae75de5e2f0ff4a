//! The mechanics of `DARTS`: budget, saturation, pruning, early stop and streaming. Learnt brevity is
//! only a curve over the stated model of lengths.

use super::contest::{h800, setup, work};
use super::outcome::Outcome;
use super::shaper::Shaping;
use super::simulation::SetupError;
use super::suite::{Options, Suite, by_seed, ratios};
use super::system::{Setup, Streaming, System};
use super::table::Row;
use super::workload::{Domain, GAME, Lengths, MATH};
use treadle_engine_model::hardware::QWEN3_14B;

/// Reasoning in one turn, as the paper's mathematics.
pub(super) const REASONING: Domain = Domain {
    name: "reasoning",
    ..GAME
};

/// Synchronous, as the paper's evaluation, over several epochs of a few prompts.
pub(super) fn reasoning(shaping: Shaping, lengths: Lengths, quick: bool) -> Setup {
    let system = System {
        shaping,
        ..System::sync_plus()
    };
    let mut workload = work(&[REASONING, MATH], if quick { 8 } else { 24 });
    workload.lengths = lengths;
    let mut setup = setup(workload, h800(QWEN3_14B, 1, 4, 4), system, quick);
    if !quick {
        (setup.steps, setup.warmup) = (18, 6);
    }
    setup
}

fn values(of: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    of.iter().map(figure).collect()
}

/// All of it.
pub(super) fn run(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    mechanics(options, suite)?;
    saturation(options, suite)?;
    early_stop(options, suite)?;
    streaming(options, suite)?;
    brevity(options, suite)
}

const WHY_MECHANICS: &str = "nothing is learnt here: the paper's 500 steps make answers shorter";
const WHY_BUDGET: &str = "by the ratio 1.5, which takes the place of the paper's lambda";

/// Against other policies, at what they sample.
fn mechanics(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let shapings = [
        ("none", Shaping::default()),
        ("tail_batching", Shaping::of("tail_batching")),
        ("uniform", Shaping::with("uniform", r#"{"ratio": 1.5}"#)),
        (
            "keep_shortest",
            Shaping::with("keep_shortest", r#"{"ratio": 1.5}"#),
        ),
        ("darts", Shaping::of("darts")),
    ];
    let of = |shaping: &Shaping| reasoning(shaping.clone(), Lengths::default(), options.quick);
    let setups: Vec<Setup> = shapings.iter().map(|(_, shaping)| of(shaping)).collect();
    let outcomes = by_seed(&setups, options)?;
    let Some(darts) = outcomes.last() else {
        return Ok(());
    };
    for ((name, _), other) in shapings.iter().zip(&outcomes) {
        let paper = match *name {
            "none" => "up to 1.77 (verl)",
            "tail_batching" => "up to 1.43",
            _ => "",
        };
        if *name != "darts" {
            let of = ratios(other, darts, |of| of.step_s);
            let row = Row::of(format!("darts.step.{name}_over_darts"), "x", &of);
            suite.push(row.beside(paper, WHY_MECHANICS));
        }
        let begun = values(other, |of| of.begun_per_trained);
        let row = Row::of(format!("darts.begun_per_trained.{name}"), "x", &begun);
        let paper = if *name == "darts" { "about 1.5" } else { "" };
        suite.push(row.beside(paper, if paper.is_empty() { "" } else { WHY_BUDGET }));
        let length = values(other, |of| of.trained.mean / of.begun.mean);
        let row = Row::of(
            format!("darts.trained_over_sampled_length.{name}"),
            "x",
            &length,
        );
        suite.push(row);
    }
    suite.detail("darts", &outcomes);
    Ok(())
}

const WHY_SATURATED: &str = "5% and a mean budget of 1.5 don't fit together: a curve over the spread \
                             between members and the ratio";

/// Groups that sample as many members as they may.
fn saturation(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let sigmas: &[f64] = if options.quick {
        &[0.4]
    } else {
        &[0.2, 0.4, 0.6]
    };
    let budgets: &[&str] = if options.quick {
        &["1.5"]
    } else {
        &["1.25", "1.4", "1.5", "1.75"]
    };
    for sigma in sigmas {
        for ratio in budgets {
            let lengths = Lengths {
                member_sigma: *sigma,
                ..Lengths::default()
            };
            let shaping = Shaping::with("darts", &format!(r#"{{"ratio": {ratio}}}"#));
            let outcomes = by_seed(&[reasoning(shaping, lengths, options.quick)], options)?;
            let share = values(&outcomes[0], |of| of.saturated_share * 100.0);
            let name = format!("darts.saturated.sigma{sigma}.ratio{ratio}");
            suite.push(Row::of(name, "%", &share).beside("about 5%", WHY_SATURATED));
        }
    }
    Ok(())
}

/// What ending members early saves, by both rules.
fn early_stop(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    // All groups of 1.75 and more saturate, so that most are pruned.
    let of = |rule: &str| {
        let config = format!(r#"{{"ratio": 2, "early_stop": "{rule}"}}"#);
        let shaping = Shaping::with("darts", &config);
        reasoning(shaping, Lengths::default(), options.quick)
    };
    let all_run = Shaping::with("keep_shortest", r#"{"ratio": 2}"#);
    let all_run = reasoning(all_run, Lengths::default(), options.quick);
    let outcomes = by_seed(&[all_run, of("exact"), of("first")], options)?;
    for (rule, of) in ["exact", "first"].iter().zip(&outcomes[1..]) {
        let steps = ratios(&outcomes[0], of, |of| of.step_s);
        suite.push(Row::of(
            format!("darts.early_stop.step.{rule}"),
            "x",
            &steps,
        ));
        let sampled = ratios(of, &outcomes[0], |of| of.sampled_per_trained);
        suite.push(Row::of(
            format!("darts.early_stop.sampled.{rule}"),
            "x",
            &sampled,
        ));
        let length = ratios(of, &outcomes[0], |of| of.trained.mean);
        suite.push(Row::of(
            format!("darts.early_stop.length.{rule}"),
            "x",
            &length,
        ));
    }
    Ok(())
}

const WHY_STREAMED: &str = "the log probabilities, a quarter of training, are computed beside the \
                            rollout; no trainer of today can";

/// Log probabilities of what is sampled already.
fn streaming(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let of = |streaming| {
        let none = Shaping::default();
        let mut setup = reasoning(none, Lengths::default(), options.quick);
        setup.system.streaming = streaming;
        setup
    };
    let outcomes = by_seed(&[of(Streaming::None), of(Streaming::Tokens)], options)?;
    let steps = ratios(&outcomes[0], &outcomes[1], |of| of.step_s);
    let row = Row::of("darts.streaming.step", "x", &steps);
    suite.push(row.beside("1.09", WHY_STREAMED));
    Ok(())
}

const WHY_LEARNT: &str = "not a result: how lengths follow what is trained is assumed, as a share for \
                          each step";

/// What the model of lengths makes of it, for several shares that are learnt.
fn brevity(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let shares: &[f64] = if options.quick {
        &[0.1]
    } else {
        &[0.0, 0.05, 0.1, 0.2]
    };
    for share in shares {
        let lengths = Lengths {
            brevity: *share,
            ..Lengths::default()
        };
        let of = |shaping| reasoning(shaping, lengths, options.quick);
        let setups = [of(Shaping::default()), of(Shaping::of("darts"))];
        let outcomes = by_seed(&setups, options)?;
        let steps = ratios(&outcomes[0], &outcomes[1], |of| of.step_s);
        let row = Row::of(
            format!("darts.assumed_brevity.step.share{share}"),
            "x",
            &steps,
        );
        suite.push(row.beside("1.63 (500 steps)", WHY_LEARNT));
        let length = values(&outcomes[1], |of| of.shift.exp());
        let row = Row::of(
            format!("darts.assumed_brevity.length.share{share}"),
            "x",
            &length,
        );
        suite.push(row);
    }
    Ok(())
}
