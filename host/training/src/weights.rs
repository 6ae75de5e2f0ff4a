//! Versions of weights that treadle loads into the engines of a job.

use crate::app::{JobName, TrainingApp, stopped, wait_of};
use crate::refusal::{REFUSALS, not_recorded, refused_weights};
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use treadle_auth::permissions::{ENGINES, VIEW};
use treadle_auth::{Caller, Change, now_us};
use treadle_core::weights::{
    EndedUpdate, Holding, State as Weighed, Unanswered, Update, UpdatePlan, Weights, WeightsEvent,
};
use treadle_endpoints::arguments::{Body, InPath, Query};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, delete, get, post};
use treadle_http::refuse;
use treadle_model::{Timestamp, WorkerId};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// How often an update is looked at that nothing was heard of.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Longest path of a folder with weights.
const FOLDER_BYTES_MAX: usize = 4_096;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    let weights = "/api/v1/jobs/{job}/weights";
    vec![
        get(weights, VIEW, show)
            .summary("Which version the engines of a job hold, and the update that is under way")
            .details("`wait_s` waits until no update is under way, at most 60.")
            .fails(&[ErrorCode::JobUnknown, ErrorCode::WeightsUnknown]),
        post(weights, ENGINES, publish)
            .summary("Has the engines of a job load a version of its weights")
            .details("The same request again changes nothing. docs/weights.md has the order.")
            .fails(REFUSALS)
            .fails(&[
                ErrorCode::WeightsConflict,
                ErrorCode::WorkerUnknown,
                ErrorCode::WeightsUnknown,
            ]),
        delete(weights, ENGINES, release)
            .summary("Ends that treadle loads a job's weights: its engines serve what they have")
            .fails(REFUSALS)
            .fails(&[ErrorCode::WeightsUnknown]),
    ]
}

/// A version to load.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PublishWeights {
    /// Its number: on how many batches it was trained.
    version: u64,
    /// The lineage that the trainer is in; the job's if it is left out.
    lineage: Option<u32>,
    /// Its name in the engines' answers, 1 to 64 bytes; `LINEAGE.VERSION` if it is left out.
    name: Option<String>,
    /// A folder that each engine can read, by its absolute path: whole weights, as the engine's
    /// software loads them. If it is left out, the version is pulled from the store.
    folder: Option<String>,
    /// Ids of the engines, each by its first rank; all if it is left out. It is chosen with the
    /// first version.
    #[serde(default)]
    workers: Vec<u32>,
    /// Engines that must be ready before the first is paused; more than half if it is 0 or left
    /// out.
    #[serde(default)]
    quorum: u16,
    /// Seconds that engines have to become ready; 600 if it is left out.
    ready_s: Option<u64>,
    /// One engine after the other.
    #[serde(default)]
    rolling: bool,
}

/// How long to wait.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WeightsQuery {
    /// Seconds to wait until no update is under way; default 0, at most 60.
    wait_s: Option<u64>,
}

/// The weights of a job's engines.
#[derive(Serialize, ToSchema)]
struct JobWeightsView {
    /// The job.
    job: String,
    /// The version in service; null before the first, and after the trainer went back.
    serving: Option<WeightsView>,
    /// The update that is under way.
    update: Option<UpdateView>,
    /// The last update that ended.
    last: Option<EndedUpdateView>,
    /// Its engines.
    workers: Vec<HoldingView>,
}

/// A version.
#[derive(Serialize, ToSchema)]
struct WeightsView {
    /// Its number.
    version: u64,
    /// Its lineage.
    lineage: u32,
    /// Its name in the engines' answers.
    name: String,
    /// The folder that engines load it from.
    folder: String,
}

/// An update that is under way.
#[derive(Serialize, ToSchema)]
struct UpdateView {
    /// The version.
    weights: WeightsView,
    /// preparing, cutting, loading or resuming; driven if the job's trainer does it.
    stage: &'static str,
    /// One engine after the other.
    rolling: bool,
    /// Engines that take part.
    workers: usize,
    /// Those that were left behind.
    behind: Vec<BehindView>,
}

/// An update that ended.
#[derive(Serialize, ToSchema)]
struct EndedUpdateView {
    /// The version.
    weights: WeightsView,
    /// Engines that served it at the end; 0 if the update failed.
    held: u32,
    /// Seconds from its beginning to its end.
    took_s: f64,
    /// Seconds during which no step began because of it.
    exposed_s: f64,
    /// Engines that were left behind.
    behind: Vec<BehindView>,
}

/// An engine that was left behind by an update.
#[derive(Serialize, ToSchema)]
struct BehindView {
    /// Its id.
    worker: u32,
    /// Why.
    cause: String,
}

