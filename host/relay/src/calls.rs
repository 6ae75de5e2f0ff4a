//! One call of a trainer to one engine.

use crate::RelayApp;
use crate::answers::{Reply, gather};
use crate::paths::Does;
use crate::relayed::Relayed;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use treadle_auth::{Auth, Caller, Change};
use treadle_core::PublishError;
use treadle_core::weights::{
    Answer, Call, Holding, Phase, State, Trainer, TrainerCall, Weights, WeightsError, WeightsEvent,
};
use treadle_http::{Bounded, InUse, Upstream, UpstreamError};
use treadle_model::{ClientName, EngineKind, WorkerId, endpoint_of};
use treadle_scheduler::DriverHandle;
use treadle_weights::engines;
use treadle_wire::{ErrorBody, ErrorCode};

/// How often an engine that proves what it has is looked at, if nothing is heard of it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often it is looked whether an engine is lost that is being called.
const LOOK_FOR_LOSS: Duration = Duration::from_secs(1);

/// A job's run, as far as calls to its engines concern it.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) driver: DriverHandle,
    upstream: Upstream,
    answers: Bounded,
    auth: Arc<Auth>,
    caller: Caller,
    own: ClientName,
    /// The job, by the core's name.
    pub(crate) job: Box<str>,
    lineage: u32,
}

/// Where an engine is.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) worker: WorkerId,
    pub(crate) url: String,
    pub(crate) kind: EngineKind,
}

/// What the core knows of an engine.
pub(crate) struct Known {
    pub(crate) phase: Phase,
    /// What its trainer is doing to it.
    pub(crate) trainer: Trainer,
    /// An update may have begun there and not ended.
    may_be_open: bool,
    waits_for_cuts: bool,
    cause: String,
    version: Option<Weights>,
}

impl Known {
    fn of(holding: &Holding) -> Self {
        Self {
            phase: holding.phase,
            trainer: holding.trainer.clone().unwrap_or_default(),
            may_be_open: holding.may_be_open(),
            waits_for_cuts: holding.cuts_until.is_some(),
            cause: holding.cause.clone().unwrap_or_default().into(),
            version: holding.held.clone(),
        }
    }
}

pub(crate) fn stopped() -> ErrorBody {
    ErrorBody::new(ErrorCode::Overloaded, "treadle is shutting down")
}

/// The refusal of a call by the core.
pub(crate) fn refusal(error: &PublishError) -> Reply {
    let PublishError::Engines(error) = error else {
        return Reply::refused(ErrorCode::WeightsConflict, error.to_string());
    };
    match error {
        WeightsError::Name => Reply::refused(ErrorCode::InvalidField, error.to_string()),
        WeightsError::UnknownWorker(_) => {
            Reply::refused(ErrorCode::WorkerUnknown, error.to_string())
        }
        // Another tenant's job is not named.
        WeightsError::OtherJob { worker, .. } => Reply::refused(
            ErrorCode::WeightsConflict,
            format!("{worker} has the weights of another job; release them first"),
        ),
        _ => Reply::refused(ErrorCode::WeightsConflict, error.to_string()),
    }
}

