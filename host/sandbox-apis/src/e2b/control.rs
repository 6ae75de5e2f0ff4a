//! E2B's control plane: creating, showing, measuring and removing sandboxes.

use super::errors::{failed, refuse};
use super::keys::{self, Key};
use super::request::{go_on, host, is_paused, own, read, ready, seconds, told_of, without_memory};
use super::routing::may_run;
use super::view::{E2bDetails, E2bSandbox};
use super::{BASE, HIDDEN};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_endpoints::arguments::{InPath, Raw};
use treadle_endpoints::signature::{Answer, Created};
use treadle_model::Tenant;
use treadle_runs::rfc3339;
use treadle_runs::sandboxes::{Host, SandboxApp};
use treadle_sandbox::{OnExpiry, SYSTEM_IMAGE, SandboxSpec};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// Labels that name treadle's program and job.
const PROGRAM: &str = "treadle_program_id";
const JOB: &str = "treadle_job";

/// A sandbox to be created.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewE2bSandbox {
    /// An image or a snapshot; `base`, the default, is the machine's own programs.
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    /// Labels by which its owner can find it.
    metadata: Option<BTreeMap<String, String>>,
    /// Environment variables of all its commands.
    env_vars: Option<BTreeMap<String, String>>,
    /// Time to live in seconds; default `sandboxes.ttl_s`.
    timeout: Option<u64>,
    /// Whether it is paused instead of removed at its timeout.
    auto_pause: Option<bool>,
    /// Must not be false: paused sandboxes keep their memory.
    auto_pause_memory: Option<bool>,
    /// Whether calls resume it.
    auto_resume: Option<AutoResume>,
    /// Accepted and ignored: calls always need the secret.
    #[expect(dead_code, reason = "it changes nothing")]
    secure: Option<bool>,
    /// Sandboxes have no network, whatever this is.
    #[serde(rename = "allow_internet_access")]
    #[expect(dead_code, reason = "it changes nothing")]
    allow_internet_access: Option<bool>,
    /// Other fields, which treadle does not support.
    #[serde(flatten)]
    #[schema(ignore)]
    others: BTreeMap<String, Value>,
}

/// Whether calls resume a sandbox.
#[derive(Deserialize, ToSchema)]
struct AutoResume {
    /// True if they do.
    #[serde(default)]
    enabled: bool,
}

impl NewE2bSandbox {
    fn into_spec(self) -> Result<SandboxSpec, Response> {
        let is_asked = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        };
        if let Some((field, _)) = self.others.iter().find(|(_, value)| is_asked(value)) {
            let message = format!("treadle's sandboxes have no `{field}`; leave it out");
            return Err(refuse(ErrorCode::Unserved, message));
        }
        if self.auto_pause_memory == Some(false) {
            return Err(without_memory("autoPauseMemory"));
        }
        let mut labels = self.metadata.unwrap_or_default();
        if let Some(name) = labels.keys().find(|name| name.starts_with(HIDDEN)) {
            let message = format!(
                "`metadata` has {name}; names that start with {HIDDEN} are reserved for treadle"
            );
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        let (program, job) = (labels.get(PROGRAM).cloned(), labels.get(JOB).cloned());
        if self.auto_resume.is_some_and(|resume| resume.enabled) {
            keys::have_resumed_by_calls(&mut labels);
        }
        let ttl = self.timeout.map(|timeout| seconds("timeout", timeout));
        Ok(SandboxSpec {
            program,
            job: job.unwrap_or_else(|| "default".to_owned()),
            labels,
            env: self.env_vars.unwrap_or_default(),
            ttl: ttl.transpose()?,
            on_expiry: match self.auto_pause {
                Some(true) => OnExpiry::Pause,
                _ => OnExpiry::Remove,
            },
            ..SandboxSpec::default()
        })
    }
}

/// The image or snapshot of a template.
fn image(host: &Host, tenant: &Tenant, template: &str) -> Result<String, Response> {
    let images = host.sandboxes.images_of(tenant.name());
    if images.iter().any(|image| image == template) {
        return Ok(template.to_owned());
    }
    if template.is_empty() || template == BASE {
        return Ok(SYSTEM_IMAGE.to_owned());
    }
    let snapshot = host.sandboxes.snapshot_called(tenant.name(), template);
    if let Some(snapshot) = snapshot {
        return Ok(snapshot.id);
    }
    let message = format!(
        "no template {template}; use a snapshot or an image (GET /api/v1/images lists images)"
    );
    Err(refuse(ErrorCode::ImageUnknown, message))
}

