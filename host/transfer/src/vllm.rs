//! vLLM: its `NixlConnector`, driven over HTTP.
//!
//! A completion of one token makes the engine hold the KV of its prompt for another engine; the same
//! prompt with what it answered makes the other one fetch that. The fetch reads the first engine's
//! memory by block numbers, and neither engine knows whether these blocks are still what they were.
//! So a copy is used at most once, by the process that made it, and not later than
//! [`Limits::engine_held`] after it was made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::support::{Means, Support};
use crate::{
    Answer, CopyId, Export, Import, Imported, KvCopy, KvExecutor, Limits, Place, Prefix, Prompt,
    TransferError, WorkerRef,
};

/// Counts the prompt tokens that came from another engine.
const FETCHED: &str = "vllm:prompt_tokens_cached_by_source_total";
/// How the connector's own metrics begin.
const CONNECTOR: &str = "\nvllm:nixl_";
/// Most copies that are remembered.
const HELD_MAX: usize = 65_536;
/// The counter is raised a moment after the answer.
const COUNTER_PAUSE: Duration = Duration::from_millis(20);
/// Looks at the counter, with a pause after each.
const COUNTER_LOOKS: u32 = 50;

/// The executor of vLLM's servers.
pub struct Vllm {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
    /// Copies that may yet be used, and until when.
    held: Mutex<BTreeMap<CopyId, Instant>>,
}

