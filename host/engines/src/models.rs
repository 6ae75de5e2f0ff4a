//! The models that an engine serves, as it tells them. Adapters come and go while it runs.

use super::adapter::names_of_models;
use treadle_core::{Event, ProgramEvent};
use treadle_http::Upstream;
use treadle_model::WorkerId;
use treadle_scheduler::DriverHandle;

/// Reads them, and reports what the scheduler does not know yet. An engine that names none keeps those
/// it had.
pub(super) async fn report_models(
    driver: &DriverHandle,
    upstream: &Upstream,
    worker: WorkerId,
    url: &str,
) {
    let Some((model, others)) = names_of_models(upstream, url).await else {
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
