//! What shaping policies and bounds train, beside what is sampled.

use super::contest::{h800, setup, work};
use super::outcome::Outcome;
use super::shaper::{PLUGINS, Shaping};
use super::simulation::SetupError;
use super::suite::{Options, Suite, by_seed};
use super::system::{Setup, System};
use super::table::Row;
use super::workload::{MATH, SWE, WEB};
use treadle_engine_model::hardware::QWEN3_8B;

/// Names of systems without a policy, besides the policies' own.
const UNSHAPED: [&str; 2] = ["none", "areal"];

fn of(name: &'static str, quick: bool) -> Setup {
    let mut system = match name {
        "areal" => System::areal(2),
        _ => System::treadle(2, 2),
    };
    if !UNSHAPED.contains(&name) {
        system.shaping = Shaping::of(name);
    }
    // Few engines: rollouts take longer than training, and groups get old.
    setup(
        work(&[MATH, WEB, SWE], if quick { 12 } else { 48 }),
        h800(QWEN3_8B, 1, 4, 4),
        system,
        quick,
    )
}

/// The largest change of a domain's share, in percent of all members.
fn domain_change(of: &Outcome) -> f64 {
    let changes = of.domains.values().map(|of| (of.trained - of.begun).abs());
    changes.fold(0.0, f64::max) * 100.0
}

/// Lengths, domains and returns, for each policy.
pub(super) fn run(options: &Options, suite: &mut Suite) -> Result<(), SetupError> {
    let names: Vec<&'static str> = UNSHAPED.into_iter().chain(PLUGINS).collect();
    let setups: Vec<Setup> = names.iter().map(|name| of(name, options.quick)).collect();
    let outcomes = by_seed(&setups, options)?;
    for (name, outcomes) in names.iter().zip(&outcomes) {
        let all = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Vec<f64>>();
        let figures = [
            (
                "mean_length",
                "x",
                all(|of| of.trained.mean / of.begun.mean),
            ),
            (
                "median_length",
                "x",
                all(|of| of.trained.p50 / of.begun.p50),
            ),
            ("p90_length", "x", all(|of| of.trained.p90 / of.begun.p90)),
            ("domain_share", "%", all(domain_change)),
            (
                "returned_max",
                "times",
                all(|of| f64::from(of.returned_max)),
            ),
            ("lag_max", "steps", all(|of| of.lag_max as f64)),
        ];
        for (figure, unit, values) in figures {
            suite.push(Row::of(format!("bias.{figure}.{name}"), unit, &values));
        }
    }
    let shown = names.iter().zip(&outcomes);
    let shown = shown.map(|(name, outcomes)| {
        let seen = outcomes.iter().map(|of| {
            serde_json::json!({
                "begun": of.begun,
                "trained": of.trained,
                "domains": of.domains,
                "lost": of.lost,
            })
        });
        serde_json::json!({ "policy": name, "seeds": seen.collect::<Vec<_>>() })
    });
    suite.detail("bias", shown.collect::<Vec<_>>());
    Ok(())
}
