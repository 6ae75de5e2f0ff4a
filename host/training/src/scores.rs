//! What an answer says of rewards.

use serde_json::Value;
use std::collections::BTreeMap;
use treadle_core::actions::Outcome;
use treadle_core::training::{MemberRef, Reward};
use treadle_model::tenant::split;
use treadle_store::ActionRow;

/// The rewards in an answer.
#[derive(Debug)]
pub(crate) enum Scores {
    /// Of the only member.
    One(Reward),
    /// In the order of the question.
    ByPlace(Vec<Option<Reward>>),
    /// By the members' programs.
    ByName(BTreeMap<String, Option<Reward>>),
    /// None, for this reason.
    Failed(String),
}

impl Scores {
    /// The totals of a policy.
    pub(crate) fn of_policy(answer: &Value) -> Option<Self> {
        let totals = answer["totals"].as_array()?.iter();
        Some(Self::ByPlace(totals.map(reward_of).collect()))
    }

    /// The reward of a member.
    pub(crate) fn of(&self, place: usize, member: &MemberRef) -> Result<Reward, String> {
        let found = match self {
            Self::One(reward) => Some(*reward),
            Self::ByPlace(all) => all.get(place).copied().flatten(),
            Self::ByName(all) => all.get(split(&member.program).1).copied().flatten(),
            Self::Failed(cause) => return Err(cause.clone()),
        };
        found.ok_or_else(|| "the answer has no reward of this member".to_owned())
    }
}

fn reward_of(value: &Value) -> Option<Reward> {
    value.as_f64().and_then(Reward::new)
}

/// A number, that of `reward` in an object, or those of `rewards`.
fn scores_in(output: &[u8]) -> Option<Scores> {
    let value: Value = serde_json::from_slice(output).ok()?;
    match value.get("rewards") {
        Some(Value::Array(all)) => Some(Scores::ByPlace(all.iter().map(reward_of).collect())),
        Some(Value::Object(all)) => {
            let all = all
                .iter()
                .map(|(name, value)| (name.clone(), reward_of(value)));
            Some(Scores::ByName(all.collect()))
        }
        _ => reward_of(value.get("reward").unwrap_or(&value)).map(Scores::One),
    }
}

/// What an action that ended says: rewards, or that it may work later and why.
///
/// # Errors
/// It says that there is no reward.
pub(crate) fn judged(row: &ActionRow, output: &[u8]) -> Result<Result<Scores, String>, String> {
    let outcome = row.outcome.as_deref();
    let outcome = outcome.and_then(|text| serde_json::from_str::<Outcome>(text).ok());
    match outcome {
        Some(Outcome::Exited {
            code: 0 | 200..=299,
        }) => match scores_in(output) {
            Some(scores) => Ok(Ok(scores)),
            None => Err(
                "the answer has no reward; answer a number, or an object with `reward`".to_owned(),
            ),
        },
        Some(Outcome::Exited {
            code: code @ (429 | 500..=599),
        }) => Ok(Err(format!("the answer has status {code}"))),
        Some(Outcome::Exited { code }) => Err(format!("it ended with {code}")),
        Some(Outcome::InfrastructureFailure { cause }) => Ok(Err(cause.into())),
        Some(Outcome::Unknown | Outcome::Expired) | None => {
            Ok(Err("it is unknown how it ended".to_owned()))
        }
        Some(Outcome::Killed { .. } | Outcome::OutOfMemory) => Err("it was killed".to_owned()),
        Some(Outcome::TimedOut) => Err("it ran for too long".to_owned()),
        Some(Outcome::Cancelled) => Err("it was cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(outcome: &Value) -> ActionRow {
        ActionRow {
            outcome: Some(outcome.to_string()),
            ..ActionRow::default()
        }
    }

    fn member(program: &str) -> MemberRef {
        MemberRef {
            job: "j".into(),
            group: "g".into(),
            program: program.into(),
        }
    }

    #[test]
    fn rewards_of_a_group_are_told_apart_by_place_or_by_name() {
        for output in [
            r#"{"rewards": {"p": 1, "q": 0.5}}"#,
            r#"{"rewards": [1, 0.5, null]}"#,
        ] {
            let scores = scores_in(output.as_bytes()).expect("rewards");
            let of = |place, program| scores.of(place, &member(program)).ok().map(Reward::get);
            assert_eq!(of(0, "p"), Some(1.0));
            assert_eq!(of(1, "q"), Some(0.5));
            assert_eq!(of(2, "r"), None, "it is missing");
        }
    }

    #[test]
    fn only_a_number_is_a_reward_and_only_failures_of_others_are_tried_again() {
        let exited = |code: i32| json!({"outcome": "exited", "code": code});
        let member = member("p");
        let given = |output: &str| {
            let scores = judged(&row(&exited(200)), output.as_bytes()).ok()?.ok()?;
            scores.of(0, &member).ok().map(Reward::get)
        };
        assert_eq!(given("0.5"), Some(0.5));
        assert_eq!(given("{\"reward\": -1, \"why\": \"x\"}"), Some(-1.0));
        for none in [
            "",
            "null",
            "\"0.5\"",
            "{\"score\": 1}",
            "1e999",
            "{\"reward\": null}",
        ] {
            assert_eq!(given(none), None, "{none}");
        }
        for (outcome, later) in [
            (exited(503), true),
            (exited(429), true),
            (exited(404), false),
            (exited(1), false),
            (json!({"outcome": "timed_out"}), false),
            (json!({"outcome": "unknown"}), true),
            (
                json!({"outcome": "infrastructure_failure", "cause": "x"}),
                true,
            ),
        ] {
            let verdict = judged(&row(&outcome), b"1");
            assert_eq!(verdict.is_ok(), later, "{outcome}");
            assert!(!matches!(verdict, Ok(Ok(_))), "{outcome}");
        }
    }
}
