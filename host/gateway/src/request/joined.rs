//! Joins two pieces of a response of an engine's own API.

use super::rest::{add, at_most, take_off};
use serde_json::{Map, Value};
use treadle_wire::Endpoint;

/// Lists in SGLang's `meta_info` with an entry for each generated token.
const LISTS: [&str; 5] = [
    "output_token_logprobs",
    "output_top_logprobs",
    "output_token_ids_logprobs",
    "output_token_sampling_mask",
    "output_token_sampling_logprobs",
];
/// Numbers that add up.
const SUMS: [&str; 5] = [
    "output_token_logprobs_length",
    "output_token_sampling_mask_length",
    "e2e_latency",
    "reasoning_tokens",
    "num_retractions",
];
/// vLLM's fields about the prompt and the request.
const OF_FIRST: [&str; 7] = [
    "request_id",
    "created",
    "model",
    "prompt_token_ids",
    "mm_placeholders",
    "prompt_logprobs",
    "prompt_token_id_logprobs",
];

/// Joins `before` and `after` to one response.
pub(super) fn join(endpoint: Endpoint, before: &Value, mut after: Value) -> Value {
    let Some(fields) = after.as_object_mut() else {
        return after;
    };
    if endpoint == Endpoint::SglangGenerate {
        join_sglang(before, fields);
    } else {
        join_vllm(before, fields);
    }
    after
}

fn join_sglang(before: &Value, after: &mut Map<String, Value>) {
    prepend(&before["text"], after.get_mut("text"));
    prepend(&before["output_ids"], after.get_mut("output_ids"));
    if let Some(ids) = before.get("prompt_token_ids") {
        after.insert("prompt_token_ids".into(), ids.clone());
    }
    if let (Some(of_before), Some(Value::Object(of_after))) =
        (before["meta_info"].as_object(), after.get_mut("meta_info"))
    {
        let seen = before["output_ids"].as_array().map_or(0, Vec::len);
        join_meta(of_before, seen as u64, of_after);
    }
}

/// Joins SGLang's `meta_info`; `seen` tokens came before.
pub(super) fn join_meta(before: &Map<String, Value>, seen: u64, after: &mut Map<String, Value>) {
    // Fields about the prompt and the request.
    let of_first = before.iter();
    let of_first = of_first.filter(|(name, _)| name.starts_with("input_") || *name == "id");
    for (name, value) in of_first {
        after.insert(name.clone(), value.clone());
    }
    for list in LISTS {
        if let Some(first) = before.get(list) {
            prepend(first, after.get_mut(list));
        }
    }
    for name in SUMS {
        sum(before.get(name), after.get_mut(name));
    }
    join_versions(before.get("weight_versions"), seen, after);
    add(after, "completion_tokens", seen);
    take_off(after, &["prompt_tokens"], seen);
    if let Some(cached) = before.get("cached_tokens") {
        after.insert("cached_tokens".into(), cached.clone());
    } else {
        let prompt = after.get("prompt_tokens").and_then(Value::as_u64);
        at_most(after, "cached_tokens", prompt);
    }
    if let Some(Value::Object(end)) = after.get_mut("finish_reason") {
        add(end, "length", seen);
    }
}

fn join_vllm(before: &Value, after: &mut Map<String, Value>) {
    for name in OF_FIRST {
        if let Some(value) = before.get(name) {
            after.insert(name.into(), value.clone());
        }
    }
    // Metrics can't be added up.
    if let Some(metrics) = after.get_mut("metrics") {
        *metrics = Value::Null;
    }
    let (first, choice) = (&before["choices"][0], after.get_mut("choices"));
    let seen = first["token_ids"].as_array().map_or(0, Vec::len) as u64;
    if let Some(Value::Object(choice)) = choice.and_then(|choices| choices.get_mut(0)) {
        for name in ["text", "token_ids", "sampling_mask"] {
            prepend(&first[name], choice.get_mut(name));
        }
        let logprobs = choice.get_mut("logprobs");
        let content = logprobs.and_then(|logprobs| logprobs.get_mut("content"));
        prepend(&first["logprobs"]["content"], content);
        join_versions(first.get("weight_versions"), seen, choice);
    }
    if let Some(Value::Object(usage)) = after.get_mut("usage") {
        add(usage, "completion_tokens", seen);
        take_off(usage, &["prompt_tokens"], seen);
        if let Some(details) = usage.get_mut("prompt_tokens_details") {
            *details = before["usage"]["prompt_tokens_details"].clone();
        }
    }
}

