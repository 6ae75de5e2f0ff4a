//! vLLM: its `NixlConnector`, driven over HTTP.
//!
//! A completion of one token makes the engine hold the KV of its prompt for another engine; the
//! same prompt with its answer makes the other one fetch that. The fetch reads the first engine's
//! memory by block numbers, and neither engine knows whether these blocks are still what they were,
//! nor whether they are of the same tokens. So a copy is used at most once, by the process that
//! made it, with the tokens that the first engine saw, and not later than [`Limits::engine_held`]
//! after it was asked for; a fetch that is not done soon after that is cancelled.

mod copies;
mod request;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::copies::{CopyIndex, HeldCopy};
use self::request::Seen;
use crate::ask::needed;
use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::support::{Means, Support};
use crate::{
    Answer, CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits,
    TransferError, WorkerRef,
};

/// Counts the prompt tokens that came from another engine.
const FETCHED: &str = "vllm:prompt_tokens_cached_by_source_total";
/// How the connector's own metrics begin.
const CONNECTOR: &str = "\nvllm:nixl_";
/// A fetch that has begun may take so long beyond [`Limits::engine_held`]. On a machine without any
/// time to spare, engines were seen to free blocks although another one was at it.
const FETCH: Duration = Duration::from_secs(5);
/// The counter is raised a moment after the answer.
const COUNTER_PAUSE: Duration = Duration::from_millis(20);
/// Looks at the counter, with a pause after each.
const COUNTER_LOOKS: u32 = 50;

/// The executor of vLLM's servers.
pub struct Vllm {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
    copies: CopyIndex,
}

impl Vllm {
    /// Without any copies.
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
            means: Means::Nixl,
            offload: false,
            migrate: true,
            why: "its KV can go to another engine, but not wait in host memory".into(),
        })
    }

    async fn hold(&self, export: Export) -> Result<KvCopy, TransferError> {
        let url = &*export.worker.url;
        let seen = Seen {
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
        // It may free the blocks so long after its answer, which may have come late.
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
        // From here on the first engine may free its blocks at any moment.
        let copies = self.copies.spend(copy.id, parameters)?;
        let (path, mut body) = copies.seen.request()?;
        body["kv_transfer_params"] = parameters.clone();
        let left = copies.come_by.saturating_duration_since(Instant::now());
        // Giving it up closes the connection, whereupon the engine gives up what it fetches.
        let asked = self.client.post(url, path, &body);
        within("a fetch that the first engine waits for", left, asked).await?;
        for _ in 0..COUNTER_LOOKS {
            let tokens = self.fetched(url).await?.saturating_sub(before);
            if tokens > 0 {
                return Ok(Imported { tokens, bytes: 0 });
            }
            tokio::time::sleep(COUNTER_PAUSE).await;
        }
        Err(TransferError::not_taken(
            url,
            "it counts no tokens from the other engine",
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

/// The blocks that an engine reports to hold after an answer.
fn blocks_of_answer<'a>(url: &str, answer: &'a Value) -> Result<&'a Value, TransferError> {
    let answers = answer["choices"].as_array();
    if answers.is_some_and(|answers| answers.len() > 1) {
        let why = "the program's last request has several prompts";
        return Err(TransferError::not_taken(url, why));
    }
    let parameters = &answer["kv_transfer_params"];
    if parameters["remote_block_ids"].is_null() {
        let why = "its answer names no blocks that it holds; the prompt may be shorter than one";
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

impl KvExecutor for Vllm {
    fn support(&self, worker: WorkerRef) -> Answer<'_, Support> {
        Box::pin(async move {
            within(
                "a look at the engine",
                self.limits.probe,
                self.probe(&worker),
            )
            .await
        })
    }

    fn export(&self, export: Export) -> Answer<'_, KvCopy> {
        Box::pin(within(
            "having KV held",
            self.limits.export,
            self.hold(export),
        ))
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        Box::pin(within(
            "having KV fetched",
            self.limits.import,
            self.fetch(import),
        ))
    }

    /// There is no such verb: the engine frees what it holds when its time is up.
    fn drop(&self, copy: KvCopy) -> Answer<'_, ()> {
        self.copies.forget(copy.id);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_from_another_engine_is_counted() {
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
