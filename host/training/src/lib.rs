//! The API of training runs, over HTTP and as commands. `docs/training.md` describes it.
//!
//! The core's machine decides which programs begin and what is in a batch. Here is what it does not
//! hold: contents of groups, samples and batches, which are in the store before an event names them.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

mod app;
mod batches;
mod breakers;
mod captured;
mod capturing;
mod commands;
mod deletion;
mod domains;
mod encoding;
mod groups;
mod jobs;
mod judge;
mod members;
mod metrics;
mod open_groups;
mod payloads;
mod plain;
mod read_ahead;
mod refusal;
mod report;
mod rewards;
mod room;
mod sample;
mod sample_reader;
mod scores;
mod steps;
mod stored_samples;
mod stored_weights;
mod stream;
mod trainer;
mod waits;
mod weights;
mod work;

pub use app::TrainingApp;
pub use breakers::Breakers;
pub use commands::Command;
pub use jobs::forget;
pub use room::LargeAnswers;
pub use work::work_on_members;

use axum::Router;
use treadle_endpoints::Endpoint;

/// The endpoints.
pub fn training_endpoints() -> Vec<Endpoint<TrainingApp>> {
    [
        jobs::endpoints(),
        groups::endpoints(),
        open_groups::endpoints(),
        members::endpoints(),
        vec![deletion::endpoint()],
        steps::endpoints(),
        vec![stream::endpoint()],
        batches::endpoints(),
        weights::endpoints(),
        vec![stored_weights::endpoint()],
        trainer::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The handlers of the endpoints.
pub fn training_router(app: TrainingApp) -> Router {
    treadle_endpoints::router(training_endpoints(), app, 0)
}
