//! The meaning of a pod's status for its sandbox.

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use treadle_sandbox::End;

use crate::client::short;

/// Reasons of waiting containers that can't be resolved by waiting.
const HOPELESS: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
];

/// The state of a pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Fate {
    /// No status was received yet.
    #[default]
    Unheard,
    /// It is not ready, for this reason if known.
    Starting(String),
    /// It can run commands.
    Ready,
    /// It has ended, and its files are lost.
    Ended(Ending),
}

/// How a pod ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    /// The end of the commands that ran in it.
    pub(crate) end: End,
    /// The cause, as a message.
    pub(crate) cause: String,
}

impl Ending {
    /// The end of a pod that has disappeared.
    pub(crate) fn lost(cause: &str) -> Self {
        let cause = cause.to_owned();
        Self {
            end: End::Gone,
            cause,
        }
    }
}

impl Fate {
    /// Whether a status was received, but no end.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self, Self::Starting(_) | Self::Ready)
    }

    /// The state by a pod's status.
    pub(crate) fn of(pod: &Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self::Starting(String::new());
        };
        let state = status.container_statuses.iter().flatten().next();
        let state = state.and_then(|container| container.state.as_ref());
        match status.phase.as_deref() {
            Some("Failed" | "Succeeded") => Self::Ended(ended(status, state)),
            Some("Running") if is_ready(status) => Self::Ready,
            _ => waiting(status, state),
        }
    }
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn ended(status: &PodStatus, state: Option<&ContainerState>) -> Ending {
    let terminated = state.and_then(|state| state.terminated.as_ref());
    let why = terminated.and_then(|terminated| terminated.reason.clone());
    let reason = status.reason.clone().or(why.clone()).unwrap_or_default();
    let message = status.message.clone().unwrap_or_default();
    let end = if why.as_deref() == Some("OOMKilled") {
        End::OutOfMemory
    } else if reason == "Evicted" && is_own_disk(&message) {
        End::OutOfDisk
    } else {
        End::Gone
    };
    let cause = short(format!("{reason} {message}").trim());
    Ending { end, cause }
}

/// Whether a pod was evicted for its own disk usage rather than its machine's pressure.
fn is_own_disk(message: &str) -> bool {
    message.contains("ephemeral") && (message.contains("exceeds") || message.contains("exceeded"))
}

fn waiting(status: &PodStatus, state: Option<&ContainerState>) -> Fate {
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let reason = waiting
        .and_then(|waiting| waiting.reason.as_deref())
        .unwrap_or_default();
    let message = waiting
        .and_then(|waiting| waiting.message.as_deref())
        .unwrap_or_default();
    let told = short(format!("{reason} {message}").trim());
    if HOPELESS.contains(&reason) {
        return Fate::Ended(Ending::lost(&told));
    }
    let mut conditions = status.conditions.iter().flatten();
    let unmet = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let unscheduled = unmet.and_then(|condition| condition.message.as_deref());
    Fate::Starting(unscheduled.map_or(told, short))
}
