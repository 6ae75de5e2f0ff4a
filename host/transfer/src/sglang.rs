//! SGLang: the storage behind its HiCache, where one is configured.
//!
//! With `--hicache-write-policy write_through` the engine writes KV to its storage as it computes
//! it, and looks there for any prompt; engines that share the storage find each other's. So an export
//! has the prompt seen once more, and an import has it looked up. The storage finds KV by tokens
//! alone: a cache salt (`extra_key`) with the weights' version has to tell KV of different weights
//! apart, or the storage has to be cleared with each change of weights.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::ask::{needed, one_token, parsed};
use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::support::{Means, Support};
use crate::{
    Answer, CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits, Prefix,
    Prompt, TransferError, WorkerRef,
};

/// The executor of SGLang's servers.
pub struct Sglang {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
}

impl Sglang {
    /// An executor.
    pub fn new(limits: Limits) -> Self {
        Self {
            client: EngineClient::new(&limits),
            lanes: Lanes::new(limits.waiting_max),
            limits,
        }
    }

    async fn probe(&self, worker: &WorkerRef) -> Result<Support, TransferError> {
        let asked = self
            .client
            .ask(Method::GET, &worker.url, "/server_info", Bytes::new());
        let (status, body) = asked.await?;
        let info: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() || !info.is_object() {
            return Ok(Support::none(format!(
                "it answers {status} to /server_info"
            )));
        }
        Ok(support_of(&info))
    }

    /// Has the engine see a prompt; gives the tokens that it had in a cache, and all of them.
    async fn see(
        &self,
        url: &str,
        prompt: &Prompt,
        salt: Option<&str>,
    ) -> Result<(u64, u64), TransferError> {
        let (path, mut body) = match prompt {
            Prompt::Ids(ids) => (
                "/generate",
                json!({
                    "input_ids": **ids,
                    "sampling_params": { "max_new_tokens": 1, "temperature": 0 },
                }),
            ),
            Prompt::Body { path, body } => {
                let mut body = one_token(parsed(body)?)?;
                // A tool that must be called makes another answer, not another prompt.
                if let Some(fields) = body.as_object_mut() {
                    fields.remove("tool_choice");
                }
                (&**path, body)
            }
        };
        if let Some(salt) = salt {
            body["extra_key"] = salt.into();
        }
        let answer = self.client.post(url, path, &body).await?;
        let (meta, usage) = (&answer["meta_info"], &answer["usage"]);
        let cached = meta["cached_tokens"]
            .as_u64()
            .or_else(|| usage["prompt_tokens_details"]["cached_tokens"].as_u64());
        let all = meta["prompt_tokens"]
            .as_u64()
            .or_else(|| usage["prompt_tokens"].as_u64());
        Ok((cached.unwrap_or(0), all.unwrap_or(0)))
    }

    async fn write(&self, export: Export) -> Result<KvCopy, TransferError> {
        let url = &*export.worker.url;
        let prompt = needed(export.prompt.as_ref())?;
        let _turn = self.lanes.enter(url, Direction::Out).await?;
        let (_, tokens) = self.see(url, prompt, export.cache_salt.as_deref()).await?;
        Ok(KvCopy {
            id: CopyId::random()?,
            program: export.program,
            prefix: prompt
                .ids()
                .map_or(Prefix { tokens, hash: None }, Prefix::of),
            tags: export.tags,
            bytes: 0,
            checksum: None,
            place: CopyLocation::Storage { url: url.into() },
        })
    }

    async fn look_up(&self, import: Import) -> Result<Imported, TransferError> {
        import.check()?;
        let url = &*import.worker.url;
        let CopyLocation::Storage { .. } = &import.copy.place else {
            return Err(TransferError::wrong_handle(
                "the copy is in no engine's storage",
            ));
        };
        let prompt = needed(import.prompt.as_ref())?;
        let _turn = self.lanes.enter(url, Direction::In).await?;
        let (tokens, _) = self.see(url, prompt, import.cache_salt.as_deref()).await?;
        if tokens == 0 {
            return Err(TransferError::not_taken(
                url,
                "it found nothing of the prompt in its caches",
            ));
        }
        Ok(Imported { tokens, bytes: 0 })
    }
}

/// What a server reports of its caches. Host memory without a storage is internal to the engine.
fn support_of(info: &Value) -> Support {
    let storage = info["hicache_storage_backend"].as_str();
    let written = info["hicache_write_policy"].as_str();
    match (
        info["enable_hierarchical_cache"].as_bool(),
        storage,
        written,
    ) {
        (Some(true), Some(_), Some("write_through")) => Support::full(Means::HiCache),
        (Some(true), Some(_), policy) => Support::none(format!(
            "its storage is written by the policy {}; start it with --hicache-write-policy \
             write_through",
            policy.unwrap_or("of an unknown name")
        )),
        _ => Support::none(
            "the server has no HiCache with a storage; start it with --enable-hierarchical-cache \
             --hicache-storage-backend",
        ),
    }
}

impl KvExecutor for Sglang {
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
            "having KV stored",
            self.limits.export,
            self.write(export),
        ))
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        Box::pin(within(
            "having KV looked up",
            self.limits.import,
            self.look_up(import),
        ))
    }

    /// There is no such verb: the storage has its own eviction.
    fn drop(&self, _copy: KvCopy) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_storage_that_is_written_through_will_do() {
        let info = |on: bool, storage: Option<&str>, policy: &str| {
            support_of(&json!({
                "enable_hierarchical_cache": on, "hicache_storage_backend": storage,
                "hicache_write_policy": policy,
            }))
        };
        assert!(info(true, Some("file"), "write_through").offload);
        for support in [
            info(true, Some("file"), "write_back"),
            info(true, None, "write_through"),
            info(false, Some("file"), "write_through"),
            support_of(&json!({})),
        ] {
            assert_eq!(support.means, Means::Nothing);
            assert!(!support.why.is_empty());
        }
    }
}