impl Vllm {
    /// Without any copies.
    pub fn new(limits: Limits) -> Self {
        Self {
            client: EngineClient::new(&limits),
            lanes: Lanes::new(limits.waiting_max),
            limits,
            held: Mutex::default(),
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
        let prompt = needed(export.prompt.as_ref())?;
        let parameters = json!({
            "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
            "remote_block_ids": null, "remote_host": null, "remote_port": null,
        });
        let asked = request(prompt, &export.tags.model, export.cache_salt.as_deref());
        let (path, mut body) = asked?;
        body["kv_transfer_params"] = parameters;
        let _turn = self.lanes.enter(url, Direction::Out).await?;
        let until = Instant::now() + self.limits.engine_held;
        let answer = self.client.post(url, &path, &body).await?;
        let parameters = answer["kv_transfer_params"].clone();
        if parameters["remote_block_ids"].is_null() {
            let why =
                "its answer names no blocks that it holds; the prompt may be shorter than one";
            return Err(TransferError::not_taken(url, why));
        }
        let tokens = answer["usage"]["prompt_tokens"].as_u64();
        let copy = KvCopy {
            id: CopyId::random()?,
            program: export.program,
            prefix: prompt.ids().map_or_else(
                || Prefix {
                    tokens: tokens.unwrap_or(export.tokens),
                    hash: None,
                },
                Prefix::of,
            ),
            tags: export.tags,
            bytes: 0,
            checksum: None,
            place: Place::Engine {
                url: url.into(),
                parameters,
            },
        };
        copy.to_handle()?;
        self.remember(copy.id, until)?;
        Ok(copy)
    }

    async fn fetch(&self, import: Import) -> Result<Imported, TransferError> {
        import.check()?;
        let (url, copy) = (&*import.worker.url, &import.copy);
        let Place::Engine { parameters, .. } = &copy.place else {
            return Err(TransferError::wrong_handle("no vLLM engine holds the copy"));
        };
        let prompt = needed(import.prompt.as_ref())?;
        let prompt = match prompt.ids() {
            // What came after the copy was made is not in it.
            Some(ids) => Prompt::Ids(
                ids.iter()
                    .take(usize::try_from(copy.prefix.tokens).unwrap_or(usize::MAX))
                    .copied()
                    .collect(),
            ),
            None => prompt.clone(),
        };
        let asked = request(&prompt, &import.tags.model, import.cache_salt.as_deref());
        let (path, mut body) = asked?;
        body["kv_transfer_params"] = parameters.clone();
        let _turn = self.lanes.enter(url, Direction::In).await?;
        let before = self.fetched(url).await?;
        // From here on the first engine may free its blocks at any moment.
        self.spend(copy.id)?;
        self.client.post(url, &path, &body).await?;
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

    fn remember(&self, id: CopyId, until: Instant) -> Result<(), TransferError> {
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            let now = Instant::now();
            held.retain(|_, until| *until > now);
        }
        if held.len() >= HELD_MAX {
            let why = format!("{HELD_MAX} copies are held by engines already");
            return Err(TransferError::internal("a copy", why));
        }
        held.insert(id, until);
        Ok(())
    }

    /// Uses a copy up.
    fn spend(&self, id: CopyId) -> Result<(), TransferError> {
        let until = self.held().remove(&id).ok_or_else(|| {
            TransferError::gone(id, "it was used or dropped, or another process made it")
        })?;
        if until < Instant::now() {
            return Err(TransferError::gone(
                id,
                "the engine may have freed it by now",
            ));
        }
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<CopyId, Instant>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// The prompt, which this kind of engine can't do without.
pub(crate) fn needed(prompt: Option<&Prompt>) -> Result<&Prompt, TransferError> {
    prompt.ok_or(TransferError::Incomplete {
        field: "prompt",
        why: "the engine finds KV by the tokens it is of",
    })
}

/// Asks for one token after a prompt.
fn request(
    prompt: &Prompt,
    model: &str,
    cache_salt: Option<&str>,
) -> Result<(String, Value), TransferError> {
    let (path, mut body) = match prompt {
        Prompt::Ids(ids) => (
            "/v1/completions".to_owned(),
            json!({ "model": model, "prompt": **ids, "max_tokens": 1, "temperature": 0 }),
        ),
        Prompt::Body { path, body } => {
            let body: Value = serde_json::from_slice(body)
                .map_err(|error| TransferError::internal("the program's last request", error))?;
            (path.to_string(), one_token(body)?)
        }
    };
    if let Some(salt) = cache_salt {
        body["cache_salt"] = salt.into();
    }
    Ok((path, body))
}

/// A request like another one, but for its output.
pub(crate) fn one_token(mut body: Value) -> Result<Value, TransferError> {
    let Some(fields) = body.as_object_mut() else {
        return Err(TransferError::internal(
            "the program's last request",
            "it is no JSON object",
        ));
    };
    for field in [
        "max_completion_tokens",
        "min_tokens",
        "n",
        "stream_options",
        "tool_choice",
        "response_format",
    ] {
        fields.remove(field);
    }
    fields.insert("stream".into(), false.into());
    match fields
        .get_mut("sampling_params")
        .and_then(Value::as_object_mut)
    {
        Some(sampling) => {
            for field in ["min_tokens", "min_new_tokens", "n"] {
                sampling.remove(field);
            }
            let name = if sampling.contains_key("max_new_tokens") {
                "max_new_tokens"
            } else {
                "max_tokens"
            };
            sampling.insert(name.into(), 1.into());
        }
        None => {
            fields.insert("max_tokens".into(), 1.into());
        }
    }
    Ok(body)
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
        self.held().remove(&copy.id);
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

    #[test]
    fn any_request_can_ask_for_one_token() {
        let chat = json!({
            "messages": [], "stream": true, "stream_options": {}, "n": 3,
            "max_completion_tokens": 50,
        });
        assert_eq!(
            one_token(chat).unwrap(),
            json!({ "messages": [], "stream": false, "max_tokens": 1 })
        );
        let tokens =
            json!({ "token_ids": [1], "sampling_params": { "min_tokens": 3, "max_tokens": 9 } });
        assert_eq!(
            one_token(tokens).unwrap(),
            json!({ "token_ids": [1], "sampling_params": { "max_tokens": 1 }, "stream": false })
        );
        assert!(one_token(json!([])).is_err());
    }
}
