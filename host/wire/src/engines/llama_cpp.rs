//! llama.cpp's `/props`, `/slots` and `/metrics`.

use super::EngineReading;
use super::facts::{EngineFacts, kept};
use super::prometheus::count;
use serde::Deserialize;

#[derive(Deserialize)]
struct Props {
    total_slots: Option<u64>,
    default_generation_settings: Option<Settings>,
}

#[derive(Default, Deserialize)]
struct Build {
    build_info: Option<String>,
}

#[derive(Deserialize)]
struct Settings {
    n_ctx: Option<u64>,
}

/// One of the server's slots, each with a KV cache of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Slot {
    /// Its number, which `id_slot` pins.
    pub id: u64,
    /// Tokens that fit into it.
    #[serde(rename = "n_ctx")]
    pub context_tokens_max: Option<u64>,
    /// Whether a request runs in it.
    #[serde(default)]
    pub is_processing: bool,
}

/// Reads `/props`; `None` where the body is something else.
pub fn reading_of_props(body: &[u8]) -> Option<EngineReading> {
    let props: Props = serde_json::from_slice(body).ok()?;
    let context = props.default_generation_settings.and_then(|s| s.n_ctx);
    Some(
        EngineReading {
            capacity_tokens: props
                .total_slots
                .zip(context)
                .and_then(|(slots, context)| slots.checked_mul(context)),
            context_tokens_max: context,
            slots: props.total_slots,
            ..EngineReading::default()
        }
        .plausible(),
    )
}

/// Reads which build `/props` names. The server has no priorities.
pub fn facts_of_props(body: &[u8]) -> EngineFacts {
    let build: Build = serde_json::from_slice(body).unwrap_or_default();
    EngineFacts {
        version: kept(build.build_info.as_deref()),
        role: None,
        bootstrap_port: None,
        priorities: Some(false),
    }
}

/// The slots that `/slots` lists; `None` where the body is something else.
pub fn slots_of(body: &[u8]) -> Option<Vec<Slot>> {
    serde_json::from_slice(body).ok()
}

/// Reads `/slots`; `None` where the body is something else.
pub fn reading_of_slots(body: &[u8]) -> Option<EngineReading> {
    let slots = slots_of(body)?;
    let contexts = || slots.iter().filter_map(|slot| slot.context_tokens_max);
    Some(
        EngineReading {
            capacity_tokens: contexts().reduce(u64::saturating_add),
            context_tokens_max: contexts().max(),
            slots: Some(slots.len() as u64),
            running: Some(slots.iter().filter(|slot| slot.is_processing).count() as u64),
            ..EngineReading::default()
        }
        .plausible(),
    )
}

/// Reads the metrics. The server counts evaluated and cached prompt tokens apart.
pub fn reading_of_metrics(text: &str) -> EngineReading {
    let evaluated = count(text, "llamacpp:prompt_tokens_total");
    let cached = count(text, "llamacpp:prompt_tokens_cached_total");
    EngineReading {
        running: count(text, "llamacpp:requests_processing"),
        waiting: count(text, "llamacpp:requests_deferred"),
        cached_tokens_total: cached,
        prompt_tokens_total: evaluated.map(|tokens| tokens.saturating_add(cached.unwrap_or(0))),
        ..EngineReading::default()
    }
    .plausible()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn props_are_read() {
        let body =
            br#"{"default_generation_settings":{"id":0,"n_ctx":4096,"params":{}},"total_slots":4}"#;
        let reading = reading_of_props(body).unwrap();
        assert_eq!(reading.capacity_tokens, Some(16_384));
        assert_eq!(
            (reading.context_tokens_max, reading.slots),
            (Some(4_096), Some(4))
        );
        assert_eq!(reading_of_props(b"[1]"), None);
        let absurd = format!(
            r#"{{"total_slots":{0},"default_generation_settings":{{"n_ctx":{0}}}}}"#,
            u64::MAX
        );
        assert_eq!(
            reading_of_props(absurd.as_bytes()).unwrap().capacity_tokens,
            None
        );
    }

    #[test]
    fn the_build_is_read() {
        let facts = facts_of_props(br#"{"build_info":"b6500-1a2b3c4d","total_slots":1}"#);
        assert_eq!(facts.version.as_deref(), Some("b6500-1a2b3c4d"));
        assert_eq!((facts.role, facts.priorities), (None, Some(false)));
        assert_eq!(facts_of_props(b"{}").version, None);
    }

    #[test]
    fn slots_are_read() {
        let body = br#"[{"id":0,"n_ctx":512,"is_processing":true,"next_token":[{}]},{"id":1,"n_ctx":512,"is_processing":false}]"#;
        let expected = EngineReading {
            capacity_tokens: Some(1_024),
            context_tokens_max: Some(512),
            slots: Some(2),
            running: Some(1),
            ..EngineReading::default()
        };
        assert_eq!(reading_of_slots(body), Some(expected));
        assert_eq!(slots_of(body).unwrap()[1].id, 1);
        assert_eq!(reading_of_slots(br#"{"error":{"code":501}}"#), None);
    }

    #[test]
    fn metrics_are_read() {
        let text = "llamacpp:prompt_tokens_total 40\nllamacpp:prompt_tokens_cached_total 60\n\
                    llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n";
        let reading = reading_of_metrics(text);
        assert_eq!(
            (reading.prompt_tokens_total, reading.cached_tokens_total),
            (Some(100), Some(60))
        );
        assert_eq!((reading.running, reading.waiting), (Some(1), Some(2)));
    }
}
