//! The fields of requests that may be sent to engines.
//!
//! Engines accept control fields from any client: sources of KV, slots, code to load. These are
//! reserved for treadle. So a field passes if it is listed here as one that only concerns its own
//! request; any other is foreign, and refused unless the operator allows it.

use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, RequestError};
use std::ops::Range;

/// Most foreign fields of a request; one with more is refused.
const FOREIGN_MAX: usize = 32;
/// Characters of a field's name that an error shows, at most.
const SHOWN_CHARS_MAX: usize = 100;

/// Fields that pass without being read: those of OpenAI's and Anthropic's APIs, and vLLM's,
/// SGLang's and llama.cpp's extensions for sampling, multimodal prompts and contents of answers. In
/// byte order.
const PASSING: &[&str] = &[
    "add_generation_prompt",
    "add_special_tokens",
    "allowed_token_ids",
    "audio",
    "audio_data",
    "background",
    "bad_words",
    "best_of",
    "betas",
    "cache_control",
    "cache_prompt",
    "chat_template_kwargs",
    "client_metadata",
    "container",
    "context_management",
    "continue_final_message",
    "conversation_id",
    "detokenize",
    "documents",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "ebnf",
    "echo",
    "enable_response_messages",
    "enable_thinking",
    "frequency_penalty",
    "function_call",
    "functions",
    "grammar",
    "grammar_lazy",
    "grammar_triggers",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_whitespace_pattern",
    "ignore_eos",
    "image_data",
    "include",
    "include_reasoning",
    "include_stop_str_in_output",
    "json_schema",
    "length_penalty",
    "logit_bias",
    "logprob_start_len",
    "logprob_token_ids",
    "logprobs",
    "max_dynamic_patch",
    "max_thinking_tokens",
    "max_tool_calls",
    "mcp_servers",
    "media_io_kwargs",
    "metadata",
    "min_dynamic_patch",
    "min_keep",
    "min_p",
    "min_tokens",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "mm_processor_kwargs",
    "modalities",
    "n",
    "n_discard",
    "n_indent",
    "n_keep",
    "n_predict",
    "n_probs",
    "no_stop_trim",
    "output_config",
    "output_format",
    "parallel_tool_calls",
    "parse_tool_calls",
    "post_sampling_probs",
    "prediction",
    "presence_penalty",
    "preserved_tokens",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "prompt_logprobs",
    "reasoning",
    "reasoning_effort",
    "reasoning_format",
    "regex",
    "repeat_last_n",
    "repeat_penalty",
    "repetition_detection",
    "repetition_penalty",
    "response_fields",
    "response_format",
    "return_cached_tokens_details",
    "return_entropy",
    "return_hidden_states",
    "return_logprob",
    "return_progress",
    "return_prompt_text",
    "return_prompt_token_ids",
    "return_routed_experts",
    "return_sampling_mask",
    "return_text_in_logprobs",
    "return_token_ids",
    "return_tokens",
    "return_tokens_as_token_ids",
    "routed_experts_prompt_start",
    "routed_experts_start_len",
    "safety_identifier",
    "samplers",
    "seed",
    "separate_reasoning",
    "service_tier",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "speed",
    "stop",
    "stop_regex",
    "stop_sequences",
    "stop_token_ids",
    "store",
    "stream_interval",
    "stream_reasoning",
    "structured_outputs",
    "suffix",
    "t_max_predict_ms",
    "temperature",
    "thinking",
    "thinking_forced_open",
    "thinking_token_budget",
    "timings_per_token",
    "token_ids_logprob",
    "tool_choice",
    "top_k",
    "top_logprobs",
    "top_logprobs_num",
    "top_n_sigma",
    "top_p",
    "truncate_prompt_tokens",
    "truncation",
    "truncation_side",
    "typical_p",
    "use_audio_in_video",
    "use_beam_search",
    "user",
    "verbosity",
    "video_config",
    "video_data",
    "watermarking",
    "web_search_options",
    "xtc_probability",
    "xtc_threshold",
];

/// Fields that pass within `sampling_params` of vLLM's and SGLang's native APIs, besides the names
/// above.
const PASSING_IN_SAMPLING: &[&str] = &[
    "flat_logprobs",
    "max_new_tokens",
    "max_tokens",
    "min_new_tokens",
    "output_kind",
    "beam_width",
    "sampling_seed",
    "skip_reading_prefix_cache",
    "structural_tag",
];