pub(super) async fn create(
    State(app): State<SandboxApp>,
    caller: Caller,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Created<E2bSandbox>, Response> {
    let host = host(&app)?;
    let tenant = &caller.principal.tenant.tenant;
    let request: NewE2bSandbox = read(&body)?;
    let image = image(
        host,
        tenant,
        request.template_id.as_deref().unwrap_or_default(),
    )?;
    let mut spec = request.into_spec()?;
    spec.image = image;
    let ttl = spec.ttl;
    let (sandbox, is_new) = match Key::of(&headers, &body)? {
        None => (host.create(tenant, spec).await.map_err(failed)?, true),
        Some(key) => {
            let _naming = host.naming.lock().await;
            if let Some(sandbox) = key.find(host, tenant)? {
                (sandbox, false)
            } else {
                key.note(&mut spec.labels);
                (host.create(tenant, spec).await.map_err(failed)?, true)
            }
        }
    };
    if is_new {
        ready(host, &sandbox)
            .await
            .map_err(|error| told_of(&error))?;
    } else if is_paused(&sandbox) {
        go_on(&sandbox, ttl)
            .await
            .map_err(|error| told_of(&error))?;
    } else {
        sandbox.resume().await.map_err(|error| told_of(&error))?;
    }
    Ok(Created(E2bSandbox::of(&sandbox)))
}

pub(super) async fn show(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<E2bDetails> {
    let sandbox = own(&app, &caller, &id)?;
    let details = E2bDetails::of(host(&app)?.listed(sandbox.status()));
    // Whoever has the secret may run commands.
    Ok(Json(if may_run(&caller.principal) {
        details.with_token(&sandbox)
    } else {
        details
    }))
}

pub(super) async fn remove(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Result<Response, Response> {
    // This also removes a failed sandbox, which other calls don't find.
    let host = host(&app)?;
    let sandbox = host
        .own(&caller.principal.tenant.tenant, &id)
        .map_err(|error| told_of(&error))?;
    host.sandboxes.remove(sandbox.id()).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Resource usage of a sandbox at one time. Sizes are in bytes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct E2bMetric {
    /// Time of the measurement.
    timestamp: String,
    /// Time of the measurement in seconds since 1970.
    timestamp_unix: u64,
    /// Cores that commands run on.
    cpu_count: usize,
    /// Not measured: always 0.
    cpu_used_pct: f64,
    /// Memory in use.
    mem_used: u64,
    /// Memory limit.
    mem_total: u64,
    /// Not measured: always 0.
    mem_cache: u64,
    /// Bytes written to disk.
    disk_used: u64,
    /// Disk limit.
    disk_total: u64,
}

pub(super) async fn metrics(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<Vec<E2bMetric>> {
    let status = own(&app, &caller, &id)?.status();
    let listed = host(&app)?.listed(status);
    let now_us = treadle_auth::now_us();
    Ok(Json(vec![E2bMetric {
        timestamp: rfc3339(now_us),
        timestamp_unix: now_us / 1_000_000,
        cpu_count: listed.cores,
        cpu_used_pct: 0.0,
        mem_used: listed.status.memory_bytes,
        mem_total: listed.memory_bytes_max,
        mem_cache: 0,
        disk_used: listed.status.disk_bytes,
        disk_total: listed.disk_bytes_max,
    }]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn spec(text: &str) -> Result<SandboxSpec, u16> {
        let request = read::<NewE2bSandbox>(text.as_bytes());
        let spec = request.and_then(NewE2bSandbox::into_spec);
        spec.map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn what_old_clients_send_is_taken() {
        let spec = spec(
            r#"{"templateID":"base","allow_internet_access":true,"autoPause":true,"secure":true,
                "autoResume":{"enabled":true},"envVars":{"A":"1"},"timeout":300,"mcp":null,
                "volumeMounts":[],"metadata":{"tag":"t","treadle_job":"math",
                "treadle_program_id":"p-1"}}"#,
        );
        let spec = spec.expect("it is fine");
        assert_eq!(
            (spec.job.as_str(), spec.program.as_deref()),
            ("math", Some("p-1"))
        );
        assert_eq!(spec.ttl, Some(Duration::from_mins(5)));
        assert_eq!((spec.on_expiry, &*spec.env["A"]), (OnExpiry::Pause, "1"));
        assert_eq!(spec.labels["tag"], "t");
        assert!(keys::is_resumed_by_calls(&spec.labels));
        assert_eq!(super::tests::spec("").expect("nothing is fine").ttl, None);
    }

    #[test]
    fn what_treadle_lacks_is_refused_by_name() {
        for (text, status) in [
            (r#"{"mcp":{"x":{}}}"#, 501),
            (r#"{"network":{"allowOut":["1.1.1.1"]}}"#, 501),
            (r#"{"volumeMounts":[{"name":"a","path":"/a"}]}"#, 501),
            (r#"{"autoPauseMemory":false}"#, 501),
            (r#"{"metadata":{"treadle/e2b_key":"k"}}"#, 400),
            (r#"{"timeout":99999999999}"#, 400),
            (r#"{"timeout":-1}"#, 400),
            ("[]", 400),
        ] {
            assert_eq!(spec(text).expect_err(text), status, "{text}");
        }
    }
}
