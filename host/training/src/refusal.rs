//! Refusals of training runs, with their codes.

use axum::response::Response;
use treadle_core::PublishError;
use treadle_core::training::TrainingError;
use treadle_core::weights::WeightsError;
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_scheduler::NotRecorded;
use treadle_wire::ErrorCode;

/// Codes of what the machine refuses.
pub(crate) const REFUSALS: &[ErrorCode] = &[
    ErrorCode::JobUnknown,
    ErrorCode::GroupUnknown,
    ErrorCode::MemberUnknown,
    ErrorCode::MemberConflict,
    ErrorCode::MemberDropped,
    ErrorCode::BatchAhead,
    ErrorCode::BatchReleased,
    ErrorCode::VersionConflict,
    ErrorCode::TrainingFull,
    ErrorCode::Overloaded,
];

/// The response to what was not recorded.
pub(crate) fn not_recorded(error: NotRecorded) -> Response {
    let code = match error {
        NotRecorded::Stopped => ErrorCode::Overloaded,
        NotRecorded::Refused => ErrorCode::Internal,
    };
    refuse(code, error.to_string())
}

/// The response to what the machine refuses.
pub(crate) fn refused(error: &TrainingError) -> Response {
    refuse(code(error), outside(error).to_string())
}

/// The response to a version that can't be published.
pub(crate) fn refused_weights(error: &PublishError) -> Response {
    let error = match error {
        PublishError::Run(error) => return refused(error),
        PublishError::Engines(error) => error,
    };
    let (code, message) = match error {
        WeightsError::Plan | WeightsError::Name | WeightsError::Quorum { .. } => {
            (ErrorCode::InvalidField, error.to_string())
        }
        WeightsError::UnknownWorker(_) | WeightsError::NoEngines => {
            (ErrorCode::WorkerUnknown, error.to_string())
        }
        WeightsError::NoWeights(job) => {
            let shown = WeightsError::NoWeights(split(job).1.into());
            (ErrorCode::WeightsUnknown, shown.to_string())
        }
        // Another tenant's job is not named.
        WeightsError::OtherJob { worker, .. } => {
            let message = format!("{worker} has the weights of another job; release them first");
            (ErrorCode::WeightsConflict, message)
        }
        _ => (ErrorCode::WeightsConflict, error.to_string()),
    };
    refuse(code, message)
}

fn code(error: &TrainingError) -> ErrorCode {
    match error {
        TrainingError::UnknownJob(_) => ErrorCode::JobUnknown,
        TrainingError::UnknownGroup { .. } => ErrorCode::GroupUnknown,
        TrainingError::UnknownMember { .. } => ErrorCode::MemberUnknown,
        TrainingError::Ended(_) | TrainingError::OtherGroup { .. } => ErrorCode::MemberConflict,
        TrainingError::Dropped(_) => ErrorCode::MemberDropped,
        TrainingError::Held
        | TrainingError::Batches
        | TrainingError::Jobs
        | TrainingError::Groups => ErrorCode::TrainingFull,
        TrainingError::Lineage { .. }
        | TrainingError::VersionFalls { .. }
        | TrainingError::VersionAhead { .. }
        | TrainingError::Loaded(_)
        | TrainingError::Loading(_) => ErrorCode::VersionConflict,
        TrainingError::GroupSize(_) | TrainingError::Domain(_) => ErrorCode::InvalidField,
        TrainingError::BatchAhead { .. } => ErrorCode::BatchAhead,
        TrainingError::Released { .. } => ErrorCode::BatchReleased,
    }
}

/// The error with the names that its client uses.
fn outside(error: &TrainingError) -> TrainingError {
    let own = |name: &str| -> Box<str> { split(name).1.into() };
    let mut error = error.clone();
    match &mut error {
        TrainingError::UnknownJob(name)
        | TrainingError::Ended(name)
        | TrainingError::Loaded(name)
        | TrainingError::Loading(name)
        | TrainingError::Dropped(name)
        | TrainingError::UnknownGroup { job: name, .. }
        | TrainingError::UnknownMember { program: name, .. }
        | TrainingError::OtherGroup { program: name, .. } => *name = own(name),
        _ => {}
    }
    error
}
