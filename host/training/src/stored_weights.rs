//! Versions of weights in the store: where a job's are, and which are needed.

use crate::app::{JobName, TrainingApp};
use axum::extract::State;
use axum::response::{Json, Response};
use serde::Serialize;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_core::weights::{State as Weighed, Weights};
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get};
use treadle_http::refuse;
use treadle_weight_store::Places;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(crate) fn endpoint() -> Endpoint<TrainingApp> {
    get("/api/v1/jobs/{job}/weights/store", VIEW, show)
        .summary("Where versions of a job's weights are stored, and which are needed")
        .details("The folders are those of the machines that share the store. docs/weights.md describes them.")
        .fails(&[ErrorCode::JobUnknown, ErrorCode::WeightsUnknown])
}

/// Where versions of a job's weights are.
#[derive(Serialize, ToSchema)]
struct StoreView {
    /// The job.
    job: String,
    /// The lineage that its trainer is in.
    lineage: u32,
    /// Folder of its versions in the store, with a folder for each lineage.
    store: String,
    /// Folder of its versions on each host, with a folder for each lineage.
    folder: String,
    /// Up to which batch the trainer has saved its state: versions of the lineage from this number
    /// are needed.
    checkpoint: u64,
    /// Other versions that are needed: in service, being loaded, or held by an engine.
    needed: Vec<NeededView>,
}

/// A version that is needed.
#[derive(Serialize, ToSchema)]
struct NeededView {
    /// Its lineage.
    lineage: u32,
    /// Its number.
    version: u64,
}

impl TrainingApp {
    /// The folders of a job's versions.
    ///
    /// # Errors
    /// The daemon has no store of weights.
    fn places_of(&self, job: &JobName) -> Result<Places, Response> {
        let places = self.weights.as_ref().map(|all| all.of_job(&job.inside));
        places.ok_or_else(|| {
            let message = "the daemon has no store of weights; set `weights.store` and \
                           `weights.folder`, or name a `folder` that each engine can read";
            refuse(ErrorCode::WeightsUnknown, message)
        })
    }

    /// The folder that engines load a version of the store from.
    ///
    /// # Errors
    /// The daemon has no store, or the version is not in it.
    pub(crate) async fn stored_folder(
        &self,
        job: &JobName,
        lineage: u32,
        version: u64,
    ) -> Result<String, Response> {
        let places = self.places_of(job)?;
        let stream = places.stream(lineage);
        let folder = stream.folder().display().to_string();
        let found = tokio::task::spawn_blocking(move || stream.versions()).await;
        if !found.is_ok_and(|found| found.is_ok_and(|versions| versions.contains(&version))) {
            let message = format!(
                "version {version} is not in {folder}; publish it with `treadle weights publish`, \
                 or name a `folder` that each engine can read"
            );
            return Err(refuse(ErrorCode::WeightsUnknown, message));
        }
        let local = places.local(lineage).folder_of(version);
        Ok(local.display().to_string())
    }
}

fn needed(state: &Weighed, job: &str) -> Vec<NeededView> {
    let Some(known) = state.jobs.get(job) else {
        return Vec::new();
    };
    let held = state.of_job(job);
    let held = held.filter_map(|(_, holding)| holding.held.as_ref());
    let update = known.update.as_ref().map(|update| &update.weights);
    let mut all: Vec<&Weights> = known.serving.iter().chain(update).chain(held).collect();
    all.sort_unstable_by_key(|weights| (weights.lineage, weights.version));
    all.dedup();
    let of = |weights: &Weights| NeededView {
        lineage: weights.lineage,
        version: weights.version,
    };
    all.into_iter().map(of).collect()
}

async fn show(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
) -> Answer<StoreView> {
    let job = JobName::of(&caller, job);
    let (lineage, checkpoint) = app
        .read_job(&job, |job| (job.lineage, job.checkpoint))
        .await?;
    let places = app.places_of(&job)?;
    let inside = job.inside.clone();
    let read = app.driver.weights(move |state| needed(state, &inside));
    let needed = read.await.map_err(|_| crate::app::stopped())?;
    Ok(Json(StoreView {
        job: job.own.to_string(),
        lineage,
        store: places.store.display().to_string(),
        folder: places.folder.display().to_string(),
        checkpoint,
        needed,
    }))
}
