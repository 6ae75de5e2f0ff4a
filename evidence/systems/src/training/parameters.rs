//! The parameters of the simulated training, all chosen or taken from a paper before anything ran.

use super::hardware::{
    ETHERNET, RDMA, STREAMED_SHARE, TRAINING_EFFICIENCY, TRAINING_FIXED_S, TRAINING_PASSES, TURN_S,
    WeightPath,
};
use super::judges::{AT_ONCE, JUDGE_S, KEPT_S};
use super::stream::Spread;
use super::workload::{Domain, FROZEN_LAKE, GAME, Lengths, MATH, SWE, StepTime, WEB};
use serde_json::{Map, Value, json};

fn spread(of: Spread) -> String {
    format!("{} x e^(±{})", of.median, of.sigma)
}

fn domain(of: &Domain) -> Value {
    let step_s = match of.step_s {
        StepTime::Lognormal(of) => spread(of),
        StepTime::Normal { mean, sigma } => format!("normal {mean} ± {sigma}"),
    };
    json!({
        "prompt_tokens": spread(of.prompt_tokens),
        "turns": format!("{} to {}", of.turns_min, of.turns_max),
        "tokens_of_a_turn": spread(of.output_tokens),
        "observation_tokens": spread(of.observation_tokens),
        "reset_s": spread(of.reset_s),
        "step_s": step_s,
        "scoring": of.scoring,
    })
}

fn path(of: &WeightPath) -> Value {
    let rate = |of: f64| {
        if of.is_finite() {
            json!(of / 1e9)
        } else {
            Value::Null
        }
    };
    json!({
        "push_gb_per_s": rate(of.push_bytes_per_s),
        "pull_gb_per_s": rate(of.pull_bytes_per_s),
        "load_gb_per_s_of_a_gpu": rate(of.load_bytes_per_s),
    })
}

/// All of them, by name.
pub fn parameters() -> Map<String, Value> {
    let domains = [MATH, GAME, WEB, FROZEN_LAKE, SWE];
    let domains: Map<String, Value> = domains
        .iter()
        .map(|of| (of.name.to_owned(), domain(of)))
        .collect();
    let all = json!({
        "domains": domains,
        "lengths": Lengths::default(),
        "training": {
            "passes": TRAINING_PASSES,
            "share_of_peak": TRAINING_EFFICIENCY,
            "fixed_s": TRAINING_FIXED_S,
            "streamed_share": STREAMED_SHARE,
            "turn_s": TURN_S,
        },
        "weights": { RDMA.name: path(&RDMA), ETHERNET.name: path(&ETHERNET) },
        "judges": { "judgement_s": spread(JUDGE_S), "at_once": AT_ONCE, "kept_s": KEPT_S },
        "context_tokens": 32_768,
        "cost": { "H20": 1.0, "H800": 2.85 },
    });
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}
