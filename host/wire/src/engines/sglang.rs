//! SGLang's `/server_info` and `/metrics`.

use super::EngineReading;
use super::facts::{EngineFacts, kept};
use super::prometheus::{count, of_rank, samples};
use serde::Deserialize;

#[derive(Deserialize)]
struct ServerInfo {
    max_total_num_tokens: Option<u64>,
    context_length: Option<u64>,
    tp_size: Option<u32>,
    pp_size: Option<u32>,
    enable_hierarchical_cache: Option<bool>,
    internal_states: Option<Vec<InternalState>>,
}

#[derive(Default, Deserialize)]
struct ServerFacts {
    version: Option<String>,
    disaggregation_mode: Option<String>,
    disaggregation_bootstrap_port: Option<u16>,
    enable_priority_scheduling: Option<bool>,
    dp_size: Option<u32>,
    served_model_name: Option<String>,
}

#[derive(Deserialize)]
struct InternalState {
    max_total_num_tokens: Option<u64>,
}

/// Reads `/server_info`; `None` if the body is something else. vLLM has a page of that name too.
pub fn reading_of_server_info(body: &[u8]) -> Option<EngineReading> {
    let info: ServerInfo = serde_json::from_slice(body).ok()?;
    if info.max_total_num_tokens.is_none() && info.internal_states.is_none() {
        return None;
    }
    let inner = info.internal_states.as_ref().and_then(|all| all.first());
    Some(
        EngineReading {
            capacity_tokens: info
                .max_total_num_tokens
                .or_else(|| inner?.max_total_num_tokens),
            context_tokens_max: info.context_length,
            gpus: info
                .tp_size
                .and_then(|tp| tp.checked_mul(info.pp_size.unwrap_or(1))),
            offloads: info.enable_hierarchical_cache.unwrap_or(false),
            ..EngineReading::default()
        }
        .plausible(),
    )
}

/// The lines of `/metrics` that are about one rank.
pub fn metrics_of_rank(text: &str, rank: u32) -> String {
    of_rank(text, "dp_rank", rank)
}

/// How many ranks of data parallelism there are, by `/server_info`: each has a cache of its own, of
/// the capacity that the page has.
pub fn ranks_of_server_info(body: &[u8]) -> usize {
    let info: ServerFacts = serde_json::from_slice(body).unwrap_or_default();
    info.dp_size.unwrap_or(1) as usize
}

/// The name that the server was started to serve its model by. `/v1/models` has the folder of the
/// weights instead once some were loaded from disk.
pub fn model_of_server_info(body: &[u8]) -> Option<String> {
    let info: ServerFacts = serde_json::from_slice(body).unwrap_or_default();
    info.served_model_name.filter(|name| !name.is_empty())
}

/// Reads the server's start options from `/server_info`.
pub fn facts_of_server_info(body: &[u8]) -> EngineFacts {
    let info: ServerFacts = serde_json::from_slice(body).unwrap_or_default();
    let role = info.disaggregation_mode.as_deref();
    EngineFacts {
        version: kept(info.version.as_deref()),
        // A server that is not disaggregated reports the text "null".
        role: kept(role.map(|role| if role == "null" { "both" } else { role })),
        bootstrap_port: info
            .disaggregation_bootstrap_port
            .filter(|_| role == Some("prefill")),
        priorities: info.enable_priority_scheduling,
    }
}

/// Reads the metrics of one server.
pub fn reading_of_metrics(text: &str) -> EngineReading {
    EngineReading {
        capacity_tokens: count(text, "sglang:max_total_num_tokens"),
        running: of_all(text, "sglang:num_running_reqs"),
        waiting: of_all(text, "sglang:num_queue_reqs"),
        used_tokens: count(text, "sglang:num_used_tokens"),
        cached_tokens_total: count(text, "sglang:cached_tokens_total"),
        prompt_tokens_total: count(text, "sglang:prompt_tokens_total"),
        ..EngineReading::default()
    }
    .plausible()
}

