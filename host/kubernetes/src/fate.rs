//! What the status of a pod means for its sandbox.

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use treadle_sandbox::End;

use crate::client::short;

/// Why a container never runs that waits. Others may pass.
const HOPELESS: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
];

/// Where a pod is in its life.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Fate {
    /// Nothing was told of it yet.
    #[default]
    Unheard,
    /// It is not ready yet; why, as far as that was told.
    Starting(String),
    /// It runs commands.
    Ready,
    /// It is over, and its files are gone.
    Ended(Ending),
}

/// How a pod ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    /// What that is for a command that ran in it.
    pub(crate) end: End,
    /// For people.
    pub(crate) cause: String,
}

impl Ending {
    /// One of which nothing is known but that it is not there.
    pub(crate) fn lost(cause: &str) -> Self {
        let cause = cause.to_owned();
        Self {
            end: End::Gone,
            cause,
        }
    }
}

impl Fate {
    /// Whether it was heard of, and not of its end.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self, Self::Starting(_) | Self::Ready)
    }

    /// What a pod's status says.
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

/// Whether a pod was evicted for what it wrote itself, and not for what its machine lacks.
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
