//! llama.cpp: saves slots to files and restores them.
//!
//! The server restores slots under any weights, and damaged files, without an error. So the
//! model is part of the copy, its checksum is compared each time, and the server's state is queried
//! right before and after ([`server_state`]). The server restores a slot's tokens with the KV, and
//! compares prompts with them itself.
//!
//! A slot is not emptied after a save: until the scheduler has been notified of the copy, the slot
//! is the program's, and its next step may be on its way there; after that it is another's. The
//! next program overwrites it, and a server whose slots share one pool of cells takes cells of idle
//! slots for a step that finds none. A save or a restore waits while a step runs in the slot, and
//! is cancelled by closing the connection.

mod server_state;
pub(crate) mod slot_file;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server_state::ServerState;

use crate::client::{EngineClient, within};
use crate::lanes::{Direction, Lanes};
use crate::node::{Nodes, UnkeptAt};
use crate::stream::Link;
use crate::support::{KvInterface, Support};
use crate::tier::{Draft, Plan, Tier, slot_file};
use crate::{
    CopyId, Export, Import, Imported, KvCopy, KvExecutor, Limits, Prefix, Prompt, TransferError,
    WorkerRef,
};

/// The executor for llama.cpp servers.
pub struct LlamaCpp {
    client: EngineClient,
    lanes: Arc<Lanes>,
    limits: Limits,
    nodes: Nodes,
}

impl LlamaCpp {
    /// Keeps copies in `tier`, and authenticates to other nodes with `secret`.
    pub fn new(tier: Tier, secret: Option<Box<str>>, limits: Limits) -> Self {
        let link = Link::new(secret, limits.clone(), tier.evictions().clone());
        Self {
            client: EngineClient::new(&limits),
            lanes: Arc::new(Lanes::new(limits.waiting_max)),
            limits,
            nodes: Nodes { tier, link },
        }
    }

    /// Reads another node's evictions into [`Tier::evictions`].
    pub async fn hear(&self, node: &str) -> Result<(), TransferError> {
        within(
            "reading a node's evictions",
            self.limits.probe,
            self.nodes.link.hear(node),
        )
        .await
    }

    /// Makes another node drop a scheduler's copies except the known ones.
    pub async fn keep_only(
        &self,
        node: &str,
        owner: &str,
        known: &BTreeSet<CopyId>,
    ) -> Result<(), TransferError> {
        let kept = self.nodes.link.keep_only(node, owner, known);
        within("dropping unknown copies of a node", self.limits.drop, kept).await
    }

