//! What SGLang wants besides the calls of a trainer, so that trainers of another generation work.

use crate::answers::Reply;
use crate::calls::{Engine, Run, refusal};
use crate::relayed::Relayed;
use axum::http::Method;
use serde_json::{Value, json};
use treadle_core::weights::{Answer, Extent, Phase, TrainerCall};
use treadle_model::{EngineKind, WorkerId};
use treadle_wire::ErrorCode;

/// Parts that servers from 0.5.23 on take only between a begin and an end, which older servers and
/// the trainers made for them don't have.
const IN_SESSION: [&str; 2] = [
    "/update_weights_from_distributed",
    "/update_weights_from_tensor",
];
/// What fails on the server with ranks of data parallelism, after it has begun.
const OF_ONE_RANK: [&str; 5] = [
    "/begin_weight_update",
    "/init_weights_update_group",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/update_weights_from_tensor",
];

impl Relayed {
    /// A version that is named aborts all requests of SGLang, unless the call says otherwise.
    pub(crate) fn keeping_requests(&self, kind: EngineKind) -> Self {
        if kind != EngineKind::Sglang || self.path != "/update_weight_version" {
            return self.clone();
        }
        let Ok(Value::Object(mut page)) = self.page() else {
            return self.clone();
        };
        page.entry("abort_all_requests").or_insert(false.into());
        self.with(&page.into())
    }
}

impl Run {
    /// Refuses what the engine would fail at, before it is torn by that.
    pub(crate) async fn check_ranks(
        &self,
        engine: &Engine,
        relayed: &Relayed,
    ) -> Result<(), Reply> {
        let concerns = engine.kind == EngineKind::Sglang && OF_ONE_RANK.contains(&relayed.path);
        if !concerns || self.is_under_way(engine).await? {
            return Ok(());
        }
        let page = self.page(engine, "/server_info").await.unwrap_or_default();
        match refused_for_ranks(engine.worker, relayed.path, &page) {
            Some(message) => Err(Reply::refused(ErrorCode::WeightsConflict, message)),
            None => Ok(()),
        }
    }

    /// Whether a part of an update has gone there before.
    async fn is_under_way(&self, engine: &Engine) -> Result<bool, Reply> {
        let known = self.known(engine.worker).await?;
        let extent = known.map(|known| known.trainer.extent);
        Ok(matches!(
            extent,
            Some(Extent::Open | Extent::Own | Extent::Parts)
        ))
    }

    /// Begins an update for a trainer that does not, before its first part. A server that has no
    /// such call needs none.
    pub(crate) async fn open(
        &self,
        engine: &Engine,
        relayed: &Relayed,
        all: bool,
    ) -> Result<(), Reply> {
        let wants = engine.kind == EngineKind::Sglang && IN_SESSION.contains(&relayed.path);
        if !wants || self.is_under_way(engine).await? {
            return Ok(());
        }
        let call = TrainerCall::BeginOwn;
        if self.begin(engine, &call, all).await?.is_err() {
            // The part itself is refused then, with the reason.
            return Ok(());
        }
        self.abandon(engine).await?;
        let begin = Relayed::own(Method::POST, "/begin_weight_update").with(&json!({}));
        let reply = self.send_while_there(engine, &begin).await;
        let answer = reply.meaning(&call);
        self.ended(engine, answer.clone()).await?;
        match answer {
            Answer::Failed { .. } => Err(reply),
            _ => Ok(()),
        }
    }

    /// Ends the update that was begun for a trainer, before it resumes the engine.
    pub(crate) async fn close(&self, engine: &Engine) -> Result<(), Reply> {
        let known = self.known(engine.worker).await?;
        let is_open = known.is_some_and(|known| {
            known.trainer.extent == Extent::Own && known.phase == Phase::Paused
        });
        if !is_open {
            return Ok(());
        }
        let call = TrainerCall::End { name: None };
        let begun = self.begin(engine, &call, false).await?;
        begun.map_err(|error| refusal(&error))?;
        let reply = self
            .send_while_there(engine, &Relayed::end_of_session())
            .await;
        // One that fails has torn the engine, which the resume is told.
        self.ended(engine, reply.meaning(&call)).await
    }
}

/// Why a server with these settings can't be updated by a call.
fn refused_for_ranks(worker: WorkerId, path: &str, info: &Value) -> Option<String> {
    let ranks = info["dp_size"].as_u64().unwrap_or(1);
    if ranks < 2 || info["enable_dp_attention"] == true {
        return None;
    }
    Some(format!(
        "{worker} has {ranks} ranks of data parallelism, for which SGLang has no {path}; start it \
         with --enable-dp-attention, run a server for each rank, or update it from a disk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_without_aborting_requests() {
        let sent = |kind, path, page: Value| {
            let relayed = Relayed::own(Method::POST, path).with(&page);
            relayed.keeping_requests(kind).page().expect("is JSON")
        };
        let named = || json!({"new_version": "7"});
        let path = "/update_weight_version";
        let kept = json!({"new_version": "7", "abort_all_requests": false});
        assert_eq!(sent(EngineKind::Sglang, path, named()), kept);
        let wanted = json!({"new_version": "7", "abort_all_requests": true});
        assert_eq!(sent(EngineKind::Sglang, path, wanted.clone()), wanted);
        assert_eq!(sent(EngineKind::Vllm, path, named()), named());
        assert_eq!(
            sent(EngineKind::Sglang, "/continue_generation", json!({})),
            json!({})
        );
    }

    #[test]
    fn ranks_that_sglang_can_not_update_are_refused_before() {
        let refused = |info: Value| {
            let path = "/update_weights_from_tensor";
            refused_for_ranks(WorkerId(0), path, &info)
        };
        let why = refused(json!({"dp_size": 2, "enable_dp_attention": false}));
        let why = why.expect("is refused");
        assert!(why.contains("2 ranks of data parallelism"), "{why}");
        assert!(why.contains("--enable-dp-attention"), "{why}");
        assert_eq!(
            refused(json!({"dp_size": 2, "enable_dp_attention": true})),
            None
        );
        assert_eq!(refused(json!({"dp_size": 1})), None);
        assert_eq!(refused(json!({})), None, "an older server");
    }
}
