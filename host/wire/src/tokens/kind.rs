//! Kinds of log-probabilities: what an engine does to its scores before it reports them. It is asked
//! for one token after the same prompt, at different settings.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use treadle_model::EngineKind;

/// The prompt.
pub const KIND_PROMPT: &str = "The kind of the log-probabilities that this engine reports is";
/// Log-probabilities of the same token that are closer than this are the same: other requests in the
/// engine's batch move them a little.
const SAME: f32 = 0.05;
/// Those that differ by more are others.
const OTHER: f32 = 0.1;

/// What log-probabilities are of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogprobKind {
    /// The model's scores as they are.
    Raw,
    /// Scores after the temperature.
    Temperature,
    /// Scores after the temperature, and after top-k.
    Processed,
    /// It could not be told.
    Unknown,
}

/// How the token is sampled.
#[derive(Clone, Copy)]
struct Settings {
    temperature: f32,
    top_k: Option<u32>,
}

/// Without settings, at a lower temperature, and from one token.
const SETTINGS: [Settings; 3] = [
    Settings {
        temperature: 1.0,
        top_k: None,
    },
    Settings {
        temperature: 0.5,
        top_k: None,
    },
    Settings {
        temperature: 1.0,
        top_k: Some(1),
    },
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    choices: Vec<Choice>,
    completion_probabilities: Vec<Sampled>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice {
    logprobs: Scores,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Scores {
    top_logprobs: Vec<BTreeMap<String, f32>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampled {
    top_logprobs: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    logprob: f32,
}

impl LogprobKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Temperature => "temperature",
            Self::Processed => "processed",
            Self::Unknown => "unknown",
        }
    }

    /// The path and the requests that tell an engine's kind; `None` if it is not known how to ask.
    pub fn questions(engine: EngineKind) -> Option<(&'static str, [Value; 3])> {
        match engine {
            EngineKind::Vllm | EngineKind::Sglang => {
                let ask = |settings: Settings| {
                    let mut request = json!({"prompt": KIND_PROMPT, "max_tokens": 1,
                        "temperature": settings.temperature, "logprobs": 1});
                    if let Some(top_k) = settings.top_k {
                        request["top_k"] = top_k.into();
                    }
                    request
                };
                Some(("/v1/completions", SETTINGS.map(ask)))
            }
            EngineKind::Llamacpp => {
                // It lists nothing if it samples a part of a character. The bias does not show in
                // what it lists; a larger one it forgets at some temperatures.
                let ask = |settings: Settings| {
                    json!({"prompt": KIND_PROMPT, "n_predict": 1, "n_probs": 1,
                        "temperature": settings.temperature,
                        "top_k": settings.top_k.unwrap_or(0), "logit_bias": [["a", 100.0]]})
                };
                Some(("/completion", SETTINGS.map(ask)))
            }
            EngineKind::Openai => None,
        }
    }

    /// The kind by the answers to these requests.
    pub fn of_answers(answers: &[impl AsRef<[u8]>]) -> Self {
        let scores: Vec<f32> = answers
            .iter()
            .filter_map(|a| likeliest(a.as_ref()))
            .collect();
        let [plain, colder, only] = scores[..] else {
            return Self::Unknown;
        };
        let is_same = |score: f32| (score - plain).abs() < SAME;
        let is_certain = |score: f32| score > -SAME;
        if plain > -OTHER || !scores.iter().all(|p| p.is_finite() && *p <= 1e-6) {
            // A token that is certain is so at all settings.
            Self::Unknown
        } else if is_same(colder) && is_same(only) {
            Self::Raw
        } else if colder - plain > OTHER && is_same(only) {
            Self::Temperature
        } else if colder - plain > OTHER && is_certain(only) {
            Self::Processed
        } else {
            Self::Unknown
        }
    }
}

/// The log-probability of the most likely token, which is the same one at all settings.
fn likeliest(answer: &[u8]) -> Option<f32> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let by_text = answer
        .choices
        .into_iter()
        .flat_map(|choice| choice.logprobs.top_logprobs);
    let by_text = by_text.take(1).flat_map(BTreeMap::into_values);
    let listed = answer.completion_probabilities.into_iter().take(1);
    let listed = listed.flat_map(|sampled| sampled.top_logprobs);
    let all = by_text.chain(listed.map(|listed| listed.logprob));
    all.max_by(f32::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: [f32; 3]) -> LogprobKind {
        let answers = scores.map(|p| {
            let top = json!([{" a": p, " the": p - 1.0}]);
            json!({"choices": [{"logprobs": {"top_logprobs": top}}]}).to_string()
        });
        LogprobKind::of_answers(&answers)
    }

    #[test]
    fn settings_that_change_scores_tell_their_kind() {
        assert_eq!(of([-1.2, -1.21, -1.2]), LogprobKind::Raw);
        assert_eq!(of([-1.2, -0.6, -1.2]), LogprobKind::Temperature);
        assert_eq!(of([-1.2, -0.6, 0.0]), LogprobKind::Processed);
        for odd in [
            [0.0, 0.0, 0.0],
            [-0.01, 0.0, 0.0],
            [-1.2, -1.27, -1.2],
            [-1.2, -1.2, 0.0],
            [-1.2, -1.2, f32::NEG_INFINITY],
            [1.2, 1.2, 1.2],
        ] {
            assert_eq!(of(odd), LogprobKind::Unknown, "{odd:?}");
        }
    }

    #[test]
    fn answers_of_each_engine_are_read() {
        let listed = br#"{"completion_probabilities":[{"id":1,"logprob":-9.0,"top_logprobs":[{"id":2,"logprob":-4.5}]}]}"#;
        assert_eq!(likeliest(listed), Some(-4.5));
        let kind = LogprobKind::of_answers(&[listed, listed, listed]);
        assert_eq!(kind, LogprobKind::Raw);
        assert_eq!(likeliest(br#"{"completion_probabilities":[]}"#), None);
        assert_eq!(likeliest(b"sorry"), None);
        assert_eq!(LogprobKind::of_answers(&[listed]), LogprobKind::Unknown);
        assert!(LogprobKind::questions(EngineKind::Openai).is_none());
    }
}
