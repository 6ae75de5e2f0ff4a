//! SGLang: the storage behind its HiCache, if one is configured.
//!
//! With `--hicache-write-policy write_through` the engine writes KV to its storage as it is
//! computed, and looks there for any prompt; engines that share the storage find each other's KV.
//! So an export processes the prompt once more, and an import looks it up. The storage finds KV by
//! tokens only: KV of different weights must be separated by a cache salt (`extra_key`) with the
//! weights' version, or the storage must be cleared whenever the weights change.

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::prompt_request::{needed, one_token, parsed};
use crate::support::{KvInterface, Support};
use crate::{
    CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits, Prefix, Prompt,
    TransferError, WorkerRef,
};

/// The executor for SGLang servers.
pub struct Sglang {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
}

impl Sglang {
    /// Makes an executor.
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
            return Ok(Support::none(format!("/server_info returns {status}")));
        }
        Ok(support_of(&info))
    }

    /// Makes the engine process a prompt; returns the number of cached tokens and of all tokens.
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
                // A required tool call changes the answer, not the prompt.
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
                "it found no part of the prompt in its caches",
            ));
        }
        Ok(Imported { tokens, bytes: 0 })
    }
}

/// The abilities by a server's cache report. Host memory without a storage is internal to the
/// engine.
fn support_of(info: &Value) -> Support {
    let storage = info["hicache_storage_backend"].as_str();
    let written = info["hicache_write_policy"].as_str();
    match (
        info["enable_hierarchical_cache"].as_bool(),
        storage,
        written,
    ) {
        (Some(true), Some(_), Some("write_through")) => Support::full(KvInterface::HiCache),
        (Some(true), Some(_), policy) => Support::none(format!(
            "the write policy of its storage is {}; start it with --hicache-write-policy \
             write_through",
            policy.unwrap_or("unknown")
        )),
        _ => Support::none(
            "the server has no HiCache with a storage; start it with --enable-hierarchical-cache \
             --hicache-storage-backend",
        ),
    }
}

#[async_trait]
impl KvExecutor for Sglang {
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        within("probing the engine", self.limits.probe, self.probe(&worker)).await
    }

    async fn export(&self, export: Export) -> Result<KvCopy, TransferError> {
        within("storing KV", self.limits.export, self.write(export)).await
    }

    async fn import(&self, import: Import) -> Result<Imported, TransferError> {
        within("looking up KV", self.limits.import, self.look_up(import)).await
    }

    /// Does nothing: the storage evicts by itself.
    async fn drop(&self, _copy: KvCopy) -> Result<(), TransferError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_through_storage_is_supported() {
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
            assert_eq!(support.interface, KvInterface::Nothing);
            assert!(!support.why.is_empty());
        }
    }
}
