//! Pieces: their requests, and when a piece is kept.

use super::*;

fn read(body: &Bytes) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

fn rest(endpoint: Endpoint, request: &Value, so_far: &Value) -> Result<Value, Obstacle> {
    let request = request.to_string();
    let rest = request_for_rest(endpoint, request.as_bytes(), Some(so_far), "x");
    rest.map(|body| read(&body))
}

#[test]
fn the_rest_is_requested_by_token_ids_and_with_its_limits_lowered() {
    let sampling = json!({"max_new_tokens": 5, "min_new_tokens": 3, "stop": ["end"]});
    let request = json!({
        "input_ids": [1, 2], "sampling_params": sampling, "return_logprob": true,
        "logprob_start_len": 0, "top_logprobs_num": 2,
    });
    let piece = json!({
        "text": "ab", "output_ids": [7, 8],
        "meta_info": {"completion_tokens": 2, "finish_reason": {"type": "abort"}},
    });
    let lowered = json!({"max_new_tokens": 3, "min_new_tokens": 1, "stop": ["end"]});
    let expected = json!({
        "input_ids": [1, 2, 7, 8], "sampling_params": lowered, "return_logprob": true,
        "top_logprobs_num": 2, "rid": "x",
    });
    let sglang = Endpoint::SglangGenerate;
    assert_eq!(rest(sglang, &request, &piece), Ok(expected));
    let mut text = request.clone();
    text["text"] = json!("xy");
    text.as_object_mut().expect("an object").remove("input_ids");
    assert_eq!(rest(sglang, &text, &piece).expect("it can")["text"], "xyab");
    let request = json!({"token_ids": [1], "sampling_params": {"max_tokens": 5, "logprobs": 1}});
    let piece = json!({"choices": [{"token_ids": [7, 8], "finish_reason": "abort"}]});
    let expected = json!({
        "token_ids": [1, 7, 8], "sampling_params": {"max_tokens": 3, "logprobs": 1},
        "request_id": "x",
    });
    assert_eq!(rest(Endpoint::VllmGenerate, &request, &piece), Ok(expected));
}

#[test]
fn what_pieces_do_not_have_is_not_interrupted() {
    let obstacle = |endpoint, field: &str, value: Value| {
        let mut request = match endpoint {
            Endpoint::SglangGenerate => {
                json!({"input_ids": [1], "sampling_params": {"max_new_tokens": 5}})
            }
            _ => json!({"token_ids": [1], "sampling_params": {"max_tokens": 5}}),
        };
        match field.strip_prefix("sampling_params.") {
            Some(field) => request["sampling_params"][field] = value,
            None => request[field] = value,
        }
        let body = request.to_string();
        request_for_rest(endpoint, body.as_bytes(), None, "x").is_err()
    };
    let (sglang, vllm) = (Endpoint::SglangGenerate, Endpoint::VllmGenerate);
    for (endpoint, field, value) in [
        (sglang, "rid", json!("own")),
        (sglang, "input_ids", json!([[1], [2]])),
        (sglang, "sampling_params", json!([{}])),
        (sglang, "sampling_params.regex", json!("a+")),
        (sglang, "sampling_params.n", json!(2)),
        (sglang, "sampling_params.frequency_penalty", json!(0.5)),
        (sglang, "sampling_params.max_new_tokens", Value::Null),
        (sglang, "return_hidden_states", json!(true)),
        (vllm, "request_id", json!("own")),
        (vllm, "sampling_params.stop", json!(["end"])),
        (vllm, "sampling_params.prompt_logprobs", json!(0)),
        (vllm, "kv_transfer_params", json!({"a": 1})),
    ] {
        assert!(obstacle(endpoint, field, value), "{field}");
    }
    assert!(!obstacle(sglang, "rid", Value::Null));
    assert!(!obstacle(
        vllm,
        "sampling_params.frequency_penalty",
        json!(0.0)
    ));
}

#[test]
fn a_piece_that_ends_within_a_character_or_a_stop_sequence_is_not_kept() {
    let request = json!({"sampling_params": {"stop": "end"}}).to_string();
    let is_kept = |text: &str, ids: &[u64]| {
        let piece = json!({
            "text": text, "output_ids": ids, "meta_info": {"completion_tokens": ids.len()},
        });
        is_clean(Endpoint::SglangGenerate, request.as_bytes(), &piece)
    };
    assert!(is_kept("a b", &[1]));
    assert!(!is_kept("a e", &[1]));
    assert!(!is_kept("a\u{fffd}", &[1]));
    assert!(!is_kept("", &[]), "there is nothing in it");
}

#[test]
fn an_answer_aborted_with_its_last_token_has_ended() {
    let request = json!({"input_ids": [1], "sampling_params": {"max_new_tokens": 2}});
    let piece = json!({
        "text": "ab", "output_ids": [7, 8],
        "meta_info": {"completion_tokens": 2, "finish_reason": {"type": "abort"}},
    });
    let sglang = Endpoint::SglangGenerate;
    assert_eq!(rest(sglang, &request, &piece), Err(ABOUT_TO_END));
    let ended: Value = serde_json::from_str(&ended_by_length(sglang, piece)).expect("JSON");
    let end = json!({"type": "length", "length": 2});
    assert_eq!(ended["meta_info"]["finish_reason"], end);
}

#[test]
fn no_name_begins_with_another() {
    let names =
        [(1, 1), (1, 10), (0x11, 0), (2, 1)].map(|(step, piece)| name_of(StepId(step), piece));
    for (place, name) in names.iter().enumerate() {
        let others = names
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != place);
        assert!(
            others
                .into_iter()
                .all(|(_, other)| !other.starts_with(name)),
            "{name}"
        );
    }
}