/// Prepends a text or a list to a later one.
fn prepend(before: &Value, after: Option<&mut Value>) {
    match (before, after) {
        (Value::String(before), Some(Value::String(after))) => after.insert_str(0, before),
        (Value::Array(before), Some(Value::Array(after))) => {
            after.splice(0..0, before.iter().cloned());
        }
        (_, Some(after)) if after.is_null() => *after = before.clone(),
        _ => {}
    }
}

fn sum(before: Option<&Value>, after: Option<&mut Value>) {
    let (Some(before), Some(after)) = (before, after) else {
        return;
    };
    match (before.as_u64(), after.as_u64()) {
        (Some(before), Some(more)) => *after = before.saturating_add(more).into(),
        _ => {
            if let (Some(before), Some(more)) = (before.as_f64(), after.as_f64()) {
                *after = (before + more).into();
            }
        }
    }
}

/// The weight versions of each range of tokens; removed if not known for all.
fn join_versions(before: Option<&Value>, seen: u64, after: &mut Map<String, Value>) {
    let Some(later) = after.get_mut("weight_versions") else {
        return;
    };
    let (Some(Value::Array(before)), Value::Array(spans)) = (before, &mut *later) else {
        *later = Value::Null;
        return;
    };
    for span in spans.iter_mut().filter_map(Value::as_object_mut) {
        add(span, "start", seen);
        add(span, "end", seen);
    }
    let mut all = before.clone();
    for span in spans.drain(..) {
        match all.last_mut() {
            Some(last) if last["version"] == span["version"] => last["end"] = span["end"].clone(),
            _ => all.push(span),
        }
    }
    *later = all.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_of_sglang_read_as_one_answer() {
        let piece = |ids: &[u64], prompt: u64, end: Value, version: &str| {
            let logprobs: Vec<Value> = ids.iter().map(|id| json!([-0.5, id, null])).collect();
            json!({
                "text": "x".repeat(ids.len()), "output_ids": ids,
                "meta_info": {
                    "id": version, "finish_reason": end, "prompt_tokens": prompt,
                    "completion_tokens": ids.len(), "cached_tokens": prompt - 1,
                    "input_token_logprobs": [[null, prompt, null]],
                    "output_token_logprobs": logprobs, "output_token_logprobs_length": ids.len(),
                    "weight_version": version, "e2e_latency": 0.25,
                    "weight_versions": [{"version": version, "start": 0, "end": ids.len()}],
                },
            })
        };
        let first = piece(&[7, 8], 3, json!({"type": "abort"}), "a");
        let last = piece(&[9], 5, json!({"type": "length", "length": 1}), "b");
        let mut whole = piece(&[7, 8, 9], 3, json!({"type": "length", "length": 3}), "a");
        whole["meta_info"]["weight_version"] = json!("b");
        whole["meta_info"]["e2e_latency"] = json!(0.5);
        whole["meta_info"]["weight_versions"] = json!([
            {"version": "a", "start": 0, "end": 2}, {"version": "b", "start": 2, "end": 3},
        ]);
        assert_eq!(join(Endpoint::SglangGenerate, &first, last), whole);
    }

    #[test]
    fn pieces_of_vllm_read_as_one_answer() {
        let piece = |ids: &[u64], prompt: usize, id: &str, end: &str| {
            let logprobs: Vec<Value> = ids.iter().map(|id| json!({"token_id": id})).collect();
            json!({
                "request_id": id, "model": "m", "created": prompt, "metrics": null,
                "usage": {
                    "prompt_tokens": prompt, "completion_tokens": ids.len(),
                    "total_tokens": prompt + ids.len(),
                    "prompt_tokens_details": {"cached_tokens": prompt - 1},
                },
                "choices": [{
                    "index": 0, "token_ids": ids, "finish_reason": end,
                    "logprobs": {"content": logprobs}, "sampling_mask": null,
                    "weight_versions": [{"version": "a", "start": 0, "end": ids.len()}],
                }],
            })
        };
        let (first, last) = (piece(&[7, 8], 3, "r", "abort"), piece(&[9], 5, "s", "stop"));
        let whole = piece(&[7, 8, 9], 3, "r", "stop");
        assert_eq!(join(Endpoint::VllmGenerate, &first, last.clone()), whole);
        let mut unknown = first;
        unknown["choices"][0]["weight_versions"] = Value::Null;
        let whole = join(Endpoint::VllmGenerate, &unknown, last);
        assert_eq!(whole["choices"][0]["weight_versions"], Value::Null);
    }
}
