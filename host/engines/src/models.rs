//! The models that an engine serves. Adapters may be loaded and unloaded while it runs.

use super::adapter::names_of_models;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_scheduler::DriverHandle;

/// Queries the models and reports changes to the scheduler. An engine that lists none keeps its
/// last ones.
pub(super) async fn report_models(
    driver: &DriverHandle,
    upstream: &Upstream,
    worker: WorkerId,
    url: &str,
    kind: EngineKind,
) {
    let Some((model, others)) = names_of_models(upstream, url, kind).await else {
        return;
    };
    let Ok(Some(known)) = driver.worker(worker).await else {
        return;
    };
    if !known.other_models.iter().eq(&others) {
        let models = others;
        let read = ProgramEvent::WorkerOtherModelsRead { worker, models };
        driver.event(Event::Program(read));
    }
    if known.model.as_ref() != Some(&model) {
        let read = ProgramEvent::WorkerModelRead { worker, model };
        driver.event(Event::Program(read));
    }
}
