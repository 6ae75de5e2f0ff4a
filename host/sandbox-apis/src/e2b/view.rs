//! Sandboxes as E2B's clients see them.

use super::{BASE, ENVD_VERSION, HIDDEN};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use treadle_runs::rfc3339;
use treadle_runs::sandboxes::Listed;
use treadle_sandbox::{OnExpiry, SYSTEM_IMAGE, Sandbox, State, Status};
use utoipa::ToSchema;

/// Time to live of a sandbox that is not ready yet.
const TTL: Duration = Duration::from_hours(1);
/// The client id, which clients require but do not use.
const CLIENT: &str = "treadle";

/// How to reach a sandbox.
#[derive(Serialize, ToSchema)]
pub(super) struct E2bSandbox {
    /// Its image.
    #[serde(rename = "templateID")]
    template_id: String,
    /// Its name.
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    /// Always the same.
    #[serde(rename = "clientID")]
    client_id: &'static str,
    /// The version of envd whose calls are served.
    #[serde(rename = "envdVersion")]
    envd_version: &'static str,
    /// The secret that authorizes calls to it.
    #[serde(rename = "envdAccessToken")]
    envd_access_token: String,
}

impl E2bSandbox {
    pub(super) fn of(sandbox: &Sandbox) -> Self {
        Self {
            template_id: template(&sandbox.status().spec.image),
            sandbox_id: sandbox.id().to_owned(),
            client_id: CLIENT,
            envd_version: ENVD_VERSION,
            envd_access_token: sandbox.secret(),
        }
    }
}

/// Details of a sandbox.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct E2bDetails {
    /// Its image.
    #[serde(rename = "templateID")]
    template_id: String,
    /// Its name.
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    /// Always the same.
    #[serde(rename = "clientID")]
    client_id: &'static str,
    /// When it was created.
    started_at: String,
    /// When its life ends.
    end_at: String,
    /// Cores that commands run on.
    cpu_count: usize,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    /// Disk limit in MiB.
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    /// running, or paused.
    state: &'static str,
    /// The version of envd whose calls are served.
    envd_version: &'static str,
    /// Labels by which its owner can find it.
    metadata: BTreeMap<String, String>,
    /// What happens at the end of its life.
    lifecycle: Lifecycle,
    /// The secret that authorizes calls to it; absent in lists and for callers with read access
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
}

/// What happens at the end of a sandbox's life.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    /// kill, or pause.
    on_timeout: &'static str,
    /// Whether a call resumes it.
    auto_resume: bool,
}

impl E2bDetails {
    pub(super) fn of(listed: Listed) -> Self {
        let status = listed.status;
        Self {
            template_id: template(&status.spec.image),
            client_id: CLIENT,
            started_at: rfc3339(status.created_at_us),
            end_at: rfc3339(end_us(&status)),
            cpu_count: listed.cores,
            memory_mb: listed.memory_bytes_max >> 20,
            disk_size_mb: listed.disk_bytes_max >> 20,
            state: if status.state == State::Paused {
                "paused"
            } else {
                "running"
            },
            envd_version: ENVD_VERSION,
            lifecycle: Lifecycle {
                on_timeout: match status.spec.on_expiry {
                    OnExpiry::Remove => "kill",
                    OnExpiry::Pause => "pause",
                },
                auto_resume: super::keys::is_resumed_by_calls(&status.spec.labels),
            },
            metadata: metadata(status.spec.labels),
            sandbox_id: status.id,
            envd_access_token: None,
        }
    }

    pub(super) fn with_token(mut self, sandbox: &Sandbox) -> Self {
        self.envd_access_token = Some(sandbox.secret());
        self
    }
}

/// When its life ends, in microseconds since 1970.
pub(super) fn end_us(status: &Status) -> u64 {
    status.expires_at_us.unwrap_or_else(|| {
        let ttl = status.spec.ttl.unwrap_or(TTL);
        status.created_at_us.saturating_add(ttl.as_micros() as u64)
    })
}

/// Default time to live of a sandbox.
pub(super) fn ttl(status: &Status) -> Duration {
    status.spec.ttl.unwrap_or(TTL)
}

/// Whether it exists for E2B's clients.
pub(super) fn is_there(status: &Status) -> bool {
    !matches!(status.state, State::Failed(_) | State::Removed)
}

/// Labels that its owner set.
pub(super) fn metadata(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.retain(|name, _| !name.starts_with(HIDDEN));
    labels
}

pub(super) fn template(image: &str) -> String {
    if image.is_empty() || image == SYSTEM_IMAGE {
        return BASE.to_owned();
    }
    image.to_owned()
}
