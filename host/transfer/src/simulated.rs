//! treadle's simulated engine: all operations over HTTP.
//!
//! - `GET /kv` returns what it supports;
//! - `POST /kv/export` copies a program's KV into its host memory;
//! - `POST /kv/import` loads such a copy, its own or, by `source`, another engine's;
//! - `POST /kv/drop` removes a copy.

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::prompt_request::needed;
use crate::support::{KvInterface, Support};
use crate::{
    CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits, Prefix, Prompt,
    TransferError, WorkerRef,
};

/// The name of a simulated engine in `GET /kv`.
const ENGINE: &str = "treadle-engine-sim";

/// The executor for simulated engines.
pub struct Simulated {
    client: EngineClient,
    lanes: Lanes,
    limits: Limits,
}

/// The response of `GET /kv`.
#[derive(Deserialize)]
struct Abilities {
    engine: Box<str>,
    offload: bool,
    migrate: bool,
}

/// A prompt on the wire: tokens, or a request and its path.
#[derive(Serialize)]
#[serde(untagged)]
enum WirePrompt<'p> {
    Ids { ids: &'p [u32] },
    Body { path: &'p str, body: Value },
}

/// The response of `POST /kv/export`.
#[derive(Deserialize)]
struct Exported {
    tokens: u64,
    bytes: u64,
    block_tokens: Option<u32>,
    prefix_hash: Option<Box<str>>,
}

/// The response of `POST /kv/import`.
#[derive(Deserialize)]
struct ImportResponse {
    tokens: u64,
    bytes: u64,
}

impl Simulated {
    /// Makes an executor.
    pub fn new(limits: Limits) -> Self {
        Self {
            client: EngineClient::new(&limits),
            lanes: Lanes::new(limits.waiting_max),
            limits,
        }
    }

    /// The abilities of a simulated engine; `None` for any other engine.
    pub(crate) async fn abilities(
        &self,
        worker: &WorkerRef,
    ) -> Result<Option<Support>, TransferError> {
        let asked = self
            .client
            .ask(Method::GET, &worker.url, "/kv", Bytes::new());
        let (status, body) = asked.await?;
        let said = serde_json::from_slice::<Abilities>(&body).ok();
        let said = said.filter(|said| status.is_success() && &*said.engine == ENGINE);
        Ok(said.map(|said| Support {
            offload: said.offload,
            migrate: said.migrate,
            ..Support::full(KvInterface::Simulated)
        }))
    }

    async fn copy_out(&self, export: Export) -> Result<KvCopy, TransferError> {
        let url = &*export.worker.url;
        let _turn = self.lanes.enter(url, Direction::Out).await?;
        let id = CopyId::random()?;
        let body = json!({
            "copy": id, "program": export.program, "tags": export.tags,
            "prompt": wire(needed(export.prompt.as_ref())?)?,
            "cache_salt": export.cache_salt,
        });
        let forget = Forgetting::new(self, url, id);
        let answer: Exported = read(url, self.client.post(url, "/kv/export", &body).await?)?;
        let mut tags = export.tags;
        tags.block_tokens = answer.block_tokens.or(tags.block_tokens);
        forget.disarm();
        Ok(KvCopy {
            id,
            program: export.program,
            tags,
            prefix: Prefix {
                tokens: answer.tokens,
                hash: answer.prefix_hash,
            },
            bytes: answer.bytes,
            checksum: None,
            place: CopyLocation::Simulated { url: url.into() },
        })
    }

    async fn copy_in(&self, import: Import) -> Result<Imported, TransferError> {
        import.check()?;
        let (url, copy) = (&*import.worker.url, &import.copy);
        let CopyLocation::Simulated { url: source } = &copy.place else {
            return Err(TransferError::wrong_handle(
                "the copy is not at a simulated engine",
            ));
        };
        let _turn = self.lanes.enter(url, Direction::In).await?;
        let body = json!({
            "copy": copy.id, "source": source, "program": import.program, "tags": copy.tags,
            "tokens": copy.prefix.tokens, "bytes": copy.bytes, "prefix_hash": copy.prefix.hash,
        });
        let imported: ImportResponse =
            read(url, self.client.post(url, "/kv/import", &body).await?)?;
        Ok(Imported {
            tokens: imported.tokens,
            bytes: imported.bytes,
        })
    }

    async fn forget(&self, copy: &KvCopy) -> Result<(), TransferError> {
        let CopyLocation::Simulated { url } = &copy.place else {
            return Err(TransferError::wrong_handle(
                "the copy is not at a simulated engine",
            ));
        };
        let body = json!({ "copy": copy.id });
        self.client.post(url, "/kv/drop", &body).await?;
        Ok(())
    }
}

/// Makes an engine drop a copy whose handle was lost.
struct Forgetting {
    client: Option<EngineClient>,
    limits: Limits,
    url: Box<str>,
    id: CopyId,
}

impl Forgetting {
    fn new(executor: &Simulated, url: &str, id: CopyId) -> Self {
        Self {
            client: Some(executor.client.clone()),
            limits: executor.limits.clone(),
            url: url.into(),
            id,
        }
    }

    fn disarm(mut self) {
        self.client = None;
    }
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        let (Some(client), Ok(runtime)) =
            (self.client.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (url, id, after) = (std::mem::take(&mut self.url), self.id, self.limits.drop);
        runtime.spawn(async move {
            let body = json!({ "copy": id });
            let forgotten = client.post(&url, "/kv/drop", &body);
            if let Err(error) = within("dropping a copy", after, forgotten).await {
                tracing::debug!(worker = &*url, %id, %error, "a copy may be left at the engine");
            }
        });
    }
}

fn wire(prompt: &Prompt) -> Result<WirePrompt<'_>, TransferError> {
    Ok(match prompt {
        Prompt::Ids(ids) => WirePrompt::Ids { ids },
        Prompt::Body { path, body } => WirePrompt::Body {
            path,
            body: serde_json::from_slice(body)
                .map_err(|error| TransferError::internal("the program's last request", error))?,
        },
    })
}

fn read<A: for<'de> Deserialize<'de>>(url: &str, answer: Value) -> Result<A, TransferError> {
    serde_json::from_value(answer)
        .map_err(|error| TransferError::not_taken(url, format!("its answer: {error}")))
}

#[async_trait]
impl KvExecutor for Simulated {
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        let asked = self.abilities(&worker);
        let abilities = within("probing the engine", self.limits.probe, asked).await?;
        Ok(abilities.unwrap_or_else(|| Support::none("it is not a simulated engine")))
    }

    async fn export(&self, export: Export) -> Result<KvCopy, TransferError> {
        within("copying KV out", self.limits.export, self.copy_out(export)).await
    }

    async fn import(&self, import: Import) -> Result<Imported, TransferError> {
        within("copying KV in", self.limits.import, self.copy_in(import)).await
    }

    async fn drop(&self, copy: KvCopy) -> Result<(), TransferError> {
        within("dropping a copy", self.limits.drop, self.forget(&copy)).await
    }
}