    /// Requests a save to an invalid file name: servers that can save slots refuse the name, others
    /// report that saving is unsupported.
    async fn probe(&self, worker: &WorkerRef) -> Result<Support, TransferError> {
        let body = Bytes::from_static(br#"{"filename": "/"}"#);
        let (status, _) = self
            .client
            .ask(Method::POST, &worker.url, "/slots/0?action=save", body)
            .await?;
        Ok(match status {
            StatusCode::BAD_REQUEST => Support::full(KvInterface::SlotFiles),
            StatusCode::NOT_IMPLEMENTED => Support::none(
                "the server was started without --slot-save-path; start it with the tier's slots \
                 folder",
            ),
            status => Support::none(format!("it returns {status} for an attempt to save a slot")),
        })
    }

    async fn save(&self, export: Export) -> Result<KvCopy, TransferError> {
        let worker = &export.worker;
        let _turn = self.lanes.enter(&worker.url, Direction::Out).await?;
        let (slot, seen) = self.slot(worker, export.slot).await?;
        let tags = seen.tags(&export.tags)?;
        let plan = Plan {
            model: tags.model.clone(),
            tokens: export.tokens,
        };
        let saving = self
            .nodes
            .saving(worker.node.as_deref(), CopyId::random()?, plan)
            .await?;
        let path = format!("/slots/{slot}?action=save");
        let file = json!({ "filename": slot_file(saving.id()) });
        let answer = self.client.post(&worker.url, &path, &file).await?;
        let tokens = count(&worker.url, &answer, "n_saved")?;
        if tokens == 0 {
            return Err(TransferError::not_taken(&worker.url, "the slot is empty"));
        }
        check_count(tokens, export.tokens)?;
        self.is_still(&worker.url, &seen).await?;
        let ids = export.prompt.as_ref().and_then(Prompt::ids);
        let draft = Draft {
            program: export.program,
            owner: export.owner,
            tags,
            bytes: count(&worker.url, &answer, "n_written")?,
            tokens,
            known_tokens: ids.map_or(0, |ids| ids.len() as u64),
        };
        let unkept = saving.adopt(draft).await?;
        if let Some(ids) = ids {
            check_head(&unkept, ids)?;
        }
        let copy = unkept.copy().clone();
        match unkept.keep().await {
            // The copy may have been kept, with only the confirmation lost.
            Err(error) => {
                let removed = within(
                    "dropping a copy",
                    self.limits.drop,
                    self.nodes.remove(&copy),
                );
                let _ = removed.await;
                Err(error)
            }
            kept => kept,
        }
    }

    async fn restore(&self, import: Import) -> Result<Imported, TransferError> {
        import.check()?;
        let (worker, copy) = (&import.worker, &import.copy);
        let _turn = self.lanes.enter(&worker.url, Direction::In).await?;
        let (slot, seen) = self.slot(worker, import.slot).await?;
        seen.computed(copy, &import.tags)?;
        let name = CopyId::random()?;
        let _staged = self.nodes.stage(worker.node.as_deref(), copy, name).await?;
        let path = format!("/slots/{slot}?action=restore");
        let file = json!({ "filename": slot_file(name) });
        // The response may be lost after a successful restore, by whichever server is there by now.
        let taken = match self.client.post(&worker.url, &path, &file).await {
            Ok(answer) => self.taken(&worker.url, copy, &answer, &seen).await,
            Err(error) => Err(error),
        };
        if taken.is_err() {
            self.empty(&worker.url, slot).await;
        }
        taken
    }

    /// The result of a restore, if it restored the copy and the weights are the expected ones.
    async fn taken(
        &self,
        url: &str,
        copy: &KvCopy,
        answer: &Value,
        before: &ServerState,
    ) -> Result<Imported, TransferError> {
        let tokens = count(url, answer, "n_restored")?;
        let bytes = count(url, answer, "n_read")?;
        if tokens != copy.prefix.tokens || bytes != copy.bytes {
            let why = format!(
                "it restored {tokens} tokens from {bytes} bytes, not {} from {}",
                copy.prefix.tokens, copy.bytes
            );
            return Err(TransferError::not_taken(url, why));
        }
        self.is_still(url, before).await?;
        Ok(Imported { tokens, bytes })
    }

    /// Fails if the server has changed since `before`.
    async fn is_still(&self, url: &str, before: &ServerState) -> Result<(), TransferError> {
        ServerState::at(&self.client, url).await?.same(url, before)
    }

    /// Checks that the slot exists, because the server accepts any number; returns the server's
    /// state.
    async fn slot(
        &self,
        worker: &WorkerRef,
        slot: Option<u32>,
    ) -> Result<(u32, ServerState), TransferError> {
        let slot = slot.ok_or(TransferError::Incomplete {
            field: "slot",
            why: "llama.cpp keeps KV in slots",
        })?;
        let seen = ServerState::at(&self.client, &worker.url).await?;
        if u64::from(slot) >= seen.slots {
            let why = format!("it has {} slots, but no slot {slot}", seen.slots);
            return Err(TransferError::unsupported(&worker.url, why));
        }
        Ok((slot, seen))
    }

    /// Empties a slot with the wrong content. A server that is gone has no slots either.
    async fn empty(&self, url: &str, slot: u32) {
        let path = format!("/slots/{slot}?action=erase");
        let body = json!({});
        let erased = self.client.post(url, &path, &body);
        if let Err(error) = within("emptying a slot", self.limits.idle, erased).await {
            tracing::warn!(worker = url, slot, %error, "could not empty the slot");
        }
    }
}

/// Checks that the slot held the program's tokens, as far as they are known.
fn check_head(unkept: &UnkeptAt, ids: &[u32]) -> Result<(), TransferError> {
    let Some(head) = unkept.head() else {
        return Ok(());
    };
    let tokens = usize::try_from(head.tokens).unwrap_or(usize::MAX);
    if ids.get(..tokens).map(Prefix::of).as_ref() == Some(head) {
        return Ok(());
    }
    Err(TransferError::OtherPrefix {
        why: format!("the slot's first {tokens} tokens differ").into(),
    })
}

/// Checks the plausibility of a slot's token count. The scheduler's count may be an estimate if an
/// engine did not report it, but the slot of another program usually differs much more.
fn check_count(saved: u64, expected: u64) -> Result<(), TransferError> {
    let within_twice = saved <= expected.saturating_mul(2) && expected <= saved.saturating_mul(2);
    if expected == 0 || within_twice {
        return Ok(());
    }
    Err(TransferError::OtherPrefix {
        why: format!("the slot has {saved} tokens, the program about {expected}").into(),
    })
}

fn count(url: &str, answer: &Value, field: &'static str) -> Result<u64, TransferError> {
    answer[field]
        .as_u64()
        .ok_or_else(|| TransferError::not_taken(url, format!("its response has no `{field}`")))
}

#[async_trait]
impl KvExecutor for LlamaCpp {
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        within("probing the engine", self.limits.probe, self.probe(&worker)).await
    }

    async fn export(&self, export: Export) -> Result<KvCopy, TransferError> {
        let saving = Box::pin(self.save(export));
        within("saving a slot", self.limits.export, saving).await
    }

    async fn import(&self, import: Import) -> Result<Imported, TransferError> {
        within("restoring a slot", self.limits.import, self.restore(import)).await
    }

    async fn drop(&self, copy: KvCopy) -> Result<(), TransferError> {
        let removed = self.nodes.remove(&copy);
        within("dropping a copy", self.limits.drop, removed).await
    }
}
