//! vLLM: its `NixlConnector`, driven over HTTP.
//!
//! A completion of one token makes the engine hold the KV of its prompt for another engine; the
//! same prompt with the first engine's answer makes the other one fetch it. The fetch reads the
//! first engine's memory by block numbers, and neither engine checks that the blocks still have the
//! same contents and tokens. So a copy is used at most once, by the process that made it, with the
//! tokens that the first engine processed, and no later than [`Limits::engine_held`] after the
//! request for it; a fetch that does not complete soon after that is cancelled.

mod copies;
mod request;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};

use self::copies::{CopyIndex, HeldCopy};
use self::request::PromptKey;
use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::prompt_request::needed;
use crate::support::{KvInterface, Support};
use crate::{
    CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits, TransferError,
    WorkerRef,
};

/// Counter of prompt tokens that came from another engine.
const FETCHED: &str = "vllm:prompt_tokens_cached_by_source_total";
/// Prefix of the connector's own metrics.
const CONNECTOR: &str = "\nvllm:nixl_";
/// How long a fetch may take beyond [`Limits::engine_held`]. On a machine under full load, engines
/// have freed blocks during a fetch.
const FETCH: Duration = Duration::from_secs(5);
/// Pause between two reads of the counter, which is incremented shortly after the response.
const COUNTER_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of reads of the counter.
const COUNTER_LOOKS: u32 = 50;

/// The executor for vLLM servers.
pub struct Vllm {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
    copies: CopyIndex,
}

impl Vllm {
    /// An executor without copies.
    pub fn new(limits: Limits) -> Self {
        Self {
            client: EngineClient::new(&limits),
            lanes: Lanes::new(limits.waiting_max),
            limits,
            copies: CopyIndex::default(),
        }
    }

    async fn probe(&self, worker: &WorkerRef) -> Result<Support, TransferError> {
        let metrics = self.client.text(&worker.url, "/metrics").await?;
        if !metrics.contains(CONNECTOR) {
            return Ok(Support::none(
                "the server has no NixlConnector; start it with --kv-transfer-config \
                 '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}'",
            ));
        }
        Ok(Support {
            interface: KvInterface::Nixl,
            offload: false,
            migrate: true,
            why: "its KV can move to another engine, but not to host memory".into(),
        })
    }

    async fn hold(&self, export: Export) -> Result<KvCopy, TransferError> {
        let url = &*export.worker.url;
        let seen = PromptKey {
            prompt: needed(export.prompt.as_ref())?.clone(),
            model: export.tags.model.clone(),
            cache_salt: export.cache_salt,
        };
        let (path, mut body) = seen.request()?;
        body["kv_transfer_params"] = json!({
            "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
            "remote_block_ids": null, "remote_host": null, "remote_port": null,
        });
        let _turn = self.lanes.enter(url, Direction::Out).await?;
        // The engine may free the blocks this long after its response, which may have arrived late.
        let until = Instant::now() + self.limits.engine_held;
        let answer = self.client.post(url, path, &body).await?;
        let parameters = blocks_of_answer(url, &answer)?;
        let seen = seen.in_tokens(&answer);
        let copy = KvCopy {
            id: CopyId::random()?,
            program: export.program,
            prefix: seen.prefix(&answer, export.tokens),
            tags: export.tags,
            bytes: 0,
            checksum: None,
            place: CopyLocation::Engine {
                url: url.into(),
                parameters: parameters.clone(),
            },
        };
        copy.to_handle()?;
        let copies = HeldCopy {
            until,
            come_by: until + FETCH,
            parameters: parameters.clone(),
            seen,
        };
        self.copies.remember(copy.id, copies)?;
        Ok(copy)
    }

    async fn fetch(&self, import: Import) -> Result<Imported, TransferError> {
        import.check()?;
        let (url, copy) = (&*import.worker.url, &import.copy);
        let CopyLocation::Engine { parameters, .. } = &copy.place else {
            return Err(TransferError::wrong_handle("no vLLM engine holds the copy"));
        };
        let _turn = self.lanes.enter(url, Direction::In).await?;
        let before = self.fetched(url).await?;
        // From here on the first engine may free its blocks at any time.
        let copies = self.copies.spend(copy.id, parameters)?;
        let (path, mut body) = copies.seen.request()?;
        body["kv_transfer_params"] = parameters.clone();
        let left = copies.come_by.saturating_duration_since(Instant::now());
        // Dropping the request closes the connection, and the engine then cancels its fetch.
        let asked = self.client.post(url, path, &body);
        within("fetching KV from the first engine", left, asked).await?;
        for _ in 0..COUNTER_LOOKS {
            let tokens = self.fetched(url).await?.saturating_sub(before);
            if tokens > 0 {
                return Ok(Imported { tokens, bytes: 0 });
            }
            tokio::time::sleep(COUNTER_PAUSE).await;
        }
        Err(TransferError::not_taken(
            url,
            "its counter shows no tokens from the other engine",
        ))
    }

    /// Tokens that an engine has fetched from others since its start.
    async fn fetched(&self, url: &str) -> Result<u64, TransferError> {
        fetched_tokens(&self.client.text(url, "/metrics").await?).ok_or_else(|| {
            let why = format!("it has no counter {FETCHED} with source p2p");
            TransferError::unsupported(url, why)
        })
    }
}

/// The blocks that an engine holds after a response.
fn blocks_of_answer<'a>(url: &str, answer: &'a Value) -> Result<&'a Value, TransferError> {
    let answers = answer["choices"].as_array();
    if answers.is_some_and(|answers| answers.len() > 1) {
        let why = "the program's last request has several prompts";
        return Err(TransferError::not_taken(url, why));
    }
    let parameters = &answer["kv_transfer_params"];
    if parameters["remote_block_ids"].is_null() {
        let why = "its response lists no held blocks; the prompt may be shorter than one";
        return Err(TransferError::not_taken(url, why));
    }
    Ok(parameters)
}

/// The sum of the counter's samples for other engines; `None` if there are none.
fn fetched_tokens(metrics: &str) -> Option<u64> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix(FETCHED)?.strip_prefix('{'))
        .filter_map(|sample| sample.rsplit_once('}'))
        .filter(|(labels, _)| labels.split(',').any(|label| label == r#"source="p2p""#))
        .filter_map(|(_, value)| value.trim().parse::<f64>().ok())
        .reduce(|all, value| all + value)
        .map(|tokens| tokens as u64)
}

#[async_trait]
impl KvExecutor for Vllm {
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        within("probing the engine", self.limits.probe, self.probe(&worker)).await
    }

    async fn export(&self, export: Export) -> Result<KvCopy, TransferError> {
        within("exporting KV", self.limits.export, self.hold(export)).await
    }

    async fn import(&self, import: Import) -> Result<Imported, TransferError> {
        within("importing KV", self.limits.import, self.fetch(import)).await
    }

    /// Only drops the record: the engine frees its blocks after a timeout.
    async fn drop(&self, copy: KvCopy) -> Result<(), TransferError> {
        self.copies.forget(copy.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_from_other_engines_are_counted() {
        let text = r#"
# TYPE vllm:prompt_tokens_cached_by_source_total counter
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="local"} 512.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="p2p"} 4096.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="m",source="p2p"} 4.0
vllm:prompt_tokens_cached_by_source_created{engine="0",source="p2p"} 1.7e+09
"#;
        assert_eq!(fetched_tokens(text), Some(4_100));
        assert_eq!(fetched_tokens("vllm:other{source=\"p2p\"} 1"), None);
    }
}