impl Run {
    pub(crate) async fn of(
        app: &RelayApp,
        caller: &Caller,
        own: ClientName,
    ) -> Result<Self, ErrorBody> {
        let job: Box<str> = caller.principal.inside(&own).into();
        let name = job.clone();
        let lineage = app
            .driver
            .training(move |state| state.jobs.get(&name).map_or(0, |job| job.lineage));
        Ok(Self {
            lineage: lineage.await.map_err(|_| stopped())?,
            driver: app.driver.clone(),
            upstream: app.upstream.clone(),
            answers: app.answers.clone(),
            auth: app.auth.clone(),
            caller: caller.clone(),
            own,
            job,
        })
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Reply> {
        let read = self.driver.weights(read).await;
        read.map_err(|_| Reply::error(&stopped()))
    }

    pub(crate) async fn known(&self, worker: WorkerId) -> Result<Option<Known>, Reply> {
        self.read(move |state| state.holding(worker).map(Known::of))
            .await
    }

    /// Makes a call to one engine; `all` if the trainer calls all of them.
    pub(crate) async fn call_one(&self, worker: WorkerId, relayed: &Relayed, all: bool) -> Reply {
        let Ok(found) = self.driver.worker(worker).await else {
            return Reply::error(&stopped());
        };
        let Some(found) = found else {
            let message = format!("{worker} is not registered; `treadle workers` lists engines");
            return Reply::refused(ErrorCode::WorkerUnknown, message);
        };
        let engine = Engine {
            worker,
            url: endpoint_of(&found.url).0.to_owned(),
            kind: found.engine,
        };
        let called = self.called(&engine, relayed, all).await;
        called.unwrap_or_else(|refusal| refusal)
    }

    async fn called(&self, engine: &Engine, relayed: &Relayed, all: bool) -> Result<Reply, Reply> {
        let relayed = &relayed.keeping_requests(engine.kind);
        self.check_ranks(engine, relayed).await?;
        self.check_group(relayed).await?;
        match &relayed.call {
            None => {
                if relayed.method != Method::GET {
                    self.check_own(engine).await?;
                }
                if relayed.does == Does::Memory {
                    self.check_paused(engine).await?;
                }
                Ok(self.send(engine, relayed).await)
            }
            Some(TrainerCall::Resume) => {
                self.close(engine).await?;
                self.resume(engine, Some(relayed)).await
            }
            Some(call) => {
                self.open(engine, relayed, all).await?;
                self.begin_paused(engine, call, all).await?;
                match call {
                    TrainerCall::Begin => self.abandon(engine).await?,
                    TrainerCall::Pause { .. } => self.await_cuts(engine).await?,
                    _ => {}
                }
                let reply = self.send_while_there(engine, relayed).await;
                let reply = reply.corrected();
                self.ended(engine, reply.meaning(call)).await?;
                self.resume_own(engine, call, reply).await
            }
        }
    }

    /// Records a call that is about to be made.
    pub(crate) async fn begin(
        &self,
        engine: &Engine,
        call: &TrainerCall,
        all: bool,
    ) -> Result<Result<(), PublishError>, Reply> {
        let event = WeightsEvent::WeightsRelayed {
            job: self.job.clone(),
            worker: engine.worker,
            lineage: self.lineage,
            all,
            call: call.clone(),
        };
        self.publish(event).await
    }

    async fn publish(&self, event: WeightsEvent) -> Result<Result<(), PublishError>, Reply> {
        let published = self.driver.publish(event).await;
        published.map_err(|error| Reply::refused(ErrorCode::Internal, error.to_string()))
    }

    pub(crate) async fn ended(&self, engine: &Engine, answer: Answer) -> Result<(), Reply> {
        if let Answer::Failed { cause } | Answer::Refused { cause } = &answer {
            tracing::warn!(job = %self.job, worker = %engine.worker, %cause,
                "a trainer's call to an engine");
        }
        let event = WeightsEvent::WeightsRelayEnded {
            job: self.job.clone(),
            worker: engine.worker,
            answer,
        };
        let ended = self.publish(event).await?;
        ended.map_err(|error| refusal(&error))
    }

    /// Waits until steps that were cut have ended: some engines crash if a request is aborted while
    /// they are paused.
    async fn await_cuts(&self, engine: &Engine) -> Result<(), Reply> {
        let mut changes = self.driver.training_changes();
        loop {
            changes.mark_unchanged();
            let known = self.known(engine.worker).await?;
            if known.is_none_or(|known| !known.waits_for_cuts) {
                return Ok(());
            }
            let _ = timeout(LOOK_AGAIN, changes.changed()).await;
        }
    }

    /// Records a call that is about to be made. treadle pauses an engine that its trainer did not,
    /// if the call shows when the update ends.
    async fn begin_paused(
        &self,
        engine: &Engine,
        call: &TrainerCall,
        all: bool,
    ) -> Result<(), Reply> {
        let shows_its_end = matches!(call, TrainerCall::Begin | TrainerCall::Load { .. });
        match self.begin(engine, call, all).await? {
            Ok(()) => return Ok(()),
            Err(PublishError::Engines(WeightsError::NotPaused(_))) if shows_its_end => {}
            Err(error) => return Err(refusal(&error)),
        }
        let pause = TrainerCall::Pause { own: true };
        let begun = self.begin(engine, &pause, all).await?;
        begun.map_err(|error| refusal(&error))?;
        self.await_cuts(engine).await?;
        let answer = self.pause(engine).await;
        self.ended(engine, answer.clone()).await?;
        if let Answer::Refused { cause } | Answer::Failed { cause } = answer {
            let message = format!("{} could not be paused: {cause}", engine.worker);
            return Err(Reply::refused(ErrorCode::WeightsConflict, message));
        }
        let begun = self.begin(engine, call, all).await?;
        begun.map_err(|error| refusal(&error))
    }

    /// Ends an update that its trainer gave up, or that broke off: engines begin no other before.
    /// What comes of it does not matter, because all weights are sent again.
    pub(crate) async fn abandon(&self, engine: &Engine) -> Result<(), Reply> {
        let known = self.known(engine.worker).await?;
        if known.is_some_and(|known| known.may_be_open) {
            let end = match engine.kind {
                EngineKind::Sglang => Relayed::end_of_session(),
                _ => Relayed::own(Method::POST, "/finish_weight_update"),
            };
            self.send(engine, &end).await;
        }
        Ok(())
    }

    async fn pause(&self, engine: &Engine) -> Answer {
        let own = engines::Engine {
            upstream: &self.upstream,
            url: &engine.url,
            kind: engine.kind,
        };
        // The version does not matter to a pause.
        let weights = Weights {
            lineage: 0,
            version: 0,
            name: "".into(),
            folder: "".into(),
        };
        engines::call(own, Call::Pause, &weights).await
    }

    /// An engine that treadle paused for its trainer generates again after the last call.
    async fn resume_own(
        &self,
        engine: &Engine,
        call: &TrainerCall,
        reply: Reply,
    ) -> Result<Reply, Reply> {
        let is_last = matches!(call, TrainerCall::End { .. } | TrainerCall::Load { .. });
        let known = self.known(engine.worker).await?;
        let is_own = known.is_some_and(|known| known.trainer.paused_by_treadle);
        if !reply.is_success() || !is_last || !is_own {
            return Ok(reply);
        }
        let resumed = self.resume(engine, None).await?;
        Ok(if resumed.is_success() { reply } else { resumed })
    }

    /// What is not recorded may disturb an engine too: only the job whose weights it has may ask.
    async fn check_own(&self, engine: &Engine) -> Result<(), Reply> {
        let worker = engine.worker;
        let owner = self.read(move |state| state.owner(worker).map(str::to_owned));
        match owner.await? {
            Some(owner) if *owner != *self.job => {
                let job = owner.into();
                let error = WeightsError::OtherJob { worker, job };
                Err(refusal(&PublishError::Engines(error)))
            }
            _ => Ok(()),
        }
    }

    async fn check_paused(&self, engine: &Engine) -> Result<(), Reply> {
        let known = self.known(engine.worker).await?;
        if known.is_some_and(|known| known.phase != Phase::Held) {
            return Ok(());
        }
        let error = WeightsError::NotPaused(engine.worker);
        Err(refusal(&PublishError::Engines(error)))
    }

    /// Has an engine prove what it has, and generate again. One that treadle has no part in is
    /// resumed by the trainer's own call.
    async fn resume(&self, engine: &Engine, relayed: Option<&Relayed>) -> Result<Reply, Reply> {
        let begun = self.begin(engine, &TrainerCall::Resume, false).await?;
        begun.map_err(|error| refusal(&error))?;
        let known = self.known(engine.worker).await?;
        let is_held = known.is_none_or(|known| known.phase == Phase::Held);
        if let Some(relayed) = relayed.filter(|_| is_held) {
            return Ok(self.send(engine, relayed).await);
        }
        let mut changes = self.driver.training_changes();
        loop {
            changes.mark_unchanged();
            let known = self.known(engine.worker).await?;
            match known {
                Some(known) if known.phase == Phase::Held => {
                    self.note(engine, &known).await;
                    return Ok(Reply::resumed(engine.kind));
                }
                Some(known) if !is_proving(known.phase) => {
                    let error = WeightsError::Torn {
                        worker: engine.worker,
                        cause: known.cause.into(),
                    };
                    return Err(refusal(&PublishError::Engines(error)));
                }
                Some(_) => {}
                None => {
                    // Its job was released meanwhile: it serves what it has.
                    if self.is_there(engine).await {
                        return Ok(Reply::resumed(engine.kind));
                    }
                    let error = WeightsError::UnknownWorker(engine.worker);
                    return Err(refusal(&PublishError::Engines(error)));
                }
            }
            let _ = timeout(LOOK_AGAIN, changes.changed()).await;
        }
    }

    async fn is_there(&self, engine: &Engine) -> bool {
        let worker = self.driver.worker(engine.worker).await;
        matches!(worker, Ok(Some(worker)) if worker.is_healthy())
    }

    async fn note(&self, engine: &Engine, known: &Known) {
        let version = known.version.as_ref();
        let version = version.map(|v| json!({"version": v.version, "name": v.name}));
        let change = Change {
            action: "weights.relayed",
            target: &self.own,
            before: Value::Null,
            after: json!({"worker": engine.worker.0, "version": version}),
        };
        self.auth.audit.note(&self.caller, change).await;
    }

    /// Makes a call that no other may overtake. It is given up once its engine is lost: there may
    /// never be an answer then.
    pub(crate) async fn send_while_there(&self, engine: &Engine, relayed: &Relayed) -> Reply {
        let lost = async {
            let answers = async || self.driver.worker(engine.worker).await;
            while let Ok(Some(worker)) = answers().await
                && worker.is_healthy()
            {
                sleep(LOOK_FOR_LOSS).await;
            }
        };
        tokio::select! {
            biased;
            reply = self.send(engine, relayed) => reply,
            () = lost => Reply::lost("the engine stopped answering"),
        }
    }

    /// Makes the call itself, once and without a timeout: a transfer takes as long as it takes.
    pub(crate) async fn send(&self, engine: &Engine, relayed: &Relayed) -> Reply {
        let path = match &relayed.query {
            Some(query) => format!("{}?{query}", relayed.path),
            None => relayed.path.to_owned(),
        };
        let (method, body) = (relayed.method.clone(), relayed.body.clone());
        let sent = self
            .upstream
            .send(method, &engine.url, &path, &relayed.headers, body)
            .await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(UpstreamError::Broken(cause)) => return Reply::lost(&cause),
            Err(error) => return Reply::refused(ErrorCode::EngineUnreachable, error.to_string()),
        };
        let (head, body) = answer.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).cloned();
        let room = InUse::new([self.answers.clone()]);
        match gather(Body::new(body), room).await {
            Ok(body) => Reply {
                status: head.status,
                kind: kind.unwrap_or(HeaderValue::from_static("application/json")),
                body,
                is_own: false,
            },
            Err(cause) => Reply::lost(&cause),
        }
    }

    /// Asks an engine for a page.
    pub(crate) async fn page(&self, engine: &Engine, path: &'static str) -> Result<Value, Reply> {
        let relayed = Relayed::own(Method::GET, path);
        let reply = self.send(engine, &relayed).await;
        if reply.is_success() {
            return Ok(reply.page());
        }
        Err(reply)
    }
}

fn is_proving(phase: Phase) -> bool {
    matches!(phase, Phase::Verifying | Phase::Clearing | Phase::Resuming)
}