/// Fields that control an engine beyond the request: other requests' KV, slots, weights, code,
/// files, ranks and logs. Even if the operator allows one, it only passes with a single tenant. In
/// byte order.
const STEERING: &[&str] = &[
    // vLLM: sources and targets of KV, other requests' images, classes to load.
    "ec_transfer_params",
    "features",
    "kv_transfer_params",
    "logits_processors",
    "mm_hashes",
    "prompt_embeds",
    "sampling_params.extra_args",
    "vllm_xargs.ec_transfer_params",
    "vllm_xargs.kv_transfer_params",
    // Tensors instead of images, which it unpickles.
    "audio_embeds",
    "image_embeds",
    "video_embeds",
    // SGLang: sources of KV, sessions, adapters by path, code, ranks, logging.
    "bootstrap_host",
    "bootstrap_pair_key",
    "bootstrap_port",
    "bootstrap_room",
    "custom_labels",
    "custom_logit_processor",
    "data_parallel_rank",
    "decode_tp_size",
    "disagg_prefill_dp_rank",
    "encoder_urls",
    "external_trace_header",
    "http_worker_ipc",
    "kv_hints",
    "kv_router_hint",
    "log_metrics",
    "lora_id",
    "lora_path",
    "mm_content_hashes",
    "no_logs",
    "positional_embed_overrides",
    "routed_dp_rank",
    "routing_key",
    "session_params",
    // llama.cpp: slots and adapters.
    "id_slot",
    "lora",
    // Templates are programs that engines run; these are arguments of the function that does.
    "chat_template",
    "chat_template_kwargs.conversation",
    "chat_template_kwargs.max_length",
    "chat_template_kwargs.padding",
    "chat_template_kwargs.return_assistant_tokens_mask",
    "chat_template_kwargs.return_dict",
    "chat_template_kwargs.return_tensors",
    "chat_template_kwargs.tokenize",
    "chat_template_kwargs.tokenizer_kwargs",
    "chat_template_kwargs.truncation",
];

/// What a field that treadle sets itself is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnedKind {
    /// `priority`.
    Priority,
    /// `cache_salt`, or SGLang's `extra_key`.
    Salt,
}

/// A field of a body that treadle sets itself if tenants share engines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedField {
    /// What it is for.
    pub kind: OwnedKind,
    /// Its name and its value in the body, in bytes.
    pub span: Range<usize>,
}

/// Names of foreign fields, with the path to them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ForeignFields {
    names: Vec<Box<str>>,
    are_more: bool,
}

/// Whether a field that treadle does not read may be sent to engines.
pub(super) fn passes(name: &str) -> bool {
    PASSING.binary_search(&name).is_ok()
}

/// Whether a field within `sampling_params` may be sent to engines.
pub(super) fn passes_in_sampling(name: &str) -> bool {
    passes(name) || PASSING_IN_SAMPLING.contains(&name)
}

impl ForeignFields {
    pub(super) fn add(&mut self, within: &str, name: &str) {
        if self.names.len() == FOREIGN_MAX {
            self.are_more = true;
            return;
        }
        let dot = if within.is_empty() { "" } else { "." };
        self.names.push([within, dot, name].concat().into());
    }

    /// Appends others.
    pub(super) fn append(&mut self, mut others: Self) {
        let room = FOREIGN_MAX - self.names.len();
        self.are_more |= others.are_more || others.names.len() > room;
        others.names.truncate(room);
        self.names.append(&mut others.names);
    }

    /// Checks that the operator allows all of them. `tenant_is_alone`: no other tenant shares the
    /// engines.
    ///
    /// # Errors
    ///
    /// `invalid_field` with the first that doesn't pass.
    pub fn check(&self, passed: &[String], tenant_is_alone: bool) -> Result<(), RequestError> {
        for name in &self.names {
            let is_passed = passed.iter().any(|field| **field == **name);
            // Within `extra_body` they are the same fields.
            let own = name.strip_prefix("extra_body.").unwrap_or(name);
            let last = name.rsplit('.').next().unwrap_or_default();
            let steers = STEERING.contains(&own) || STEERING.contains(&last);
            if is_passed && (tenant_is_alone || !steers) {
                continue;
            }
            let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
            let message = if steers {
                format!(
                    "`{shown}` controls the engine, which is reserved for treadle; leave it out \
                     (with a single tenant, an operator can allow it in engines.pass_fields)"
                )
            } else {
                format!(
                    "`{shown}` may not be sent to engines; leave it out, or have it added to \
                     engines.pass_fields"
                )
            };
            return Err(refused(shown, message));
        }
        if self.are_more {
            let message = format!("the body has more than {FOREIGN_MAX} unknown fields");
            return Err(refused(String::new(), message));
        }
        Ok(())
    }
}

fn refused(param: String, message: String) -> RequestError {
    RequestError {
        code: ErrorCode::InvalidField,
        param: Some(param).filter(|param| !param.is_empty()),
        message,
    }
}

