//! vLLM's `/metrics` and `/version`.

use super::EngineReading;
use super::facts::{EngineFacts, kept};
use super::prometheus::{Sample, count, mean, of_rank, samples};
use serde_json::Value;
use std::collections::BTreeSet;

/// Reads the metrics of one server; several engines behind it are added up.
///
/// Cache hits are counted in tokens there, against all prompt tokens that were looked up.
pub fn reading_of_metrics(text: &str) -> EngineReading {
    let capacity_tokens = samples(text, "vllm:cache_config_info")
        .filter_map(|sample| capacity_of(&sample))
        .reduce(u64::saturating_add);
    let share = mean(text, "vllm:kv_cache_usage_perc").filter(|share| *share >= 0.0);
    let used = |(capacity, share): (u64, f64)| (capacity as f64 * share).round() as u64;
    EngineReading {
        capacity_tokens,
        offloads: offloads(text),
        running: count(text, "vllm:num_requests_running"),
        waiting: count(text, "vllm:num_requests_waiting"),
        used_tokens: capacity_tokens.zip(share).map(used),
        cached_tokens_total: count(text, "vllm:prefix_cache_hits_total"),
        prompt_tokens_total: count(text, "vllm:prefix_cache_queries_total"),
        ..EngineReading::default()
    }
    .plausible()
}

/// The lines of `/metrics` that are about one rank, by its number at this address.
pub fn metrics_of_rank(text: &str, rank: u32) -> String {
    let row = rows_of_ranks(text).into_iter().nth(rank as usize);
    of_rank(text, "engine", row.unwrap_or(rank))
}

/// How many ranks of data parallelism are behind an address, by `/metrics`: each has its own cache.
/// They are numbered from 0 at each address, as requests name them. With hybrid load balancing
/// other addresses have further ranks of the model, and rows have numbers among all of them.
pub fn ranks_of_metrics(text: &str) -> usize {
    rows_of_ranks(text).len()
}

/// The numbers of the ranks in rows of `/metrics`. A rank with an address of its own has one row,
/// whatever its number.
fn rows_of_ranks(text: &str) -> BTreeSet<u32> {
    let rows = samples(text, "vllm:cache_config_info");
    rows.filter_map(|row| row.label("engine")?.parse().ok())
        .collect()
}

/// Reads `/version`. It does not report whether it was started with `--scheduling-policy priority`.
pub fn facts_of_version(body: &[u8]) -> EngineFacts {
    let page: Value = serde_json::from_slice(body).unwrap_or_default();
    EngineFacts {
        version: kept(page["version"].as_str()),
        ..EngineFacts::default()
    }
}

/// Reads `/is_sleeping`.
pub fn is_sleeping(body: &[u8]) -> bool {
    flag(body, "is_sleeping")
}

/// Whether `/metrics` says that all engines of a server are awake. `/is_sleeping` says of one that
/// is only paused that it sleeps.
pub fn is_awake(metrics: &str) -> bool {
    let states = samples(metrics, "vllm:engine_sleep_state");
    let awake: Vec<f64> = states
        .filter(|state| state.label("sleep_state").as_deref() == Some("awake"))
        .map(|state| state.value)
        .collect();
    !awake.is_empty() && !awake.contains(&0.0)
}

/// Reads `/is_paused`.
pub fn is_paused(body: &[u8]) -> bool {
    flag(body, "is_paused")
}

fn flag(body: &[u8], name: &str) -> bool {
    let page: Value = serde_json::from_slice(body).unwrap_or_default();
    page[name] == true
}

/// Blocks may be shared by several kinds of layers, so the engine's own figure goes first.
fn capacity_of(sample: &Sample<'_>) -> Option<u64> {
    let number = |name| sample.label(name)?.parse::<u64>().ok();
    number("kv_cache_size_tokens")
        .or_else(|| number("num_gpu_blocks")?.checked_mul(number("block_size")?))
}