/// What an engine holds.
#[derive(Serialize, ToSchema)]
struct HoldingView {
    /// Its id.
    worker: u32,
    /// held, ready, paused, verifying, clearing, resuming, torn or unknown.
    state: &'static str,
    /// The version that it was last proven to have; null is what it came with.
    held: Option<WeightsView>,
    /// Whether it gets no steps because of its weights.
    fenced: bool,
    /// Why.
    cause: Option<String>,
    /// The call that is under way: prepare, pause, apply, verify, clear or resume; of the job's
    /// trainer pause, begin, part, end or load.
    call: Option<&'static str>,
    /// When it was made, in microseconds since 1970.
    called_at_us: Option<u64>,
}

impl WeightsView {
    fn of(weights: &Weights) -> Self {
        Self {
            version: weights.version,
            lineage: weights.lineage,
            name: weights.name.to_string(),
            folder: weights.folder.to_string(),
        }
    }
}

fn behind<'b>(behind: impl IntoIterator<Item = (&'b WorkerId, &'b Box<str>)>) -> Vec<BehindView> {
    let behind = behind.into_iter().map(|(worker, cause)| BehindView {
        worker: worker.0,
        cause: cause.to_string(),
    });
    behind.collect()
}

impl UpdateView {
    fn of(update: &Update) -> Self {
        Self {
            weights: WeightsView::of(&update.weights),
            stage: update.stage.as_str(),
            rolling: update.plan.rolling,
            workers: update.workers.len(),
            behind: behind(&update.behind),
        }
    }
}

impl EndedUpdateView {
    fn of(ended: &EndedUpdate) -> Self {
        Self {
            weights: WeightsView::of(&ended.weights),
            held: ended.held,
            took_s: ended.ended.since(ended.began).secs_f64(),
            exposed_s: ended.exposed.secs_f64(),
            behind: behind(&ended.behind),
        }
    }
}

impl HoldingView {
    fn of(worker: WorkerId, holding: &Holding, state: &Weighed, now: Timestamp) -> Self {
        let unanswered = holding.unanswered();
        let cause = state.why_fenced(worker).or(holding.cause.clone());
        let cause = cause.map(|why| match unanswered {
            Some(Unanswered { call, since }) => {
                let seconds = now.since(since).secs_f64();
                format!("{why}; `{call}` has not been answered for {seconds:.0} s")
            }
            None => why.into(),
        });
        Self {
            worker: worker.0,
            state: holding.state_name(),
            held: holding.held.as_ref().map(WeightsView::of),
            fenced: state.fenced.contains(&worker),
            cause,
            call: unanswered.map(|waits| waits.call),
            called_at_us: unanswered.map(|waits| waits.since.0),
        }
    }
}

impl JobWeightsView {
    fn of(name: &JobName, state: &Weighed) -> Option<Self> {
        let job = state.job(&name.inside)?;
        // Of one that was released only the engines matter that get no steps.
        let is_released = !state.jobs.contains_key(&name.inside);
        let update = job.update.as_ref().filter(|_| !is_released);
        let serving = job.serving.as_ref().filter(|_| !is_released);
        let workers = state.of_job(&name.inside);
        let now = Timestamp(now_us());
        Some(Self {
            job: name.own.to_string(),
            serving: serving.map(WeightsView::of),
            update: update.map(UpdateView::of),
            last: job.last.as_ref().map(EndedUpdateView::of),
            workers: workers
                .map(|(worker, holding)| HoldingView::of(worker, holding, state, now))
                .collect(),
        })
    }
}

async fn view(app: &TrainingApp, job: &JobName) -> Result<JobWeightsView, Response> {
    let name = job.clone();
    let read = app
        .driver
        .weights(move |state| JobWeightsView::of(&name, state));
    let found = read.await.map_err(|_| stopped())?;
    found.ok_or_else(|| {
        let message = format!(
            "treadle loads no weights for job `{}`; publish a version with POST \
             /api/v1/jobs/{}/weights",
            job.own, job.own
        );
        refuse(ErrorCode::WeightsUnknown, message)
    })
}

async fn show(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Query(query): Query<WeightsQuery>,
) -> Answer<JobWeightsView> {
    let job = JobName::of(&caller, job);
    let deadline = Instant::now() + wait_of(query.wait_s);
    let mut changes = app.driver.training_changes();
    loop {
        changes.mark_unchanged();
        let found = view(&app, &job).await;
        if found.is_err() {
            app.read_job(&job, |_| ()).await?;
        }
        // A trainer that treadle relays for need not declare its job.
        let view = found?;
        if view.update.is_none() || Instant::now() >= deadline {
            return Ok(Json(view));
        }
        // It may also end with an engine that is lost, or with the time to become ready.
        let next = deadline.min(Instant::now() + LOOK_AGAIN);
        let _ = timeout_at(next, changes.changed()).await;
    }
}