/// The field that separates equal prompts of different tenants in an engine's cache; `None` if its
/// API has none.
pub fn salt_field(engine: treadle_model::EngineKind, endpoint: Endpoint) -> Option<&'static str> {
    use treadle_model::EngineKind;
    match engine {
        // Their forms of Anthropic's API have no such field.
        _ if endpoint == Endpoint::Messages => None,
        EngineKind::Vllm => Some("cache_salt"),
        EngineKind::Sglang => Some("extra_key"),
        EngineKind::Llamacpp | EngineKind::Openai => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestHead;

    fn check(fields: &str, passed: &[&str], alone: bool) -> Result<(), RequestError> {
        let body = format!(r#"{{"input_ids":[1],{fields}}}"#);
        let head = RequestHead::parse(Endpoint::SglangGenerate, body.as_bytes())?;
        let passed: Vec<String> = passed.iter().map(|&name| name.to_owned()).collect();
        head.foreign.check(&passed, alone)
    }

    #[test]
    fn the_lists_are_in_order_and_share_nothing() {
        assert!(PASSING.is_sorted());
        for name in STEERING {
            assert!(!passes(name) && !PASSING_IN_SAMPLING.contains(name));
        }
    }

    #[test]
    fn fields_that_steer_an_engine_are_refused_by_name() {
        for name in STEERING.iter().filter(|name| !name.contains('.')) {
            let fields = format!(r#""{name}":1"#);
            let error = check(&fields, &[], true).expect_err(name);
            assert_eq!(error.code, ErrorCode::InvalidField);
            assert_eq!(error.param.as_deref(), Some(*name));
            assert!(error.message.contains("engines.pass_fields"));
        }
        // Escapes or a null value do not make it another field.
        assert!(check(r#""kv_transfer\u005fparams":{}"#, &[], true).is_err());
        assert!(check(r#""kv_transfer_params":null"#, &[], true).is_err());
    }

    #[test]
    fn what_is_within_a_field_is_looked_at() {
        for (fields, param) in [
            (
                r#""sampling_params":{"extra_args":{"kv_transfer_params":{}}}"#,
                "sampling_params.extra_args",
            ),
            (
                r#""sampling_params":[{"top_k":1},{"x":1}]"#,
                "sampling_params.x",
            ),
            (
                r#""vllm_xargs":{"kv_transfer_params":"x"}"#,
                "vllm_xargs.kv_transfer_params",
            ),
            (
                r#""extra_body":{"session_id":"a","id_slot":1}"#,
                "extra_body.id_slot",
            ),
            (
                r#""chat_template_kwargs":{"enable_thinking":false,"chat_template":"{{x}}"}"#,
                "chat_template_kwargs.chat_template",
            ),
            (
                r#""extra_body":{"chat_template_kwargs":{"chat\u005ftemplate":"{{x}}"}}"#,
                "extra_body.chat_template_kwargs.chat_template",
            ),
            (
                r#""chat_template_kwargs":{"tokenize":true}"#,
                "chat_template_kwargs.tokenize",
            ),
            (
                r#""sampling_params":{"structured_outputs":{"_backend":"x"}}"#,
                "sampling_params.structured_outputs._backend",
            ),
            (
                r#""mm_processor_kwargs":{"trust_remote_code":true}"#,
                "mm_processor_kwargs.trust_remote_code",
            ),
            (
                r#""media_io_kwargs":{"video":{"backend":"x"}}"#,
                "media_io_kwargs.video.backend",
            ),
            (r#""stream_options":{"x":1}"#, "stream_options.x"),
            (
                r#""messages":[{"content":[{"type":"image_embeds","image_embeds":"x"}]}]"#,
                "image_embeds",
            ),
        ] {
            let error = check(fields, &[], true).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param));
            check(fields, &[param], true).expect(param);
        }
    }

    #[test]
    fn sampling_passes() {
        let fields = r#""sampling_params":{"temperature":1,"top_p":0.9,"top_k":-1,"stop":["a"],
            "max_new_tokens":5,"skip_special_tokens":false,"no_stop_trim":true,"n":1,
            "spaces_between_special_tokens":false,"stop_token_ids":[2],"ignore_eos":true},
            "chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"high"},
            "mm_processor_kwargs":{"max_pixels":1},"media_io_kwargs":{"video":{"fps":2}},
            "stream_options":{"include_usage":true},"metadata":{"chat_template":"mine"},
            "return_logprob":true,"return_routed_experts":true,"stream":false,"rid":"r",
            "priority":1,"cache_salt":"v1","extra_key":null,"session_id":"s""#;
        check(fields, &[], false).unwrap();
    }

    #[test]
    fn what_the_operator_names_passes_and_what_steers_for_one_tenant_alone() {
        let fields = r#""new_sampler":1,"id_slot":3"#;
        assert!(check(fields, &["new_sampler"], true).is_err());
        check(fields, &["id_slot", "new_sampler"], true).unwrap();
        let error = check(fields, &["id_slot", "new_sampler"], false).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("id_slot"));
    }

    #[test]
    fn many_foreign_fields_are_refused() {
        let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let fields: Vec<String> = names.iter().map(|name| format!(r#""{name}":1"#)).collect();
        let passed: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(check(&fields.join(","), &passed, true).is_err());
        check(&fields[..32].join(","), &passed, true).unwrap();
    }
}