/// The current number of requests. With `--enable-priority-scheduling` there are rows for each
/// priority beside the total, which has an empty priority.
fn of_all(text: &str, name: &str) -> Option<u64> {
    let is_of_all = |priority: Option<String>| priority.is_none_or(|each| each.is_empty());
    let rows = samples(text, name).filter(|row| is_of_all(row.label("priority")));
    let sum = rows.map(|row| row.value).reduce(|a, b| a + b)?;
    (sum >= 0.0).then(|| sum.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_info_is_read() {
        let top = br#"{"max_total_num_tokens":65536,"context_length":4096,"tp_size":4,"pp_size":2,"internal_states":[{}],"x":[1]}"#;
        let reading = reading_of_server_info(top).unwrap();
        assert_eq!(
            (reading.capacity_tokens, reading.context_tokens_max),
            (Some(65_536), Some(4_096))
        );
        assert_eq!((reading.gpus, reading.offloads), (Some(8), false));
        let inner =
            br#"{"context_length":null,"enable_hierarchical_cache":true,"internal_states":[{"max_total_num_tokens":7,"y":null}]}"#;
        let reading = reading_of_server_info(inner).unwrap();
        assert_eq!(
            (reading.capacity_tokens, reading.context_tokens_max),
            (Some(7), None)
        );
        assert!(reading.offloads);
        let vllm = br#"{"vllm_config":"model='x'","vllm_env":{},"system_env":{}}"#;
        assert_eq!(reading_of_server_info(vllm), None);
        assert_eq!(reading_of_server_info(b"Not Found"), None);
    }

    #[test]
    fn facts_are_read() {
        let body = br#"{"version":"0.5.23","disaggregation_mode":"decode","enable_priority_scheduling":true,"x":1}"#;
        let facts = facts_of_server_info(body);
        assert_eq!(facts.version.as_deref(), Some("0.5.23"));
        assert_eq!(facts.role.as_deref(), Some("decode"));
        assert_eq!(facts.priorities, Some(true));
        assert_eq!(facts.bootstrap_port, None);
        let prefill = br#"{"disaggregation_mode":"prefill","disaggregation_bootstrap_port":9001}"#;
        assert_eq!(facts_of_server_info(prefill).bootstrap_port, Some(9_001));
        let whole = br#"{"disaggregation_mode":"null","enable_priority_scheduling":false}"#;
        let facts = facts_of_server_info(whole);
        assert_eq!(
            (facts.role.as_deref(), facts.priorities),
            (Some("both"), Some(false))
        );
        for body in ["Not Found", r#"{"version":{}}"#, "{}"] {
            assert_eq!(
                facts_of_server_info(body.as_bytes()),
                EngineFacts::default()
            );
        }
    }

    #[test]
    fn metrics_are_read() {
        let text = r#"
sglang:max_total_num_tokens{model_name="m"} 65536.0
sglang:num_used_tokens{model_name="m"} 12.0
sglang:num_running_reqs{model_name="m",priority=""} 2.0
sglang:num_running_reqs{model_name="m",priority="5"} 2.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:cached_tokens_total{cache_source="device"} 3.0
sglang:cached_tokens_total{cache_source="host"} 4.0
sglang:prompt_tokens_total{model_name="m"} 20.0
"#;
        let expected = EngineReading {
            capacity_tokens: Some(65_536),
            running: Some(2),
            waiting: Some(1),
            used_tokens: Some(12),
            cached_tokens_total: Some(7),
            prompt_tokens_total: Some(20),
            ..EngineReading::default()
        };
        assert_eq!(reading_of_metrics(text), expected);
    }

    /// With `--dp-size 2 --enable-dp-attention --tp-size 4`.
    #[test]
    fn ranks_are_told_apart() {
        let info = br#"{"max_total_num_tokens":100,"tp_size":4,"dp_size":2,"enable_dp_attention":true,"internal_states":[{"max_total_num_tokens":100},{"max_total_num_tokens":100}]}"#;
        assert_eq!(ranks_of_server_info(info), 2);
        let of_one = reading_of_server_info(info).expect("it is SGLang's");
        assert_eq!(of_one.capacity_tokens, Some(100), "of one rank");
        for one in [r#"{"dp_size":1}"#, "{}", "Not Found"] {
            assert_eq!(ranks_of_server_info(one.as_bytes()), 1, "{one}");
        }
        // Other numbers of ranks do not matter. The server counts prompts of all ranks together.
        let text = r#"
sglang:max_total_num_tokens{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 100.0
sglang:max_total_num_tokens{dp_rank="1",engine_type="unified",model_name="m",moe_ep_rank="2",pp_rank="0",tp_rank="2"} 100.0
sglang:num_running_reqs{dp_rank="0",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="1",moe_ep_rank="2",pp_rank="0",tp_rank="2"} 3.0
sglang:num_queue_reqs{dp_rank="1",moe_ep_rank="2",pp_rank="0",tp_rank="2"} 4.0
sglang:num_used_tokens{dp_rank="0",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 10.0
sglang:num_used_tokens{dp_rank="1",moe_ep_rank="2",pp_rank="0",tp_rank="2"} 20.0
sglang:prompt_tokens_total{model_name="m"} 50.0
"#;
        let first = EngineReading {
            capacity_tokens: Some(100),
            running: Some(2),
            used_tokens: Some(10),
            prompt_tokens_total: Some(50),
            ..EngineReading::default()
        };
        let second = EngineReading {
            running: Some(3),
            waiting: Some(4),
            used_tokens: Some(20),
            ..first
        };
        for (rank, expected) in [
            (0, first),
            (1, second),
            (
                2,
                EngineReading {
                    prompt_tokens_total: Some(50),
                    ..EngineReading::default()
                },
            ),
        ] {
            let reading = reading_of_metrics(&metrics_of_rank(text, rank));
            assert_eq!(reading, expected, "{rank}");
        }
    }
}