async fn publish(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<PublishWeights>,
) -> Answer<JobWeightsView> {
    let job = JobName::of(&caller, job);
    let lineage = app.lineage(&job, request.lineage).await?;
    let version = request.version;
    let folder = match request.folder {
        Some(folder) => folder,
        None => app.stored_folder(&job, lineage, version).await?,
    };
    check_folder(&folder)?;
    let name = request
        .name
        .unwrap_or_else(|| format!("{lineage}.{version}"));
    let weights = Weights {
        lineage,
        version,
        name: name.into(),
        folder: folder.into(),
    };
    let change = Change {
        action: "weights.published",
        target: &job.own,
        before: Value::Null,
        after: json!({"version": version, "lineage": lineage, "folder": weights.folder}),
    };
    let workers: BTreeSet<WorkerId> = request.workers.into_iter().map(WorkerId).collect();
    let ready_s = request.ready_s.unwrap_or(UpdatePlan::default().ready_s);
    let event = WeightsEvent::WeightsPublished {
        job: job.inside.clone(),
        weights,
        workers: workers.into_iter().collect(),
        plan: UpdatePlan {
            quorum: request.quorum,
            ready_s,
            rolling: request.rolling,
        },
    };
    handle(&app, event).await?;
    app.auth.audit.note(&caller, change).await;
    Ok(Json(view(&app, &job).await?))
}

async fn release(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
) -> Answer<Value> {
    let job = JobName::of(&caller, job);
    let event = WeightsEvent::WeightsReleased {
        job: job.inside.clone(),
    };
    handle(&app, event).await?;
    let change = Change {
        action: "weights.released",
        target: &job.own,
        before: Value::Null,
        after: Value::Null,
    };
    app.auth.audit.note(&caller, change).await;
    Ok(Json(json!({"job": job.own, "released": true})))
}

async fn handle(app: &TrainingApp, event: WeightsEvent) -> Result<(), Response> {
    let handled = app.driver.publish(event).await.map_err(not_recorded)?;
    handled.map_err(|error| refused_weights(&error))
}

/// Engines open it, wherever they run.
fn check_folder(folder: &str) -> Result<(), Response> {
    let is_plain = |part: &str| !matches!(part, "." | "..");
    let is_path = folder.starts_with('/')
        && folder.len() <= FOLDER_BYTES_MAX
        && !folder.contains(char::is_control)
        && folder.split('/').all(is_plain);
    if is_path {
        return Ok(());
    }
    let message = format!(
        "`folder` must be an absolute path without `.` and `..`, of at most {FOLDER_BYTES_MAX} \
         bytes, as the engines see it"
    );
    Err(refuse(ErrorCode::InvalidField, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_names_a_call_that_hangs() {
        let fresh = json!({"job": "math", "phase": "paused", "since": 0, "sound": false,
            "ready": false, "confirmed": false, "failures": 0, "rests_until": 0});
        let hung = |field: &str, call: Value| {
            let mut page = fresh.clone();
            page[field] = call;
            let holding: Holding = serde_json::from_value(page).expect("a holding");
            let worker = WorkerId(0);
            let mut state = Weighed::default();
            let job = json!({"all": true, "serving": null, "checksums": {}, "went_back": false,
                "last": null, "update": {"weights":
                    {"lineage": 0, "version": 3, "name": "3", "folder": ""}, "plan": {},
                    "began": 0, "calls_before": 0, "stage": "driven", "workers": [0],
                    "behind": {}, "checksums": {}}});
            let job = serde_json::from_value(job).expect("a job");
            state.jobs.insert("math".into(), job);
            state.holdings.insert(worker, holding.clone());
            state.fenced.insert(worker);
            let now = Timestamp(65_000_000);
            let view = HoldingView::of(worker, &holding, &state, now);
            (view.call, view.called_at_us, view.cause)
        };
        let why = |call: &str| {
            let words = "it takes part in the update to version 3";
            Some(format!("{words}; `{call}` has not been answered for 60 s"))
        };
        let own = json!({"number": 7, "call": "apply", "since": 5_000_000});
        let at = Some(5_000_000);
        assert_eq!(hung("call", own), (Some("apply"), at, why("apply")));
        let part = json!({"call": {"part": {"name": null}}, "since": 5_000_000});
        assert_eq!(hung("trainer", part), (Some("part"), at, why("part")));
    }
}