/// Whether it has a connector to host memory, by `--kv-offloading-size`, whose size is in bytes
/// instead of tokens, or by its configuration. Both show in its metrics.
fn offloads(text: &str) -> bool {
    let sized = samples(text, "vllm:cache_config_info").any(|sample| {
        let size = sample.label("kv_offloading_size");
        size.and_then(|size| size.parse::<f64>().ok())
            .is_some_and(|size| size > 0.0)
    });
    let has_metrics = |name: &str| {
        text.lines()
            .any(|line| line.trim_start_matches("# HELP ").starts_with(name))
    };
    sized
        || ["vllm:kv_offload_", "lmcache:"]
            .into_iter()
            .any(has_metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        let text = r#"
vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="32",engine="1",kv_cache_size_tokens="1600",num_gpu_blocks="100"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_queries_created{engine="0"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0"} 640.0
"#;
        let expected = EngineReading {
            capacity_tokens: Some(4_800),
            running: Some(5),
            waiting: Some(1),
            used_tokens: Some(1_800),
            cached_tokens_total: Some(640),
            prompt_tokens_total: Some(1_000),
            ..EngineReading::default()
        };
        assert_eq!(reading_of_metrics(text), expected);
        assert_eq!(ranks_of_metrics(text), 2);
        let second = EngineReading {
            capacity_tokens: Some(1_600),
            running: Some(3),
            waiting: None,
            used_tokens: Some(400),
            cached_tokens_total: None,
            prompt_tokens_total: None,
            ..EngineReading::default()
        };
        assert_eq!(reading_of_metrics(&metrics_of_rank(text, 1)), second);
        assert_eq!(reading_of_metrics("<html>"), EngineReading::default());
    }

    #[test]
    fn ranks_are_numbered_from_0_at_each_address() {
        let row = |engine: u32, tokens: u64| {
            format!(
                "vllm:cache_config_info{{engine=\"{engine}\",kv_cache_size_tokens=\"{tokens}\"}} 1.0\n\
                 vllm:num_requests_running{{engine=\"{engine}\"}} {engine}.0\n"
            )
        };
        // The second of two servers with hybrid load balancing.
        let hybrid = row(10, 1_600) + &row(8, 1_000) + &row(9, 1_200);
        assert_eq!(ranks_of_metrics(&hybrid), 3);
        let of_each = [0, 1, 2].map(|rank| {
            let reading = reading_of_metrics(&metrics_of_rank(&hybrid, rank));
            (reading.capacity_tokens, reading.running)
        });
        let expected = [(1_000, 8), (1_200, 9), (1_600, 10)];
        assert_eq!(of_each, expected.map(|(tokens, n)| (Some(tokens), Some(n))));
        // With external load balancing, a rank has an address of its own.
        let external = row(5, 2_000);
        assert_eq!(ranks_of_metrics(&external), 1);
        assert_eq!(metrics_of_rank(&external, 0), external);
    }

    #[test]
    fn engines_that_offload_are_seen() {
        for (text, expected) in [
            (
                r#"vllm:cache_config_info{kv_offloading_size="20.0"} 1.0"#,
                true,
            ),
            (
                r#"vllm:cache_config_info{kv_offloading_size="None"} 1.0"#,
                false,
            ),
            (
                r#"vllm:cache_config_info{kv_offloading_size="0.0"} 1.0"#,
                false,
            ),
            (r#"vllm:cache_config_info{block_size="16"} 1.0"#, false),
            (
                "# HELP vllm:kv_offload_load_bytes Bytes.\n# TYPE vllm:kv_offload_load_bytes counter",
                true,
            ),
            (
                "vllm:kv_offload_cpu_cache_usage_perc{engine=\"0\"} 0.0",
                true,
            ),
            ("lmcache:num_retrieve_requests_total{model=\"m\"} 0.0", true),
        ] {
            assert_eq!(reading_of_metrics(text).offloads, expected, "{text}");
        }
    }

    #[test]
    fn whether_it_sleeps_is_read() {
        assert!(is_sleeping(br#"{"is_sleeping":true}"#));
        assert!(is_paused(br#"{"is_paused":true}"#));
        let states = |one: u8, other: u8| {
            format!(
                "vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {one}.0\n\
                 vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"discard_all\"}} 0.0\n\
                 vllm:engine_sleep_state{{engine=\"1\",sleep_state=\"awake\"}} {other}.0\n"
            )
        };
        assert!(is_awake(&states(1, 1)));
        assert!(!is_awake(&states(0, 1)) && !is_awake(&states(1, 0)) && !is_awake(""));
        for body in [
            r#"{"is_sleeping":false}"#,
            "{}",
            "true",
            "Not Found",
            r#"{"is_sleeping":"x"}"#,
        ] {
            assert!(
                !is_sleeping(body.as_bytes()) && !is_paused(body.as_bytes()),
                "{body}"
            );
        }
    }

    #[test]
    fn the_version_is_read() {
        let facts = facts_of_version(br#"{"version":"0.32.1"}"#);
        assert_eq!(facts.version.as_deref(), Some("0.32.1"));
        assert_eq!((facts.role, facts.priorities), (None, None));
        let long = format!(r#"{{"version":"{}"}}"#, "x".repeat(500));
        let long = facts_of_version(long.as_bytes()).version;
        assert_eq!(long.map(|text| text.len()), Some(100));
        for body in ["Not Found", "[]", r#"{"version":7}"#, r#"{"version":""}"#] {
            assert_eq!(facts_of_version(body.as_bytes()), EngineFacts::default());
        }
    }
}
