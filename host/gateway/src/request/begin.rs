//! Programs of training runs: the first step of one that names a group waits until it may begin.

use super::generate::Call;
use crate::routing::SchedulerClient;
use treadle_core::training::TrainingError;
use treadle_model::tenant::split;
use treadle_wire::{ErrorBody, ErrorCode};

/// Whether the tokens of a step are captured.
pub(super) async fn is_captured(call: &Call) -> bool {
    let (Some(captures), Some(member)) = (&call.app.captures, &call.member) else {
        return false;
    };
    let version = captures.driver.captured_version(member.clone(), None).await;
    let is_captured = version.is_ok_and(|version| version.is_some());
    if is_captured {
        captures.kinds.want();
    }
    is_captured
}

/// Waits until the program of a step may begin. Programs of jobs that are not declared, and surplus
/// ones of a group, begin at once and are not trained.
///
/// # Errors
/// It is not a member of the group any more, or too many programs wait.
pub(super) async fn begun(call: &Call) -> Result<(), ErrorBody> {
    let (Some(member), SchedulerClient::Local(driver)) = (&call.member, &call.client) else {
        return Ok(());
    };
    let arrived = driver.arrive(member.clone(), false).await;
    let arrived = arrived.map_err(|error| ErrorBody::new(ErrorCode::Overloaded, error.to_string()));
    let own = |name: &str| split(name).1.to_owned();
    match arrived? {
        Ok(_) | Err(TrainingError::UnknownJob(_)) => Ok(()),
        Err(TrainingError::Dropped(program)) => {
            let error = TrainingError::Dropped(own(&program).into());
            Err(ErrorBody::new(ErrorCode::MemberDropped, error.to_string()))
        }
        Err(TrainingError::OtherGroup { program, group }) => {
            let program = own(&program).into();
            let error = TrainingError::OtherGroup { program, group };
            Err(ErrorBody::new(ErrorCode::MemberConflict, error.to_string()))
        }
        Err(error) => Err(ErrorBody::new(ErrorCode::TrainingFull, error.to_string())),
    }
}
