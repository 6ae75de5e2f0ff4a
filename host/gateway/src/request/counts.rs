//! Token counts of streams, from the engine: an event may have several tokens, so that text does
//! not show their number, which continuations need for limits and usage. Engines that support it
//! are asked for counts in each event; the client only sees what it requested.

use serde_json::{Map, Value, json};
use treadle_model::EngineKind;
use treadle_wire::Endpoint;

/// The counts that the client sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts {
    /// The usage at the end.
    usage: bool,
    /// The usage with each event.
    usage_of_each: bool,
    /// llama.cpp's `timings` in each event.
    timings_of_each: bool,
}

impl Counts {
    /// Makes a request for a stream ask for counts; `None` if events already have them.
    pub(super) fn ask(
        request: &mut Map<String, Value>,
        endpoint: Endpoint,
        engine: EngineKind,
    ) -> Option<Self> {
        if !matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Completions) {
            return None;
        }
        let is_set = |fields: &Map<String, Value>, name: &str| {
            fields.get(name).and_then(Value::as_bool) == Some(true)
        };
        let asked = request.get("stream_options").and_then(Value::as_object);
        let usage = asked.is_some_and(|asked| is_set(asked, "include_usage"));
        let usage_of_each =
            usage && asked.is_some_and(|asked| is_set(asked, "continuous_usage_stats"));
        match engine {
            EngineKind::Vllm | EngineKind::Sglang => {
                let options = json!({"include_usage": true, "continuous_usage_stats": true});
                request.insert("stream_options".into(), options);
                Some(Self {
                    usage,
                    usage_of_each,
                    timings_of_each: true,
                })
            }
            EngineKind::Llamacpp => {
                let timings = request.insert("timings_per_token".into(), true.into());
                Some(Self {
                    timings_of_each: timings == Some(Value::Bool(true)),
                    ..Self::shown()
                })
            }
            EngineKind::Openai => None,
        }
    }

    /// All counts of the engine.
    pub(super) const fn shown() -> Self {
        Self {
            usage: true,
            usage_of_each: true,
            timings_of_each: true,
        }
    }

    /// Removes the counts that the client did not request; `None` if nothing else is left.
    pub(super) fn hide(self, mut event: Value) -> Option<Value> {
        let Some(fields) = event.as_object_mut() else {
            return Some(event);
        };
        let choices = fields.get("choices").and_then(Value::as_array);
        let is_last = choices.is_some_and(Vec::is_empty);
        if is_last && !self.usage && fields.contains_key("usage") {
            return None;
        }
        if !is_last && !self.usage_of_each && fields.contains_key("usage") {
            if self.usage {
                fields.insert("usage".into(), Value::Null);
            } else {
                fields.remove("usage");
            }
        }
        let ends = |choice: &Value| !choice["finish_reason"].is_null();
        let choices = fields.get("choices").and_then(Value::as_array);
        let is_under_way = choices.is_some_and(|all| !all.is_empty() && !all.iter().any(ends));
        if is_under_way && !self.timings_of_each {
            fields.remove("timings");
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mut request: Value, engine: EngineKind) -> (Option<Counts>, Value) {
        let fields = request.as_object_mut().expect("an object");
        let counts = Counts::ask(fields, Endpoint::ChatCompletions, engine);
        (counts, request)
    }

    #[test]
    fn each_kind_of_engine_is_asked_in_its_own_way() {
        let each = json!({"include_usage": true, "continuous_usage_stats": true});
        for engine in [EngineKind::Vllm, EngineKind::Sglang] {
            let (_, request) = ask(json!({"stream_options": {"include_usage": false}}), engine);
            assert_eq!(request, json!({"stream_options": each}));
        }
        let (_, request) = ask(json!({}), EngineKind::Llamacpp);
        assert_eq!(request, json!({"timings_per_token": true}));
        assert_eq!(ask(json!({}), EngineKind::Openai), (None, json!({})));
        let mut generate = Map::new();
        let counts = Counts::ask(&mut generate, Endpoint::SglangGenerate, EngineKind::Sglang);
        assert_eq!((counts, generate.len()), (None, 0), "its events have them");
    }

    #[test]
    fn the_client_sees_the_counts_that_it_asked_for() {
        let part = json!({"choices": [{"finish_reason": null}], "usage": {"n": 1}, "timings": {}});
        let last = json!({"choices": [], "usage": {"n": 2}, "timings": {}});
        let hidden = |engine, options: &Value, event: &Value| {
            let (counts, _) = ask(options.clone(), engine);
            counts.expect("it is asked").hide(event.clone())
        };
        let (vllm, llama_cpp) = (EngineKind::Vllm, EngineKind::Llamacpp);
        let none = json!({});
        let bare = json!({"choices": [{"finish_reason": null}], "timings": {}});
        assert_eq!(hidden(vllm, &none, &part), Some(bare));
        assert_eq!(hidden(vllm, &none, &last), None);
        let usage = json!({"stream_options": {"include_usage": true}});
        let empty = json!({"choices": [{"finish_reason": null}], "usage": null, "timings": {}});
        assert_eq!(hidden(vllm, &usage, &part), Some(empty));
        assert_eq!(hidden(vllm, &usage, &last), Some(last.clone()));
        let each = json!({"include_usage": true, "continuous_usage_stats": true});
        let each = json!({"stream_options": each});
        assert_eq!(hidden(vllm, &each, &part), Some(part.clone()));
        assert_eq!(Counts::shown().hide(part.clone()), Some(part.clone()));

        let bare = json!({"choices": [{"finish_reason": null}], "usage": {"n": 1}});
        assert_eq!(hidden(llama_cpp, &none, &part), Some(bare));
        let timings = json!({"timings_per_token": true});
        assert_eq!(hidden(llama_cpp, &timings, &part), Some(part));
        // The last event of its completions.
        let end = json!({"choices": [{"finish_reason": "stop"}], "usage": {}, "timings": {}});
        assert_eq!(hidden(llama_cpp, &none, &end), Some(end.clone()));
    }
}
